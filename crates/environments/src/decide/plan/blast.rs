//! Which resources of other environments notice a change.

use std::collections::{HashSet, VecDeque};

use crate::model::plan::Affected;
use crate::model::refs::Address;

/// A resource of another environment that depends on something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    pub id: String,
    pub environment: String,
    pub address: Address,
}

/// A plan that touches more is not read to its end.
pub const AFFECTED_MAX: usize = 1000;

/// Follows dependents outwards from what is changed. `changed` has ids and addresses; `dependents`
/// gives the direct dependents of an id in other environments.
pub fn affected<'a>(
    changed: impl Iterator<Item = (&'a str, Address)>,
    dependents: impl Fn(&str) -> Vec<Foreign>,
) -> Vec<Affected> {
    let mut seen: HashSet<String> = HashSet::new();
    let mut found = Vec::new();
    let mut open: VecDeque<(Foreign, Address, u32)> = VecDeque::new();
    for (id, address) in changed {
        open.extend(dependents(id).into_iter().map(|foreign| (foreign, address.clone(), 1)));
    }
    while let Some((foreign, by, distance)) = open.pop_front() {
        if found.len() == AFFECTED_MAX || !seen.insert(foreign.id.clone()) {
            continue;
        }
        let next = dependents(&foreign.id).into_iter();
        open.extend(next.map(|next| (next, by.clone(), distance + 1)));
        let Foreign { environment, address, .. } = foreign;
        found.push(Affected { environment, address, by, distance });
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_dependents_and_ends_in_circles() {
        let foreign = |id: &str| Foreign {
            id: id.into(),
            environment: format!("env-{id}"),
            address: Address::new("app", None),
        };
        let dependents = |id: &str| match id {
            "vpc" => vec![foreign("a"), foreign("b")],
            "a" => vec![foreign("b"), foreign("c")],
            "c" => vec![foreign("a")],
            _ => Vec::new(),
        };
        let changed = [("vpc", Address::new("vpc", None)), ("db", Address::new("db", None))];
        let found = affected(changed.into_iter(), dependents);
        let shown: Vec<(&str, u32)> = found
            .iter()
            .map(|affected| (affected.environment.as_str(), affected.distance))
            .collect();
        assert_eq!(shown, [("env-a", 1), ("env-b", 1), ("env-c", 2)]);
        assert!(found.iter().all(|affected| affected.by.name == "vpc"));
    }
}
