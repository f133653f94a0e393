//! Clusters of an organisation's own.

use fleet::model::cluster;
use kernel::change::Write;
use kernel::{Change, log::AuditFilter};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::callers::CLUSTER;
use crate::sign_in::token;
use crate::stage::{Answer, KAFKA, Stage};

const ID: &str = "0123456789abcdefghijklmnopqrstuv";

fn path(rest: &str) -> String {
    format!("{}/clusters{rest}", KAFKA.prefix)
}

fn body(id: &str) -> Value {
    json!({
        "cluster_id": id, "cluster_ingress_dns_name": "apps.own.example.com",
        "kafka_machine_pool_node_count": 3, "access_kafkas_via_private_network": true,
    })
}

async fn register(stage: &Stage, who: &str, id: &str) -> Answer {
    stage.call(who, "POST", &path(""), &body(id)).await
}

fn parameter<'a>(answer: &'a Answer, id: &str) -> &'a str {
    let all = answer.body["fleetshard_parameters"].as_array().unwrap();
    all.iter().find(|one| one["id"] == id).unwrap()["value"].as_str().unwrap()
}

fn says(answer: &Answer) -> (u16, u32) {
    (answer.status, answer.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_registered_reports_holds_an_instance_and_goes() {
    let mut stage = Stage::new().await;
    let made = register(&stage, "carol", ID).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let keys: Vec<&String> = made.body.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "id",
            "kind",
            "href",
            "access_kafkas_via_private_network",
            "cluster_id",
            "status",
            "multi_az",
            "supported_instance_types",
            "capacity_information",
            "fleetshard_parameters"
        ]
    );
    assert_eq!(made.body["kind"], "Cluster");
    assert_eq!(made.body["status"], "waiting_for_kas_fleetshard_operator");
    assert_eq!(made.body["supported_instance_types"]["instance_types"][0]["id"], "standard");
    let ids: Vec<&Value> = made.body["fleetshard_parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(
        ids,
        [
            "sso-auth-server-url",
            "sso-client-id",
            "sso-secret",
            "control-plane-url",
            "cluster-id",
            "poll-interval",
            "resync-interval"
        ]
    );
    let one = path(&format!("/{ID}"));
    let again = stage.get("carol", &format!("{one}/addon_parameters")).await;
    assert_eq!(again.body["kind"], "ClusterAddonParameters");
    assert_eq!(again.body["fleetshard_parameters"], made.body["fleetshard_parameters"]);

    let (client, secret) = (parameter(&made, "sso-client-id"), parameter(&made, "sso-secret"));
    assert_eq!(client, format!("kas-fleetshard-agent-{ID}"));
    let agent: &'static str = token(&stage, client, secret).await.unwrap().leak();
    let report = json!({
        "conditions": [{ "type": "Ready", "status": "True" }],
        "capacity": { "standard": { "maxUnits": 5, "remainingUnits": 5 } },
        "strimzi": [{ "ready": true, "version": "v1", "kafkaVersions": ["2.8.2"], "kafkaIbpVersions": ["2.8"] }],
    });
    let agent = Agent::new(&stage, KAFKA, agent, ID);
    let put = stage.call(agent.who(), "PUT", &agent.path("/status"), &report).await;
    assert_eq!(put.status, 204, "{}", put.text);

    let asked = json!({ "name": "own", "billing_model": "enterprise", "cluster_id": ID });
    let id = stage.create_with(KAFKA, "alice", asked).await;
    let seen = stage.get("alice", &one).await;
    assert_eq!(seen.body["status"], "ready");
    assert_eq!(
        seen.body["capacity_information"],
        json!({
            "kafka_machine_pool_node_count": 3, "maximum_kafka_streaming_units": 5,
            "remaining_kafka_streaming_units": 4, "consumed_kafka_streaming_units": 1,
        })
    );
    let gone = format!("{one}?async=true");
    assert_eq!(says(&stage.call("carol", "DELETE", &gone, &Value::Null).await), (403, 4));
    agent.make_ready(&id).await;
    let instance = KAFKA.path(&format!("/{id}?async=true"));
    assert_eq!(stage.call("alice", "DELETE", &instance, &Value::Null).await.status, 202);
    agent.make_gone(&id).await;
    drop(agent);
    // A worker would remove the cluster between the two requests.
    stage.stop_workers().await;
    for _ in 0..2 {
        let answer = stage.call("carol", "DELETE", &gone, &Value::Null).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        assert_eq!(answer.body["id"], ID);
        assert!(answer.body["reason"].is_string() && answer.body["code"].is_string());
    }
    let object = stage.store.object(&cluster::key(ID)).await.unwrap().unwrap();
    assert!(object.spec.parse::<cluster::Spec>().unwrap().deleting);
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_organisation_and_role_decide_who_may() {
    let stage = Stage::new().await;
    for (who, method, rest) in [
        ("mallory", "GET", ""),
        ("mallory", "POST", ""),
        ("race", "GET", ""),
        ("mallory", "GET", "/x"),
        ("mallory", "DELETE", "/x?async=true"),
        ("mallory", "GET", "/x/addon_parameters"),
    ] {
        let answer = stage.call(who, method, &path(rest), &body(ID)).await;
        assert_eq!(says(&answer), (403, 120), "{who} {method} {rest}: {}", answer.text);
    }
    let empty = stage.get("alice", &path("")).await;
    assert_eq!(
        empty.body,
        json!({"kind": "ClusterList", "page": 1, "size": 0, "total": 0, "items": []})
    );
    assert_eq!(says(&register(&stage, "alice", ID).await), (403, 11));
    assert_eq!(says(&register(&stage, "alice", "x").await), (400, 33), "what is wrong comes first");
    assert_eq!(register(&stage, "carol", ID).await.status, 200);
    assert_eq!(says(&register(&stage, "carol", ID).await), (409, 44));
    assert_eq!(says(&register(&stage, "carol", CLUSTER).await), (409, 44), "one of ours");
    let list = stage.get("alice", &path("")).await;
    assert_eq!((list.items().len(), &list.body["total"]), (1, &json!(1)));

    let own = path(&format!("/{ID}"));
    assert_eq!(says(&stage.get("alice", &format!("{own}/addon_parameters")).await), (403, 11));
    assert_eq!(says(&stage.call("carol", "DELETE", &own, &Value::Null).await), (400, 103));
    let gone = format!("{own}?async=true");
    assert_eq!(says(&stage.call("alice", "DELETE", &gone, &Value::Null).await), (403, 11));
    let ours = path(&format!("/{CLUSTER}"));
    assert_eq!(says(&stage.get("carol", &ours).await), (404, 7), "not the organisation's");
    let ours = format!("{ours}?async=true");
    assert_eq!(says(&stage.call("carol", "DELETE", &ours, &Value::Null).await), (403, 4));
    let unknown = stage.call("carol", "DELETE", &path("/abc?async=true"), &Value::Null).await;
    assert_eq!(says(&unknown), (404, 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_given_up_comes_again_under_another_secret() {
    let mut stage = Stage::new().await;
    // They would write to it, too.
    stage.stop_workers().await;
    let first = register(&stage, "carol", ID).await;
    let mut object = (*stage.store.object(&cluster::key(ID)).await.unwrap().unwrap()).clone();
    let now = stage.app.ambient.now();
    object.deleted_at = Some(now);
    let change = Change { write: Some(Write::update(object, "deleted")), ..Change::default() };
    kernel::store::commit(stage.store.as_ref(), change, now).await.unwrap();
    assert_eq!(stage.get("carol", &path("")).await.items().len(), 0);
    let second = register(&stage, "carol", ID).await;
    assert_eq!(second.status, 200, "{}", second.text);
    let (old, new) = (parameter(&first, "sso-secret"), parameter(&second, "sso-secret"));
    assert_ne!(old, new);
    let client = parameter(&second, "sso-client-id");
    assert!(token(&stage, client, new).await.is_some());
    assert_eq!(token(&stage, client, old).await, None);
    assert_eq!(stage.get("carol", &path("")).await.items().len(), 1);
    let audit = stage.store.audit(&AuditFilter::default(), 1000).await.unwrap();
    assert!(!format!("{audit:?}").contains(new));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_may_be_much_longer_than_other_bodies() {
    let stage = Stage::new().await;
    let id = stage.create(KAFKA, "alice", "demo").await;
    let agent = stage.agent(KAFKA);
    agent.until_listed(&id).await;
    let status = json!({ "conditions": [{ "type": "Ready", "status": "True" }],
        "capacity": {}, "versions": { "kafka": "3.0.0" }, "note": "x".repeat(300) });
    let mut all: serde_json::Map<String, Value> =
        (0..5000).map(|i| (format!("unknown-{i}"), status.clone())).collect();
    all.insert(id.clone(), status);
    let all = Value::Object(all);
    assert!(all.to_string().len() > 3 << 19);
    let path = agent.path(&format!("/{}/status?results=true", KAFKA.plural));
    let taken = stage.call("agent", "PUT", &path, &all).await;
    assert_eq!(taken.status, 200, "{}", taken.text);
    assert_eq!(taken.body["results"].as_object().unwrap().len(), 5001);
    assert_eq!(taken.body["results"][&id], "updated");
    let other = stage.call("alice", "POST", &KAFKA.path(""), &all).await;
    assert_eq!(says(&other), (400, 17), "{}", other.text);
    assert_eq!(other.body["reason"], "the body is larger than 1048576 bytes");
    let longer = json!({ "x": "x".repeat(16 << 20) });
    let refused = stage.call("agent", "PUT", &path, &longer).await;
    assert_eq!(refused.body["reason"], "the body is larger than 16777216 bytes");
}
