//! Bulk jobs over REST.

use advisor::config::Config;
use serde_json::json;
use testkit::stores;

use super::differences::{
    ANY_ORIGIN, CREDENTIALS, HISTORY, MAX_AGE, MERGED, NAMED, PROCESSED, REQUEST, WEBHOOK,
};
use super::golden::Replay;
use crate::support::cluster::Cluster;
use crate::support::recorded::Exchange;
use crate::support::server::{Server, config, until};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_about_jobs_are_answered_as_they_were() {
    let source = Cluster::recorded().start().await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &config(&[("prometheus-1", &source.url)])).await;
    let id = server.create(serde_json::json!({})).await.unwrap();
    server.completed(&id).await;
    let mut replay = Replay::new(&server);
    let recorded = Exchange::read("bulk_get_include_summary").json();
    replay.replace(recorded["summary"]["job_id"].as_str().unwrap(), &id);
    replay
        .all(&[
            "bulk_get_include_default",
            "bulk_get_include_summary",
            "bulk_get_include_exp_fields",
            "bulk_get_include_metadata",
            "bulk_get_include_summary_jobid_and_exp",
            "bulk_get_include_unknown_token",
            "bulk_get_include_webhook",
            "bulk_get_experiment_name",
            "bulk_get_experiment_name_nomatch",
            "bulk_get_badparam",
            "bulk_get_unknown_job",
            "bulk_get_cors",
            "bulk_options_cors",
            "bulk_put",
            "bulk_delete",
        ])
        .await;
    replay.finish(&[
        ANY_ORIGIN,
        CREDENTIALS,
        HISTORY,
        MAX_AGE,
        MERGED,
        NAMED,
        REQUEST,
        PROCESSED,
        HISTORY,
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_summary_of_500_containers_is_as_recorded() {
    let small = Small::of(500);
    let source = StandIn::new(move |seen| small.reply(seen)).await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &config(&[("prometheus-2", &source.url)])).await;
    let id = server.create(json!({ "datasource": "prometheus-2" })).await.unwrap();
    server.completed(&id).await;
    let mut replay = Replay::new(&server);
    let recorded = Exchange::read("bulk500_summary").json();
    replay.replace(recorded["summary"]["job_id"].as_str().unwrap(), &id);
    replay.all(&["bulk500_summary", "bulk500_summary_again"]).await;
    replay.finish(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_a_webhook_is_shown_as_recorded_and_with_its_webhook() {
    let source = Cluster::recorded().start().await;
    let fresh = stores::sqlite().await.unwrap();
    let sources = config(&[("prometheus-1", &source.url)]);
    let server = Server::start(&fresh, &Config { private_addresses: true, ..sources }).await;
    let recorded = Exchange::read("bulk_get_webhook_job").json();
    let mut replay = Replay::new(&server);
    // Of the second: when it was recorded, the experiment existed.
    let mut id = String::new();
    for _ in 0..2 {
        id = server.create(recorded["summary"]["input"].clone()).await.unwrap();
        server.completed(&id).await;
    }
    replay.replace(recorded["summary"]["job_id"].as_str().unwrap(), &id);
    replay.one("bulk_get_webhook_job").await;
    replay.finish(&[WEBHOOK]);
}

/// What is measured of bulk jobs under this name, but for its value.
fn measured(name: &str, method: &str, status: &str) -> String {
    format!(r#"{name}{{api="bulk",method="{method}",status="{status}",application="Kruize"}}"#)
}

async fn scraped(server: &Server, metric: &str) -> Option<f64> {
    let text = server.get("/metrics").await.text;
    let value = text.lines().find_map(|line| line.strip_prefix(metric));
    value.map(|value| value.trim().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_measured_under_the_names_of_the_existing_service_and_running_ones_everywhere() {
    let small = Small::of(2);
    let source =
        StandIn::new(move |seen| if seen.is_range() { Reply::Hang } else { small.reply(seen) });
    let source = source.await;
    let settings = config(&[("p", &source.url)]);
    let fresh = stores::memory().await.unwrap();
    let (one, other) =
        (Server::start(&fresh, &settings).await, Server::start(&fresh, &settings).await);
    let running = measured("kruizeAPI_active_jobs_count", "runBulkJob", "running");
    assert_eq!(scraped(&one, &running).await, Some(0.0));
    let created = one.call("POST", "/bulk", r#"{ "datasource": "p" }"#).await;
    let id = created.body["job_id"].as_str().unwrap();
    for server in [&one, &other] {
        let counts = async || scraped(server, &running).await == Some(1.0);
        until("the job is counted", counts).await;
    }
    // It runs since before this replica does.
    let late = Server::start(&fresh, &settings).await;
    assert_eq!(scraped(&late, &running).await, Some(1.0));
    assert_eq!(one.get(&format!("/bulk?job_id={id}")).await.status, 200);
    one.cancel(id).await;
    one.ended(id).await;
    for server in [&one, &other, &late] {
        let counts = async || scraped(server, &running).await == Some(0.0);
        until("the job is not counted any more", counts).await;
    }
    for (method, status) in
        [("createBulkJob", "success"), ("jobStatus", "success"), ("runBulkJob", "failure")]
    {
        for (name, least) in [("count", 1.0), ("sum", f64::MIN_POSITIVE), ("max", 0.0)] {
            let metric = measured(&format!("kruizeAPI_{name}"), method, status);
            // A job is counted where it ended.
            let mut all = Vec::new();
            for server in [&one, &other, &late] {
                all.extend(scraped(server, &metric).await);
            }
            let [value] = all[..] else { panic!("{metric}: {all:?}") };
            assert!(value >= least, "{metric}: {value}");
        }
    }
}
