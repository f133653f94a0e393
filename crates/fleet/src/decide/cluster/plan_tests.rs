//! Tables of decisions about a cluster.

use kernel::Json;

use super::*;
use crate::model::cluster::{self, Spec, Status};

const NOW: Timestamp = Timestamp(1_000_000);

fn object(provider: Provider, phase: Phase, change: impl FnOnce(&mut Cluster)) -> Object {
    let mut object = Object::new(cluster::key("c1"), "", "", "c1", phase.label(), Timestamp(0));
    object.observed = object.generation;
    object.spec = Json::encode(&Spec { provider, schedulable: true, ..Spec::default() });
    object.status = Json::encode(&Status { since: NOW, ..Status::default() });
    let mut cluster = Cluster::from_object(&object).unwrap();
    change(&mut cluster);
    object.spec = Json::encode(&cluster.spec);
    object.status = Json::encode(&cluster.status);
    object
}

fn observed() -> Observation {
    Observation {
        lost_after: Duration::from_secs(300),
        recheck: Duration::from_secs(600),
        provision_timeout: Duration::from_secs(3_600),
        client_matches: true,
        ..Observation::default()
    }
}

/// The steps, the cluster as it is written if it is, and the requeue.
fn after(
    object: &Object,
    observed: &Observation,
    now: Timestamp,
) -> (Vec<Step>, Option<Cluster>, Requeue) {
    let decision = decide(object, &Cluster::from_object(object).unwrap(), observed, now);
    let next = decision.change.write.map(|write| Cluster::from_object(&write.object).unwrap());
    (decision.steps, next, decision.requeue)
}

fn phase_after(object: &Object, observed: &Observation) -> (Vec<Step>, Option<Phase>) {
    let (steps, next, _) = after(object, observed, NOW);
    (steps, next.map(|next| next.phase))
}

#[test]
fn each_provider_has_its_own_path_to_waiting() {
    let managed =
        Observation { access: Access::Managed { matches: false, remaining: true }, ..observed() };
    let done = ProvisionState::Done { dns_name: "apps.x".into(), external_id: "e".into() };
    let provision = Observation { provision: done, ..observed() };
    let table = [
        (Provider::Agent, Phase::Accepted, observed(), vec![], Some(Phase::Waiting)),
        (Provider::Enterprise, Phase::Accepted, observed(), vec![], Some(Phase::Waiting)),
        (Provider::Standalone, Phase::Accepted, observed(), vec![], Some(Phase::Provisioned)),
        (
            Provider::Standalone,
            Phase::Provisioned,
            managed.clone(),
            vec![Step::InstallAgent],
            Some(Phase::Waiting),
        ),
        (Provider::Terraform, Phase::Accepted, observed(), vec![], Some(Phase::Provisioning)),
        (Provider::Terraform, Phase::Provisioning, observed(), vec![Step::Provision], None),
        (Provider::Terraform, Phase::Provisioning, provision, vec![], Some(Phase::Provisioned)),
        (
            Provider::Terraform,
            Phase::Provisioned,
            managed.clone(),
            vec![Step::InstallAgent],
            Some(Phase::Waiting),
        ),
        // Its module installs the agent.
        (Provider::Terraform, Phase::Provisioned, observed(), vec![], Some(Phase::Waiting)),
        (Provider::Standalone, Phase::Ready, managed, vec![Step::InstallAgent], None),
        (Provider::Local, Phase::Ready, observed(), vec![], None),
    ];
    for (provider, phase, observed, steps, to) in table {
        let object = object(provider, phase, |_| {});
        assert_eq!(phase_after(&object, &observed), (steps, to), "{provider:?} {phase:?}");
    }
}

#[test]
fn the_agents_client_comes_before_the_agent() {
    let access = Access::Managed { matches: false, remaining: true };
    let observed = Observation { access, needs_client: true, client_matches: false, ..observed() };
    let object = object(Provider::Standalone, Phase::Provisioned, |_| {});
    assert_eq!(after(&object, &observed, NOW).0, [Step::EnsureClient, Step::InstallAgent]);
}

#[test]
fn a_silent_agent_is_recorded_once_and_nothing_else_happens() {
    let last_seen = Observation { last_seen: Some(NOW), ..observed() };
    let ready = object(Provider::Agent, Phase::Ready, |_| {});
    let (_, next, wait) = after(&ready, &last_seen, NOW);
    assert_eq!((next, wait), (None, Requeue::After(Duration::from_secs(300))));
    let late = NOW.plus(Duration::from_secs(300));
    let (steps, next, _) = after(&ready, &last_seen, late);
    let next = next.unwrap();
    assert!(steps.is_empty() && next.status.agent_lost && next.phase == Phase::Ready);
    assert!(next.status.reason.contains(&NOW.to_string()), "{}", next.status.reason);
    let lost = object(Provider::Agent, Phase::Ready, |c| c.status = next.status.clone());
    assert_eq!(after(&lost, &last_seen, late).1, None, "it is not recorded again");
    let again = Observation { last_seen: Some(late), ..observed() };
    let back = after(&lost, &again, late).1.unwrap();
    assert!(!back.status.agent_lost && back.status.reason.is_empty());
    // An agent that never reported is not lost; that of a ready cluster is watched from the start.
    let waiting = object(Provider::Agent, Phase::Waiting, |_| {});
    assert_eq!(after(&waiting, &observed(), late).1, None);
    assert!(after(&ready, &observed(), late).1.unwrap().status.agent_lost);
}

#[test]
fn a_deletion_waits_until_empty_then_removes_the_cluster_then_its_client() {
    let deleting = |phase| object(Provider::Terraform, phase, |c| c.spec.deleting = true);
    assert_eq!(phase_after(&deleting(Phase::Ready), &observed()).1, Some(Phase::Deprovisioning));
    let full = Observation { instances: 3, ..observed() };
    let (steps, next, _) = after(&deleting(Phase::Deprovisioning), &full, NOW);
    assert!(steps.is_empty());
    assert_eq!(next.unwrap().status.waiting_for, "3 instances to be deleted");
    let empty = phase_after(&deleting(Phase::Deprovisioning), &observed());
    assert_eq!(empty, (vec![Step::Destroy], Some(Phase::Cleanup)));
    let client = Observation { needs_client: true, ..observed() };
    let last = deleting(Phase::Cleanup);
    let decision = decide(&last, &Cluster::from_object(&last).unwrap(), &client, NOW);
    assert_eq!(decision.steps, [Step::RemoveClient]);
    assert!(decision.change.write.unwrap().object.deleted_at.is_some());
    let remaining =
        Observation { access: Access::Managed { matches: false, remaining: true }, ..observed() };
    let standalone =
        object(Provider::Standalone, Phase::Deprovisioning, |c| c.spec.deleting = true);
    assert_eq!(phase_after(&standalone, &remaining), (vec![Step::Uninstall], None));
    let removed =
        Observation { access: Access::Managed { matches: false, remaining: false }, ..observed() };
    assert_eq!(phase_after(&standalone, &removed), (vec![], Some(Phase::Cleanup)));
}

#[test]
fn a_forced_deletion_ignores_instances_and_wakes_them() {
    let forced = |phase| {
        object(Provider::Standalone, phase, |c| (c.spec.deleting, c.spec.force) = (true, true))
    };
    let full = Observation { instances: 100_000, ..observed() };
    assert_eq!(phase_after(&forced(Phase::Deprovisioning), &full), (vec![], Some(Phase::Cleanup)));
    let last = forced(Phase::Cleanup);
    let decision = decide(&last, &Cluster::from_object(&last).unwrap(), &full, NOW);
    let wakes: Vec<_> = decision.change.wakes.iter().map(|wake| wake.key.as_str()).collect();
    assert_eq!(wakes, ["recheck/evicted"]);
}

#[test]
fn a_provision_timeout_keeps_the_last_reason_and_a_changed_spec_retries() {
    let late = NOW.plus(Duration::from_secs(3_600));
    let slow =
        object(Provider::Terraform, Phase::Provisioning, |c| c.status.reason = "no quota".into());
    let failed = after(&slow, &observed(), late).1.unwrap();
    assert_eq!(failed.phase, Phase::Failed);
    assert!(failed.status.reason.contains("no quota"), "{}", failed.status.reason);
    let mut object = object(Provider::Terraform, Phase::Failed, |_| {});
    assert_eq!(phase_after(&object, &observed()), (vec![], None));
    object.generation += 1;
    assert_eq!(phase_after(&object, &observed()).1, Some(Phase::Accepted));
}

#[test]
fn a_spare_cluster_is_deleted_after_its_idle_time_unless_it_is_a_dry_run() {
    let scale_down = |dry_run| {
        let scale_down = ScaleDown::After { idle: Duration::from_secs(60), dry_run };
        Observation { scale_down, last_seen: Some(NOW), ..observed() }
    };
    let fresh = object(Provider::Terraform, Phase::Ready, |_| {});
    assert_eq!(after(&fresh, &scale_down(false), NOW).1.unwrap().status.empty_since, Some(NOW));
    let idle = object(Provider::Terraform, Phase::Ready, |c| c.status.empty_since = Some(NOW));
    let early = NOW.plus(Duration::from_secs(59));
    assert_eq!(after(&idle, &scale_down(false), early).1, None);
    let late = NOW.plus(Duration::from_secs(60));
    let gone = after(&idle, &scale_down(false), late).1.unwrap();
    assert!(gone.spec.deleting && gone.phase == Phase::Deprovisioning);
    let (steps, next, _) = after(&idle, &scale_down(true), late);
    assert_eq!((steps, next), (vec![Step::LogScaleDown], None));
    let busy = Observation { last_seen: Some(NOW), ..observed() };
    assert_eq!(after(&idle, &busy, late).1.unwrap().status.empty_since, None);
}
