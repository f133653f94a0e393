//! A reader of the event log on every replica, of which one at a time delivers: from a position that
//! moves under a lease.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kernel::change::CursorMove;
use kernel::log::EventFilter;
use kernel::store::commit;
use kernel::{Change, Json, Result, Store as _};
use parking_lot::Mutex;

use super::flaky::Flaky;
use super::{Broken, World};

const NAME: &str = "reader";
const LEASE: Duration = Duration::from_secs(15);

/// What was delivered, and how far the position has come.
#[derive(Default)]
pub struct Delivered {
    events: Mutex<BTreeSet<i64>>,
    position: Mutex<i64>,
}

pub async fn run(process: Arc<Flaky>, delivered: Arc<Delivered>, holder: String) {
    loop {
        tokio::time::sleep(process.world.millis(100, 3000)).await;
        // A failing store is tried again.
        if let Ok(Some(moved)) = deliver(&process, &delivered, &holder).await {
            check_position(&process.world, &delivered, moved);
        }
    }
}

/// Delivers some events, and moves the position behind them. Returns where to.
async fn deliver(process: &Flaky, delivered: &Delivered, holder: &str) -> Result<Option<i64>> {
    let Some(lease) = process.lease(NAME, holder, LEASE).await? else { return Ok(None) };
    let before = process.cursor(NAME).await?.map_or(0, |cursor| cursor.seq);
    let events = process.events(before, &EventFilter::default(), 20).await?;
    let Some(last) = events.last().map(|event| event.seq) else { return Ok(None) };
    delivered.events.lock().extend(events.iter().map(|event| event.seq));
    process.pass().await;
    let detail = Json::encode(&holder);
    let cursor = CursorMove { name: NAME.into(), seq: last, detail, fence: lease.fence };
    commit(process, Change { cursor: Some(cursor), ..Change::default() }, process.now()).await?;
    Ok(Some(last))
}

/// A position never moves back: a reader that was away too long cannot move it.
fn check_position(world: &World, delivered: &Delivered, moved: i64) {
    let mut position = delivered.position.lock();
    *position = moved.max(*position);
    let stored = world.memory.look(|tables| tables.cursors.get(NAME).map_or(0, |there| there.seq));
    if stored < *position {
        let back = Broken(format!("the reader's position went back to {stored} from {position}"));
        world.broken.lock().get_or_insert(back);
    }
}

/// Everything before the position was delivered, and almost everything is before it.
pub fn check(world: &World, delivered: &Delivered) -> std::result::Result<(), Broken> {
    let (position, newest) = world.memory.look(|tables| {
        (tables.cursors.get(NAME).map_or(0, |there| there.seq), tables.head.event_seq)
    });
    let events = delivered.events.lock();
    if let Some(lost) = (1..=position).find(|seq| !events.contains(seq)) {
        return Err(Broken(format!(
            "event {lost} was never delivered; the position is {position}"
        )));
    }
    if newest - position > 40 {
        return Err(Broken(format!("the reader stands at {position} of {newest}")));
    }
    Ok(())
}
