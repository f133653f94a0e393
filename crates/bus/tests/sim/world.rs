//! Three replicas that relay, clients that write, and what must hold in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bus::config::{Filter, Mode, Start};
use bus::decide::pace;
use bus::model::Spec;
use bus::ports::out::cloudevents::CloudEvents;
use bus::store;
use bus::work::leadership::{Terms, lead};
use bus::work::relay::Relay;
use bus::work::source::{Render, Selection, Source};
use kernel::change::EventDraft;
use kernel::event_tail::EventTail;
use kernel::store::commit;
use kernel::{Ambient, Change, Json, Key};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use testkit::sim::flaky::Flaky;
use testkit::sim::{TROUBLE, World, clock_jumps};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::broker::{Broker, Bug, SimOutlet, State, Stored};

const REPLICAS: usize = 3;
const OBJECTS: usize = 5;
const SINK: &str = "sim";
/// What a connection sends between two saves of the position, in which a few events happen.
const UNSAVED_SENDS_MAX: u64 = 10;
/// How long the world has to come to rest.
const REST: Duration = Duration::from_secs(600);

/// What the broker's consumers may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    ExactlyOnce,
    AtLeastOnce,
}

/// Runs a seed. Returns how many events there were, and how many messages.
pub fn run(seed: u64, guarantee: Guarantee, bug: Option<Bug>) -> Result<(usize, usize), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(simulate(seed, guarantee, bug))
}

async fn simulate(
    seed: u64,
    guarantee: Guarantee,
    bug: Option<Bug>,
) -> Result<(usize, usize), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let world = Arc::new(World::new(&mut random, None, |_| Ok(())));
    let keeps_position = guarantee == Guarantee::ExactlyOnce;
    let broker = Arc::new(Broker { keeps_position, bug, ..Broker::default() });
    let mut tasks = JoinSet::new();
    for replica in 0..REPLICAS {
        tasks.spawn(replica_life(world.clone(), broker.clone(), replica, random.random()));
    }
    tasks.spawn(write(world.clone()));
    tasks.spawn(clock_jumps(world.clone()));
    tokio::time::sleep(TROUBLE).await;
    world.calm.cancel();
    let expected = || {
        world.memory.look(|tables| {
            let widgets = tables.events.iter().filter(|event| event.subject.kind() == "widget");
            widgets.map(|event| (event.seq, event.subject.to_string())).collect::<Vec<_>>()
        })
    };
    let arrived = async {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let there: BTreeSet<i64> = {
                let state = broker.state.lock();
                state.log.iter().map(|one| one.seq).collect()
            };
            if expected().iter().all(|(seq, _)| there.contains(seq)) {
                break;
            }
        }
    };
    let arrived = tokio::time::timeout(REST, arrived).await.is_ok();
    drop(tasks);
    check(&expected(), &broker.state.lock(), guarantee, arrived)
}

/// A process that relays, crashes, and is started again.
async fn replica_life(world: Arc<World>, broker: Arc<Broker>, replica: usize, seed: u64) {
    let mut lives = 0;
    loop {
        lives += 1;
        let process = Arc::new(Flaky::new(world.clone()));
        let clock = process.clone();
        let ambient = Ambient::seeded(move || clock.now(), seed.wrapping_add(lives));
        let mut tasks = JoinSet::new();
        let name = format!("replica-{replica}.{lives}");
        let stop = CancellationToken::new();
        tasks.spawn(relay(process.clone(), broker.clone(), ambient, name, stop.clone()));
        let uptime = world.millis(500, 60_000);
        tokio::select! {
            biased;
            () = process.crashed() => {}
            () = tokio::time::sleep(uptime), if !world.calm.is_cancelled() => {}
        }
        if world.unlucky(0.5) {
            stop.cancel();
            tokio::select! {
                biased;
                () = process.crashed() => {}
                _ = tasks.join_next() => {}
            }
        }
        drop(tasks);
        tokio::time::sleep(world.millis(10, 5000)).await;
    }
}

async fn relay(
    process: Arc<Flaky>,
    broker: Arc<Broker>,
    ambient: Ambient,
    name: String,
    stop: CancellationToken,
) {
    let store: Arc<dyn kernel::Store> = process.clone();
    let tail = EventTail::new(store.clone());
    let cloudevents = CloudEvents {
        mode: Mode::Binary,
        name: None,
        routing_key: None,
        url: String::new(),
        bytes_max: 1000,
    };
    let filter = Filter { kinds: vec!["widget".into()], ..Filter::default() };
    let render = Render::CloudEvents(cloudevents);
    let selection = Selection { filter, org: None, render, presenter: None };
    let (_tell, spec) = watch::channel(Spec::default());
    let relay = Arc::new(tokio::sync::Mutex::new(Relay {
        id: SINK.into(),
        store: store.clone(),
        ambient: ambient.clone(),
        source: Source::new(&tail, selection),
        outlet: Box::new(SimOutlet { broker, process, connection: 0 }),
        start: Start::Earliest,
        backoff: pace::BROKER,
        park_after: None,
        spec,
        state: Arc::default(),
    }));
    lead(&store, "sink/sim", &Terms::replica(name), &stop, |held| {
        let (relay, store, ambient) = (relay.clone(), store.clone(), ambient.clone());
        async move {
            // What fails is written at the next term.
            let spec = Spec::default();
            let _ = store::declare(&*store, &ambient, SINK, held.fence(), &spec).await;
            relay.lock().await.run(&held).await;
        }
    })
    .await;
}

/// Writes events of a few objects.
async fn write(world: Arc<World>) {
    while !world.calm.is_cancelled() {
        tokio::time::sleep(world.millis(1, 400)).await;
        let subject = Key::new("widget", &world.pick(OBJECTS).to_string());
        let (kind, org) = ("mainstay.widget.changed".into(), "acme".into());
        let event = EventDraft { kind, subject, org, data: Some(Json::default()) };
        let change = Change { event: Some(event), ..Change::default() };
        let _ = commit(&*world.memory, change, world.now()).await;
    }
}

fn check(
    expected: &[(i64, String)],
    state: &State,
    guarantee: Guarantee,
    arrived: bool,
) -> Result<(usize, usize), String> {
    if !arrived {
        let there: BTreeSet<i64> = state.log.iter().map(|one| one.seq).collect();
        let lost: Vec<i64> =
            expected.iter().map(|(seq, _)| *seq).filter(|seq| !there.contains(seq)).collect();
        return Err(format!("events that never arrived: {lost:?}"));
    }
    let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
    let (mut last_connection, mut last_send) = (0, BTreeMap::new());
    for Stored { connection, send, seq, .. } in &state.log {
        if *connection < last_connection {
            return Err(format!("event {seq} came over a connection that was replaced"));
        }
        last_connection = *connection;
        last_send.insert(*connection, *send);
    }
    // By event: the newest delivery.
    let mut delivered: BTreeMap<i64, &Stored> = BTreeMap::new();
    let mut newest_first: BTreeMap<&str, i64> = BTreeMap::new();
    for one in &state.log {
        let Stored { key, seq, .. } = one;
        newest.insert(key, *seq);
        let Some(before) = delivered.insert(*seq, one) else {
            let before = newest_first.insert(key, *seq).unwrap_or(0);
            if *seq <= before {
                return Err(format!("event {seq} of {key} came first after {before}"));
            }
            continue;
        };
        if guarantee == Guarantee::ExactlyOnce || before.connection == one.connection {
            return Err(format!("event {seq} of {key} came twice"));
        }
        let later = last_send[&before.connection] - before.send;
        if later > UNSAVED_SENDS_MAX {
            return Err(format!("event {seq} came again though {later} sends came after it"));
        }
    }
    let wanted: BTreeMap<&str, i64> = expected.iter().map(|(seq, key)| (&**key, *seq)).collect();
    if newest != wanted {
        return Err(format!("the last of each object is {newest:?}, not {wanted:?}"));
    }
    if guarantee == Guarantee::ExactlyOnce && state.log.len() != expected.len() {
        return Err(format!("{} messages of {} events", state.log.len(), expected.len()));
    }
    Ok((expected.len(), state.log.len()))
}
