//! The texts that other code parses or that dashboards compare: they stay as they are, to the byte.

use serde_json::json;
use streams::decide::Action;
use streams::model::CrdVersion;
use streams::model::status::{job_in_message, job_suffix};

use crate::world::{JOB, World, batch, capture, deleting, ended, for_request, outdated};

/// The status and the event that a decision writes: `phase type/reason message | reason message`.
fn says(world: &World) -> String {
    let crd_version = world.class.crd_version;
    let texts = world.decide().actions.into_iter().filter_map(|action| match action {
        Action::SetStatus(status) => {
            let (kind, reason) = status.condition();
            Some(format!("{} {kind}/{reason} {}", status.phase.label(crd_version), status.message))
        }
        Action::Publish(event) => Some(format!("{} {}", event.reason, event.message)),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" | ")
}

fn capturing(phase: &str, change: impl FnOnce(&mut World)) -> String {
    let mut world = World::new();
    world.stream(phase, capture("v1", phase == "Suspending"));
    change(&mut world);
    says(&world)
}

#[test]
fn the_status_and_the_events_of_streams_are_worded_as_they_were() {
    let running =
        format!("Running Ready/StreamRunning The stream is currently running in Job {JOB}.");
    let with_job = |world: &mut World| {
        world.job(JOB, |_| {});
    };
    let of_request = |world: &mut World| {
        world.request("b1", |_| {}).job(JOB, for_request("b1"));
    };
    let backfilling = format!(
        "Backfilling Ready/StreamBackfilling The stream is currently backfilling data in Job {JOB}, request ID: b1"
    );
    for (said, expected) in [
        (
            capturing("Pending", with_job),
            format!("{running} | StreamStarted The stream s1 has been started"),
        ),
        (
            capturing("Suspended", with_job),
            format!("{running} | StreamResumed The stream s1 has been resumed"),
        ),
        (
            capturing("Backfilling", |world| {
                world.stream_with_message("Backfilling", capture("v1", false), json!({}), "request ID: b1");
                world.request("b1", |r| r["spec"]["completed"] = json!(true)).job(JOB, |_| {});
            }),
            format!("{running} | BackfillCompleted Backfill for stream s1 has been completed"),
        ),
        (
            capturing("Backfilling", with_job),
            format!(
                "{running} | BackfillNotRequested The backfill request for stream s1 is gone, so its backfill was stopped"
            ),
        ),
        (
            capturing("Pending", of_request),
            format!("{backfilling} | BackfillStarted Backfill for stream s1 has started"),
        ),
        (
            capturing("", of_request),
            format!("{backfilling} | StreamCreated Backfill was requested for the new stream definition: s1"),
        ),
        (
            capturing("Suspended", of_request),
            format!("{backfilling} | BackfillRequested Backfill was requested for stream s1"),
        ),
        (
            capturing("Running", |world| { world.job(JOB, outdated); }),
            format!(
                "Pending Warning/StreamPending Waiting until Job {JOB} has ended. | StreamRestarting The stream s1 is restarted: its spec has changed"
            ),
        ),
        (
            capturing("Running", |world| { world.job(JOB, deleting); }),
            format!(
                "Pending Warning/StreamPending Waiting until Job {JOB} has ended. | StreamPending Waiting until Job {JOB} has ended."
            ),
        ),
        (
            capturing("Running", |world| { world.job(JOB, ended("Failed")); }),
            "Failed Error/StreamFailed The stream has failed: BackoffLimitExceeded: too often. | StreamingJobFailed The streaming job s1 has failed: BackoffLimitExceeded: too often.".into(),
        ),
    ] {
        assert_eq!(said, expected);
    }
}

#[test]
fn suspended_failed_and_scheduled_streams_are_worded_as_they_were() {
    let suspended = |phase: &str| {
        let mut world = World::new();
        world.stream(phase, capture("v1", true));
        says(&world)
    };
    let status = "Suspended Warning/StreamSuspended The stream is suspended. | StreamSuspended";
    for (phase, event) in [
        ("", "The new stream s1 was added in the suspended state, nothing to do"),
        ("Backfilling", "The backfilling for stream s1 has been suspended"),
        ("Running", "The stream was suspended"),
    ] {
        assert_eq!(suspended(phase), format!("{status} {event}"));
    }
    let mut world = World::new();
    let recover = json!({ "mainstay.io/recover": "true" });
    world.stream_with("Running", capture("v1", false), recover).job(JOB, ended("Failed"));
    let then = "too often. It is started again at 2026-11-16T08:00:30Z.";
    assert!(says(&world).ends_with(then), "{}", says(&world));
    let mut world = World::new();
    world.stream("", batch("v1", false)).cron_job(|_| {});
    assert_eq!(
        says(&world),
        "Scheduled Ready/StreamScheduled The stream is scheduled: 0 * * * *. | StreamScheduled The stream s1 has been scheduled"
    );
}

#[test]
fn what_is_parsed_again_is_found_in_what_is_written() {
    assert_eq!(job_suffix(JOB), format!(" in Job {JOB}"));
    assert_eq!(
        job_in_message(&format!("The stream is currently running in Job {JOB}.")),
        Some(JOB)
    );
    assert_eq!(job_in_message("The stream is currently running."), None);
    // `explain` finds these by a word of theirs.
    let mut world = World::new();
    world.index.settings.backfills_max = Some(0);
    world.stream("Pending", capture("v1", false)).request("b1", |_| {});
    assert!(says(&world).contains("Waiting: 0 backfills are running, and no more may."));
    assert_eq!(world.class.crd_version, CrdVersion::V1);
}
