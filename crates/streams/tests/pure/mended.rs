//! Where decisions deliberately differ from those of the existing operator.

use serde_json::json;
use streams::decide::Action;
use streams::index::Index;
use streams::model::CrdVersion;
use streams::model::job::JobResult;
use streams::model::meta::Revision;
use streams::model::phase::Phase;
use streams::model::settings::Settings;
use streams::model::stream::CurrentStatus;
use streams::model::watch::{Object, Resource, WatchEvent};

use crate::world::{JOB, World, batch, capture, deleting, ended, for_request, now, outdated};

#[test]
fn a_job_that_is_being_deleted_is_awaited_and_never_mistaken_for_a_backfill() {
    // The streaming Job succeeds while a backfill is requested.
    let mut world = World::new();
    world.stream("Pending", capture("v1", false)).request("b1", |_| {});
    world.job(JOB, |job| {
        deleting(job);
        ended("Complete")(job);
    });
    assert_eq!(world.does(), ["Pending"]);
    let mut world = World::new();
    world.stream("Backfilling", capture("v1", false)).request("b1", |_| {});
    world.job(JOB, ended("Complete"));
    assert_eq!(world.does(), ["stop 11111111-1111-1111-1111-111111111111 Backfill"]);
}

#[test]
fn requests_of_other_classes_are_ignored_and_the_oldest_is_carried_out_first() {
    let mut world = World::new();
    world.stream("Running", capture("v1", false)).job(JOB, |_| {});
    world.request("other", |request| request["spec"]["streamClass"] = json!("class-b"));
    assert_eq!(world.does(), ["Running"]);
    world.request("later", |r| r["metadata"]["creationTimestamp"] = json!("2026-11-16T07:50:00Z"));
    world.request("sooner", |r| r["metadata"]["creationTimestamp"] = json!("2026-11-16T07:40:00Z"));
    world.job_gone(JOB);
    assert_eq!(world.does(), ["start Backfill(Some(\"sooner\"))"]);
}

#[test]
fn a_completion_that_a_user_reverts_starts_the_backfill_again() {
    let mut world = World::new();
    world.stream("Pending", capture("v1", false));
    world.request("b1", |request| request["spec"]["completed"] = json!(true));
    assert_eq!(world.does(), ["start Stream"]);
    world.request("b1", |_| {});
    assert_eq!(world.does(), ["start Backfill(Some(\"b1\"))"]);
}

#[test]
fn the_result_of_a_job_that_was_deleted_unobserved_is_looked_up() {
    let backfilling =
        format!("The stream is currently backfilling data in Job {JOB}, request ID: b1");
    let mut world = World::new();
    world
        .stream_with_message("Backfilling", capture("v1", false), json!({}), &backfilling)
        .request("b1", |_| {});
    assert_eq!(world.does(), [format!("ask {JOB}")]);
    let object_name = world.key().object_name;
    world.index.record_job_result(&object_name, JOB, JobResult::Complete);
    assert_eq!(world.does(), ["complete b1"]);
    world.index.record_job_result(&object_name, JOB, JobResult::Failed("why".into()));
    assert_eq!(world.does(), ["Failed", "W StreamingJobFailed"]);
    world.index.record_job_result(&object_name, JOB, JobResult::Removed);
    assert_eq!(world.does(), ["start Backfill(Some(\"b1\"))"]);

    let running = format!("The stream is currently running in Job {JOB}.");
    let mut world = World::new();
    world.stream_with_message("Running", capture("v1", false), json!({}), &running);
    assert_eq!(world.does(), [format!("ask {JOB}")]);
    world.index.record_job_result(&object_name, JOB, JobResult::Failed("why".into()));
    assert_eq!(world.does(), ["Failed", "W StreamingJobFailed"]);
    world.index.record_job_result(&object_name, JOB, JobResult::Complete);
    assert_eq!(world.does(), ["start Stream"]);
}

#[test]
fn a_backfill_of_one_request_does_not_complete_another_whose_name_ends_alike() {
    let mut world = World::new();
    let message =
        format!("The stream is currently backfilling data in Job {JOB}, request ID: eu-orders");
    world
        .stream_with_message("Backfilling", capture("v1", false), json!({}), &message)
        .request("orders", |_| {});
    let object_name = world.key().object_name;
    world.index.record_job_result(&object_name, JOB, JobResult::Complete);
    assert_eq!(world.does(), ["start Backfill(Some(\"orders\"))"]);
}

#[test]
fn the_result_of_an_observed_job_is_not_looked_up() {
    let mut world = World::new();
    world.stream("Backfilling", capture("v1", false)).request("b1", |_| {});
    let message = format!("The stream is currently backfilling data in Job {JOB}, request ID: b1");
    world.stream_with_message("Backfilling", capture("v1", false), json!({}), &message);
    world.job(JOB, |job| {
        for_request("b1")(job);
        ended("Complete")(job);
    });
    world.job_gone(JOB);
    assert_eq!(world.does(), ["complete b1"]);
}

#[test]
fn a_current_status_is_not_written_again() {
    let mut world = World::new();
    world.stream("Running", capture("v1", false)).job(JOB, |_| {});
    let Action::SetStatus(status) = world.decide().actions[0].clone() else { panic!() };
    let stream = world.index.stream(&world.key()).unwrap().clone();
    let patch = status.patch(&stream, CrdVersion::V1, now());
    assert_eq!(patch["status"]["conditions"][0]["reason"], "StreamRunning");
    assert_eq!(patch["status"]["configurationHash"], json!(stream.hash));
    for message in [&*status.message, "The stream is currently running."] {
        let mut updated = (*stream).clone();
        let mut says = updated.status.unwrap();
        says.message = message.into();
        says.hash = stream.hash.clone();
        updated.status = Some(says);
        assert!(status.is_of(&updated, CrdVersion::V1), "{message}");
    }
}

#[test]
fn a_job_of_another_owner_is_not_changed() {
    let mut world = World::new();
    world.stream("Running", capture("v1", false));
    world.job(JOB, |job| job["metadata"]["ownerReferences"][0]["uid"] = json!("before"));
    assert_eq!(world.does(), ["Pending", "N StreamPending"], "its own, of an earlier life");
    let mut world = World::new();
    world.stream("Pending", capture("v1", false));
    world.job(JOB, |job| {
        job["metadata"]["ownerReferences"][0]["kind"] = json!("B");
        job["metadata"]["ownerReferences"][0]["uid"] = json!("b");
    });
    assert_eq!(world.does(), ["Pending!", "W NameTaken"]);
}

/// The message of the event when a Job is stopped to be restarted.
fn cause(world: &World) -> String {
    let actions = world.decide().actions;
    let said = actions.iter().find_map(|action| match action {
        Action::Publish(event) => Some(event.message.clone()),
        _ => None,
    });
    said.unwrap_or_default()
}

#[test]
fn annotations_pause_and_restart() {
    let mut world = World::new();
    world.stream_with("Running", capture("v1", true), json!({ "mainstay.io/pause": "true" }));
    world.job(JOB, |_| {});
    assert_eq!(world.does(), [""; 0]);
    let wish = json!({ "mainstay.io/restart": "2" });
    world.stream_with("Running", capture("v1", false), wish.clone());
    world.job(JOB, |_| {});
    assert!(world.does()[0].starts_with("stop"), "{:?}", world.does());
    assert!(cause(&world).ends_with("is restarted: a restart was requested"), "{}", cause(&world));
    world.job(JOB, |job| job["metadata"]["annotations"]["mainstay.io/restart"] = json!("2"));
    assert!(!world.does().iter().any(|done| done.starts_with("stop")), "{:?}", world.does());
    world.stream("Running", capture("v1", false));
    assert!(!world.does().iter().any(|done| done.starts_with("stop")), "taken away: no restart");
}

#[test]
fn a_changed_template_or_secret_restarts_streams_with_the_annotation() {
    let wish = json!({ "mainstay.io/restart-on": "template, secrets" });
    let mut world = World::new();
    world.stream_with("Pending", capture("v1", false), wish.clone());
    assert_eq!(world.does(), [""; 0], "a Job made now would not know its secrets");
    assert_eq!(world.index.mark_secrets_listed(), [world.key()]);
    let Action::StartJob { manifest, .. } = world.decide().actions[0].clone() else { panic!() };
    let noted = manifest["metadata"]["annotations"].clone();
    world.job(JOB, |job| job["metadata"]["annotations"] = noted.clone());
    assert_eq!(world.does(), ["Running", "N StreamStarted"]);
    world.template("stream", &crate::world::template("newer"));
    assert!(world.does()[0].starts_with("stop"), "{:?}", world.does());
    world.stream_with("Running", capture("v1", false), wish);
    assert!(cause(&world).ends_with("its template has changed"), "{}", cause(&world));
    world.stream_with("Pending", capture("v1", false), json!({}));
    assert_eq!(world.does(), ["Running", "N StreamStarted"], "nobody asked");
}

#[test]
fn restarts_are_limited_per_minute_if_configured() {
    let mut world = World::new();
    world.index.settings.restarts_per_minute = Some(1);
    world.stream("Running", capture("v1", false)).job(JOB, outdated);
    assert!(world.does()[0].starts_with("stop"));
    assert!(cause(&world).ends_with("its spec has changed"), "{}", cause(&world));
    world.index.record_restart(now());
    let decision = world.decide();
    assert!(decision.requeue_at.is_some());
    assert!(!world.does().iter().any(|done| done.starts_with("stop")), "{:?}", world.does());
}

#[test]
fn concurrent_backfills_are_limited() {
    let settings = Settings { backfills_max: Some(1), ..Settings::default() };
    let mut world = World::new();
    world.index.settings = settings;
    world.stream("Pending", capture("v1", false)).request("b1", |_| {});
    assert_eq!(world.does(), ["start Backfill(Some(\"b1\"))"]);
    let other = streams::model::NamespacedName::new("n", "other");
    world.index.reserve_backfill(&other);
    assert!(world.decide().waiting_for_backfill);
    let key = world.key();
    world.index.set_waiting(&key, true);
    assert_eq!(world.index.release_backfill(&other), [key]);
    assert!(!world.decide().waiting_for_backfill);
}

#[test]
fn recovery_is_opt_in_backs_off_and_ends() {
    let wish = |recovered: &str| json!({ "mainstay.io/recover": "true", "mainstay.io/recovered": recovered });
    let mut world = World::new();
    world.stream_with("Running", capture("v1", false), json!({ "mainstay.io/recover": "true" }));
    world.job(JOB, ended("Failed"));
    let did = world.does();
    assert!(did[0].starts_with("annotate mainstay.io/recovered Some(\"1 "), "{did:?}");
    assert_eq!(did[1..3], ["Failed", "W StreamingJobFailed"]);

    let mut world = World::new();
    world.stream_with("Failed", capture("v1", false), wish("2 2026-11-16T07:59:30Z"));
    let decision = world.decide();
    assert!(decision.actions.is_empty());
    assert_eq!(decision.requeue_at, Some("2026-11-16T08:00:30Z".parse().unwrap()));
    world.stream_with("Failed", capture("v1", false), wish("2 2026-11-16T07:50:00Z"));
    assert_eq!(world.does(), ["Pending", "N StreamRecovered", "start Stream"]);
    world.stream_with("Failed", capture("v1", false), wish("8 2026-11-16T01:00:00Z"));
    assert!(world.decide().actions.is_empty(), "it has been tried often enough");

    // A short run adds to the count, a long one resets it.
    for (created, count) in [("2026-11-16T07:59:00Z", 4), ("2026-11-16T07:00:00Z", 1)] {
        let mut world = World::new();
        world.stream_with("Running", capture("v1", false), wish("3 2026-11-16T07:50:00Z"));
        world.job(JOB, |job| {
            job["metadata"]["creationTimestamp"] = json!(created);
            ended("Failed")(job);
        });
        assert!(world.does()[0].contains(&format!("\"{count} ")), "{:?}", world.does());
    }
}

#[test]
fn a_limited_number_of_completed_requests_is_kept() {
    let mut world = World::new();
    world.index.settings.requests_kept = 2;
    let message = format!("The stream is currently running in Job {JOB}.");
    world.stream("Running", capture("v1", false)).job(JOB, |_| {});
    let hash = world.index.stream(&world.key()).unwrap().hash.clone();
    let mut stream = (**world.index.stream(&world.key()).unwrap()).clone();
    stream.status = Some(Box::new(CurrentStatus {
        hash,
        kind: "Ready".into(),
        message: message.into(),
        since: None,
    }));
    stream.revision = Revision::of("900");
    world.index.upsert(Object::Stream(stream));
    for i in 1..=4 {
        world.request(&format!("b{i}"), |request| {
            request["spec"]["completed"] = json!(true);
            request["metadata"]["creationTimestamp"] = json!(format!("2026-11-16T07:0{i}:00Z"));
        });
    }
    assert_eq!(world.does(), ["remove n/b1", "remove n/b2"]);
}

#[test]
fn a_request_for_a_missing_stream_is_refused_and_a_completed_one_is_deleted() {
    let mut world = World::new();
    world.request("b1", |_| {}).request("b2", |request| request["spec"]["completed"] = json!(true));
    assert_eq!(world.does(), ["refuse n/b1", "remove n/b2"]);
    world.request("b1", |request| request["status"] = json!({ "phase": "Failed" }));
    assert_eq!(world.does(), ["remove n/b2"], "it has been said");
    let mut unknown = world.key();
    unknown.class = "nobody".into();
    world.request("b3", |request| request["spec"]["streamClass"] = json!("nobody"));
    let did = streams::decide::decide(&world.index.observe(&unknown, now()), now()).actions;
    assert!(
        matches!(&did[..], [Action::RefuseRequest { why, .. }] if why.contains("StreamClass nobody"))
    );
}

/// The API server's clock is an hour ahead, or behind: its dates are never compared with ours.
#[test]
fn a_stream_is_left_to_another_operator_until_that_is_silent_whatever_the_api_servers_clock() {
    for api_server in ["2026-11-16T08:59:30Z", "2026-11-16T06:59:30Z"] {
        let mut world = World::new();
        world.stream("", capture("v1", false));
        let class = std::sync::Arc::new(world.class.clone());
        let target = Resource::Streams(class.clone());
        let mut revision = 900;
        let mut write = |world: &mut World, wrote: &str, at: &str, snapshot: bool| {
            let mut stream = (**world.index.stream(&world.key()).unwrap()).clone();
            stream.other_writer =
                Some(Box::new(("arcane-operator".into(), wrote.parse().unwrap())));
            stream.revision = Revision::of(&revision.to_string());
            revision += 1;
            let object = Object::Stream(stream);
            let event = if snapshot {
                WatchEvent::Snapshot(vec![object])
            } else {
                WatchEvent::Upserted(Box::new(object))
            };
            let new = world.index.record_foreign_writes(&class.name, &event, at.parse().unwrap());
            world.index.apply(&target, event);
            new
        };
        world.index.leading_since = Some("2026-11-16T07:00:00Z".parse().unwrap());
        world.index.remove_streams(&class.name);
        world.stream("", capture("v1", false));
        assert!(!write(&mut world, "2026-11-01T00:00:00Z", "2026-11-16T07:30:00Z", true));
        assert!(world.does()[0].starts_with("start"), "it was written before the first list");
        assert!(write(&mut world, api_server, "2026-11-16T07:59:30Z", false));
        let decision = world.decide();
        assert!(decision.actions.is_empty());
        assert_eq!(decision.requeue_at, Some("2026-11-16T08:00:30Z".parse().unwrap()));
        assert!(!write(&mut world, api_server, "2026-11-16T07:59:50Z", false), "nothing new");
        assert_eq!(world.decide().requeue_at, Some("2026-11-16T08:00:30Z".parse().unwrap()));
        world.index.leading_since = Some("2026-11-16T07:59:45Z".parse().unwrap());
        assert!(world.does()[0].starts_with("start"), "it wrote before this one led");
    }
}

#[test]
fn annotations_hold_the_desired_state_in_v1beta1() {
    let state = |state: &str| json!({ "arcane/state": state });
    let mut world = World::of(CrdVersion::V1Beta1, &[]);
    for name in ["stream", "backfill"] {
        world.template(name, &json!({ "template": crate::world::template(name) }));
    }
    world.stream("", capture("v0", false));
    assert_eq!(world.does(), ["start Backfill(None)"]);
    world.stream_with("", capture("v0", false), state("suspended"));
    assert_eq!(world.does(), ["Suspended", "N StreamSuspended"]);
    world.stream_with("RUNNING", capture("v0", false), state("reload-requested"));
    assert_eq!(world.does(), ["start Backfill(None)"]);
    world.job(JOB, for_request("x"));
    assert_eq!(world.does(), ["annotate arcane/state None"]);
    world.stream("RUNNING", capture("v0", false));
    assert_eq!(world.does(), ["Backfilling", "N BackfillRequested"]);
    world.stream("RELOADING", capture("v0", false));
    world.job(JOB, |job| {
        for_request("x")(job);
        ended("Complete")(job);
    });
    assert_eq!(world.does(), ["stop 11111111-1111-1111-1111-111111111111 Ended"]);
    world.job_gone(JOB);
    assert_eq!(world.does(), ["start Stream"]);
    world.stream_with("FAILED", capture("v0", false), state("crash-loop"));
    assert_eq!(world.does(), [""; 0]);
    world.stream("FAILED", capture("v0", false));
    assert_eq!(world.does(), ["Pending", "N StreamRecovered", "start Stream"]);
    world.stream("RUNNING", capture("v0", false));
    world.job("22222222-2222-2222-2222-222222222222", ended("Failed"));
    assert_eq!(
        world.does(),
        [
            "annotate arcane/state Some(\"crash-loop\")",
            "Failed",
            "W StreamingJobFailed",
            "stop 22222222-2222-2222-2222-222222222222 Failed",
        ]
    );
}

#[test]
fn a_job_of_v1beta1_that_requests_a_reload_is_replaced_by_a_backfill() {
    for state in ["schema-mismatch", "reload-requested"] {
        let mut world = World::of(CrdVersion::V1Beta1, &[]);
        world.stream("RUNNING", capture("v0", false));
        world.job(JOB, |job| job["metadata"]["annotations"]["arcane/state"] = json!(state));
        let story = world.converge(None).unwrap();
        assert!(story.steps.contains(&"start Backfill(None)".into()), "{story:#?}");
        let stream = world.index.stream(&world.key()).unwrap();
        assert_eq!((stream.phase, &stream.annotations.state), (Phase::Backfilling, &None));
    }
}

#[test]
fn a_failed_run_of_a_cron_job_is_reported_in_the_status() {
    let mut world = World::new();
    world.stream("Scheduled", batch("v1", false)).cron_job(|_| {});
    let raw = json!({
        "metadata": {
            "name": "s1-28", "namespace": "n", "uid": "run", "resourceVersion": "77",
            "ownerReferences": [{ "kind": "CronJob", "name": "s1", "uid": "cron-uid", "controller": true }],
        },
        "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
            "lastTransitionTime": "2026-11-16T07:05:00Z" }] },
    });
    let run = streams::model::job::Job::of(&serde_json::from_value(raw).unwrap()).unwrap();
    let affected = world.index.upsert(Object::Job(run));
    assert_eq!(affected, [world.key()]);
    assert_eq!(world.does(), ["Scheduled!", "W ScheduledRunFailed"]);
}

#[test]
fn an_empty_index_decides_nothing() {
    let world = World::new();
    let decision = streams::decide::decide(&Index::default().observe(&world.key(), now()), now());
    assert!(decision.actions.is_empty());
}

#[test]
fn pod_counts_of_a_job_affect_no_stream_and_its_end_does() {
    let mut world = World::new();
    world.stream("Running", capture("v1", false)).job(JOB, |_| {});
    let mut job = world.index.job(&world.key().object_name).unwrap().clone();
    job.revision = Revision::of("1000");
    assert_eq!(world.index.upsert(Object::Job(job.clone())), []);
    assert_eq!(world.index.job(&world.key().object_name).unwrap().revision, job.revision);
    job.revision = Revision::of("1001");
    job.ended = Some((JobResult::Complete, now()));
    assert_eq!(world.index.upsert(Object::Job(job)), [world.key()]);
}
