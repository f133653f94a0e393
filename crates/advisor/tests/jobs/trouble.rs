//! Jobs on servers that are killed, and with data sources that fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use advisor::model::experiment::ExperimentPhase;
use advisor::model::job::JobPhase;
use serde_json::json;
use testkit::stores::Fresh;

use crate::support::server::{Server, config, until};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

testkit::on_every_store!(
    a_server_that_is_killed_again_and_again_loses_and_doubles_nothing,
    two_servers_share_a_job_and_one_is_killed,
    a_container_that_cannot_be_read_fails_alone,
    a_data_source_that_is_away_for_a_moment_is_waited_for,
    a_data_source_that_is_away_fails_the_job_at_once_or_its_creation,
);

async fn a_server_that_is_killed_again_and_again_loses_and_doubles_nothing(fresh: &Fresh) {
    let small = Small::of(1000);
    let source = StandIn::new(move |seen| small.reply(seen)).await;
    let config = config(&[("p", &source.url)]);
    let mut server = Server::start(fresh, &config).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    for commits in [1, 2, 4, 6, 9] {
        let before = server.app.store.newest_event().await.unwrap();
        until("it goes on", async || {
            let newest = server.app.store.newest_event().await.unwrap();
            newest >= before + commits || server.job(&id).await.phase.is_final()
        })
        .await;
        drop(server);
        server = Server::start(fresh, &config).await;
    }
    whole(&server, &id, 1000).await;
}

/// Each container has one result, and each experiment one event.
async fn whole(server: &Server, id: &str, containers: usize) {
    let job = server.completed(id).await;
    assert_eq!(job.status.processed as usize, containers);
    let mut results: BTreeMap<String, usize> = BTreeMap::new();
    for name in server.results(&job).await {
        *results.entry(name).or_default() += 1;
    }
    assert_eq!(results.len(), containers);
    assert!(results.values().all(|count| *count == 1));
    let mut events: BTreeMap<String, usize> = BTreeMap::new();
    for (what, event) in server.events("experiment").await {
        assert_eq!(what, "recommended");
        *events.entry(event.subject.to_string()).or_default() += 1;
    }
    assert_eq!(events.len(), containers);
    assert!(events.values().all(|count| *count == 1), "an experiment was published twice");
    let ends = server.events("bulk-job").await;
    assert_eq!(ends.iter().filter(|(what, _)| what == "completed").count(), 1);
    let last_experiment = server.events("experiment").await.last().unwrap().1.seq;
    let end = ends.iter().find(|(what, _)| what == "completed").unwrap();
    assert!(end.1.seq > last_experiment, "the job ends after its last experiment");
}

async fn two_servers_share_a_job_and_one_is_killed(fresh: &Fresh) {
    let Some(other) = fresh.replica().await else { return };
    let small = Small::of(1000);
    let source = StandIn::new(move |seen| small.reply(seen)).await;
    let config = config(&[("p", &source.url)]);
    let first = Server::start(fresh, &config).await;
    let second = Server::on(other, &config).await;
    let id = first.create(json!({ "datasource": "p" })).await.unwrap();
    until("it reads", async || first.job(&id).await.phase == JobPhase::Running).await;
    drop(first);
    whole(&second, &id, 1000).await;
}

async fn a_container_that_cannot_be_read_fails_alone(fresh: &Fresh) {
    let small = Small::of(9);
    let (all, answering) = (small.clone(), small.clone());
    let source = StandIn::new(move |seen| {
        if seen.is_range() && all.asked(seen.query()).iter().any(|name| *name == "c7") {
            return Reply::error(422, "execution", "query would load too many samples");
        }
        answering.reply(seen)
    })
    .await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    let job = server.completed(&id).await;
    assert_eq!((job.status.processed, job.status.failed), (9, 1));
    let notice = &job.status.notices[0];
    assert_eq!((notice.key, notice.code), (503, 503));
    assert!(notice.message.contains("too many samples"), "{notice:?}");
    let experiments = server.experiments().await;
    let failed = &experiments[&small.experiment("c7")];
    assert_eq!(failed.phase, ExperimentPhase::Failed);
    assert!(failed.status.error.as_ref().unwrap().contains("too many samples"));
    let recommended = experiments.values().filter(|one| one.phase == ExperimentPhase::Recommended);
    assert_eq!(recommended.count(), 8);
}

async fn a_data_source_that_is_away_for_a_moment_is_waited_for(fresh: &Fresh) {
    let small = Small::of(3);
    let refused = Arc::new(AtomicUsize::new(0));
    let source = StandIn::new(move |seen| {
        if seen.is_range() && refused.fetch_add(1, Ordering::SeqCst) < 25 {
            Reply::status(500)
        } else {
            small.reply(seen)
        }
    })
    .await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    let job = server.completed(&id).await;
    assert_eq!((job.status.processed, job.status.failed), (3, 0));
}

async fn a_data_source_that_is_away_fails_the_job_at_once_or_its_creation(fresh: &Fresh) {
    let small = Small::of(3);
    let away = Arc::new(AtomicBool::new(true));
    let is_away = away.clone();
    let source = StandIn::new(move |seen| {
        if is_away.load(Ordering::SeqCst) { Reply::status(500) } else { small.reply(seen) }
    })
    .await;
    let config = config(&[("p", &source.url), ("prometheus-1", &source.url)]);
    let server = Server::start(fresh, &config).await;
    let error = server.create(json!({ "datasource": "p" })).await.unwrap_err().to_string();
    assert!(error.starts_with("datasource: `p` does not answer"), "{error}");
    let error = server.create(json!({ "datasource": "q" })).await.unwrap_err().to_string();
    assert_eq!(error, "datasource: `q` is not known; there are: p, prometheus-1");
    // The default one is not asked before the job.
    let id = server.create(json!({})).await.unwrap();
    let job = server.ended(&id).await;
    assert_eq!((job.phase, job.status.notices[0].code), (JobPhase::Failed, 503));
}
