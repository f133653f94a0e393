//! The simulator: the real driver and the widget domain in one process, under a seed. Several
//! replicas, clients that lose answers, a workshop that fails, crashes at any commit and between
//! any two steps, frozen processes, clocks that differ by minutes and jump; then everything heals, and the invariants must
//! hold. A failing seed replays exactly.

pub mod boards;
mod check;
mod client;
pub mod flaky;
mod leases;
mod reader;
mod schedules;
mod workshop;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use kernel::driver::{Config, Driver};
use kernel::log::AuditTransitions;
use kernel::schedule::ScheduleWorker;
use kernel::{Ambient, Timestamp};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Memory;
use crate::memory::{Bug, Tables};
use crate::widgets::WidgetWorker;
pub use check::{Broken, at_rest, digest};
use client::Ledger;
use flaky::Flaky;
use reader::Delivered;
use workshop::SimWorkshop;

/// What one seed came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    pub objects: usize,
    pub events: usize,
    pub crashes: usize,
    /// Of the whole history: equal for equal seeds.
    pub digest: u64,
}

const START: i64 = 1_700_000_000_000;
const REPLICAS: usize = 3;
const CLIENTS: usize = 3;
const SENDERS: usize = 2;
pub const ORGS: [&str; 2] = ["acme", "umbrella"];
pub const QUOTA: i64 = 6;
/// How long the trouble lasts, and how long the world then has to come to rest; of its own time.
pub const TROUBLE: Duration = Duration::from_secs(120);
pub const REST: Duration = Duration::from_secs(3 * 3600);

/// What everything in the simulation shares.
pub struct World {
    pub memory: Arc<Memory>,
    pub(crate) workshop: Arc<SimWorkshop>,
    random: Mutex<StdRng>,
    bug: Option<Bug>,
    /// The trouble is over.
    pub calm: CancellationToken,
    /// The first invariant that did not hold while it ran.
    pub broken: Mutex<Option<Broken>>,
    /// What must hold after every commit.
    always: Always,
    clock: Arc<Clock>,
    leases: Mutex<leases::Leases>,
    generations: Mutex<leases::Generations>,
}

/// The store's clock: it jumps, and the processes' own differ from it.
struct Clock {
    offset_ms: AtomicI64,
    begun: tokio::time::Instant,
}

impl Clock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(0);
        Timestamp(START + passed + self.offset_ms.load(Ordering::Relaxed))
    }
}

/// What must hold after every commit.
pub type Always = fn(&Tables) -> Result<(), Broken>;

impl World {
    pub fn new(random: &mut StdRng, bug: Option<Bug>, always: Always) -> World {
        let begun = tokio::time::Instant::now();
        let clock = Arc::new(Clock { offset_ms: AtomicI64::new(0), begun });
        let of_store = clock.clone();
        let mut memory = Memory::new(Ambient::seeded(move || of_store.now(), 0), bug);
        // Few objects are there, and the driver is to wake in pages too.
        memory.dependents_at_once = 1;
        // Each change of a widget is to have its entry.
        memory.audit.transitions = AuditTransitions::All;
        World {
            memory: Arc::new(memory),
            workshop: Arc::new(SimWorkshop::default()),
            random: Mutex::new(StdRng::seed_from_u64(random.random())),
            bug,
            calm: CancellationToken::new(),
            broken: Mutex::new(None),
            always,
            clock,
            leases: Mutex::default(),
            generations: Mutex::default(),
        }
    }

    /// True with this chance, while there is trouble.
    pub fn unlucky(&self, chance: f64) -> bool {
        !self.calm.is_cancelled() && self.random.lock().random_bool(chance)
    }

    pub fn pick(&self, below: usize) -> usize {
        self.random.lock().random_range(0..below)
    }

    pub fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random.lock().random_range(from..=to))
    }

    /// By the store's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Runs one seed to its end.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<Report, Broken> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(simulate(seed, bug))
}

async fn simulate(seed: u64, bug: Option<Bug>) -> Result<Report, Broken> {
    let mut random = StdRng::seed_from_u64(seed);
    let world = Arc::new(World::new(&mut random, bug, check::always));
    schedules::create(&world).await;
    boards::create(&world).await;
    let ledger = Arc::new(Ledger::default());
    let (sent, delivered) = (Arc::default(), Arc::default());
    let mut tasks = JoinSet::new();
    for replica in 0..REPLICAS {
        let delivered = Arc::clone(&delivered);
        tasks.spawn(replica_life(world.clone(), delivered, replica, random.random()));
    }
    for number in 0..SENDERS {
        tasks.spawn(boards::run(world.clone(), Arc::clone(&sent), number, random.random()));
    }
    for number in 0..CLIENTS {
        tasks.spawn(client::run(world.clone(), ledger.clone(), number, random.random()));
    }
    tasks.spawn(clock_jumps(world.clone()));
    tokio::time::sleep(TROUBLE).await;
    world.calm.cancel();
    client::change_all_at_work(&world, &ledger).await;
    let at_rest = tokio::time::timeout(REST, check::at_rest(&world)).await.is_ok();
    drop(tasks);
    let crashes = world.workshop.crashes();
    boards::check(&world, &sent).await?;
    reader::check(&world, &delivered)?;
    check::replayed(&world).await?;
    check::all(&world, &ledger, at_rest).map(|report| Report { crashes, ..report })
}

/// A process that is started, crashes, and is started again from what the store holds.
async fn replica_life(world: Arc<World>, delivered: Arc<Delivered>, replica: usize, seed: u64) {
    let mut lives = 0;
    loop {
        lives += 1;
        let store = Arc::new(Flaky::new(world.clone()));
        let clock = store.clone();
        let driver = Driver {
            name: format!("replica-{replica}.{lives}"),
            store: store.clone(),
            ambient: Ambient::seeded(move || clock.now(), seed.wrapping_add(lives)),
            workers: vec![
                Arc::new(WidgetWorker {
                    workshop: Arc::new(workshop::From(store.clone())),
                    // Longer than the run: no lost wake-up heals by itself.
                    recheck: REST * 2,
                }),
                Arc::new(ScheduleWorker { execute: schedules::execute(store.clone()) }),
            ],
            config: Config { slots: 4, slots_urgent: 1, ..Config::default() },
            observe: Arc::new(|_, _, _, _| {}),
        };
        let mut process = JoinSet::new();
        let stop = CancellationToken::new();
        let holder = driver.name.clone();
        process.spawn(driver.run(stop.clone()));
        process.spawn(reader::run(store.clone(), delivered.clone(), holder));
        let uptime = world.millis(500, 60_000);
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = tokio::time::sleep(uptime), if !world.calm.is_cancelled() => {}
        }
        if world.unlucky(0.5) {
            // Stopped, and not killed: it drains, unless it crashes over that.
            stop.cancel();
            tokio::select! {
                biased;
                () = store.crashed() => {}
                _ = process.join_next() => {}
            }
        }
        // Everything that the process was doing is gone at this very point.
        drop(process);
        world.workshop.count_crash();
        tokio::time::sleep(world.millis(10, 5000)).await;
    }
}

/// The clocks of the store and of all processes are set forward and back.
pub async fn clock_jumps(world: Arc<World>) {
    while !world.calm.is_cancelled() {
        tokio::time::sleep(world.millis(1000, 60_000)).await;
        if world.unlucky(0.5) {
            let by = i64::try_from(world.pick(120_000)).unwrap_or(0) - 60_000;
            world.clock.offset_ms.fetch_add(by, Ordering::Relaxed);
        }
    }
}
