//! Three replicas that consume commands from a queue that delivers again whatever was not acknowledged,
//! and what must hold in the end: each command is carried out once or rejected for good, and none is lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::ports::inward::{Handler as _, Incoming, Settled};
use bus::work::intake::{ISSUER, Intake};
use kernel::change::EventDraft;
use kernel::command::{Command, CommandContext, Decided};
use kernel::identity::{Action, Principal};
use kernel::{Ambient, Change, Error, Key, Result};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Deserialize;
use serde_json::json;
use testkit::sim::flaky::Flaky;
use testkit::sim::{TROUBLE, World, boards};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const REPLICAS: usize = 3;
const REST: Duration = Duration::from_secs(600);
/// A connection that is silent for this long is closed by the broker.
const SILENCE: Duration = Duration::from_secs(4);
const ORG: &str = "acme";

/// What the consumers do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    AcknowledgesFirst,
    /// An acknowledged message becomes a dead letter later, if nothing happens in between.
    BuriesLast,
    /// Each delivery counts as a command of its own.
    ForgetsIds,
}

/// A command, as often as it is sent.
#[derive(Clone)]
struct Sent {
    id: String,
    body: String,
    deliveries: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Sent>,
    /// By the number of the delivery.
    unacknowledged: BTreeMap<usize, Sent>,
    delivered: usize,
    dead: BTreeSet<String>,
    /// The ids of all commands; whether each can be understood.
    sent: BTreeMap<String, bool>,
}

impl Queue {
    fn deliver(&mut self) -> Option<(usize, Sent)> {
        let mut sent = self.waiting.pop_front()?;
        sent.deliveries += 1;
        self.delivered += 1;
        self.unacknowledged.insert(self.delivered, sent.clone());
        Some((self.delivered, sent))
    }

    /// A connection is gone: what it held is delivered again.
    fn deliver_again(&mut self, held: BTreeSet<usize>) {
        let held = held.iter().filter_map(|number| self.unacknowledged.remove(number));
        held.for_each(|sent| self.waiting.push_front(sent));
    }
}

/// Adds a note, unless the gate is closed: that changes, so an earlier rejection may not come true later.
struct Add {
    world: Arc<World>,
}

#[derive(Deserialize)]
struct Note {}

#[async_trait]
impl Command for Add {
    const NAME: &'static str = "note.add";
    const ACTION: Action = Action::Write;
    type Body = Note;
    type Reply = u32;

    async fn decide(&self, _: &CommandContext<'_>, _: Note) -> Result<Decided<u32>> {
        if self.world.unlucky(0.2) {
            return Err(Error::Conflict("the gate is closed".into()));
        }
        let (kind, subject) = ("mainstay.note.added".into(), Key::new("note", "all"));
        let event = EventDraft { kind, subject, org: ORG.into(), data: None };
        Ok(Decided::new(200, 1, None).change(Change { event: Some(event), ..Change::default() }))
    }
}

/// Runs a seed. Returns how many commands were carried out and how many were rejected.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<(usize, usize), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(simulate(seed, bug))
}

async fn simulate(seed: u64, bug: Option<Bug>) -> Result<(usize, usize), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let world = Arc::new(World::new(&mut random, None, |_| Ok(())));
    let queue = Arc::new(Mutex::new(Queue::default()));
    let mut tasks = JoinSet::new();
    for _ in 0..REPLICAS {
        tasks.spawn(replica(world.clone(), queue.clone(), bug, random.random()));
    }
    tasks.spawn(send(world.clone(), queue.clone()));
    tokio::time::sleep(TROUBLE).await;
    world.calm.cancel();
    let settled = async {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let queue = queue.lock();
            if queue.waiting.is_empty() && queue.unacknowledged.is_empty() {
                break;
            }
        }
    };
    let settled = tokio::time::timeout(REST, settled).await;
    drop(tasks);
    settled.map_err(|_| "messages were never settled".to_owned())?;
    check(&world, &queue.lock())
}

/// Sends commands: some twice, some that cannot be understood.
async fn send(world: Arc<World>, queue: Arc<Mutex<Queue>>) {
    for number in 0.. {
        tokio::time::sleep(world.millis(0, 1000)).await;
        if world.calm.is_cancelled() {
            return;
        }
        let id = format!("c{number}");
        let good = !world.unlucky(0.1);
        let name = if good { Add::NAME } else { "note.erase" };
        let body = json!({"id": id, "type": name, "issued_at": world.now(), "body": {}});
        let sent = Sent { id: id.clone(), body: body.to_string(), deliveries: 0 };
        let mut queue = queue.lock();
        queue.sent.insert(id, good);
        let times = 1 + usize::from(world.unlucky(0.2));
        queue.waiting.extend(std::iter::repeat_n(sent, times));
    }
}

/// A process that consumes, crashes, and is started again.
async fn replica(world: Arc<World>, queue: Arc<Mutex<Queue>>, bug: Option<Bug>, seed: u64) {
    for life in 0.. {
        let process = Arc::new(Flaky::new(world.clone()));
        let clock = process.clone();
        let ambient = Ambient::seeded(move || clock.now(), seed.wrapping_add(life));
        let intake = intake(&world, process.clone(), ambient);
        let held = Mutex::new(BTreeSet::new());
        tokio::select! {
            biased;
            () = process.crashed() => {}
            () = consume(&intake, &process, &queue, &held, bug) => {}
        }
        queue.lock().deliver_again(held.into_inner());
        tokio::time::sleep(world.millis(10, 5000)).await;
    }
}

async fn consume(
    intake: &Intake,
    process: &Flaky,
    queue: &Mutex<Queue>,
    held: &Mutex<BTreeSet<usize>>,
    bug: Option<Bug>,
) {
    loop {
        process.pass().await;
        let Some((number, mut sent)) = queue.lock().deliver() else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        held.lock().insert(number);
        if bug == Some(Bug::ForgetsIds) {
            let again = format!("{}-{}", sent.id, sent.deliveries);
            sent.body = sent.body.replacen(&sent.id, &again, 1);
        }
        let acknowledge = || {
            queue.lock().unacknowledged.remove(&number);
            held.lock().remove(&number);
        };
        if bug == Some(Bug::AcknowledgesFirst) {
            acknowledge();
        }
        let received = tokio::time::Instant::now();
        let (replies, _none) = mpsc::channel(1);
        let author = Some("orders".to_owned());
        let body = sent.body.clone().into();
        let incoming = Incoming { body, author, traceparent: None, reply_to: None, bare: None };
        let settled = intake.handle(incoming, &replies).await;
        if bug == Some(Bug::BuriesLast) {
            acknowledge();
        }
        process.pass().await;
        if let Settled::Dead(_) = settled {
            queue.lock().dead.insert(sent.id.clone());
        }
        process.pass().await;
        // The broker gave up the connection of a process that stood still, and an answer may get lost.
        if received.elapsed() > SILENCE || process.fail_sometimes(0.05).is_err() {
            return;
        }
        acknowledge();
    }
}

fn intake(world: &Arc<World>, store: Arc<Flaky>, ambient: Ambient) -> Intake {
    let app = boards::app(store, ambient);
    app.commands().add(Arc::new(Add { world: world.clone() })).expect("it is the only one");
    let orders = Principal {
        subject: "orders".into(),
        issuer: ISSUER.into(),
        org: ORG.into(),
        ..Principal::default()
    };
    Intake {
        app,
        consumer: "sim".into(),
        identities: [("orders".to_owned(), orders)].into(),
        commands_days: 7,
        followers: Default::default(),
        stats: Default::default(),
        stop: Default::default(),
    }
}

fn check(world: &World, queue: &Queue) -> Result<(usize, usize), String> {
    world.memory.look(|tables| {
        let (mut done, mut rejected) = (0, 0);
        for (id, good) in &queue.sent {
            let of_command = |event: &&kernel::log::Event| {
                let command = event.cause.command.as_deref().unwrap_or_default();
                command == id || command.starts_with(&format!("{id}-"))
            };
            let added = tables.events.iter().filter(of_command);
            let added = added.filter(|event| event.subject.kind() == "note").count();
            let record = tables.commands.get(&format!("{id} {ISSUER} orders"));
            let accepted = record.is_some_and(|(_, record)| record.reply.status < 400);
            let dead = queue.dead.contains(id);
            match (added, accepted) {
                (1, true) if *good && !dead => done += 1,
                (0, false) if record.is_some() && dead => rejected += 1,
                _ => {
                    return Err(format!(
                        "{id}: added {added} times, recorded {record:?}, dead letter: {dead}"
                    ));
                }
            }
        }
        Ok((done, rejected))
    })
}
