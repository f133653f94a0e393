//! Recorded measurements, through a whole job: what REST answers is what the existing service made of
//! them, to the last bit.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use testkit::stores;

use crate::support::cluster::Cluster;
use crate::support::recorded::Pair;
use crate::support::server::{Server, config};

#[tokio::test(flavor = "multi_thread")]
async fn recommendations_of_recorded_measurements_are_the_recorded_ones() {
    let mut compared = 0;
    for datasource in ["prometheus-1", "prometheus-3"] {
        let source = Cluster::of_pairs(datasource).start().await;
        let fresh = stores::sqlite().await.unwrap();
        let server = Server::start(&fresh, &config(&[(datasource, &source.url)])).await;
        let id = server.create(json!({ "datasource": datasource })).await.unwrap();
        server.completed(&id).await;
        let listed = server.get("/listRecommendations").await.body;
        let of_job = server.get(&format!("/listRecommendations?job_id={id}")).await.body;
        let bulk = server.get(&format!("/bulk?job_id={id}&include=experiments")).await.body;
        for pair in Pair::NAMES.map(Pair::read) {
            let name = pair.expected["experiment_name"].as_str().unwrap();
            if !name.starts_with(&format!("{datasource}|")) {
                continue;
            }
            let named = |list: &Value| {
                let mut list = list.as_array().unwrap().iter();
                list.find(|element| element["experiment_name"] == name).unwrap().clone()
            };
            let expected = relative(&pair.expected);
            assert_eq!(relative(&named(&listed)), expected, "{name}");
            assert_eq!(relative(&named(&of_job)), expected, "{name}");
            let response = &bulk["experiments"][name]["apis"]["recommendations"]["response"];
            assert_eq!(relative(&response[0]), expected, "{name}");
            // Made for the experiment alone, it is the same.
            let query = url::form_urlencoded::Serializer::new(String::new())
                .append_pair("experiment_name", name)
                .finish();
            let path = format!("/generateRecommendations?{query}");
            let alone = server.call("POST", &path, "").await;
            assert_eq!(alone.status, 201, "{}", alone.text);
            assert_eq!(relative(&alone.body[0]), expected, "{name}");
            compared += 1;
        }
    }
    assert_eq!(compared, Pair::NAMES.len());
}

/// An element with times as milliseconds before the newest.
fn relative(element: &Value) -> Value {
    let text = element.to_string();
    let times = text.split('"').filter_map(milliseconds);
    shifted(element, times.max().unwrap_or_default())
}

fn shifted(value: &Value, newest: i64) -> Value {
    let text = |text: &str| match milliseconds(text) {
        Some(at) => (newest - at).to_string(),
        None => text.to_owned(),
    };
    match value {
        Value::String(string) => text(string).into(),
        Value::Array(items) => items.iter().map(|item| shifted(item, newest)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (text(key), shifted(value, newest)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

fn milliseconds(text: &str) -> Option<i64> {
    let at: Timestamp = text.parse().ok()?;
    Some(at.as_millisecond())
}
