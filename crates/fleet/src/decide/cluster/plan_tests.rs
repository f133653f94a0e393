//! Tables of what follows for a cluster from what was seen.

use kernel::{Key, Lane};

use super::*;
use crate::model::cluster::{self, Seen, Spec};

const NOW: Timestamp = Timestamp(1_000_000);

fn object(provider: Provider, status: Status, change: impl FnOnce(&mut Cluster)) -> Object {
    let mut object = Object::new(cluster::key("c1"), "", "", "c1", status.label(), Timestamp(0));
    object.observed = object.generation;
    object.spec = Json::encode(&Spec { provider, schedulable: true, ..Spec::default() });
    object.status = Json::encode(&Seen { since: NOW, ..Seen::default() });
    let mut cluster = Cluster::of(&object).unwrap();
    change(&mut cluster);
    object.spec = Json::encode(&cluster.spec);
    object.status = Json::encode(&cluster.seen);
    object
}

fn world() -> World {
    World {
        lost_after: Duration::from_secs(300),
        recheck: Duration::from_secs(600),
        patience: Duration::from_secs(3_600),
        client_is_so: true,
        ..World::default()
    }
}

/// What is done, and the cluster as it is written; none if nothing is.
fn after(object: &Object, world: &World, now: Timestamp) -> (Vec<Step>, Option<Cluster>, Requeue) {
    let decision = decide(object, &Cluster::of(object).unwrap(), world, now);
    let next = match &decision.change.write {
        Some(Write::Update(next)) => Some(Cluster::of(next).unwrap()),
        _ => None,
    };
    (decision.steps, next, decision.requeue)
}

fn status_after(object: &Object, world: &World) -> (Vec<Step>, Option<Status>) {
    let (steps, next, _) = after(object, world, NOW);
    (steps, next.map(|next| next.status))
}

#[test]
fn each_provider_comes_up_in_its_own_way() {
    let ours = World { reach: Reach::Ours { is_so: false, left: true }, ..world() };
    let there = Made::There { dns_name: "apps.x".into(), external_id: "e".into() };
    let made = World { made: there, ..world() };
    let table = [
        (Provider::Agent, Status::Accepted, world(), vec![], Some(Status::Waiting)),
        (Provider::Enterprise, Status::Accepted, world(), vec![], Some(Status::Waiting)),
        (Provider::Standalone, Status::Accepted, world(), vec![], Some(Status::Provisioned)),
        (
            Provider::Standalone,
            Status::Provisioned,
            ours.clone(),
            vec![Step::Terraform],
            Some(Status::Waiting),
        ),
        (Provider::Terraform, Status::Accepted, world(), vec![], Some(Status::Provisioning)),
        (Provider::Terraform, Status::Provisioning, world(), vec![Step::Provision], None),
        (Provider::Terraform, Status::Provisioning, made, vec![], Some(Status::Provisioned)),
        (
            Provider::Terraform,
            Status::Provisioned,
            ours.clone(),
            vec![Step::Terraform],
            Some(Status::Waiting),
        ),
        // Its module puts the agent on it.
        (Provider::Terraform, Status::Provisioned, world(), vec![], Some(Status::Waiting)),
        (Provider::Standalone, Status::Ready, ours, vec![Step::Terraform], None),
        (Provider::Local, Status::Ready, world(), vec![], None),
    ];
    for (provider, status, world, steps, to) in table {
        let object = object(provider, status, |_| {});
        assert_eq!(status_after(&object, &world), (steps, to), "{provider:?} {status:?}");
    }
}

#[test]
fn the_agents_client_comes_before_the_agent() {
    let reach = Reach::Ours { is_so: false, left: true };
    let world = World { reach, has_client: true, client_is_so: false, ..world() };
    let object = object(Provider::Standalone, Status::Provisioned, |_| {});
    assert_eq!(after(&object, &world, NOW).0, [Step::EnsureClient, Step::Terraform]);
}

#[test]
fn a_silent_agent_is_said_once_and_nothing_else_happens() {
    let heard = World { heard: Some(NOW), ..world() };
    let ready = object(Provider::Agent, Status::Ready, |_| {});
    let (_, next, wait) = after(&ready, &heard, NOW);
    assert_eq!((next, wait), (None, Requeue::After(Duration::from_secs(300))));
    let late = NOW.plus(Duration::from_secs(300));
    let (steps, next, _) = after(&ready, &heard, late);
    let next = next.unwrap();
    assert!(steps.is_empty() && next.seen.agent_lost && next.status == Status::Ready);
    assert!(next.seen.reason.contains(&NOW.to_string()), "{}", next.seen.reason);
    let lost = object(Provider::Agent, Status::Ready, |c| c.seen = next.seen.clone());
    assert_eq!(after(&lost, &heard, late).1, None, "it is not said again");
    let again = World { heard: Some(late), ..world() };
    let back = after(&lost, &again, late).1.unwrap();
    assert!(!back.seen.agent_lost && back.seen.reason.is_empty());
    // Nobody waits for an agent that never came; one that is there is watched from the beginning.
    let waiting = object(Provider::Agent, Status::Waiting, |_| {});
    assert_eq!(after(&waiting, &world(), late).1, None);
    assert!(after(&ready, &world(), late).1.unwrap().seen.agent_lost);
}

#[test]
fn it_goes_empty_first_then_its_provider_then_what_is_around_it() {
    let going = |status| object(Provider::Terraform, status, |c| c.spec.deleting = true);
    assert_eq!(status_after(&going(Status::Ready), &world()).1, Some(Status::Deprovisioning));
    let full = World { instances: 3, ..world() };
    let (steps, next, _) = after(&going(Status::Deprovisioning), &full, NOW);
    assert!(steps.is_empty());
    assert_eq!(next.unwrap().seen.waiting_for, "3 instances to be deleted");
    let empty = status_after(&going(Status::Deprovisioning), &world());
    assert_eq!(empty, (vec![Step::Destroy], Some(Status::Cleanup)));
    let client = World { has_client: true, ..world() };
    let last = going(Status::Cleanup);
    let decision = decide(&last, &Cluster::of(&last).unwrap(), &client, NOW);
    assert_eq!(decision.steps, [Step::RemoveClient]);
    assert!(decision.change.write.unwrap().object().deleted_at.is_some());
    let left = World { reach: Reach::Ours { is_so: false, left: true }, ..world() };
    let standing = object(Provider::Standalone, Status::Deprovisioning, |c| c.spec.deleting = true);
    assert_eq!(status_after(&standing, &left), (vec![Step::TakeOff], None));
    let off = World { reach: Reach::Ours { is_so: false, left: false }, ..world() };
    assert_eq!(status_after(&standing, &off), (vec![], Some(Status::Cleanup)));
}

#[test]
fn by_force_it_goes_with_everything_on_it_and_who_was_there_is_told() {
    let forced = |status| {
        object(Provider::Standalone, status, |c| (c.spec.deleting, c.spec.force) = (true, true))
    };
    let wake =
        Wake { key: Key::new("kafka", "k1"), org: String::new(), lane: Lane::Normal, due: NOW };
    let full = World { instances: 1, wakes: vec![wake], ..world() };
    assert_eq!(
        status_after(&forced(Status::Deprovisioning), &full),
        (vec![], Some(Status::Cleanup))
    );
    let last = forced(Status::Cleanup);
    let decision = decide(&last, &Cluster::of(&last).unwrap(), &full, NOW);
    assert_eq!(decision.change.wakes.len(), 1);
}

#[test]
fn what_cannot_be_made_in_time_failed_with_the_last_reason_and_begins_anew_when_it_is_changed() {
    let late = NOW.plus(Duration::from_secs(3_600));
    let slow =
        object(Provider::Terraform, Status::Provisioning, |c| c.seen.reason = "no quota".into());
    let failed = after(&slow, &world(), late).1.unwrap();
    assert_eq!(failed.status, Status::Failed);
    assert!(failed.seen.reason.contains("no quota"), "{}", failed.seen.reason);
    let mut object = object(Provider::Terraform, Status::Failed, |_| {});
    assert_eq!(status_after(&object, &world()), (vec![], None));
    object.generation += 1;
    assert_eq!(status_after(&object, &world()).1, Some(Status::Accepted));
}

#[test]
fn a_spare_cluster_goes_after_a_while_unless_it_is_a_dry_run() {
    let spare = |dry_run| {
        let spare = Spare::After { idle: Duration::from_secs(60), dry_run };
        World { spare, heard: Some(NOW), ..world() }
    };
    let fresh = object(Provider::Terraform, Status::Ready, |_| {});
    assert_eq!(after(&fresh, &spare(false), NOW).1.unwrap().seen.empty_since, Some(NOW));
    let idle = object(Provider::Terraform, Status::Ready, |c| c.seen.empty_since = Some(NOW));
    let early = NOW.plus(Duration::from_secs(59));
    assert_eq!(after(&idle, &spare(false), early).1, None);
    let late = NOW.plus(Duration::from_secs(60));
    let gone = after(&idle, &spare(false), late).1.unwrap();
    assert!(gone.spec.deleting && gone.status == Status::Deprovisioning);
    let (steps, next, _) = after(&idle, &spare(true), late);
    assert_eq!((steps, next), (vec![Step::WouldGo], None));
    let busy = World { heard: Some(NOW), ..world() };
    assert_eq!(after(&idle, &busy, late).1.unwrap().seen.empty_since, None);
}
