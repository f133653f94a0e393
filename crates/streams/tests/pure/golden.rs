//! Comparisons with objects that the existing operator created, where they are available.

use serde_json::Value;
use streams::decide::action::Mode;
use streams::decide::build::{self, JobInputs};
use streams::model::backfill_request::BackfillRequest;
use streams::model::class::Class;
use streams::model::hash::{canonical_digest, md5_hex};
use streams::model::job::Job;
use streams::model::stream::Stream;
use streams::model::template::Template;
use streams::model::{CrdVersion, phase::Phase};

fn read(name: &str) -> Option<Value> {
    let file = testkit::shared("data/golden/streams")?.join(name);
    let text = std::fs::read_to_string(file).unwrap();
    let value: Value = serde_yaml_ng::from_str(&text).unwrap();
    if value["kind"] == "List" { Some(value["items"][0].clone()) } else { Some(value) }
}

fn of<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn class() -> Option<Class> {
    Some(Class::of(&of(&read("streamclass.yaml")?), CrdVersion::V1))
}

#[test]
fn the_hash_in_the_job_is_the_hash_of_the_stream() {
    let (Some(class), Some(stream), Some(job)) =
        (class(), read("stream-running.yaml"), read("job-streaming.yaml"))
    else {
        return;
    };
    let stream = Stream::of(&of(&stream), &class);
    let job = Job::of(&of(&job)).unwrap();
    assert_eq!(job.made_from.hash.as_deref(), Some(&*stream.hash));
    assert_eq!(job.made_from.canonical_digest, Some(stream.canonical_digest));
    assert_eq!(stream.phase, Phase::Running);
    assert!(!job.backfilling);
}

#[test]
fn the_job_of_a_backfill_matches_the_spec_before_it_was_rewritten() {
    let (Some(class), Some(stream), Some(raw)) =
        (class(), read("stream-running.yaml"), read("job-backfill.yaml"))
    else {
        return;
    };
    let stream = Stream::of(&of(&stream), &class);
    let job = Job::of(&of(&raw)).unwrap();
    assert!(job.backfilling);
    assert_eq!(job.backfill_id.as_deref(), Some("gold1-initial-backfill-7hjvs"));
    assert_eq!(job.made_from.canonical_digest, Some(stream.canonical_digest));
    let env = &raw["spec"]["template"]["spec"]["containers"][0]["env"];
    let spec = env.as_array().unwrap().iter().find(|v| v["name"] == "STREAMCONTEXT__SPEC").unwrap();
    let spec = spec["value"].as_str().unwrap();
    // Both halves of the hash: of the original spec and of the request.
    let (first, second) = job.made_from.hash.as_deref().unwrap().split_once(':').unwrap();
    assert_eq!(build_hex(&md5_hex(spec.as_bytes())), first);
    let mut request = BackfillRequest::of(&of(&read("backfillrequest.yaml").unwrap()));
    request.completed = false;
    assert_eq!(build_hex(&md5_hex(request.json().as_bytes())), second);
    let value: Value = serde_json::from_str(spec).unwrap();
    assert_eq!(canonical_digest(&value, &[]), stream.canonical_digest);
}

fn build_hex(text: &str) -> String {
    streams::model::hash::hex(text.as_bytes())
}

/// Fields that the API server adds to a Job.
fn without_defaults(mut job: Value) -> Value {
    let metadata = job["metadata"].as_object_mut().unwrap();
    metadata.retain(|name, _| {
        ["name", "namespace", "labels", "annotations", "ownerReferences"].contains(&name.as_str())
    });
    let spec = job["spec"].as_object_mut().unwrap();
    spec.retain(|name, _| ["backoffLimit", "template"].contains(&name.as_str()));
    let template = job["spec"]["template"].as_object_mut().unwrap();
    template.retain(|name, _| name == "spec");
    let pod = template["spec"].as_object_mut().unwrap();
    pod.retain(|name, _| ["containers", "restartPolicy"].contains(&name.as_str()));
    let container = pod["containers"][0].as_object_mut().unwrap();
    container.retain(|name, _| ["name", "image", "env", "envFrom"].contains(&name.as_str()));
    job.as_object_mut().unwrap().retain(|name, _| name != "status");
    job
}

#[test]
fn jobs_equal_those_of_the_existing_operator() {
    let (Some(class), Some(stream), Some(template)) =
        (class(), read("stream-running.yaml"), read("template-after-prune.yaml"))
    else {
        return;
    };
    let stream = Stream::of(&of(&stream), &class);
    let template = Template::of(&of(&template), CrdVersion::V1);
    let job_inputs =
        JobInputs { class: &class, stream: &stream, template: &template, secrets: None };
    let ours = without_defaults(build::job_manifest(&job_inputs, &Mode::Stream, None).unwrap());
    let theirs = without_defaults(read("job-streaming.yaml").unwrap());
    assert_eq!(ours, theirs, "\n{ours:#}\n{theirs:#}");
}

#[test]
fn backfill_jobs_equal_those_of_the_existing_operator() {
    let (Some(class), Some(stream), Some(template)) =
        (class(), read("stream-running.yaml"), read("template-after-prune.yaml"))
    else {
        return;
    };
    let theirs = without_defaults(read("job-backfill.yaml").unwrap());
    let env = theirs["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let spec = env.iter().find(|v| v["name"] == "STREAMCONTEXT__SPEC").unwrap();
    let mut stream: Value = stream;
    stream["spec"] = serde_json::from_str(spec["value"].as_str().unwrap()).unwrap();
    let stream = Stream::of(&of(&stream), &class);
    let mut template: Value = template;
    template["spec"]["spec"]["template"]["spec"]["containers"][0]["image"] = "mock:ok".into();
    let template = Template::of(&of(&template), CrdVersion::V1);
    let mut request = BackfillRequest::of(&of(&read("backfillrequest.yaml").unwrap()));
    request.completed = false;
    let job_inputs =
        JobInputs { class: &class, stream: &stream, template: &template, secrets: None };
    let mode = Mode::Backfill(Some((*request.object_name.name).into()));
    let ours = without_defaults(build::job_manifest(&job_inputs, &mode, Some(&request)).unwrap());
    assert_eq!(ours, theirs, "\n{ours:#}\n{theirs:#}");
}
