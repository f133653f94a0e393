//! What a resource waits for: every unmet condition, not the first, with what would unblock it.

use super::{Dependent, Neighbour, NeighbourState, State};
use crate::model::environment::Want;
use crate::model::resource::{Phase, Wait, WaitReason};

/// The dependencies that cannot be used.
pub fn for_dependencies(dependencies: &[Neighbour]) -> Vec<Wait> {
    let unmet = dependencies.iter().filter_map(|neighbour| {
        let (reason, unblock) = unmet(neighbour)?;
        let on = neighbour.reference.clone();
        Some(Wait { on, reason, since: neighbour.since, unblock })
    });
    unmet.collect()
}

fn unmet(neighbour: &Neighbour) -> Option<(WaitReason, String)> {
    let on = &neighbour.reference;
    let state = match neighbour.state {
        NeighbourState::Missing => {
            return Some((WaitReason::Missing, format!("create {on}, or remove the dependency")));
        }
        NeighbourState::External(true) => return None,
        NeighbourState::External(false) => {
            return Some((WaitReason::Unreachable, format!("make {on} respond to its probe")));
        }
        NeighbourState::Resource(state) if state.is_usable() => return None,
        NeighbourState::Resource(state) => state,
    };
    Some(match state {
        State { want: Want::Absent, .. } => {
            (WaitReason::NotWanted, format!("{on} is being destroyed; create it again"))
        }
        State { want: Want::Stopped, .. } => (WaitReason::NotWanted, format!("start {on}")),
        State { phase: Phase::Failed, .. } if neighbour.reason.is_empty() => {
            (WaitReason::Failed, format!("repair {on} and retry it"))
        }
        State { phase: Phase::Failed, .. } => {
            (WaitReason::Failed, format!("repair {on} and retry it: {}", neighbour.reason))
        }
        State { phase: Phase::Ready, .. } => {
            (WaitReason::Outdated, format!("wait until {on} is updated"))
        }
        State { phase, .. } => {
            (WaitReason::NotReady, format!("wait until {on} is ready; it is {}", phase.label()))
        }
    })
}

/// The dependents that are in the way of a destruction, or of a stop or replacement.
pub fn for_dependents(dependents: &[Neighbour], stays: bool) -> Vec<Wait> {
    let blocking = dependents.iter().filter_map(|neighbour| {
        let NeighbourState::Resource(state) = neighbour.state else { return None };
        let dependent = Dependent { state, former: neighbour.former };
        let blocks = if stays { state.blocks_stop() } else { dependent.blocks_destroy() };
        let on = &neighbour.reference;
        let unblock = match (state.want, stays) {
            (Want::Absent, _) => {
                format!("wait until {on} is destroyed; it is {}", state.phase.label())
            }
            (Want::Stopped, true) => {
                format!("wait until {on} is stopped; it is {}", state.phase.label())
            }
            (Want::Present, true) if state.yielding => {
                format!("wait until {on} is stopped; it is {}", state.phase.label())
            }
            (Want::Present, true) => format!("stop {on}"),
            (_, false) if neighbour.former => format!("wait until {on} is applied without it"),
            (_, false) => format!("destroy {on}"),
        };
        let on = on.clone();
        let since = neighbour.since;
        blocks.then_some(Wait { on, reason: WaitReason::UsedBy, since, unblock })
    });
    blocking.collect()
}
