//! Messages and webhook calls have the shape of recorded ones. What differs was chosen:
//!
//! - integers are integers, which the existing service writes as `1.0`;
//! - a message has its own experiment, not those of others that were published at the same time;
//! - the summary has no experiment, instead of one at random;
//! - nothing says `PUBLISHED`, which the existing service says before it has published;
//! - the webhook has the experiments once (`experiments`), not twice (`experimentMap`), and of the
//!   metadata what was found, not also what the filter leaves out.

use advisor::config::Config;
use serde_json::{Map, Value, json};
use testkit::stores;

use super::receiver::Receiver;
use super::{Published, published};
use crate::api::shape::differences;
use crate::support::cluster::Cluster;
use crate::support::recorded::unpack;
use crate::support::server::{Server, config, until};
use crate::support::stand_in::{Reply, StandIn};

fn whole(url: &str) -> Config {
    let mut settings = config(&[("prometheus-1", url)]);
    settings.topics.recommendations_include = "summary,experiments".into();
    settings.topics.error_include = "summary,experiments".into();
    settings
}

fn recorded(topic: &str) -> Value {
    let text = unpack(&format!("golden/{topic}.jsonl"));
    integers(serde_json::from_str(text.lines().next().unwrap()).unwrap())
}

/// Counts and codes as integers.
fn integers(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let member = |(name, value): (String, Value)| match (name.as_str(), value.as_f64()) {
                ("code" | "pods_count" | "datapoints", Some(number)) => {
                    (name, json!(number as i64))
                }
                _ => (name, integers(value)),
            };
            Value::Object(members.into_iter().map(member).collect())
        }
        Value::Array(items) => items.into_iter().map(integers).collect(),
        value => value,
    }
}

/// The summary and the one experiment, without its name.
fn parts(message: &Value, name: &str) -> (Value, Value) {
    let experiment = message["experiments"][name].clone();
    let (_, labels) = name.split_once("default|").unwrap();
    let (namespace, rest) = labels.split_once('|').unwrap();
    let (workload, container) = rest.split_once(")|").unwrap();
    let (workload, kind) = workload.split_once('(').unwrap();
    let text = experiment.to_string();
    let text = text.replace(container, "C").replace(workload, "W").replace(namespace, "N");
    let mut experiment: Value = serde_json::from_str(&text.replace(kind, "T")).unwrap();
    if let Some(request) = experiment["apis"]["create"]["request"].as_object_mut() {
        request.remove("experiment_id").unwrap();
        strip_image(request);
    }
    if let Some(object) = experiment.pointer_mut("/apis/recommendations/response/0") {
        strip_image(object.as_object_mut().unwrap());
    }
    (message["summary"].clone(), experiment)
}

fn strip_image(of: &mut Map<String, Value>) {
    for objects in ["kubernetes_objects", "kubernetesObjects"] {
        if let Some(container) =
            of.get_mut(objects).and_then(|it| it.pointer_mut("/0/containers/0"))
        {
            container["container_image_name"] = "I".into();
        }
    }
}

async fn job(server: &Server, body: Value) -> String {
    let id = server.create(body).await.unwrap();
    server.ended(&id).await;
    id
}

fn of_topic<'a>(messages: &'a [Published], topic: &str) -> Vec<&'a Published> {
    messages.iter().filter(|message| message.topic == topic).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn recommendations_and_summaries_have_the_recorded_shape() {
    let source = Cluster::recorded().start().await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &whole(&source.url)).await;
    job(&server, json!({})).await;
    let messages = published(&server).await;
    let ours = of_topic(&messages, "recommendations-topic");
    let ours = ours.iter().find(|one| one.experiments()[0].ends_with("|busy")).unwrap();
    let name = ours.experiments()[0].to_owned();
    let was = recorded("recommendations-topic");
    let recorded_name = was["experiments"].as_object().unwrap().keys().next().unwrap().clone();
    let (mut summary, experiment) = parts(&was, &recorded_name);
    summary["processed_experiments"] = ours.body["summary"]["processed_experiments"].clone();
    let (our_summary, our_experiment) = parts(&ours.body, &name);
    assert_eq!(differences(&summary, &our_summary), [""; 0]);
    assert_eq!(differences(&experiment, &our_experiment), [""; 0]);

    let last = messages.last().unwrap();
    let mut was = recorded("summary-topic");
    was.as_object_mut().unwrap().remove("experiments").unwrap();
    assert_eq!(differences(&was, &last.body), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_the_recorded_shape() {
    let cluster = Cluster::recorded();
    let source = StandIn::new(move |seen| {
        if seen.is_range() {
            return Reply::error(422, "execution", "query would load too many samples");
        }
        cluster.reply(seen)
    })
    .await;
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &whole(&source.url)).await;
    let filter = json!({ "include": { "namespace": ["ns-06", "ns-07"] } });
    job(&server, json!({ "filter": filter })).await;
    let messages = published(&server).await;
    let ours = of_topic(&messages, "error-topic");
    assert_eq!(ours.len(), 20);
    let name = ours[0].experiments()[0].to_owned();
    let was = recorded("error-topic");
    let recorded_name = was["experiments"].as_object().unwrap().keys().next().unwrap().clone();
    let (mut summary, experiment) = parts(&was, &recorded_name);
    let (our_summary, our_experiment) = parts(&ours[0].body, &name);
    summary["processed_experiments"] = our_summary["processed_experiments"].clone();
    assert_eq!(differences(&summary, &our_summary), [""; 0]);
    // Recorded was a failure to create; ours is one to recommend.
    let mut found = differences(&experiment, &our_experiment);
    found.retain(|one| !one.starts_with(".apis.create.response.") && !one.contains(".message: "));
    assert_eq!(found, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_call_has_the_recorded_shape() {
    let source = Cluster::recorded().start().await;
    let receiver = Receiver::start(|_| 200).await;
    let fresh = stores::sqlite().await.unwrap();
    let mut settings = whole(&source.url);
    settings.private_addresses = true;
    let server = Server::start(&fresh, &settings).await;
    let filter = json!({ "include": { "containers": ["idle"] } });
    // Recorded was an experiment that existed.
    job(&server, json!({ "filter": filter })).await;
    let body = json!({ "filter": filter, "webhook": { "url": receiver.url } });
    job(&server, body).await;
    until("the call", async || !receiver.calls().is_empty()).await;
    let call = &receiver.calls()[0];
    assert_eq!(call.header("content-type"), "application/json");
    let ours = call.json();
    let [ours] = &ours.as_array().unwrap()[..] else { panic!("{ours}") };
    let calls: Value = serde_json::from_str(&unpack("golden/webhook_call.json")).unwrap();
    let mut was = integers(calls[0]["body"][0].clone());
    was["summary"]["input"]["webhook"]["url"] = receiver.url.clone().into();
    let mut found = differences(&was, ours);
    found.retain(|one| !one.starts_with(".metadata."));
    let chosen = |one: &&String| {
        !(one.starts_with(".experimentMap: missing")
            || one.contains(".status: \"PUBLISHED\", \"PROCESSED\"")
            || one.contains(".status_history: 3 items, 2 items"))
    };
    assert_eq!(found.iter().filter(chosen).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(found.len(), 3, "{found:?}");
    // All that we found, the recorded call has as well; and names are as over REST.
    for difference in differences(&was["metadata"], &ours["metadata"]) {
        let named = difference.contains(".dataSourceClusterName: new");
        assert!(difference.ends_with(": missing") || named, "{difference}");
    }
}
