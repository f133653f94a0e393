//! Decides what to do about an instance, from its spec and what was observed. Pure.

mod change;
pub mod lifecycle;
mod orphan;
#[cfg(test)]
mod tests;

use std::time::Duration;

use kernel::change::Take;
use kernel::driver::{Decision, Requeue};
use kernel::{Change, Object, Timestamp};

use super::audit;
use super::cluster::scaling::ScaleUp;
use super::placement::PlacementVerdict;
use change::{after_record, wake_cluster};
pub use change::{assign_cluster, dns_records, host_name, instance_change, placed_on, transition};

use crate::model::cluster::Cluster;
use crate::model::dns::Record;
use crate::model::instance::{Instance, Phase, Spec, counters};
use crate::model::interned::InternedMap;
use crate::model::settings::Timeouts;
use lifecycle::Event;

/// What was observed around an instance.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// Its cluster.
    pub cluster: Option<std::sync::Arc<Cluster>>,
    /// All clusters, best first, if it is not placed.
    pub candidates: Vec<PlacementVerdict>,
    /// The cluster that its region needs.
    pub scale_up: Option<ScaleUp>,
    /// A new id, in case one is needed.
    pub fresh_id: String,
    /// The component whose versions it needs; none: it needs none.
    pub operator: Option<String>,
    /// Whether it has a client of its own, and whether that client matches.
    pub needs_client: bool,
    pub client_matches: bool,
    /// Whether it gets DNS names, and which of its records exist.
    pub has_dns: bool,
    pub records: Vec<Record>,
    pub dns_in_sync: bool,
    /// Whether the quota backend keeps a reservation for it.
    pub reserves: bool,
    pub entitled: Entitled,
    /// When its quota ends, if that is known.
    pub entitlement_ends: Option<Timestamp>,
    /// Its owner is on the deny list.
    pub denied: bool,
    pub domain: String,
    pub timeouts: Timeouts,
}

/// Whether its owner still has the quota of its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Entitled {
    #[default]
    Yes,
    /// It is deleted after so many days.
    No { grace_days: i64 },
}

/// One idempotent effect.
#[derive(Debug, Clone)]
pub enum Step {
    Reserve,
    EnsureClient,
    /// Commits a transition before the next one.
    Record(Box<Change>),
    /// Commits a transition together with the next one: no effect is between them.
    RecordOnCommit(Box<Change>),
    UpsertRecords(Vec<Record>),
    RemoveRecords(Vec<Record>),
    RemoveClient,
    ReleaseReservation,
    Promote,
    /// Creates one more cluster.
    CreateCluster(ScaleUp),
}

/// Bounds the delay of a lost wake-up where another party sends it.
const LOST_WAKE_UP: Duration = Duration::from_secs(600);
/// How long after a deletion its effects outside are removed once more: a process that was paused
/// in the middle of a step may have created one again.
const SWEEP_AFTER: Duration = Duration::from_secs(600);
/// How often a DNS change is checked until it is in sync.
const DNS_PAUSE: Duration = Duration::from_secs(2);

pub fn decide(
    object: &Object,
    instance: &Instance,
    observed: &Observation,
    now: Timestamp,
) -> Decision<Step> {
    let plan = Plan { object, observed, now };
    if let Some(gone) = object.deleted_at {
        return plan.sweep(instance, gone);
    }
    if instance.phase.is_going() {
        return plan.deprovision(instance);
    }
    plan.recheck_at_end_of_life(instance, plan.reconcile_live(instance))
}

/// Writes a change, and reconciles again at once.
fn at_once(change: Change) -> Decision<Step> {
    Decision { steps: Vec::new(), change, requeue: Requeue::After(Duration::ZERO) }
}

struct Plan<'a> {
    object: &'a Object,
    observed: &'a Observation,
    now: Timestamp,
}

impl Plan<'_> {
    fn reconcile_live(&self, instance: &Instance) -> Decision<Step> {
        if let Some(decision) = self.end_of_life(instance) {
            return decision;
        }
        if let Some(decision) = self.orphaned(instance) {
            return decision;
        }
        match instance.phase {
            Phase::Accepted => self.accepted(instance),
            Phase::Preparing => self.preparing(instance, Vec::new()),
            Phase::Provisioning if instance.status.cluster_id.is_empty() => self.replace(instance),
            Phase::Provisioning | Phase::Resuming => self.provisioning(instance),
            Phase::Ready | Phase::Failed | Phase::Suspending | Phase::Suspended => {
                self.maintain(instance)
            }
            Phase::Deprovision | Phase::Deleting => self.deprovision(instance),
        }
    }

    /// Requeues it for its expiry or the end of its quota at the latest.
    fn recheck_at_end_of_life(
        &self,
        instance: &Instance,
        mut decision: Decision<Step>,
    ) -> Decision<Step> {
        let ends = [instance.spec.expires_at, self.observed.entitlement_ends];
        let ends = ends.into_iter().flatten().filter(|end| *end > self.now);
        if let Some(wait) = ends.map(|end| self.now.until(end)).min() {
            decision.requeue = match decision.requeue {
                Requeue::Never => Requeue::After(wait),
                Requeue::After(sooner) => Requeue::After(sooner.min(wait)),
                stopped => stopped,
            };
        }
        decision
    }

    /// Selects a cluster, if it has none, and goes on to prepare at once.
    fn accepted(&self, instance: &Instance) -> Decision<Step> {
        let mut next = instance.clone();
        let mut take = None;
        if next.status.cluster_id.is_empty() {
            take = self.select_cluster(&mut next);
            if take.is_none() {
                return self.wait_for_cluster(instance);
            }
        }
        let Some(versions) = self.newest_versions(&next) else {
            return self.wait_for_version(instance, &next.status.cluster_id);
        };
        next.spec.versions = versions;
        next.status.waiting_for.clear();
        let (mut change, entered) = self.transition(&next, Event::Placed);
        change.depends_on = take.is_some().then(|| placed_on(&next));
        change.takes.extend(take);
        let mut steps: Vec<Step> =
            self.observed.scale_up.clone().map(Step::CreateCluster).into_iter().collect();
        if self.observed.reserves && instance.spec.subscription_id.is_empty() {
            // The step records the reservation's name; another attempt continues.
            return Decision { steps: vec![Step::Reserve], ..at_once(Change::default()) };
        }
        steps.push(if self.must_create_client() {
            Step::Record(Box::new(change))
        } else {
            Step::RecordOnCommit(Box::new(change))
        });
        self.preparing(&entered, steps)
    }

    /// Whether its client must be created.
    fn must_create_client(&self) -> bool {
        self.observed.needs_client && !self.observed.client_matches
    }

    /// Creates what it needs outside the data plane, and hands it to the agent.
    fn preparing(&self, instance: &Instance, mut steps: Vec<Step>) -> Decision<Step> {
        if self.must_create_client() {
            steps.push(Step::EnsureClient);
        }
        let mut next = instance.clone();
        next.status.namespace = format!("{}-{}", instance.kind, instance.id);
        next.status.host = host_name(&instance.name, &instance.id, &self.observed.domain);
        next.status.placement_id = self.observed.fresh_id.clone();
        let (mut change, _) = self.transition(&next, Event::Prepared);
        if steps.iter().any(|step| matches!(step, Step::Record(_) | Step::RecordOnCommit(_))) {
            after_record(&mut change);
        }
        let wait = Duration::from_secs(self.observed.timeouts.provisioning_s);
        Decision { steps, change, requeue: Requeue::After(wait) }
    }

    /// Creates DNS names for the reported routes. It is ready once the agent is, and they are in sync.
    fn provisioning(&self, instance: &Instance) -> Decision<Step> {
        if let Some(decision) = self.dns(instance) {
            return decision;
        }
        let mut next = instance.clone();
        if instance.status.routes.is_some() || !self.observed.has_dns {
            next.status.routes_created = true;
        }
        if next.status.agent_ready && next.status.routes_created {
            next.status.failed_reason.clear();
            next.status.waiting_for.clear();
            let (change, _) = self.transition(&next, Event::Ready);
            return Decision { steps: Vec::new(), change, requeue: self.recheck_after() };
        }
        let (action, limit_s) = match instance.phase {
            Phase::Resuming => ("resumed", self.observed.timeouts.resuming_s),
            _ => ("created", self.observed.timeouts.provisioning_s),
        };
        let deadline = instance.status.since.plus(Duration::from_secs(limit_s));
        if self.now >= deadline {
            let why = format!("its data plane has not {action} it within {limit_s} s");
            return self.fail(instance, why);
        }
        let change = self.update_if_changed(instance, next);
        Decision { steps: Vec::new(), change, requeue: Requeue::After(self.now.until(deadline)) }
    }

    /// What is left to do for the DNS names of its routes.
    fn dns(&self, instance: &Instance) -> Option<Decision<Step>> {
        let routes = instance.status.routes.as_deref().filter(|routes| !routes.is_empty())?;
        if !self.observed.has_dns {
            return None;
        }
        let pause = Decision::idle(Requeue::After(DNS_PAUSE));
        let records = dns_records(routes);
        if !records.iter().all(|record| self.observed.records.contains(record)) {
            return Some(Decision { steps: vec![Step::UpsertRecords(records)], ..pause });
        }
        (!self.observed.dns_in_sync).then_some(pause)
    }

    /// Places an instance on another cluster, after one rejected it.
    fn replace(&self, instance: &Instance) -> Decision<Step> {
        let mut next = instance.clone();
        let Some(take) = self.select_cluster(&mut next) else {
            return self.wait_for_cluster(instance);
        };
        let Some(versions) = self.newest_versions(&next) else {
            return self.wait_for_version(instance, &next.status.cluster_id);
        };
        next.spec.versions = versions;
        next.status.placement_id = self.observed.fresh_id.clone();
        next.status.waiting_for.clear();
        let mut change = self.write(&next, "placed");
        change.depends_on = Some(placed_on(&next));
        change.takes.push(take);
        let wait = Duration::from_secs(self.observed.timeouts.provisioning_s);
        Decision { steps: Vec::new(), change, requeue: Requeue::After(wait) }
    }

    /// Repairs drift outside, and completes a promotion.
    fn maintain(&self, instance: &Instance) -> Decision<Step> {
        let mut steps = Vec::new();
        if instance.status.is_on_data_plane() && self.must_create_client() {
            steps.push(Step::EnsureClient);
        }
        if let Some(promotion) = &instance.spec.promotion
            && promotion.failed.is_empty()
        {
            steps.push(Step::Promote);
            return Decision { steps, ..at_once(Change::default()) };
        }
        if let Some(mut repair) = self.dns(instance) {
            repair.steps.extend(steps);
            return repair;
        }
        let mut next = instance.clone();
        next.status.routes_created |= instance.status.routes.is_some();
        let change = self.update_if_changed(instance, next);
        Decision { steps, change, requeue: self.recheck_after() }
    }

    /// Ends its life: its owner is denied, it expired, or its quota ended.
    fn end_of_life(&self, instance: &Instance) -> Option<Decision<Step>> {
        if self.observed.denied {
            return Some(self.delete(instance, "its owner is on the deny list"));
        }
        if instance.spec.expires_at.is_some_and(|end| self.now >= end) {
            return Some(self.delete(instance, "it expired"));
        }
        let grace_days = match (instance.spec.is_trial(), self.observed.entitled) {
            (true, _) => return None,
            (false, Entitled::Yes) => {
                let mut next = instance.clone();
                next.spec.expires_at = instance.spec.lifespan_ends;
                let changed = next.spec.expires_at != instance.spec.expires_at;
                return changed.then(|| at_once(self.write(&next, "entitled")));
            }
            (false, Entitled::No { grace_days }) => grace_days,
        };
        let grace = Duration::from_secs(u64::try_from(grace_days).unwrap_or(0) * 86_400);
        let mut next = instance.clone();
        let Spec { expires_at, lifespan_ends, .. } = instance.spec;
        let grace_ends = self.now.plus(grace);
        let end = match expires_at {
            Some(end) if expires_at != lifespan_ends || end <= grace_ends => end,
            _ => {
                next.spec.expires_at = Some(grace_ends);
                return Some(at_once(self.write(&next, "expiring")));
            }
        };
        let in_grace = end <= grace_ends && grace_days > 0;
        // No agent could suspend it before it is on a data plane.
        let runs = matches!(instance.phase, Phase::Ready | Phase::Provisioning | Phase::Resuming);
        if in_grace && runs && instance.status.is_on_data_plane() {
            let (change, _) = self.transition(&next, Event::Suspend);
            // At once: its cluster may be gone as well.
            return Some(at_once(change));
        }
        None
    }

    fn delete(&self, instance: &Instance, why: &str) -> Decision<Step> {
        let mut next = instance.clone();
        next.status.waiting_for = format!("it is being deleted: {why}");
        let (change, _) = self.transition(&next, Event::Delete);
        at_once(change)
    }

    /// Deletes it: first from the data plane, then everything outside; the object stays as history.
    fn deprovision(&self, instance: &Instance) -> Decision<Step> {
        if instance.phase == Phase::Deprovision {
            // Everything on it is gone with the cluster.
            let cluster_gone = self.observed.cluster.is_none();
            if instance.status.is_on_data_plane() && !cluster_gone {
                return Decision::idle(Requeue::After(LOST_WAKE_UP));
            }
            let (change, _) = self.transition(instance, Event::Removed);
            return at_once(change);
        }
        let mut steps = self.cleanup_steps(instance);
        if !instance.spec.subscription_id.is_empty() {
            steps.push(Step::ReleaseReservation);
        }
        let write = instance.draft(self.object).delete("deleted", self.now);
        let change = Change {
            audit: Some(audit(&write.object, "deleted")),
            releases: instance.releases(counters(instance)),
            depends_on: Some(Vec::new()),
            wake_dependencies: true,
            // The cluster may be waiting until it is empty.
            wakes: wake_cluster(instance, self.now),
            ..Change::from(write)
        };
        let next = if steps.is_empty() { Requeue::Never } else { Requeue::After(SWEEP_AFTER) };
        Decision { steps, change, requeue: next }
    }

    /// Steps that remove everything of it outside.
    fn cleanup_steps(&self, instance: &Instance) -> Vec<Step> {
        let mut steps = Vec::new();
        let names = instance.status.names.iter();
        let records: Vec<Record> =
            names.map(|name| Record { name: name.clone(), target: String::new() }).collect();
        if self.observed.has_dns && !records.is_empty() {
            steps.push(Step::RemoveRecords(records));
        }
        if self.observed.needs_client {
            steps.push(Step::RemoveClient);
        }
        steps
    }

    /// Removes everything outside once more, a while after the deletion.
    fn sweep(&self, instance: &Instance, gone: Timestamp) -> Decision<Step> {
        let due = gone.plus(SWEEP_AFTER);
        if self.now < due {
            return Decision::idle(Requeue::After(self.now.until(due)));
        }
        let steps = self.cleanup_steps(instance);
        Decision { steps, change: Change::default(), requeue: Requeue::Never }
    }

    /// When to compare the state outside again.
    fn recheck_after(&self) -> Requeue {
        if self.observed.needs_client || self.observed.has_dns {
            Requeue::After(Duration::from_secs(self.observed.timeouts.recheck_s))
        } else {
            Requeue::Never
        }
    }

    fn select_cluster(&self, next: &mut Instance) -> Option<Take> {
        let mut candidates = self.observed.candidates.iter();
        let found = candidates.find(|candidate| candidate.rejection.is_none())?;
        Some(assign_cluster(next, &found.cluster))
    }

    /// The versions that it gets on its cluster; none if none is ready.
    fn newest_versions(&self, instance: &Instance) -> Option<InternedMap<String>> {
        let Some(operator) = &self.observed.operator else { return Some(InternedMap::default()) };
        let id = &instance.status.cluster_id;
        let candidates = self.observed.candidates.iter().map(|candidate| &candidate.cluster);
        let mut clusters = self.observed.cluster.iter().chain(candidates);
        let cluster = clusters.find(|cluster| cluster.id == *id)?;
        cluster.status.newest_versions(&instance.kind, operator).map(InternedMap::from)
    }

    fn wait_for_version(&self, instance: &Instance, cluster: &str) -> Decision<Step> {
        let what = format!("cluster {cluster} has no version that is ready");
        self.wait(instance, what, self.observed.timeouts.versions_s)
    }

    fn wait_for_cluster(&self, instance: &Instance) -> Decision<Step> {
        let mut decision =
            self.wait(instance, self.no_cluster(), self.observed.timeouts.accepted_s);
        decision.steps.extend(self.observed.scale_up.clone().map(Step::CreateCluster));
        decision
    }

    fn no_cluster(&self) -> String {
        match self.observed.candidates.first() {
            None => "a cluster: there is none".into(),
            Some(first) => {
                let why = first.why().unwrap_or_else(|| "it was taken meanwhile".into());
                format!("a cluster: none would do ({}: {why})", first.cluster.id)
            }
        }
    }

    /// Waits to be woken, until a deadline.
    fn wait(&self, instance: &Instance, what: String, limit_s: u64) -> Decision<Step> {
        let deadline = instance.status.since.plus(Duration::from_secs(limit_s));
        if self.now >= deadline {
            return self.fail(instance, format!("it waited {limit_s} s for {what}"));
        }
        let mut next = instance.clone();
        next.status.waiting_for = what;
        let change = self.update_if_changed(instance, next);
        let pause = self.now.until(deadline).min(Duration::from_secs(30));
        Decision { steps: Vec::new(), change, requeue: Requeue::After(pause) }
    }

    fn fail(&self, instance: &Instance, why: String) -> Decision<Step> {
        let mut next = instance.clone();
        next.status.failed_reason = why;
        let (change, _) = self.transition(&next, Event::GiveUp);
        Decision { steps: Vec::new(), change, requeue: self.recheck_after() }
    }

    /// Writes the instance, if it changed.
    fn update_if_changed(&self, before: &Instance, after: Instance) -> Change {
        if *before == after { Change::default() } else { self.write(&after, "updated") }
    }

    fn transition(&self, instance: &Instance, event: Event) -> (Change, Instance) {
        transition(self.object, instance, event, self.now)
    }

    fn write(&self, instance: &Instance, what: &'static str) -> Change {
        instance_change(self.object, instance, what, self.now)
    }
}
