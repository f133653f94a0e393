//! What to do about an instance, from what is wanted and what was seen. Pure.

mod change;

mod orphan;
#[cfg(test)]
mod tests;

use std::time::Duration;

use kernel::change::{EventDraft, Take, Write};
use kernel::driver::{Decision, Requeue};
use kernel::{Change, Object, Timestamp};

use super::cluster::scale::Need;
use change::{after_record, audit, wake_cluster};
pub use change::{host, place_on, records, transition, written};

use super::lifecycle::Event;
use super::place::Judgement;
use crate::config::Timeouts;
use crate::model::cluster::Cluster;
use crate::model::instance::{Instance, Status};
use crate::ports::dns::Record;

/// What was seen of the world around an instance.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// The cluster that it is on.
    pub cluster: Option<std::sync::Arc<Cluster>>,
    /// Clusters it could go to, best first, if it is on none.
    pub judged: Vec<Judgement>,
    /// What its region will be short of.
    pub need: Option<Need>,
    /// A new id, in case one is needed.
    pub fresh_id: String,
    /// The component whose versions it needs; none: it needs none.
    pub operator: Option<String>,
    /// Whether it has a client of its own, and whether that is as it should be.
    pub has_client: bool,
    pub client_is_so: bool,
    /// Whether names are registered for it, and which of its records are there.
    pub has_dns: bool,
    pub records: Vec<Record>,
    pub dns_in_sync: bool,
    /// Whether the quota's backend must be asked for, or told of, a reservation.
    pub reserves: bool,
    pub entitled: Entitled,
    /// When the quota ends, if that is known.
    pub entitlement_ends: Option<Timestamp>,
    /// Its owner is kept out.
    pub denied: bool,
    pub domain: String,
    pub timeouts: Timeouts,
}

/// Whether its owner still has the quota that it was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Entitled {
    #[default]
    Yes,
    /// No more: it goes this many days later.
    No { grace_days: i64 },
}

/// One idempotent act outside.
#[derive(Debug, Clone)]
pub enum Step {
    Reserve,
    EnsureClient,
    /// Writes a transition down before the next one.
    Record(Box<Change>),
    /// Writes a transition down together with the next one: nothing is done in between.
    RecordWithRest(Box<Change>),
    UpsertRecords(Vec<Record>),
    RemoveRecords(Vec<Record>),
    RemoveClient,
    ReleaseReservation,
    Promote,
    /// Asks for one more cluster.
    NewCluster(Need),
}

/// How long a lost wake-up may cost where the other side is to tell us.
const LOST_WAKE_UP: Duration = Duration::from_secs(600);
/// How long after an instance went its traces outside are removed once more: a process that was
/// asleep in the middle of a step may have made one anew.
const SWEEP_AFTER: Duration = Duration::from_secs(600);
/// How often a change of the zone is looked at until it is everywhere.
const DNS_PAUSE: Duration = Duration::from_secs(2);

pub fn decide(
    object: &Object,
    instance: &Instance,
    world: &World,
    now: Timestamp,
) -> Decision<Step> {
    let plan = Plan { object, world, now };
    if let Some(gone) = object.deleted_at {
        return plan.sweep(instance, gone);
    }
    if instance.status.is_going() {
        return plan.leave(instance);
    }
    plan.no_later_than_its_end(instance, plan.live(instance))
}

struct Plan<'a> {
    object: &'a Object,
    world: &'a World,
    now: Timestamp,
}

impl Plan<'_> {
    fn live(&self, instance: &Instance) -> Decision<Step> {
        if let Some(decision) = self.end_of_life(instance) {
            return decision;
        }
        if let Some(decision) = self.orphaned(instance) {
            return decision;
        }
        match instance.status {
            Status::Accepted => self.accepted(instance),
            Status::Preparing => self.preparing(instance, Vec::new()),
            Status::Provisioning if instance.seen.cluster_id.is_empty() => {
                self.place_again(instance)
            }
            Status::Provisioning | Status::Resuming => self.provisioning(instance),
            Status::Ready | Status::Failed | Status::Suspending | Status::Suspended => {
                self.keep(instance)
            }
            Status::Deprovision | Status::Deleting => self.leave(instance),
        }
    }

    /// Whatever else it waits for, it is looked at when it expires or its quota ends.
    fn no_later_than_its_end(
        &self,
        instance: &Instance,
        mut decision: Decision<Step>,
    ) -> Decision<Step> {
        let ends = [instance.spec.expires_at, self.world.entitlement_ends];
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

    /// Finds a cluster, if it has none, and goes on to prepare at once.
    fn accepted(&self, instance: &Instance) -> Decision<Step> {
        let mut next = instance.clone();
        let mut takes = Vec::new();
        if next.seen.cluster_id.is_empty() {
            match self.choose(&mut next) {
                Some(take) => takes = take,
                None => return self.wait_for_cluster(instance),
            }
        }
        let of =
            |cluster: &Cluster, operator: &str| cluster.newest_versions(&instance.kind, operator);
        let versions = match (&self.world.operator, self.cluster_of(&next)) {
            (None, _) => Some(Default::default()),
            (Some(operator), Some(cluster)) => of(&cluster, operator),
            (Some(_), None) => None,
        };
        let Some(versions) = versions else {
            let why = format!("cluster {} has no version that is ready", next.seen.cluster_id);
            return self.wait(instance, why, self.world.timeouts.versions_s);
        };
        next.spec.versions = versions.into();
        next.seen.waiting_for.clear();
        let (mut change, entered) = self.enter(&next, Event::Placed);
        change.takes = takes;
        let mut steps: Vec<Step> =
            self.world.need.clone().map(Step::NewCluster).into_iter().collect();
        if self.world.reserves && instance.spec.subscription_id.is_empty() {
            // The reservation's name is written down by the step; what follows is another look.
            return Decision {
                steps: vec![Step::Reserve],
                change: Change::default(),
                requeue: Requeue::After(Duration::ZERO),
            };
        }
        steps.push(match self.makes_client() {
            true => Step::Record(Box::new(change)),
            false => Step::RecordWithRest(Box::new(change)),
        });
        self.preparing(&entered, steps)
    }

    /// Whether its client is still to be made.
    fn makes_client(&self) -> bool {
        self.world.has_client && !self.world.client_is_so
    }

    /// Everything that it needs outside the data plane; then the agent is told.
    fn preparing(&self, instance: &Instance, mut steps: Vec<Step>) -> Decision<Step> {
        if self.makes_client() {
            steps.push(Step::EnsureClient);
        }
        let mut next = instance.clone();
        next.seen.namespace = format!("{}-{}", instance.kind, instance.id);
        next.seen.host = host(&instance.name, &instance.id, &self.world.domain);
        next.seen.placement_id = self.world.fresh_id.clone();
        let (mut change, _) = self.enter(&next, Event::Prepared);
        if steps.iter().any(|step| matches!(step, Step::Record(_) | Step::RecordWithRest(_))) {
            after_record(&mut change);
        }
        let wait = Duration::from_secs(self.world.timeouts.provisioning_s);
        Decision { steps, change, requeue: Requeue::After(wait) }
    }

    /// Names for the routes that the agent reported; ready, once both are there.
    fn provisioning(&self, instance: &Instance) -> Decision<Step> {
        if let Some(decision) = self.names(instance) {
            return decision;
        }
        let mut next = instance.clone();
        if instance.seen.routes.is_some() || !self.world.has_dns {
            next.seen.routes_created = true;
        }
        if next.seen.agent_ready && next.seen.routes_created {
            next.seen.failed_reason.clear();
            next.seen.waiting_for.clear();
            let (change, _) = self.enter(&next, Event::Ready);
            return Decision { steps: Vec::new(), change, requeue: self.rest() };
        }
        let (what, limit_s) = match instance.status {
            Status::Resuming => ("resumed", self.world.timeouts.resuming_s),
            _ => ("made", self.world.timeouts.provisioning_s),
        };
        let deadline = instance.seen.since.plus(Duration::from_secs(limit_s));
        if self.now >= deadline {
            let why = format!("its data plane has not {what} it within {limit_s} s");
            return self.give_up(instance, why);
        }
        let change = self.note(instance, next);
        Decision { steps: Vec::new(), change, requeue: Requeue::After(self.now.until(deadline)) }
    }

    /// What is left to do so that the routes' names lead to them.
    fn names(&self, instance: &Instance) -> Option<Decision<Step>> {
        let routes = instance.seen.routes.as_deref().filter(|routes| !routes.is_empty())?;
        if !self.world.has_dns {
            return None;
        }
        let wanted = records(routes);
        let there = wanted.iter().all(|record| self.world.records.contains(record));
        if !there {
            let steps = vec![Step::UpsertRecords(wanted)];
            return Some(Decision {
                steps,
                change: Change::default(),
                requeue: Requeue::After(DNS_PAUSE),
            });
        }
        (!self.world.dns_in_sync).then(|| Decision::idle(Requeue::After(DNS_PAUSE)))
    }

    /// A cluster refused it: another one, and the agent there is told.
    fn place_again(&self, instance: &Instance) -> Decision<Step> {
        let mut next = instance.clone();
        let Some(takes) = self.choose(&mut next) else { return self.wait_for_cluster(instance) };
        if let (Some(operator), Some(cluster)) = (&self.world.operator, self.cluster_of(&next)) {
            let Some(versions) = cluster.newest_versions(&instance.kind, operator) else {
                let why = format!("cluster {} has no version that is ready", cluster.id);
                return self.wait(instance, why, self.world.timeouts.versions_s);
            };
            next.spec.versions = versions.into();
        }
        next.seen.placement_id = self.world.fresh_id.clone();
        next.seen.waiting_for.clear();
        let mut change = self.write(&next, "placed");
        change.takes = takes;
        let wait = Duration::from_secs(self.world.timeouts.provisioning_s);
        Decision { steps: Vec::new(), change, requeue: Requeue::After(wait) }
    }

    /// Keeps what is outside as it should be, and looks again when something ends.
    fn keep(&self, instance: &Instance) -> Decision<Step> {
        let mut steps = Vec::new();
        if instance.is_on_data_plane() && self.world.has_client && !self.world.client_is_so {
            steps.push(Step::EnsureClient);
        }
        if let Some(promotion) = &instance.spec.promotion
            && promotion.failed.is_empty()
        {
            steps.push(Step::Promote);
            return Decision {
                steps,
                change: Change::default(),
                requeue: Requeue::After(Duration::ZERO),
            };
        }
        if let Some(mut repair) = self.names(instance) {
            repair.steps.extend(steps);
            return repair;
        }
        let mut next = instance.clone();
        next.seen.routes_created |= instance.seen.routes.is_some();
        let change = self.note(instance, next);
        Decision { steps, change, requeue: self.rest() }
    }

    /// The end of its life: its owner is kept out, it expired, or its quota is gone.
    fn end_of_life(&self, instance: &Instance) -> Option<Decision<Step>> {
        if self.world.denied {
            return Some(self.delete(instance, "its owner is on the deny list"));
        }
        if instance.spec.expires_at.is_some_and(|end| self.now >= end) {
            return Some(self.delete(instance, "it expired"));
        }
        let trial = instance.spec.quota_counter.starts_with("fleet/trial/");
        let grace_days = match (trial, self.world.entitled) {
            (true, _) => return None,
            (false, Entitled::Yes) => {
                let mut next = instance.clone();
                next.spec.expires_at.take()?;
                let change = self.write(&next, "entitled");
                return Some(Decision {
                    steps: Vec::new(),
                    change,
                    requeue: Requeue::After(Duration::ZERO),
                });
            }
            (false, Entitled::No { grace_days }) => grace_days,
        };
        let grace = Duration::from_secs(u64::try_from(grace_days).unwrap_or(0) * 86_400);
        let mut next = instance.clone();
        let Some(end) = instance.spec.expires_at else {
            next.spec.expires_at = Some(self.now.plus(grace));
            let change = self.write(&next, "expiring");
            return Some(Decision {
                steps: Vec::new(),
                change,
                requeue: Requeue::After(Duration::ZERO),
            });
        };
        let in_grace = self.now.until(end) <= grace && grace_days > 0;
        // Before its data plane knows of it nobody could suspend it.
        let runs =
            matches!(instance.status, Status::Ready | Status::Provisioning | Status::Resuming);
        if in_grace && runs && instance.is_on_data_plane() {
            let (change, _) = self.enter(&next, Event::Suspend);
            return Some(Decision { steps: Vec::new(), change, requeue: self.rest() });
        }
        None
    }

    fn delete(&self, instance: &Instance, why: &str) -> Decision<Step> {
        let mut next = instance.clone();
        next.seen.waiting_for = format!("it is being deleted: {why}");
        let (change, _) = self.enter(&next, Event::Delete);
        Decision { steps: Vec::new(), change, requeue: Requeue::After(Duration::ZERO) }
    }

    /// Out: from the data plane first, then everything outside, then the row becomes history.
    fn leave(&self, instance: &Instance) -> Decision<Step> {
        if instance.status == Status::Deprovision {
            // A cluster that is gone took everything with it.
            let cluster_gone = self.world.cluster.is_none();
            if instance.is_on_data_plane() && !cluster_gone {
                return Decision::idle(Requeue::After(LOST_WAKE_UP));
            }
            let (change, _) = self.enter(instance, Event::Removed);
            return Decision { steps: Vec::new(), change, requeue: Requeue::After(Duration::ZERO) };
        }
        let mut steps = self.removals(instance);
        if !instance.spec.subscription_id.is_empty() {
            steps.push(Step::ReleaseReservation);
        }
        let mut gone = self.object.clone();
        instance.write_to(&mut gone, self.now);
        gone.deleted_at = Some(self.now);
        gone.observed = gone.generation;
        let change = Change {
            event: Some(EventDraft::of(&gone, "deleted")),
            audit: Some(audit(&gone, "deleted")),
            releases: instance.releases(instance.counters()),
            depends_on: Some(Vec::new()),
            wake_dependencies: true,
            write: Some(Write::Update(gone)),
            // The cluster may be waiting until it is empty.
            wakes: wake_cluster(instance, self.now),
            ..Change::default()
        };
        let next = if steps.is_empty() { Requeue::Never } else { Requeue::After(SWEEP_AFTER) };
        Decision { steps, change, requeue: next }
    }

    /// What takes away everything of it outside.
    fn removals(&self, instance: &Instance) -> Vec<Step> {
        let mut steps = Vec::new();
        let names = instance.seen.names.iter();
        let records: Vec<Record> =
            names.map(|name| Record { name: name.clone(), target: String::new() }).collect();
        if self.world.has_dns && !records.is_empty() {
            steps.push(Step::RemoveRecords(records));
        }
        if self.world.has_client {
            steps.push(Step::RemoveClient);
        }
        steps
    }

    /// Once more, a while after it went.
    fn sweep(&self, instance: &Instance, gone: Timestamp) -> Decision<Step> {
        let due = gone.plus(SWEEP_AFTER);
        if self.now < due {
            return Decision::idle(Requeue::After(self.now.until(due)));
        }
        let steps = self.removals(instance);
        Decision { steps, change: Change::default(), requeue: Requeue::Never }
    }

    /// When what is outside should be compared again.
    fn rest(&self) -> Requeue {
        match self.world.has_client || self.world.has_dns {
            true => Requeue::After(Duration::from_secs(self.world.timeouts.recheck_s)),
            false => Requeue::Never,
        }
    }

    fn choose(&self, next: &mut Instance) -> Option<Vec<Take>> {
        let found = self.world.judged.iter().find(|judged| judged.against.is_none())?;
        Some(place_on(next, &found.cluster).into_iter().collect())
    }

    fn cluster_of(&self, instance: &Instance) -> Option<std::sync::Arc<Cluster>> {
        let id = &instance.seen.cluster_id;
        let judged = self.world.judged.iter().map(|judged| &judged.cluster);
        self.world.cluster.iter().chain(judged).find(|cluster| cluster.id == *id).cloned()
    }

    fn wait_for_cluster(&self, instance: &Instance) -> Decision<Step> {
        let mut decision = self.wait(instance, self.no_cluster(), self.world.timeouts.accepted_s);
        decision.steps.extend(self.world.need.clone().map(Step::NewCluster));
        decision
    }

    fn no_cluster(&self) -> String {
        match self.world.judged.first() {
            None => "a cluster: there is none".into(),
            Some(first) => {
                let why = first.why().unwrap_or_else(|| "it was taken meanwhile".into());
                format!("a cluster: none would do ({}: {why})", first.cluster.id)
            }
        }
    }

    /// Waits for something that will wake it, at most so long in all.
    fn wait(&self, instance: &Instance, what: String, limit_s: u64) -> Decision<Step> {
        let deadline = instance.seen.since.plus(Duration::from_secs(limit_s));
        if self.now >= deadline {
            return self.give_up(instance, format!("it waited {limit_s} s for {what}"));
        }
        let mut next = instance.clone();
        next.seen.waiting_for = what;
        let change = self.note(instance, next);
        let pause = self.now.until(deadline).min(Duration::from_secs(30));
        Decision { steps: Vec::new(), change, requeue: Requeue::After(pause) }
    }

    fn give_up(&self, instance: &Instance, why: String) -> Decision<Step> {
        let mut next = instance.clone();
        next.seen.failed_reason = why;
        let (change, _) = self.enter(&next, Event::GiveUp);
        Decision { steps: Vec::new(), change, requeue: self.rest() }
    }

    /// Writes what changed, if anything did.
    fn note(&self, before: &Instance, after: Instance) -> Change {
        if *before == after { Change::default() } else { self.write(&after, "updated") }
    }

    fn enter(&self, instance: &Instance, event: Event) -> (Change, Instance) {
        transition(self.object, instance, event, self.now)
    }

    fn write(&self, instance: &Instance, what: &str) -> Change {
        written(self.object, instance, what, self.now)
    }
}
