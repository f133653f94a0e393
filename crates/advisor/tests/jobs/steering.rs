//! Jobs that are cancelled, deleted, limited or too old.

use std::sync::Arc;

use advisor::model::job::{JobPhase, MEMBERS, job_key};
use kernel::Change;
use kernel::queue::State;
use serde_json::json;
use testkit::stores::Fresh;
use tokio::sync::Semaphore;

use crate::support::server::{Server, config, until};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, Seen, StandIn};

testkit::on_every_store!(
    a_job_that_is_cancelled_while_it_reads_stops_and_frees_its_places,
    a_deleted_job_leaves_nothing_behind,
    jobs_that_ended_are_removed_after_their_time,
    a_job_with_too_many_containers_fails_before_it_reads,
    a_job_that_takes_too_long_fails,
    more_jobs_than_allowed_are_queued,
    what_a_cancelled_job_has_written_comes_before_its_end,
    a_shard_that_cannot_go_on_fails_and_its_job_ends,
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

/// A cluster that answers no query of a shard before the gate has a permit.
async fn gated(small: Small) -> (StandIn, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    let answer = move |seen: &Seen| {
        if seen.is_range() && open.available_permits() == 0 {
            return Reply::status(503);
        }
        small.reply(seen)
    };
    (StandIn::new(answer).await, gate)
}

async fn more_jobs_than_allowed_are_queued(fresh: &Fresh) {
    let (source, gate) = gated(Small::of(3)).await;
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

async fn what_a_cancelled_job_has_written_comes_before_its_end(fresh: &Fresh) {
    let small = Small::of(1000);
    let source = StandIn::new(move |seen| small.reply(seen)).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    for commits in [1, 4, 8, 16] {
        let before = server.app.store.newest_event().await.unwrap();
        let id = server.create(json!({ "datasource": "p" })).await.unwrap();
        until("it goes on", async || {
            let newest = server.app.store.newest_event().await.unwrap();
            newest >= before + commits || server.job(&id).await.phase.is_final()
        })
        .await;
        server.cancel(&id).await;
        server.ended(&id).await;
        // What a shard still has in hand is refused, whenever it tries.
        until("nothing is left to do", async || {
            let counts = server.app.store.work_counts().await.unwrap();
            counts.iter().all(|count| count.state != State::Running)
        })
        .await;
        let ended = server.events("bulk-job").await;
        let ended = ended.iter().rev().find(|(what, _)| what == "cancelled" || what == "completed");
        let last = server.events("experiment").await.last().map_or(0, |(_, event)| event.seq);
        assert!(last < ended.unwrap().1.seq, "after {commits} commits");
    }
}

async fn a_shard_that_cannot_go_on_fails_and_its_job_ends(fresh: &Fresh) {
    let (source, gate) = gated(Small::of(300)).await;
    let mut config = config(&[("p", &source.url)]);
    config.shards_max = 1;
    config.source_retries_max = 20;
    let server = Server::start(fresh, &config).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    until("there are shards", async || server.objects("bulk-shard").await.len() == 2).await;
    for shard in server.objects("bulk-shard").await {
        let (blobs, store) = (&server.app.blobs, server.app.store.as_ref());
        let damaged = blobs.put(&shard.key, MEMBERS, None, b"[", false).unwrap();
        let change = Change { blobs: damaged, ..Change::default() };
        kernel::store::commit(store, change, server.app.ambient.now()).await.unwrap();
    }
    gate.add_permits(1);
    let job = server.completed(&id).await;
    let notice = &job.status.notices[0];
    assert!(notice.message.contains("members is damaged"), "{notice:?}");
    for counter in ["advisor/jobs/acme", "advisor/reads//p"] {
        let used = server.app.store.counter(counter).await.unwrap().map_or(0, |found| found.used);
        assert_eq!(used, 0, "{counter}");
    }
}
