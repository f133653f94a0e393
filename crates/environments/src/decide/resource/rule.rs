//! The local rule: what a resource does next follows from its own state and the states of its direct
//! neighbours. Together these decisions bring up an environment in the order of its dependencies and
//! take it down in reverse, without a scheduler: a resource begins when all its dependencies can be
//! used, stops when no dependent uses it, and is destroyed when no dependent exists.
//!
//! `exhaustive.rs` tries it on all graphs of up to four resources, in all orders of events.

use crate::model::environment::Want;
use crate::model::resource::Phase;

/// What the rule knows of a resource, its own or a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub phase: Phase,
    pub want: Want,
    /// What was applied is what is wanted.
    pub current: bool,
    /// It must be destroyed and made again.
    pub outdated: bool,
    /// It makes room for a replacement below it, and comes back.
    pub yielding: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Apply,
    Stop,
    Start,
    Destroy,
}

/// What a resource does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// It is as it should be, or a person must act.
    Settled,
    AwaitDependencies,
    AwaitDependents,
    /// Enter the phase of the operation, and carry it out.
    Begin(Operation),
    /// Carry on with the operation of its phase.
    Continue(Operation),
    /// Say to its dependents that it makes room, or no longer does.
    Yield(bool),
    /// Nothing of it exists, and it is not wanted.
    Remove,
}

impl Operation {
    pub fn phase(self) -> Phase {
        match self {
            Operation::Apply => Phase::Applying,
            Operation::Stop => Phase::Stopping,
            Operation::Start => Phase::Starting,
            Operation::Destroy => Phase::Destroying,
        }
    }
}

impl State {
    pub const PENDING: State = State {
        phase: Phase::Pending,
        want: Want::Present,
        current: false,
        outdated: false,
        yielding: false,
    };

    /// Whether a dependent may begin: it is ready, and stays so as far as anyone knows.
    pub fn is_usable(self) -> bool {
        self.phase == Phase::Ready && self.want == Want::Present && self.current && !self.leaves()
    }

    /// Whether its dependents must make room for a while.
    pub fn leaves(self) -> bool {
        let replaced = self.outdated && self.phase != Phase::Pending;
        self.want == Want::Present && (self.yielding || replaced)
    }

    /// Whether what it depends on must go on working.
    pub fn blocks_stop(self) -> bool {
        self.phase.uses_dependencies()
    }

    /// Whether it must stop because of what it depends on.
    fn must_yield(self, dependencies: &[Option<State>]) -> bool {
        let up =
            matches!(self.phase, Phase::Applying | Phase::Ready | Phase::Failed | Phase::Starting);
        let leaves = |state: &Option<State>| state.is_some_and(State::leaves);
        up && self.want == Want::Present && dependencies.iter().any(leaves)
    }

    /// The state after an operation; none if the resource is gone. `current` says whether what was
    /// applied is still what is wanted.
    #[must_use]
    pub fn finished(self, operation: Operation, succeeded: bool, current: bool) -> Option<State> {
        if !succeeded {
            return Some(State { phase: Phase::Failed, current: false, ..self });
        }
        match operation {
            Operation::Apply => Some(State { phase: Phase::Ready, current, ..self }),
            Operation::Start => Some(State { phase: Phase::Ready, ..self }),
            Operation::Stop => Some(State { phase: Phase::Stopped, yielding: false, ..self }),
            Operation::Destroy if self.want == Want::Absent => None,
            Operation::Destroy => Some(State { want: self.want, ..State::PENDING }),
        }
    }
}

/// A resource that depends on another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependent {
    pub state: State,
    /// It was applied on it, and no longer depends on it: once it is stopped, it does without.
    pub former: bool,
}

impl Dependent {
    /// Whether what it depends on must exist. One that is stopped comes back, or is destroyed by means
    /// of what it depends on.
    pub fn blocks_destroy(self) -> bool {
        if self.former { self.state.blocks_stop() } else { self.state.phase != Phase::Pending }
    }
}

/// Decides. A dependency that does not exist is none; dependents are those that exist.
pub fn next(own: State, dependencies: &[Option<State>], dependents: &[Dependent]) -> Move {
    let yields = own.must_yield(dependencies);
    if yields != own.yielding && !matches!(own.phase, Phase::Stopping | Phase::Destroying) {
        return Move::Yield(yields);
    }
    let usable = || dependencies.iter().all(|state| state.is_some_and(State::is_usable));
    let begin = |operation| {
        if usable() { Move::Begin(operation) } else { Move::AwaitDependencies }
    };
    let unless = |blocked: bool, operation| {
        if blocked { Move::AwaitDependents } else { Move::Begin(operation) }
    };
    let in_use = || dependents.iter().any(|dependent| dependent.state.blocks_stop());
    let stop = || unless(in_use(), Operation::Stop);
    let exist = || dependents.iter().copied().any(Dependent::blocks_destroy);
    let destroy = || unless(exist(), Operation::Destroy);
    // A replacement comes back: dependents that are stopped wait for it.
    let replace = || unless(in_use(), Operation::Destroy);
    match (own.phase, own.want) {
        (Phase::Pending, Want::Absent) => Move::Remove,
        // What was never made needs not to be stopped.
        (Phase::Pending, Want::Stopped) => Move::Settled,
        (Phase::Pending, Want::Present) => begin(Operation::Apply),
        // A destruction is never reverted: half of it cannot be used.
        (Phase::Destroying, _) => Move::Continue(Operation::Destroy),
        (Phase::Stopping, Want::Absent) => match destroy() {
            Move::AwaitDependents => Move::Continue(Operation::Stop),
            destroy => destroy,
        },
        (_, Want::Absent) => destroy(),
        // What was begun is finished before it is reverted, so that no executor gets both at once.
        (Phase::Applying, _) => Move::Continue(Operation::Apply),
        (Phase::Stopping, _) => Move::Continue(Operation::Stop),
        (Phase::Starting, _) => Move::Continue(Operation::Start),
        (Phase::Ready | Phase::Failed, Want::Stopped) => stop(),
        (Phase::Stopped, Want::Stopped) => Move::Settled,
        (_, Want::Present) if own.outdated => replace(),
        (Phase::Ready | Phase::Failed, Want::Present) if yields => stop(),
        (Phase::Ready, Want::Present) if own.current => Move::Settled,
        (Phase::Stopped, Want::Present) if own.current => begin(Operation::Start),
        (Phase::Ready | Phase::Failed | Phase::Stopped, Want::Present) => begin(Operation::Apply),
    }
}

/// Who must decide again because a resource changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wakes {
    pub dependents: bool,
    pub dependencies: bool,
}

/// Compares what the neighbours look at. The same for transitions and for commands that change what
/// is wanted: a wake-up too few and a resource waits for its next recheck.
pub fn wakes(before: Option<State>, after: Option<State>) -> Wakes {
    let above = |state: Option<State>| state.map(|state| (state.is_usable(), state.leaves()));
    let below = |state: Option<State>| {
        let seen = state.map(|state| (state.blocks_stop(), state.phase != Phase::Pending));
        seen.unwrap_or_default()
    };
    Wakes { dependents: above(before) != above(after), dependencies: below(before) != below(after) }
}
