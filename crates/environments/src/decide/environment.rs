//! The phase of an environment, from how many of its resources are in which phase, with the reasons
//! and what would unblock it. Nothing waits for this: it is what people and programs look at.

use kernel::Timestamp;

use crate::model::environment::{Phase, Reason, Want, Why};
use crate::model::resource::Phase as ResourcePhase;

/// How many resources are in each phase, of those that are not gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts([u32; ResourcePhase::ALL.len()]);

impl Counts {
    pub fn add(&mut self, phase: ResourcePhase) {
        self.0[phase as usize] += 1;
    }

    pub fn remove(&mut self, phase: ResourcePhase) {
        self.0[phase as usize] -= 1;
    }

    pub fn of(&self, phase: ResourcePhase) -> u32 {
        self.0[phase as usize]
    }

    pub fn total(&self) -> u32 {
        self.0.iter().sum()
    }

    /// Those with an operation under way.
    fn working(&self) -> u32 {
        let working = ResourcePhase::ALL.into_iter().filter(|phase| phase.is_working());
        working.map(|phase| self.of(phase)).sum()
    }
}

/// How far its plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanState {
    /// It was made, and nobody applied it.
    Planned,
    AwaitingApproval,
    Applied,
}

/// What its status endpoints say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It has no endpoints, or all work.
    Works,
    /// One was not probed since the environment was ready.
    Unknown,
    Fails,
}

/// A resource that explains the phase: a failed one, or one that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notable {
    pub resource: String,
    pub failed: bool,
    /// What it waits for.
    pub blocked_by: Vec<String>,
    pub since: Timestamp,
    pub unblock: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    pub counts: Counts,
    pub plan: PlanState,
    pub want: Want,
    /// Whether it was ever all ready or stopped: after that, stopped resources are starting again.
    pub was_up: bool,
    pub health: Health,
    /// The name of an endpoint that is unknown or fails.
    pub endpoint: String,
    /// Some of them; an index keeps a few.
    pub notable: Vec<Notable>,
    pub since: Timestamp,
}

/// More are for the list of resources.
const WHY_MAX: usize = 10;

/// The phase, why it is so, and what a person can do.
pub fn decide(observed: &Observed) -> (Phase, Vec<Why>, String) {
    let phase = phase(observed);
    let why = why(phase, observed);
    (phase, why, unblock(phase, observed))
}

fn phase(observed: &Observed) -> Phase {
    let counts = &observed.counts;
    let failed = counts.of(ResourcePhase::Failed) > 0;
    match (observed.want, observed.plan) {
        (Want::Absent, _) if counts.total() == 0 => return Phase::Destroyed,
        (Want::Absent, _) => return Phase::Destroying,
        (_, PlanState::Planned) if counts.total() == 0 => return Phase::Planned,
        (_, PlanState::AwaitingApproval) if counts.total() == 0 => return Phase::AwaitingApproval,
        _ => {}
    }
    // While something goes on, it may still succeed; when nothing does, the failure is the state.
    if failed && counts.working() == 0 {
        return Phase::Fail;
    }
    let idle = counts.of(ResourcePhase::Stopped) + counts.of(ResourcePhase::Pending);
    if observed.want == Want::Stopped {
        return if idle == counts.total() { Phase::Stopped } else { Phase::Stopping };
    }
    if counts.of(ResourcePhase::Ready) == counts.total() {
        return match observed.health {
            Health::Works => Phase::Ok,
            Health::Unknown => Phase::Validating,
            Health::Fails => Phase::Fail,
        };
    }
    let asleep = counts.of(ResourcePhase::Stopped) + counts.of(ResourcePhase::Starting);
    let waking = observed.was_up && asleep > 0 && counts.of(ResourcePhase::Pending) == 0;
    if waking { Phase::Starting } else { Phase::Deploying }
}

fn why(phase: Phase, observed: &Observed) -> Vec<Why> {
    let one = |reason, resource: &str| {
        let (resource, blocked_by) = (resource.to_owned(), Vec::new());
        vec![Why { reason, resource, blocked_by, since: observed.since }]
    };
    let from_resources = || -> Vec<Why> {
        let why = observed.notable.iter().take(WHY_MAX).map(|notable| Why {
            reason: if notable.failed { Reason::ResourceFailed } else { Reason::ResourceWaits },
            resource: notable.resource.clone(),
            blocked_by: notable.blocked_by.clone(),
            since: notable.since,
        });
        why.collect()
    };
    match phase {
        Phase::Ok | Phase::Stopped | Phase::Destroyed => Vec::new(),
        Phase::Planned => one(Reason::NotApplied, ""),
        Phase::AwaitingApproval => one(Reason::NeedsApproval, ""),
        Phase::Validating => one(Reason::EndpointUnknown, &observed.endpoint),
        Phase::Fail if observed.counts.of(ResourcePhase::Failed) == 0 => {
            one(Reason::EndpointFails, &observed.endpoint)
        }
        _ if observed.notable.is_empty() => one(Reason::InProgress, ""),
        _ => from_resources(),
    }
}

fn unblock(phase: Phase, observed: &Observed) -> String {
    match phase {
        Phase::Planned => "apply the plan".into(),
        Phase::AwaitingApproval => "approve the plan".into(),
        Phase::Fail if observed.counts.of(ResourcePhase::Failed) == 0 => {
            format!("make {} respond as its template expects", observed.endpoint)
        }
        _ => {
            // A failure stops more than a wait does.
            let first = observed.notable.iter().find(|notable| notable.failed);
            let first = first.or(observed.notable.first());
            first.map_or_else(String::new, |notable| notable.unblock.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(want: Want, phases: &[ResourcePhase]) -> Observed {
        let mut counts = Counts::default();
        phases.iter().for_each(|phase| counts.add(*phase));
        Observed {
            counts,
            plan: PlanState::Applied,
            want,
            was_up: false,
            health: Health::Works,
            endpoint: String::new(),
            notable: Vec::new(),
            since: Timestamp(5),
        }
    }

    #[test]
    fn the_phase_follows_from_the_counts() {
        use ResourcePhase as R;
        let of = |want, phases: &[R]| decide(&observed(want, phases)).0;
        assert_eq!(of(Want::Present, &[R::Pending, R::Pending]), Phase::Deploying);
        assert_eq!(of(Want::Present, &[R::Ready, R::Applying]), Phase::Deploying);
        assert_eq!(of(Want::Present, &[R::Ready, R::Ready]), Phase::Ok);
        assert_eq!(of(Want::Present, &[]), Phase::Ok, "a template may make nothing");
        assert_eq!(of(Want::Present, &[R::Failed, R::Applying]), Phase::Deploying);
        assert_eq!(of(Want::Present, &[R::Failed, R::Pending]), Phase::Fail);
        assert_eq!(of(Want::Stopped, &[R::Ready, R::Stopped]), Phase::Stopping);
        assert_eq!(of(Want::Stopped, &[R::Stopped, R::Pending]), Phase::Stopped);
        assert_eq!(of(Want::Stopped, &[R::Stopped, R::Failed]), Phase::Fail);
        assert_eq!(of(Want::Absent, &[R::Failed]), Phase::Destroying);
        assert_eq!(of(Want::Absent, &[]), Phase::Destroyed);
        let mut waking = observed(Want::Present, &[R::Ready, R::Starting, R::Stopped]);
        assert_eq!(decide(&waking).0, Phase::Deploying);
        waking.was_up = true;
        assert_eq!(decide(&waking).0, Phase::Starting);
    }

    #[test]
    fn a_plan_and_endpoints_count_too() {
        let mut planned = observed(Want::Present, &[]);
        planned.plan = PlanState::AwaitingApproval;
        let (phase, why, unblock) = decide(&planned);
        assert_eq!((phase, why[0].reason), (Phase::AwaitingApproval, Reason::NeedsApproval));
        assert_eq!(unblock, "approve the plan");
        // One that exists keeps its phase while a further plan waits.
        let mut further = observed(Want::Present, &[ResourcePhase::Ready]);
        further.plan = PlanState::AwaitingApproval;
        assert_eq!(decide(&further).0, Phase::Ok);
        let mut ready = observed(Want::Present, &[ResourcePhase::Ready]);
        (ready.health, ready.endpoint) = (Health::Unknown, "health".into());
        let (phase, why, _) = decide(&ready);
        assert_eq!((phase, why[0].resource.as_str()), (Phase::Validating, "health"));
        ready.health = Health::Fails;
        let (phase, why, unblock) = decide(&ready);
        assert_eq!((phase, why[0].reason), (Phase::Fail, Reason::EndpointFails));
        assert!(unblock.contains("health"));
    }

    #[test]
    fn a_failure_is_named_before_what_waits_for_it() {
        let notable = |resource: &str, failed: bool, unblock: &str| Notable {
            resource: resource.into(),
            failed,
            blocked_by: if failed { Vec::new() } else { vec!["db".into()] },
            since: Timestamp(1),
            unblock: unblock.into(),
        };
        let mut failing = observed(Want::Present, &[ResourcePhase::Failed, ResourcePhase::Pending]);
        failing.notable =
            vec![notable("web", false, "repair db and retry it"), notable("db", true, "retry db")];
        let (phase, why, unblock) = decide(&failing);
        assert_eq!((phase, unblock.as_str()), (Phase::Fail, "retry db"));
        assert_eq!(why[0].blocked_by, ["db"]);
        assert_eq!(why[1].reason, Reason::ResourceFailed);
    }
}
