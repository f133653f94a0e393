//! A system is away in every phase of an instance's life, and comes back.

use fleet::model::instance::Phase;
use kernel::store::postgres::Postgres;
use serde_json::{Value, json};
use testkit::chaos::Proxy;
use testkit::stores::{Fresh, Place};

use crate::ledger;
use crate::outside::{Outside, until_it_fails};
use crate::stage::{KAFKA, Stage, eventually};

async fn delete(stage: &Stage, id: &str) {
    let path = KAFKA.path(&format!("/{id}?async=true"));
    let gone = stage.call("alice", "DELETE", &path, &Value::Null).await;
    assert_eq!(gone.status, 202, "{}", gone.text);
}

/// It can be read and listed, whoever is away.
async fn is_served(stage: &Stage, id: &str, status: &str) {
    let one = stage.get("alice", &KAFKA.path(&format!("/{id}"))).await;
    assert_eq!((one.status, &one.body["status"]), (200, &json!(status)), "{}", one.text);
    assert_eq!(stage.get("alice", &KAFKA.path("")).await.status, 200);
}

/// The secret that an instance's data plane is told for its client.
async fn secret(stage: &Stage, id: &str) -> (String, String) {
    let list = stage.agent(KAFKA).list().await;
    let told = list.items().iter().find(|item| item["id"] == id).expect("it is told of").clone();
    let account = &told["spec"]["serviceAccounts"][0];
    let text = |name: &str| account[name].as_str().unwrap().to_owned();
    (text("principal"), text("password"))
}

#[tokio::test(flavor = "multi_thread")]
async fn keycloak_is_away_in_every_phase() {
    let Some(outside) = Outside::open().await else { return };
    let stage = Stage::configured(|config| outside.configure(config)).await;
    let steady = stage.create_ready(KAFKA, "alice", "steady").await;

    outside.sso.cut();
    let id = stage.create(KAFKA, "alice", "demo").await;
    until_it_fails(&*stage.store, &id).await;
    is_served(&stage, &id, "preparing").await;
    outside.sso.mend();
    stage.agent(KAFKA).make_ready(&id).await;
    outside.comes_right(&stage).await;

    // What is lost meanwhile comes back, with the secret that it had.
    let (client, secret) = secret(&stage, &id).await;
    outside.sso.cut();
    outside.delete_client_by_hand(&client).await;
    until_it_fails(&*stage.store, &id).await;
    is_served(&stage, &id, "ready").await;
    outside.sso.mend();
    outside.comes_right(&stage).await;
    assert_eq!(outside.realm.sign_in_program(&client, &secret).await.0, 200);

    outside.sso.cut();
    delete(&stage, &id).await;
    stage.agent(KAFKA).until(&id, "deleting").await;
    until_it_fails(&*stage.store, &id).await;
    is_served(&stage, &id, "deleting").await;
    outside.sso.mend();
    stage.agent(KAFKA).make_gone(&id).await;
    assert_eq!(stage.status(KAFKA, &steady).await, "ready");
    outside.comes_right(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_names_are_away_in_every_phase() {
    let Some(outside) = Outside::open().await else { return };
    let stage = Stage::configured(|config| outside.configure(config)).await;
    let steady = stage.create_ready(KAFKA, "alice", "steady").await;

    outside.dns.cut();
    let id = stage.create(KAFKA, "alice", "demo").await;
    stage.agent(KAFKA).until_listed(&id).await;
    stage.agent(KAFKA).round().await;
    until_it_fails(&*stage.store, &id).await;
    is_served(&stage, &id, "provisioning").await;
    outside.dns.mend();
    stage.agent(KAFKA).make_ready(&id).await;
    outside.comes_right(&stage).await;

    outside.dns.cut();
    outside.delete_records_by_hand().await;
    until_it_fails(&*stage.store, &id).await;
    is_served(&stage, &id, "ready").await;
    outside.dns.mend();
    outside.comes_right(&stage).await;

    outside.dns.cut();
    delete(&stage, &id).await;
    stage.agent(KAFKA).until(&id, "deleting").await;
    until_it_fails(&*stage.store, &id).await;
    is_served(&stage, &id, "deleting").await;
    outside.dns.mend();
    stage.agent(KAFKA).make_gone(&id).await;
    assert_eq!(stage.status(KAFKA, &steady).await, "ready");
    outside.comes_right(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_by_hand_comes_back_as_it_was() {
    let Some(outside) = Outside::open().await else { return };
    let stage = Stage::configured(|config| outside.configure(config)).await;
    let id = stage.create_ready(KAFKA, "alice", "demo").await;
    outside.comes_right(&stage).await;
    let (client, secret) = secret(&stage, &id).await;
    outside.delete_client_by_hand(&client).await;
    eventually("the same secret is good again", async || {
        outside.realm.sign_in_program(&client, &secret).await.0 == 200
    })
    .await;
    let before = outside.records().await;
    assert_eq!(before.len(), 3);
    outside.delete_records_by_hand().await;
    eventually("the names are there again", async || outside.records().await == before).await;
    assert_eq!(stage.status(KAFKA, &id).await, "ready");
    outside.comes_right(&stage).await;
}

/// The store on a server of this test's own.
async fn on_private_postgres() -> Option<(testkit::postgres::Postgres, Fresh)> {
    let server = testkit::postgres()?.private().await;
    let database = server.database().await;
    let store = Postgres::open(database.url(), kernel::store::uncounted()).await.unwrap();
    Some((server, Fresh { store: std::sync::Arc::new(store), place: Place::Database(database) }))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Away {
    Killed,
    Paused,
}

impl Away {
    async fn begin(self, server: &testkit::postgres::Postgres) {
        match self {
            Away::Killed => server.server.kill().await,
            Away::Paused => server.server.pause().await,
        }
    }

    async fn end(self, server: &testkit::postgres::Postgres) {
        match self {
            Away::Killed => server.server.start().await,
            Away::Paused => server.server.resume().await,
        }
    }
}

/// Asks until the store answers again. What it was told meanwhile is an error of the API's shape.
async fn insist(stage: &Stage, who: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let last = parking_lot::Mutex::new((0, Value::Null));
    eventually("the store is back", async || {
        let answer = stage.call(who, method, path, body).await;
        if answer.status >= 500 {
            assert!(answer.code() > 0 && answer.body["kind"] == "Error", "{}", answer.text);
        }
        let done = answer.status < 500;
        *last.lock() = (answer.status, answer.body);
        done
    })
    .await;
    last.into_inner()
}

/// Some were asked for before it went, some while it was away, some after.
async fn the_store_is_away(first: Away, second: Away) {
    let Some((server, fresh)) = on_private_postgres().await else { return };
    let stage = Stage::on(fresh, |_| {}).await;
    let path = KAFKA.path("?async=true");
    for i in 0..10 {
        stage.create(KAFKA, "alice", &format!("before{i}")).await;
    }
    first.begin(&server).await;
    let during = async {
        let names = (0..10).map(|i| json!({ "name": format!("during{i}") }));
        let asked = names.map(|body| {
            let (stage, path) = (&stage, &path);
            async move { insist(stage, "alice", "POST", path, &body).await }
        });
        futures::future::join_all(asked).await
    };
    let back = async {
        // It is away until someone has noticed.
        let refused = async || stage.get("alice", &KAFKA.path("")).await.status >= 500;
        eventually("it is missed", refused).await;
        first.end(&server).await;
    };
    let (answers, ()) = tokio::join!(during, back);
    for (status, body) in answers {
        // An answer may have been lost on the way: then the name is taken, by ourselves.
        assert!(status == 202 || (status == 409 && body["id"] == "36"), "{status} {body}");
    }
    let settled = async |status: Option<Phase>| {
        eventually("all have come to rest", async || {
            stage.agent(KAFKA).round().await;
            let live = ledger::live(&*stage.store, "kafka").await;
            live.iter().all(|instance| Some(instance.phase) == status)
        })
        .await;
    };
    settled(Some(Phase::Ready)).await;
    let live = ledger::live(&*stage.store, "kafka").await;
    assert_eq!(live.len(), 20);
    ledger::is_right(&*stage.store, &["kafka"]).await;

    for instance in &live[..10] {
        delete(&stage, &instance.id).await;
    }
    second.begin(&server).await;
    let during = async {
        let asked = live[10..].iter().map(|instance| {
            let (stage, path) = (&stage, KAFKA.path(&format!("/{}?async=true", instance.id)));
            async move { insist(stage, "alice", "DELETE", &path, &Value::Null).await }
        });
        futures::future::join_all(asked).await
    };
    let back = async {
        let refused = async || stage.get("alice", &KAFKA.path("")).await.status >= 500;
        eventually("it is missed", refused).await;
        second.end(&server).await;
    };
    let (answers, ()) = tokio::join!(during, back);
    assert!(answers.iter().all(|(status, _)| *status == 202), "{answers:?}");
    settled(None).await;
    ledger::is_right(&*stage.store, &["kafka"]).await;
    let id = stage.create_ready(KAFKA, "alice", "after").await;
    is_served(&stage, &id, "ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_is_killed_while_instances_come_and_go() {
    the_store_is_away(Away::Killed, Away::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_stands_still_while_instances_come_and_go() {
    the_store_is_away(Away::Paused, Away::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_prometheus_there_are_no_metrics_and_everything_else() {
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
    for bad in [Proxy::cut, Proxy::silence] {
        for what in ALL {
            assert_eq!(metrics(what).await.status, 200, "{what}");
        }
        bad(&proxy);
        for what in ALL {
            let away = metrics(what).await;
            assert!(away.status >= 500 && away.code() > 0, "{what}: {}", away.text);
            assert_eq!(away.body["kind"], "Error", "{what}: {}", away.text);
        }
        is_served(&stage, &id, "ready").await;
        let other = stage.create_ready(KAFKA, "alice", "other").await;
        delete(&stage, &other).await;
        stage.agent(KAFKA).make_gone(&other).await;
        proxy.mend();
        eventually("there are metrics again", async || metrics("query").await.status == 200).await;
    }
}
