//! A real Prometheus with fifteen days of history: the recommendations are those that queries about
//! each container alone give, whatever a survey reads together.

use advisor::decide::split::Limits;
use advisor::model::datasource::Datasource;
use advisor::model::recommendation::Term;
use advisor::ports::prometheus::profile::Profile;
use advisor::work::survey::Survey;
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::prometheus::cluster::{Container, Kind, Load, Namespace, Workload};
use testkit::prometheus::{Cluster, History, Prometheus};

use super::direct::One;
use super::{by_name, checked, client, names, request};
use crate::support::stand_in::{Reply, StandIn};

const MIB: f64 = 1024.0 * 1024.0;
const RULE: &str = "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate";

fn container(name: &str, cores: f64) -> Container {
    let memory = Load::daily(200.0 * MIB, 64.0 * MIB).with_chance(32.0 * MIB);
    Container::new(name, Load::daily(cores, cores / 2.0).with_chance(cores / 4.0), memory)
        .requests(cores, 256.0 * MIB)
        .limits(4.0 * cores, 512.0 * MIB)
        .throttled(Load::steady(cores / 10.0))
}

fn namespace(name: &str, workloads: Vec<Workload>) -> Namespace {
    Namespace { name: name.into(), quota: None, workloads }
}

/// Names repeat wherever they may.
fn cluster() -> Cluster {
    use Kind::{DaemonSet, Deployment, StatefulSet};
    let shop = vec![
        Workload::new(Deployment, "web", 3, vec![container("app", 0.4), container("proxy", 0.05)]),
        Workload::new(Deployment, "api", 2, vec![container("app", 1.5), container("proxy", 0.02)]),
        Workload::new(StatefulSet, "db", 1, vec![container("postgres", 0.7)]),
    ];
    let stock = vec![
        Workload::new(Deployment, "web", 2, vec![container("app", 0.8)]),
        Workload::new(StatefulSet, "web", 1, vec![container("store", 2.5)]),
        Workload::new(DaemonSet, "agent", 1, vec![container("agent", 0.0)]),
    ];
    Cluster { seed: 7, namespaces: vec![namespace("shop", shop), namespace("stock", stock)] }
}

/// What is loaded is near to now: what is older than the retention is dropped.
fn now_s() -> i64 {
    Timestamp::now().as_second()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

async fn surveyed(prometheus: &Prometheus, filter: Value, end_s: i64) -> Survey {
    let client = client(&Datasource::at(prometheus.server.get("")));
    checked(&client, &request(filter), at(end_s)).await.unwrap()
}

/// Experiments, and the pods of their workloads.
const EXPERIMENTS: [(&str, &str); 8] = [
    ("p|default|shop|api(deployment)|app", "api-.*"),
    ("p|default|shop|api(deployment)|proxy", "api-.*"),
    ("p|default|shop|db(statefulset)|postgres", "db-.*"),
    ("p|default|shop|web(deployment)|app", "web-.*"),
    ("p|default|shop|web(deployment)|proxy", "web-.*"),
    ("p|default|stock|agent(daemonset)|agent", "agent-.*"),
    ("p|default|stock|web(deployment)|app", "web-.*"),
    ("p|default|stock|web(statefulset)|store", "web-.*"),
];

/// Compares with queries about each container alone.
async fn compare(found: &Survey, prometheus: &Prometheus, profile: &Profile, end_s: i64) {
    let pods = |name: &str| EXPERIMENTS.iter().find(|(other, _)| *other == name).unwrap().1;
    for advice in &found.advice {
        let one = One {
            namespace: &advice.member.namespace,
            container: &advice.member.container,
            pods: pods(&advice.experiment),
        };
        let expected = one.recommended(prometheus, profile, end_s).await;
        assert_eq!(advice.outcome.as_ref().unwrap(), &expected, "{}", advice.experiment);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_survey_recommends_what_queries_about_each_container_alone_give() {
    let Some(shared) = testkit::prometheus() else { return };
    let history = History::fifteen_days(now_s() / 900 * 900 - 3_600);
    let own = shared.private_with(&cluster(), history).await;
    let end_s = history.end_s + 60;

    let found = surveyed(&own, json!({}), end_s).await;
    assert_eq!(names(&found), EXPERIMENTS.map(|(name, _)| name));
    assert!(found.with_recording_rules && found.notices.is_empty(), "{:?}", found.notices);
    // Handshake, discovery, the search for the rule; a shard by name, and one by owner: what is
    // measured, and whether there are GPUs or language runtimes.
    assert_eq!(found.queries, 1 + 3 + 1 + 2 * (17 + 3));
    compare(&found, &own, &Profile::with_recording_rules(), end_s).await;
    for advice in &found.advice {
        let latest = advice.outcome.as_ref().unwrap().latest.as_ref().unwrap();
        assert_eq!(latest.monitoring_end_ms, end_s * 1000);
        assert!(latest.term(Term::Long).available.is_some(), "{advice:?}");
    }
    let cost = |name: &str| {
        let latest = by_name(&found)[name].outcome.as_ref().unwrap().latest.clone().unwrap();
        latest.term(Term::Short).available.as_ref().unwrap().cost.clone()
    };
    // The same name under two workloads of a namespace, and in two namespaces.
    let cores = |name: &str| cost(name).config.requests.cpu.unwrap();
    let apps = EXPERIMENTS.map(|(name, _)| name).into_iter().filter(|name| name.ends_with("|app"));
    let apps: Vec<f64> = apps.map(cores).collect();
    assert!(apps[0] > 1.0 && apps[1] < 1.0 && apps[1] < apps[2], "{apps:?}");
    // The sum of three divided by their average is 3.0000000000000004 at times, which is rounded up
    // as by the existing service.
    let pods = cost("p|default|shop|web(deployment)|app").pods_count;
    assert!((3..=4).contains(&pods), "{pods}");

    filters(&own, end_s).await;
    without_rules(&own, end_s).await;
}

/// Names are literal, also where they are regular expressions.
async fn filters(own: &Prometheus, end_s: i64) {
    let is = |names: &[usize]| -> Vec<&str> { names.iter().map(|i| EXPERIMENTS[*i].0).collect() };
    for (filter, expected) in [
        (json!({ "include": { "namespace": ["stock"] } }), is(&[5, 6, 7])),
        (json!({ "include": { "namespace": ["s.*"] } }), is(&[])),
        (json!({ "include": { "namespace": ["shop|stock"] } }), is(&[])),
        (json!({ "include": { "workload": ["w+eb", "api"] } }), is(&[0, 1])),
        (
            json!({ "include": { "containers": ["app", "a?pp", "(proxy)", "\"} or up{x=\""] } }),
            is(&[0, 3, 6]),
        ),
        (
            json!({ "exclude": { "containers": [".*"], "namespace": ["[a-z]+", "shop"] } }),
            is(&[5, 6, 7]),
        ),
        (
            json!({ "include": { "workload": ["web"] }, "exclude": { "containers": ["proxy"] } }),
            is(&[3, 6, 7]),
        ),
    ] {
        let found = surveyed(own, filter.clone(), end_s).await;
        assert_eq!(names(&found), expected, "{filter}");
        assert_eq!(found.notices.is_empty(), !expected.is_empty(), "{filter}: {:?}", found.notices);
        if expected == is(&[3, 6, 7]) {
            // A workload that is left out still shares the name of a container.
            compare(&found, own, &Profile::with_recording_rules(), end_s).await;
        }
    }
}

/// The same Prometheus as one that does not record CPU usage.
async fn without_rules(own: &Prometheus, end_s: i64) {
    let server = StandIn::before(own.server.get(""), |seen| {
        Reply::Ask(seen.query().replace(RULE, "nobody:records:this"))
    })
    .await;
    let request = request(json!({ "include": { "namespace": ["stock"] } }));
    let found = checked(&client(&Datasource::at(&server.url)), &request, at(end_s)).await.unwrap();
    assert_eq!((found.advice.len(), found.with_recording_rules), (3, false));
    let [notice] = &found.notices[..] else { panic!("{:?}", found.notices) };
    assert!(notice.contains(RULE) && notice.contains("raw metrics"), "{notice}");
    compare(&found, own, &Profile::without_recording_rules(), end_s).await;
    let latest = by_name(&found)["p|default|stock|web(deployment)|app"].outcome.as_ref().unwrap();
    let cost = &latest.latest.as_ref().unwrap().term(Term::Short).available.as_ref().unwrap().cost;
    assert!(cost.config.requests.cpu.is_some_and(|cores| cores > 0.1), "{cost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_cluster_is_an_empty_survey() {
    let Some(shared) = testkit::prometheus() else { return };
    let own = shared.private().await;
    let found = surveyed(&own, json!({}), now_s()).await;
    assert!(found.advice.is_empty());
    assert_eq!(found.notices, ["Nothing to do."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_containers_than_a_shard_has_are_read_in_several() {
    let Some(shared) = testkit::prometheus() else { return };
    let count = Limits::default().containers_max * 2 + 1;
    let workload = |number: usize| {
        let name = format!("c{number:03}");
        let plain = Container::new(&name, Load::steady(number as f64 / 100.0), Load::steady(MIB));
        Workload::new(Kind::StatefulSet, &name, 1, vec![plain])
    };
    let all = namespace("large", (0..count).map(workload).collect());
    let history = History { end_s: now_s() / 900 * 900, length_s: 7_200, step_s: 120 };
    let own = shared.private_with(&Cluster { seed: 1, namespaces: vec![all] }, history).await;
    let found = surveyed(&own, json!({}), history.end_s).await;
    assert_eq!(found.advice.len(), count);
    assert_eq!(found.queries, 1 + 3 + 1 + 3 * (17 + 3));
    for (number, advice) in found.advice.iter().enumerate() {
        let latest = advice.outcome.as_ref().unwrap().latest.as_ref().unwrap();
        let cost = &latest.term(Term::Short).available.as_ref().unwrap().cost;
        let cores = number as f64 / 100.0;
        let found = cost.config.requests.cpu.unwrap_or_default();
        assert!((found - cores).abs() < 1e-9, "{}: {found}", advice.experiment);
    }
}
