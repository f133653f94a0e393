//! Decides what to do about a cluster, from its spec and what was observed. Pure.

use std::time::Duration;

use kernel::change::Release;
use kernel::driver::{Decision, Requeue};
use kernel::{Change, Object, Timestamp};

use super::lifecycle::{Event, next_phase};
use super::scaling;
use crate::decide::{Transition, audit, is_hop};
use crate::model::cluster::{Cluster, Phase, Provider};
use crate::model::recheck::Recheck;

/// What was observed around a cluster.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// The number of instances on it.
    pub instances: usize,
    /// The time of the last contact with its agent.
    pub last_seen: Option<Timestamp>,
    pub lost_after: Duration,
    /// How often the installation and the client are compared with what they should be.
    pub recheck: Duration,
    /// How long provisioning may take.
    pub provision_timeout: Duration,
    /// Whether an external system keeps its agent's client, and whether that client matches.
    pub needs_client: bool,
    pub client_matches: bool,
    pub provision: ProvisionState,
    pub access: Access,
    pub scale_down: ScaleDown,
}

/// The state of the cluster at its provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ProvisionState {
    /// It is not finished.
    #[default]
    Pending,
    Done {
        dns_name: String,
        external_id: String,
    },
}

/// State of the agent installation on a cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Access {
    /// We install nothing on it.
    #[default]
    Unmanaged,
    /// We would install the agent, but cannot reach the cluster; why.
    Unreachable(String),
    /// Whether the installation matches; during a deletion, whether something of it remains.
    Managed { matches: bool, remaining: bool },
}

/// Whether autoscaling may delete it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ScaleDown {
    /// It has instances, or autoscaling did not create it.
    #[default]
    Never,
    /// It is empty, but its region would be short without it; that may change.
    Needed { idle: Duration },
    /// Once it has been empty for `idle`.
    After { idle: Duration, dry_run: bool },
}

/// One idempotent effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Has its provider create it.
    Provision,
    Destroy,
    /// Installs the agent and everything that it needs.
    InstallAgent,
    /// Removes our own objects from it.
    Uninstall,
    EnsureClient,
    RemoveClient,
    /// Logs that autoscaling would delete it, in a dry run.
    LogScaleDown,
}

/// Bounds the delay of a lost wake-up where another party sends it.
const LOST_WAKE_UP: Duration = Duration::from_secs(600);
/// How often removed objects are checked until they are gone.
const PAUSE: Duration = Duration::from_secs(2);

pub fn decide(
    object: &Object,
    cluster: &Cluster,
    observed: &Observation,
    now: Timestamp,
) -> Decision<Step> {
    let plan = Plan { object, cluster, observed, now };
    if cluster.spec.deleting {
        return plan.deprovision();
    }
    match (cluster.spec.provider, cluster.phase) {
        (Provider::Local, _) => Decision::idle(Requeue::Never),
        (_, Phase::Failed) if object.generation != object.observed => {
            plan.transition(Event::Retried)
        }
        (_, Phase::Failed) => Decision::idle(Requeue::Never),
        (Provider::Agent | Provider::Enterprise, s) if is_early(s) => {
            plan.with_client(plan.transition_waiting_for(Event::Registered, "its agent to report"))
        }
        (Provider::Standalone, Phase::Accepted | Phase::Provisioning) => {
            plan.transition(Event::Provisioned)
        }
        (Provider::Terraform, Phase::Accepted) => {
            let mut next = cluster.clone();
            next.status.provider_asked = true;
            plan.transition_with(next, Event::ProvisionRequested, "Terraform to create it")
        }
        (Provider::Terraform, Phase::Provisioning) => plan.provisioning(),
        (_, Phase::Provisioned) => plan.install_agent(),
        (_, Phase::Waiting | Phase::Ready) => plan.maintain(),
        // The deletion was withdrawn too late: it is completed, and the next sync registers it again.
        _ => plan.deprovision(),
    }
}

fn is_early(phase: Phase) -> bool {
    matches!(phase, Phase::Accepted | Phase::Provisioning | Phase::Provisioned)
}

struct Plan<'a> {
    object: &'a Object,
    cluster: &'a Cluster,
    observed: &'a Observation,
    now: Timestamp,
}

impl Plan<'_> {
    /// Waits for its provider, and records what that reports.
    fn provisioning(&self) -> Decision<Step> {
        if let ProvisionState::Done { dns_name, external_id } = &self.observed.provision {
            let mut next = self.cluster.clone();
            let set = |field: &mut String, reported: &String| {
                if !reported.is_empty() {
                    field.clone_from(reported);
                }
            };
            set(&mut next.spec.dns_name, dns_name);
            set(&mut next.spec.external_id, external_id);
            return self.transition_with(next, Event::Provisioned, "");
        }
        if let Some(late) = self.fail_if_overdue() {
            return late;
        }
        let again = Decision::idle(Requeue::After(Duration::ZERO));
        Decision { steps: vec![Step::Provision], ..again }
    }

    fn install_agent(&self) -> Decision<Step> {
        if let Some(late) = self.fail_if_overdue() {
            return late;
        }
        match &self.observed.access {
            Access::Unmanaged => self
                .with_client(self.transition_waiting_for(Event::Registered, "its agent to report")),
            Access::Unreachable(why) => {
                let mut next = self.cluster.clone();
                next.status.waiting_for = why.clone();
                let pause = Decision::idle(Requeue::After(self.observed.recheck.min(LOST_WAKE_UP)));
                Decision { change: self.update_if_changed(next, "waiting"), ..pause }
            }
            Access::Managed { .. } => {
                let mut decision =
                    self.transition_waiting_for(Event::AgentInstalled, "its agent to report");
                decision.steps.push(Step::InstallAgent);
                self.with_client(decision)
            }
        }
    }

    /// Fails it after its timeout.
    fn fail_if_overdue(&self) -> Option<Decision<Step>> {
        let deadline = self.cluster.status.since.plus(self.observed.provision_timeout);
        if self.now < deadline {
            return None;
        }
        let mut next = self.cluster.clone();
        let why = match next.status.reason.as_str() {
            "" => String::new(),
            why => format!(": {why}"),
        };
        let limit_s = self.observed.provision_timeout.as_secs();
        next.status.reason = format!("it was not created within {limit_s} s{why}");
        Some(self.transition_with(next, Event::ProvisionFailed, ""))
    }

    /// Repairs drift of the installation and the client, and detects a silent agent.
    fn maintain(&self) -> Decision<Step> {
        let (mut next, what) = self.heartbeat();
        if let Some(deletion) = self.scale_down(&mut next) {
            return deletion;
        }
        let mut decision = Decision::idle(self.recheck_after());
        decision.change = self.update_if_changed(next, what);
        if matches!(self.observed.access, Access::Managed { matches: false, .. }) {
            decision.steps.push(Step::InstallAgent);
        }
        self.with_client(decision)
    }

    /// The cluster with its agent's liveness, and the name of the event.
    fn heartbeat(&self) -> (Cluster, &'static str) {
        let mut next = self.cluster.clone();
        let Some(deadline) = self.agent_deadline() else { return (next, "updated") };
        let lost = self.now >= deadline;
        let what = match (lost, self.cluster.status.agent_lost) {
            (true, false) => {
                let last = self.observed.last_seen.unwrap_or(self.cluster.status.since);
                next.status.reason = format!("no report from its agent since {last}");
                "agent_lost"
            }
            (false, true) => {
                next.status.reason.clear();
                "agent_back"
            }
            _ => "updated",
        };
        next.status.agent_lost = lost;
        (next, what)
    }

    /// When its agent counts as lost; none before its first contact.
    fn agent_deadline(&self) -> Option<Timestamp> {
        let last = match (self.observed.last_seen, self.cluster.phase) {
            (Some(last_seen), _) => last_seen,
            (None, Phase::Ready) => self.cluster.status.since,
            (None, _) => return None,
        };
        Some(last.plus(self.observed.lost_after))
    }

    /// Deletes a cluster that has been empty and spare for long enough; a dry run only logs.
    fn scale_down(&self, next: &mut Cluster) -> Option<Decision<Step>> {
        let ScaleDown::After { idle, dry_run } = self.observed.scale_down else {
            next.status.empty_since = None;
            return None;
        };
        let Some(since) = next.status.empty_since else {
            next.status.empty_since = Some(self.now);
            return None;
        };
        if self.now < since.plus(idle) {
            return None;
        }
        if dry_run {
            let idle = Decision::idle(self.recheck_after());
            return Some(Decision { steps: vec![Step::LogScaleDown], ..idle });
        }
        let mut gone = next.clone();
        gone.spec.deleting = true;
        gone.spec.schedulable = false;
        gone.status.reason = "it is empty, and enough is free without it".into();
        Some(self.transition_with(gone, Event::Delete, ""))
    }

    /// When to reconcile a converged cluster again.
    fn recheck_after(&self) -> Requeue {
        let installed =
            matches!(self.observed.access, Access::Managed { .. } | Access::Unreachable(_));
        let recheck = (installed || self.observed.needs_client).then_some(self.observed.recheck);
        let lost = self
            .agent_deadline()
            .map(|at| if self.now < at { self.now.until(at) } else { self.observed.lost_after });
        // An agent without contact yet may report at any time, and is checked from then on.
        let unseen = lost.is_none().then_some(self.observed.lost_after);
        let idle = match self.observed.scale_down {
            ScaleDown::After { idle, .. } | ScaleDown::Needed { idle } => Some(idle),
            ScaleDown::Never => None,
        };
        let wait = [recheck, lost, unseen, idle].into_iter().flatten().min();
        wait.map_or(Requeue::Never, |wait| Requeue::After(wait.max(Duration::from_millis(1))))
    }

    /// Deletes it: waits until it is empty, then removes it at its provider, then its client.
    fn deprovision(&self) -> Decision<Step> {
        let Cluster { spec, phase, .. } = self.cluster;
        match phase {
            Phase::Deprovisioning if spec.force => self.transition(Event::Removed),
            Phase::Deprovisioning if self.observed.instances > 0 => {
                let mut next = self.cluster.clone();
                next.status.waiting_for = match self.observed.instances {
                    1 => "1 instance to be deleted".into(),
                    n => format!("{n} instances to be deleted"),
                };
                let change = self.update_if_changed(next, "waiting");
                Decision { steps: Vec::new(), change, requeue: Requeue::After(LOST_WAKE_UP) }
            }
            Phase::Deprovisioning => self.remove_resources(),
            Phase::Cleanup => self.finish_deletion(),
            _ => self.transition(Event::Delete),
        }
    }

    fn remove_resources(&self) -> Decision<Step> {
        match (self.cluster.spec.provider, &self.observed.access) {
            (Provider::Terraform, _) => {
                Decision { steps: vec![Step::Destroy], ..self.transition(Event::Removed) }
            }
            (_, Access::Managed { remaining: true, .. }) => {
                let pause = Decision::idle(Requeue::After(PAUSE));
                Decision { steps: vec![Step::Uninstall], ..pause }
            }
            _ => self.transition(Event::Removed),
        }
    }

    fn finish_deletion(&self) -> Decision<Step> {
        let steps = if self.observed.needs_client { vec![Step::RemoveClient] } else { Vec::new() };
        let mut gone = self.cluster.clone();
        gone.status.waiting_for.clear();
        let write = gone.draft(self.object).delete("deleted", self.now);
        let releases = scaling::counters(self.cluster)
            .map(|counter| Release { counter, holder: self.cluster.key().to_string() });
        let change = Change {
            audit: Some(audit(&write.object, "deleted")),
            releases: releases.collect(),
            // Instances are left on it only if it is deleted by force.
            wakes: (self.observed.instances > 0)
                .then(|| Recheck::Evicted.wake(self.now))
                .into_iter()
                .collect(),
            ..Change::from(write)
        };
        Decision { steps, change, requeue: Requeue::Never }
    }

    fn with_client(&self, mut decision: Decision<Step>) -> Decision<Step> {
        if self.observed.needs_client && !self.observed.client_matches {
            decision.steps.insert(0, Step::EnsureClient);
        }
        decision
    }

    fn transition(&self, event: Event) -> Decision<Step> {
        self.transition_waiting_for(event, "")
    }

    fn transition_waiting_for(&self, event: Event, waits_for: &str) -> Decision<Step> {
        self.transition_with(self.cluster.clone(), event, waits_for)
    }

    fn transition_with(&self, mut next: Cluster, event: Event, waits_for: &str) -> Decision<Step> {
        let Transition::To(phase) = next_phase(next.phase, event) else {
            return Decision::idle(Requeue::Never);
        };
        next.phase = phase;
        next.status.since = self.now;
        next.status.waiting_for = waits_for.into();
        if !matches!(event, Event::ProvisionFailed | Event::Delete) {
            next.status.reason.clear();
        }
        let change = cluster_change(self.object, &next, phase.label(), self.now);
        Decision { steps: Vec::new(), change, requeue: Requeue::After(Duration::ZERO) }
    }

    /// Writes the cluster, if it changed.
    fn update_if_changed(&self, next: Cluster, what: &'static str) -> Change {
        if next == *self.cluster && self.object.observed == self.object.generation {
            return Change::default();
        }
        cluster_change(self.object, &next, what, self.now)
    }
}

/// The change that writes a cluster, with an event and an audit entry.
pub fn cluster_change(
    object: &Object,
    cluster: &Cluster,
    what: &'static str,
    now: Timestamp,
) -> Change {
    let write = cluster.draft(object).transition(what, now);
    let audit = Some(audit(&write.object, what));
    Change { audit, hop: is_hop(what), settles: !is_hop(what), ..Change::from(write) }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
