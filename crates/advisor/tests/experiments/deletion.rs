//! Experiments that are deleted: nothing of theirs is left, and they come back only if a job finds them
//! again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use advisor::model::experiment::experiment_key;
use advisor::store;
use serde_json::json;
use testkit::stores::Fresh;

use super::requests::request;
use crate::support::server::{Server, config, of, until};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

testkit::on_every_store!(
    a_deleted_experiment_leaves_no_data_and_can_be_created_again,
    a_job_that_found_it_before_does_not_bring_it_back_and_the_next_one_does,
    a_request_for_an_experiment_that_is_deleted_writes_nothing,
    an_experiment_of_another_organisation_is_not_found,
);

async fn delete(server: &Server, name: &str) -> kernel::Result<()> {
    let key = experiment_key(of("acme"), name);
    server.command("acme", "experiment.delete", Some(key), json!({})).await.map(drop)
}

async fn exists(server: &Server, name: &str) -> bool {
    store::experiment_named(server.app.store.as_ref(), of("acme"), name).await.unwrap().is_some()
}

/// A cluster that answers no query of a shard while `hangs` is true.
async fn cluster(small: &Small, hangs: &Arc<AtomicBool>) -> StandIn {
    let (small, hangs) = (small.clone(), hangs.clone());
    StandIn::new(move |seen| {
        let reading = seen.is_range() && hangs.load(Ordering::SeqCst);
        if reading { Reply::status(503) } else { small.reply(seen) }
    })
    .await
}

async fn a_deleted_experiment_leaves_no_data_and_can_be_created_again(fresh: &Fresh) {
    let small = Small::of(2);
    let source = cluster(&small, &Arc::default()).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    let name = small.experiment("c0");
    let key = experiment_key(of("acme"), &name);
    request(&server, &name, json!({})).await.unwrap();
    until("it has results of its own", async || {
        store::results(&server.app, &key).await.unwrap().is_some()
    })
    .await;
    delete(&server, &name).await.unwrap();
    assert!(!exists(&server, &name).await);
    assert!(server.app.store.blobs(&key).await.unwrap().is_empty());
    let error = delete(&server, &name).await.unwrap_err();
    assert!(matches!(error, kernel::Error::NotFound(_)), "{error}");
    let container = json!({ "container_name": "c0" });
    let object = json!({
        "type": "deployment", "name": "c0", "namespace": "shop", "containers": [container],
    });
    let body = json!({
        "experiment_name": name, "datasource": "p", "kubernetes_objects": [object],
    });
    server.command("acme", "experiment.create", None, body.clone()).await.unwrap();
    let again = &server.experiments().await[&name];
    assert_eq!(again.status, Default::default(), "nothing of before is left");
    let error = server.command("acme", "experiment.create", None, body).await.unwrap_err();
    assert_eq!(error.to_string(), format!("Experiment name already exists: {name}"));
}

async fn a_job_that_found_it_before_does_not_bring_it_back_and_the_next_one_does(fresh: &Fresh) {
    let small = Small::of(3);
    let hangs = Arc::new(AtomicBool::new(false));
    let source = cluster(&small, &hangs).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    let name = small.experiment("c1");
    hangs.store(true, Ordering::SeqCst);
    let before = source.seen().iter().filter(|seen| seen.is_range()).count();
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    until("the job reads", async || {
        source.seen().iter().filter(|seen| seen.is_range()).count() > before
    })
    .await;
    delete(&server, &name).await.unwrap();
    hangs.store(false, Ordering::SeqCst);
    let job = server.completed(&id).await;
    assert_eq!(job.status.processed, 3);
    assert!(!exists(&server, &name).await);
    assert_eq!(server.experiments().await.len(), 2);
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    let again = &server.experiments().await[&name];
    assert_eq!((again.status.results().count(), server.experiments().await.len()), (1, 3));
}

async fn a_request_for_an_experiment_that_is_deleted_writes_nothing(fresh: &Fresh) {
    let small = Small::of(2);
    let hangs = Arc::new(AtomicBool::new(false));
    let source = cluster(&small, &hangs).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let id = server.create(json!({ "datasource": "p" })).await.unwrap();
    server.completed(&id).await;
    let name = small.experiment("c0");
    let key = experiment_key(of("acme"), &name);
    hangs.store(true, Ordering::SeqCst);
    let before = source.seen().iter().filter(|seen| seen.is_range()).count();
    request(&server, &name, json!({})).await.unwrap();
    until("it reads", async || {
        source.seen().iter().filter(|seen| seen.is_range()).count() > before
    })
    .await;
    delete(&server, &name).await.unwrap();
    hangs.store(false, Ordering::SeqCst);
    // The worker is done with it.
    until("its work ends", async || {
        let filter = kernel::store::WorkFilter { key: Some(key.clone()), ..Default::default() };
        let rows = server.app.store.work(&filter, 10).await.unwrap();
        rows.iter().all(|row| row.state != kernel::queue::State::Running)
            && !exists(&server, &name).await
    })
    .await;
    assert!(server.app.store.blobs(&key).await.unwrap().is_empty());
    let last = server.events("experiment").await;
    let last = last.iter().rfind(|(_, event)| event.subject == key).unwrap();
    assert_eq!(last.0, "deleted");
}

async fn an_experiment_of_another_organisation_is_not_found(fresh: &Fresh) {
    let small = Small::of(1);
    let source = cluster(&small, &Arc::default()).await;
    let server = Server::start(fresh, &config(&[("p", &source.url)])).await;
    let object = json!({
        "type": "deployment", "name": "w", "namespace": "n",
        "containers": [{ "container_name": "secret" }],
    });
    let body = json!({
        "experiment_name": "theirs", "datasource": "p", "kubernetes_objects": [object],
    });
    server.command("other", "experiment.create", None, body.clone()).await.unwrap();
    for path in ["/listExperiments", "/listRecommendations", "/listRecommendations?job_id=x"] {
        assert_eq!(server.get(path).await.body, json!([]), "{path}");
    }
    for (method, path) in [
        ("GET", "/listExperiments?experiment_name=theirs"),
        ("GET", "/listRecommendations?experiment_name=theirs"),
        ("POST", "/generateRecommendations?experiment_name=theirs"),
        (
            "POST",
            "/updateRecommendations?experiment_name=theirs&interval_end_time=2026-01-01T00:00:00Z",
        ),
    ] {
        let answer = server.call(method, path, "").await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(!answer.text.contains("secret"));
    }
    let body = json!([{ "experiment_name": "theirs" }]).to_string();
    assert_eq!(server.call("DELETE", "/createExperiment", &body).await.status, 400);
    let key = experiment_key(of("other"), "theirs");
    let error =
        server.command("acme", "experiment.delete", Some(key), json!({})).await.unwrap_err();
    assert!(matches!(error, kernel::Error::NotFound(_)), "{error}");
    // The same name is free.
    let mine = json!({
        "experiment_name": "theirs", "datasource": "p",
        "kubernetes_objects": [{
            "type": "deployment", "name": "w", "namespace": "n",
            "containers": [{ "container_name": "mine" }],
        }],
    });
    server.command("acme", "experiment.create", None, mine).await.unwrap();
    assert_eq!(server.get("/listExperiments").await.body.as_array().unwrap().len(), 1);
}
