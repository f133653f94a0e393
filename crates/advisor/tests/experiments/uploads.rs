//! Uploaded results: none is lost, none is there twice, and old ones go.

use std::collections::BTreeSet;
use std::sync::Arc;

use advisor::model::experiment::experiment_key;
use advisor::store;
use futures::future::join_all;
use kernel::Key;
use serde_json::{Value, json};
use testkit::stores::Fresh;

use crate::support::server::{Server, config, of, until};

testkit::on_every_store!(
    uploads_of_one_day_at_the_same_time_are_all_saved_once,
    results_are_removed_after_their_time,
    results_are_uploaded_again_after_a_server_is_killed,
    an_upload_with_an_idempotency_key_is_answered_again,
);

const MINUTE_MS: i64 = 60_000;
const BEGIN_MS: i64 = 1_685_207_700_000;

fn key() -> Key {
    experiment_key(of("acme"), "remote")
}

async fn create(server: &Server) {
    let body = json!({
        "experiment_name": "remote", "target_cluster": "remote",
        "kubernetes_objects": [{
            "type": "deployment", "name": "web", "namespace": "shop",
            "containers": [{ "container_name": "nginx" }],
        }],
    });
    server.command("acme", "experiment.create", None, body).await.unwrap();
}

/// The result of the interval of this number.
fn result(number: i64) -> Value {
    let time = |ms| advisor::model::time::format(jiff::Timestamp::from_millisecond(ms).unwrap());
    let metric = |name: &str, format: &str| {
        let info = json!({ "sum": 0.5, "avg": 0.5, "min": 0.5, "max": 0.5, "format": format });
        json!({ "name": name, "results": { "aggregation_info": info } })
    };
    let end_ms = BEGIN_MS + number * 15 * MINUTE_MS;
    json!({
        "experiment_name": "remote",
        "interval_start_time": time(end_ms - 15 * MINUTE_MS),
        "interval_end_time": time(end_ms),
        "kubernetes_objects": [{
            "type": "deployment", "name": "web", "namespace": "shop",
            "containers": [{
                "container_name": "nginx",
                "metrics": [
                    metric("cpuUsage", "cores"), metric("memoryUsage", "MiB"),
                    metric("memoryRSS", "MiB"),
                ],
            }],
        }],
    })
}

/// Uploads results; returns how many were refused.
async fn upload(server: &Server, numbers: impl Iterator<Item = i64>) -> kernel::Result<usize> {
    let records: Value = numbers.map(result).collect();
    let reply = server.command("acme", "results.upload", None, records).await?;
    let reply: Value = reply.parse()?;
    Ok(reply["refused"].as_array().unwrap().len())
}

/// The numbers of the intervals that are there.
async fn saved(server: &Server) -> Vec<i64> {
    let mut ends = Vec::new();
    for day in store::days(&server.app, &key()).await.unwrap().into_keys() {
        let buckets = store::day(&server.app, &key(), &day).await.unwrap().buckets;
        ends.extend(buckets.iter().map(|bucket| bucket.end_ms));
    }
    ends.iter().map(|end_ms| (end_ms - BEGIN_MS) / (15 * MINUTE_MS)).collect()
}

async fn uploads_of_one_day_at_the_same_time_are_all_saved_once(fresh: &Fresh) {
    let server = Arc::new(Server::start(fresh, &config(&[])).await);
    create(&server).await;
    // Each interval is uploaded by two clients.
    let clients = (0..4).map(|client| {
        let server = server.clone();
        async move {
            let mut refused = 0;
            for number in (client / 2..20).step_by(2) {
                // A client tries again if others were faster too often.
                loop {
                    match upload(&server, std::iter::once(number)).await {
                        Ok(count) => break refused += count,
                        Err(kernel::Error::Refused(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            refused
        }
    });
    let refused: usize = join_all(clients).await.into_iter().sum();
    assert_eq!(refused, 20, "each was refused to one of the two");
    let day = advisor::model::bucket::blob_name(BEGIN_MS);
    let buckets = store::day(&server.app, &key(), &day).await.unwrap().buckets;
    let ends: BTreeSet<i64> = buckets.iter().map(|bucket| bucket.end_ms).collect();
    assert_eq!((buckets.len(), ends.len()), (20, 20));
    assert!(buckets.is_sorted_by_key(|bucket| bucket.end_ms));
}

async fn results_are_removed_after_their_time(fresh: &Fresh) {
    let mut config = config(&[]);
    config.results_days = 0;
    let server = Server::start(fresh, &config).await;
    create(&server).await;
    assert_eq!(upload(&server, 0..3).await.unwrap(), 0);
    until("they are removed", async || store::days(&server.app, &key()).await.unwrap().is_empty())
        .await;
    // The experiment stays, and takes others.
    assert_eq!(upload(&server, 0..3).await.unwrap(), 0);
    assert_eq!(server.experiments().await.len(), 1);
}

async fn results_are_uploaded_again_after_a_server_is_killed(fresh: &Fresh) {
    let server = Server::start(fresh, &config(&[])).await;
    create(&server).await;
    upload(&server, 0..5).await.unwrap();
    drop(server);
    let server = Server::start(fresh, &config(&[])).await;
    assert_eq!(upload(&server, 3..8).await.unwrap(), 2);
    assert_eq!(saved(&server).await, (0..8).collect::<Vec<_>>());
}

async fn an_upload_with_an_idempotency_key_is_answered_again(fresh: &Fresh) {
    let server = Server::start(fresh, &config(&[])).await;
    create(&server).await;
    let body: Value = (0..3).map(result).collect();
    let send = async || {
        let request = axum::http::Request::builder().method("POST").uri("/updateResults");
        let request = request.header("authorization", server.authorization());
        let request = request.header("idempotency-key", "upload-1");
        server.send(request.body(body.to_string().into()).unwrap()).await
    };
    for _ in 0..2 {
        let answer = send().await;
        assert_eq!(answer.status, 201, "{}", answer.text);
    }
    assert_eq!(saved(&server).await, [0, 1, 2]);
}
