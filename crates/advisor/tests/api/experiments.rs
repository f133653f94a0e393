//! Experiments and their recommendations over REST, in the order in which they were recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use advisor::model::time;
use serde_json::json;
use testkit::stores;

use super::differences::{BAD_JSON, BAD_RESULTS, EMPTY_ERROR, NO_CONTENT_TYPE, RAW_REASON};
use super::golden::Replay;
use crate::support::cluster::Cluster;
use crate::support::server::{Server, config};
use crate::support::stand_in::{Reply, StandIn};

/// Data sources as they were: two, of which one goes away at the end.
async fn sources() -> (StandIn, StandIn, Arc<AtomicBool>) {
    let first = Cluster::recorded().start().await;
    let (cluster, down) = (Cluster::of_pairs("prometheus-3"), Arc::new(AtomicBool::new(false)));
    let is_down = down.clone();
    let second = StandIn::new(move |seen| {
        if is_down.load(Ordering::SeqCst) { Reply::status(500) } else { cluster.reply(seen) }
    });
    (first, second.await, down)
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_about_experiments_are_answered_as_they_were() {
    let (first, second, down) = sources().await;
    let fresh = stores::sqlite().await.unwrap();
    let config = config(&[("prometheus-1", &first.url), ("prometheus-3", &second.url)]);
    let server = Server::start(&fresh, &config).await;
    let mut replay = Replay::new(&server);
    // The end of a window, 44 hours before the request.
    let end = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(44);
    replay.replace("2026-11-14T00:00:00.000Z", &time::format(end));
    replay.all(&["pre_listExperiments_empty", "pre_listRecommendations_empty"]).await;
    let id = server.create(json!({})).await.unwrap();
    server.completed(&id).await;
    replay
        .all(&[
            "listExperiments",
            "listExperiments_name",
            "listExperiments_name_recs",
            "listExperiments_name_recs_all",
            "listExperiments_rm",
            "listExperiments_unknown",
            "listRecommendations_constmem",
            "listRecommendations_idle",
            "listRecommendations_norequest",
            "listRecommendations_onecore",
            "listRecommendations_optlim",
            "listRecommendations_threedays",
            "listRecommendations_zerocpu",
            "listRecommendations_latest_false",
            "listRecommendations_bad_time",
            "listRecommendations_time_nomatch",
            "listRecommendations_rm",
            "listRecommendations_unknown_job",
            "generateRecommendations",
            "generateRecommendations_end",
            "generateRecommendations_end_start",
            "generateRecommendations_noname",
            "generateRecommendations_unknown",
            "updateRecommendations_noparams",
            "updateResults_badjson",
            "updateResults_empty",
            "createExperiment",
            "createExperiment_dup",
            "createExperiment_noprofile",
            "createExperiment_bad_datasource",
            "createExperiment_bad_type",
            "createExperiment_badjson",
            "createExperiment_two",
            "createExperiment_namespace",
            "generateRecommendations_namespace",
            "deleteExperiment",
            "deleteExperiment_unknown",
            "deleteExperiment_rm",
        ])
        .await;
    let container = json!({ "container_name": "exact" });
    let object = json!({
        "type": "deployment", "name": "tw", "namespace": "thr", "containers": [container],
    });
    let experiment = json!([{
        "experiment_name": "prometheus-3|default|thr|tw(deployment)|exact",
        "datasource": "prometheus-3",
        "kubernetes_objects": [object],
    }]);
    let created = server.call("POST", "/createExperiment", &experiment.to_string()).await;
    assert_eq!(created.status, 201, "{}", created.text);
    down.store(true, Ordering::SeqCst);
    replay.all(&["generateRecommendations_datasource_down"]).await;
    replay.finish(&[BAD_JSON, BAD_RESULTS, EMPTY_ERROR, NO_CONTENT_TYPE, RAW_REASON]);
}
