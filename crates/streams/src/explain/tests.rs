//! A test for each reason.

use serde_json::{Value, json};

use super::*;
use crate::model::CrdVersion;
use crate::model::backfill_request::RawBackfillRequest;
use crate::model::class::RawClass;
use crate::model::job::{JobResult, RawCronJob, RawJob};
use crate::model::stream::RawStream;

const NOW: &str = "2026-11-16T12:00:00Z";

fn class(status: Value) -> Class {
    let raw = json!({ "metadata": { "name": "parquet-stream" }, "status": status, "spec": {
        "apiVersion": "v1", "kindRef": "ParquetStream", "pluralName": "parquet-streams",
    } });
    Class::of(&serde_json::from_value::<RawClass>(raw).unwrap(), CrdVersion::V1)
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

/// A stream that runs without problems.
fn facts(spec: Value, phase: &str, message: &str) -> StreamFacts {
    let class = class(json!({ "phase": "Ready" }));
    let raw = json!({
        "metadata": { "name": "orders", "namespace": "prod", "uid": "u1" },
        "spec": spec,
        "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": "True", "message": message }] },
    });
    let stream = Stream::of(&serde_json::from_value::<RawStream>(raw).unwrap(), &class);
    let lease = Lease {
        holder: "operator-1".into(),
        duration_s: 15,
        renewed: "2026-11-16T11:59:58Z".parse().unwrap(),
        ..Lease::default()
    };
    StreamFacts {
        now: NOW.parse().unwrap(),
        stream,
        class,
        has_class: true,
        suspended: None,
        downtime: None,
        job: Some(job(json!({}), json!({}))),
        cron_job: None,
        stuck_pods: Vec::new(),
        requests: Vec::new(),
        templates: vec![(NamespacedName::new("tpl", "standard"), None)],
        operator: OperatorState::Lease(NamespacedName::new("ops", "mainstay-operator"), lease),
        events: Vec::new(),
    }
}

fn running() -> StreamFacts {
    facts(capture(), "Running", "The stream is currently running.")
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
    Job::of(&serde_json::from_value::<RawJob>(raw).unwrap()).unwrap()
}

fn backfill_job() -> Job {
    let labels = json!({ "arcane/stream-id": "orders", "arcane/backfilling": "true" });
    job(json!({ "labels": labels }), json!({}))
}

fn request(name: &str, status: Value) -> BackfillRequest {
    let raw = json!({
        "metadata": { "name": name, "namespace": "prod", "creationTimestamp": "2026-11-16T11:50:00Z" },
        "spec": { "streamClass": "parquet-stream", "streamId": "orders" },
        "status": status,
    });
    BackfillRequest::of(&serde_json::from_value::<RawBackfillRequest>(raw).unwrap())
}

fn cron_job(status: Value) -> CronJob {
    let raw = json!({
        "metadata": { "name": "orders", "namespace": "prod", "annotations": { "configuration-hash": "x" } },
        "spec": { "schedule": "0 * * * *" },
        "status": status,
    });
    CronJob::of(&serde_json::from_value::<RawCronJob>(raw).unwrap()).unwrap()
}

/// Asserts that the first reason has this code and contains these words.
#[track_caller]
fn assert_says(facts: &StreamFacts, code: &str, words: &[&str]) {
    let reasons = explain(facts);
    let all = format!("{reasons:#?}");
    assert_eq!(reasons[0].code, code, "{all}");
    for word in words {
        let first = format!("{} {}", reasons[0].message, reasons[0].fix);
        assert!(first.contains(word), "{word} is not in: {first}");
    }
}

#[test]
fn a_running_stream_runs_and_nothing_needs_to_change() {
    let facts = running();
    assert_says(&facts, "running", &["2026-11-16 09:00:00Z", "3 h ago"]);
    assert_eq!(explain(&facts).len(), 1);
    assert_eq!(explain(&facts)[0].fix, "");
}

#[test]
fn a_suspended_stream_names_the_field_and_the_command() {
    let mut facts = running();
    (facts.job, facts.suspended) = (None, Some("spec.execution.suspended"));
    let start = "mainstay stream start ParquetStream/orders -n prod";
    assert_says(&facts, "suspended", &["spec.execution.suspended is true", start]);
    facts.requests = vec![request("a", json!({})), request("b", json!({}))];
    assert_says(&facts, "suspended", &["2 open backfill requests wait"]);
    facts.suspended = Some("the annotation arcane/state");
    assert_says(&facts, "suspended", &["the annotation arcane/state requests it"]);
}

#[test]
fn a_downtime_is_named_with_its_begin_and_its_end() {
    let mut facts = running();
    (facts.job, facts.suspended) = (None, Some("spec.suspended"));
    facts.downtime = Some(("db-move".into(), Some("2026-11-16T08:00:00Z".into())));
    assert_says(
        &facts,
        "downtime",
        &["db-move since 2026-11-16T08:00:00Z", "downtime stop db-move"],
    );
}

#[test]
fn a_paused_stream_is_left_alone() {
    let mut facts = running();
    facts.stream.annotations.paused = true;
    assert_says(
        &facts,
        "paused",
        &["mainstay.io/pause", "kubectl annotate parquet-streams orders -n prod"],
    );
}

#[test]
fn a_failed_stream_says_what_kubernetes_said_of_its_job() {
    let mut facts = facts(capture(), "Failed", "The stream has failed: BackoffLimitExceeded.");
    facts.job = None;
    assert_says(&facts, "failed", &["BackoffLimitExceeded", "stays failed", "stream restart"]);
    let conditions = json!({ "conditions": [
        { "type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long" },
    ] });
    facts.job = Some(job(json!({}), conditions));
    assert_says(&facts, "failed", &["DeadlineExceeded: too long"]);
    facts.stream.annotations.recover = true;
    facts.stream.annotations.recovered = Some((3, "2026-11-16T11:58:00Z".parse().unwrap()));
    assert_says(&facts, "failed", &["3 consecutive failures, the last 2 min ago"]);
}

#[test]
fn without_a_message_the_newest_warning_says_why_it_failed() {
    // In the words of the existing operator.
    let mut facts = facts(capture(), "Failed", "The stream has failed.");
    facts.job = None;
    assert_says(&facts, "failed", &["the reason is unknown"]);
    facts.events = vec![Event {
        at: NOW.parse().unwrap(),
        warning: true,
        reason: "StreamingJobFailed".into(),
        message: "exit code 1".into(),
        by: "arcane-operator".into(),
    }];
    assert_says(&facts, "failed", &["exit code 1"]);
}

#[test]
fn a_mistake_in_the_spec_is_named_by_its_field() {
    let mut spec = capture();
    spec["execution"]["layoutVersion"] = "v9".into();
    let mut facts = facts(spec, "Pending", "");
    facts.job = None;
    assert_says(&facts, "spec-error", &["spec.execution.layoutVersion", "v9", "Correct"]);
}

#[test]
fn a_template_that_is_missing_or_wrong_is_named() {
    let mut facts = facts(capture(), "Pending", "");
    (facts.job, facts.templates[0].1) = (None, Some(String::new()));
    assert_says(&facts, "template-missing", &["tpl/standard", "kubectl get sjt -n tpl"]);
    facts.templates[0].1 = Some("spec.spec is missing".into());
    assert_says(&facts, "template-wrong", &["tpl/standard", "spec.spec is missing"]);
}

#[test]
fn a_stream_without_a_backend_says_which_there_are() {
    let mut spec = capture();
    spec["execution"]["streamingBackend"] = json!({ "changeCapture": null, "batch": null });
    let mut facts = facts(spec, "", "");
    facts.job = None;
    assert_says(&facts, "no-backend", &["changeCapture", "batch"]);
}

#[test]
fn an_old_job_that_is_still_ending_is_waited_for() {
    let mut facts = facts(capture(), "Pending", "");
    facts.job = Some(job(json!({ "deletionTimestamp": NOW }), json!({})));
    assert_says(&facts, "old-job-ending", &["uid j1", "3 h ago"]);
}

#[test]
fn a_foreign_job_of_the_same_name_blocks_the_stream() {
    let mut facts = facts(capture(), "Pending", "");
    let owner =
        json!([{ "kind": "JsonStream", "name": "orders", "uid": "u9", "controller": true }]);
    facts.job = Some(job(json!({ "ownerReferences": owner }), json!({})));
    assert_says(&facts, "name-taken", &["JsonStream orders"]);
}

#[test]
fn a_backfill_is_reported_with_its_request_and_its_start() {
    let mut facts = facts(capture(), "Backfilling", "");
    (facts.job, facts.requests) =
        (Some(backfill_job()), vec![request("a", json!({})), request("b", json!({}))]);
    assert_says(
        &facts,
        "backfilling",
        &["orders-backfill-x", "2026-11-16 09:00:00Z", "1 more requests"],
    );
    facts.job.as_mut().unwrap().ended =
        Some((JobResult::Complete, "2026-11-16T11:59:00Z".parse().unwrap()));
    assert_says(&facts, "backfill-ended", &["orders-backfill-x", "succeeded"]);
}

#[test]
fn a_backfill_that_has_not_begun_says_what_it_waits_for() {
    let mut waiting =
        facts(capture(), "Pending", "waits: 5 backfills run, and no more may at once");
    (waiting.job, waiting.requests) = (None, vec![request("a", json!({}))]);
    assert_says(&waiting, "backfill-cap", &["10 min ago", "5 backfills run"]);
    let mut pending = facts(capture(), "Pending", "");
    (pending.job, pending.requests) = (None, vec![request("a", json!({}))]);
    assert_says(&pending, "backfill-pending", &["The request a"]);
    pending.requests = vec![request("a", json!({ "phase": "Failed" }))];
    assert_says(&pending, "request-refused", &["kubectl describe bfr a -n prod"]);
}

#[test]
fn a_kind_without_a_class_has_no_operator() {
    let mut facts = facts(capture(), "", "");
    (facts.has_class, facts.job) = (false, None);
    assert_says(&facts, "class-missing", &["ParquetStream", "pluralName parquet-streams"]);
}

#[test]
fn a_class_that_is_not_ready_says_why() {
    let mut facts = running();
    let condition = json!({ "type": "Error", "status": "True", "reason": "CrdMissing", "message": "the CRD is not there" });
    facts.class = class(json!({ "phase": "Failed", "conditions": [condition] }));
    assert_says(&facts, "class-not-ready", &["parquet-stream is Failed: the CRD is not there"]);
    facts.class = class(json!({}));
    assert_says(&facts, "class-not-ready", &["not reconciled yet"]);
}

#[test]
fn without_an_operator_nothing_happens() {
    let mut facts = running();
    if let OperatorState::Lease(_, lease) = &mut facts.operator {
        lease.renewed = "2026-11-16T11:50:00Z".parse().unwrap();
    }
    assert_says(&facts, "no-operator", &["operator-1", "ops/mainstay-operator", "10 min ago"]);
    if let OperatorState::Lease(_, lease) = &mut facts.operator {
        lease.holder.clear();
    }
    assert_says(&facts, "no-operator", &["released"]);
    facts.operator = OperatorState::None;
    assert_says(&facts, "no-operator", &["no Lease", "mainstay operator"]);
    facts.operator = OperatorState::Unknown;
    assert_says(&facts, "running", &[]);
}

#[test]
fn another_operator_that_writes_at_the_same_time_is_named() {
    let mut facts = running();
    let at = "2026-11-16T11:59:00Z".parse().unwrap();
    facts.stream.other_writer = Some(Box::new(("arcane-operator".into(), at)));
    let last = explain(&facts).pop().unwrap();
    assert_eq!(last.code, "another-operator");
    assert!(last.message.contains("arcane-operator, 60 s ago"), "{}", last.message);
    // A writer that has been silent for long is not mentioned.
    facts.now = "2026-11-16T12:30:00Z".parse().unwrap();
    if let OperatorState::Lease(_, lease) = &mut facts.operator {
        lease.renewed = facts.now;
    }
    assert_says(&facts, "running", &[]);
    assert_eq!(explain(&facts).len(), 1);
    facts.operator = OperatorState::None;
    assert_eq!(explain(&facts).pop().unwrap().code, "another-operator");
}

#[test]
fn a_schedule_shows_its_last_and_its_next_run() {
    let mut facts = facts(batch("0 * * * *"), "Scheduled", "");
    facts.job = None;
    assert_says(&facts, "schedule-pending", &["CronJob does not exist"]);
    facts.cron_job = Some(cron_job(json!({})));
    assert_says(&facts, "scheduled", &["has not run yet", "2026-11-16 13:00:00Z", "in 60 min"]);
    let times = json!({
        "lastScheduleTime": "2026-11-16T11:00:00Z", "lastSuccessfulTime": "2026-11-16T09:00:40Z",
    });
    facts.cron_job = Some(cron_job(times));
    assert_says(&facts, "scheduled", &["last run was 60 min ago", "success 2 h ago"]);
    let mut wrong = self::facts(batch("every day"), "Pending", "");
    wrong.job = None;
    assert_says(&wrong, "schedule-wrong", &["every day", "2 fields"]);
}

#[test]
fn a_pod_that_cannot_start_is_why_a_running_stream_does_not_run() {
    let mut facts = running();
    facts.stuck_pods = vec![("orders-x1".into(), "ImagePullBackOff".into())];
    assert_says(&facts, "pod-waiting", &["orders-x1", "ImagePullBackOff", "kubectl describe pod"]);
    assert_eq!(explain(&facts).len(), 1, "it does not run");
}

#[test]
fn what_kubernetes_refused_the_operator_is_passed_on() {
    let mut facts = facts(capture(), "Pending", "jobs.batch is forbidden: cannot create");
    facts.job = None;
    facts.stream.status.as_mut().unwrap().kind = "Error".into();
    assert_says(&facts, "refused", &["jobs.batch is forbidden"]);
    // The fix is given once, with the field if one is named.
    facts.requests = vec![request("a", json!({}))];
    let message = "spec.secretRef.name is missing: the name of a Secret";
    facts.stream.status.as_mut().unwrap().message = message.into();
    assert_says(
        &facts,
        "refused",
        &["spec.secretRef.name is missing", "Correct spec.secretRef.name;"],
    );
    facts.templates = vec![(NamespacedName::new("tpl", "standard"), Some(String::new()))];
    assert_says(&facts, "template-missing", &["tpl/standard"]);
    assert_eq!(explain(&facts).len(), 1, "{:?}", explain(&facts));
}

#[test]
fn the_deletion_of_a_stream_comes_first() {
    let mut facts = running();
    facts.stream.deleting = true;
    assert_says(&facts, "deleting", &["finalizers"]);
}

#[test]
fn there_is_always_a_reason() {
    let mut new = facts(capture(), "", "");
    new.job = None;
    assert_says(&new, "new", &["No operator has reconciled"]);
    let mut pending = facts(capture(), "Pending", "The stream is pending.");
    pending.job = None;
    assert_says(&pending, "waiting", &["The stream is pending."]);
}
