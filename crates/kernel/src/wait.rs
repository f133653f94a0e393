//! Waits until an object reaches a state; behind `--wait`.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Key, Object, Result, Store};

/// A busy store sends many wake-ups per millisecond, mostly about other objects. A waiter whose
/// object did not change reads at most this often.
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Wake-ups may get lost; without one, readers check again after this long.
pub const RECHECK: Duration = Duration::from_secs(15);

/// Waits until `predicate` holds for the object, it is deleted, or `deadline` resolves. Returns the
/// object as it is then, or `None` if it does not exist.
pub async fn until(
    store: &dyn Store,
    key: &Key,
    deadline: impl Future<Output = ()> + Send,
    predicate: impl Fn(&Object) -> bool + Send,
) -> Result<Option<Object>> {
    let mut deadline = std::pin::pin!(deadline);
    // Subscribed before the first read, so that a commit after the read is noticed.
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
        pause = if object.revision == revision {
            (pause * 2).clamp(Duration::from_millis(1), PAUSE_MAX)
        } else {
            Duration::ZERO
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
