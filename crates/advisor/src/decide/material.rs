//! The numbers of a recommendation, and whether they differ from earlier ones enough to tell people.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::experiment::{Amounts, Figures};
use crate::model::notice::Notices;
use crate::model::recommendation::{EngineResult, Recommendation, Resources, Runtime, TermResult};

/// A change of more than a tenth matters.
const RATIO: f64 = 0.1;

/// The numbers of a recommendation.
pub fn figures(recommendation: &Recommendation) -> Figures {
    let mut codes: BTreeSet<u32> = codes(&recommendation.notices).collect();
    let named = |found: &Runtime| format!("{} {}", found.runtime, found.version);
    let runtimes = recommendation.runtimes.iter().map(named).collect();
    let Some(snapshot) = &recommendation.latest else {
        return Figures { codes: codes.into_iter().collect(), runtimes, ..Figures::default() };
    };
    codes.extend(self::codes(&snapshot.notices));
    let mut terms = BTreeMap::new();
    for TermResult { term, notices, available, .. } in &snapshot.terms {
        codes.extend(self::codes(notices));
        let Some(available) = available else { continue };
        let engines = [("cost", &available.cost), ("performance", &available.performance)];
        let engine = |(name, engine): (&str, &EngineResult)| {
            codes.extend(self::codes(&engine.notices));
            (name.to_owned(), amounts(&engine.config.requests))
        };
        terms.insert(term.as_str().to_owned(), engines.into_iter().map(engine).collect());
    }
    let current = amounts(&snapshot.current.requests);
    Figures { current, terms, codes: codes.into_iter().collect(), runtimes }
}

/// The numbers of several containers together, and the codes of all.
pub fn sum(all: impl Iterator<Item = Figures>) -> Figures {
    all.reduce(|mut sum, more| {
        add(&mut sum.current, more.current);
        for (term, engines) in more.terms {
            let of_term = sum.terms.entry(term).or_default();
            for (engine, amounts) in engines {
                add(of_term.entry(engine).or_default(), amounts);
            }
        }
        sum.codes.extend(more.codes);
        sum.codes.sort_unstable();
        sum.codes.dedup();
        sum
    })
    .unwrap_or_default()
}

fn add(sum: &mut Amounts, more: Amounts) {
    let added = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    *sum = Amounts { cpu: added(sum.cpu, more.cpu), memory: added(sum.memory, more.memory) };
}

fn codes(notices: &Notices) -> impl Iterator<Item = u32> {
    notices.iter().map(|notice| notice.code())
}

fn amounts(resources: &Resources) -> Amounts {
    Amounts { cpu: resources.cpu, memory: resources.memory }
}

/// Whether people want to know: an amount differs by more than a tenth or came or went, or there is a
/// notice that was not there. What is configured does not count: people changed that.
pub fn is_material(before: &Figures, after: &Figures) -> bool {
    let new_code = after.codes.iter().any(|code| !before.codes.contains(code));
    new_code || before.terms.len() != after.terms.len() || {
        let mut terms = after.terms.iter();
        terms.any(|(term, engines)| match before.terms.get(term) {
            None => true,
            Some(earlier) => engines.iter().any(|(engine, amounts)| {
                earlier.get(engine).is_none_or(|earlier| amounts_differ(earlier, amounts))
            }),
        })
    }
}

fn amounts_differ(before: &Amounts, after: &Amounts) -> bool {
    differ(before.cpu, after.cpu) || differ(before.memory, after.memory)
}

fn differ(before: Option<f64>, after: Option<f64>) -> bool {
    match (before, after) {
        (None, None) => false,
        (Some(before), Some(after)) => (after - before).abs() > RATIO * before.abs(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cpu: Option<f64>, memory: f64, codes: &[u32]) -> Figures {
        let amounts = Amounts { cpu, memory: Some(memory) };
        let engines = BTreeMap::from([("cost".to_owned(), amounts)]);
        Figures {
            current: Amounts::default(),
            terms: BTreeMap::from([("short_term".to_owned(), engines)]),
            codes: codes.to_vec(),
            ..Figures::default()
        }
    }

    #[test]
    fn more_than_a_tenth_or_a_new_code_is_material() {
        let before = of(Some(1.0), 100.0, &[111_000]);
        for (after, expected) in [
            (of(Some(1.09), 100.0, &[111_000]), false),
            (of(Some(1.11), 100.0, &[111_000]), true),
            (of(Some(1.0), 89.0, &[111_000]), true),
            (of(None, 100.0, &[111_000]), true),
            (of(Some(1.0), 100.0, &[111_000, 423_001]), true),
            (of(Some(1.0), 100.0, &[]), false),
            (Figures::default(), true),
        ] {
            assert_eq!(is_material(&before, &after), expected, "{after:?}");
        }
        assert!(is_material(&Figures::default(), &before));
        assert!(differ(Some(0.0), Some(0.001)));
    }
}
