//! What a survey makes of a data source that refuses, lies, hangs, or is not there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use advisor::model::datasource::Datasource;
use advisor::work::survey::{Survey, SurveyRequest};
use jiff::Timestamp;
use serde_json::json;

use super::{by_name, checked, client, names, reason, request};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, Seen, StandIn};

fn now() -> Timestamp {
    "2026-11-15T20:07:12.230Z".parse().unwrap()
}

async fn surveyed(server: &StandIn) -> kernel::Result<Survey> {
    checked(&client(&Datasource::at(&server.url)), &request(json!({})), now()).await
}

/// As [`surveyed`], where the data source hangs.
async fn impatient(server: &StandIn) -> kernel::Result<Survey> {
    let source = Datasource { query_timeout_s: 2, ..Datasource::at(&server.url) };
    checked(&client(&source), &request(json!({})), now()).await
}

/// Handshake, discovery, the search for the rule, and a shard: what is measured, and whether there are
/// GPUs or language runtimes.
const QUERIES: u64 = 1 + 3 + 1 + 17 + 3;

fn all_well(found: &Survey, containers: usize) {
    assert_eq!(found.advice.len(), containers);
    for advice in &found.advice {
        let recommendation = advice.outcome.as_ref().unwrap();
        assert!(recommendation.latest.is_some(), "{advice:?}");
    }
}

#[tokio::test]
async fn a_survey_needs_25_queries_and_ends_at_the_whole_second() {
    let small = Small::of(100);
    let server = StandIn::new(move |seen| small.reply(seen)).await;
    let found = surveyed(&server).await.unwrap();
    all_well(&found, 100);
    assert_eq!((found.queries, found.with_recording_rules), (QUERIES, true));
    assert_eq!(found.notices, [""; 0]);
    let latest = found.advice[0].outcome.as_ref().unwrap().latest.as_ref().unwrap();
    let end: Timestamp = "2026-11-15T20:07:12Z".parse().unwrap();
    assert_eq!(latest.monitoring_end_ms, end.as_millisecond());
    for seen in server.seen().iter().filter(|seen| seen.is_range()) {
        let end_s = end.as_second();
        assert_eq!(seen.form["end"], end_s.to_string());
        assert_eq!(seen.form["start"], (end_s - 15 * 86_400).to_string());
        assert_eq!((seen.form["step"].as_str(), seen.form["timeout"].as_str()), ("900", "60s"));
    }
}

#[tokio::test]
async fn a_data_source_with_too_many_queries_gets_the_pause_that_it_asks_for() {
    let small = Small::of(3);
    let refused = AtomicUsize::new(0);
    let server = StandIn::new(move |seen| {
        if seen.is_range() && refused.fetch_add(1, Ordering::SeqCst) < 2 {
            let after = vec![("retry-after", "1".to_owned())];
            return Reply::Text(429, after, "slow down".into());
        }
        small.reply(seen)
    })
    .await;
    let begun = Instant::now();
    let found = surveyed(&server).await.unwrap();
    // At the earliest.
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    all_well(&found, 3);
    assert_eq!(found.queries, QUERIES + 2);
}

#[tokio::test]
async fn unavailable_for_a_moment_is_waited_for() {
    let small = Small::of(3);
    let refused = AtomicUsize::new(0);
    let server = StandIn::new(move |seen| {
        let count = refused.fetch_add(1, Ordering::SeqCst);
        if count.is_multiple_of(3) { Reply::status(503) } else { small.reply(seen) }
    })
    .await;
    let found = surveyed(&server).await.unwrap();
    all_well(&found, 3);
    assert!(found.queries > QUERIES);
}

#[tokio::test]
async fn a_pause_that_is_too_long_fails_the_survey_and_says_so() {
    let small = Small::of(3);
    let server = StandIn::new(move |seen| {
        if seen.is_range() {
            let after = vec![("retry-after", "3600".to_owned())];
            return Reply::Text(503, after, "maintenance".into());
        }
        small.reply(seen)
    })
    .await;
    let error = surveyed(&server).await.unwrap_err().to_string();
    let expected = format!(
        "Prometheus at {}: reading failed: it answered 503 Service Unavailable: maintenance",
        server.url
    );
    assert_eq!(error, expected);
}

#[tokio::test]
async fn a_shard_that_is_too_large_is_split_and_one_container_fails_alone() {
    let small = Small::of(9);
    let (all, server) = (small.clone(), small.clone());
    let server = StandIn::new(move |seen| {
        let asked = all.asked(seen.query());
        if seen.is_range() && (asked.len() > 4 || asked.iter().any(|name| *name == "c7")) {
            return Reply::error(422, "execution", "query would load too many samples");
        }
        server.reply(seen)
    })
    .await;
    let found = surveyed(&server).await.unwrap();
    assert_eq!(found.advice.len(), 9);
    for name in &small.containers {
        let failed = reason(&found, &small.experiment(name));
        if name == "c7" {
            let expected =
                "it answered 422 Unprocessable Entity: query would load too many samples";
            assert_eq!(failed, Some(expected));
        } else {
            assert_eq!(failed, None, "{name}");
        }
    }
}

#[tokio::test]
async fn an_answer_of_too_many_bytes_is_asked_for_in_parts() {
    let small = Small::of(8);
    let server = StandIn::new(move |seen| small.reply(seen)).await;
    let source = Datasource { answer_bytes_max: 2_200, ..Datasource::at(&server.url) };
    let found = checked(&client(&source), &request(json!({})), now()).await.unwrap();
    all_well(&found, 8);
    assert!(server.seen().iter().any(|seen| seen.query().contains("container=~\"c0|c1")));
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_asked_for_again() {
    let small = Small::of(4);
    let (cut, all) = (AtomicUsize::new(0), small.clone());
    let server = StandIn::new(move |seen| {
        let text = all.answer(seen).to_string();
        let always = seen.is_range() && all.asked(seen.query()).iter().any(|name| *name == "c2");
        let once = seen.is_range() && cut.fetch_add(1, Ordering::SeqCst) == 0;
        let end = if always || once { text.len() * 2 / 3 } else { text.len() };
        Reply::Text(200, Vec::new(), text[..end].to_owned())
    })
    .await;
    let found = surveyed(&server).await.unwrap();
    for name in &small.containers {
        let failed = reason(&found, &small.experiment(name));
        assert_eq!(failed.is_some(), name == "c2", "{name}: {failed:?}");
        assert!(
            failed.is_none_or(|why| why.starts_with("the answer is cut off after ")),
            "{failed:?}"
        );
    }
}

#[tokio::test]
async fn a_container_whose_queries_hang_fails_alone() {
    let small = Small::of(2);
    let all = small.clone();
    let server = StandIn::new(move |seen| {
        if seen.is_range() && all.asked(seen.query()).iter().any(|name| *name == "c1") {
            return Reply::Hang;
        }
        all.reply(seen)
    })
    .await;
    let found = impatient(&server).await.unwrap();
    assert_eq!(reason(&found, &small.experiment("c0")), None);
    let why = reason(&found, &small.experiment("c1")).unwrap();
    assert!(why.contains("timed out"), "{why}");
}

#[tokio::test]
async fn a_survey_ends_by_its_deadline_and_says_how_far_it_was() {
    let small = Small::of(2);
    let server =
        StandIn::new(move |seen| if seen.is_range() { Reply::Hang } else { small.reply(seen) })
            .await;
    // Discovery is done long before.
    let request = SurveyRequest { deadline: Some(Duration::from_secs(4)), ..request(json!({})) };
    let source = Datasource::at(&server.url);
    let error = checked(&client(&source), &request, now()).await.unwrap_err().to_string();
    let expected = format!(
        "Prometheus at {}: the survey did not end within 4.0 s: 0 of 2 containers were read",
        server.url
    );
    assert_eq!(error, expected);
}

#[tokio::test]
async fn a_data_source_that_is_down_is_named_with_the_cause() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/prometheus", listener.local_addr().unwrap());
    drop(listener);
    let down = client(&Datasource::at(&url));
    let error = checked(&down, &request(json!({})), now()).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("Prometheus at {url}: ")), "{error}");
    assert!(error.contains("Connection refused"), "{error}");

    let server = StandIn::new(|_| Reply::Hang).await;
    let error = impatient(&server).await.unwrap_err().to_string();
    assert!(error.contains(&server.url) && error.contains("timed out"), "{error}");
}

#[tokio::test]
async fn a_data_source_that_goes_down_during_the_survey_fails_it() {
    let small = Small::of(3);
    let ranges = AtomicUsize::new(0);
    let server = StandIn::new(move |seen| {
        if seen.is_range() && ranges.fetch_add(1, Ordering::SeqCst) > 5 {
            return Reply::status(502);
        }
        small.reply(seen)
    })
    .await;
    let error = surveyed(&server).await.unwrap_err().to_string();
    assert!(error.contains(&server.url) && error.contains("502"), "{error}");
}

#[tokio::test]
async fn what_does_not_speak_its_language_is_said_to() {
    for (reply, part) in [
        (Reply::Text(200, Vec::new(), "<html>".into()), "expected"),
        (Reply::status(404), "check the URL of the data source"),
        (Reply::status(302), "redirects are not followed"),
    ] {
        let reply = std::sync::Mutex::new(Some(reply));
        let server = StandIn::new(move |_| {
            reply.lock().unwrap().take().unwrap_or_else(|| Reply::status(500))
        })
        .await;
        let error = surveyed(&server).await.unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(&server.url), "{error}");
    }
}

#[tokio::test]
async fn missing_data_is_an_error_and_not_zero() {
    const WARNING: &str = "No StoreAPIs matched for this query";
    let warned = |of: fn(&Seen) -> bool, warning: &'static str| {
        let small = Small::of(2);
        StandIn::new(move |seen| {
            let mut answer = small.answer(seen);
            if of(seen) {
                answer["warnings"] = json!([warning]);
            }
            Reply::Json(answer)
        })
    };
    let server = warned(|seen| seen.query().contains("rss"), WARNING).await;
    let found = surveyed(&server).await.unwrap();
    for advice in &found.advice {
        let why = advice.outcome.as_ref().unwrap_err();
        assert_eq!(*why, format!("data is missing: {WARNING}"));
    }
    let server = warned(|seen| seen.query().contains("kube_pod_container_info"), WARNING).await;
    let error = surveyed(&server).await.unwrap_err().to_string();
    assert!(error.contains("discovery failed: data is missing"), "{error}");

    let remark = "PromQL warning: metric might not be a counter";
    let server = warned(|_| true, remark).await;
    all_well(&surveyed(&server).await.unwrap(), 2);
}

#[tokio::test]
async fn values_that_are_not_numbers_are_not_measurements() {
    for value in ["NaN", "+Inf", "-Inf"] {
        let small = Small { value: value.into(), ..Small::of(1) };
        let server = StandIn::new(move |seen| small.reply(seen)).await;
        let found = surveyed(&server).await.unwrap();
        let recommendation = found.advice[0].outcome.as_ref().unwrap();
        assert!(recommendation.latest.is_none(), "{recommendation:?}");
    }
}

#[tokio::test]
async fn a_container_without_usage_has_a_recommendation_without_data() {
    let small = Small { silent: vec!["c1".into()], ..Small::of(2) };
    let all = small.clone();
    // What it is configured to use is known, as of a container that never ran.
    let server = StandIn::new(move |seen| {
        if seen.query().contains("resource_requests") {
            return Small { silent: Vec::new(), ..all.clone() }.reply(seen);
        }
        all.reply(seen)
    })
    .await;
    let found = surveyed(&server).await.unwrap();
    let named = by_name(&found);
    let latest = |name: &str| named[small.experiment(name).as_str()].outcome.as_ref().unwrap();
    assert!(latest("c0").latest.is_some());
    assert!(latest("c1").latest.is_none());
}

#[tokio::test]
async fn without_containers_there_is_nothing_to_do() {
    let server = StandIn::new(|seen| {
        let small = Small::of(0);
        // The rule that says whose a pod is has no series.
        if seen.query().starts_with("count(") {
            let none = json!({ "resultType": "vector", "result": [] });
            return Reply::Json(json!({ "status": "success", "data": none }));
        }
        small.reply(seen)
    })
    .await;
    let found = surveyed(&server).await.unwrap();
    assert_eq!(names(&found), [""; 0]);
    assert_eq!(found.notices[0], "Nothing to do.");
    assert!(found.notices[1].contains("kubernetes-mixin"), "{:?}", found.notices);
}

#[tokio::test]
async fn a_clock_that_differs_is_noticed() {
    for (ahead_s, part) in [(-3_600, "behind ours"), (3_600, "ahead of ours")] {
        let small = Small { clock_ahead_s: ahead_s, ..Small::of(1) };
        let server = StandIn::new(move |seen| small.reply(seen)).await;
        let found = surveyed(&server).await.unwrap();
        let [notice] = &found.notices[..] else { panic!("{:?}", found.notices) };
        assert!(notice.contains(part), "{notice}");
    }
}
