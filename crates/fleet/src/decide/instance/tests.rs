//! Decisions in each phase.

use std::sync::Arc;
use std::time::Duration;

use kernel::driver::{Decision, Requeue};
use kernel::{Json, Key, Object, Timestamp};

use super::{Entitled, Observation, Step, decide};
use crate::decide::placement::rank_clusters;
use crate::model::cluster::Candidate;
use crate::model::cluster::{self, Cluster, Operator};
use crate::model::dns::Record;
use crate::model::instance::{Instance, Phase, Route, Spec, Status};
use crate::model::settings::Scaling;

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
        kind: "cluster".into(),
        org: String::new(),
        owner: String::new(),
        name: "c1".into(),
        phase: cluster::Phase::Ready,
        created_at: NOW,
        updated_at: NOW,
        revision: 1,
        spec: cluster::Spec { schedulable: true, limit: Some(9), ..Default::default() },
        status: cluster::Status {
            operators: [("kafka".into(), vec![operator])].into(),
            ..Default::default()
        },
    })
}

fn observed() -> Observation {
    Observation {
        cluster: Some(cluster()),
        fresh_id: "fresh".into(),
        operator: Some("strimzi".into()),
        domain: "example".into(),
        dns_in_sync: true,
        client_matches: true,
        ..Observation::default()
    }
}

fn object(phase: Phase, change: impl FnOnce(&mut Spec, &mut Status)) -> Object {
    let mut spec = Spec { units: 1, quota_counter: "fleet/quota/x".into(), ..Spec::default() };
    let mut status = Status {
        since: NOW,
        cluster_id: "c1".into(),
        capacity_counter: "fleet/capacity/c1".into(),
        ..Status::default()
    };
    if phase != Phase::Accepted && phase != Phase::Preparing {
        (status.placement_id, status.host) = ("p1".into(), "demo-k1.example".into());
    }
    change(&mut spec, &mut status);
    let mut object =
        Object::new(Key::new("kafka", "k1"), "acme", "alice", "demo", phase.label(), NOW);
    (object.spec, object.status) = (Json::encode(&spec), Json::encode(&status));
    object
}

fn decided(object: &Object, observed: &Observation, now: Timestamp) -> Decision<Step> {
    decide(object, &Instance::from_object(object).unwrap(), observed, now)
}

fn after(decision: &Decision<Step>) -> Option<Instance> {
    decision.change.write.as_ref().map(|write| Instance::from_object(&write.object).unwrap())
}

#[test]
fn a_placed_instance_is_handed_to_its_data_plane_in_one_attempt() {
    let object = object(Phase::Accepted, |_, _| {});
    let decision = decided(
        &object,
        &Observation { needs_client: true, client_matches: false, ..observed() },
        NOW,
    );
    let [Step::Record(first), Step::EnsureClient] = decision.steps.as_slice() else {
        panic!("{:?}", decision.steps)
    };
    assert_eq!(first.write.as_ref().unwrap().object.phase, "preparing");
    let next = after(&decision).unwrap();
    assert_eq!(next.phase, Phase::Provisioning);
    assert_eq!(next.revision, object.revision + 1, "the second write follows the first");
    assert_eq!(
        (next.status.placement_id.as_str(), next.status.namespace.as_str()),
        ("fresh", "kafka-k1")
    );
    assert_eq!(next.status.host, "demo-k1.example");
    assert_eq!(next.spec.versions["kafka"], "3.0");
}

#[test]
fn an_unplaced_instance_takes_the_best_cluster_or_records_what_it_waits_for() {
    let unplaced = object(Phase::Accepted, |_, status| {
        status.cluster_id.clear();
        status.capacity_counter.clear();
    });
    let placing = |units| {
        let spec = Spec { instance_type: "standard".into(), units, ..Spec::default() };
        Instance { kind: "kafka".into(), org: "acme".into(), spec, ..Instance::default() }
    };
    let candidate = || Candidate { cluster: cluster(), used: 0 };
    let with = |units| Observation {
        cluster: None,
        candidates: rank_clusters(&placing(units), Scaling::Auto, [candidate()]),
        ..observed()
    };
    let decision = decided(&unplaced, &with(1), NOW);
    let Some(Step::RecordOnCommit(first)) = decision.steps.first() else {
        panic!("{:?}", decision.steps)
    };
    assert_eq!(first.takes[0].counter, "fleet/capacity/c1");
    let waits = decided(&unplaced, &with(10), NOW);
    assert!(after(&waits).unwrap().status.waiting_for.contains("0 of 9 units"));
    let late = decided(&unplaced, &with(10), NOW.plus(Duration::from_secs(3_600)));
    let failed = after(&late).unwrap();
    assert_eq!(failed.phase, Phase::Failed);
    assert!(
        failed.status.failed_reason.contains("it waited 3600 s"),
        "{}",
        failed.status.failed_reason
    );
}

#[test]
fn an_instance_is_ready_when_its_agent_and_its_dns_names_are() {
    let routes = vec![Route { domain: "demo-k1.example".into(), router: "r.c1".into() }];
    let reported = object(Phase::Provisioning, |_, status| {
        status.routes = Some(routes);
        status.agent_ready = true;
    });
    let dns = Observation { has_dns: true, ..observed() };
    let decision = decided(&reported, &dns, NOW);
    assert!(matches!(decision.steps.as_slice(), [Step::UpsertRecords(_)]));
    let record = Record { name: "demo-k1.example".into(), target: "r.c1".into() };
    let registered = Observation { records: vec![record], ..dns.clone() };
    let pending =
        decided(&reported, &Observation { dns_in_sync: false, ..registered.clone() }, NOW);
    assert!(pending.steps.is_empty() && pending.change.write.is_none());
    assert_eq!(after(&decided(&reported, &registered, NOW)).unwrap().phase, Phase::Ready);
    let silent = object(Phase::Provisioning, |_, _| {});
    let late = decided(&silent, &observed(), NOW.plus(Duration::from_secs(3_600)));
    assert_eq!(after(&late).unwrap().phase, Phase::Failed);
}

#[test]
fn a_ready_instance_is_requeued_only_for_its_expiry_or_possible_drift() {
    let ready = object(Phase::Ready, |_, _| {});
    assert_eq!(decided(&ready, &observed(), NOW).requeue, Requeue::Never);
    let outside = Observation { needs_client: true, ..observed() };
    assert_eq!(decided(&ready, &outside, NOW).requeue, Requeue::After(Duration::from_secs(3_600)));
    let drifted = Observation { client_matches: false, ..outside };
    assert!(matches!(decided(&ready, &drifted, NOW).steps.as_slice(), [Step::EnsureClient]));
    let ends = object(Phase::Ready, |spec, _| {
        spec.quota_counter = "fleet/trial/x".into();
        spec.expires_at = Some(NOW.plus(Duration::from_secs(60)));
    });
    assert_eq!(decided(&ends, &observed(), NOW).requeue, Requeue::After(Duration::from_secs(60)));
    let over = decided(&ends, &observed(), NOW.plus(Duration::from_secs(60)));
    assert_eq!(after(&over).unwrap().phase, Phase::Deprovision);
}

#[test]
fn an_ended_quota_starts_the_grace_period_and_suspends_and_a_restored_one_reverts_both() {
    let lapsed = Observation { entitled: Entitled::No { grace_days: 4 }, ..observed() };
    let ready = object(Phase::Ready, |_, _| {});
    let expiring = after(&decided(&ready, &lapsed, NOW)).unwrap();
    let end = NOW.plus(Duration::from_secs(4 * 86_400));
    assert_eq!(expiring.spec.expires_at, Some(end));
    let in_grace = object(Phase::Ready, |spec, _| spec.expires_at = Some(end));
    let suspends = decided(&in_grace, &lapsed, NOW);
    assert_eq!(after(&suspends).unwrap().phase, Phase::Suspending);
    assert_eq!(suspends.requeue, Requeue::After(Duration::ZERO), "its cluster may be gone");
    let back = after(&decided(&in_grace, &observed(), NOW)).unwrap();
    assert_eq!((back.spec.expires_at, back.phase), (None, Phase::Ready));
    assert_eq!(after(&decided(&in_grace, &lapsed, end)).unwrap().phase, Phase::Deprovision);
}

#[test]
fn a_paid_instance_keeps_the_end_of_its_lifespan() {
    let day = |days: u64| NOW.plus(Duration::from_secs(days * 86_400));
    let brief = |expires: Timestamp, ends: Timestamp| {
        object(Phase::Ready, |spec, _| {
            (spec.expires_at, spec.lifespan_ends) = (Some(expires), Some(ends));
        })
    };
    let decision = decided(&brief(day(1), day(1)), &observed(), NOW);
    assert!(decision.change.write.is_none(), "{:?}", decision.change);
    assert_eq!(decision.requeue, Requeue::After(Duration::from_secs(86_400)));
    let over = decided(&brief(day(1), day(1)), &observed(), day(1));
    assert_eq!(after(&over).unwrap().phase, Phase::Deprovision);
    // An ended quota may only shorten it, and a renewed one restores it.
    let lapsed = Observation { entitled: Entitled::No { grace_days: 4 }, ..observed() };
    let shortened = after(&decided(&brief(day(9), day(9)), &lapsed, NOW)).unwrap();
    assert_eq!(shortened.spec.expires_at, Some(day(4)));
    let in_grace = after(&decided(&brief(day(4), day(9)), &lapsed, NOW)).unwrap();
    assert_eq!(in_grace.phase, Phase::Suspending);
    let renewed = after(&decided(&brief(day(4), day(9)), &observed(), NOW)).unwrap();
    assert_eq!(renewed.spec.expires_at, Some(day(9)));
    let ends_first = after(&decided(&brief(day(2), day(2)), &lapsed, NOW)).unwrap();
    assert_eq!((ends_first.spec.expires_at, ends_first.phase), (Some(day(2)), Phase::Suspending));
}

#[test]
fn a_denied_owners_instances_are_deleted_and_deletion_has_an_order() {
    let denied = Observation { denied: true, ..observed() };
    let ready = object(Phase::Ready, |_, _| {});
    assert_eq!(after(&decided(&ready, &denied, NOW)).unwrap().phase, Phase::Deprovision);
    let waits = decided(&object(Phase::Deprovision, |_, _| {}), &observed(), NOW);
    assert!(waits.steps.is_empty() && waits.change.write.is_none(), "the data plane comes first");
    let never_there = object(Phase::Deprovision, |_, status| status.placement_id.clear());
    assert_eq!(after(&decided(&never_there, &observed(), NOW)).unwrap().phase, Phase::Deleting);
    let vanished = decided(
        &object(Phase::Deprovision, |_, _| {}),
        &Observation { cluster: None, ..observed() },
        NOW,
    );
    assert_eq!(after(&vanished).unwrap().phase, Phase::Deleting);
    let outside = Observation { needs_client: true, has_dns: true, ..observed() };
    let deleting = object(Phase::Deleting, |_, status| {
        status.names = ["demo-k1.example".to_owned()].into();
    });
    let decision = decided(&deleting, &outside, NOW);
    assert!(matches!(decision.steps.as_slice(), [Step::RemoveRecords(_), Step::RemoveClient]));
    let gone = &decision.change.write.as_ref().expect("it is written").object;
    assert_eq!(gone.deleted_at, Some(NOW));
    assert!(decision.change.releases.len() >= 3, "{:?}", decision.change.releases);
    assert_ne!(decision.requeue, Requeue::Never, "swept once more, for a paused process");
    let later = decided(gone, &outside, NOW.plus(Duration::from_secs(600)));
    assert_eq!((later.steps.len(), later.requeue), (2, Requeue::Never));
}
