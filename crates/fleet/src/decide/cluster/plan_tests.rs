//! Tables of what follows for a cluster from what was seen.

use kernel::{Key, Lane};

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

/// What is done, and the cluster as it is written; none if nothing is.
fn after(
    object: &Object,
    observed: &Observation,
    now: Timestamp,
) -> (Vec<Step>, Option<Cluster>, Requeue) {
    let decision = decide(object, &Cluster::from_object(object).unwrap(), observed, now);
    let next = match &decision.change.write {
        Some(Write::Update(next)) => Some(Cluster::from_object(next).unwrap()),
        _ => None,
    };
    (decision.steps, next, decision.requeue)
}

fn status_after(object: &Object, observed: &Observation) -> (Vec<Step>, Option<Phase>) {
    let (steps, next, _) = after(object, observed, NOW);
    (steps, next.map(|next| next.phase))
}

#[test]
fn each_provider_comes_up_in_its_own_way() {
    let ours =
        Observation { access: Access::Managed { matches: false, remaining: true }, ..observed() };
    let there = ProvisionState::Done { dns_name: "apps.x".into(), external_id: "e".into() };
    let provision = Observation { provision: there, ..observed() };
    let table = [
        (Provider::Agent, Phase::Accepted, observed(), vec![], Some(Phase::Waiting)),
        (Provider::Enterprise, Phase::Accepted, observed(), vec![], Some(Phase::Waiting)),
        (Provider::Standalone, Phase::Accepted, observed(), vec![], Some(Phase::Provisioned)),
        (
            Provider::Standalone,
            Phase::Provisioned,
            ours.clone(),
            vec![Step::InstallAgent],
            Some(Phase::Waiting),
        ),
        (Provider::Terraform, Phase::Accepted, observed(), vec![], Some(Phase::Provisioning)),
        (Provider::Terraform, Phase::Provisioning, observed(), vec![Step::Provision], None),
        (Provider::Terraform, Phase::Provisioning, provision, vec![], Some(Phase::Provisioned)),
        (
            Provider::Terraform,
            Phase::Provisioned,
            ours.clone(),
            vec![Step::InstallAgent],
            Some(Phase::Waiting),
        ),
        // Its module puts the agent on it.
        (Provider::Terraform, Phase::Provisioned, observed(), vec![], Some(Phase::Waiting)),
        (Provider::Standalone, Phase::Ready, ours, vec![Step::InstallAgent], None),
        (Provider::Local, Phase::Ready, observed(), vec![], None),
    ];
    for (provider, phase, observed, steps, to) in table {
        let object = object(provider, phase, |_| {});
        assert_eq!(status_after(&object, &observed), (steps, to), "{provider:?} {phase:?}");
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
fn a_silent_agent_is_said_once_and_nothing_else_happens() {
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
    assert_eq!(after(&lost, &last_seen, late).1, None, "it is not said again");
    let again = Observation { last_seen: Some(late), ..observed() };
    let back = after(&lost, &again, late).1.unwrap();
    assert!(!back.status.agent_lost && back.status.reason.is_empty());
    // Nobody waits for an agent that never came; one that is there is watched from the beginning.
    let waiting = object(Provider::Agent, Phase::Waiting, |_| {});
    assert_eq!(after(&waiting, &observed(), late).1, None);
    assert!(after(&ready, &observed(), late).1.unwrap().status.agent_lost);
}

#[test]
fn it_goes_empty_first_then_its_provider_then_what_is_around_it() {
    let going = |phase| object(Provider::Terraform, phase, |c| c.spec.deleting = true);
    assert_eq!(status_after(&going(Phase::Ready), &observed()).1, Some(Phase::Deprovisioning));
    let full = Observation { instances: 3, ..observed() };
    let (steps, next, _) = after(&going(Phase::Deprovisioning), &full, NOW);
    assert!(steps.is_empty());
    assert_eq!(next.unwrap().status.waiting_for, "3 instances to be deleted");
    let empty = status_after(&going(Phase::Deprovisioning), &observed());
    assert_eq!(empty, (vec![Step::Destroy], Some(Phase::Cleanup)));
    let client = Observation { needs_client: true, ..observed() };
    let last = going(Phase::Cleanup);
    let decision = decide(&last, &Cluster::from_object(&last).unwrap(), &client, NOW);
    assert_eq!(decision.steps, [Step::RemoveClient]);
    assert!(decision.change.write.unwrap().object().deleted_at.is_some());
    let remaining =
        Observation { access: Access::Managed { matches: false, remaining: true }, ..observed() };
    let standing = object(Provider::Standalone, Phase::Deprovisioning, |c| c.spec.deleting = true);
    assert_eq!(status_after(&standing, &remaining), (vec![Step::Uninstall], None));
    let off =
        Observation { access: Access::Managed { matches: false, remaining: false }, ..observed() };
    assert_eq!(status_after(&standing, &off), (vec![], Some(Phase::Cleanup)));
}

#[test]
fn by_force_it_goes_with_everything_on_it_and_who_was_there_is_told() {
    let forced = |phase| {
        object(Provider::Standalone, phase, |c| (c.spec.deleting, c.spec.force) = (true, true))
    };
    let wake =
        Wake { key: Key::new("kafka", "k1"), org: String::new(), lane: Lane::Normal, due: NOW };
    let full = Observation { instances: 1, wakes: vec![wake], ..observed() };
    assert_eq!(status_after(&forced(Phase::Deprovisioning), &full), (vec![], Some(Phase::Cleanup)));
    let last = forced(Phase::Cleanup);
    let decision = decide(&last, &Cluster::from_object(&last).unwrap(), &full, NOW);
    assert_eq!(decision.change.wakes.len(), 1);
}

#[test]
fn what_cannot_be_made_in_time_failed_with_the_last_reason_and_begins_anew_when_it_is_changed() {
    let late = NOW.plus(Duration::from_secs(3_600));
    let slow =
        object(Provider::Terraform, Phase::Provisioning, |c| c.status.reason = "no quota".into());
    let failed = after(&slow, &observed(), late).1.unwrap();
    assert_eq!(failed.phase, Phase::Failed);
    assert!(failed.status.reason.contains("no quota"), "{}", failed.status.reason);
    let mut object = object(Provider::Terraform, Phase::Failed, |_| {});
    assert_eq!(status_after(&object, &observed()), (vec![], None));
    object.generation += 1;
    assert_eq!(status_after(&object, &observed()).1, Some(Phase::Accepted));
}

#[test]
fn a_spare_cluster_goes_after_a_while_unless_it_is_a_dry_run() {
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
