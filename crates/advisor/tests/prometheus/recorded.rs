//! Recorded answers of a real Prometheus, through a whole survey: what comes out is what the
//! existing service made of them, to the last bit.

use std::collections::HashMap;
use std::io::Read;

use advisor::model::datasource::Datasource;
use advisor::model::wire::Element;
use advisor::work::survey::SurveyRequest;
use serde_json::{Value, json};

use super::{checked, client, request};
use crate::support::stand_in::{Reply, Seen, StandIn};

/// Everything that was asked and answered for one container.
struct Pair {
    end: jiff::Timestamp,
    namespace: String,
    workload: Value,
    container: Value,
    answers: HashMap<String, Value>,
    expected: Value,
}

impl Pair {
    fn read(name: &str) -> Pair {
        let path = format!("{}/tests/data/pairs/{name}.json.gz", env!("CARGO_MANIFEST_DIR"));
        let mut text = String::new();
        let file = std::fs::File::open(path).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        let mut pair: Value = serde_json::from_str(&text).unwrap();
        let expected = pair["recommendation"][0].take();
        let object = &expected["kubernetes_objects"][0];
        let namespace = object["namespace"].as_str().unwrap().to_owned();
        let workload = json!({
            "namespace": namespace, "workload": object["name"], "workload_type": object["type"],
        });
        let mut container = workload.clone();
        container["container"] = object["containers"][0]["container_name"].clone();
        container["image"] = object["containers"][0]["container_image_name"].clone();
        let Value::Array(queries) = pair["queries"].take() else { panic!("no queries") };
        let is_instant = |query: &&Value| query["path"] == "/api/v1/query";
        let end = queries.iter().rfind(is_instant).unwrap()["params"]["time"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        let answer = |mut query: Value| {
            (query["params"]["query"].as_str().unwrap().to_owned(), query["response"].take())
        };
        let answers = queries.into_iter().map(answer).collect();
        Pair { end, namespace, workload, container, answers, expected }
    }

    fn reply(&self, seen: &Seen) -> Reply {
        let query = seen.query();
        if seen.is_range() {
            // The existing service names one namespace and one container.
            let one = query.replace("=~\"", "=\"");
            // Without any data, the existing service asks for no GPU.
            let none =
                json!({ "status": "success", "data": { "resultType": "matrix", "result": [] } });
            let found = self.answers.get(&one).cloned();
            assert!(found.is_some() || one.contains("DCGM"), "{one} was not asked");
            return Reply::Json(found.unwrap_or(none));
        }
        let labels = if query.contains("kube_namespace_status_phase") {
            json!({ "namespace": self.namespace })
        } else if query.contains("kube_pod_container_info") {
            self.container.clone()
        } else {
            self.workload.clone()
        };
        let now_s = jiff::Timestamp::now().as_second();
        let result = json!([{ "metric": labels, "value": [now_s, "1"] }]);
        let data = json!({ "resultType": "vector", "result": result });
        Reply::Json(json!({ "status": "success", "data": data }))
    }
}

#[tokio::test]
async fn a_survey_of_recorded_answers_is_what_the_existing_service_recommended() {
    for name in [
        "busy_ge_1core",
        "constmem",
        "idle",
        "no_usage_data",
        "nolimit",
        "stopped_1day_ago",
        "threshold_lim_near",
        "threshold_req_near",
        "threshold_request",
        "zerocpu",
    ] {
        let pair = Pair::read(name);
        let (end, expected) = (pair.end, pair.expected.clone());
        // With a filter, the queries name the container.
        let filter = json!({ "include": { "containers": [pair.container["container"]] } });
        let server = StandIn::new(move |seen| pair.reply(seen)).await;
        let experiment = expected["experiment_name"].as_str().unwrap();
        let datasource = experiment.split('|').next().unwrap().to_owned();
        let request = SurveyRequest { datasource, ..request(filter) };
        let found = checked(&client(&Datasource::at(&server.url)), &request, end).await.unwrap();
        let [advice] = &found.advice[..] else { panic!("{name}: {:?}", found.advice) };
        assert_eq!(serde_json::to_value(Element::from(advice)).unwrap(), expected, "{name}");
    }
}
