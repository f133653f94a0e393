//! How a look can end, and what becomes of the row.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use kernel::change::Write;
use kernel::driver::{Attempt, AttemptResult, Decision, Effect, Requeue, Worker, backoff};
use kernel::log::EventFilter;
use kernel::queue::State;
use kernel::store::commit;
use kernel::{Change, Error, Key, Lane, Object, Result, Timestamp};
use testkit::on_every_store;
use testkit::stores::Fresh;
use tokio::sync::Semaphore;

use crate::stage::*;

on_every_store!(
    a_look_ends_as_its_worker_says,
    what_is_recorded_with_the_settling_is_written_unless_the_look_fails,
    what_fails_is_tried_again_ever_more_slowly,
    a_panic_is_captured_counted_and_tried_again,
    a_step_that_takes_too_long_is_cut_off_and_tried_again,
    a_worker_may_cover_more_kinds_than_the_one_it_is_named_after,
    the_steps_of_a_look_are_carried_out_in_order_up_to_the_first_failure,
    what_was_started_outside_is_observed_later_and_leaves_its_slot_free,
    a_wake_up_during_work_leads_to_a_second_look,
    a_stale_change_leads_to_a_fresh_look_at_once,
    a_change_that_is_always_stale_does_not_spin,
    a_limit_that_is_reached_is_tried_again_later,
    an_unknown_kind_is_retried_with_a_clear_reason,
    a_deleted_object_is_reconciled_until_its_worker_is_done_with_it,
    what_was_never_there_is_not_looked_at,
);

async fn a_look_ends_as_its_worker_says(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    for id in ["done", "later", "stopped", "invalid", "busy"] {
        stage.create(id).await;
    }
    let minute = Duration::from_secs(60);
    let seen = Arc::default();
    let worker = player(&seen, move |attempt| {
        let next = match attempt.object.key.id() {
            "done" => Ok(Requeue::Never),
            "later" => Ok(Requeue::After(minute)),
            "stopped" => Ok(Requeue::Halted("needs a licence".into())),
            "invalid" => Err(Error::invalid("size", "must be smaller")),
            _ => Err(Error::Busy { retry_after_s: 1 }),
        };
        async move { Ok((phase(attempt, "seen"), next?)) }.boxed()
    });
    let driver = stage.driver("d", worker, config(8));
    stage.gone(&key("done")).await;
    let later = stage.row_in(&key("later"), State::Waiting, 0).await;
    assert_eq!((later.due, later.reason.as_str()), (stage.now().plus(minute), ""));
    let stopped = stage.row_in(&key("stopped"), State::Stopped, 0).await;
    assert_eq!(stopped.reason, "needs a licence");
    let invalid = stage.row_in(&key("invalid"), State::Stopped, 0).await;
    assert_eq!(invalid.reason, "size: must be smaller", "what will not pass needs a person");
    let busy = stage.row_in(&key("busy"), State::Waiting, 1).await;
    assert_eq!(busy.reason, "too many requests; try again in 1 s");
    for (id, phase) in [("done", "seen"), ("later", "seen"), ("stopped", "seen"), ("busy", "new")] {
        assert_eq!(stage.get(id).await.phase, phase, "{id}");
    }
    stage.pass(minute).await;
    seen.delivery(7).await;
    let again: Vec<Key> = seen.begun().split_off(5);
    assert!(again.contains(&key("later")) && again.contains(&key("busy")), "{again:?}");
    let mut ends = driver.ended(7).await;
    ends.sort_by_key(|end| end.label());
    ends.dedup();
    assert_eq!(
        ends,
        [
            AttemptResult::Done,
            AttemptResult::RequeueAt,
            AttemptResult::Retry,
            AttemptResult::Stopped
        ]
    );
}

async fn what_is_recorded_with_the_settling_is_written_unless_the_look_fails(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    for id in ["both", "fails", "deleted"] {
        stage.create(id).await;
    }
    let worker = player(&Arc::default(), |attempt| {
        attempt.defer_to_commit(phase(attempt, "first"));
        let mut second = phase(attempt, "second");
        if let Some(write) = &mut second.write {
            write.object.revision += 1;
        }
        async move {
            match attempt.object.key.id() {
                "fails" => Err(Error::invalid("size", "is wrong")),
                // Someone else writes meanwhile: just the revision that the second builds on.
                "deleted" if attempt.object.phase == "new" => {
                    let asked = phase(attempt, "asked to go");
                    commit(attempt.store(), asked, attempt.now()).await?;
                    Ok((second, Requeue::Never))
                }
                "deleted" => Err(Error::invalid("phase", "has changed")),
                _ => Ok((second, Requeue::Never)),
            }
        }
        .boxed()
    });
    let _driver = stage.driver("d", worker, config(8));
    stage.gone(&key("both")).await;
    let both = stage.get("both").await;
    assert_eq!((both.phase.as_str(), both.revision), ("second", 3));
    let filter = EventFilter { subject: Some(key("both")), ..EventFilter::default() };
    let events = stage.store.events(0, &filter, 10).await.unwrap();
    let reported: Vec<&str> =
        events.iter().filter_map(|event| event.kind.rsplit('.').next()).collect();
    assert!(reported.ends_with(&["first", "second"]), "{reported:?}");
    stage.row_in(&key("fails"), State::Stopped, 0).await;
    assert_eq!(stage.get("fails").await.phase, "new");
    stage.row_in(&key("deleted"), State::Stopped, 0).await;
    assert_eq!(stage.get("deleted").await.phase, "asked to go", "neither of the two is written");
}

async fn what_fails_is_tried_again_ever_more_slowly(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let seen = Arc::default();
    let worker = player(&seen, |attempt| {
        let failure =
            Error::unavailable(format!("the workshop ({})", attempt.failures), "no answer");
        async move { Err(failure) }.boxed()
    });
    let _driver = stage.driver("d", worker, config(1));
    for attempt in 0..8 {
        let row = stage.row_in(&key("a"), State::Waiting, attempt + 1).await;
        assert_eq!(row.reason, format!("the workshop ({attempt}): no answer"));
        let wait = stage.now().until(row.due);
        let (least, most) = (backoff(attempt, 0.0), backoff(attempt, 1.0));
        assert!(least <= wait && wait <= most, "{attempt}: {least:?} {wait:?} {most:?}");
        assert_eq!(seen.count(), usize::try_from(attempt).unwrap() + 1, "and not before");
        stage.pass(wait).await;
    }
}

async fn a_panic_is_captured_counted_and_tried_again(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let worker = player(&Arc::default(), |attempt| {
        async move {
            assert!(attempt.failures > 0, "the first one always does");
            Ok((phase(attempt, "ready"), Requeue::Never))
        }
        .boxed()
    });
    let driver = stage.driver("d", worker, config(1));
    let row = stage.row_in(&key("a"), State::Waiting, 1).await;
    assert!(row.reason.contains("panicked: the first one always does"), "{}", row.reason);
    stage.pass(stage.now().until(row.due)).await;
    stage.gone(&key("a")).await;
    assert_eq!(stage.get("a").await.phase, "ready");
    assert_eq!(driver.ended(2).await, [AttemptResult::Retry, AttemptResult::Done]);
}

const MINUTE: Duration = Duration::from_secs(60);

/// Carries out as many steps as the object's name has letters; each does what its letter says.
struct Letters {
    carried_out: Arc<AtomicUsize>,
}

#[async_trait]
impl Worker for Letters {
    type Observed = String;
    type Step = char;

    fn kind(&self) -> &str {
        KIND
    }

    async fn observe(&self, attempt: &Attempt) -> Result<String> {
        Ok(attempt.object.name.clone())
    }

    fn decide(&self, object: &Object, observed: &String, now: Timestamp) -> Decision<char> {
        let mut object = object.clone();
        (object.phase, object.updated_at) = ("ready".into(), now);
        let change =
            Change { write: Some(Write::transition(object, "ready")), ..Change::default() };
        Decision { steps: observed.chars().collect(), change, requeue: Requeue::Never }
    }

    async fn execute(&self, attempt: &Attempt, step: &char) -> Result<Effect> {
        match step {
            's' if attempt.failures == 0 => std::future::pending().await,
            'f' if attempt.failures == 0 => {
                return Err(Error::unavailable("the other side", "asked"));
            }
            _ => {}
        }
        let pending = *step == 'p' && self.carried_out.load(Ordering::SeqCst) == 1;
        self.carried_out.fetch_add(1, Ordering::SeqCst);
        let note = attempt.effect_id("p");
        Ok(if pending { Effect::Pending { poll: MINUTE, note } } else { Effect::Done })
    }

    fn timeout(&self, step: &char) -> Duration {
        if *step == 's' { Duration::from_millis(50) } else { MINUTE }
    }

    fn covers(&self, kind: &str) -> bool {
        kind.starts_with(KIND)
    }
}

async fn a_worker_may_cover_more_kinds_than_the_one_it_is_named_after(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    let _driver = stage.driver("d", Arc::new(Letters { carried_out: Arc::default() }), config(1));
    for kind in [KIND, "thing-of-tomorrow", "other"] {
        stage.commit(stage.creation(stage.object(kind, "a", "acme"), Lane::Normal)).await;
    }
    stage.gone(&key("a")).await;
    stage.gone(&Key::new("thing-of-tomorrow", "a")).await;
    let row = stage.row_in(&Key::new("other", "a"), State::Waiting, 1).await;
    assert!(row.reason.ends_with("for kind `other`"), "{}", row.reason);
}

async fn a_step_that_takes_too_long_is_cut_off_and_tried_again(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("s").await;
    let _driver = stage.driver("d", Arc::new(Letters { carried_out: Arc::default() }), config(1));
    let row = stage.row_in(&key("s"), State::Waiting, 1).await;
    assert_eq!(row.reason, "the step did not finish within 50ms");
    assert_eq!(stage.get("s").await.phase, "new");
    stage.pass(stage.now().until(row.due)).await;
    stage.gone(&key("s")).await;
    assert_eq!(stage.get("s").await.phase, "ready");
}

async fn the_steps_of_a_look_are_carried_out_in_order_up_to_the_first_failure(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("aafaa").await;
    let carried_out: Arc<AtomicUsize> = Arc::default();
    let worker = Letters { carried_out: carried_out.clone() };
    let _driver = stage.driver("d", Arc::new(worker), config(1));
    let row = stage.row_in(&key("aafaa"), State::Waiting, 1).await;
    assert_eq!(carried_out.swap(0, Ordering::SeqCst), 2);
    assert_eq!(stage.get("aafaa").await.phase, "new", "nothing is written of a look that failed");
    stage.pass(stage.now().until(row.due)).await;
    stage.gone(&key("aafaa")).await;
    assert_eq!(carried_out.load(Ordering::SeqCst), 5);
    assert_eq!(stage.get("aafaa").await.phase, "ready");
}

async fn what_was_started_outside_is_observed_later_and_leaves_its_slot_free(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("ap").await;
    let worker = Letters { carried_out: Arc::default() };
    let driver = stage.driver("d", Arc::new(worker), config(1));
    let row = stage.row_in(&key("ap"), State::Waiting, 0).await;
    assert_eq!((row.due, row.reason.as_str()), (stage.now().plus(MINUTE), ""));
    assert_eq!(row.note.len(), 32, "the note is shown: {row:?}");
    assert_eq!(stage.get("ap").await.phase, "new", "its change is written when all is done");
    stage.create("b").await;
    stage.gone(&key("b")).await;
    stage.pass(MINUTE).await;
    stage.gone(&key("ap")).await;
    assert_eq!(stage.get("ap").await.phase, "ready");
    assert_eq!(driver.ended(3).await[0], AttemptResult::Pending);
}

async fn a_wake_up_during_work_leads_to_a_second_look(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let (seen, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let open = gate.clone();
    let worker = player(&seen, move |_| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok((Change::default(), Requeue::Never))
        }
        .boxed()
    });
    let _driver = stage.driver("d", worker, config(4));
    seen.delivery(1).await;
    stage.wake("a").await;
    stage.wake("a").await;
    assert!(stage.row(&key("a")).await.unwrap().woken.is_some());
    assert_eq!(seen.count(), 1, "not twice at once");
    open.add_permits(1);
    seen.delivery(2).await;
    open.add_permits(1);
    stage.gone(&key("a")).await;
    assert_eq!((seen.count(), seen.overlaps()), (2, 0), "two wake-ups are one look");
}

async fn a_stale_change_leads_to_a_fresh_look_at_once(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let seen = Arc::default();
    let worker = player(&seen, |attempt| {
        async move {
            if attempt.object.revision == 1 {
                let mut object = attempt.object.clone();
                object.generation = 2;
                let wish =
                    Change { write: Some(Write::update(object, "updated")), ..Change::default() };
                commit(attempt.store(), wish, attempt.now()).await?;
            }
            let mut change = phase(attempt, "ready");
            if let Some(write) = &mut change.write {
                write.object.observed = write.object.generation;
            }
            Ok((change, Requeue::Never))
        }
        .boxed()
    });
    let _driver = stage.driver("d", worker, config(1));
    stage.gone(&key("a")).await;
    let object = stage.get("a").await;
    assert_eq!((seen.count(), object.phase.as_str(), object.observed), (2, "ready", 2));
}

async fn a_change_that_is_always_stale_does_not_spin(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let seen = Arc::default();
    let worker = player(&seen, |attempt| {
        async move {
            // A mistake of the worker's: what it records makes what it then writes stale.
            attempt.record(phase(attempt, "working")).await?;
            Ok((phase(attempt, "ready"), Requeue::Never))
        }
        .boxed()
    });
    let _driver = stage.driver("d", worker, config(1));
    let row = stage.row_in(&key("a"), State::Waiting, 3).await;
    assert!(row.reason.contains("was changed meanwhile"), "{}", row.reason);
    assert_eq!(seen.count(), 3, "twice at once, then it waits");
}

async fn a_limit_that_is_reached_is_tried_again_later(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    stage.create("b").await;
    let worker = player(&Arc::default(), |attempt| {
        let holder = attempt.object.key.to_string();
        let take = kernel::change::Take { counter: "room".into(), holder, amount: 1, limit: 1 };
        async move { Ok((Change { takes: vec![take], ..phase(attempt, "ready") }, Requeue::Never)) }
            .boxed()
    });
    let _driver = stage.driver("d", worker, config(1));
    let out = async || {
        let rows = [stage.row(&key("a")).await, stage.row(&key("b")).await];
        rows.into_iter().flatten().find(|row| row.state == State::Waiting && row.attempt == 1)
    };
    eventually("one of them waits", async || out().await.is_some()).await;
    let row = out().await.unwrap();
    assert!(row.reason.contains("room is at its limit"), "{}", row.reason);
    assert_eq!(stage.get(row.key.id()).await.phase, "new");
}

async fn an_unknown_kind_is_retried_with_a_clear_reason(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.commit(stage.creation(stage.object("gadget", "x", "acme"), Lane::Normal)).await;
    let worker =
        player(&Arc::default(), |_| async { Ok((Change::default(), Requeue::Never)) }.boxed());
    let _driver = stage.driver("d", worker, config(1));
    let row = stage.row_in(&Key::new("gadget", "x"), State::Waiting, 1).await;
    assert_eq!(row.reason, "no worker is registered for kind `gadget`");
    assert!(row.due > stage.now());
}

/// A worker may have left something outside, and asked to clean up once more.
async fn a_deleted_object_is_reconciled_until_its_worker_is_done_with_it(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    // Nobody knows its kind any more.
    let mut foreign = stage.object("gadget", "gone", "acme");
    foreign.deleted_at = Some(stage.now());
    stage.commit(stage.creation(foreign, Lane::Normal)).await;
    let again = Duration::from_secs(600);
    let seen = Arc::default();
    let worker = player(&seen, move |attempt| {
        let mut gone = attempt.object.clone();
        async move {
            if gone.deleted_at.is_some() {
                return Ok((Change::default(), Requeue::Never));
            }
            gone.deleted_at = Some(attempt.now());
            let change =
                Change { write: Some(Write::update(gone, "deleted")), ..Change::default() };
            Ok((change, Requeue::After(again)))
        }
        .boxed()
    });
    let driver = stage.driver("d", worker, config(4));
    stage.row_in(&key("a"), State::Waiting, 0).await;
    assert_eq!(seen.count(), 1);
    stage.pass(again).await;
    stage.gone(&key("a")).await;
    assert_eq!(seen.count(), 2, "once more after the deletion");
    stage.gone(&Key::new("gadget", "gone")).await;
    driver.stopped().await;
}

async fn what_was_never_there_is_not_looked_at(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.wake("never").await;
    let seen = Arc::default();
    let worker = player(&seen, |_| async { Ok((Change::default(), Requeue::Never)) }.boxed());
    let driver = stage.driver("d", worker, config(4));
    stage.gone(&key("never")).await;
    driver.stopped().await;
    assert_eq!(seen.count(), 0);
}
