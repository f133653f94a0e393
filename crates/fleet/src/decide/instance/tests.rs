//! What is decided in each status, without anything running.

use std::sync::Arc;
use std::time::Duration;

use kernel::change::Write;
use kernel::driver::{Decision, Requeue};
use kernel::{Json, Key, Object, Timestamp};

use super::{Entitled, Step, World, decide};
use crate::config::Scaling;
use crate::decide::place::{Candidate, Request, judge};
use crate::model::cluster::{self, Cluster, Operator};
use crate::model::instance::{Instance, Route, Seen, Spec, Status};
use crate::ports::dns::Record;

const NOW: Timestamp = Timestamp(1_000_000_000);

fn cluster() -> Arc<Cluster> {
    let versions = vec!["3.0".to_owned()];
    let operator = Operator {
        version: "1".into(),
        ready: true,
        components: [("kafka".into(), versions)].into(),
    };
    Arc::new(Cluster {
        id: "c1".into(),
        org: String::new(),
        owner: String::new(),
        name: "c1".into(),
        status: cluster::Status::Ready,
        created_at: NOW,
        updated_at: NOW,
        revision: 1,
        spec: cluster::Spec { schedulable: true, limit: Some(9), ..Default::default() },
        seen: cluster::Seen {
            operators: [("kafka".into(), vec![operator])].into(),
            ..Default::default()
        },
    })
}

fn world() -> World {
    World {
        cluster: Some(cluster()),
        fresh_id: "fresh".into(),
        operator: Some("strimzi".into()),
        domain: "example".into(),
        dns_in_sync: true,
        client_is_so: true,
        ..World::default()
    }
}

fn object(status: Status, change: impl FnOnce(&mut Spec, &mut Seen)) -> Object {
    let mut spec = Spec { units: 1, quota_counter: "fleet/quota/x".into(), ..Spec::default() };
    let mut seen = Seen {
        since: NOW,
        cluster_id: "c1".into(),
        capacity_counter: "fleet/capacity/c1".into(),
        ..Seen::default()
    };
    if status != Status::Accepted && status != Status::Preparing {
        (seen.placement_id, seen.host) = ("p1".into(), "demo-k1.example".into());
    }
    change(&mut spec, &mut seen);
    let mut object =
        Object::new(Key::new("kafka", "k1"), "acme", "alice", "demo", status.label(), NOW);
    (object.spec, object.status) = (Json::encode(&spec), Json::encode(&seen));
    object
}

fn decided(object: &Object, world: &World, now: Timestamp) -> Decision<Step> {
    decide(object, &Instance::of(object).unwrap(), world, now)
}

fn after(decision: &Decision<Step>) -> Option<Instance> {
    decision.change.write.as_ref().map(|write| Instance::of(write.object()).unwrap())
}

#[test]
fn a_placed_instance_goes_to_its_data_plane_in_one_look() {
    let object = object(Status::Accepted, |_, _| {});
    let decision =
        decided(&object, &World { has_client: true, client_is_so: false, ..world() }, NOW);
    let [Step::Record(first), Step::EnsureClient] = decision.steps.as_slice() else {
        panic!("{:?}", decision.steps)
    };
    assert_eq!(first.write.as_ref().unwrap().object().phase, "preparing");
    let next = after(&decision).unwrap();
    assert_eq!(next.status, Status::Provisioning);
    assert_eq!(next.revision, object.revision + 1, "the second write follows the first");
    assert_eq!(
        (next.seen.placement_id.as_str(), next.seen.namespace.as_str()),
        ("fresh", "kafka-k1")
    );
    assert_eq!(next.seen.host, "demo-k1.example");
    assert_eq!(next.spec.versions["kafka"], "3.0");
}

#[test]
fn an_instance_without_a_cluster_takes_the_best_or_says_what_it_waits_for() {
    let unplaced = object(Status::Accepted, |_, seen| {
        seen.cluster_id.clear();
        seen.capacity_counter.clear();
    });
    let request = |units| Request {
        kind: "kafka",
        org: "acme",
        cloud_provider: "",
        region: "",
        multi_az: false,
        instance_type: "standard",
        units,
        own_cluster: "",
        refused_by: &[],
        scaling: Scaling::Auto,
    };
    let with = |units| World {
        cluster: None,
        judged: judge(&request(units), [Candidate { cluster: cluster(), used: 0 }]),
        ..world()
    };
    let decision = decided(&unplaced, &with(1), NOW);
    let Some(Step::RecordWithRest(first)) = decision.steps.first() else {
        panic!("{:?}", decision.steps)
    };
    assert_eq!(first.takes[0].counter, "fleet/capacity/c1");
    let waits = decided(&unplaced, &with(10), NOW);
    assert!(after(&waits).unwrap().seen.waiting_for.contains("0 of 9 units"));
    let late = decided(&unplaced, &with(10), NOW.plus(Duration::from_secs(3_600)));
    let failed = after(&late).unwrap();
    assert_eq!(failed.status, Status::Failed);
    assert!(
        failed.seen.failed_reason.contains("it waited 3600 s"),
        "{}",
        failed.seen.failed_reason
    );
}

#[test]
fn ready_needs_the_agent_and_the_names() {
    let routes = vec![Route { domain: "demo-k1.example".into(), router: "r.c1".into() }];
    let reported = object(Status::Provisioning, |_, seen| {
        seen.routes = Some(routes);
        seen.agent_ready = true;
    });
    let dns = World { has_dns: true, ..world() };
    let decision = decided(&reported, &dns, NOW);
    assert!(matches!(decision.steps.as_slice(), [Step::UpsertRecords(_)]));
    let record = Record { name: "demo-k1.example".into(), target: "r.c1".into() };
    let there = World { records: vec![record], ..dns.clone() };
    let pending = decided(&reported, &World { dns_in_sync: false, ..there.clone() }, NOW);
    assert!(pending.steps.is_empty() && pending.change.write.is_none());
    assert_eq!(after(&decided(&reported, &there, NOW)).unwrap().status, Status::Ready);
    let silent = object(Status::Provisioning, |_, _| {});
    let late = decided(&silent, &world(), NOW.plus(Duration::from_secs(3_600)));
    assert_eq!(after(&late).unwrap().status, Status::Failed);
}

#[test]
fn what_rests_is_looked_at_only_when_something_ends_or_may_have_drifted() {
    let ready = object(Status::Ready, |_, _| {});
    assert_eq!(decided(&ready, &world(), NOW).requeue, Requeue::Never);
    let outside = World { has_client: true, ..world() };
    assert_eq!(decided(&ready, &outside, NOW).requeue, Requeue::After(Duration::from_secs(3_600)));
    let drifted = World { client_is_so: false, ..outside };
    assert!(matches!(decided(&ready, &drifted, NOW).steps.as_slice(), [Step::EnsureClient]));
    let ends = object(Status::Ready, |spec, _| {
        spec.quota_counter = "fleet/trial/x".into();
        spec.expires_at = Some(NOW.plus(Duration::from_secs(60)));
    });
    assert_eq!(decided(&ends, &world(), NOW).requeue, Requeue::After(Duration::from_secs(60)));
    let over = decided(&ends, &world(), NOW.plus(Duration::from_secs(60)));
    assert_eq!(after(&over).unwrap().status, Status::Deprovision);
}

#[test]
fn a_quota_that_ended_leaves_its_grace_then_suspends_and_one_that_came_back_forgives() {
    let lapsed = World { entitled: Entitled::No { grace_days: 4 }, ..world() };
    let ready = object(Status::Ready, |_, _| {});
    let expiring = after(&decided(&ready, &lapsed, NOW)).unwrap();
    let end = NOW.plus(Duration::from_secs(4 * 86_400));
    assert_eq!(expiring.spec.expires_at, Some(end));
    let in_grace = object(Status::Ready, |spec, _| spec.expires_at = Some(end));
    assert_eq!(after(&decided(&in_grace, &lapsed, NOW)).unwrap().status, Status::Suspending);
    let back = after(&decided(&in_grace, &world(), NOW)).unwrap();
    assert_eq!((back.spec.expires_at, back.status), (None, Status::Ready));
    assert_eq!(after(&decided(&in_grace, &lapsed, end)).unwrap().status, Status::Deprovision);
}

#[test]
fn a_denied_owner_loses_everything_and_leaving_has_an_order() {
    let denied = World { denied: true, ..world() };
    let ready = object(Status::Ready, |_, _| {});
    assert_eq!(after(&decided(&ready, &denied, NOW)).unwrap().status, Status::Deprovision);
    let waits = decided(&object(Status::Deprovision, |_, _| {}), &world(), NOW);
    assert!(waits.steps.is_empty() && waits.change.write.is_none(), "the data plane comes first");
    let never_there = object(Status::Deprovision, |_, seen| seen.placement_id.clear());
    assert_eq!(after(&decided(&never_there, &world(), NOW)).unwrap().status, Status::Deleting);
    let vanished =
        decided(&object(Status::Deprovision, |_, _| {}), &World { cluster: None, ..world() }, NOW);
    assert_eq!(after(&vanished).unwrap().status, Status::Deleting);
    let outside = World { has_client: true, has_dns: true, ..world() };
    let deleting = object(Status::Deleting, |_, seen| {
        seen.names = ["demo-k1.example".to_owned()].into();
    });
    let decision = decided(&deleting, &outside, NOW);
    assert!(matches!(decision.steps.as_slice(), [Step::RemoveRecords(_), Step::RemoveClient]));
    let Some(Write::Update(gone)) = &decision.change.write else { panic!("it is written") };
    assert_eq!(gone.deleted_at, Some(NOW));
    assert!(decision.change.releases.len() >= 3, "{:?}", decision.change.releases);
    assert_ne!(decision.requeue, Requeue::Never, "once more, for whoever was asleep");
    let later = decided(gone, &outside, NOW.plus(Duration::from_secs(600)));
    assert_eq!((later.steps.len(), later.requeue), (2, Requeue::Never));
}
