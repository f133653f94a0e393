//! A clock that stands still, a scripted worker, and drivers to run it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use kernel::change::{Wake, Write};
use kernel::driver::{AnyWorker, Attempt, AttemptResult, Config, Driver, Requeue};
use kernel::queue::{Claim, ClaimRequest, QueueRow, State};
use kernel::store::{WorkFilter, commit};
use kernel::{Ambient, Change, Key, Lane, Object, Result, Store, Timestamp};
use parking_lot::Mutex;
use testkit::stores::Fresh;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const KIND: &str = "thing";

pub fn key(id: &str) -> Key {
    Key::new(KIND, id)
}

/// A store, and the time that it and everyone who works on it believes in.
pub struct Stage<'a> {
    pub store: Arc<dyn Store>,
    fresh: &'a Fresh,
    clock: Arc<AtomicI64>,
}

impl Stage<'_> {
    pub async fn on(fresh: &Fresh) -> Stage<'_> {
        let clock = Arc::new(AtomicI64::new(1_700_000_000_000));
        let stage = Stage { store: fresh.store.clone(), fresh, clock };
        fresh.set_clock(stage.now()).await;
        stage
    }

    pub fn now(&self) -> Timestamp {
        Timestamp(self.clock.load(Ordering::SeqCst))
    }

    /// Advances the clock, and wakes the drivers, which sleep by another one.
    pub async fn pass(&self, by: Duration) {
        self.pass_quietly(by).await;
        self.store.wakeups().notify_work();
    }

    async fn pass_quietly(&self, by: Duration) {
        self.clock.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
        self.fresh.set_clock(self.now()).await;
    }

    pub async fn commit(&self, change: Change) {
        commit(&*self.store, change, self.now()).await.expect("committed");
    }

    pub fn object(&self, kind: &str, id: &str, org: &str) -> Object {
        Object::new(Key::new(kind, id), org, "alice", id, "new", self.now())
    }

    /// An object that is due at once.
    pub fn creation(&self, object: Object, lane: Lane) -> Change {
        let (key, org, due) = (object.key.clone(), object.org.clone(), self.now());
        Change {
            wakes: vec![Wake { key, org, lane, due }],
            write: Some(Write::create(object, "created")),
            ..Change::default()
        }
    }

    pub async fn create(&self, id: &str) {
        self.create_in("acme", id, Lane::Normal).await;
    }

    pub async fn create_in(&self, org: &str, id: &str, lane: Lane) {
        self.commit(self.creation(self.object(KIND, id, org), lane)).await;
    }

    pub async fn wake(&self, id: &str) {
        let wake = Wake { key: key(id), org: "acme".into(), lane: Lane::Normal, due: self.now() };
        self.commit(Change { wakes: vec![wake], ..Change::default() }).await;
    }

    pub async fn get(&self, id: &str) -> Object {
        self.store.get(&[key(id)]).await.unwrap().remove(0)
    }

    pub async fn row(&self, key: &Key) -> Option<QueueRow> {
        let filter = WorkFilter { key: Some(key.clone()), ..WorkFilter::default() };
        self.store.work(&filter, 1).await.unwrap().pop()
    }

    /// The row, once it is in this state.
    pub async fn row_in(&self, key: &Key, state: State, attempt: i32) -> QueueRow {
        eventually(&format!("{key} is {state:?} after {attempt} failures"), async || {
            self.row(key).await.is_some_and(|row| row.state == state && row.attempt == attempt)
        })
        .await;
        self.row(key).await.expect("it was just there")
    }

    pub async fn gone(&self, key: &Key) {
        eventually(&format!("nothing is left to do for {key}"), async || {
            self.row(key).await.is_none()
        })
        .await;
    }

    /// Takes a key from its holder, as another replica would after the lease expired.
    pub async fn steal(&self, key: &Key) -> Claim {
        let (worker, ttl) = ("thief".into(), Duration::from_secs(15));
        let ask = ClaimRequest { worker, slots: 100, slots_normal: 100, ttl };
        // Its holder may renew the lease in between.
        for _ in 0..100 {
            self.pass_quietly(Duration::from_secs(3600)).await;
            let claims = self.store.claim(ask.clone()).await.unwrap().claims;
            if let Some(claim) = claims.into_iter().find(|claim| claim.key == *key) {
                return claim;
            }
        }
        panic!("the lease of {key} never ends");
    }

    pub fn driver(&self, name: &str, worker: Arc<dyn AnyWorker>, config: Config) -> Running {
        self.driver_on(self.store.clone(), name, worker, config)
    }

    pub fn driver_on(
        &self,
        store: Arc<dyn Store>,
        name: &str,
        worker: Arc<dyn AnyWorker>,
        config: Config,
    ) -> Running {
        self.driver_ahead(store, name, worker, config, 0)
    }

    /// One whose clock is this far ahead of the store's.
    pub fn driver_ahead(
        &self,
        store: Arc<dyn Store>,
        name: &str,
        worker: Arc<dyn AnyWorker>,
        config: Config,
        by_ms: i64,
    ) -> Running {
        let (clock, ends) = (self.clock.clone(), Arc::new(Mutex::new(Vec::new())));
        let reported = ends.clone();
        let driver = Driver {
            name: name.into(),
            store,
            ambient: Ambient::seeded(move || Timestamp(clock.load(Ordering::SeqCst) + by_ms), 7),
            workers: vec![worker],
            config,
            observe: Arc::new(move |_, end, _, _| reported.lock().push(end)),
        };
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(driver.run(stop.clone())), stop, ends }
    }
}

/// A driver at work; aborted when the test is over.
pub struct Running {
    pub stop: CancellationToken,
    task: JoinHandle<()>,
    ends: Arc<Mutex<Vec<AttemptResult>>>,
}

impl Running {
    /// How the first looks ended. A driver tells of a look only after its change is in the store,
    /// so an observer of the change may be here first.
    pub async fn ended(&self, looks: usize) -> Vec<AttemptResult> {
        let reported = || self.ends.lock().clone();
        eventually(&format!("{looks} looks end"), async || reported().len() >= looks).await;
        reported()
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stopped(mut self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(60), &mut self.task).await;
        ended.expect("it stops in time").expect("it does not panic");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub fn config(slots: usize) -> Config {
    Config { slots, slots_urgent: 0, ..Config::default() }
}

type Part = dyn for<'a> Fn(&'a Attempt) -> BoxFuture<'a, Result<(Change, Requeue)>> + Send + Sync;

/// A worker whose looks are a function of the test's, and are written down.
pub struct Player {
    part: Box<Part>,
    seen: Arc<Seen>,
}

/// Which keys were looked at, in order, and how often one was looked at twice at once.
#[derive(Default)]
pub struct Seen(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    begun: Vec<Key>,
    running_count: BTreeMap<Key, usize>,
    overlaps: usize,
}

impl Seen {
    pub fn begun(&self) -> Vec<Key> {
        self.0.lock().begun.clone()
    }

    pub fn count(&self) -> usize {
        self.0.lock().begun.len()
    }

    pub fn running_count(&self) -> usize {
        self.0.lock().running_count.values().sum()
    }

    pub fn overlaps(&self) -> usize {
        self.0.lock().overlaps
    }

    pub async fn delivery(&self, count: usize) {
        eventually(&format!("{count} looks"), async || self.count() >= count).await;
    }
}

/// A look under way, until it ends in whatever way.
struct RunningGuard<'a>(&'a Seen, Key);

impl<'a> RunningGuard<'a> {
    fn begin(seen: &'a Seen, key: &Key) -> RunningGuard<'a> {
        let notes = &mut *seen.0.lock();
        notes.begun.push(key.clone());
        let at_once = notes.running_count.entry(key.clone()).or_default();
        *at_once += 1;
        notes.overlaps += usize::from(*at_once > 1);
        RunningGuard(seen, key.clone())
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        if let Some(at_once) = self.0.0.lock().running_count.get_mut(&self.1) {
            *at_once -= 1;
        }
    }
}

pub fn player(
    seen: &Arc<Seen>,
    part: impl for<'a> Fn(&'a Attempt) -> BoxFuture<'a, Result<(Change, Requeue)>>
    + Send
    + Sync
    + 'static,
) -> Arc<Player> {
    Arc::new(Player { part: Box::new(part), seen: seen.clone() })
}

#[async_trait]
impl AnyWorker for Player {
    fn kind(&self) -> &str {
        KIND
    }

    async fn reconcile(&self, attempt: &Attempt) -> Result<(Change, Requeue)> {
        let _running = RunningGuard::begin(&self.seen, &attempt.object.key);
        (self.part)(attempt).await
    }
}

/// The object in a new phase, with its event.
pub fn phase(attempt: &Attempt, phase: &str) -> Change {
    let mut object = attempt.object.clone();
    object.phase = phase.into();
    Change { write: Some(Write::transition(object, phase.to_owned())), ..Change::default() }
}

/// Waits for a condition; fails the test if it does not come about.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
