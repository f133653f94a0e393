//! What becomes of an instance whose cluster is gone for good.

use std::time::Duration;

use kernel::driver::{Decision, Requeue};

use super::{Plan, Step, records};
use crate::decide::lifecycle::Event;
use crate::model::instance::{Instance, Status};

impl Plan<'_> {
    /// Its cluster is gone for good: it goes elsewhere if nothing was on it yet, else it failed.
    pub(super) fn orphaned(&self, instance: &Instance) -> Option<Decision<Step>> {
        let cluster = &instance.seen.cluster_id;
        let settled = instance.status == Status::Failed;
        if cluster.is_empty() || self.world.cluster.is_some() || settled {
            return None;
        }
        let mut next = instance.clone();
        let early =
            matches!(instance.status, Status::Accepted | Status::Preparing | Status::Provisioning);
        if !early || !instance.spec.own_cluster_id.is_empty() {
            next.seen.agent_ready = false;
            next.seen.failed_reason = format!("its cluster {cluster} is gone, and what was on it");
            let event = if early { Event::GiveUp } else { Event::ClusterGone };
            let (change, _) = self.enter(&next, event);
            return Some(Decision { steps: Vec::new(), change, requeue: self.rest() });
        }
        let records = records(instance.seen.routes.as_deref().unwrap_or_default());
        let remove = self.world.has_dns && !records.is_empty();
        let seen = &mut next.seen;
        let counter = std::mem::take(&mut seen.capacity_counter);
        seen.waiting_for = format!("another cluster: {cluster} is gone");
        seen.cluster_id.clear();
        seen.placement_id.clear();
        seen.dns_change.clear();
        seen.routes = None;
        (seen.routes_created, seen.agent_ready) = (false, false);
        seen.since = self.now;
        next.spec.versions.clear();
        let (mut change, _) = self.enter(&next, Event::ClusterGone);
        change.releases = instance.releases(Some(counter).filter(|counter| !counter.is_empty()));
        let steps = if remove { vec![Step::RemoveRecords(records)] } else { Vec::new() };
        Some(Decision { steps, change, requeue: Requeue::After(Duration::ZERO) })
    }
}

#[cfg(test)]
mod tests {
    use kernel::change::Write;
    use kernel::{Json, Key, Object, Timestamp};

    use super::super::{World, decide};
    use super::*;
    use crate::model::instance::{Route, Seen, Spec};

    fn orphan(status: Status, own: &str) -> Object {
        let now = Timestamp(0);
        let key = Key::new("kafka", "k1");
        let mut object = Object::new(key, "acme", "alice", "demo", status.label(), now);
        let own_cluster_id = own.into();
        let routes = vec![Route { domain: "demo.x".into(), router: "r.x".into() }];
        let seen = Seen {
            cluster_id: "c1".into(),
            placement_id: "p1".into(),
            capacity_counter: "fleet/capacity/c1".into(),
            routes: Some(routes),
            routes_created: true,
            ..Seen::default()
        };
        object.spec = Json::encode(&Spec { own_cluster_id, units: 1, ..Spec::default() });
        object.status = Json::encode(&seen);
        object
    }

    fn after(status: Status, own: &str) -> (Decision<Step>, Option<Instance>) {
        let object = orphan(status, own);
        let world = World { has_dns: true, ..World::default() };
        let decision = decide(&object, &Instance::of(&object).unwrap(), &world, Timestamp(5));
        let next = match &decision.change.write {
            Some(Write::Update(next) | Write::Transition(next)) => {
                Some(Instance::of(next).unwrap())
            }
            _ => None,
        };
        (decision, next)
    }

    #[test]
    fn what_nobody_uses_yet_is_placed_again_and_gives_back_what_it_held() {
        for (status, to) in [
            (Status::Accepted, Status::Accepted),
            (Status::Preparing, Status::Accepted),
            (Status::Provisioning, Status::Provisioning),
        ] {
            let (decision, next) = after(status, "");
            let next = next.unwrap();
            assert_eq!(next.status, to);
            assert!(next.seen.cluster_id.is_empty() && next.seen.placement_id.is_empty());
            assert!(next.seen.waiting_for.contains("c1 is gone"));
            assert_eq!(decision.change.releases[0].counter, "fleet/capacity/c1");
            assert!(matches!(&decision.steps[..], [Step::RemoveRecords(gone)] if gone.len() == 1));
        }
    }

    #[test]
    fn what_was_in_use_failed_and_says_why() {
        let used = [Status::Ready, Status::Suspending, Status::Suspended, Status::Resuming];
        let own = [Status::Accepted, Status::Preparing, Status::Provisioning];
        let all =
            used.map(|status| (status, "")).into_iter().chain(own.map(|status| (status, "c1")));
        for (status, own) in all {
            let (_, next) = after(status, own);
            let next = next.unwrap();
            assert_eq!(next.status, Status::Failed, "{status:?}");
            assert!(next.seen.failed_reason.contains("its cluster c1 is gone"));
            assert_eq!(next.seen.cluster_id, "c1", "it can still be found there, and deleted");
        }
    }

    #[test]
    fn what_has_failed_or_goes_is_not_written_over_and_over() {
        assert!(after(Status::Failed, "").1.is_none_or(|next| next.status == Status::Failed));
        assert_eq!(after(Status::Deprovision, "").1.unwrap().status, Status::Deleting);
    }
}
