//! The changes that are written for an instance.

use kernel::change::{Edge, Take, Wake};
use kernel::{Change, Object, Timestamp};

use crate::decide::instance::lifecycle::{Event, next_phase};
use crate::decide::{Transition, audit, is_hop};
use crate::model::cluster::{self, Cluster};
use crate::model::dns::Record;
use crate::model::instance::{Instance, Phase, Route};

/// Places an instance on a cluster, and returns what it takes of the capacity.
pub fn assign_cluster(instance: &mut Instance, cluster: &Cluster) -> Take {
    instance.status.cluster_id = cluster.id.clone();
    let limit = cluster::limit(cluster, &instance.spec.instance_type);
    let counter = cluster::counter(cluster, &instance.spec.instance_type);
    instance.status.capacity_counter = counter.clone();
    instance.take(counter, instance.spec.units, limit.unwrap_or(i64::MAX))
}

/// What an instance depends on: the cluster that it is placed on.
pub fn placed_on(instance: &Instance) -> Vec<Edge> {
    let id = Some(&instance.status.cluster_id).filter(|id| !id.is_empty());
    id.map(|id| Edge::new(cluster::key(id), "placed-on")).into_iter().collect()
}

/// The change that an event makes to an instance, and the instance after it. The change is empty if
/// the life cycle has no next phase for the event; removing the object is left to the caller.
pub fn transition(
    object: &Object,
    instance: &Instance,
    event: Event,
    now: Timestamp,
) -> (Change, Instance) {
    let Transition::To(phase) = next_phase(instance.phase, event) else {
        return (Change::default(), instance.clone());
    };
    let mut next = instance.clone();
    if next.phase != phase {
        next.status.since = now;
    }
    next.phase = phase;
    let mut change = instance_change(object, &next, phase.label(), now);
    if phase == Phase::Deleting {
        let capacity = next.status.capacity_counter.clone();
        change.releases = next.releases([capacity].into_iter().filter(|c| !c.is_empty()));
        change.wakes = wake_cluster(instance, now);
    }
    (change, next)
}

/// The change that writes an instance, with an event and an audit entry.
pub fn instance_change(
    object: &Object,
    instance: &Instance,
    what: &'static str,
    now: Timestamp,
) -> Change {
    let write = instance.draft(object).transition(what, now);
    Change {
        audit: Some(audit(&write.object, what)),
        hop: is_hop(what),
        settles: !is_hop(what),
        wake_dependents: what == Phase::Ready.label() || what == Phase::Failed.label(),
        ..Change::from(write)
    }
}

/// Names the revision that the first write of the same attempt makes.
pub(super) fn after_record(change: &mut Change) {
    if let Some(write) = &mut change.write {
        write.object.revision += 1;
    }
}

pub(super) fn wake_cluster(instance: &Instance, now: Timestamp) -> Vec<Wake> {
    let id = Some(&instance.status.cluster_id).filter(|id| !id.is_empty());
    id.map(|id| Wake::new(cluster::key(id), "", now)).into_iter().collect()
}

/// A host name that is unique because it contains the id.
pub fn host_name(name: &str, id: &str, domain: &str) -> String {
    let short: String = name.chars().take(10).collect();
    format!("{}-{id}.{domain}", short.trim_end_matches('-'))
}

pub fn dns_records(routes: &[Route]) -> Vec<Record> {
    routes
        .iter()
        .map(|route| Record { name: route.domain.clone(), target: route.router.clone() })
        .collect()
}
