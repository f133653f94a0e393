//! Why a job fails is published before its summary, once, whenever the server is killed.

use advisor::model::job::JobPhase;
use serde_json::json;
use testkit::stores::Fresh;

use super::{Published, published};
use crate::support::server::{Server, config, until};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

testkit::on_every_store!(
    a_data_source_that_is_down_is_an_error_of_the_job,
    too_many_experiments_are_an_error_of_the_job,
    a_job_that_takes_too_long_is_an_error_of_the_job,
    a_job_that_finds_nothing_or_is_cancelled_is_not_an_error,
    a_server_that_is_killed_at_each_step_publishes_the_error_once,
);

/// The only messages are the error and then the summary; returns the error's notice.
fn notice<'a>(messages: &'a [Published], id: &str, key: &str) -> &'a serde_json::Value {
    let [error, summary] = messages else { panic!("{messages:?}") };
    assert_eq!(
        (error.topic.as_str(), error.key.as_str(), error.after_all),
        ("error-topic", id, false)
    );
    assert_eq!(error.body["experiments"], json!(null));
    assert_eq!(summary.topic, "summary-topic");
    assert!(summary.after_all);
    for message in [error, summary] {
        let shown = &message.body["summary"];
        assert_eq!((&shown["status"], &shown["job_id"]), (&json!("FAILED"), &json!(id)));
        assert_eq!(shown["notifications"].as_object().unwrap().len(), 1);
    }
    let (first, last) = (&error.body["summary"], &summary.body["summary"]);
    assert_eq!(first["notifications"], last["notifications"]);
    &first["notifications"][key]
}

async fn a_data_source_that_is_down_is_an_error_of_the_job(fresh: &Fresh) {
    let source = StandIn::new(|_| Reply::status(500)).await;
    let server = Server::start(fresh, &config(&[("prometheus-1", &source.url)])).await;
    let id = server.create(json!({})).await.unwrap();
    assert_eq!(server.ended(&id).await.phase, JobPhase::Failed);
    let messages = published(&server).await;
    let notice = notice(&messages, &id, "503");
    assert_eq!((&notice["type"], &notice["code"]), (&json!("ERROR"), &json!(503)));
    let message = notice["message"].as_str().unwrap();
    assert!(message.starts_with("HttpHostConnectException: Unable to connect"), "{message}");
}

async fn too_many_experiments_are_an_error_of_the_job(fresh: &Fresh) {
    let small = Small::of(5);
    let source = StandIn::new(move |seen| small.reply(seen)).await;
    let mut settings = config(&[("p", &source.url)]);
    settings.containers_max = 4;
    let server = Server::start(fresh, &settings).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.ended(&id).await;
    let messages = published(&server).await;
    let message = notice(&messages, &id, "400")["message"].as_str().unwrap();
    assert!(
        message.starts_with("The number of experiments exceeds the defined limit."),
        "{message}"
    );
}

async fn a_job_that_takes_too_long_is_an_error_of_the_job(fresh: &Fresh) {
    let small = Small::of(3);
    let source =
        StandIn::new(move |seen| if seen.is_range() { Reply::Hang } else { small.reply(seen) })
            .await;
    let mut settings = config(&[("p", &source.url)]);
    settings.job_timeout_s = 1;
    let server = Server::start(fresh, &settings).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.ended(&id).await;
    let messages = published(&server).await;
    let message = notice(&messages, &id, "504")["message"].as_str().unwrap();
    assert!(message.contains("advisor.job_timeout_s"), "{message}");
}

async fn a_job_that_finds_nothing_or_is_cancelled_is_not_an_error(fresh: &Fresh) {
    let small = Small::of(0);
    let source = StandIn::new(move |seen| small.reply(seen)).await;
    let hanging = StandIn::new(|seen| match seen.query() {
        "up" => Small::of(0).reply(seen),
        _ => Reply::Hang,
    })
    .await;
    let server = Server::start(fresh, &config(&[("p", &source.url), ("q", &hanging.url)])).await;
    let empty = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&empty).await;
    let cancelled = server.create(json!({ "datasource": "q" })).await.unwrap();
    server.cancel(&cancelled).await;
    assert_eq!(server.ended(&cancelled).await.phase, JobPhase::Cancelled);
    let messages = published(&server).await;
    let shown: Vec<_> =
        messages.iter().map(|one| (one.topic.as_str(), &one.body["summary"])).collect();
    let [(first, of_empty), (second, of_cancelled)] = shown[..] else { panic!("{shown:?}") };
    assert_eq!((first, second), ("summary-topic", "summary-topic"));
    assert_eq!(of_empty["status"], "COMPLETED");
    assert_eq!(of_empty["notifications"]["200"]["message"], "Nothing to do.");
    assert_eq!(of_cancelled["status"], "FAILED");
    assert_eq!(of_cancelled["notifications"]["499"]["message"], "The job was cancelled.");
}

async fn a_server_that_is_killed_at_each_step_publishes_the_error_once(fresh: &Fresh) {
    let source = StandIn::new(|_| Reply::status(500)).await;
    let settings = config(&[("prometheus-1", &source.url)]);
    let mut server = Server::start(fresh, &settings).await;
    let id = server.create(json!({})).await.unwrap();
    let mut before = 0;
    while !server.job(&id).await.phase.is_final() {
        until("a step", async || server.app.store.newest_event().await.unwrap() > before).await;
        before = server.app.store.newest_event().await.unwrap();
        drop(server);
        server = Server::start(fresh, &settings).await;
    }
    let messages = published(&server).await;
    notice(&messages, &id, "503");
    let steps: Vec<String> = server.events("bulk-job").await.into_iter().map(|one| one.0).collect();
    assert_eq!(steps, ["created", "discovering", "failing", "failed"]);
}
