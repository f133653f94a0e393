//! One key, one worker: between drivers, after a lost lease, over a stop or a crash.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use kernel::driver::{AttemptResult, Config, Requeue};
use kernel::log::EventFilter;
use kernel::queue::State;
use kernel::{Change, Error, Refusal};
use parking_lot::Mutex;
use testkit::on_every_store;
use testkit::stores::{Fresh, Place};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::stage::*;

on_every_store!(
    two_drivers_share_the_work_and_never_look_at_one_key_at_once,
    a_frozen_worker_that_lost_its_lease_writes_nothing,
    a_look_ends_when_its_lease_is_lost,
    a_look_ends_when_the_store_is_out_of_reach_for_as_long_as_its_lease,
    due_work_that_was_locked_for_a_moment_is_not_forgotten,
    what_is_recorded_between_steps_is_fenced,
    a_worker_keeps_its_lease_for_as_long_as_it_works,
    a_graceful_stop_finishes_what_runs_and_claims_no_more,
    what_is_cut_short_by_a_stop_is_taken_up_again,
    an_attempt_that_ends_when_its_driver_drains_is_handed_over_at_once,
    after_a_crash_at_any_point_a_new_driver_goes_on,
    a_driver_whose_clock_is_ahead_takes_no_running_work,
    work_is_handed_over_at_once_between_drivers_whose_clocks_differ,
);

const LEASE: Duration = Duration::from_secs(15);

async fn two_drivers_share_the_work_and_never_look_at_one_key_at_once(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    let (objects, looks) = (120, 3);
    for n in 0..objects {
        stage.create_in(["acme", "umbrella"][n % 2], &n.to_string(), kernel::Lane::Normal).await;
    }
    let other = fresh.replica().await.unwrap_or_else(|| stage.store.clone());
    let (seen, begun): (Arc<Seen>, _) = (Arc::default(), watch::Sender::new(BTreeSet::new()));
    let part = |name: &'static str| {
        let begun = begun.clone();
        player(&seen, move |attempt| {
            let mut both = begun.subscribe();
            begun.send_if_modified(|names| names.insert(name));
            async move {
                // Neither can do all of it alone: the other one has to have begun.
                both.wait_for(|names| names.len() == 2).await.unwrap();
                let times = attempt.object.phase.parse::<usize>().unwrap_or(0) + 1;
                let change = phase(attempt, &times.to_string());
                Ok((
                    change,
                    if times < looks { Requeue::After(Duration::ZERO) } else { Requeue::Never },
                ))
            }
            .boxed()
        })
    };
    let _a = stage.driver("a", part("a"), config(8));
    let _b = stage.driver_on(other, "b", part("b"), config(8));
    seen.delivery(objects * looks).await;
    for n in 0..objects {
        stage.gone(&key(&n.to_string())).await;
        assert_eq!(stage.get(&n.to_string()).await.revision, 4, "three looks, each written once");
    }
    assert_eq!((seen.count(), seen.overlaps()), (objects * looks, 0));
}

async fn a_frozen_worker_that_lost_its_lease_writes_nothing(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let (thaw, frozen) = std::sync::mpsc::channel::<()>();
    let (seen, frozen) = (Arc::default(), Arc::new(Mutex::new(frozen)));
    let slow = player(&seen, move |attempt| {
        let frozen = frozen.clone();
        async move {
            // The whole task is paused, and the renewal of the lease with it.
            tokio::task::block_in_place(|| frozen.lock().recv().unwrap());
            Ok((phase(attempt, "slow"), Requeue::Never))
        }
        .boxed()
    });
    let a = stage.driver("a", slow, config(1));
    seen.delivery(1).await;
    stage.pass(LEASE).await;
    let quick = player(&Arc::default(), |attempt| {
        async move { Ok((phase(attempt, "quick"), Requeue::Never)) }.boxed()
    });
    // The one that is frozen is full; its own driver cannot take the key back.
    let b = stage.driver("b", quick, config(1));
    stage.gone(&key("a")).await;
    thaw.send(()).unwrap();
    assert_eq!(
        (a.ended(1).await, b.ended(1).await),
        (vec![AttemptResult::Lost], vec![AttemptResult::Done])
    );
    let object = stage.get("a").await;
    assert_eq!((object.phase.as_str(), object.revision), ("quick", 2));
    let events = stage.store.events(0, &EventFilter::default(), 9).await.unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    let expected = ["mainstay.thing.created", "mainstay.thing.quick"];
    assert_eq!(kinds, expected, "its event went with its change");
}

/// Says so when it is dropped.
struct Dropped(mpsc::UnboundedSender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

async fn a_look_ends_when_its_lease_is_lost(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let (ended, mut end) = mpsc::unbounded_channel();
    let seen = Arc::default();
    let worker = player(&seen, move |_| {
        let dropped = Dropped(ended.clone());
        async move {
            let _dropped = dropped;
            std::future::pending().await
        }
        .boxed()
    });
    let driver = stage.driver("a", worker, Config { lease_s: 1, ..config(1) });
    seen.delivery(1).await;
    let thief = stage.steal(&key("a")).await;
    let in_time = tokio::time::timeout(Duration::from_secs(60), end.recv()).await;
    in_time.expect("the work is given up");
    assert_eq!(driver.ended(1).await, [AttemptResult::Lost]);
    let row = stage.row(&key("a")).await.unwrap();
    assert_eq!((row.fence, row.worker.as_str()), (thief.fence, "thief"), "the thief's is not");
}

/// Keeps everyone from writing, as a store that does not answer would, until it is dropped.
enum Blocked {
    Sqlite { _file: rusqlite::Connection },
    Postgres { _client: tokio_postgres::Client },
}

async fn block(fresh: &Fresh, lock: &str) -> Option<Blocked> {
    match &fresh.place {
        Place::Memory => None,
        Place::Directory(dir) => {
            let file = rusqlite::Connection::open(dir.path().join("mainstay.db")).unwrap();
            file.execute_batch("BEGIN IMMEDIATE").unwrap();
            Some(Blocked::Sqlite { _file: file })
        }
        Place::Database(database) => {
            let client = database.client().await;
            client.batch_execute(&format!("BEGIN; {lock}")).await.unwrap();
            Some(Blocked::Postgres { _client: client })
        }
    }
}

async fn a_look_ends_when_the_store_is_out_of_reach_for_as_long_as_its_lease(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let seen = Arc::default();
    let endless = player(&seen, |_| std::future::pending().boxed());
    let driver = stage.driver("a", endless, Config { lease_s: 1, ..config(1) });
    seen.delivery(1).await;
    let Some(blocked) = block(fresh, "LOCK TABLE queue").await else { return };
    eventually("it is given up", async || seen.running_count() == 0).await;
    assert_eq!(driver.ended(1).await, [AttemptResult::Lost]);
    drop(blocked);
    stage.pass(Duration::from_secs(2)).await;
    seen.delivery(2).await;
}

/// Whether a connection has come to the last statement of a claim.
async fn has_claimed(fresh: &Fresh) -> bool {
    let Place::Database(database) = &fresh.place else { return true };
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
         AND pid <> pg_backend_pid() AND state = 'idle' AND query LIKE '%min(due)%'";
    database.client().await.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0
}

/// A transaction that locks a row briefly, such as a commit that leaves it unchanged, hides it from
/// a claim and gives no hint afterwards.
async fn due_work_that_was_locked_for_a_moment_is_not_forgotten(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let Some(blocked) = block(fresh, "SELECT * FROM queue FOR UPDATE").await else { return };
    let seen = Arc::default();
    let worker = player(&seen, |_| async { Ok((Change::default(), Requeue::Never)) }.boxed());
    let _driver = stage.driver("a", worker, config(1));
    eventually("a claim came back with nothing", async || has_claimed(fresh).await).await;
    assert_eq!(seen.count(), 0);
    drop(blocked);
    seen.delivery(1).await;
}

async fn what_is_recorded_between_steps_is_fenced(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let (gate, answers) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (open, said, seen) = (gate.clone(), answers.clone(), Arc::default());
    let worker = player(&seen, move |attempt| {
        let (gate, answers) = (gate.clone(), answers.clone());
        async move {
            let first = attempt.record(phase(attempt, "one")).await;
            answers.lock().push(first.map_err(|error| error.to_string()));
            gate.acquire().await.unwrap().forget();
            let mut second = phase(attempt, "two");
            if let Some(write) = &mut second.write {
                write.object.revision = 2;
            }
            let second = attempt.record(second).await;
            let lost = matches!(second, Err(Error::Refused(Refusal::FenceLost(_))));
            answers.lock().push(Err(format!("lost: {lost}")));
            second?;
            Ok((Change::default(), Requeue::Never))
        }
        .boxed()
    });
    let driver = stage.driver("a", worker, config(1));
    eventually("the first is written", async || said.lock().len() == 1).await;
    assert_eq!(stage.get("a").await.phase, "one");
    stage.steal(&key("a")).await;
    open.add_permits(1);
    assert_eq!(driver.ended(1).await, [AttemptResult::Lost]);
    assert_eq!(*said.lock(), [Ok(()), Err("lost: true".to_owned())]);
    let object = stage.get("a").await;
    assert_eq!((object.phase.as_str(), object.revision), ("one", 2));
}

async fn a_worker_keeps_its_lease_for_as_long_as_it_works(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let (seen, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let open = gate.clone();
    let worker = player(&seen, move |attempt| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok((phase(attempt, "ready"), Requeue::Never))
        }
        .boxed()
    });
    // Renewals are due by the real clock: a machine that stalls for longer than a short lease
    // would lose it.
    let driver = stage.driver("a", worker, Config { lease_s: 6, ..config(2) });
    seen.delivery(1).await;
    for _ in 0..3 {
        let before = stage.row(&key("a")).await.unwrap().due;
        // Less than the lease: it is renewed before the rest has passed.
        stage.pass(Duration::from_secs(4)).await;
        eventually("it is held longer", async || {
            stage.row(&key("a")).await.is_some_and(|row| row.due > before)
        })
        .await;
    }
    open.add_permits(1);
    stage.gone(&key("a")).await;
    assert_eq!((driver.ended(1).await, seen.count()), (vec![AttemptResult::Done], 1));
}

async fn a_graceful_stop_finishes_what_runs_and_claims_no_more(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    for n in 0..6 {
        stage.create(&n.to_string()).await;
    }
    let (seen, gate): (Arc<Seen>, _) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let open = gate.clone();
    let worker = player(&seen, move |attempt| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok((phase(attempt, "ready"), Requeue::Never))
        }
        .boxed()
    });
    let driver = stage.driver("a", worker, config(3));
    seen.delivery(3).await;
    driver.stop.cancel();
    open.add_permits(100);
    driver.stopped().await;
    assert_eq!(seen.count(), 3);
    let mut ready = 0;
    for n in 0..6 {
        let id = n.to_string();
        match stage.row(&key(&id)).await {
            None => assert_eq!(stage.get(&id).await.phase, "ready", "finished, and written"),
            Some(row) => {
                assert_eq!((row.state, row.attempt), (State::Ready, 0), "untouched");
                ready += 1;
            }
        }
    }
    assert_eq!(ready, 3);
}

async fn what_is_cut_short_by_a_stop_is_taken_up_again(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let seen = Arc::default();
    let endless = player(&seen, |_| std::future::pending().boxed());
    let driver = stage.driver("a", endless, Config { drain_s: 0, ..config(1) });
    seen.delivery(1).await;
    driver.stopped().await;
    eventually("nothing of it goes on", async || seen.running_count() == 0).await;
    assert_eq!(stage.row(&key("a")).await.unwrap().state, State::Running);
    stage.pass(LEASE).await;
    let worker = player(&seen, |attempt| {
        async move { Ok((phase(attempt, "ready"), Requeue::Never)) }.boxed()
    });
    let _next = stage.driver("b", worker, config(1));
    stage.gone(&key("a")).await;
    assert_eq!(stage.get("a").await.phase, "ready");
}

async fn an_attempt_that_ends_when_its_driver_drains_is_handed_over_at_once(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("a").await;
    let seen = Arc::default();
    let long = player(&seen, |attempt| {
        async move {
            attempt.cancelled().cancelled().await;
            Err(Error::Transient("it was cancelled".into()))
        }
        .boxed()
    });
    let driver = stage.driver("a", long, config(1));
    seen.delivery(1).await;
    driver.stopped().await;
    let row = stage.row(&key("a")).await.unwrap();
    assert_eq!((row.state, row.attempt), (State::Ready, 0), "no lease has to run out");
}

async fn after_a_crash_at_any_point_a_new_driver_goes_on(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    let objects = 12;
    for n in 0..objects {
        stage.create(&n.to_string()).await;
    }
    let seen: Arc<Seen> = Arc::default();
    // Each look goes one phase on, over a few points where a crash can come between.
    let worker = player(&seen, |attempt| {
        async move {
            tokio::task::yield_now().await;
            let at = attempt.object.phase.parse::<usize>().unwrap_or(0) + 1;
            attempt.record(Change::default()).await?;
            tokio::task::yield_now().await;
            let next = if at < 3 { Requeue::After(Duration::ZERO) } else { Requeue::Never };
            Ok((phase(attempt, &at.to_string()), next))
        }
        .boxed()
    });
    for crash in 1..=8 {
        let driver = stage.driver(&format!("life {crash}"), worker.clone(), config(4));
        let at = seen.count() + crash;
        let done = async || stage.store.work_counts().await.unwrap().is_empty();
        let far = async || seen.count() >= at || done().await;
        with_time(&stage, &seen, "it is far enough", far).await;
        drop(driver);
        eventually("it and its attempts are dead", async || Arc::strong_count(&worker) == 1).await;
        stage.pass(LEASE).await;
    }
    let _last = stage.driver("last life", worker, config(4));
    for n in 0..objects {
        let row = key(&n.to_string());
        let gone = async || stage.row(&row).await.is_none();
        with_time(&stage, &seen, "nothing is left to do", gone).await;
        let object = stage.get(&n.to_string()).await;
        assert_eq!((object.phase.as_str(), seen.overlaps()), ("3", 0));
    }
}

/// Waits for a condition. What a driver claimed on its way out may be claimed only after the next one
/// has looked, and the clock of the test stands still: so when nothing happens any more, time passes.
pub async fn with_time(
    stage: &Stage<'_>,
    seen: &Seen,
    what: &str,
    condition: impl AsyncFn() -> bool,
) {
    let still = AtomicUsize::new(0);
    eventually(what, async || {
        match seen.running_count() {
            0 if still.fetch_add(1, Ordering::SeqCst) < 1000 => {}
            0 => {
                still.store(0, Ordering::SeqCst);
                stage.pass(LEASE).await;
            }
            _ => still.store(0, Ordering::SeqCst),
        }
        condition().await
    })
    .await;
}

const MINUTES_MS: i64 = 5 * 60_000;

async fn a_driver_whose_clock_is_ahead_takes_no_running_work(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    let other = fresh.replica().await.unwrap_or_else(|| stage.store.clone());
    stage.create("slow").await;
    let (seen, gate): (Arc<Seen>, _) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let open = gate.clone();
    let worker = player(&seen, move |attempt| {
        let (gate, slow) = (gate.clone(), attempt.object.key.id() == "slow");
        async move {
            if slow {
                gate.acquire().await.unwrap().forget();
            }
            Ok((Change::default(), Requeue::Never))
        }
        .boxed()
    });
    let a = stage.driver_ahead(stage.store.clone(), "a", worker.clone(), config(1), -MINUTES_MS);
    seen.delivery(1).await;
    let _b = stage.driver_ahead(other, "b", worker, config(1), MINUTES_MS);
    // The first driver is full, so each of these is claimed by the second.
    for n in 0..5 {
        stage.create(&n.to_string()).await;
        stage.gone(&key(&n.to_string())).await;
    }
    assert_eq!(seen.begun().iter().filter(|begun| **begun == key("slow")).count(), 1);
    open.add_permits(1);
    assert_eq!(a.ended(1).await, [AttemptResult::Done]);
}

async fn work_is_handed_over_at_once_between_drivers_whose_clocks_differ(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    let other = fresh.replica().await.unwrap_or_else(|| stage.store.clone());
    for (from, to) in [(MINUTES_MS, -MINUTES_MS), (-MINUTES_MS, MINUTES_MS)] {
        let id = format!("of-{from}");
        stage.create(&id).await;
        let worker = |next: Requeue| {
            player(&Arc::default(), move |attempt| {
                let change = phase(attempt, "seen");
                let next: Requeue = next.clone();
                async move { Ok((change, next)) }.boxed()
            })
        };
        let minute = Duration::from_secs(60);
        let again = worker(Requeue::After(minute));
        let a = stage.driver_ahead(stage.store.clone(), "a", again, config(1), from);
        stage.row_in(&key(&id), State::Waiting, 0).await;
        a.stopped().await;
        let row = stage.row(&key(&id)).await.unwrap();
        assert_eq!(row.due, stage.now().plus(minute), "by the store's clock");
        stage.pass(minute).await;
        let never = worker(Requeue::Never);
        let b = stage.driver_ahead(other.clone(), "b", never, config(1), to);
        stage.gone(&key(&id)).await;
        // Aborted, it might claim the next one and die with it.
        b.stopped().await;
    }
}
