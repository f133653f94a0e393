//! Containers that appear and go while they are measured, and a data source that goes for good.

use std::sync::atomic::{AtomicUsize, Ordering};

use advisor::model::datasource::Datasource;
use advisor::model::recommendation::Term;
use advisor::work::survey::Survey;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{by_name, checked, client, request};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

fn now() -> Timestamp {
    "2026-11-15T20:07:12Z".parse().unwrap()
}

async fn surveyed(server: &StandIn) -> kernel::Result<Survey> {
    checked(&client(&Datasource::at(&server.url)), &request(json!({})), now()).await
}

/// Samples of each quarter of an hour between two times, given in hours before the end.
fn samples(seen_end_s: i64, from_h: i64, until_h: i64) -> Value {
    let quarters = (until_h * 4..=from_h * 4).rev();
    quarters.map(|back| json!([seen_end_s - back * 900, "0.25"])).collect()
}

#[tokio::test]
async fn what_has_half_a_window_is_recommended_by_that_half_and_strangers_are_left_out() {
    let small = Small::of(4);
    let all = small.clone();
    let server = StandIn::new(move |seen| {
        let mut answer = all.answer(seen);
        let result = answer["data"]["result"].as_array_mut().unwrap();
        if seen.is_range() && !result.is_empty() {
            let end_s: i64 = seen.form["end"].parse().unwrap();
            // One that runs all the time, one that has appeared, one that is gone for a week.
            for (place, (from_h, until_h)) in [(360, 0), (100, 0), (360, 170)].iter().enumerate() {
                result[place]["values"] = samples(end_s, *from_h, *until_h);
            }
            // One that was found and has no series any more; and one that nobody has found.
            result[3]["metric"]["container"] = "stranger".into();
        }
        Reply::Json(answer)
    })
    .await;
    let found = surveyed(&server).await.unwrap();
    let named = by_name(&found);
    assert_eq!(named.len(), 4, "{:?}", named.keys());
    let latest = |container: &str| {
        let name = small.experiment(container);
        named[name.as_str()].outcome.as_ref().unwrap().latest.as_ref()
    };
    let terms = |container: &str| {
        let latest = latest(container).unwrap();
        Term::ALL.map(|term| latest.term(term).available.is_some())
    };
    assert_eq!(terms("c0"), [true; 3]);
    // 100 hours are more than half of a week, and less than half of 15 days.
    assert_eq!(terms("c1"), [true, true, false]);
    let end_ms = now().as_millisecond();
    assert_eq!(latest("c1").unwrap().monitoring_end_ms, end_ms);
    assert_eq!(latest("c2").unwrap().monitoring_end_ms, end_ms - 170 * 3_600_000);
    assert!(terms("c2")[0], "by what it used until it went");
    assert!(latest("c3").is_none(), "nothing of it is left");
}

#[tokio::test]
async fn a_data_source_that_goes_away_ends_the_survey_after_what_was_read() {
    let small = Small::of(600);
    let ranges = AtomicUsize::new(0);
    let server = StandIn::new(move |seen| {
        // One shard and a half.
        if seen.is_range() && ranges.fetch_add(1, Ordering::SeqCst) >= 30 {
            return Reply::status(502);
        }
        small.reply(seen)
    })
    .await;
    let error = surveyed(&server).await.unwrap_err().to_string();
    assert!(error.contains("reading failed: ") && error.contains("it answered 502"), "{error}");
}
