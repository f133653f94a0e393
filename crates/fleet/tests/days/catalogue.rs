//! Changes of the catalogue, and time that passes.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use fleet::Config;
use fleet::model::instance::Instance;
use kernel::change::{Wake, Write};
use kernel::{Change, Json, Key, Lane};
use serde_json::Value;

use crate::callers::ORG;
use crate::ledger::{self, instance};
use crate::stage::{KAFKA, Stage, eventually};

async fn reload(stage: &Stage) {
    let response = stage.call("admin-full", "POST", "/api/v1/fleet/reload", &Value::Null).await;
    assert_eq!(response.status, 200, "{}", response.text);
}

/// The embedded Kafka kind, with a change.
fn other_kafka(config: &mut Config, dir: &Path, from: &str, to: &str) {
    let text = include_str!("../../../../kinds/kafka.yaml");
    assert!(text.contains(from));
    std::fs::write(dir.join("kafka.yaml"), text.replace(from, to)).unwrap();
    config.kinds_dir = Some(dir.into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_is_deleted_at_the_end_of_its_lifespan() {
    let kinds = tempfile::tempdir().unwrap();
    let stage = Stage::configured(|config| {
        other_kafka(config, kinds.path(), "lifespan_s: 172800", "lifespan_s: 2");
    })
    .await;
    let kept = stage.create_ready(KAFKA, "alice", "kept").await;
    let id = stage.create(KAFKA, "mallory", "trial").await;
    let shown = stage.get("mallory", &KAFKA.path(&format!("/{id}"))).await;
    assert!(shown.body["expires_at"].is_string(), "{}", shown.text);
    stage.agent(KAFKA).make_gone(&id).await;
    assert_eq!(stage.status(KAFKA, &kept).await, "ready");
    ledger::check(&*stage.store, &["kafka"]).await;
    stage.create(KAFKA, "mallory", "again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_user_has_no_access_and_their_instances_are_deleted() {
    let stage = Stage::configured(|config| {
        let file = config.quota_file.as_ref().unwrap().with_file_name("deny.yaml");
        std::fs::write(&file, "[]").unwrap();
        config.deny_file = Some(file);
    })
    .await;
    let id = stage.create_ready(KAFKA, "alice", "hers").await;
    let young = stage.create(KAFKA, "alice", "young").await;
    let other = stage.create_ready(KAFKA, "bob", "his").await;
    let file = stage.domain.config.deny_file.clone().unwrap();
    std::fs::write(&file, "- alice\n- [").unwrap();
    let broken = stage.call("admin-full", "POST", "/api/v1/fleet/reload", &Value::Null).await;
    assert_eq!(broken.status, 400, "{}", broken.text);
    assert_eq!(stage.get("alice", &KAFKA.path("")).await.status, 200, "the previous list stays");

    std::fs::write(&file, "- alice").unwrap();
    reload(&stage).await;
    for (method, path) in [("GET", ""), ("POST", "?async=true"), ("DELETE", "/x?async=true")] {
        let refused = stage.call("alice", method, &KAFKA.path(path), &Value::Null).await;
        assert_eq!((refused.status, refused.code()), (403, 4), "{}", refused.text);
    }
    stage.agent(KAFKA).make_gone(&id).await;
    stage.agent(KAFKA).make_gone(&young).await;
    assert_eq!(stage.get("bob", &KAFKA.path(&format!("/{other}"))).await.body["status"], "ready");
    ledger::check(&*stage.store, &["kafka"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_access_list_all_others_get_a_maintenance_error() {
    let stage = Stage::configured(|config| {
        let file = config.quota_file.as_ref().unwrap().with_file_name("access.yaml");
        std::fs::write(&file, format!("- {ORG}")).unwrap();
        config.access_file = Some(file);
    })
    .await;
    for (method, path) in [("GET", ""), ("GET", "/x"), ("POST", "?async=true")] {
        let refused = stage.call("mallory", method, &KAFKA.path(path), &Value::Null).await;
        assert_eq!((refused.status, refused.code()), (403, 18), "{}", refused.text);
    }
    // Agents and admins have no organisation.
    let id = stage.create_ready(KAFKA, "alice", "demo").await;
    let admin = format!("{}/admin/kafkas/{id}", KAFKA.prefix);
    assert_eq!(stage.get("admin-read", &admin).await.status, 200);
    let file = stage.domain.config.access_file.clone().unwrap();
    std::fs::write(file, "- 99999999").unwrap();
    reload(&stage).await;
    assert_eq!(stage.get("mallory", &KAFKA.path("")).await.status, 200);
    assert_eq!(stage.get("alice", &KAFKA.path("")).await.code(), 18);
    assert_eq!(stage.status(KAFKA, &id).await, "ready", "its instances stay");
}

/// Writes the quota of the organisation: `eval` until this day.
fn quota(stage: &Stage, ends: &str) {
    let file = stage.domain.config.quota_file.as_ref().unwrap();
    let text = format!(
        "registered_users_per_organisation:\n  - id: {ORG}\n    any_user: true\n    \
         max_allowed_instances: 10\n    granted_quota:\n      - instance_type_id: standard\n        \
         billing_models:\n          - {{ id: standard }}\n          \
         - {{ id: eval, expiration_date: {ends} }}\n"
    );
    std::fs::write(file, text).unwrap();
}

async fn with_eval(change: impl FnOnce(&mut Config)) -> (Stage, String, String, String) {
    let stage = Stage::configured(change).await;
    quota(&stage, "2999-01-01");
    reload(&stage).await;
    let eval = |name: &str| serde_json::json!({ "name": name, "billing_model": "eval" });
    let kept = stage.create_ready(KAFKA, "alice", "kept").await;
    let ready = stage.create_with(KAFKA, "alice", eval("ready")).await;
    stage.agent(KAFKA).make_ready(&ready).await;
    let young = stage.create_with(KAFKA, "alice", eval("young")).await;
    stage.agent(KAFKA).until_listed(&young).await;
    quota(&stage, "2020-01-01");
    reload(&stage).await;
    (stage, kept, ready, young)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_quota_suspends_for_the_grace_period_and_then_deletes() {
    let (stage, kept, ready, young) = with_eval(|_| {}).await;
    for id in [&ready, &young] {
        stage.agent(KAFKA).until(id, "suspended").await;
        let shown = stage.get("alice", &KAFKA.path(&format!("/{id}"))).await;
        assert!(shown.body["expires_at"].is_string(), "{}", shown.text);
    }
    // Renewed in time: it stays, and an admin may resume it.
    quota(&stage, "2999-01-01");
    reload(&stage).await;
    for id in [&ready, &young] {
        eventually("it does not expire any more", async || {
            instance(&stage, id).await.spec.expires_at.is_none()
        })
        .await;
    }
    let admin = format!("{}/admin/kafkas/{ready}", KAFKA.prefix);
    let resume = serde_json::json!({ "suspended": false });
    assert_eq!(stage.call("admin-full", "PATCH", &admin, &resume).await.status, 200);
    stage.agent(KAFKA).make_ready(&ready).await;

    // Not renewed: suspended, and deleted after the grace period.
    quota(&stage, "2020-01-01");
    reload(&stage).await;
    stage.agent(KAFKA).until(&ready, "suspended").await;
    expire_now(&stage, &ready).await;
    stage.agent(KAFKA).make_gone(&ready).await;
    assert_eq!(stage.status(KAFKA, &young).await, "suspended");
    assert_eq!(stage.status(KAFKA, &kept).await, "ready");
    ledger::check(&*stage.store, &["kafka"]).await;
}

/// Sets the expiry to now.
async fn expire_now(stage: &Stage, id: &str) {
    let now = stage.app.ambient.now();
    let key = Key::new("kafka", id);
    eventually("no concurrent write", async || {
        let mut object = (*stage.store.object(&key).await.unwrap().unwrap()).clone();
        let mut instance = Instance::from_object(&object).unwrap();
        instance.spec.expires_at = Some(now);
        object.spec = Json::encode(&instance.spec);
        let wake = Wake { key: key.clone(), org: object.org.clone(), lane: Lane::Normal, due: now };
        let change = Change {
            write: Some(Write::update(object, "updated")),
            wakes: vec![wake],
            ..Change::default()
        };
        kernel::store::commit(&*stage.store, change, now).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_quota_without_grace_period_deletes_at_once() {
    let kinds = tempfile::tempdir().unwrap();
    let (stage, kept, ready, young) =
        with_eval(|config| other_kafka(config, kinds.path(), "grace_days: 4", "grace_days: 0"))
            .await;
    for id in [&ready, &young] {
        stage.agent(KAFKA).make_gone(id).await;
    }
    assert_eq!(stage.status(KAFKA, &kept).await, "ready");
    ledger::check(&*stage.store, &["kafka"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_reaches_every_replica_and_says_which_have_loaded_the_files() {
    let Some(stage) = Stage::on_postgres().await else { return };
    let other = stage.replica().await;
    let file = stage.domain.config.quota_file.clone().unwrap();
    let denied = "registered_users_per_organisation: []\n";
    std::fs::write(&file, denied).unwrap();
    let replicas = async || {
        let reply = stage.call("admin-full", "POST", "/api/v1/fleet/reload", &Value::Null).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        let replicas = reply.body["replicas"].as_array().cloned().unwrap();
        let mut states: Vec<String> =
            replicas.iter().map(|replica| replica["state"].to_string()).collect();
        states.sort();
        (states, reply.text)
    };
    let (states, text) = replicas().await;
    assert_eq!(states, ["\"loaded\"", "\"loaded\""], "{text}");
    // The files' times are compared every few seconds, so this is the request's doing or theirs;
    // what the reply says must be true in any case.
    assert!(other.fleet.catalogue().quota.registered_users_per_organisation.is_empty());

    // A replica that ends is not waited for.
    drop(other);
    eventually("it is no longer named", async || replicas().await.0 == ["\"loaded\""]).await;
}

/// O_NONBLOCK of Linux.
const NONBLOCK: i32 = 0o4000;

/// A file on a slow disk must not hold up the threads that answer requests. A named pipe is as slow
/// as can be: reading it ends when someone writes it, here on the only thread.
#[tokio::test]
async fn a_slow_file_of_the_catalogue_holds_up_no_other_work() {
    let stage = Stage::new().await;
    let pipe = stage.domain.config.quota_file.clone().unwrap();
    let text = std::fs::read_to_string(&pipe).unwrap();
    std::fs::remove_file(&pipe).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    // Fails until there is a reader: only a thread that is not held up gets so far.
    let mut options = std::fs::OpenOptions::new();
    options.write(true).custom_flags(NONBLOCK);
    let feed_reader = async || {
        eventually("someone reads it", async || {
            options.open(&pipe).is_ok_and(|mut file| file.write_all(text.as_bytes()).is_ok())
        })
        .await;
        eventually("it is read to its end", async || options.open(&pipe).is_err()).await;
    };
    let feed_readers = async {
        loop {
            feed_reader().await;
        }
    };
    let reloaded = tokio::select! {
        reloaded = stage.call("admin-full", "POST", "/api/v1/fleet/reload", &Value::Null) => reloaded,
        () = feed_readers => unreachable!("it feeds all of them"),
    };
    // A reader that came since must not wait for ever.
    let away = pipe.with_extension("away");
    std::fs::rename(&pipe, &away).unwrap();
    std::fs::write(&pipe, &text).unwrap();
    eventually("no one reads the pipe", async || options.open(&away).is_err()).await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.text);
}
