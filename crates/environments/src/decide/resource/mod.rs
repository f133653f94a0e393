//! Decides what to do about a resource: the local rule of `rule.rs`, with what people want to know
//! besides: what it waits for, all of it, since when, and what would unblock it.

mod outcome;
mod rule;
mod waits;

use std::time::Duration;

use kernel::Timestamp;

pub use outcome::{Outcome, entered, finished};
pub use rule::{Dependent, Move, Operation, State, Wakes, next, wakes};

use crate::model::environment::Want;
use crate::model::refs::Reference;
use crate::model::resource::{Phase, Resource, Status, Wait};

/// A neighbour, as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbour {
    pub reference: Reference,
    pub state: NeighbourState,
    /// Since when it is so.
    pub since: Option<Timestamp>,
    /// Why it failed.
    pub reason: String,
    /// A dependent that was applied on this one and no longer depends on it.
    pub former: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourState {
    Resource(State),
    /// It does not exist.
    Missing,
    /// It is not managed; this is whether it responds.
    External(bool),
}

impl NeighbourState {
    fn state(self) -> Option<State> {
        match self {
            NeighbourState::Resource(state) => Some(state),
            NeighbourState::Missing | NeighbourState::External(false) => None,
            NeighbourState::External(true) => {
                Some(State { phase: Phase::Ready, current: true, ..State::PENDING })
            }
        }
    }
}

/// What was observed around a resource.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    pub dependencies: Vec<Neighbour>,
    /// Those that exist and depend on it, or did when they were applied.
    pub dependents: Vec<Neighbour>,
    /// Of the completed input; none if an output that it uses is not known yet.
    pub wanted_digest: Option<String>,
    /// Whether a failed operation is tried again: its backoff has passed, a person asked for it, or
    /// something else is wanted since.
    pub retry: bool,
}

/// What is done next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    Settled,
    /// For all of these. The change that records them names the revisions that were read, so that
    /// nothing is missed in between.
    Wait(Vec<Wait>),
    Begin(Operation),
    Continue(Operation),
    /// The operation took too long: its executor never said that it failed.
    Fail(String),
    Yield(bool),
    Remove,
}

/// How long an operation may take if its template does not say.
pub const TIMEOUT: Duration = Duration::from_secs(3600);

/// The rule's view of a resource.
pub fn state(phase: Phase, spec: &Resource, status: &Status, wanted_digest: Option<&str>) -> State {
    State {
        phase,
        want: spec.want,
        current: !status.input_digest.is_empty()
            && wanted_digest.is_none_or(|wanted| wanted == status.input_digest),
        outdated: phase != Phase::Pending && status.incarnation != spec.incarnation,
        yielding: status.yielding,
    }
}

pub fn decide(
    phase: Phase,
    spec: &Resource,
    status: &Status,
    observed: &Observed,
    now: Timestamp,
) -> Next {
    let own = state(phase, spec, status, observed.wanted_digest.as_deref());
    if let Some(reason) = overdue(phase, spec, status, now) {
        return Next::Fail(reason);
    }
    let dependencies: Vec<Option<State>> =
        observed.dependencies.iter().map(|neighbour| neighbour.state.state()).collect();
    let dependents = observed.dependents.iter().filter_map(|neighbour| {
        Some(Dependent { state: neighbour.state.state()?, former: neighbour.former })
    });
    let dependents: Vec<Dependent> = dependents.collect();
    match next(own, &dependencies, &dependents) {
        Move::Settled => Next::Settled,
        Move::AwaitDependencies => Next::Wait(waits::for_dependencies(&observed.dependencies)),
        Move::AwaitDependents => {
            let stays = own.want != Want::Absent;
            Next::Wait(waits::for_dependents(&observed.dependents, stays))
        }
        // A failed one is not tried again and again: with a backoff, or when a person asks.
        Move::Begin(_) if phase == Phase::Failed && !observed.retry => Next::Settled,
        Move::Begin(operation) => Next::Begin(operation),
        Move::Continue(operation) => Next::Continue(operation),
        Move::Yield(yielding) => Next::Yield(yielding),
        Move::Remove => Next::Remove,
    }
}

fn overdue(phase: Phase, spec: &Resource, status: &Status, now: Timestamp) -> Option<String> {
    let limit = spec.timeout.map_or(TIMEOUT, |timeout| timeout.duration());
    let since = status.since.filter(|_| phase.is_working())?;
    let late = now >= since.plus(limit);
    late.then(|| format!("{} took more than {} s", phase.label(), limit.as_secs()))
}

#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod tests;
