//! One test for each thing that there is to say.

use serde_json::{Value, json};

use super::*;
use crate::model::Line;
use crate::model::class::RawClass;
use crate::model::job::{Fate, RawCron, RawJob};
use crate::model::request::RawRequest;
use crate::model::stream::RawStream;

const NOW: &str = "2026-11-16T12:00:00Z";

fn class(status: Value) -> Class {
    let raw = json!({ "metadata": { "name": "parquet-stream" }, "status": status, "spec": {
        "apiVersion": "v1", "kindRef": "ParquetStream", "pluralName": "parquet-streams",
    } });
    Class::of(serde_json::from_value::<RawClass>(raw).unwrap(), Line::V1)
}

fn capture() -> Value {
    let template = json!({ "name": "standard", "namespace": "tpl" });
    json!({ "execution": {
        "layoutVersion": "v1", "suspended": false, "backfillJobTemplateRef": template,
        "streamingBackend": { "changeCapture": { "jobTemplateRef": template } },
    } })
}

fn batch(schedule: &str) -> Value {
    let mut spec = capture();
    let template = spec["execution"]["backfillJobTemplateRef"].clone();
    spec["execution"]["streamingBackend"] =
        json!({ "batch": { "schedule": schedule, "jobTemplateRef": template } });
    spec
}

/// A stream that runs well.
fn seen(spec: Value, phase: &str, message: &str) -> Seen {
    let class = class(json!({ "phase": "Ready" }));
    let raw = json!({
        "metadata": { "name": "orders", "namespace": "prod", "uid": "u1" },
        "spec": spec,
        "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": "True", "message": message }] },
    });
    let stream = Stream::of(serde_json::from_value::<RawStream>(raw).unwrap(), &class);
    let lease = Lease {
        holder: "operator-1".into(),
        duration_s: 15,
        renewed: "2026-11-16T11:59:58Z".parse().unwrap(),
        ..Lease::default()
    };
    Seen {
        now: NOW.parse().unwrap(),
        stream,
        class,
        classed: true,
        suspended: None,
        downtime: None,
        job: Some(job(json!({}), json!({}))),
        cron: None,
        stuck_pods: Vec::new(),
        requests: Vec::new(),
        templates: vec![(Place::new("tpl", "standard"), None)],
        operator: Operator::Lease(Place::new("ops", "mainstay-operator"), lease),
        events: Vec::new(),
    }
}

fn running() -> Seen {
    seen(capture(), "Running", "The stream is currently running.")
}

fn job(metadata: Value, status: Value) -> Job {
    let mut raw = json!({
        "metadata": {
            "name": "orders", "namespace": "prod", "uid": "j1",
            "creationTimestamp": "2026-11-16T09:00:00Z",
            "labels": { "arcane/stream-id": "orders", "arcane/backfilling": "false" },
            "ownerReferences": [{ "kind": "ParquetStream", "name": "orders", "uid": "u1", "controller": true }],
        },
        "spec": { "template": { "spec": { "containers": [{ "env": [
            { "name": "STREAMCONTEXT__BACKFILL_ID", "value": "orders-backfill-x" },
        ] }] } } },
        "status": status,
    });
    for (name, value) in metadata.as_object().unwrap() {
        raw["metadata"][name] = value.clone();
    }
    Job::of(serde_json::from_value::<RawJob>(raw).unwrap()).unwrap()
}

fn backfill_job() -> Job {
    let labels = json!({ "arcane/stream-id": "orders", "arcane/backfilling": "true" });
    job(json!({ "labels": labels }), json!({}))
}

fn request(name: &str, status: Value) -> Request {
    let raw = json!({
        "metadata": { "name": name, "namespace": "prod", "creationTimestamp": "2026-11-16T11:50:00Z" },
        "spec": { "streamClass": "parquet-stream", "streamId": "orders" },
        "status": status,
    });
    Request::of(serde_json::from_value::<RawRequest>(raw).unwrap())
}

fn cron(status: Value) -> Cron {
    let raw = json!({
        "metadata": { "name": "orders", "namespace": "prod", "annotations": { "configuration-hash": "x" } },
        "spec": { "schedule": "0 * * * *" },
        "status": status,
    });
    Cron::of(serde_json::from_value::<RawCron>(raw).unwrap()).unwrap()
}

/// The first thing said has this code, and all of these words are in it.
#[track_caller]
fn says(seen: &Seen, code: &str, words: &[&str]) {
    let reasons = explain(seen);
    let all = format!("{reasons:#?}");
    assert_eq!(reasons[0].code, code, "{all}");
    for word in words {
        let first = format!("{} {}", reasons[0].says, reasons[0].change);
        assert!(first.contains(word), "{word} is not in: {first}");
    }
}

#[test]
fn a_running_stream_runs_and_nothing_needs_to_change() {
    let seen = running();
    says(&seen, "running", &["2026-11-16 09:00:00Z", "3 h ago"]);
    assert_eq!(explain(&seen).len(), 1);
    assert_eq!(explain(&seen)[0].change, "");
}

#[test]
fn a_suspended_stream_names_the_field_and_the_command() {
    let mut seen = running();
    (seen.job, seen.suspended) = (None, Some("spec.execution.suspended"));
    let start = "mainstay stream start ParquetStream/orders -n prod";
    says(&seen, "suspended", &["spec.execution.suspended is true", start]);
    seen.requests = vec![request("a", json!({})), request("b", json!({}))];
    says(&seen, "suspended", &["2 open backfill requests wait"]);
    seen.suspended = Some("the annotation arcane/state");
    says(&seen, "suspended", &["the annotation arcane/state says so"]);
}

#[test]
fn a_downtime_is_named_with_its_begin_and_its_end() {
    let mut seen = running();
    (seen.job, seen.suspended) = (None, Some("spec.suspended"));
    seen.downtime = Some(("db-move".into(), Some("2026-11-16T08:00:00Z".into())));
    says(&seen, "downtime", &["db-move since 2026-11-16T08:00:00Z", "downtime stop db-move"]);
}

#[test]
fn a_paused_stream_is_left_alone() {
    let mut seen = running();
    seen.stream.wishes.paused = true;
    says(
        &seen,
        "paused",
        &["mainstay.io/pause", "kubectl annotate parquet-streams orders -n prod"],
    );
}

#[test]
fn a_failed_stream_says_what_kubernetes_said_of_its_job() {
    let mut seen = seen(capture(), "Failed", "The stream has failed: BackoffLimitExceeded.");
    seen.job = None;
    says(&seen, "failed", &["BackoffLimitExceeded", "stays so", "stream restart"]);
    let conditions = json!({ "conditions": [
        { "type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long" },
    ] });
    seen.job = Some(job(json!({}), conditions));
    says(&seen, "failed", &["DeadlineExceeded: too long"]);
    seen.stream.wishes.recover = true;
    seen.stream.wishes.recovered = Some((3, "2026-11-16T11:58:00Z".parse().unwrap()));
    says(&seen, "failed", &["3 failures so far, the last 2 min ago"]);
}

#[test]
fn without_a_message_the_newest_warning_says_why_it_failed() {
    // As the existing operator writes it.
    let mut seen = seen(capture(), "Failed", "The stream has failed.");
    seen.job = None;
    says(&seen, "failed", &["nothing says why"]);
    seen.events = vec![Event {
        at: NOW.parse().unwrap(),
        warning: true,
        reason: "StreamingJobFailed".into(),
        message: "exit code 1".into(),
        by: "arcane-operator".into(),
    }];
    says(&seen, "failed", &["exit code 1"]);
}

#[test]
fn a_mistake_in_the_spec_is_named_by_its_field() {
    let mut spec = capture();
    spec["execution"]["layoutVersion"] = "v9".into();
    let mut seen = seen(spec, "Pending", "");
    seen.job = None;
    says(&seen, "spec-error", &["spec.execution.layoutVersion", "v9", "Correct"]);
}

#[test]
fn a_template_that_is_missing_or_wrong_is_named() {
    let mut seen = seen(capture(), "Pending", "");
    (seen.job, seen.templates[0].1) = (None, Some(String::new()));
    says(&seen, "template-missing", &["tpl/standard", "kubectl get sjt -n tpl"]);
    seen.templates[0].1 = Some("spec.spec is missing".into());
    says(&seen, "template-wrong", &["tpl/standard", "spec.spec is missing"]);
}

#[test]
fn a_stream_without_a_backend_says_which_there_are() {
    let mut spec = capture();
    spec["execution"]["streamingBackend"] = json!({ "changeCapture": null, "batch": null });
    let mut seen = seen(spec, "", "");
    seen.job = None;
    says(&seen, "no-backend", &["changeCapture", "batch"]);
}

#[test]
fn an_old_job_that_is_still_ending_is_waited_for() {
    let mut seen = seen(capture(), "Pending", "");
    seen.job = Some(job(json!({ "deletionTimestamp": NOW }), json!({})));
    says(&seen, "old-job-ending", &["uid j1", "3 h ago"]);
}

#[test]
fn a_job_of_someone_else_with_its_name_is_in_the_way() {
    let mut seen = seen(capture(), "Pending", "");
    let owner =
        json!([{ "kind": "JsonStream", "name": "orders", "uid": "u9", "controller": true }]);
    seen.job = Some(job(json!({ "ownerReferences": owner }), json!({})));
    says(&seen, "name-taken", &["JsonStream orders"]);
}

#[test]
fn a_backfill_is_told_with_its_request_and_its_begin() {
    let mut seen = seen(capture(), "Backfilling", "");
    (seen.job, seen.requests) =
        (Some(backfill_job()), vec![request("a", json!({})), request("b", json!({}))]);
    says(&seen, "backfilling", &["orders-backfill-x", "2026-11-16 09:00:00Z", "1 more requests"]);
    seen.job.as_mut().unwrap().ended =
        Some((Fate::Complete, "2026-11-16T11:59:00Z".parse().unwrap()));
    says(&seen, "backfill-ended", &["orders-backfill-x", "ended well"]);
}

#[test]
fn a_backfill_that_has_not_begun_says_what_it_waits_for() {
    let mut waiting = seen(capture(), "Pending", "waits: 5 backfills run, and no more may at once");
    (waiting.job, waiting.requests) = (None, vec![request("a", json!({}))]);
    says(&waiting, "backfill-cap", &["10 min ago", "5 backfills run"]);
    let mut pending = seen(capture(), "Pending", "");
    (pending.job, pending.requests) = (None, vec![request("a", json!({}))]);
    says(&pending, "backfill-pending", &["The request a"]);
    pending.requests = vec![request("a", json!({ "phase": "Failed" }))];
    says(&pending, "request-refused", &["kubectl describe bfr a -n prod"]);
}

#[test]
fn a_kind_without_a_class_is_looked_at_by_nobody() {
    let mut seen = seen(capture(), "", "");
    (seen.classed, seen.job) = (false, None);
    says(&seen, "class-missing", &["ParquetStream", "pluralName parquet-streams"]);
}

#[test]
fn a_class_that_is_not_ready_says_why() {
    let mut seen = running();
    let condition = json!({ "type": "Error", "status": "True", "reason": "CrdMissing", "message": "the CRD is not there" });
    seen.class = class(json!({ "phase": "Failed", "conditions": [condition] }));
    says(&seen, "class-not-ready", &["parquet-stream is Failed: the CRD is not there"]);
    seen.class = class(json!({}));
    says(&seen, "class-not-ready", &["not looked at yet"]);
}

#[test]
fn without_an_operator_nothing_happens() {
    let mut seen = running();
    if let Operator::Lease(_, lease) = &mut seen.operator {
        lease.renewed = "2026-11-16T11:50:00Z".parse().unwrap();
    }
    says(&seen, "no-operator", &["operator-1", "ops/mainstay-operator", "10 min ago"]);
    if let Operator::Lease(_, lease) = &mut seen.operator {
        lease.holder.clear();
    }
    says(&seen, "no-operator", &["gave back"]);
    seen.operator = Operator::None;
    says(&seen, "no-operator", &["no Lease", "mainstay operator"]);
    seen.operator = Operator::Unknown;
    says(&seen, "running", &[]);
}

#[test]
fn another_operator_that_writes_at_the_same_time_is_named() {
    let mut seen = running();
    let at = "2026-11-16T11:59:00Z".parse().unwrap();
    seen.stream.other_writer = Some(Box::new(("arcane-operator".into(), at)));
    let last = explain(&seen).pop().unwrap();
    assert_eq!(last.code, "another-operator");
    assert!(last.says.contains("arcane-operator, 60 s ago"), "{}", last.says);
    // One that has been gone for long is no longer worth a word.
    seen.now = "2026-11-16T12:30:00Z".parse().unwrap();
    if let Operator::Lease(_, lease) = &mut seen.operator {
        lease.renewed = seen.now;
    }
    says(&seen, "running", &[]);
    assert_eq!(explain(&seen).len(), 1);
    seen.operator = Operator::None;
    assert_eq!(explain(&seen).pop().unwrap().code, "another-operator");
}

#[test]
fn a_schedule_tells_its_last_and_its_next_run() {
    let mut seen = seen(batch("0 * * * *"), "Scheduled", "");
    seen.job = None;
    says(&seen, "schedule-pending", &["CronJob is not there"]);
    seen.cron = Some(cron(json!({})));
    says(&seen, "scheduled", &["has not run yet", "2026-11-16 13:00:00Z", "in 60 min"]);
    let times = json!({
        "lastScheduleTime": "2026-11-16T11:00:00Z", "lastSuccessfulTime": "2026-11-16T09:00:40Z",
    });
    seen.cron = Some(cron(times));
    says(&seen, "scheduled", &["last run was 60 min ago", "ended well 2 h ago"]);
    let mut wrong = self::seen(batch("every day"), "Pending", "");
    wrong.job = None;
    says(&wrong, "schedule-wrong", &["every day", "2 fields"]);
}

#[test]
fn a_pod_that_cannot_start_is_why_a_running_stream_does_not_run() {
    let mut seen = running();
    seen.stuck_pods = vec![("orders-x1".into(), "ImagePullBackOff".into())];
    says(&seen, "pod-waiting", &["orders-x1", "ImagePullBackOff", "kubectl describe pod"]);
    assert_eq!(explain(&seen).len(), 1, "it does not run");
}

#[test]
fn what_kubernetes_refused_the_operator_is_passed_on() {
    let mut seen = seen(capture(), "Pending", "jobs.batch is forbidden: cannot create");
    seen.job = None;
    seen.stream.written.as_mut().unwrap().kind = "Error".into();
    says(&seen, "refused", &["jobs.batch is forbidden"]);
    // What is to be done is said once, and by its field where one is named.
    seen.requests = vec![request("a", json!({}))];
    let message = "spec.secretRef.name is missing: the name of a Secret";
    seen.stream.written.as_mut().unwrap().message = message.into();
    says(&seen, "refused", &["spec.secretRef.name is missing", "Correct spec.secretRef.name;"]);
    seen.templates = vec![(Place::new("tpl", "standard"), Some(String::new()))];
    says(&seen, "template-missing", &["tpl/standard"]);
    assert_eq!(explain(&seen).len(), 1, "{:?}", explain(&seen));
}

#[test]
fn a_stream_that_goes_says_so_first() {
    let mut seen = running();
    seen.stream.deleting = true;
    says(&seen, "deleting", &["finalizers"]);
}

#[test]
fn there_is_always_something_to_say() {
    let mut new = seen(capture(), "", "");
    new.job = None;
    says(&new, "new", &["No operator has looked"]);
    let mut pending = seen(capture(), "Pending", "The stream is pending.");
    pending.job = None;
    says(&pending, "waiting", &["The stream is pending."]);
}
