//! Data sources that are replaced and deleted, also while a job reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use advisor::model::job::{SHARD, ShardPhase};
use serde_json::json;
use testkit::stores::Fresh;

use super::{delete, made, message, open_config, put};
use crate::support::server::{Server, until};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

testkit::on_every_store!(
    a_replaced_data_source_is_read_with_its_own_secrets_alone,
    one_that_is_replaced_while_a_job_reads_is_read_by_what_comes_next,
    one_that_is_deleted_while_a_job_reads_is_gone_for_what_comes_next,
    every_replica_sees_a_change_at_once,
);

async fn a_replaced_data_source_is_read_with_its_own_secrets_alone(fresh: &Fresh) {
    let first = StandIn::new(|seen| Small::of(1).reply(seen)).await;
    let second = StandIn::new(|seen| Small::of(2).reply(seen)).await;
    let server = Server::start(fresh, &open_config()).await;
    let bearer = json!({ "type": "bearer", "token": "hunter2-first" });
    let with_token = json!({ "url": first.url, "authentication": bearer });
    assert_eq!(put(&server, "own", &with_token).await.status, 201);
    let run = async || {
        let id = server.create(json!({ "datasource": "own" })).await.unwrap();
        server.completed(&id).await.status.total
    };
    assert_eq!(run().await, 1);
    assert!(first.seen().iter().all(|seen| seen.header("authorization") == "Bearer hunter2-first"));
    let asked = first.seen().len();
    assert_eq!(made(&server, "own", &second.url).await.status, 200);
    assert_eq!(run().await, 2);
    assert!(second.seen().iter().all(|seen| seen.header("authorization").is_empty()));
    assert_eq!(first.seen().len(), asked, "nobody asks the old one");
    let history: Vec<String> = server.events("datasource").await.into_iter().map(|e| e.0).collect();
    assert_eq!(history, ["created", "updated"]);

    assert_eq!(delete(&server, "own").await.status, 200);
    let error = server.create(json!({ "datasource": "own" })).await.unwrap_err().to_string();
    assert_eq!(error, "datasource: `own` is not known; there are: none");
    assert_eq!(server.get("/datasources?name=own").await.status, 400);
    // The same name again is a new one.
    assert_eq!(made(&server, "own", &first.url).await.status, 201);
    assert_eq!(run().await, 1);
    assert!(first.seen()[asked..].iter().all(|seen| seen.header("authorization").is_empty()));
}

/// A data source of so many containers that is too busy to measure them until the flag is set.
async fn busy(containers: usize) -> (StandIn, Arc<AtomicBool>) {
    let ready = Arc::new(AtomicBool::new(false));
    let (small, is_ready) = (Small::of(containers), ready.clone());
    let source = StandIn::new(move |seen| {
        if seen.is_range() && !is_ready.load(Ordering::SeqCst) {
            return Reply::status(429);
        }
        small.reply(seen)
    })
    .await;
    (source, ready)
}

/// Waits until the job's first shards are being read.
async fn reading(server: &Server, source: &StandIn) {
    until("it is being read", async || {
        let shards = server.objects(SHARD).await;
        let reading = shards.iter().filter(|shard| shard.phase == ShardPhase::Reading.label());
        reading.count() == 2 && source.seen().iter().any(|seen| seen.is_range())
    })
    .await;
}

async fn one_that_is_replaced_while_a_job_reads_is_read_by_what_comes_next(fresh: &Fresh) {
    let (first, ready) = busy(1000).await;
    let second = StandIn::new(|seen| Small::of(1000).reply(seen)).await;
    let server = Server::start(fresh, &open_config()).await;
    made(&server, "own", &first.url).await;
    let id = server.create(json!({ "datasource": "own" })).await.unwrap();
    reading(&server, &first).await;
    assert_eq!(made(&server, "own", &second.url).await.status, 200);
    ready.store(true, Ordering::SeqCst);
    let job = server.completed(&id).await;
    assert_eq!((job.status.processed, job.status.failed), (1000, 0));
    assert!(second.seen().iter().any(|seen| seen.is_range()));
}

async fn one_that_is_deleted_while_a_job_reads_is_gone_for_what_comes_next(fresh: &Fresh) {
    let (source, ready) = busy(1000).await;
    let server = Server::start(fresh, &open_config()).await;
    made(&server, "own", &source.url).await;
    let id = server.create(json!({ "datasource": "own" })).await.unwrap();
    reading(&server, &source).await;
    let deleted = delete(&server, "own").await;
    assert_eq!(
        message_of(&deleted),
        "Datasource : own deleted successfully. View datasources at /datasources"
    );
    ready.store(true, Ordering::SeqCst);
    // Shards that are being read end, unless their lease is lost and they begin again; the others say why
    // they do not begin.
    let job = server.completed(&id).await;
    assert_eq!(job.status.processed, 1000);
    // One of the two may have been about to begin.
    assert!([500, 750, 1000].contains(&job.status.failed), "{:?}", job.status);
    let [notice] = &job.status.notices[..] else { panic!("{:?}", job.status.notices) };
    assert!(notice.message.contains("`own` is not known any more"), "{notice:?}");
    assert_eq!(message(&delete(&server, "own").await), "the data source `own` does not exist");
}

fn message_of(answer: &crate::support::server::Answer) -> &str {
    assert_eq!(answer.status, 200, "{}", answer.text);
    message(answer)
}

async fn every_replica_sees_a_change_at_once(fresh: &Fresh) {
    let Some(other) = fresh.replica().await else { return };
    let first = StandIn::new(|seen| Small::of(1).reply(seen)).await;
    let second = StandIn::new(|seen| Small::of(2).reply(seen)).await;
    let here = Server::start(fresh, &open_config()).await;
    let there = Server::on(other, &open_config()).await;
    made(&here, "own", &first.url).await;
    for (url, containers) in [(&second.url, 2), (&first.url, 1), (&second.url, 2)] {
        made(&here, "own", url).await;
        let job = there.create(json!({ "datasource": "own" })).await.unwrap();
        assert_eq!(there.completed(&job).await.status.total, containers);
    }
    assert_eq!(delete(&here, "own").await.status, 200);
    assert!(there.create(json!({ "datasource": "own" })).await.is_err());
}
