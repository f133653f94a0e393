//! Recommendations that are requested for one experiment: each has its answer, whatever else happens.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use advisor::model::experiment::{
    Experiment, ExperimentPhase, HISTORY_MAX, REQUESTS_MAX, experiment_key,
};
use advisor::store;
use kernel::Result;
use kernel::typed::Typed;
use serde_json::{Value, json};
use testkit::stores::Fresh;

use crate::support::server::{Server, config, of, until};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

testkit::on_every_store!(
    a_job_and_single_requests_at_the_same_time_lose_and_double_nothing,
    a_request_survives_a_server_that_is_killed,
    requests_of_different_windows_have_answers_of_their_own,
    further_requests_do_not_keep_the_first_from_its_answer,
    too_many_requests_that_wait_are_refused,
    only_so_many_results_are_kept,
    a_data_source_that_fails_is_the_answer_and_the_recommendation_stays,
    containers_of_the_same_name_are_distinguished_by_their_owner,
);

/// Requests a recommendation; returns the number of the request.
pub async fn request(server: &Server, name: &str, body: Value) -> Result<u32> {
    let key = experiment_key(of("acme"), name);
    let reply = server.command("acme", "experiment.recommend", Some(key), body).await?;
    let reply: Value = reply.parse()?;
    Ok(u32::try_from(reply["request"].as_u64().unwrap()).unwrap())
}

async fn experiment(server: &Server, name: &str) -> Typed<Experiment> {
    let found = store::experiment_named(server.app.store.as_ref(), of("acme"), name).await.unwrap();
    store::experiment(&found.unwrap()).unwrap()
}

async fn answered(server: &Server, name: &str, request: u32) -> Typed<Experiment> {
    until("the request is answered", async || {
        experiment(server, name).await.status.answered() >= request
    })
    .await;
    experiment(server, name).await
}

async fn cluster(small: &Small) -> StandIn {
    let small = small.clone();
    StandIn::new(move |seen| small.reply(seen)).await
}

/// A server with experiments of a job, and the name of one.
async fn recommended(fresh: &Fresh, source: &StandIn, small: &Small) -> (Server, String) {
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    (server, small.experiment("c0"))
}

/// The times of the snapshots in the newest result of an experiment.
async fn line(server: &Server, result: &advisor::model::job::ResultRef) -> Value {
    let results = store::results(&server.app, &result.of).await.unwrap().unwrap();
    let line = results.line(result.line as usize).unwrap().unwrap();
    serde_json::to_value(&line).unwrap()
}

async fn a_job_and_single_requests_at_the_same_time_lose_and_double_nothing(fresh: &Fresh) {
    let small = Small::of(20);
    let source = cluster(&small).await;
    let (server, name) = recommended(fresh, &source, &small).await;
    let mut numbers = BTreeSet::new();
    let mut jobs = Vec::new();
    for _ in 0..4 {
        jobs.push(server.create(json!({ "datasource": "p" })).await.unwrap());
        for _ in 0..3 {
            numbers.insert(request(&server, &name, json!({})).await.unwrap());
        }
    }
    assert_eq!(numbers, (1..=12).collect());
    for id in &jobs {
        let job = server.completed(id).await;
        assert_eq!((job.status.processed, job.status.failed), (20, 0));
        assert_eq!(server.results(&job).await.len(), 20);
    }
    let found = answered(&server, &name, 12).await;
    let answers: Vec<u32> = found.status.answers.iter().map(|answer| answer.request).collect();
    assert_eq!(answers, (1..=12).collect::<Vec<_>>());
    // Each result once: those of the five jobs, and those of the requests that were read together.
    let results: Vec<_> = found.status.results().cloned().collect();
    let of_jobs = results.iter().filter(|it| it.of.kind() == "bulk-shard").count();
    let own: BTreeSet<u32> =
        results.iter().filter(|it| it.of.kind() == "experiment").map(|it| it.line).collect();
    let answered: BTreeSet<u32> = found.status.answers.iter().map(|it| it.result.line).collect();
    assert_eq!((of_jobs, &own), (5, &answered));
    assert_eq!(results.len(), 5 + own.len());
    let events = server.events("experiment").await;
    let mut of_name = 0;
    for (what, event) in &events {
        let is_result = what != "requested" && event.subject == experiment_key(of("acme"), &name);
        of_name += usize::from(is_result);
    }
    assert_eq!(of_name, results.len(), "one event for each result");
    assert_eq!(found.phase, ExperimentPhase::Recommended);
    for result in &results {
        assert!(line(&server, result).await["recommendation"].is_object());
    }
}

async fn a_request_survives_a_server_that_is_killed(fresh: &Fresh) {
    let small = Small::of(2);
    let hangs = Arc::new(AtomicBool::new(false));
    let (is_hanging, answering) = (hangs.clone(), small.clone());
    let source = StandIn::new(move |seen| {
        if is_hanging.load(Ordering::SeqCst) { Reply::Hang } else { answering.reply(seen) }
    })
    .await;
    let (server, name) = recommended(fresh, &source, &small).await;
    hangs.store(true, Ordering::SeqCst);
    let before = source.seen().len();
    let number = request(&server, &name, json!({})).await.unwrap();
    until("it reads", async || source.seen().len() > before).await;
    drop(server);
    hangs.store(false, Ordering::SeqCst);
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let found = answered(&server, &name, number).await;
    assert_eq!(found.status.answers.len(), 1);
    assert_eq!(found.status.results().count(), 2);
}

async fn requests_of_different_windows_have_answers_of_their_own(fresh: &Fresh) {
    let small = Small::of(2);
    let source = cluster(&small).await;
    let (server, name) = recommended(fresh, &source, &small).await;
    let ends = ["2026-01-01T00:00:00.000Z", "2026-02-01T00:00:00.000Z"];
    for end in ends {
        request(&server, &name, json!({ "interval_end_time": end })).await.unwrap();
    }
    let found = answered(&server, &name, 2).await;
    for (answer, end) in found.status.answers.iter().zip(ends) {
        let line = line(&server, &answer.result).await;
        let containers = &line["recommendation"]["kubernetes_objects"][0]["containers"];
        let data = containers[0]["recommendations"]["data"].as_object().unwrap();
        assert_eq!(data.keys().collect::<Vec<_>>(), [end]);
    }
}

async fn further_requests_do_not_keep_the_first_from_its_answer(fresh: &Fresh) {
    let small = Small::of(2);
    let gate = Arc::new(AtomicBool::new(true));
    let (is_open, answering) = (gate.clone(), small.clone());
    let source = StandIn::new(move |seen| {
        if is_open.load(Ordering::SeqCst) { answering.reply(seen) } else { Reply::status(503) }
    })
    .await;
    let (server, name) = recommended(fresh, &source, &small).await;
    gate.store(false, Ordering::SeqCst);
    let before = source.seen().len();
    request(&server, &name, json!({})).await.unwrap();
    until("it reads", async || source.seen().len() > before).await;
    // The attempt goes on although the experiment has a newer generation.
    for number in 2..=5 {
        assert_eq!(request(&server, &name, json!({})).await.unwrap(), number);
    }
    gate.store(true, Ordering::SeqCst);
    let found = answered(&server, &name, 5).await;
    let lines: BTreeSet<u32> = found.status.answers.iter().map(|it| it.result.line).collect();
    assert_eq!(lines.len(), 2, "the first alone, the others together: {:?}", found.status.answers);
}

async fn too_many_requests_that_wait_are_refused(fresh: &Fresh) {
    let small = Small::of(2);
    let hangs = Arc::new(AtomicBool::new(false));
    let (is_hanging, answering) = (hangs.clone(), small.clone());
    let source = StandIn::new(move |seen| {
        if is_hanging.load(Ordering::SeqCst) { Reply::Hang } else { answering.reply(seen) }
    })
    .await;
    let (server, name) = recommended(fresh, &source, &small).await;
    hangs.store(true, Ordering::SeqCst);
    for _ in 0..REQUESTS_MAX {
        request(&server, &name, json!({})).await.unwrap();
    }
    let error = request(&server, &name, json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "too many requests; try again in 5 s");
    hangs.store(false, Ordering::SeqCst);
    answered(&server, &name, REQUESTS_MAX as u32).await;
    request(&server, &name, json!({})).await.unwrap();
}

async fn only_so_many_results_are_kept(fresh: &Fresh) {
    let small = Small::of(2);
    let source = cluster(&small).await;
    let (server, name) = recommended(fresh, &source, &small).await;
    let rounds = HISTORY_MAX as u32 + 20;
    for number in 1..=rounds {
        assert_eq!(request(&server, &name, json!({})).await.unwrap(), number);
        answered(&server, &name, number).await;
    }
    let found = experiment(&server, &name).await;
    assert_eq!(found.status.history.len(), HISTORY_MAX);
    assert_eq!(found.status.answers.len(), REQUESTS_MAX);
    assert_eq!(found.spec.requests.len(), 1, "those that were answered are dropped");
    for result in found.status.results() {
        assert_eq!(line(&server, result).await["experiment"]["name"], name.as_str());
    }
    let key = experiment_key(of("acme"), &name);
    let results = store::results(&server.app, &key).await.unwrap().unwrap();
    let kept = (0..results.len()).filter(|line| !results.text(*line).unwrap().is_empty());
    assert!(kept.count() <= HISTORY_MAX + 1 + REQUESTS_MAX);
}

async fn a_data_source_that_fails_is_the_answer_and_the_recommendation_stays(fresh: &Fresh) {
    let small = Small::of(2);
    let away = Arc::new(AtomicBool::new(false));
    let (is_away, answering) = (away.clone(), small.clone());
    let source = StandIn::new(move |seen| {
        if is_away.load(Ordering::SeqCst) {
            Reply::error(422, "execution", "it went wrong")
        } else {
            answering.reply(seen)
        }
    })
    .await;
    let (server, name) = recommended(fresh, &source, &small).await;
    let before = experiment(&server, &name).await;
    away.store(true, Ordering::SeqCst);
    let number = request(&server, &name, json!({})).await.unwrap();
    let found = answered(&server, &name, number).await;
    assert_eq!(found.phase, ExperimentPhase::Failed);
    assert!(found.status.error.as_ref().unwrap().contains("it went wrong"), "{:?}", found.status);
    assert_eq!(found.status.result, before.status.result, "what was recommended is still there");
    assert_eq!(found.status.failed.as_ref(), Some(&found.status.answers[0].result));
    away.store(false, Ordering::SeqCst);
    let number = request(&server, &name, json!({})).await.unwrap();
    let found = answered(&server, &name, number).await;
    assert_eq!((found.phase, &found.status.error), (ExperimentPhase::Recommended, &None));
}

async fn containers_of_the_same_name_are_distinguished_by_their_owner(fresh: &Fresh) {
    let small = Small::of(1);
    let answering = small.clone();
    // Another workload of the namespace has a container of the same name.
    let source = StandIn::new(move |seen| {
        let mut answer = answering.answer(seen);
        let result = answer["data"]["result"].as_array_mut().unwrap();
        let owned = ["kube_pod_container_info", "kube_pod_owner"];
        if owned.iter().any(|metric| seen.query().contains(metric))
            && let Some(mut other) = result.first().cloned()
            && other["metric"].get("workload").is_some()
        {
            other["metric"]["workload"] = "other".into();
            result.push(other);
        }
        Reply::Json(answer)
    })
    .await;
    let (server, name) = recommended(fresh, &source, &small).await;
    let before = source.seen().len();
    let number = request(&server, &name, json!({})).await.unwrap();
    answered(&server, &name, number).await;
    let seen = source.seen();
    let ranges = seen[before..].iter().filter(|seen| seen.is_range());
    let texts: Vec<&str> = ranges.map(|seen| seen.query()).collect();
    assert!(!texts.is_empty());
    for text in texts {
        assert!(text.contains("namespace_workload_pod:kube_pod_owner:relabel"), "{text}");
    }
}
