//! Recorded requests of `POST /bulk`: what the existing service accepts is accepted, and what it
//! rejects for its contents is rejected in the same words.

use std::collections::BTreeMap;

use advisor::model::bulk::BulkRequest;

use crate::support::recorded::Exchange;

const NAMES: [&str; 26] = [
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
