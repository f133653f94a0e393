//! "Tell me when this object is so far": what `--wait` stands on.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Key, Object, Result, Store};

/// A busy store wakes many times a millisecond, mostly of other objects. A waiter that finds its
/// object unchanged reads at most this often.
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Wakeups may get lost; without one, look after this long.
pub const RECHECK: Duration = Duration::from_secs(15);

/// Waits until `predicate` holds of the object, it was deleted, or `deadline` ends, and returns the
/// object as it is then: the caller sees which it was. `None` if there is no such object.
pub async fn until(
    store: &dyn Store,
    key: &Key,
    deadline: impl Future<Output = ()> + Send,
    predicate: impl Fn(&Object) -> bool + Send,
) -> Result<Option<Object>> {
    let mut deadline = std::pin::pin!(deadline);
    // Subscribed before the first read: what commits after the read changes the receiver.
    let mut wakeups = store.wakeups().events();
    let mut expired = false;
    let (mut pause, mut revision) = (Duration::ZERO, 0);
    loop {
        wakeups.mark_unchanged();
        let read_at = Instant::now();
        let Some(object) = store.get(std::slice::from_ref(key)).await?.pop() else {
            return Ok(None);
        };
        if expired || object.deleted_at.is_some() || predicate(&object) {
            return Ok(Some(object));
        }
        pause = match object.revision == revision {
            true => (pause * 2).clamp(Duration::from_millis(1), PAUSE_MAX),
            false => Duration::ZERO,
        };
        revision = object.revision;
        let hinted = async {
            let _ = tokio::time::timeout(RECHECK, wakeups.changed()).await;
            tokio::time::sleep_until(read_at + pause).await;
        };
        tokio::select! {
            () = &mut deadline => expired = true,
            () = hinted => {}
        }
    }
}
