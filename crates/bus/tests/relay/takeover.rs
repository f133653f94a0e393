//! Where a pump begins, what it leaves to the next, and what a restored store changes.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use bus::config::Start;
use bus::model::{Gap, Phase, Position};
use bus::work::leadership::Terms;
use kernel::Timestamp;
use kernel::log::EventFilter;
use testkit::on_every_store;
use testkit::stores::Fresh;

use crate::fault::Picky;
use crate::stage::{LEASE, Other, Script, Stage};

on_every_store!(
    a_new_sink_begins_with_the_next_event_unless_it_is_to_have_all,
    a_sink_that_cannot_be_opened_says_so_at_once,
    a_holder_that_loses_its_lease_lets_the_broker_go,
    a_lease_that_nobody_else_has_is_taken_again_soon,
    what_is_skipped_is_known_before_the_other_side_moves_past_it,
    a_gap_that_is_found_twice_is_shown_once,
    a_sink_ahead_of_a_restored_log_gets_everything_in_a_new_epoch,
    a_restored_log_that_has_overtaken_the_sink_is_noticed,
    the_position_of_the_other_side_counts_in_the_same_log,
    a_broker_that_takes_nothing_is_reported_until_it_does,
    a_person_is_obeyed_while_the_broker_takes_nothing,
);

async fn a_new_sink_begins_with_the_next_event_unless_it_is_to_have_all(fresh: &Fresh) {
    let mut stage = Stage::new(fresh, Other::default());
    stage.start = Start::Latest;
    stage.happen(&["before"]).await;
    let pump = stage.start();
    stage.until("it has a position", async || stage.cursor().await.is_some()).await;
    stage.happen(&["after"]).await;
    stage.until_delivered("after").await;
    pump.stop().await;
    assert_eq!(stage.delivered().len(), 1);
}

async fn a_sink_that_cannot_be_opened_says_so_at_once(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    stage.other.script.lock().extend((0..5).map(|_| Script::Closed));
    let pump = stage.start();
    let reported = async || {
        let filter = EventFilter { kind: Some("sink".into()), ..EventFilter::default() };
        let events = stage.store.events(0, &filter, 9).await.unwrap();
        events.iter().any(|event| event.kind == "mainstay.sink.failing")
    };
    stage.until("it is failing", reported).await;
    stage.until("it runs", async || stage.sink().await.phase == Phase::Running).await;
    pump.stop().await;
}

async fn a_holder_that_loses_its_lease_lets_the_broker_go(fresh: &Fresh) {
    let mut stage = Stage::new(fresh, Other::default());
    stage.terms = Terms { holder: "first".into(), ttl: Duration::from_millis(600) };
    let pump = stage.start();
    stage.until("it is connected", async || stage.other.open.load(SeqCst)).await;
    // As if it had been paused: another has the lease now, and keeps it.
    let ttl = Duration::from_secs(60);
    let taken = async || {
        let lease = stage.store.lease(LEASE, "first", ttl).await.unwrap();
        if let Some(lease) = lease {
            stage.store.unlease(LEASE, lease.fence).await.unwrap();
        }
        // The first may have been quicker.
        stage.store.lease(LEASE, "second", ttl).await.unwrap().is_some()
    };
    stage.until("another has the lease", taken).await;
    stage.until("it has let go", async || !stage.other.open.load(SeqCst)).await;
    pump.stop().await;
}

/// As after a suspend that outlasted it.
async fn a_lease_that_nobody_else_has_is_taken_again_soon(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    let pump = stage.start();
    stage.happen(&["a"]).await;
    stage.until_delivered("a").await;
    let Terms { holder, ttl } = Terms::embedded();
    let lease = stage.store.lease(LEASE, &holder, ttl).await.unwrap().unwrap();
    stage.store.unlease(LEASE, lease.fence).await.unwrap();
    stage.happen(&["b"]).await;
    let newest = *stage.widgets().await.last().unwrap();
    let saved = async || stage.cursor().await.is_some_and(|(there, _)| there.seq >= newest);
    stage.until("it goes on", saved).await;
    pump.stop().await;
}

async fn what_is_skipped_is_known_before_the_other_side_moves_past_it(fresh: &Fresh) {
    let other = Other::default();
    *other.position.lock() = Some(Position::default());
    let mut stage = Stage::new(fresh, other);
    stage.renderer = Some(Arc::new(Picky));
    stage.happen(&["a", "poison", "b"]).await;
    stage.other.script.lock().push_back(Script::Hang);
    let pump = stage.start();
    stage.until_delivered("b").await;
    pump.kill().await;
    let (_, cursor) = stage.cursor().await.unwrap();
    assert_eq!(cursor.parked.iter().map(|event| event.seq).collect::<Vec<_>>(), [2]);
    let pump = stage.start();
    stage.happen(&["c"]).await;
    stage.until_delivered("c").await;
    pump.stop().await;
    let (_, cursor) = stage.cursor().await.unwrap();
    assert_eq!(cursor.parked.len(), 1);
    assert_eq!(stage.delivered().len(), 3, "none twice");
}

async fn a_gap_that_is_found_twice_is_shown_once(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    let pump = stage.start();
    stage.until("it has a cursor", async || stage.cursor().await.is_some()).await;
    pump.stop().await;
    let before = stage.cursor().await.unwrap().0.seq;
    stage.happen(&["a", "b", "c", "d"]).await;
    let oldest = stage.purge().await;
    stage.other.script.lock().extend([Script::Fail, Script::Fail]);
    let pump = stage.start();
    stage.until_all_are_delivered().await;
    pump.stop().await;
    let (_, cursor) = stage.cursor().await.unwrap();
    assert_eq!(cursor.gaps, [Gap { first: before + 1, last: oldest - 1 }]);
}

/// The store was restored while the broker was away, and has gone on since.
async fn a_sink_ahead_of_a_restored_log_gets_everything_in_a_new_epoch(fresh: &Fresh) {
    let other = Other::default();
    *other.position.lock() = Some(Position { seq: 1_000_000, ..Position::default() });
    let stage = Stage::new(fresh, other);
    stage.other.script.lock().push_back(Script::Closed);
    stage.happen(&["a", "b"]).await;
    let pump = stage.start();
    stage.until_all_are_delivered().await;
    stage.happen(&["c"]).await;
    stage.until_all_are_delivered().await;
    pump.stop().await;
    let there = stage.other.position.lock().unwrap();
    assert!(there.epoch == 1 && there.seq < 1_000_000, "{there:?}");
    assert_eq!(stage.delivered(), stage.widgets().await);
    assert_eq!(stage.cursor().await.unwrap().0.epoch, 1);
}

async fn a_restored_log_that_has_overtaken_the_sink_is_noticed(fresh: &Fresh) {
    assert_eq!(begin_after_first(fresh, -1).await, (vec![1, 2, 3], 1));
}

async fn the_position_of_the_other_side_counts_in_the_same_log(fresh: &Fresh) {
    assert_eq!(begin_after_first(fresh, 0).await, (vec![2, 3], 0));
}

/// The other side has the first event of three, with a time that is off by this. Returns what is
/// delivered, and the epoch.
async fn begin_after_first(fresh: &Fresh, off_ms: i64) -> (Vec<i64>, i64) {
    let stage = Stage::new(fresh, Other::default());
    stage.happen(&["a", "b", "c"]).await;
    let events = stage.store.events(0, &Default::default(), 1).await.unwrap();
    let at = Some(Timestamp(events[0].at.0 + off_ms));
    *stage.other.position.lock() = Some(Position { epoch: 0, seq: 1, at });
    let pump = stage.start();
    stage.until_delivered("c").await;
    pump.stop().await;
    let epoch = stage.other.position.lock().unwrap().epoch;
    (stage.delivered(), epoch)
}

async fn a_broker_that_takes_nothing_is_reported_until_it_does(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    stage.other.script.lock().push_back(Script::Block);
    stage.happen(&["a"]).await;
    let pump = stage.start();
    let failing = async || {
        let key = bus::store::key("orders");
        let there = stage.store.object(&key).await.unwrap();
        there.is_some_and(|object| object.phase == Phase::Failing.label())
    };
    stage.until("it says so", failing).await;
    let reason = stage.sink().await.status.reason;
    assert_eq!(reason, "the broker takes no messages: low on memory");
    assert_eq!(stage.state.condition().0, Phase::Failing);
    stage.other.blocked.send_replace(None);
    stage.until_all_are_delivered().await;
    stage.until("it runs", async || stage.sink().await.phase == Phase::Running).await;
    assert_eq!(stage.state.condition().0, Phase::Running);
    pump.stop().await;
}

async fn a_person_is_obeyed_while_the_broker_takes_nothing(fresh: &Fresh) {
    let stage = Stage::new(fresh, Other::default());
    stage.happen(&["a"]).await;
    stage.other.script.lock().push_back(Script::Block);
    let pump = stage.start();
    let failing = async || stage.state.condition().0 == Phase::Failing;
    stage.until("it says so", failing).await;
    stage.tell.send_modify(|spec| (spec.epoch, spec.from) = (1, Some(1)));
    stage.until_all_are_delivered().await;
    stage.until("it runs", async || stage.sink().await.phase == Phase::Running).await;
    pump.stop().await;
    assert_eq!(stage.cursor().await.unwrap().0.epoch, 1);
}
