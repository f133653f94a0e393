//! Bulk jobs over REST.

use testkit::stores;

use super::differences::{
    ANY_ORIGIN, CREDENTIALS, HISTORY, MAX_AGE, MERGED, NAMED, PROCESSED, REQUEST,
};
use super::golden::Replay;
use crate::support::cluster::Cluster;
use crate::support::recorded::Exchange;
use crate::support::server::{Server, config};

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_about_jobs_are_answered_as_they_were() {
    let source = Cluster::recorded().start().await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &config(&[("prometheus-1", &source.url)])).await;
    let id = server.create(serde_json::json!({})).await.unwrap();
    server.completed(&id).await;
    let mut replay = Replay::new(&server);
    let recorded = Exchange::read("bulk_get_include_summary").json();
    replay.replace(recorded["summary"]["job_id"].as_str().unwrap(), &id);
    replay
        .all(&[
            "bulk_get_include_default",
            "bulk_get_include_summary",
            "bulk_get_include_exp_fields",
            "bulk_get_include_metadata",
            "bulk_get_include_summary_jobid_and_exp",
            "bulk_get_include_unknown_token",
            "bulk_get_include_webhook",
            "bulk_get_experiment_name",
            "bulk_get_experiment_name_nomatch",
            "bulk_get_badparam",
            "bulk_get_unknown_job",
            "bulk_get_cors",
            "bulk_options_cors",
            "bulk_put",
            "bulk_delete",
        ])
        .await;
    replay.finish(&[
        ANY_ORIGIN,
        CREDENTIALS,
        HISTORY,
        MAX_AGE,
        MERGED,
        NAMED,
        REQUEST,
        PROCESSED,
        HISTORY,
    ]);
}
