//! A Prometheus that has five series of every instance.

use axum::Router;
use axum::routing::post;
use serde_json::{Value, json};

const SERIES: [&str; 5] = [
    "kafka_namespace:haproxy_server_bytes_in_total:rate5m",
    "kubelet_volume_stats_available_bytes",
    "kafka_controller_kafkacontroller_offline_partitions_count",
    "kafka_broker_quota_softlimitbytes",
    "kafka_server_brokertopicmetrics_messages_in_total",
];

/// Those that were asked for by all their names; none if only some were.
fn found(query: &str, of: &str, value: &Value) -> Value {
    let all = SERIES.iter().all(|name| query.contains(name));
    let series = |name: &&str| {
        let labels = json!({
            "__name__": name, "strimzi_io_cluster": "whatever", "topic": "whatever",
        });
        json!({ "metric": labels, of: value })
    };
    let result: Vec<Value> = SERIES.iter().filter(|_| all).map(series).collect();
    json!({ "status": "success", "data": { "result": result } })
}

/// Starts it, and returns its address. It lives as long as the test's runtime.
pub async fn start() -> String {
    let sample = || json!([1_607_506_882.175, "293617"]);
    let answer = |of: &'static str, value: Value| {
        post(move |body: String| async move { found(&decoded(&body), of, &value).to_string() })
    };
    let router = Router::new()
        .route("/api/v1/query", answer("value", sample()))
        .route("/api/v1/query_range", answer("values", json!([sample(), sample()])));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

fn decoded(form: &str) -> String {
    let mut pairs = url::form_urlencoded::parse(form.as_bytes());
    pairs.find(|(name, _)| name == "query").map(|(_, query)| query.into_owned()).unwrap_or_default()
}
