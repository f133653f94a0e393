//! Everyone at once, through three servers, at the edge of every limit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fleet::Config;
use fleet::config::Trial;
use futures::StreamExt as _;
use kernel::{Error, Store};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::stores;

use crate::callers::{CLUSTER, OTHER_ORG, SMALL_ORG};
use crate::ledger;
use crate::stage::{Answer, KAFKA, Stage, eventually, put_cluster};

/// Units of each limit.
const QUOTA: usize = 300;
const ROOM: [usize; 2] = [130, 70];
const REGION: usize = 150;
const TRIALS: usize = 7;

/// Requests that one server answers at a time.
const AT_ONCE: usize = 300;

const PROVIDERS: &str = "
supported_providers:
  - name: aws
    default: true
    regions:
      - { name: us-east-1, default: true, supported_instance_type: { standard: {}, developer: {}, eval: {} } }
      - { name: eu-west-1, supported_instance_type: { standard: {} } }
      - { name: ap-south-1, supported_instance_type: { standard: { limit: 150 } } }
";

/// The clusters of the region that has little room, and the one of the region with a limit.
const SMALL: [&str; 2] = ["small1", "small2"];
const LARGE: &str = "large";

fn limits(config: &mut Config) {
    let dir = config.quota_file.as_ref().unwrap().parent().unwrap().to_owned();
    let quota = std::fs::read_to_string(dir.join("quota.yaml")).unwrap();
    let quota = quota.replace("max_allowed_instances: 10\n", "max_allowed_instances: 300\n");
    let quota = quota.replace("max_allowed_instances: 1000\n", "max_allowed_instances: 1000000\n");
    std::fs::write(dir.join("quota.yaml"), quota).unwrap();
    std::fs::write(dir.join("providers.yaml"), PROVIDERS).unwrap();
    config.trial = Trial { allowed: true, max: TRIALS as i64 };
}

async fn more_clusters(stage: &Stage) {
    for (id, room) in SMALL.into_iter().zip(ROOM) {
        put_cluster(&stage.app, id, id, |spec| {
            spec.region = "eu-west-1".into();
            spec.limit = Some(room as i64);
        })
        .await;
    }
    put_cluster(&stage.app, LARGE, LARGE, |spec| spec.region = "ap-south-1".into()).await;
}

/// Someone who asks for more than there is.
#[derive(Clone, Copy)]
struct Crowd {
    who: &'static str,
    region: &'static str,
    limit: usize,
    /// What those are told who come too late.
    code: u32,
}

const CROWDS: [Crowd; 4] = [
    Crowd { who: "race", region: "us-east-1", limit: QUOTA, code: 5 },
    Crowd { who: "alice", region: "eu-west-1", limit: ROOM[0] + ROOM[1], code: 24 },
    Crowd { who: "bob", region: "ap-south-1", limit: REGION, code: 24 },
    Crowd { who: "mallory", region: "us-east-1", limit: TRIALS, code: 24 },
];

/// What came of one request, and where it was in the order of all beginnings and ends.
struct Turn {
    begun: u64,
    ended: u64,
    accepted: bool,
}

/// As a client does that is told to come again: on a busy machine the store may have no place for
/// one more within its patience, and then nothing was done.
async fn call(stage: &Stage, who: &str, method: &str, path: &str, body: &Value) -> Answer {
    loop {
        let answer = stage.call(who, method, path, body).await;
        if answer.status != 503 {
            return answer;
        }
    }
}

/// How much of a counter is used.
async fn used(store: &dyn Store, counter: &str) -> i64 {
    loop {
        match store.counter(counter).await {
            Ok(counter) => return counter.map_or(0, |counter| counter.used),
            Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error}"),
        }
    }
}

/// Sends each request through one of the servers, many at a time.
async fn send_all(
    stages: &[Arc<Stage>],
    requests: Vec<(usize, &'static str, Value)>,
) -> BTreeMap<usize, Vec<(Turn, u16, u32)>> {
    let clock = Arc::new(AtomicU64::new(0));
    let all = Arc::new(Mutex::new(BTreeMap::<usize, Vec<_>>::new()));
    let mut shares: Vec<Vec<_>> = stages.iter().map(|_| Vec::new()).collect();
    for (i, request) in requests.into_iter().enumerate() {
        shares[i % stages.len()].push(request);
    }
    let share = |(stage, share): (&Arc<Stage>, Vec<(usize, &'static str, Value)>)| {
        let (stage, clock, all) = (stage.clone(), clock.clone(), all.clone());
        tokio::spawn(async move {
            let one = async |(crowd, who, body): (usize, &'static str, Value)| {
                let begun = clock.fetch_add(1, Ordering::SeqCst);
                let path = KAFKA.path("?async=true");
                let answer = call(&stage, who, "POST", &path, &body).await;
                let ended = clock.fetch_add(1, Ordering::SeqCst);
                assert!([202, 403, 409].contains(&answer.status), "{}", answer.text);
                let turn = Turn { begun, ended, accepted: answer.status == 202 };
                let (status, code) = (answer.status, answer.code());
                all.lock().entry(crowd).or_default().push((turn, status, code));
            };
            futures::stream::iter(share).for_each_concurrent(AT_ONCE, one).await;
        })
    };
    let tasks: Vec<_> = stages.iter().zip(shares).map(share).collect();
    for task in tasks {
        task.await.unwrap();
    }
    std::mem::take(&mut *all.lock())
}

/// Exactly as many as there is room for are accepted. Nothing is given back meanwhile, so whoever
/// is told that there is no room is told so after the last one that got some had asked.
fn nobody_is_wronged(crowd: Crowd, turns: &[(Turn, u16, u32)]) {
    let accepted = turns.iter().filter(|(turn, ..)| turn.accepted).count();
    assert_eq!(accepted, crowd.limit, "{}", crowd.who);
    let last = turns.iter().filter(|(turn, ..)| turn.accepted).map(|(turn, ..)| turn.begun).max();
    for (turn, status, code) in turns.iter().filter(|(turn, ..)| !turn.accepted) {
        assert_eq!((*status, *code), (403, crowd.code), "{}", crowd.who);
        let early = last.is_some_and(|last| turn.ended < last);
        assert!(!early, "{} was refused while there was room", crowd.who);
    }
}

async fn everyone_at_once(stages: &[Arc<Stage>], each: usize) {
    more_clusters(&stages[0]).await;
    let request = |i: usize| {
        let (number, crowd) = (i % CROWDS.len(), CROWDS[i % CROWDS.len()]);
        (number, crowd.who, json!({ "name": format!("n{i}"), "region": crowd.region }))
    };
    let turns = send_all(stages, (0..each * CROWDS.len()).map(request).collect()).await;
    for (number, crowd) in CROWDS.into_iter().enumerate() {
        assert_eq!(turns[&number].len(), each);
        nobody_is_wronged(crowd, &turns[&number]);
    }
    let store = &*stages[0].store;
    let used = async |counter: String| used(store, &counter).await;
    assert_eq!(
        used(format!("fleet/quota/kafka/org/{SMALL_ORG}/standard/standard")).await,
        QUOTA as i64
    );
    for (id, room) in SMALL.into_iter().zip(ROOM) {
        assert_eq!(used(format!("fleet/capacity/{id}")).await, room as i64);
    }
    assert_eq!(used("fleet/region/kafka/aws/ap-south-1/standard".into()).await, REGION as i64);
    assert_eq!(used(format!("fleet/trial/kafka/{OTHER_ORG}/mallory")).await, TRIALS as i64);
    let live = ledger::live(store, "kafka").await;
    assert_eq!(live.len(), CROWDS.iter().map(|crowd| crowd.limit).sum::<usize>());
    ledger::is_right(store, &["kafka"]).await;
}

async fn three_on_postgres() -> Option<Vec<Arc<Stage>>> {
    let first = Stage::on(stores::postgres().await?, limits).await;
    let (second, third) = (first.replica().await, first.replica().await);
    Some([first, second, third].map(Arc::new).into())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_ten_thousand_at_once_exactly_as_many_get_one_as_there_is_room_for() {
    let Some(stages) = three_on_postgres().await else { return };
    everyone_at_once(&stages, 2_500).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_on_sqlite_is_as_exact() {
    let stage = Stage::on(stores::sqlite().await.unwrap(), limits).await;
    everyone_at_once(&[Arc::new(stage)], 750).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_five_hundred_who_want_one_name_one_gets_it() {
    let Some(stages) = three_on_postgres().await else { return };
    let request = |i: usize| {
        (0, if i.is_multiple_of(2) { "alice" } else { "bob" }, json!({ "name": "demo" }))
    };
    let turns = send_all(&stages, (0..500).map(request).collect()).await;
    let (yes, no): (Vec<_>, Vec<_>) = turns[&0].iter().partition(|(turn, ..)| turn.accepted);
    assert_eq!((yes.len(), no.len()), (1, 499));
    assert!(no.iter().all(|(_, status, code)| (*status, *code) == (409, 36)));
    assert_eq!(ledger::live(&*stages[0].store, "kafka").await.len(), 1);
    ledger::is_right(&*stages[0].store, &["kafka"]).await;
}

/// Instances that take two units and one, and go again while others come.
async fn comings_and_goings(stages: &[Arc<Stage>], rounds: usize) {
    let clock = AtomicU64::new(0);
    let over = AtomicU64::new(0);
    let store = &*stages[0].store;
    let quota = format!("fleet/quota/kafka/org/{SMALL_ORG}/standard/standard");
    let customer = async |i: usize| {
        let stage = &stages[i % stages.len()];
        for round in 0..rounds {
            // Three of these share each name.
            let name = format!("n{}-{round}", i / 3);
            let plan = if i.is_multiple_of(5) { "standard.x2" } else { "standard.x1" };
            let body = json!({ "name": name, "plan": plan });
            let made = call(stage, "race", "POST", &KAFKA.path("?async=true"), &body).await;
            let refused = [(403, 5), (409, 36)].contains(&(made.status, made.code()));
            assert!(made.status == 202 || refused, "{}", made.text);
            if made.status == 202 && round + 1 < rounds {
                let id = made.body["id"].as_str().unwrap();
                let other = &stages[(i + 1) % stages.len()];
                let path = KAFKA.path(&format!("/{id}?async=true"));
                let gone = call(other, "race", "DELETE", &path, &Value::Null).await;
                assert_eq!(gone.status, 202, "{}", gone.text);
            }
            let used = used(store, &quota).await;
            assert!((0..=QUOTA as i64).contains(&used), "{used} of {QUOTA} are used");
            clock.fetch_add(1, Ordering::Relaxed);
        }
    };
    let customers = async {
        futures::stream::iter(0..3 * QUOTA).for_each_concurrent(AT_ONCE, customer).await;
        over.store(1, Ordering::SeqCst);
    };
    let agent = async {
        while over.load(Ordering::SeqCst) == 0 {
            stages[0].agent(KAFKA).round().await;
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(customers, agent);
    eventually("all are ready or gone", async || {
        stages[0].agent(KAFKA).round().await;
        let live = ledger::live(store, "kafka").await;
        live.iter().all(|instance| instance.phase.label() == "ready")
    })
    .await;
    ledger::is_right(store, &["kafka"]).await;
    let used = used(store, &quota).await;
    let live = ledger::live(store, "kafka").await;
    assert_eq!(used, live.iter().map(|instance| instance.spec.units).sum::<i64>());
    assert!(!live.is_empty() && clock.load(Ordering::Relaxed) as usize == 3 * QUOTA * rounds);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_and_goes_leaves_nothing_counted() {
    let Some(stages) = three_on_postgres().await else { return };
    comings_and_goings(&stages, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_and_goes_leaves_nothing_counted_on_sqlite() {
    let stage = Stage::on(stores::sqlite().await.unwrap(), limits).await;
    comings_and_goings(&[Arc::new(stage)], 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_free_again_is_free_for_whoever_asks_next_and_wherever() {
    let Some(stages) = three_on_postgres().await else { return };
    let store = &stages[0].store;
    let path = format!("/api/v1/fleet/clusters/{CLUSTER}");
    let limited = stages[0].call("admin-full", "PATCH", &path, &json!({ "limit": 1 })).await;
    assert_eq!(limited.status, 200, "{}", limited.text);
    for stage in &stages {
        stage.app.shared::<fleet::Fleet>().unwrap().index.catch_up().await.unwrap();
    }
    let key = |id: &str| kernel::Key::new(KAFKA.name, id);
    for i in 0..40 {
        // The only room there is, and always the same name.
        let (made_at, gone_at) = (&stages[i % 3], &stages[(i + 1) % 3]);
        let id = made_at.create(KAFKA, "alice", "demo").await;
        let path = KAFKA.path(&format!("/{id}?async=true"));
        assert_eq!(gone_at.call("alice", "DELETE", &path, &Value::Null).await.status, 202);
        eventually("it is gone", async || {
            gone_at.agent(KAFKA).round().await;
            store.object(&key(&id)).await.unwrap().unwrap().deleted_at.is_some()
        })
        .await;
    }
    ledger::is_right(&**store, &["kafka"]).await;
}
