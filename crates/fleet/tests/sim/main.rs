//! The whole fleet under a seed: replicas that crash at any commit and between any two steps, freeze and
//! lose responses; an SSO system and a DNS that fail; agents that are slow, reject, break instances and
//! report twice or out of order; clients that create, delete and give up. Then all faults end, and the
//! invariants must hold. A failing seed replays exactly.

#![expect(clippy::unwrap_used, reason = "a test")]

mod agent;
mod check;
mod client;
mod outside;
mod replica;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fleet::model::instance::{Phase, Spec, Status};
use fleet::model::sso::canary_client_id;
use kernel::change::{Wake, Write};
use kernel::{Change, Json, Key, Object, Store as _};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use testkit::sim::{Broken, REST, TROUBLE, World, at_rest, clock_jumps, digest};
use tokio::task::JoinSet;

use outside::Outside;
use replica::Replicas;

const REPLICAS: usize = 3;
const CLIENTS: usize = 3;
pub const CLUSTERS: [&str; 2] = ["c1", "c2"];
/// Units that each cluster holds, and the quota of an organisation: less than is requested.
pub const CLUSTER_LIMIT: i64 = 5;
pub const QUOTA: i64 = 6;
pub const ORGS: [&str; 2] = ["acme", "umbrella"];

/// State that all parts of the simulation share.
pub struct Sim {
    pub world: Arc<World>,
    pub outside: Outside,
    pub replicas: Replicas,
    pub ledger: client::Ledger,
    /// The clusters whose agents have completed a round since the faults ended.
    pub recovered: Mutex<BTreeSet<&'static str>>,
}

/// What one seed came to.
#[derive(Debug, PartialEq)]
struct Outcome {
    instances: usize,
    /// Of the whole history: equal for equal seeds.
    digest: u64,
}

fn run(seed: u64) -> Result<Outcome, Broken> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(simulate(seed))
}

async fn simulate(seed: u64) -> Result<Outcome, Broken> {
    let mut random = StdRng::seed_from_u64(seed);
    let world = Arc::new(World::new(&mut random, None, check::always));
    let sim = Arc::new(Sim {
        outside: Outside::default(),
        replicas: Replicas::default(),
        ledger: client::Ledger::default(),
        recovered: Mutex::default(),
        world,
    });
    replica::register_clusters(&sim.world).await;
    let mut tasks = JoinSet::new();
    for number in 0..REPLICAS {
        tasks.spawn(replica::run(sim.clone(), number, random.random()));
    }
    for cluster in CLUSTERS {
        tasks.spawn(agent::run(sim.clone(), cluster));
    }
    for number in 0..CLIENTS {
        tasks.spawn(client::run(sim.clone(), number));
    }
    tasks.spawn(clock_jumps(sim.world.clone()));
    tokio::time::sleep(TROUBLE).await;
    sim.world.calm.cancel();
    let rest = async {
        agent::recovered(&sim).await;
        at_rest(&sim.world).await;
    };
    let rested = tokio::time::timeout(REST, rest).await.is_ok();
    let settled = tokio::time::timeout(REST, check::settled(&sim)).await.is_ok();
    drop(tasks);
    let instances = check::all(&sim, rested && settled)?;
    Ok(Outcome { instances, digest: sim.world.memory.look(digest) })
}

/// More with `SIM_SEEDS=1000 cargo test -p fleet --test sim`; one with `SIM_SEED=42`.
#[test]
fn after_any_faults_every_instance_settles_and_nothing_is_orphaned() {
    testkit_tls();
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(15),
    };
    let mut instances = 0;
    for seed in seeds {
        match run(seed) {
            Ok(outcome) => instances += outcome.instances,
            Err(broken) => panic!("SIM_SEED={seed}: {}", broken.0),
        }
    }
    assert!(instances > 0, "nothing was ever created");
}

#[test]
fn a_seed_replays_exactly() {
    testkit_tls();
    for seed in 0..5 {
        assert_eq!(run(seed), run(seed), "SIM_SEED={seed}");
    }
}

/// A process that was paused in the middle of a step may create a client or a name again after the
/// deletion: the second clean-up, which the driver calls, removes it.
#[test]
fn what_came_back_after_a_deletion_is_removed_once_more() {
    testkit_tls();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let world = Arc::new(World::new(&mut StdRng::seed_from_u64(1), None, check::always));
        world.calm.cancel();
        let now = world.now();
        let (outside, ledger) = (Outside::default(), client::Ledger::default());
        let (replicas, recovered) = (Replicas::default(), Mutex::default());
        let sim = Arc::new(Sim { outside, replicas, ledger, recovered, world });
        let key = Key::new("kafka", "k1");
        let label = Phase::Deleting.label();
        let mut object = Object::new(key.clone(), "acme", "alice", "demo", label, now);
        object.deleted_at = Some(now);
        object.spec = Json::encode(&Spec::default());
        object.status =
            Json::encode(&Status { names: ["demo.example".into()].into(), ..Status::default() });
        let change = Change {
            wakes: vec![Wake::for_object(&object, now.plus(Duration::from_secs(600)))],
            write: Some(Write::create(object, "deleted")),
            ..Change::default()
        };
        sim.world.memory.commit_all(vec![change], now).await.unwrap();
        sim.outside.clients.lock().insert(canary_client_id("k1"), "secret".into());
        sim.outside.records.lock().insert("demo.example".into(), "router".into());
        let mut tasks = JoinSet::new();
        tasks.spawn(replica::run(sim.clone(), 0, 1));
        let done = async {
            while sim.world.memory.look(|tables| tables.queue.contains_key(&key)) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(REST, done).await.expect("the clean-up ends");
        assert!(sim.outside.clients.lock().is_empty(), "the client is an orphan");
        assert!(sim.outside.records.lock().is_empty(), "the record is an orphan");
    });
}

fn testkit_tls() {
    kernel::outbound::install_tls();
}
