//! Instances whose cluster is gone for good.

use std::time::Duration;

use kernel::driver::{Decision, Requeue};

use super::{Plan, Step, dns_records};
use crate::decide::instance::lifecycle::Event;
use crate::model::instance::{Instance, Phase};

impl Plan<'_> {
    /// Places an orphaned instance elsewhere if it was not used yet, else fails it.
    pub(super) fn orphaned(&self, instance: &Instance) -> Option<Decision<Step>> {
        let cluster = &instance.status.cluster_id;
        let failed = instance.phase == Phase::Failed;
        if cluster.is_empty() || self.observed.cluster.is_some() || failed {
            return None;
        }
        let mut next = instance.clone();
        let unused =
            matches!(instance.phase, Phase::Accepted | Phase::Preparing | Phase::Provisioning);
        if !unused || !instance.spec.own_cluster_id.is_empty() {
            next.status.agent_ready = false;
            next.status.failed_reason =
                format!("its cluster {cluster} is gone, and what was on it");
            let event = if unused { Event::GiveUp } else { Event::ClusterGone };
            let (change, _) = self.transition(&next, event);
            return Some(Decision { steps: Vec::new(), change, requeue: self.recheck_after() });
        }
        let records = dns_records(instance.status.routes.as_deref().unwrap_or_default());
        let remove = self.observed.has_dns && !records.is_empty();
        let status = &mut next.status;
        let counter = std::mem::take(&mut status.capacity_counter);
        status.waiting_for = format!("another cluster: {cluster} is gone");
        status.cluster_id.clear();
        status.placement_id.clear();
        status.dns_change.clear();
        status.routes = None;
        (status.routes_created, status.agent_ready) = (false, false);
        status.since = self.now;
        next.spec.versions.clear();
        let (mut change, _) = self.transition(&next, Event::ClusterGone);
        change.depends_on = Some(Vec::new());
        change.releases = instance.releases(Some(counter).filter(|counter| !counter.is_empty()));
        let steps = if remove { vec![Step::RemoveRecords(records)] } else { Vec::new() };
        Some(Decision { steps, change, requeue: Requeue::After(Duration::ZERO) })
    }
}

#[cfg(test)]
mod tests {
    use kernel::{Json, Key, Object, Timestamp};

    use super::super::{Observation, decide};
    use super::*;
    use crate::model::instance::{Route, Spec, Status};

    fn orphan(phase: Phase, own: &str) -> Object {
        let now = Timestamp(0);
        let key = Key::new("kafka", "k1");
        let mut object = Object::new(key, "acme", "alice", "demo", phase.label(), now);
        let own_cluster_id = own.into();
        let routes = vec![Route { domain: "demo.x".into(), router: "r.x".into() }];
        let status = Status {
            cluster_id: "c1".into(),
            placement_id: "p1".into(),
            capacity_counter: "fleet/capacity/c1".into(),
            routes: Some(routes),
            routes_created: true,
            ..Status::default()
        };
        object.spec = Json::encode(&Spec { own_cluster_id, units: 1, ..Spec::default() });
        object.status = Json::encode(&status);
        object
    }

    fn after(phase: Phase, own: &str) -> (Decision<Step>, Option<Instance>) {
        let object = orphan(phase, own);
        let observed = Observation { has_dns: true, ..Observation::default() };
        let decision =
            decide(&object, &Instance::from_object(&object).unwrap(), &observed, Timestamp(5));
        let write = decision.change.write.as_ref();
        let next = write.map(|write| Instance::from_object(&write.object).unwrap());
        (decision, next)
    }

    #[test]
    fn an_unused_orphan_is_placed_again_and_releases_its_capacity() {
        for (phase, to) in [
            (Phase::Accepted, Phase::Accepted),
            (Phase::Preparing, Phase::Accepted),
            (Phase::Provisioning, Phase::Provisioning),
        ] {
            let (decision, next) = after(phase, "");
            let next = next.unwrap();
            assert_eq!(next.phase, to);
            assert!(next.status.cluster_id.is_empty() && next.status.placement_id.is_empty());
            assert!(next.status.waiting_for.contains("c1 is gone"));
            assert_eq!(decision.change.releases[0].counter, "fleet/capacity/c1");
            assert!(matches!(&decision.steps[..], [Step::RemoveRecords(gone)] if gone.len() == 1));
        }
    }

    #[test]
    fn an_orphan_that_was_in_use_fails_with_a_reason() {
        let used = [Phase::Ready, Phase::Suspending, Phase::Suspended, Phase::Resuming];
        let own = [Phase::Accepted, Phase::Preparing, Phase::Provisioning];
        let all = used.map(|phase| (phase, "")).into_iter().chain(own.map(|phase| (phase, "c1")));
        for (phase, own) in all {
            let (_, next) = after(phase, own);
            let next = next.unwrap();
            assert_eq!(next.phase, Phase::Failed, "{phase:?}");
            assert!(next.status.failed_reason.contains("its cluster c1 is gone"));
            assert_eq!(next.status.cluster_id, "c1", "it can still be found by its cluster");
        }
    }

    #[test]
    fn a_failed_or_deleting_orphan_is_not_failed_again() {
        assert!(after(Phase::Failed, "").1.is_none_or(|next| next.phase == Phase::Failed));
        assert_eq!(after(Phase::Deprovision, "").1.unwrap().phase, Phase::Deleting);
    }
}
