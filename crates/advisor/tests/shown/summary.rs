//! What is compared, summed and ranked.

use advisor::model::advice::Advice;
use advisor::model::recommendation::Term;
use advisor::report::risk::RiskKind;
use advisor::report::{Choice, Engine, Summary, summary_text};
use proptest::prelude::*;
use serde_json::Value;

use super::html::heading;
use super::made::{Amounts, MIB, advice, amounts, any, failed, pairs, recorded, without_terms};
use crate::support::recorded::Pair;

fn summary(advice: &[Advice]) -> Summary<'_> {
    Summary::new(advice, Choice::default())
}

fn names(summary: &Summary<'_>, rows: impl IntoIterator<Item = usize>) -> Vec<String> {
    rows.into_iter().map(|i| summary.rows[i].advice.member.container.clone()).collect()
}

#[test]
fn requests_of_all_pods_are_compared() {
    let made = [advice("web", 3, amounts([1.0, 2.0, 0.25], [512.0, 1024.0, 640.0]))];
    let found = summary(&made);
    let row = &found.rows[0];
    assert_eq!((row.cpu.requested(), row.cpu.needed(), row.cpu.change()), (3.0, 0.75, -2.25));
    assert_eq!(row.memory.change(), 384.0 * MIB);
    assert_eq!((found.totals.cpu.saved, found.totals.cpu.missing), (2.25, 0.0));
    assert_eq!((found.totals.memory.saved, found.totals.memory.missing), (0.0, 384.0 * MIB));
    assert_eq!((row.term.term, found.totals.pods), (Term::Long, 3));
}

#[test]
fn the_longest_term_with_data_is_shown_unless_another_is_chosen() {
    let some = amounts([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]);
    let new = without_terms(advice("new", 1, some), &[Term::Long, Term::Medium]);
    let none = without_terms(advice("none", 1, some), &Term::ALL);
    let made = [advice("old", 1, some), new, none, failed("lost", "timed out")];
    let found = summary(&made);
    let terms: Vec<Term> = found.rows.iter().map(|row| row.term.term).collect();
    assert_eq!(terms, [Term::Long, Term::Short]);
    let reasons: Vec<&str> = found.skipped.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, ["not enough data", "timed out"]);
    let choice = Choice { term: Some(Term::Medium), engine: Engine::Performance };
    let found = Summary::new(&made, choice);
    assert_eq!((found.rows.len(), found.skipped.len()), (1, 3));
    assert_eq!(found.rows[0].cpu.recommended, Some(1.5));
    assert_eq!(found.rows[0].term.term, Term::Medium);
}

#[test]
fn savings_are_ranked_by_their_share_of_the_cluster() {
    // All request 10 cores and 1000 MiB.
    let made = [
        advice("cpu", 1, amounts([8.0, 9.0, 5.0], [100.0, 200.0, 100.0])),
        advice("memory", 1, amounts([1.0, 2.0, 1.0], [800.0, 900.0, 300.0])),
        advice("both", 1, amounts([1.0, 2.0, 0.0], [100.0, 200.0, 50.0])),
        advice("more", 1, amounts([0.0, 2.0, 1.0], [0.0, 200.0, 50.0])),
    ];
    let found = summary(&made);
    // Half of the memory, 30 % of the CPU, and 10 % and 5 %.
    assert_eq!(names(&found, found.savings.clone()), ["memory", "cpu", "both"]);
}

#[test]
fn an_idle_container_keeps_its_request_in_the_totals() {
    let idle = Amounts { cpu: [Some(0.5), None, None], ..amounts([0.0; 3], [64.0, 64.0, 64.0]) };
    let made = [advice("idle", 2, idle)];
    let found = summary(&made);
    assert_eq!((found.totals.cpu.requested, found.totals.cpu.needed), (1.0, 1.0));
    assert_eq!(found.risks.iter().map(|it| it.kind).collect::<Vec<_>>(), [RiskKind::Idle]);
    assert_eq!((found.containers_at_risk(), found.savings.len()), (0, 0));
}

#[test]
fn the_worst_risks_come_first() {
    let unset = Amounts { cpu: [None, None, Some(1.0)], memory: [None, None, Some(100.0)] };
    let made = [
        advice("unset", 1, unset),
        advice("slow", 1, amounts([1.0, 1.0, 2.0], [64.0, 64.0, 64.0])),
        advice("killed", 1, amounts([1.0, 2.0, 1.0], [64.0, 64.0, 96.0])),
        advice("worse", 1, amounts([1.0, 1.0, 1.2], [64.0, 64.0, 128.0])),
        advice("fine", 1, amounts([1.0, 2.0, 1.0], [96.0, 96.0, 96.0])),
    ];
    let found = summary(&made);
    let risks: Vec<RiskKind> = found.risks.iter().map(|risk| risk.kind).collect();
    use RiskKind::{NoRequests, OutOfMemory, Throttling};
    assert_eq!(risks, [OutOfMemory, OutOfMemory, Throttling, Throttling, NoRequests]);
    let rows = found.risks.iter().map(|risk| risk.row);
    assert_eq!(names(&found, rows), ["worse", "killed", "slow", "worse", "unset"]);
    assert_eq!(found.containers_at_risk(), 4);
    let unset = &found.rows[0];
    let details = NoRequests.details(unset);
    assert_eq!(details, ("no CPU, no memory".into(), "1, 100 MiB".into()));
}

#[test]
fn what_is_requested_too_little_is_named_once() {
    let made = [
        advice("a-tenth", 1, amounts([1.0, 4.0, 1.1], [100.0, 400.0, 110.0])),
        advice("cpu", 1, amounts([1.0, 4.0, 1.5], [100.0, 400.0, 50.0])),
        advice("both", 1, amounts([1.0, 4.0, 1.5], [100.0, 400.0, 150.0])),
        advice("limited", 1, amounts([1.0, 1.0, 1.5], [100.0, 100.0, 50.0])),
    ];
    let found = summary(&made);
    let kinds: Vec<RiskKind> = found.risks.iter().map(|risk| risk.kind).collect();
    let kind = RiskKind::RequestsTooLittle;
    assert_eq!(kinds, [RiskKind::Throttling, kind, kind]);
    let rows = found.risks.iter().map(|risk| risk.row);
    assert_eq!(names(&found, rows), ["limited", "both", "cpu"]);
    assert_eq!(kind.details(&found.rows[2]), ("requests 1, 100 MiB".into(), "1.5, 150 MiB".into()));
    assert_eq!(kind.details(&found.rows[1]), ("requests 1".into(), "1.5".into()));
    assert_eq!(found.containers_at_risk(), 1);
}

#[test]
fn pods_are_those_that_discovery_saw_where_the_engine_counts_none() {
    let made = [advice("zero", 0, amounts([1.0, 1.0, 0.5], [1.0, 1.0, 1.0]))];
    assert_eq!(summary(&made).rows[0].pods, 2);
}

#[test]
fn amounts_in_another_unit_are_shown_in_bytes() {
    let mut made = advice("web", 1, amounts([1.0; 3], [1.0; 3]));
    made.outcome.as_mut().unwrap().formats.memory = Some("KiB".into());
    let made = [made];
    assert_eq!(summary(&made).rows[0].memory.request, Some(1024.0 * MIB));
}

/// The wire is what others compute with, so both must say the same.
#[test]
fn the_amounts_are_those_of_the_wire() {
    for (name, pair) in Pair::NAMES.iter().zip(pairs()) {
        let made = [pair.advice(|_, _| true)];
        let found = summary(&made);
        let data =
            &pair.expected["kubernetes_objects"][0]["containers"][0]["recommendations"]["data"];
        let Some(data) = data.as_object().unwrap().values().next() else {
            assert_eq!((found.rows.len(), found.skipped.len()), (0, 1), "{name}");
            continue;
        };
        let row = &found.rows[0];
        let amount = |it: &Value, name: &str| it["requests"][name]["amount"].as_f64();
        let term = &data["recommendation_terms"][row.term.term.as_str()];
        let config = &term["recommendation_engines"]["cost"]["config"];
        for (name, resource) in [("cpu", row.cpu), ("memory", row.memory)] {
            assert_eq!(resource.request, amount(&data["current"], name), "{name}");
            assert_eq!(resource.recommended, amount(config, name), "{name}");
        }
    }
}

#[test]
fn a_mail_says_the_least_that_matters() {
    let mut made = recorded();
    made.push(failed("lost", "the query timed out\nBcc: someone"));
    insta::assert_snapshot!(summary_text(&summary(&made), &heading()));
    insta::assert_snapshot!("mail_of_nothing", summary_text(&summary(&[]), &heading()));
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn totals_are_the_sums_of_rows(made in any()) {
        let found = summary(&made);
        prop_assert_eq!(found.rows.len() + found.skipped.len(), made.len());
        let resources = [
            (found.totals.cpu, found.rows.iter().map(|row| row.cpu).collect::<Vec<_>>()),
            (found.totals.memory, found.rows.iter().map(|row| row.memory).collect()),
        ];
        for (total, rows) in resources {
            prop_assert!(near(total.requested, rows.iter().map(|it| it.requested()).sum()));
            prop_assert!(near(total.needed, rows.iter().map(|it| it.needed()).sum()));
            prop_assert!(near(total.change(), rows.iter().map(|it| it.change()).sum()));
            prop_assert!(near(total.change(), total.needed - total.requested));
            prop_assert!(total.saved >= 0.0 && total.missing >= 0.0);
        }
        prop_assert_eq!(found.totals.pods, found.rows.iter().map(|row| u64::from(row.pods)).sum::<u64>());
    }

    #[test]
    fn savings_save_and_are_in_order(made in any()) {
        let found = summary(&made);
        let scores: Vec<f64> =
            found.savings.iter().map(|i| found.totals.score(&found.rows[*i])).collect();
        prop_assert!(scores.iter().all(|score| *score > 0.0));
        prop_assert!(scores.windows(2).all(|two| two[0] >= two[1]));
        prop_assert!(found.risks.windows(2).all(|two| two[0].kind <= two[1].kind));
    }
}
