//! Experiments that are created.

use futures::future::join_all;
use serde_json::{Value, json};
use testkit::stores::Fresh;

use crate::support::server::{Server, config};

testkit::on_every_store!(
    the_longest_texts_are_stored_and_found,
    of_many_at_the_same_time_one_creates_the_experiment,
    the_events_and_the_audit_log_say_who_created_it,
);

fn body(name: &str, workload: &str) -> Value {
    json!({
        "experiment_name": name, "target_cluster": "remote",
        "kubernetes_objects": [{
            "type": workload, "name": workload, "namespace": workload,
            "containers": [{ "container_name": workload, "container_image_name": name }],
        }],
    })
}

async fn the_longest_texts_are_stored_and_found(fresh: &Fresh) {
    let server = Server::start(fresh, &config(&[])).await;
    // Four bytes each, and none like another, so that nothing can compress them.
    let letter = |i: usize| char::from_u32(0x10_000 + i as u32).unwrap();
    let name: String = (0..512).map(letter).collect();
    let workload: String = (0..253).map(|i| letter(1000 + i)).collect();
    server.command("acme", "experiment.create", None, body(&name, &workload)).await.unwrap();
    let query = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("experiment_name", &name)
        .append_pair("rm", "true")
        .finish();
    let listed = server.get(&format!("/listExperiments?{query}")).await;
    assert_eq!(listed.status, 200, "{}", listed.text);
    assert_eq!(listed.body[0]["kubernetes_objects"][0]["namespace"], workload);
}

async fn of_many_at_the_same_time_one_creates_the_experiment(fresh: &Fresh) {
    let server = Server::start(fresh, &config(&[])).await;
    let create = |_| server.command("acme", "experiment.create", None, body("e", "web"));
    let outcomes = join_all((0..8).map(create)).await;
    let (created, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!(created.len(), 1);
    for error in refused {
        assert_eq!(error.unwrap_err().to_string(), "Experiment name already exists: e");
    }
    assert_eq!(server.experiments().await.len(), 1);
}

async fn the_events_and_the_audit_log_say_who_created_it(fresh: &Fresh) {
    let server = Server::start(fresh, &config(&[])).await;
    server.command("acme", "experiment.create", None, body("e", "web")).await.unwrap();
    let events = server.events("experiment").await;
    assert_eq!(events.iter().map(|(what, _)| what.as_str()).collect::<Vec<_>>(), ["created"]);
    let audit = server.app.store.audit(&Default::default(), 10).await.unwrap();
    let [found] = &audit[..] else { panic!("{audit:?}") };
    assert_eq!((found.entry.actor.as_str(), found.entry.org.as_str()), ("alice", "acme"));
    assert_eq!(found.entry.action, "experiment.create");
    assert_eq!(found.entry.target, events[0].1.subject.to_string());
}
