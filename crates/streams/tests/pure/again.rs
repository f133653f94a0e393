//! A stream that was deleted and created again: what belonged to the earlier one is not its own.

use serde_json::{Value, json};
use streams::model::NamespacedName;
use streams::model::job::JobResult;
use streams::model::meta::Revision;
use streams::model::phase::Phase;
use streams::model::watch::{Resource, WatchEvent};

use crate::world::{JOB, World, capture, ended, for_request};

const OWN: &str = "s1-initial-backfill-0ddb0";
const EARLIER: &str = "s1-initial-backfill-eeeee";

fn of_an_earlier_stream(object: &mut Value) {
    object["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "streaming.sneaksanddata.com/v1", "kind": "A", "name": "s1", "uid": "earlier", "controller": true },
    ]);
}

/// The open request of an earlier stream, which the garbage collector has yet to delete.
fn created_again() -> World {
    let mut world = World::new();
    world.stream("", capture("v1", false)).request(EARLIER, of_an_earlier_stream);
    world
}

#[test]
fn the_open_request_of_an_earlier_stream_is_not_carried_out() {
    let mut world = created_again();
    assert_eq!(world.does(), [format!("start Backfill(Some({OWN:?}))")]);
    let story = world.converge(None).unwrap();
    assert_eq!(story.created, 1, "{story:#?}");
    assert!(world.objects.requests.contains_key(OWN), "{story:#?}");
    // The garbage collector comes late, and changes nothing.
    let gone = WatchEvent::Deleted(
        NamespacedName::new("n", EARLIER),
        format!("{EARLIER}-uid").into(),
        Revision::of(&world.next()),
    );
    world.index.apply(&Resource::BackfillRequests, gone);
    assert_eq!(world.does(), [""; 0]);
    assert_eq!(world.index.stream(&world.key()).unwrap().phase, Phase::Backfilling);
}

#[test]
fn while_the_job_of_an_earlier_stream_ends_the_first_backfill_is_still_to_come() {
    let mut world = created_again();
    world.job(JOB, |job| {
        for_request(EARLIER)(job);
        of_an_earlier_stream(job);
    });
    world.converge(None).unwrap();
    assert_eq!(world.index.stream(&world.key()).unwrap().phase, Phase::New);
    world.job_gone(JOB);
    assert_eq!(world.does(), [format!("start Backfill(Some({OWN:?}))")]);
}

#[test]
fn how_the_job_of_an_earlier_stream_ended_says_nothing_of_this_one() {
    for kind in ["Failed", "Complete"] {
        let mut world = World::new();
        world.stream("Backfilling", capture("v1", false)).request("b1", |_| {});
        world.job(JOB, |job| {
            for_request("b1")(job);
            of_an_earlier_stream(job);
            ended(kind)(job);
        });
        world.job_gone(JOB);
        assert_eq!(world.does(), ["start Backfill(Some(\"b1\"))"], "{kind}");
        // What its own status names is asked after, and counts.
        let object_name = world.key().object_name;
        world.index.record_job_result(&object_name, JOB, JobResult::Failed("why".into()));
        assert_eq!(world.does(), ["Failed", "W StreamingJobFailed"], "{kind}");
    }
}

#[test]
fn requests_of_an_earlier_stream_are_neither_counted_nor_removed_nor_refused() {
    let mut world = World::new();
    world.index.settings.requests_kept = 0;
    world.stream("Suspended", capture("v1", true));
    world.request(EARLIER, |request| {
        of_an_earlier_stream(request);
        request["spec"]["completed"] = json!(true);
    });
    world.converge(None).unwrap();
    assert!(world.objects.requests.contains_key(EARLIER));

    let mut world = World::new();
    world.request(EARLIER, of_an_earlier_stream);
    assert_eq!(world.does(), [""; 0], "the garbage collector removes it");
}

#[test]
fn requests_of_users_and_of_other_owners_are_carried_out() {
    let of_this = |owner: Value| {
        let mut world = World::new();
        world.stream("Pending", capture("v1", false));
        world.request("b1", |request| request["metadata"]["ownerReferences"] = json!([owner]));
        world.does()
    };
    let started = ["start Backfill(Some(\"b1\"))"];
    assert_eq!(of_this(json!({ "kind": "A", "name": "s1", "uid": "s1-uid" })), started);
    assert_eq!(of_this(json!({ "kind": "Pipeline", "name": "s1", "uid": "other" })), started);
    assert_eq!(of_this(json!({ "kind": "A", "name": "s2", "uid": "other" })), started);
    assert_eq!(of_this(json!({ "kind": "A", "name": "s1", "uid": "other" })), ["start Stream"]);
}
