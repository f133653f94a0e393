//! Uploaded results over REST: the recorded tables of expected values, row by row.

use serde_json::{Map, Value, json};
use testkit::stores;

use crate::maths::table::Table;
use crate::support::server::{Answer, Server, config};

const MINUTE_MS: i64 = 60_000;
const MODEL: &str = "NVIDIA A100-SXM4-40GB";

/// A table whose results are uploaded.
struct Uploads {
    table: Table,
    metrics: &'static [&'static str],
    namespace: bool,
}

const CONTAINER: [&str; 11] = [
    "cpuUsage",
    "cpuThrottle",
    "cpuRequest",
    "cpuLimit",
    "memoryUsage",
    "memoryRSS",
    "memoryRequest",
    "memoryLimit",
    "acceleratorCoreUsage",
    "acceleratorMemoryUsage",
    "acceleratorFrameBufferUsage",
];
const NAMESPACE: [&str; 8] = [
    "namespaceCpuUsage",
    "namespaceCpuThrottle",
    "namespaceCpuRequest",
    "namespaceCpuLimit",
    "namespaceMemoryUsage",
    "namespaceMemoryRSS",
    "namespaceMemoryRequest",
    "namespaceMemoryLimit",
];

fn time(ms: i64) -> String {
    advisor::model::time::format(jiff::Timestamp::from_millisecond(ms).unwrap())
}

impl Uploads {
    fn read(name: &str) -> Uploads {
        let table = Table::read(&format!("{name}.expected.csv"));
        let namespace = name == "clowder-system";
        let metrics = if namespace { &NAMESPACE[..] } else { &CONTAINER[..] };
        Uploads { table, metrics, namespace }
    }

    fn name(&self) -> &str {
        self.table.cell("experiment_name", 0)
    }

    /// What the results are of; `metrics` are those of the container or namespace.
    fn object(&self, metrics: Option<Value>) -> Value {
        let cell = |column: &str| self.table.cell(column, 0);
        let mut subject = if self.namespace {
            json!({ "namespace": cell("namespace") })
        } else {
            json!({ "container_name": cell("container_name"), "container_image_name": "image" })
        };
        if let Some(metrics) = metrics {
            subject["metrics"] = metrics;
        }
        if self.namespace {
            return json!({ "namespaces": subject });
        }
        json!({
            "type": cell("type"), "name": cell("name"), "namespace": cell("namespace"),
            "containers": [subject],
        })
    }

    fn experiment(&self) -> Value {
        json!([{
            "version": "v2.0",
            "experiment_name": self.name(),
            "cluster_name": "cluster1",
            "performance_profile": "resource-optimization-openshift",
            "mode": "monitor",
            "target_cluster": "remote",
            "experiment_type": if self.namespace { "namespace" } else { "container" },
            "kubernetes_objects": [self.object(None)],
            "trial_settings": { "measurement_duration": "15min" },
            "recommendation_settings": { "threshold": "0.1" },
        }])
    }

    fn result(&self, row: usize) -> Value {
        let end_ms = self.table.end_ms[row];
        let metrics = self.metrics.iter().filter_map(|name| self.metric(name, row)).collect();
        json!({
            "version": "v2.0",
            "experiment_name": self.name(),
            "interval_start_time": time(end_ms - 15 * MINUTE_MS),
            "interval_end_time": time(end_ms),
            "kubernetes_objects": [self.object(Some(metrics))],
        })
    }

    fn metric(&self, name: &str, row: usize) -> Option<Value> {
        let number = |aggregate: &str| {
            let found = self.table.numbers(&format!("{name}_{aggregate}"))?[row];
            (!found.is_nan()).then(|| (aggregate.to_owned(), json!(found)))
        };
        let mut info: Map<String, Value> =
            ["sum", "avg", "min", "max"].into_iter().filter_map(number).collect();
        if info.is_empty() {
            return None;
        }
        let format = if name.to_lowercase().contains("cpu") { "cores" } else { "MiB" };
        info.insert("format".into(), format.into());
        let mut results = json!({ "aggregation_info": info });
        if name.starts_with("accelerator") {
            results["metadata"] = json!({ "accelerator_model_name": MODEL });
        }
        Some(json!({ "name": name, "results": results }))
    }

    async fn create(&self, server: &Server) {
        let body = self.experiment().to_string();
        let created = server.call("POST", "/createExperiment", &body).await;
        assert_eq!(created.status, 201, "{}", created.text);
    }

    async fn upload(&self, server: &Server, rows: std::ops::Range<usize>) -> Answer {
        let results: Value = rows.map(|row| self.result(row)).collect();
        server.call("POST", "/updateResults", &results.to_string()).await
    }

    async fn recommend(&self, server: &Server, end: &str) -> Answer {
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("experiment_name", self.name())
            .append_pair("interval_end_time", end)
            .finish();
        server.call("POST", &format!("/updateRecommendations?{query}"), "").await
    }

    /// The recommendations in an element.
    fn recommendations<'a>(&self, element: &'a Value) -> &'a Value {
        let object = &element["kubernetes_objects"][0];
        let of = if self.namespace { &object["namespaces"] } else { &object["containers"][0] };
        &of["recommendations"]
    }

    /// Compares a row with what is recommended as of its end. Returns the number of cells.
    fn compare(&self, row: usize, element: &Value) -> usize {
        let end = time(self.table.end_ms[row]);
        let found = &self.recommendations(element)["data"][&end];
        let mut cells = 0;
        for term in ["short_term", "medium_term", "long_term"] {
            for engine in ["cost", "performance"] {
                let engines = &found["recommendation_terms"][term]["recommendation_engines"];
                for section in ["requests", "limits"] {
                    for kind in ["cpu", "memory"] {
                        for (part, suffix) in [("config", ""), ("variation", "_variation")] {
                            let name = format!("{engine}_{term}_{kind}_{section}{suffix}");
                            let amount = &engines[engine][part][section][kind]["amount"];
                            let expected = self.table.number(&name, row);
                            assert_eq!(amount.as_f64(), expected, "{name} of row {row}");
                            cells += 1;
                        }
                    }
                }
                let column = format!("{engine}_{term}_accelerator_limits");
                if self.table.numbers("acceleratorCoreUsage_max").is_some() {
                    let limits = engines[engine]["config"]["limits"].as_object();
                    let mut names = limits.into_iter().flat_map(|limits| limits.keys());
                    let profile = names.find(|name| name.starts_with("nvidia.com/mig-"));
                    let profile = profile.map_or("", String::as_str);
                    assert_eq!(profile, self.table.cell(&column, row), "{column} of row {row}");
                    cells += 1;
                }
            }
        }
        cells
    }
}

async fn server() -> (Server, stores::Fresh) {
    let fresh = stores::sqlite().await.unwrap();
    (Server::start(&fresh, &config(&[])).await, fresh)
}

/// Uploads a whole table, and compares some of its rows.
async fn replay(name: &str, cells: usize) {
    let uploads = Uploads::read(name);
    let (server, _fresh) = server().await;
    uploads.create(&server).await;
    let rows = uploads.table.end_ms.len();
    for first in (0..rows).step_by(100) {
        let answer = uploads.upload(&server, first..(first + 100).min(rows)).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        assert_eq!(
            answer.body["message"],
            "Results added successfully! View saved results at /listExperiments."
        );
    }
    let mut compared = 0;
    for row in [0, 1, 95, 200, 700, 900, 1300, 1421] {
        let end = time(uploads.table.end_ms[row]);
        let answer = uploads.recommend(&server, &end).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        compared += uploads.compare(row, &answer.body[0]);
    }
    assert_eq!(compared, cells);
    // What was recommended last is listed; and with all of it, what was recommended before.
    let list = server.get("/listRecommendations?rm=true").await.body;
    uploads.compare(1421, &list[0]);
    let all = server.get("/listRecommendations?rm=true&latest=false").await.body;
    uploads.compare(1300, &all[0]);
    let data = uploads.recommendations(&all[0])["data"].as_object().unwrap();
    // Row 0 has not enough data.
    assert_eq!(data.len(), 7);
    let end = time(uploads.table.end_ms[900]);
    let then = server.get(&format!("/listRecommendations?rm=true&monitoring_end_time={end}")).await;
    uploads.compare(900, &then.body[0]);
    assert_eq!(uploads.recommendations(&then.body[0])["data"].as_object().unwrap().len(), 1);
    assert_eq!(server.get("/listRecommendations").await.body, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn uploaded_rows_of_a_container_are_recommended_as_expected() {
    replay("clowder-plugin", 8 * 48).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uploaded_rows_of_a_container_with_a_gpu_are_recommended_as_expected() {
    replay("advisor-backend-api-gpu", 8 * 54).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uploaded_rows_of_a_namespace_are_recommended_as_expected() {
    replay("clowder-system", 8 * 48).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_duration_is_what_was_uploaded() {
    let uploads = Uploads::read("clowder-plugin");
    let (server, _fresh) = server().await;
    uploads.create(&server).await;
    // Four intervals without a gap: an hour.
    uploads.upload(&server, 0..4).await;
    let end = time(uploads.table.end_ms[3]);
    let answer = uploads.recommend(&server, &end).await;
    let data = &uploads.recommendations(&answer.body[0])["data"][&end]["recommendation_terms"];
    assert_eq!(data["short_term"]["duration_in_hours"], 1.0);
    assert_eq!(data["medium_term"]["duration_in_hours"], 1.0);
    assert_eq!(data["medium_term"]["notifications"]["120001"]["code"], 120_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interval_that_is_there_is_refused_and_the_others_are_saved() {
    let uploads = Uploads::read("clowder-plugin");
    let (server, _fresh) = server().await;
    uploads.create(&server).await;
    assert_eq!(uploads.upload(&server, 0..2).await.status, 201);
    let answer = uploads.upload(&server, 1..3).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.body["message"], "Out of a total of 2 records, 1 failed to save");
    let refused = answer.body["data"].as_array().unwrap();
    let end = time(uploads.table.end_ms[1]);
    assert_eq!((refused.len(), &refused[0]["interval_end_time"]), (1, &json!(end)));
    assert_eq!(refused[0]["experiment_name"], uploads.name());
    let error = &refused[0]["errors"][0];
    assert_eq!(error["message"], "An entry for this record already exists!");
    assert_eq!((&error["httpcode"], &error["status"]), (&json!(409), &json!("ERROR")));
    // All three are there.
    let listed = server.get("/listExperiments?rm=true&results=true&latest=false").await.body;
    let container = &listed[0]["kubernetes_objects"][0]["containers"]["clowder-plugin"];
    let results = container["results"].as_object().unwrap();
    assert_eq!(results.len(), 3);
    let result = &results[&end];
    assert_eq!(result["duration_in_minutes"], 15.0);
    let usage = &result["metrics"]["cpuUsage"]["aggregation_info"];
    assert_eq!(usage["max"].as_f64(), uploads.table.number("cpuUsage_max", 1));
    let newest = server.get("/listExperiments?rm=true&results=true").await.body;
    let container = &newest[0]["kubernetes_objects"][0]["containers"]["clowder-plugin"];
    assert_eq!(container["results"].as_object().unwrap().len(), 1);
    assert_eq!(newest[0]["experiment_usecase_type"]["remote_monitoring"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_results_than_allowed_are_refused_with_the_limit() {
    let uploads = Uploads::read("clowder-plugin");
    let (server, _fresh) = server().await;
    uploads.create(&server).await;
    let answer = uploads.upload(&server, 0..101).await;
    assert_eq!(answer.status, 400);
    let message = "At present, the system does not support bulk entries exceeding 100 in quantity!";
    assert_eq!(answer.body["message"], message);
    let listed = server.get("/listExperiments?rm=true&results=true").await.body;
    let container = &listed[0]["kubernetes_objects"][0]["containers"]["clowder-plugin"];
    assert_eq!(container.get("results"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_do_not_fit_their_experiment_are_refused_with_the_reason() {
    let uploads = Uploads::read("clowder-plugin");
    let (server, _fresh) = server().await;
    uploads.create(&server).await;
    let good = uploads.result(0);
    let container = "/kubernetes_objects/0/containers/0";
    let metrics = format!("{container}/metrics");
    let table: [(&str, Value, &str); 14] = [
        ("/experiment_name", json!("other"), "Not Found: experiment_name does not exist: other"),
        ("/experiment_name", json!(null), "`experiment_name`: is required"),
        (
            "/interval_start_time",
            good["interval_end_time"].clone(),
            "The Start time should precede",
        ),
        ("/interval_start_time", json!("yesterday"), "`interval_start_time`: must be a time"),
        ("/interval_start_time", json!("2023-05-27T16:59:00.000Z"), "Interval duration cannot be"),
        ("/kubernetes_objects/0/name", json!("web"), "kubernetes_objects[0].name: must be that of"),
        ("/kubernetes_objects/0/type", json!("job"), "kubernetes_objects[0].type: must be that of"),
        ("/kubernetes_objects/0/namespace", json!("n"), "kubernetes_objects[0].namespace: must be"),
        ("/kubernetes_objects", json!([]), "`kubernetes_objects[0]`: is required"),
        (&format!("{container}/container_name"), json!("web"), "web is not a container of the"),
        (&metrics, json!([]), "Performance profile: [Metric data is not present for container"),
        (&metrics, json!([{ "name": "cpuUsage" }]), "Missing one of the following mandatory"),
        (&metrics, json!([{ "name": "cpu" }]), "metrics[0].name`: must be one of cpuUsage, "),
        (
            &format!("{metrics}/0/results/aggregation_info/avg"),
            json!(-1),
            "metrics[0].results.aggregation_info.avg`: must be a number, 0 or more",
        ),
    ];
    for (field, value, expected) in table {
        let mut bad = good.clone();
        *bad.pointer_mut(field).unwrap() = value;
        // The good one is saved, once.
        let answer = server.call("POST", "/updateResults", &json!([bad]).to_string()).await;
        assert_eq!(answer.status, 400, "{field}");
        let message = answer.body["data"][0]["errors"][0]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{field}: {message}");
    }
    assert_eq!(uploads.recommend(&server, "2023-05-27T17:15:00.000Z").await.status, 400);
    assert_eq!(uploads.upload(&server, 0..2).await.status, 201);
    for (end, expected) in [
        (
            "2023-05-27T17:20:00.000Z",
            "Not Found: interval_end_time does not exist: 2023-05-27T17:20",
        ),
        ("xx", "Given timestamp - \" xx \" is not a valid timestamp format"),
        ("", "interval_end_time is mandatory"),
    ] {
        let answer = uploads.recommend(&server, end).await;
        let message = answer.body["message"].as_str().unwrap();
        assert!(answer.status == 400 && message.contains(expected), "{end}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_experiment_with_several_containers_recommends_for_each() {
    let uploads = Uploads::read("clowder-plugin");
    let (server, _fresh) = server().await;
    let twice = |mut list: Value, factor: f64| {
        for item in list.as_array_mut().unwrap() {
            let containers = item["kubernetes_objects"][0]["containers"].as_array_mut().unwrap();
            let mut second = containers[0].clone();
            second["container_name"] = "proxy".into();
            if let Some(amount) = second.pointer_mut("/metrics/2/results/aggregation_info/max") {
                *amount = json!(amount.as_f64().unwrap() * factor);
            }
            containers.push(second);
        }
        list
    };
    let experiment = twice(uploads.experiment(), 1.0).to_string();
    assert_eq!(server.call("POST", "/createExperiment", &experiment).await.status, 201);
    let results: Value = (0..4).map(|row| uploads.result(row)).collect();
    let answer = server.call("POST", "/updateResults", &twice(results, 10.0).to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let end = time(uploads.table.end_ms[3]);
    let answer = uploads.recommend(&server, &end).await;
    let containers = answer.body[0]["kubernetes_objects"][0]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    uploads.compare(3, &answer.body[0]);
    let listed = server.get("/listExperiments?rm=true&recommendations=true").await.body;
    let listed = &listed[0]["kubernetes_objects"][0]["containers"];
    assert_eq!(listed["proxy"]["recommendations"], containers[1]["recommendations"]);
    assert_eq!(listed["clowder-plugin"]["recommendations"], containers[0]["recommendations"]);
    let experiments = server.experiments().await;
    let figures = experiments[uploads.name()].status.figures.clone().unwrap();
    let memory = |container: &Value| {
        let terms = &container["recommendations"]["data"][&end]["recommendation_terms"];
        let engines = &terms["short_term"]["recommendation_engines"];
        engines["cost"]["config"]["requests"]["memory"]["amount"].as_f64().unwrap()
    };
    let sum = memory(&containers[0]) + memory(&containers[1]);
    assert_eq!(figures.terms["short_term"]["cost"].memory, Some(sum));
}
