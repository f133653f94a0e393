//! The admins' API over everyone's instances, and its record.

use kernel::log::AuditFilter;
use serde_json::{Value, json};

use crate::callers::CLUSTER;
use crate::stage::{Answer, DINOSAUR, KAFKA, Stage, eventually};

fn path(rest: &str) -> String {
    format!("{}/admin/kafkas{rest}", KAFKA.prefix)
}

async fn patch(stage: &Stage, who: &str, id: &str, body: Value) -> Answer {
    stage.call(who, "PATCH", &path(&format!("/{id}")), &body).await
}

fn says(answer: &Answer) -> (u16, u32) {
    (answer.status, answer.code())
}

/// What the record says that someone did.
async fn record(stage: &Stage, who: &str) -> Vec<String> {
    let filter = AuditFilter { actor: Some(who.into()), ..AuditFilter::default() };
    let audit = stage.store.audit(&filter, 1000).await.unwrap();
    audit.into_iter().map(|one| format!("{} {}", one.entry.action, one.entry.outcome)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn admins_see_everyones_and_every_read_is_on_record() {
    let stage = Stage::new().await;
    let id = stage.create_ready(KAFKA, "alice", "one").await;
    stage.create(KAFKA, "mallory", "two").await;
    let list = stage.get("admin-read", &path("?search=name%20like%20%25")).await;
    assert_eq!(
        (list.status, &list.body["kind"], list.items().len()),
        (200, &json!("KafkaList"), 2)
    );
    let one = stage.get("admin-read", &path(&format!("/{id}"))).await;
    assert_eq!(one.body["organisation_id"], "13640203");
    assert_eq!(one.body["actual_kafka_version"], "2.8.2");
    assert_eq!(says(&stage.get("admin-read", &path("/nobody")).await), (404, 7));
    let expected = ["kafka.admin.list asked", "kafka.admin.get asked", "kafka.admin.get asked"];
    assert_eq!(record(&stage, "admin-read").await, expected);
    let entries = stage.store.audit(&AuditFilter::default(), 1000).await.unwrap();
    let listed = entries.iter().find(|one| one.entry.action == "kafka.admin.list").unwrap();
    assert!(listed.entry.after.text().contains("search=name"), "{}", listed.entry.after.text());
    for who in ["alice", "carol", "agent"] {
        assert_eq!(says(&stage.get(who, &path("")).await), (404, 7), "{who}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_graph_says_where_an_instance_is_placed_until_it_is_gone() {
    let stage = Stage::new().await;
    let id = stage.create_ready(KAFKA, "alice", "one").await;
    let graph = async |who: &str, key: &str| {
        stage.get(who, &format!("/api/v1/objects/{key}/graph")).await.body
    };
    let (instance, cluster) = (format!("kafka/{id}"), format!("cluster/{CLUSTER}"));
    let shown = graph("admin-read", &instance).await;
    let placed = &shown["dependencies"][0];
    assert_eq!((&placed["key"], &placed["role"]), (&json!(cluster), &json!("placed-on")));
    assert_eq!(graph("admin-read", &cluster).await["dependents"][0]["key"], json!(instance));
    assert_eq!(graph("alice", &instance).await["dependencies"], json!([]), "not to members");
    // A create and its result are audited, not each phase in between.
    let filter = AuditFilter { target: Some(instance.clone()), ..AuditFilter::default() };
    let audit = stage.store.audit(&filter, 1000).await.unwrap();
    let actions: Vec<&str> = audit.iter().map(|one| one.entry.action.as_str()).collect();
    assert_eq!(actions, ["kafka.create", "kafka.ready"]);
    let path = KAFKA.path(&format!("/{id}?async=true"));
    assert_eq!(stage.call("alice", "DELETE", &path, &Value::Null).await.status, 202);
    stage.agent(KAFKA).make_gone(&id).await;
    let left = async || graph("admin-read", &cluster).await["dependents"] == json!([]);
    eventually("nothing is placed there", left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_upgrades_grows_suspends_and_resumes() {
    let stage = Stage::new().await;
    let id = stage.create_ready(KAFKA, "alice", "one").await;
    assert_eq!(says(&patch(&stage, "admin-read", &id, json!({"suspended": true})).await), (404, 7));
    assert_eq!(says(&patch(&stage, "admin-write", &id, json!({})).await), (400, 37));
    assert_eq!(says(&patch(&stage, "admin-write", "nobody", json!({})).await), (404, 7));
    let down = patch(&stage, "admin-write", &id, json!({"kafka_version": "2.0.0"})).await;
    assert_eq!(says(&down), (400, 8));
    assert_eq!(
        down.body["reason"],
        format!("unable to update kafka: {id} with kafka version: 2.0.0")
    );
    let other = patch(&stage, "admin-write", &id, json!({"kafka_version": "2.8.1"})).await;
    assert_eq!(other.status, 200, "{}", other.text);
    assert_eq!(other.body["desired_kafka_version"], "2.8.1");
    let desired = stage.agent(KAFKA).list().await;
    assert_eq!(desired.items()[0]["spec"]["versions"]["kafka"], "2.8.1", "the agent gets it");

    let grown =
        patch(&stage, "admin-write", &id, json!({"max_data_retention_size": "1100Gi"})).await;
    assert_eq!(grown.body["max_data_retention_size"]["bytes"], 1_181_116_006_400_i64);
    let less =
        patch(&stage, "admin-write", &id, json!({"max_data_retention_size": "1050Gi"})).await;
    assert_eq!(says(&less), (400, 37));

    let off = patch(&stage, "admin-write", &id, json!({"suspended": true})).await;
    assert_eq!((off.status, &off.body["status"]), (200, &json!("suspending")), "{}", off.text);
    assert_eq!(
        says(&patch(&stage, "admin-write", &id, json!({"suspended": true})).await),
        (400, 8)
    );
    assert_eq!(
        says(&patch(&stage, "admin-write", &id, json!({"suspended": false})).await),
        (400, 8)
    );
    stage.agent(KAFKA).until(&id, "suspended").await;
    let on = patch(&stage, "admin-write", &id, json!({"suspended": false})).await;
    assert_eq!((on.status, &on.body["status"]), (200, &json!("resuming")), "{}", on.text);
    stage.agent(KAFKA).until(&id, "ready").await;
    let changes = record(&stage, "admin-write").await;
    let done = changes.iter().filter(|entry| *entry == "kafka.admin.patch done").count();
    let asked = changes.iter().filter(|entry| *entry == "kafka.admin.patch asked").count();
    assert_eq!((done, asked), (4, 10), "{changes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_deletes_and_revokes_with_the_full_role_only() {
    let stage = Stage::new().await;
    let id = stage.create_ready(KAFKA, "alice", "one").await;
    let revoke = path(&format!("/{id}/revoke_tls_certificate"));
    for (reason, status) in [(0, 204), (6, 204), (7, 400), (10, 204), (11, 400), (-1, 400)] {
        let body = json!({ "revocation_reason": reason });
        let answer = stage.call("admin-full", "POST", &revoke, &body).await;
        assert_eq!(answer.status, status, "{reason}: {}", answer.text);
    }
    assert_eq!(says(&stage.call("admin-write", "POST", &revoke, &json!({})).await), (404, 7));
    let one = path(&format!("/{id}"));
    assert_eq!(says(&stage.call("admin-full", "DELETE", &one, &Value::Null).await), (400, 103));
    let gone = format!("{one}?async=true");
    assert_eq!(says(&stage.call("admin-write", "DELETE", &gone, &Value::Null).await), (404, 7));
    let answer = stage.call("admin-full", "DELETE", &gone, &Value::Null).await;
    assert_eq!((answer.status, &answer.body["id"]), (202, &json!(id)), "{}", answer.text);
    stage.agent(KAFKA).make_gone(&id).await;
    assert_eq!(says(&stage.call("admin-full", "DELETE", &gone, &Value::Null).await), (404, 7));
    let changes = record(&stage, "admin-full").await;
    assert!(changes.contains(&"kafka.admin.delete asked".to_owned()), "{changes:?}");
    assert!(changes.contains(&"kafka.admin.delete done".to_owned()), "{changes:?}");
    let revoked = changes.iter().filter(|one| one.contains("revoke_tls_certificate")).count();
    assert_eq!(revoked, 6, "those that were refused, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_kind_has_its_own_fields() {
    let stage = Stage::new().await;
    let id = stage.create_ready(DINOSAUR, "alice", "rex").await;
    let one = format!("{}/admin/dinosaurs/{id}", DINOSAUR.prefix);
    let up = stage.call("admin-full", "PATCH", &one, &json!({"dinosaur_version": "1.0.0"})).await;
    assert_eq!((up.status, up.code()), (400, 8), "1.1.0 is what it has: {}", up.text);
    let revoke = format!("{one}/revoke_tls_certificate");
    assert_eq!(stage.call("admin-full", "POST", &revoke, &json!({})).await.status, 404);
}
