//! Recorded answers are read into the model and written again: nothing is lost or added.

use advisor::model::notice::Notice;
use advisor::model::recommendation::{MigProfile, Sizing};
use advisor::model::wire::{Element, Elements, read};
use serde_json::{Value, json};

use crate::support::recorded::{Exchange, Pair};

/// Reads a recorded answer and compares what is written again.
fn replay(name: &str) -> usize {
    let expected: Vec<Value> = serde_json::from_str(&Exchange::read(name).answer).unwrap();
    for element in &expected {
        let found = read::advice(element).unwrap();
        let written = serde_json::to_value(Elements(&found)).unwrap();
        assert_eq!(written, json!([element]), "{name}");
    }
    expected.len()
}

#[test]
fn what_cannot_be_read_is_named() {
    let mut element = Exchange::read("listRecommendations_idle").json()[0].take();
    let experiment = element["experiment_name"].as_str().unwrap().to_owned();
    element["kubernetes_objects"][0]["containers"][0]["recommendations"]["data"] = json!([]);
    let error = read::advice(&element).unwrap_err().to_string();
    assert_eq!(error, format!("{experiment}: `data` is missing or not as expected"));
    assert!(read::advice(&json!(null)).is_err());
}

#[test]
fn recorded_answers_are_written_as_they_were() {
    for name in [
        "generateRecommendations",
        "generateRecommendations_end",
        "generateRecommendations_namespace",
        "listRecommendations_constmem",
        "listRecommendations_idle",
        "listRecommendations_latest_false",
        "listRecommendations_norequest",
        "listRecommendations_onecore",
        "listRecommendations_optlim",
        "listRecommendations_threedays",
        "listRecommendations_zerocpu",
    ] {
        assert_eq!(replay(name), 1, "{name}");
    }
}

#[test]
fn experiments_without_data_are_written_as_they_were() {
    assert_eq!(replay("listRecommendations_unknown_job"), 100);
}

#[test]
fn a_failure_is_shown_as_not_enough_data() {
    let mut advice = Pair::read("idle").advice(|_, _| true);
    advice.outcome = Err("the server does not answer".to_owned());
    let found = serde_json::to_value(Element::from(&advice)).unwrap();
    let shown = &found["kubernetes_objects"][0]["containers"][0]["recommendations"];
    let notice = Notice::NotEnoughData;
    let expected = json!({
        "version": "1.0",
        "notifications": {
            "120001": { "type": "info", "message": notice.message(), "code": 120_001 },
        },
        "data": {},
    });
    assert_eq!(*shown, expected);
}

#[test]
fn what_is_not_known_is_left_out() {
    let mut advice = Pair::read("idle").advice(|_, _| true);
    let found = advice.outcome.as_mut().unwrap();
    found.formats.cpu = None;
    let latest = found.latest.as_mut().unwrap();
    let available = latest.terms[0].available.as_mut().unwrap();
    available.plots = None;
    available.cost.config = Sizing::default();
    available.cost.accelerator = Some(MigProfile { name: "7g.40gb".into() });
    let text = serde_json::to_string(&Element::from(&advice)).unwrap();
    assert!(!text.contains("null"), "{text}");
    let shown: Value = serde_json::from_str(&text).unwrap();
    let data = &shown["kubernetes_objects"][0]["containers"][0]["recommendations"]["data"];
    let data = data.as_object().unwrap().values().next().unwrap();
    assert_eq!(data["current"]["requests"]["cpu"], json!({ "amount": 0.1 }));
    let short = &data["recommendation_terms"]["short_term"];
    assert!(short.get("plots").is_none());
    let slice = json!({ "limits": { "nvidia.com/mig-7g.40gb": {
        "amount": 1.0, "format": "cores",
    } } });
    assert_eq!(short["recommendation_engines"]["cost"]["config"], slice);
    // A client reads the slice again, to show it and to make patches of it.
    let read = read::advice(&shown).unwrap();
    let latest = read[0].outcome.as_ref().unwrap().latest.as_ref().unwrap();
    let slice = latest.terms[0].available.as_ref().unwrap().cost.accelerator.as_ref();
    assert_eq!(slice.unwrap().name, "7g.40gb");
}

#[test]
fn codes_counts_and_codes_as_keys_are_what_they_are_on_the_wire() {
    let advice = Pair::read("busy_ge_1core").advice(|_, _| true);
    let text = serde_json::to_string(&Element::from(&advice)).unwrap();
    for part in [
        "\"111000\":{\"type\":\"info\"",
        "\"code\":111000}",
        "\"pods_count\":3,",
        "\"confidence_level\":0.0,",
        "\"duration_in_hours\":360.0,",
        "\"datapoints\":15,",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("111000.0"));
}
