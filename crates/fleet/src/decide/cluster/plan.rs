//! What to do about a cluster, from what is wanted and what was seen. Pure.

use std::time::Duration;

use kernel::change::{AuditDraft, EventDraft, Release, Wake, Write};
use kernel::driver::{Decision, Requeue};
use kernel::{Change, Json, Object, Timestamp};

use super::life::{Event, then};
use super::scale;
use crate::decide::Then;
use crate::model::cluster::{Cluster, Provider, Status};

/// What was seen of the world around a cluster.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// How many instances are on it.
    pub instances: usize,
    /// When its agent was last heard of.
    pub heard: Option<Timestamp>,
    pub lost_after: Duration,
    /// How often what is on it and around it is compared with what should be there.
    pub recheck: Duration,
    /// How long it may take to come about.
    pub patience: Duration,
    /// Whether its agent has a client outside, and whether that is as it should be.
    pub has_client: bool,
    pub client_is_so: bool,
    pub made: Made,
    pub reach: Reach,
    pub spare: Spare,
    /// If it goes by force: whoever is on it should know.
    pub wakes: Vec<Wake>,
}

/// What its provider says of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Made {
    /// It is not finished.
    #[default]
    NotYet,
    There {
        dns_name: String,
        external_id: String,
    },
}

/// How it stands with what we put on a cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Reach {
    /// We put nothing on it.
    #[default]
    NotOurs,
    /// We would, but there is no way to it; why.
    NoWay(String),
    /// Whether everything is as it should be; on its way out, whether something is left.
    Ours { is_so: bool, left: bool },
}

/// Whether the rules may take it away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Spare {
    /// Something is on it, or it is not theirs to take.
    #[default]
    No,
    /// It is empty, but its region would be short without it; that may change.
    Needed { idle: Duration },
    /// Once it has been empty for so long.
    After { idle: Duration, dry_run: bool },
}

/// One idempotent act outside.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Has its provider make it.
    Provision,
    Destroy,
    /// Puts everything on it that it needs.
    Terraform,
    /// Takes our own things off it.
    TakeOff,
    EnsureClient,
    RemoveClient,
    /// The rules would do this, if they were let.
    WouldGo,
}

/// How long a lost wake-up may cost where others are to tell us.
const LOST_WAKE_UP: Duration = Duration::from_secs(600);
/// How often we look until what was taken off is gone.
const PAUSE: Duration = Duration::from_secs(2);

pub fn decide(object: &Object, cluster: &Cluster, world: &World, now: Timestamp) -> Decision<Step> {
    let plan = Plan { object, cluster, world, now };
    if cluster.spec.deleting {
        return plan.leave();
    }
    match (cluster.spec.provider, cluster.status) {
        (Provider::Local, _) => Decision::idle(Requeue::Never),
        (_, Status::Failed) if object.generation != object.observed => plan.go(Event::Again),
        (_, Status::Failed) => Decision::idle(Requeue::Never),
        (Provider::Agent | Provider::Enterprise, s) if is_early(s) => {
            plan.with_client(plan.go_saying(Event::Registered, "its agent to report"))
        }
        (Provider::Standalone, Status::Accepted | Status::Provisioning) => plan.go(Event::Made),
        (Provider::Terraform, Status::Accepted) => {
            let mut next = cluster.clone();
            next.seen.provider_asked = true;
            plan.enter(next, Event::Asked, "Terraform to make it")
        }
        (Provider::Terraform, Status::Provisioning) => plan.provisioning(),
        (_, Status::Provisioned) => plan.terraform(),
        (_, Status::Waiting | Status::Ready) => plan.keep(),
        // Its time came, but it should not go any more: it goes all the same, and comes anew.
        _ => plan.leave(),
    }
}

fn is_early(status: Status) -> bool {
    matches!(status, Status::Accepted | Status::Provisioning | Status::Provisioned)
}

struct Plan<'a> {
    object: &'a Object,
    cluster: &'a Cluster,
    world: &'a World,
    now: Timestamp,
}

impl Plan<'_> {
    /// Its provider makes it; what that says of it is written down.
    fn provisioning(&self) -> Decision<Step> {
        if let Made::There { dns_name, external_id } = &self.world.made {
            let mut next = self.cluster.clone();
            let given = |known: &mut String, said: &String| {
                if !said.is_empty() {
                    known.clone_from(said);
                }
            };
            given(&mut next.spec.dns_name, dns_name);
            given(&mut next.spec.external_id, external_id);
            return self.enter(next, Event::Made, "");
        }
        if let Some(late) = self.too_late() {
            return late;
        }
        let next = Requeue::After(Duration::ZERO);
        Decision { steps: vec![Step::Provision], change: Change::default(), requeue: next }
    }

    fn terraform(&self) -> Decision<Step> {
        if let Some(late) = self.too_late() {
            return late;
        }
        match &self.world.reach {
            Reach::NotOurs => {
                self.with_client(self.go_saying(Event::Registered, "its agent to report"))
            }
            Reach::NoWay(why) => {
                let mut next = self.cluster.clone();
                next.seen.waiting_for = why.clone();
                let pause = self.world.recheck.min(LOST_WAKE_UP);
                Decision {
                    steps: Vec::new(),
                    change: self.note(next, "waiting"),
                    requeue: Requeue::After(pause),
                }
            }
            Reach::Ours { .. } => {
                let mut decision = self.go_saying(Event::Terraformed, "its agent to report");
                decision.steps.push(Step::Terraform);
                self.with_client(decision)
            }
        }
    }

    /// Failed, if it was given more time than it may take.
    fn too_late(&self) -> Option<Decision<Step>> {
        let deadline = self.cluster.seen.since.plus(self.world.patience);
        if self.now < deadline {
            return None;
        }
        let mut next = self.cluster.clone();
        let why = match next.seen.reason.as_str() {
            "" => String::new(),
            why => format!(": {why}"),
        };
        next.seen.reason =
            format!("it was not made within {} s{why}", self.world.patience.as_secs());
        Some(self.enter(next, Event::GaveUp, ""))
    }

    /// Keeps what is on it and around it as it should be, and notices an agent that fell silent.
    fn keep(&self) -> Decision<Step> {
        let (mut next, what) = self.heartbeat();
        if let Some(going) = self.rule_out(&mut next) {
            return going;
        }
        let mut steps = Vec::new();
        if matches!(self.world.reach, Reach::Ours { is_so: false, .. }) {
            steps.push(Step::Terraform);
        }
        let decision = Decision { steps, change: self.note(next, what), requeue: self.rest() };
        self.with_client(decision)
    }

    /// The cluster with what is to be said of its agent, and how that is called.
    fn heartbeat(&self) -> (Cluster, &'static str) {
        let mut next = self.cluster.clone();
        let Some(deadline) = self.silent_at() else { return (next, "updated") };
        let lost = self.now >= deadline;
        let what = match (lost, self.cluster.seen.agent_lost) {
            (true, false) => {
                let last = self.world.heard.unwrap_or(self.cluster.seen.since);
                next.seen.reason = format!("its agent has not been heard of since {last}");
                "agent_lost"
            }
            (false, true) => {
                next.seen.reason.clear();
                "agent_back"
            }
            _ => "updated",
        };
        next.seen.agent_lost = lost;
        (next, what)
    }

    /// When its agent will have been silent for too long; none while it was never heard of.
    fn silent_at(&self) -> Option<Timestamp> {
        let last = match (self.world.heard, self.cluster.status) {
            (Some(heard), _) => heard,
            (None, Status::Ready) => self.cluster.seen.since,
            (None, _) => return None,
        };
        Some(last.plus(self.world.lost_after))
    }

    /// Empty and spare for long enough: then the rules take it away, if they may.
    fn rule_out(&self, next: &mut Cluster) -> Option<Decision<Step>> {
        let Spare::After { idle, dry_run } = self.world.spare else {
            next.seen.empty_since = None;
            return None;
        };
        let Some(since) = next.seen.empty_since else {
            next.seen.empty_since = Some(self.now);
            return None;
        };
        if self.now < since.plus(idle) {
            return None;
        }
        if dry_run {
            let rest = Decision::idle(self.rest());
            return Some(Decision { steps: vec![Step::WouldGo], ..rest });
        }
        let mut gone = next.clone();
        gone.spec.deleting = true;
        gone.spec.schedulable = false;
        gone.seen.reason = "it is empty, and enough is free without it".into();
        Some(self.enter(gone, Event::Delete, ""))
    }

    /// When to look at what rests.
    fn rest(&self) -> Requeue {
        let ours = matches!(self.world.reach, Reach::Ours { .. } | Reach::NoWay(_));
        let recheck = (ours || self.world.has_client).then_some(self.world.recheck);
        let silent = self.silent_at().map(|at| match self.now < at {
            true => self.now.until(at),
            false => self.world.lost_after,
        });
        // One that was never heard of may become ready at any time, and is to be watched then.
        let unheard = silent.is_none().then_some(self.world.lost_after);
        let idle = match self.world.spare {
            Spare::After { idle, .. } | Spare::Needed { idle } => Some(idle),
            Spare::No => None,
        };
        let wait = [recheck, silent, unheard, idle].into_iter().flatten().min();
        wait.map_or(Requeue::Never, |wait| Requeue::After(wait.max(Duration::from_millis(1))))
    }

    /// Out: empty first, then what its provider made, then what is left around it.
    fn leave(&self) -> Decision<Step> {
        let Cluster { spec, status, .. } = self.cluster;
        match status {
            Status::Deprovisioning if spec.force => self.go(Event::Removed),
            Status::Deprovisioning if self.world.instances > 0 => {
                let mut next = self.cluster.clone();
                next.seen.waiting_for = match self.world.instances {
                    1 => "1 instance to be deleted".into(),
                    n => format!("{n} instances to be deleted"),
                };
                let change = self.note(next, "waiting");
                Decision { steps: Vec::new(), change, requeue: Requeue::After(LOST_WAKE_UP) }
            }
            Status::Deprovisioning => self.remove(),
            Status::Cleanup => self.forget(),
            _ => self.go(Event::Delete),
        }
    }

    fn remove(&self) -> Decision<Step> {
        match (self.cluster.spec.provider, &self.world.reach) {
            (Provider::Terraform, _) => {
                Decision { steps: vec![Step::Destroy], ..self.go(Event::Removed) }
            }
            (_, Reach::Ours { left: true, .. }) => {
                let next = Requeue::After(PAUSE);
                Decision { steps: vec![Step::TakeOff], change: Change::default(), requeue: next }
            }
            _ => self.go(Event::Removed),
        }
    }

    fn forget(&self) -> Decision<Step> {
        let steps = if self.world.has_client { vec![Step::RemoveClient] } else { Vec::new() };
        let mut gone = self.cluster.clone();
        gone.seen.waiting_for.clear();
        let mut object = write_to(self.object, &gone, self.now);
        object.deleted_at = Some(self.now);
        let releases = scale::counters(self.cluster)
            .map(|counter| Release { counter, holder: self.cluster.key().to_string() });
        let change = Change {
            event: Some(EventDraft::of(&object, "deleted")),
            audit: Some(audit(&object, "deleted")),
            releases: releases.collect(),
            wakes: self.world.wakes.clone(),
            write: Some(Write::Update(object)),
            ..Change::default()
        };
        Decision { steps, change, requeue: Requeue::Never }
    }

    fn with_client(&self, mut decision: Decision<Step>) -> Decision<Step> {
        if self.world.has_client && !self.world.client_is_so {
            decision.steps.insert(0, Step::EnsureClient);
        }
        decision
    }

    fn go(&self, event: Event) -> Decision<Step> {
        self.go_saying(event, "")
    }

    fn go_saying(&self, event: Event, waits_for: &str) -> Decision<Step> {
        self.enter(self.cluster.clone(), event, waits_for)
    }

    fn enter(&self, mut next: Cluster, event: Event, waits_for: &str) -> Decision<Step> {
        let Then::To(status) = then(next.status, event) else {
            return Decision::idle(Requeue::Never);
        };
        next.status = status;
        next.seen.since = self.now;
        next.seen.waiting_for = waits_for.into();
        if !matches!(event, Event::GaveUp | Event::Delete) {
            next.seen.reason.clear();
        }
        let change = written(self.object, &next, status.label(), self.now);
        Decision { steps: Vec::new(), change, requeue: Requeue::After(Duration::ZERO) }
    }

    /// Writes what changed, if anything did.
    fn note(&self, next: Cluster, what: &str) -> Change {
        if next == *self.cluster && self.object.observed == self.object.generation {
            return Change::default();
        }
        written(self.object, &next, what, self.now)
    }
}

fn write_to(object: &Object, cluster: &Cluster, now: Timestamp) -> Object {
    let mut object = object.clone();
    object.phase = cluster.status.label().into();
    object.spec = Json::encode(&cluster.spec);
    object.status = Json::encode(&cluster.seen);
    object.observed = object.generation;
    object.updated_at = now;
    object
}

/// The change that writes a cluster as it is now, with an event and an audit entry.
pub fn written(object: &Object, cluster: &Cluster, what: &str, now: Timestamp) -> Change {
    let object = write_to(object, cluster, now);
    Change {
        event: Some(EventDraft::of(&object, what)),
        audit: Some(audit(&object, what)),
        write: Some(Write::Update(object)),
        ..Change::default()
    }
}

fn audit(object: &Object, what: &str) -> AuditDraft {
    AuditDraft {
        actor: "mainstay".into(),
        action: format!("cluster.{what}"),
        target: object.key.to_string(),
        org: object.org.clone(),
        outcome: "done".into(),
        ..AuditDraft::default()
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
