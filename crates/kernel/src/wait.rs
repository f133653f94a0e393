//! Waits until an object reaches a state; behind `--wait`.

use crate::event_tail::{EventTail, Page};
use crate::log::EventFilter;
use crate::{Key, Object, Result};

/// Waits until `predicate` holds for the object, it is deleted, or `deadline` resolves. Returns the
/// object as it is then, or `None` if it does not exist.
pub async fn until(
    tail: &EventTail,
    key: &Key,
    deadline: impl Future<Output = ()> + Send,
    predicate: impl Fn(&Object) -> bool + Send,
) -> Result<Option<Object>> {
    let mut deadline = std::pin::pin!(deadline);
    let store = tail.store();
    let filter = EventFilter { subject: Some(key.clone()), ..EventFilter::default() };
    // Before the first read, so that a commit after the read is noticed.
    let mut reader = tail.subscribe(store.newest_event().await?, filter);
    let mut expired = false;
    loop {
        let Some(object) = store.object(key).await? else { return Ok(None) };
        if expired || object.deleted_at.is_some() || predicate(&object) {
            return Ok(Some(Object::clone(&object)));
        }
        let written = async {
            loop {
                match reader.next(1).await? {
                    Page::Events { events, more: true } if events.is_empty() => {}
                    Page::Events { events, .. } if events.is_empty() => reader.wait().await,
                    _ => return Ok::<(), crate::Error>(()),
                }
            }
        };
        tokio::select! {
            () = &mut deadline => expired = true,
            written = written => written?,
        }
    }
}
