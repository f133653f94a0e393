//! Recorded requests of `POST /bulk`: what the existing service accepts is accepted, and what it
//! rejects for its contents is rejected in the same words.

use std::collections::BTreeMap;

use advisor::config::Config;
use advisor::model::bulk::BulkRequest;
use serde_json::{Value, json};
use testkit::stores;

use super::differences::{
    ACCEPTED, END_TIME, ENDED, METADATA, NO_JOB, NOTHING_TO_DO, RAW_REASON, REFUSED,
};
use super::golden::Replay;
use crate::support::cluster::Cluster;
use crate::support::recorded::Exchange;
use crate::support::server::{Server, config};
use crate::support::stand_in::{Reply, StandIn};

const NAMES: [&str; 27] = [
    "bulk_post_array",
    "bulk_post_bad_date",
    "bulk_post_bad_measurement_duration",
    "bulk_post_badjson",
    "bulk_post_datasource_down",
    "bulk_post_default_datasource_down",
    "bulk_post_empty_body",
    "bulk_post_empty_filter_objects",
    "bulk_post_empty_filter_objects_status",
    "bulk_post_filter_no_container",
    "bulk_post_filter_no_container_status",
    "bulk_post_filter_no_namespace",
    "bulk_post_filter_no_workload",
    "bulk_post_filter_no_workload_status",
    "bulk_post_kafka_unreachable",
    "bulk_post_label_filter_status",
    "bulk_post_only_end",
    "bulk_post_only_start",
    "bulk_post_time_range_no_millis",
    "bulk_post_time_range_no_millis_status",
    "bulk_post_time_range_offset",
    "bulk_post_time_range_old",
    "bulk_post_time_range_old_status",
    "bulk_post_unknown_datasource",
    "bulk_post_unknown_metadata_profile_status",
    "bulk_text_plain",
    "bulk_default_datasource_down_status",
];

fn recorded() -> BTreeMap<&'static str, Exchange> {
    NAMES.into_iter().map(|name| (name, Exchange::read(name))).collect()
}

#[test]
fn requests_are_accepted_as_recorded() {
    let mut seen = 0;
    for (name, recorded) in recorded() {
        if name.ends_with("_status") {
            continue;
        }
        let read = BulkRequest::parse(recorded.body.as_bytes());
        let window =
            |request: &BulkRequest| request.time_range.clone().unwrap_or_default().window();
        match name {
            // Not JSON, or not an object: rejected in words of our own.
            "bulk_post_array" | "bulk_post_badjson" | "bulk_post_empty_body" => {
                assert!(read.is_err(), "{name}");
                assert_eq!(recorded.status, 400, "{name}");
            }
            // The existing service accepts it, and then fails the job.
            "bulk_post_bad_measurement_duration" => {
                assert_eq!(read.unwrap_err().field, "measurement_duration")
            }
            // Rejected for the state of another system.
            "bulk_post_unknown_datasource"
            | "bulk_post_datasource_down"
            | "bulk_post_kafka_unreachable" => {
                assert!(window(&read.unwrap()).is_ok(), "{name}");
            }
            _ if recorded.status == 200 => assert!(window(&read.unwrap()).is_ok(), "{name}"),
            _ => {
                let error = window(&read.unwrap()).unwrap_err();
                let answer = recorded.json();
                let message = answer["message"].as_str().unwrap();
                assert_eq!(
                    message.split(" for the jobId: ").next().unwrap(),
                    error.to_string(),
                    "{name}"
                );
            }
        }
        seen += 1;
    }
    assert!(seen >= 18, "{seen}");
}

#[test]
fn requests_are_echoed_as_recorded() {
    let all = recorded();
    let mut seen = 0;
    for (name, recorded) in all.iter().filter(|(name, _)| name.ends_with("_status")) {
        let echo = &recorded.json()["summary"]["input"];
        let read: BulkRequest = serde_json::from_value(echo.clone()).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), echo.to_string(), "{name}");
        if let Some(posted) = all.get(name.trim_end_matches("_status")) {
            assert_eq!(BulkRequest::parse(posted.body.as_bytes()).unwrap(), read, "{name}");
        }
        seen += 1;
    }
    assert!(seen >= 6, "{seen}");
}

/// What a refused request ends in there, although there is no job.
const OF_JOB: &str = " for the jobId: ";
/// Nobody listens there.
const DOWN: &str = "http://127.0.0.1:1";

/// The recorded cluster: nothing is known of it before 2021, and no pod has the label `phase`.
async fn cluster() -> StandIn {
    const KNOWN_SINCE_S: i64 = 1_609_459_200;
    let cluster = Cluster::recorded();
    StandIn::new(move |seen| {
        let end = seen.form.get("end").and_then(|end| end.parse::<i64>().ok());
        let nothing = |kind: &str| {
            let data = json!({ "resultType": kind, "result": [] });
            Reply::Json(json!({ "status": "success", "data": data }))
        };
        if end.is_some_and(|end| end < KNOWN_SINCE_S) {
            nothing("matrix")
        } else if seen.query().contains("\"Active\"") {
            nothing("vector")
        } else {
            cluster.reply(seen)
        }
    })
    .await
}

/// Creates the job of a recorded status, and compares how it went.
async fn replay_status(server: &Server, replay: &mut Replay<'_>, name: &str, request: &Value) {
    let recorded = Exchange::read(name).json();
    let summary = &recorded["summary"];
    let created = server.call("POST", "/bulk", &request.to_string()).await;
    let id = created.body["job_id"].as_str().unwrap_or_else(|| panic!("{name}: {created:?}"));
    server.ended(id).await;
    replay.replace(summary["job_id"].as_str().unwrap(), id);
    replay.one(name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_as_recorded_and_their_jobs_end() {
    let source = cluster().await;
    let fresh = stores::sqlite().await.unwrap();
    let sources = config(&[("prometheus-1", &source.url), ("prometheus-3", DOWN)]);
    let server = Server::start(&fresh, &Config { private_addresses: true, ..sources }).await;
    let mut replay = Replay::new(&server);
    let (of_jobs, requests): (Vec<&str>, Vec<&str>) =
        NAMES.into_iter().partition(|name| name.ends_with("_status"));
    let mut same_words = 0;
    for name in requests {
        let answer = replay.one(name).await;
        let recorded = Exchange::read(name).json();
        let message = recorded["message"].as_str().and_then(|text| text.split_once(OF_JOB));
        match (name, message) {
            ("bulk_post_kafka_unreachable", _) => assert_eq!(answer.status, 200, "{answer:?}"),
            ("bulk_post_bad_measurement_duration", _) => {
                assert_eq!(answer.status, 400, "{answer:?}");
            }
            ("bulk_post_datasource_down" | "bulk_post_unknown_datasource", _) | (_, None) => {}
            (_, Some((message, _))) => {
                assert_eq!(answer.body["message"], message, "{name}");
                same_words += 1;
            }
        }
    }
    assert_eq!(same_words, 3);
    for name in of_jobs.into_iter().filter(|name| *name != "bulk_default_datasource_down_status") {
        let request = &Exchange::read(name).json()["summary"]["input"];
        replay_status(&server, &mut replay, name, request).await;
    }
    replay.finish(&[ACCEPTED, END_TIME, ENDED, METADATA, NO_JOB, NOTHING_TO_DO, REFUSED]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_data_source_is_down_fails_as_recorded() {
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &config(&[("prometheus-1", DOWN)])).await;
    let mut replay = Replay::new(&server);
    // One that is named is asked before there is a job.
    let (name, request) = ("bulk_default_datasource_down_status", json!({}));
    replay_status(&server, &mut replay, name, &request).await;
    replay.finish(&[RAW_REASON]);
}
