//! Wakes the dependents of an object that has very many of them: a page per attempt, each written in
//! the commit that completes the attempt. The queue row's note says how far it is, so that the next
//! attempt, on whichever replica, continues there; a wake-up in between begins again.

use std::time::Duration;

use super::Requeue;
use super::attempt::Context;
use crate::admission::DEPENDENTS_AT_ONCE;
use crate::change::Wake;
use crate::{Change, Key, Result};

pub async fn wake_dependents(
    context: &Context,
    of: &Key,
    after: &str,
) -> Result<(Change, Requeue)> {
    let page = context.store.dependents_after(of, after, DEPENDENTS_AT_ONCE).await?;
    let now = context.clock.now();
    let objects = context.store.get(&page).await?;
    let wakes = objects.iter().map(|object| Wake::for_object(object, now)).collect();
    let requeue = match page.last() {
        Some(last) if page.len() == DEPENDENTS_AT_ONCE => {
            Requeue::Pending { poll: Duration::ZERO, note: last.to_string() }
        }
        _ => Requeue::Never,
    };
    Ok((Change { wakes, ..Change::default() }, requeue))
}
