//! A system is unreachable in every phase of an instance's life, and returns.

use fleet::model::instance::Phase;
use kernel::store::postgres::Postgres;
use serde_json::{Value, json};
use testkit::chaos::Proxy;
use testkit::stores::{Fresh, Place};

use crate::ledger::{self, delete};
use crate::outside::{Outside, until_failing};
use crate::stage::{KAFKA, Stage, eventually};

/// Checks that it can be read and listed during an outage.
async fn is_served(stage: &Stage, id: &str, status: &str) {
    let one = stage.get("alice", &KAFKA.path(&format!("/{id}"))).await;
    assert_eq!((one.status, &one.body["status"]), (200, &json!(status)), "{}", one.text);
    assert_eq!(stage.get("alice", &KAFKA.path("")).await.status, 200);
}

/// The client and secret of an instance, as its agent gets them.
async fn secret(stage: &Stage, id: &str) -> (String, String) {
    let list = stage.agent(KAFKA).list().await;
    let item = list.items().iter().find(|item| item["id"] == id).expect("it is listed").clone();
    let account = &item["spec"]["serviceAccounts"][0];
    let text = |name: &str| account[name].as_str().unwrap().to_owned();
    (text("principal"), text("password"))
}

#[tokio::test(flavor = "multi_thread")]
async fn keycloak_is_unreachable_in_every_phase() {
    let Some(outside) = Outside::open().await else { return };
    let stage = Stage::configured(|config| outside.configure(config)).await;
    let steady = stage.create_ready(KAFKA, "alice", "steady").await;

    outside.sso.cut();
    let id = stage.create(KAFKA, "alice", "demo").await;
    until_failing(&*stage.store, &id).await;
    is_served(&stage, &id, "preparing").await;
    outside.sso.mend();
    stage.agent(KAFKA).make_ready(&id).await;
    outside.until_consistent(&stage).await;

    // A client that is deleted meanwhile is created again with the same secret.
    let (client, secret) = secret(&stage, &id).await;
    outside.sso.cut();
    outside.delete_client_by_hand(&client).await;
    until_failing(&*stage.store, &id).await;
    is_served(&stage, &id, "ready").await;
    outside.sso.mend();
    outside.until_consistent(&stage).await;
    assert_eq!(outside.realm.sign_in_program(&client, &secret).await.0, 200);

    outside.sso.cut();
    delete(&stage, &id).await;
    stage.agent(KAFKA).until(&id, "deleting").await;
    until_failing(&*stage.store, &id).await;
    is_served(&stage, &id, "deleting").await;
    outside.sso.mend();
    stage.agent(KAFKA).make_gone(&id).await;
    assert_eq!(stage.status(KAFKA, &steady).await, "ready");
    outside.until_consistent(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dns_is_unreachable_in_every_phase() {
    let Some(outside) = Outside::open().await else { return };
    let stage = Stage::configured(|config| outside.configure(config)).await;
    let steady = stage.create_ready(KAFKA, "alice", "steady").await;

    outside.dns.cut();
    let id = stage.create(KAFKA, "alice", "demo").await;
    stage.agent(KAFKA).until_listed(&id).await;
    stage.agent(KAFKA).round().await;
    until_failing(&*stage.store, &id).await;
    is_served(&stage, &id, "provisioning").await;
    outside.dns.mend();
    stage.agent(KAFKA).make_ready(&id).await;
    outside.until_consistent(&stage).await;

    outside.dns.cut();
    outside.delete_records_by_hand().await;
    until_failing(&*stage.store, &id).await;
    is_served(&stage, &id, "ready").await;
    outside.dns.mend();
    outside.until_consistent(&stage).await;

    outside.dns.cut();
    delete(&stage, &id).await;
    stage.agent(KAFKA).until(&id, "deleting").await;
    until_failing(&*stage.store, &id).await;
    is_served(&stage, &id, "deleting").await;
    outside.dns.mend();
    stage.agent(KAFKA).make_gone(&id).await;
    assert_eq!(stage.status(KAFKA, &steady).await, "ready");
    outside.until_consistent(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_and_records_deleted_by_hand_are_restored() {
    let Some(outside) = Outside::open().await else { return };
    let stage = Stage::configured(|config| outside.configure(config)).await;
    let id = stage.create_ready(KAFKA, "alice", "demo").await;
    outside.until_consistent(&stage).await;
    let (client, secret) = secret(&stage, &id).await;
    outside.delete_client_by_hand(&client).await;
    eventually("the same secret is valid again", async || {
        outside.realm.sign_in_program(&client, &secret).await.0 == 200
    })
    .await;
    let before = outside.records().await;
    assert_eq!(before.len(), 3);
    outside.delete_records_by_hand().await;
    eventually("the records exist again", async || outside.records().await == before).await;
    assert_eq!(stage.status(KAFKA, &id).await, "ready");
    outside.until_consistent(&stage).await;
}

/// The store on a server of this test's own.
async fn on_private_postgres() -> Option<(testkit::postgres::Postgres, Fresh)> {
    let server = testkit::postgres()?.private().await;
    let database = server.database().await;
    let store = Postgres::open(database.url(), kernel::store::uncounted()).await.unwrap();
    Some((server, Fresh::new(std::sync::Arc::new(store), Place::Database(database))))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outage {
    Killed,
    Paused,
}

impl Outage {
    async fn begin(self, server: &testkit::postgres::Postgres) {
        match self {
            Outage::Killed => server.server.kill().await,
            Outage::Paused => server.server.pause().await,
        }
    }

    async fn end(self, server: &testkit::postgres::Postgres) {
        match self {
            Outage::Killed => server.server.start().await,
            Outage::Paused => server.server.resume().await,
        }
    }
}

/// Repeats a request until the store is back. Errors meanwhile have the API's shape.
async fn call_until_done(
    stage: &Stage,
    who: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let last = parking_lot::Mutex::new((0, Value::Null));
    eventually("the store is back", async || {
        let response = stage.call(who, method, path, body).await;
        if response.status >= 500 {
            assert!(response.code() > 0 && response.body["kind"] == "Error", "{}", response.text);
        }
        let done = response.status < 500;
        *last.lock() = (response.status, response.body);
        done
    })
    .await;
    last.into_inner()
}

/// Requests before, during and after an outage of the store.
async fn store_outage(first: Outage, second: Outage) {
    let Some((server, fresh)) = on_private_postgres().await else { return };
    let stage = Stage::on(fresh, |_| {}).await;
    let path = KAFKA.path("?async=true");
    for i in 0..10 {
        stage.create(KAFKA, "alice", &format!("before{i}")).await;
    }
    first.begin(&server).await;
    let during = async {
        let names = (0..10).map(|i| json!({ "name": format!("during{i}") }));
        let calls = names.map(|body| {
            let (stage, path) = (&stage, &path);
            async move { call_until_done(stage, "alice", "POST", path, &body).await }
        });
        futures::future::join_all(calls).await
    };
    let back = async {
        // The outage lasts until it was observed.
        let refused = async || stage.get("alice", &KAFKA.path("")).await.status >= 500;
        eventually("the outage is observed", refused).await;
        first.end(&server).await;
    };
    let (responses, ()) = tokio::join!(during, back);
    for (status, body) in responses {
        // A response may have been lost: then the name is taken, by ourselves.
        assert!(status == 202 || (status == 409 && body["id"] == "36"), "{status} {body}");
    }
    let until_all = async |status: Option<Phase>| {
        eventually("all have the phase", async || {
            stage.agent(KAFKA).round().await;
            let live = ledger::live(&*stage.store, "kafka").await;
            live.iter().all(|instance| Some(instance.phase) == status)
        })
        .await;
    };
    until_all(Some(Phase::Ready)).await;
    let live = ledger::live(&*stage.store, "kafka").await;
    assert_eq!(live.len(), 20);
    ledger::check(&*stage.store, &["kafka"]).await;

    for instance in &live[..10] {
        delete(&stage, &instance.id).await;
    }
    second.begin(&server).await;
    let during = async {
        let calls = live[10..].iter().map(|instance| {
            let (stage, path) = (&stage, KAFKA.path(&format!("/{}?async=true", instance.id)));
            async move { call_until_done(stage, "alice", "DELETE", &path, &Value::Null).await }
        });
        futures::future::join_all(calls).await
    };
    let back = async {
        let refused = async || stage.get("alice", &KAFKA.path("")).await.status >= 500;
        eventually("the outage is observed", refused).await;
        second.end(&server).await;
    };
    let (responses, ()) = tokio::join!(during, back);
    assert!(responses.iter().all(|(status, _)| *status == 202), "{responses:?}");
    until_all(None).await;
    ledger::check(&*stage.store, &["kafka"]).await;
    let id = stage.create_ready(KAFKA, "alice", "after").await;
    is_served(&stage, &id, "ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_is_killed_while_instances_are_created_and_deleted() {
    store_outage(Outage::Killed, Outage::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_is_paused_while_instances_are_created_and_deleted() {
    store_outage(Outage::Paused, Outage::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_prometheus_only_metrics_fail() {
    let Some(server) = testkit::prometheus() else { return };
    let proxy = Proxy::to(server.server.get("").trim_start_matches("http://")).await;
    let stage = Stage::configured(|config| {
        config.prometheus.url = format!("http://{}", proxy.address());
        config.prometheus.timeout_s = 1;
    })
    .await;
    let id = stage.create_ready(KAFKA, "alice", "demo").await;
    let metrics = async |what: &str| {
        let path = KAFKA.path(&format!("/{id}/metrics/{what}"));
        stage.get("alice", &path).await
    };
    const ALL: [&str; 3] = ["query", "query_range?duration=5&interval=30", "federate"];
    for fault in [Proxy::cut, Proxy::silence] {
        for what in ALL {
            assert_eq!(metrics(what).await.status, 200, "{what}");
        }
        fault(&proxy);
        for what in ALL {
            let failed = metrics(what).await;
            assert!(failed.status >= 500 && failed.code() > 0, "{what}: {}", failed.text);
            assert_eq!(failed.body["kind"], "Error", "{what}: {}", failed.text);
        }
        is_served(&stage, &id, "ready").await;
        let other = stage.create_ready(KAFKA, "alice", "other").await;
        delete(&stage, &other).await;
        stage.agent(KAFKA).make_gone(&other).await;
        proxy.mend();
        eventually("there are metrics again", async || metrics("query").await.status == 200).await;
    }
}
