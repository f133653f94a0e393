//! Schedules: made over REST, carried out by the drivers of one or two servers.

use std::sync::Arc;
use std::time::Duration;

use kernel::driver::{Config, Driver};
use kernel::log::{Event, EventFilter};
use kernel::schedule::ScheduleWorker;
use kernel::{Ambient, Key};
use serde_json::{Value, json};
use testkit::stores::Fresh;
use testkit::{on_every_store, widgets};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::server::{TestServer, eventually};

on_every_store!(
    each_planned_time_is_carried_out_once_on_any_number_of_replicas,
    a_command_that_fails_is_noted_and_the_next_time_counts,
    what_could_only_fail_later_is_refused_by_field,
    a_schedule_is_its_organisations_and_is_deleted,
);

fn server(fresh: &Fresh) -> TestServer {
    TestServer::on_with(fresh, widgets::api::routes())
}

/// A driver that carries out schedules, until it is dropped.
fn drive(server: &TestServer, running: &mut JoinSet<()>) {
    let driver = Driver {
        name: server.app.ambient.id(),
        store: server.store.clone(),
        ambient: server.app.ambient.clone(),
        workers: vec![Arc::new(ScheduleWorker::new(&server.app))],
        config: Config::default(),
        observe: Arc::new(|_, _, _, _| {}),
    };
    running.spawn(driver.run(CancellationToken::new()));
}

fn every_minute(name: &str, command: Value) -> String {
    let cron = "* * * * *";
    json!({ "name": name, "cron": cron, "catch_up": "once", "command": command }).to_string()
}

async fn schedule(server: &TestServer, body: &str) -> Key {
    let made = server.post("alice", "/api/v1/schedules", body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    Key::parse(made.body["key"].as_str().unwrap()).unwrap()
}

async fn events_of(server: &TestServer, key: &Key, what: &str) -> Vec<Event> {
    let filter = EventFilter { subject: Some(key.clone()), ..EventFilter::default() };
    let events = server.store.events(0, &filter, 100).await.unwrap();
    events.into_iter().filter(|event| event.kind.ends_with(what)).collect()
}

async fn each_planned_time_is_carried_out_once_on_any_number_of_replicas(fresh: &Fresh) {
    let here = server(fresh);
    let other = fresh.replica().await.unwrap_or_else(|| fresh.store.clone());
    let there = TestServer::around(
        other,
        widgets::api::routes(),
        kernel::http::Config::default(),
        Ambient::system(),
    );
    let made = here.post("alice", "/api/v1/widgets", r#"{"name":"w","size":1}"#).await;
    let widget = Key::parse(made.body["key"].as_str().unwrap()).unwrap();
    let resize =
        json!({ "type": "widget.update", "subject": widget.as_str(), "body": { "size": 5 } });
    let key = schedule(&here, &every_minute("resize", resize)).await;
    let mut running = JoinSet::new();
    drive(&here, &mut running);
    drive(&there, &mut running);
    let begun = here.now();
    for minutes in [1, 2, 3] {
        fresh.set_clock(begun.plus(Duration::from_secs(60 * minutes))).await;
        here.store.wakeups().notify_work();
        let ran = async || events_of(&here, &key, ".ran").await.len() as u64 == minutes;
        eventually("it has run", ran).await;
        // Whatever clocks do: a time that has come does not come again.
        fresh.set_clock(begun).await;
        here.store.wakeups().notify_work();
    }
    let resized = events_of(&here, &widget, ".updated").await;
    let ids: Vec<String> = resized.iter().filter_map(|event| event.cause.command.clone()).collect();
    assert_eq!(resized.len(), 3, "once for each planned time: {ids:?}");
    assert!(ids.iter().all(|id| id.starts_with(&format!("{key}/20"))), "{ids:?}");
    let object = here.store.object(&widget).await.unwrap().unwrap();
    assert_eq!(object.generation, 2, "the same size again is nothing new");
    let audit = here.audit().await;
    let by: Vec<_> = audit.iter().filter(|entry| entry.entry.action == "widget.update").collect();
    assert!(by.iter().all(|it| (&*it.entry.actor, &*it.entry.origin) == ("alice", key.as_str())));
}

async fn a_command_that_fails_is_noted_and_the_next_time_counts(fresh: &Fresh) {
    let server = server(fresh);
    let gone = json!({ "type": "widget.delete", "subject": "widget/nobody" });
    let key = schedule(&server, &every_minute("fails", gone)).await;
    let mut running = JoinSet::new();
    drive(&server, &mut running);
    fresh.set_clock(server.now().plus(Duration::from_secs(61))).await;
    server.store.wakeups().notify_work();
    let failed = async || !events_of(&server, &key, ".failed").await.is_empty();
    eventually("it has failed", failed).await;
    let shown = server.get("alice", &format!("/api/v1/objects/{key}")).await.body;
    let status = &shown["status"];
    assert!(status["last"]["result"].as_str().unwrap().contains("widget/nobody"), "{status}");
    assert!(status["next"].as_str() > status["last"]["planned"].as_str(), "{status}");
}

async fn what_could_only_fail_later_is_refused_by_field(fresh: &Fresh) {
    let server = server(fresh);
    let new = |field: &str, value: Value| {
        let command = json!({ "type": "widget.create", "body": { "name": "w" } });
        let mut body = json!({ "name": "a", "cron": "@daily", "zone": "UTC", "command": command });
        match field.strip_prefix("command.") {
            Some(field) => body["command"][field] = value,
            None => body[field] = value,
        }
        body.to_string()
    };
    let cases = [
        ("alice", "cron", json!("61 * * * *"), 400, "cron: minute \"61\""),
        ("alice", "zone", json!("Mars/Olympus"), 400, "zone: `Mars/Olympus`"),
        ("alice", "command.type", json!("widget.paint"), 400, "command.type: `widget"),
        ("alice", "command.version", json!(9), 400, "command.version: "),
        ("alice", "command.id", json!("x"), 400, "command.id: must be left out"),
        ("admin", "command.type", json!("work.retry"), 403, "without admin roles"),
    ];
    for (who, field, value, status, message) in cases {
        let refused = server.post(who, "/api/v1/schedules", &new(field, value)).await;
        assert_eq!(refused.status, status, "{}", refused.text);
        assert!(refused.error("message").contains(message), "{}", refused.text);
    }
}

async fn a_schedule_is_its_organisations_and_is_deleted(fresh: &Fresh) {
    let server = server(fresh);
    let body = every_minute("mine", json!({ "type": "widget.create", "body": { "name": "w" } }));
    let key = schedule(&server, &body).await;
    let taken = server.post("bob", "/api/v1/schedules", &body).await;
    assert_eq!(taken.status, 409, "a name is unique in its organisation: {}", taken.text);
    let delete = async |who: &str| {
        let path = format!("/api/v1/schedules/{}", key.id());
        let request = server.request("DELETE", who, &path).body(axum::body::Body::empty());
        server.send(request.unwrap()).await
    };
    assert_eq!(delete("carol").await.status, 404);
    let gone = delete("bob").await;
    assert_eq!(gone.status, 200, "{}", gone.text);
    let mut running = JoinSet::new();
    drive(&server, &mut running);
    fresh.set_clock(server.now().plus(Duration::from_secs(61))).await;
    server.store.wakeups().notify_work();
    eventually("nothing is due", async || server.store.work_counts().await.unwrap().is_empty())
        .await;
    assert!(events_of(&server, &key, ".ran").await.is_empty(), "it does not run any more");
    schedule(&server, &body).await;
}
