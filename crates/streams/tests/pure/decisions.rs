//! The phases of a stream: every row of the existing operator's table.

use serde_json::json;
use streams::decide::Action;
use streams::model::meta::Revision;
use streams::model::stream::CurrentStatus;
use streams::model::watch::Object;

use crate::world::{JOB, World, batch, capture, ended, for_request, outdated};

const LAYOUTS: [&str; 3] = ["v0", "v1", "v2"];

/// Asserts for each layout what is done about a stream in a phase.
fn each(phase: &str, suspended: bool, change: impl Fn(&mut World), does: &[&str]) {
    for layout in LAYOUTS {
        let mut world = World::new();
        world.stream(phase, capture(layout, suspended));
        change(&mut world);
        assert_eq!(world.does(), does, "{layout} {phase}");
    }
}

fn nothing(_: &mut World) {}

#[test]
fn rows_1_and_2_a_failed_job_fails_the_stream_and_the_status_is_written_first() {
    for phase in ["Pending", "Running", "Backfilling"] {
        let failed = |world: &mut World| {
            world.request("b1", |_| {});
            world.job(JOB, |job| {
                for_request("b1")(job);
                ended("Failed")(job);
            });
        };
        each(
            phase,
            false,
            failed,
            &["Failed", "W StreamingJobFailed", "stop 11111111-1111-1111-1111-111111111111 Failed"],
        );
    }
}

#[test]
fn rows_3_to_5_only_suspending_leaves_failed() {
    each("Failed", true, nothing, &["Suspended", "N StreamSuspended"]);
    each(
        "Failed",
        true,
        |w| {
            w.request("b1", |_| {});
        },
        &["Suspended", "N StreamSuspended"],
    );
    each("Failed", false, nothing, &[]);
    each(
        "Failed",
        false,
        |w| {
            w.request("b1", |_| {});
        },
        &[],
    );
    let left = |world: &mut World| {
        world.job(JOB, ended("Failed"));
    };
    each("Failed", false, left, &["stop 11111111-1111-1111-1111-111111111111 Failed"]);
}

#[test]
fn row_6_a_stream_without_a_backend_stays_new_and_reports_it_once() {
    let mut world = World::new();
    let none = json!({ "execution": { "layoutVersion": "v2", "suspended": false } });
    world.stream("", none.clone());
    assert_eq!(world.does(), ["New!", "W NoValidBackend"]);
    let Action::SetStatus(status) = world.decide().actions[0].clone() else { panic!() };
    let key = world.key();
    let mut stream = (**world.index.stream(&key).unwrap()).clone();
    stream.revision = Revision::of("900");
    stream.status = Some(Box::new(CurrentStatus {
        hash: status.hash.into(),
        kind: "Error".into(),
        message: status.message.into(),
        since: None,
    }));
    world.index.upsert(Object::Stream(stream));
    assert_eq!(world.does(), [""; 0]);
}

#[test]
fn row_7_a_new_suspended_stream_only_gets_a_status() {
    each("", true, nothing, &["Suspended", "N StreamSuspended"]);
}

#[test]
fn row_8_a_new_stream_starts_its_initial_backfill_and_requests_it() {
    const FIRST: &str = "s1-initial-backfill-0ddb0";
    each("", false, nothing, &["start Backfill(Some(\"s1-initial-backfill-0ddb0\"))"]);
    let unasked = |world: &mut World| {
        world.job(JOB, for_request(FIRST));
    };
    each("", false, unasked, &["request initial"]);
    each("", true, unasked, &["request initial"]);
    let failed = |world: &mut World| {
        world.job(JOB, |job| {
            for_request(FIRST)(job);
            ended("Failed")(job);
        });
    };
    each("", false, failed, &["request initial"]);
    let requests = |world: &mut World| {
        world.request(FIRST, |_| {}).job(JOB, for_request(FIRST));
    };
    each("", false, requests, &["Backfilling", "N StreamCreated"]);
    let waiting = |world: &mut World| {
        world.request(FIRST, |_| {});
    };
    each("", false, waiting, &["start Backfill(Some(\"s1-initial-backfill-0ddb0\"))"]);
}

#[test]
fn an_initial_backfill_that_cannot_start_is_requested_and_the_error_is_reported() {
    let mut world = World::new();
    let mut spec = capture("v0", false);
    spec["backfillJobTemplateRef"]["name"] = json!("elsewhere");
    world.stream("", spec);
    assert_eq!(world.does(), ["request initial"]);
    world.request("s1-initial-backfill-0ddb0", |_| {});
    assert_eq!(world.does(), ["New!", "W FailedCreateJob"]);
}

#[test]
fn a_completed_initial_backfill_is_not_repeated() {
    let mut world = World::new();
    world.stream("", capture("v1", false));
    world.request("s1-initial-backfill-0ddb0", |r| r["spec"]["completed"] = json!(true));
    assert_eq!(world.does(), ["start Stream"]);
}

#[test]
fn row_9_a_new_batch_gets_a_cron_job_without_a_backfill() {
    for layout in ["v1", "v2"] {
        let mut world = World::new();
        world.stream("", batch(layout, false));
        assert_eq!(world.does(), ["start schedule"]);
        world.cron_job(|_| {});
        assert_eq!(world.does(), ["Scheduled", "N StreamScheduled"]);
    }
}

#[test]
fn rows_10_and_11_a_pending_stream_is_started() {
    each("Pending", false, nothing, &["start Stream"]);
    each(
        "Pending",
        false,
        |w| {
            w.job(JOB, |_| {});
        },
        &["Running", "N StreamStarted"],
    );
    each(
        "Pending",
        false,
        |w| {
            w.request("b1", |_| {});
        },
        &["start Backfill(Some(\"b1\"))"],
    );
    let outdated = |world: &mut World| {
        world.job(JOB, outdated);
    };
    each(
        "Pending",
        false,
        outdated,
        &["stop 11111111-1111-1111-1111-111111111111 Changed running", "Pending"],
    );
}

#[test]
fn a_pending_stream_can_be_suspended() {
    each("Pending", true, nothing, &["Suspended", "N StreamSuspended"]);
    let with_job = |world: &mut World| {
        world.job(JOB, |_| {});
    };
    each(
        "Pending",
        true,
        with_job,
        &[
            "stop 11111111-1111-1111-1111-111111111111 Suspended running",
            "Suspended",
            "N StreamSuspended",
        ],
    );
}

#[test]
fn rows_12_to_15_running() {
    let with_job = |world: &mut World| {
        world.job(JOB, |_| {});
    };
    each(
        "Running",
        true,
        with_job,
        &[
            "stop 11111111-1111-1111-1111-111111111111 Suspended running",
            "Suspended",
            "N StreamSuspended",
        ],
    );
    let requests = |world: &mut World| {
        world.job(JOB, |_| {}).request("b1", |_| {});
    };
    each(
        "Running",
        false,
        requests,
        &[
            "Pending",
            "N BackfillRequested",
            "stop 11111111-1111-1111-1111-111111111111 Backfill running",
        ],
    );
    each("Running", false, with_job, &["Running"]);
    let changed = |world: &mut World| {
        world.job(JOB, outdated);
    };
    each(
        "Running",
        false,
        changed,
        &[
            "stop 11111111-1111-1111-1111-111111111111 Changed running",
            "Pending",
            "N StreamRestarting",
        ],
    );
    for layout in ["v1", "v2"] {
        let mut world = World::new();
        world.stream("Running", batch(layout, false)).job(JOB, |_| {});
        assert_eq!(world.does(), ["stop 11111111-1111-1111-1111-111111111111 Backend running"]);
    }
}

#[test]
fn rows_16_to_19_suspended() {
    each(
        "Suspended",
        true,
        |w| {
            w.request("b1", |_| {});
        },
        &["Suspended"],
    );
    each(
        "Suspended",
        false,
        |w| {
            w.request("b1", |_| {});
        },
        &["start Backfill(Some(\"b1\"))"],
    );
    each("Suspended", false, nothing, &["start Stream"]);
    each(
        "Suspended",
        false,
        |w| {
            w.job(JOB, |_| {});
        },
        &["Running", "N StreamResumed"],
    );
}

#[test]
fn rows_20_to_24_backfilling() {
    let running = |world: &mut World| {
        world.request("b1", |_| {}).job(JOB, for_request("b1"));
    };
    each(
        "Backfilling",
        true,
        running,
        &[
            "stop 11111111-1111-1111-1111-111111111111 Suspended running",
            "Suspended",
            "N StreamSuspended",
        ],
    );
    let unasked = |world: &mut World| {
        world.job(JOB, for_request("b1"));
    };
    each(
        "Backfilling",
        false,
        unasked,
        &["stop 11111111-1111-1111-1111-111111111111 Ended running"],
    );
    each(
        "Backfilling",
        false,
        |w| {
            w.request("b1", |_| {});
        },
        &["start Backfill(Some(\"b1\"))"],
    );
    let complete = |world: &mut World| {
        world.request("b1", |_| {}).job(JOB, |job| {
            for_request("b1")(job);
            ended("Complete")(job);
        });
    };
    each(
        "Backfilling",
        false,
        complete,
        &["complete b1", "stop 11111111-1111-1111-1111-111111111111 Ended"],
    );
    each("Backfilling", false, running, &["Backfilling"]);
}

#[test]
fn an_edit_does_not_interrupt_a_backfill() {
    let mut world = World::new();
    world.stream("Backfilling", capture("v1", false)).request("b1", |_| {});
    world.job(JOB, for_request("b1"));
    let mut edited = capture("v1", false);
    edited["source"] = json!("another");
    world.stream("Backfilling", edited);
    assert!(world.does().iter().all(|done| !done.starts_with("stop")), "{:?}", world.does());
}

#[test]
fn rows_25_to_27_scheduled() {
    for layout in ["v1", "v2"] {
        let mut world = World::new();
        world.stream("Scheduled", batch(layout, true)).cron_job(|_| {});
        assert_eq!(world.does(), ["stop schedule cron-uid", "Suspended", "N StreamSuspended"]);
        let mut world = World::new();
        world.stream("Scheduled", batch(layout, false)).cron_job(|_| {}).request("b1", |_| {});
        assert_eq!(world.does(), ["stop schedule cron-uid"]);
        let mut world = World::new();
        world.stream("Scheduled", batch(layout, false)).cron_job(outdated);
        assert_eq!(world.does(), ["stop schedule cron-uid"]);
        let mut world = World::new();
        world.stream("Scheduled", capture(layout, false)).cron_job(|_| {});
        assert_eq!(world.does(), ["stop schedule cron-uid"], "change capture is wanted");
        let mut world = World::new();
        world.stream("Scheduled", batch(layout, false)).request("b1", |_| {});
        assert_eq!(world.does(), ["start Backfill(Some(\"b1\"))"], "{layout}");
    }
}

#[test]
fn row_28_an_invalid_spec_is_reported_and_a_running_job_continues() {
    let mut wrong = capture("v1", false);
    wrong["execution"]["layoutVersion"] = json!("v9");
    let mut world = World::new();
    world.stream("", wrong.clone());
    assert_eq!(world.does(), ["New!", "W InvalidSpec"], "its first backfill is still to come");
    world.stream("Running", wrong).job(JOB, |_| {});
    assert_eq!(world.does(), ["Running!", "W InvalidSpec"]);
}
