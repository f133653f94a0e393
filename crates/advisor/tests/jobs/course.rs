//! How jobs go when nothing is in the way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use advisor::model::experiment::ExperimentPhase;
use advisor::model::job::JobPhase;
use serde_json::json;
use testkit::stores::Fresh;

use crate::support::server::{Server, config};
use crate::support::small::Small;
use crate::support::stand_in::StandIn;

testkit::on_every_store!(
    a_job_recommends_for_every_container_once,
    a_second_job_counts_what_exists_and_changes_nothing_that_is_the_same,
    a_job_of_namespaces_recommends_for_each_as_a_whole,
    a_job_that_finds_nothing_completes_and_says_so,
    ten_jobs_at_once_each_have_their_own_containers,
    a_request_id_makes_one_job,
    a_large_job_has_several_shards_and_its_progress_never_falls,
    what_changes_is_an_event_and_is_found_by_its_labels,
);

/// A data source with this cluster, named `p`.
async fn cluster(small: &Small) -> StandIn {
    let small = small.clone();
    StandIn::new(move |seen| small.reply(seen)).await
}

async fn a_job_recommends_for_every_container_once(fresh: &Fresh) {
    let small = Small::of(30);
    let source = cluster(&small).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    let job = server.completed(&id).await;
    let status = &job.status;
    assert_eq!((status.total, status.processed, status.failed, status.existing), (30, 30, 0, 0));
    assert_eq!(status.notices, []);
    assert!(status.ended_at > status.started_at);
    let expected: BTreeSet<String> =
        small.containers.iter().map(|name| small.experiment(name)).collect();
    let results = server.results(&job).await;
    assert_eq!(results.len(), 30);
    assert_eq!(results.into_iter().collect::<BTreeSet<_>>(), expected);
    let experiments = server.experiments().await;
    assert_eq!(experiments.keys().cloned().collect::<BTreeSet<_>>(), expected);
    for (name, experiment) in &experiments {
        assert_eq!(experiment.phase, ExperimentPhase::Recommended, "{name}");
        assert_eq!(experiment.status.job.as_deref(), Some(id.as_str()));
        let figures = experiment.status.figures.as_ref().unwrap();
        assert_eq!(figures.terms["short_term"]["cost"].cpu, Some(0.5), "{figures:?}");
    }
    let events: Vec<String> = server.events("experiment").await.into_iter().map(|e| e.0).collect();
    assert_eq!(events, vec!["recommended"; 30]);
    let events: Vec<String> = server.events("bulk-job").await.into_iter().map(|e| e.0).collect();
    assert_eq!(events.last().map(String::as_str), Some("completed"));
    assert_eq!(events.iter().filter(|event| *event == "completed").count(), 1);
    assert!(
        server.app.store.counter("advisor/jobs/acme").await.unwrap().is_none_or(|c| c.used == 0)
    );
    assert!(
        server.app.store.counter("advisor/reads//p").await.unwrap().is_none_or(|c| c.used == 0)
    );
}

async fn a_second_job_counts_what_exists_and_changes_nothing_that_is_the_same(fresh: &Fresh) {
    let small = Small::of(3);
    let source = cluster(&small).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let first = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&first).await;
    let second = server.create(json!({ "datasource": "p" })).await.unwrap();
    let job = server.completed(&second).await;
    assert_eq!((job.status.total, job.status.processed, job.status.existing), (3, 3, 3));
    for experiment in server.experiments().await.values() {
        assert_eq!(experiment.status.job.as_deref(), Some(second.as_str()));
        assert_eq!(experiment.status.history.len(), 1);
    }
    let events: Vec<String> = server.events("experiment").await.into_iter().map(|e| e.0).collect();
    assert_eq!(events, ["recommended"; 6]);
}

async fn a_job_of_namespaces_recommends_for_each_as_a_whole(fresh: &Fresh) {
    let small = Small::of(3);
    let source = cluster(&small).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let types = json!(["namespace", "container"]);
    let body = json!({ "datasource": "p", "experiment_types": types });
    let id = server.create(body).await.unwrap();
    let job = server.completed(&id).await;
    assert_eq!((job.status.total, job.status.failed), (4, 0));
    let experiments = server.experiments().await;
    let namespace = &experiments["p|default|shop"];
    assert_eq!(namespace.spec.objects[0].namespace, "shop");
    let figures = namespace.status.figures.as_ref().unwrap();
    assert!(figures.terms["short_term"]["cost"].cpu.is_some(), "{figures:?}");
}

async fn a_job_that_finds_nothing_completes_and_says_so(fresh: &Fresh) {
    let source = cluster(&Small::of(0)).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    let job = server.completed(&id).await;
    assert_eq!((job.status.total, job.status.shards), (0, 0));
    assert_eq!(job.status.notices[0].message, "Nothing to do.");
    assert_eq!((job.status.notices[0].key, job.status.notices[0].code), (200, 400));
}

async fn ten_jobs_at_once_each_have_their_own_containers(fresh: &Fresh) {
    let small = Small::of(40);
    let source = cluster(&small).await;
    let mut config = config(&[("p", &source.url)]);
    config.jobs_max = 4;
    let server = Server::start(fresh, &config).await;
    let mut jobs = Vec::new();
    for number in 0..10 {
        let mine: Vec<String> = (0..4).map(|i| format!("c{}", number * 4 + i)).collect();
        let filter = json!({ "include": { "containers": mine } });
        let body = json!({ "datasource": "p", "filter": filter });
        jobs.push((server.create(body).await.unwrap(), mine));
    }
    for (id, mine) in jobs {
        let job = server.completed(&id).await;
        let mut results = server.results(&job).await;
        results.sort();
        let mut expected: Vec<String> = mine.iter().map(|name| small.experiment(name)).collect();
        expected.sort();
        assert_eq!(results, expected);
    }
}

async fn a_request_id_makes_one_job(fresh: &Fresh) {
    let source = cluster(&Small::of(2)).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let body = json!({ "datasource": "p", "requestId": "nightly-7" });
    let first = server.create(body.clone()).await.unwrap();
    server.completed(&first).await;
    assert_eq!(server.create(body).await.unwrap(), first);
    assert_eq!(server.objects("bulk-job").await.len(), 1);
    let other = json!({ "datasource": "p", "requestId": "nightly-7", "measurement_duration": "5" });
    let error = server.create(other).await.unwrap_err().to_string();
    assert!(error.contains("`nightly-7` was used for another request"), "{error}");
}

async fn a_large_job_has_several_shards_and_its_progress_never_falls(fresh: &Fresh) {
    let source = cluster(&Small::of(1200)).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    let job = server.completed(&id).await;
    assert_eq!((job.status.shards, job.status.processed), (5, 1200));
    let mut seen = (JobPhase::Queued, 0);
    for (what, event) in server.events("bulk-job").await {
        let object: serde_json::Value = event.data.parse().unwrap();
        let processed = object["status"]["processed"].as_u64().unwrap_or(0);
        let phase: JobPhase =
            kernel::label::Label::parse(object["phase"].as_str().unwrap()).unwrap();
        assert!(seen.0 <= phase && seen.1 <= processed, "{what}: {seen:?}");
        seen = (phase, processed);
    }
    assert_eq!(seen, (JobPhase::Completed, 1200));
}

async fn what_changes_is_an_event_and_is_found_by_its_labels(fresh: &Fresh) {
    let small = Small::of(3);
    let (doubled, known) = (Arc::new(AtomicBool::new(false)), small.clone());
    let more = doubled.clone();
    let source = StandIn::new(move |seen| {
        let value = if more.load(Ordering::SeqCst) { "0.5" } else { "0.25" };
        Small { value: value.into(), ..known.clone() }.reply(seen)
    })
    .await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    for twice in [false, true] {
        doubled.store(twice, Ordering::SeqCst);
        let id = server.create(json!({ "datasource": "p" })).await.unwrap();
        server.completed(&id).await;
    }
    let mut events: Vec<String> =
        server.events("experiment").await.into_iter().map(|event| event.0).collect();
    events.sort();
    let expected = [["changed"; 3], ["recommended"; 3]].concat();
    assert_eq!(events, expected);
    let found = server.get("/api/v1/search?q=kind:experiment%20label:workload=c1").await;
    let [one] = &found.body["objects"].as_array().unwrap()[..] else { panic!("{}", found.text) };
    assert_eq!(one["name"], small.experiment("c1"));
}
