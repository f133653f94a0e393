//! What holds in every state of a stream.

use serde_json::{Value, json};
use streams::decide::Action;

use crate::world::{JOB, World, batch, capture, deleting, ended, for_request, outdated};

pub const PHASES: [&str; 7] =
    ["", "Pending", "Backfilling", "Running", "Scheduled", "Suspended", "Failed"];

pub type Change = fn(&mut Value);

fn unchanged(_: &mut Value) {}
fn complete(job: &mut Value) {
    ended("Complete")(job);
}
fn failed(job: &mut Value) {
    ended("Failed")(job);
}
fn ours(job: &mut Value) {
    for_request("b1")(job);
}
fn ours_complete(job: &mut Value) {
    ours(job);
    complete(job);
}
fn ours_failed(job: &mut Value) {
    ours(job);
    failed(job);
}
fn ours_ending(job: &mut Value) {
    ours_complete(job);
    deleting(job);
}
pub fn anothers(job: &mut Value) {
    for_request("b0")(job);
}

pub const JOBS: [(&str, Option<Change>); 10] = [
    ("none", None),
    ("running", Some(unchanged)),
    ("outdated", Some(outdated)),
    ("complete", Some(complete)),
    ("failed", Some(failed)),
    ("ending", Some(deleting)),
    ("ours", Some(ours)),
    ("ours complete", Some(ours_complete)),
    ("ours failed", Some(ours_failed)),
    ("ours ending", Some(ours_ending)),
];

fn specs(suspended: bool) -> [Value; 4] {
    let none = json!({ "execution": { "layoutVersion": "v2", "suspended": suspended } });
    [capture("v0", suspended), capture("v2", suspended), batch("v2", suspended), none]
}

/// Every state, with a name to find it by.
fn states(mut check: impl FnMut(&str, &World)) -> usize {
    let mut count = 0;
    for suspended in [false, true] {
        for (layout, spec) in specs(suspended).into_iter().enumerate() {
            for phase in PHASES {
                for (job, change) in
                    JOBS.into_iter().chain([("another's", Some(anothers as Change))])
                {
                    for request in ["none", "open", "completed"] {
                        for cron_job in ["none", "there", "ending"] {
                            let mut world = World::new();
                            world.stream(phase, spec.clone());
                            if let Some(change) = change {
                                world.job(JOB, change);
                            }
                            if request != "none" {
                                world.request("b1", |r| {
                                    r["spec"]["completed"] = json!(request == "completed")
                                });
                            }
                            match cron_job {
                                "there" => drop(world.cron_job(|_| {})),
                                "ending" => drop(world.cron_job(deleting)),
                                _ => {}
                            }
                            let name = format!(
                                "suspended {suspended}, layout {layout}, {phase:?}, Job {job}, request {request}, CronJob {cron_job}"
                            );
                            check(&name, &world);
                            count += 1;
                        }
                    }
                }
            }
        }
    }
    count
}

#[test]
fn no_decision_violates_an_invariant_in_any_state() {
    let count = states(|name, world| {
        let suspended = name.starts_with("suspended true");
        let job = world.index.job(&world.key().object_name).cloned();
        let cron_job = world.index.cron_job(&world.key().object_name).cloned();
        for action in world.decide().actions {
            match action {
                Action::StartJob { .. } => {
                    assert!(!suspended && job.is_none() && cron_job.is_none(), "{name}");
                }
                Action::StartSchedule { .. } => {
                    assert!(!suspended && job.is_none() && cron_job.is_none(), "{name}");
                }
                Action::RequestInitialBackfill { .. } => {
                    assert!(!suspended && name.contains("\"\""), "{name}");
                }
                Action::StopJob { running, .. } => {
                    let job = job.as_ref().expect(name);
                    assert!(!job.deleting && running == job.ended.is_none(), "{name}");
                }
                Action::StopSchedule { .. } => {
                    assert!(!cron_job.as_ref().expect(name).deleting, "{name}");
                }
                Action::CompleteRequest { name: request } => {
                    assert_eq!(&*request, "b1");
                    assert!(name.contains("Job ours complete, request open"), "{name}");
                }
                Action::SetStatus(status) => {
                    let patch = status.patch(
                        world.index.stream(&world.key()).unwrap(),
                        world.class.crd_version,
                        crate::world::now(),
                    );
                    assert!(patch.as_object().unwrap().keys().eq(["status"]), "{name}: {patch}");
                }
                Action::Annotate { .. } => panic!("nobody asked for that: {name}"),
                Action::LookUpJobResult { .. }
                | Action::RefuseRequest { .. }
                | Action::RemoveRequest { .. }
                | Action::Publish(_) => {}
            }
        }
    });
    assert_eq!(count, 2 * 4 * 7 * 11 * 3 * 3);
}

#[test]
fn a_stale_job_does_not_end_the_cron_job() {
    let mut world = World::new();
    world.stream("Scheduled", batch("v1", false)).cron_job(|_| {}).job(JOB, failed);
    assert_eq!(world.does(), [format!("stop {JOB} Backend")]);
}

#[test]
fn the_initial_request_is_owned_by_its_stream() {
    let mut world = World::new();
    world.stream("", capture("v1", false)).job(JOB, for_request("s1-initial-backfill-0ddb0"));
    let Action::RequestInitialBackfill { manifest } = &world.decide().actions[0] else { panic!() };
    let owner = &manifest["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&json!("s1-uid"), &json!(false)));
    assert_eq!(manifest["spec"], json!({ "streamClass": "class-a", "streamId": "s1" }));
}
