//! Jobs that are cancelled, deleted, limited or too old.

use std::sync::Arc;

use advisor::model::job::{JobPhase, job_key};
use serde_json::json;
use testkit::stores::Fresh;
use tokio::sync::Semaphore;

use crate::support::server::{Server, config, until};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

testkit::on_every_store!(
    a_job_that_is_cancelled_while_it_reads_stops_and_frees_its_places,
    a_deleted_job_leaves_nothing_behind,
    jobs_that_ended_are_removed_after_their_time,
    a_job_with_too_many_containers_fails_before_it_reads,
    a_job_that_takes_too_long_fails,
    more_jobs_than_allowed_are_queued,
);

/// A cluster that answers no query of a shard.
async fn silent(small: Small) -> StandIn {
    StandIn::new(move |seen| if seen.is_range() { Reply::Hang } else { small.reply(seen) }).await
}

async fn reading(server: &Server, source: &StandIn, id: &str) {
    until("the job reads", async || {
        let asked = source.seen().iter().any(|seen| seen.is_range());
        asked && server.job(id).await.phase == JobPhase::Running
    })
    .await;
}

async fn a_job_that_is_cancelled_while_it_reads_stops_and_frees_its_places(fresh: &Fresh) {
    let source = silent(Small::of(3)).await;
    let mut config = config(&[("p", &source.url)]);
    config.datasources.get_mut("p").unwrap().query_timeout_s = 600;
    let server = Server::start(fresh, &config).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    reading(&server, &source, &id).await;
    server.cancel(&id).await;
    let job = server.ended(&id).await;
    assert_eq!(job.phase, JobPhase::Cancelled);
    assert_eq!(job.status.notices[0].message, "The job was cancelled.");
    assert_eq!(server.experiments().await.len(), 0);
    for counter in ["advisor/jobs/acme", "advisor/reads//p"] {
        let used = server.app.store.counter(counter).await.unwrap().map_or(0, |found| found.used);
        assert_eq!(used, 0, "{counter}");
    }
    // It has ended: a second time changes nothing.
    let revision = server.job(&id).await.revision;
    server.cancel(&id).await;
    assert_eq!(server.job(&id).await.revision, revision);
}

async fn a_deleted_job_leaves_nothing_behind(fresh: &Fresh) {
    let small = Small::of(300);
    let source = StandIn::new(move |seen| small.reply(seen)).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    server.delete(&id).await;
    gone(&server, &id).await;
    assert_eq!(server.experiments().await.len(), 300, "experiments stay");
}

/// Waits until neither the job nor its shards nor their data are left.
async fn gone(server: &Server, id: &str) {
    until("the job is deleted", async || {
        let store = server.app.store.as_ref();
        advisor::store::job(store, id).await.unwrap().is_none()
    })
    .await;
    assert_eq!(server.objects("bulk-shard").await.len(), 0);
    assert!(server.app.store.blobs(&job_key(id)).await.unwrap().is_empty());
    let shard = advisor::model::job::shard_key(id, 0);
    assert!(server.app.store.blobs(&shard).await.unwrap().is_empty());
}

async fn jobs_that_ended_are_removed_after_their_time(fresh: &Fresh) {
    let small = Small::of(3);
    let source = StandIn::new(move |seen| small.reply(seen)).await;
    let mut config = config(&[("p", &source.url)]);
    config.jobs_days = 0;
    let server = Server::start(fresh, &config).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    gone(&server, &id).await;
    let events = server.events("bulk-job").await;
    let kinds: Vec<&str> = events.iter().rev().take(2).map(|(what, _)| what.as_str()).collect();
    assert_eq!(kinds, ["deleted", "completed"]);
}

async fn a_job_with_too_many_containers_fails_before_it_reads(fresh: &Fresh) {
    let small = Small::of(11);
    let source = StandIn::new(move |seen| small.reply(seen)).await;
    let mut config = config(&[("p", &source.url)]);
    config.containers_max = 10;
    let server = Server::start(fresh, &config).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    let job = server.ended(&id).await;
    assert_eq!(job.phase, JobPhase::Failed);
    let expected = "The number of experiments exceeds the defined limit. \
                    (11 were found; advisor.containers_max is 10)";
    assert_eq!(job.status.notices[0].message, expected);
    assert!(!source.seen().iter().any(|seen| seen.is_range()));
}

async fn a_job_that_takes_too_long_fails(fresh: &Fresh) {
    let source = silent(Small::of(3)).await;
    let mut config = config(&[("p", &source.url)]);
    config.datasources.get_mut("p").unwrap().query_timeout_s = 600;
    config.job_timeout_s = 1;
    let server = Server::start(fresh, &config).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    let job = server.ended(&id).await;
    assert_eq!((job.phase, job.status.notices[0].code), (JobPhase::Failed, 504));
}

async fn more_jobs_than_allowed_are_queued(fresh: &Fresh) {
    let small = Small::of(3);
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    let source = StandIn::new(move |seen| {
        if seen.is_range() && open.available_permits() == 0 {
            Reply::status(503)
        } else {
            small.reply(seen)
        }
    })
    .await;
    let mut config = config(&[("p", &source.url)]);
    config.jobs_max = 1;
    let server = Server::start(fresh, &config).await;
    let first = server.create(json!({ "datasource": "p" })).await.unwrap();
    reading(&server, &source, &first).await;
    let second = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.cancel(&second).await;
    assert_eq!(server.ended(&second).await.phase, JobPhase::Cancelled);
    let third = server.create(json!({ "datasource": "p" })).await.unwrap();
    assert_eq!(server.job(&third).await.phase, JobPhase::Queued);
    gate.add_permits(1);
    server.completed(&first).await;
    server.completed(&third).await;
}
