//! Concurrent requests through three servers, at every limit.

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
const CAPACITY: [usize; 2] = [130, 70];
const REGION: usize = 150;
const TRIALS: usize = 7;

/// Requests that one server handles at a time.
const CONCURRENCY: usize = 300;

const PROVIDERS: &str = "
supported_providers:
  - name: aws
    default: true
    regions:
      - { name: us-east-1, default: true, supported_instance_type: { standard: {}, developer: {}, eval: {} } }
      - { name: eu-west-1, supported_instance_type: { standard: {} } }
      - { name: ap-south-1, supported_instance_type: { standard: { limit: 150 } } }
";

/// The clusters of the region with little capacity, and the one of the region with a limit.
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
    for (id, capacity) in SMALL.into_iter().zip(CAPACITY) {
        put_cluster(&stage.app, id, id, |spec| {
            spec.region = "eu-west-1".into();
            spec.limit = Some(capacity as i64);
        })
        .await;
    }
    put_cluster(&stage.app, LARGE, LARGE, |spec| spec.region = "ap-south-1".into()).await;
}

/// A user who requests more than the limit.
#[derive(Clone, Copy)]
struct Crowd {
    who: &'static str,
    region: &'static str,
    limit: usize,
    /// The error code beyond the limit.
    code: u32,
}

const CROWDS: [Crowd; 4] = [
    Crowd { who: "race", region: "us-east-1", limit: QUOTA, code: 5 },
    Crowd { who: "alice", region: "eu-west-1", limit: CAPACITY[0] + CAPACITY[1], code: 24 },
    Crowd { who: "bob", region: "ap-south-1", limit: REGION, code: 24 },
    Crowd { who: "mallory", region: "us-east-1", limit: TRIALS, code: 24 },
];

/// The result of one request, and its place in the order of all beginnings and ends.
struct RequestResult {
    begun: u64,
    ended: u64,
    accepted: bool,
}

/// Retries while the store is overloaded: then nothing was done.
async fn call(stage: &Stage, who: &str, method: &str, path: &str, body: &Value) -> Answer {
    loop {
        let response = stage.call(who, method, path, body).await;
        if response.status != 503 {
            return response;
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
) -> BTreeMap<usize, Vec<(RequestResult, u16, u32)>> {
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
                let response = call(&stage, who, "POST", &path, &body).await;
                let ended = clock.fetch_add(1, Ordering::SeqCst);
                assert!([202, 403, 409].contains(&response.status), "{}", response.text);
                let result = RequestResult { begun, ended, accepted: response.status == 202 };
                let (status, code) = (response.status, response.code());
                all.lock().entry(crowd).or_default().push((result, status, code));
            };
            futures::stream::iter(share).for_each_concurrent(CONCURRENCY, one).await;
        })
    };
    let tasks: Vec<_> = stages.iter().zip(shares).map(share).collect();
    for task in tasks {
        task.await.unwrap();
    }
    std::mem::take(&mut *all.lock())
}

/// Checks that exactly as many as the limit are accepted. Nothing is released meanwhile, so every refusal
/// must end after the last accepted request began.
fn check_results(crowd: Crowd, results: &[(RequestResult, u16, u32)]) {
    let accepted = results.iter().filter(|(result, ..)| result.accepted).count();
    assert_eq!(accepted, crowd.limit, "{}", crowd.who);
    let last = results
        .iter()
        .filter(|(result, ..)| result.accepted)
        .map(|(result, ..)| result.begun)
        .max();
    for (result, status, code) in results.iter().filter(|(result, ..)| !result.accepted) {
        assert_eq!((*status, *code), (403, crowd.code), "{}", crowd.who);
        let early = last.is_some_and(|last| result.ended < last);
        assert!(!early, "{} was refused below the limit", crowd.who);
    }
}

async fn race(stages: &[Arc<Stage>], each: usize) {
    more_clusters(&stages[0]).await;
    let request = |i: usize| {
        let (number, crowd) = (i % CROWDS.len(), CROWDS[i % CROWDS.len()]);
        (number, crowd.who, json!({ "name": format!("n{i}"), "region": crowd.region }))
    };
    let results = send_all(stages, (0..each * CROWDS.len()).map(request).collect()).await;
    for (number, crowd) in CROWDS.into_iter().enumerate() {
        assert_eq!(results[&number].len(), each);
        check_results(crowd, &results[&number]);
    }
    let store = &*stages[0].store;
    let used = async |counter: String| used(store, &counter).await;
    assert_eq!(
        used(format!("fleet/quota/kafka/org/{SMALL_ORG}/standard/standard")).await,
        QUOTA as i64
    );
    for (id, capacity) in SMALL.into_iter().zip(CAPACITY) {
        assert_eq!(used(format!("fleet/capacity/{id}")).await, capacity as i64);
    }
    assert_eq!(used("fleet/region/kafka/aws/ap-south-1/standard".into()).await, REGION as i64);
    assert_eq!(used(format!("fleet/trial/kafka/{OTHER_ORG}/mallory")).await, TRIALS as i64);
    let live = ledger::live(store, "kafka").await;
    assert_eq!(live.len(), CROWDS.iter().map(|crowd| crowd.limit).sum::<usize>());
    ledger::check(store, &["kafka"]).await;
}

async fn three_on_postgres() -> Option<Vec<Arc<Stage>>> {
    let first = Stage::on(stores::postgres().await?, limits).await;
    let (second, third) = (first.replica().await, first.replica().await);
    Some([first, second, third].map(Arc::new).into())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_ten_thousand_concurrent_requests_exactly_the_limits_are_accepted() {
    let Some(stages) = three_on_postgres().await else { return };
    race(&stages, 2_500).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_on_sqlite_accepts_exactly_the_limits() {
    let stage = Stage::on(stores::sqlite().await.unwrap(), limits).await;
    race(&[Arc::new(stage)], 750).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_five_hundred_requests_for_one_name_one_is_accepted() {
    let Some(stages) = three_on_postgres().await else { return };
    let request = |i: usize| {
        (0, if i.is_multiple_of(2) { "alice" } else { "bob" }, json!({ "name": "demo" }))
    };
    let results = send_all(&stages, (0..500).map(request).collect()).await;
    let (accepted, refused): (Vec<_>, Vec<_>) =
        results[&0].iter().partition(|(result, ..)| result.accepted);
    assert_eq!((accepted.len(), refused.len()), (1, 499));
    assert!(refused.iter().all(|(_, status, code)| (*status, *code) == (409, 36)));
    assert_eq!(ledger::live(&*stages[0].store, "kafka").await.len(), 1);
    ledger::check(&*stages[0].store, &["kafka"]).await;
}

/// Creates instances of one and two units, and deletes them while others are created.
async fn create_and_delete(stages: &[Arc<Stage>], rounds: usize) {
    let clock = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let store = &*stages[0].store;
    let quota = format!("fleet/quota/kafka/org/{SMALL_ORG}/standard/standard");
    let customer = async |i: usize| {
        let stage = &stages[i % stages.len()];
        for round in 0..rounds {
            // Three customers share each name.
            let name = format!("n{}-{round}", i / 3);
            let plan = if i.is_multiple_of(5) { "standard.x2" } else { "standard.x1" };
            let body = json!({ "name": name, "plan": plan });
            let created = call(stage, "race", "POST", &KAFKA.path("?async=true"), &body).await;
            let refused = [(403, 5), (409, 36)].contains(&(created.status, created.code()));
            assert!(created.status == 202 || refused, "{}", created.text);
            if created.status == 202 && round + 1 < rounds {
                let id = created.body["id"].as_str().unwrap();
                let other = &stages[(i + 1) % stages.len()];
                let path = KAFKA.path(&format!("/{id}?async=true"));
                let deleted = call(other, "race", "DELETE", &path, &Value::Null).await;
                assert_eq!(deleted.status, 202, "{}", deleted.text);
            }
            let used = used(store, &quota).await;
            assert!((0..=QUOTA as i64).contains(&used), "{used} of {QUOTA} are used");
            clock.fetch_add(1, Ordering::Relaxed);
        }
    };
    let customers = async {
        futures::stream::iter(0..3 * QUOTA).for_each_concurrent(CONCURRENCY, customer).await;
        done.store(1, Ordering::SeqCst);
    };
    let agent = async {
        while done.load(Ordering::SeqCst) == 0 {
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
    ledger::check(store, &["kafka"]).await;
    let used = used(store, &quota).await;
    let live = ledger::live(store, "kafka").await;
    assert_eq!(used, live.iter().map(|instance| instance.spec.units).sum::<i64>());
    assert!(!live.is_empty() && clock.load(Ordering::Relaxed) as usize == 3 * QUOTA * rounds);
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_match_after_creating_and_deleting() {
    let Some(stages) = three_on_postgres().await else { return };
    create_and_delete(&stages, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_match_after_creating_and_deleting_on_sqlite() {
    let stage = Stage::on(stores::sqlite().await.unwrap(), limits).await;
    create_and_delete(&[Arc::new(stage)], 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn released_capacity_and_names_are_available_at_every_server_at_once() {
    let Some(stages) = three_on_postgres().await else { return };
    let store = &stages[0].store;
    let path = format!("/api/v1/fleet/clusters/{CLUSTER}");
    let limited = stages[0].call("admin-full", "PATCH", &path, &json!({ "limit": 1 })).await;
    assert_eq!(limited.status, 200, "{}", limited.text);
    for stage in &stages {
        stage.fleet.index.catch_up().await.unwrap();
    }
    let key = |id: &str| kernel::Key::new(KAFKA.name, id);
    for i in 0..40 {
        // The only unit of capacity, and always the same name.
        let (creating, deleting) = (&stages[i % 3], &stages[(i + 1) % 3]);
        let id = creating.create(KAFKA, "alice", "demo").await;
        let path = KAFKA.path(&format!("/{id}?async=true"));
        assert_eq!(deleting.call("alice", "DELETE", &path, &Value::Null).await.status, 202);
        eventually("it is gone", async || {
            deleting.agent(KAFKA).round().await;
            store.object(&key(&id)).await.unwrap().unwrap().deleted_at.is_some()
        })
        .await;
    }
    ledger::check(&**store, &["kafka"]).await;
}
