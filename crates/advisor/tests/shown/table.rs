//! The report for a terminal.

use advisor::model::advice::Advice;
use advisor::model::recommendation::Term;
use advisor::report::{Choice, Engine, Summary, table};
use proptest::prelude::*;

use super::made::{advice, amounts, any, failed, hostile, member, of, recorded};

fn shown(made: &[Advice], choice: Choice) -> String {
    let mut text = String::new();
    table::write(&Summary::new(made, choice), &mut text).unwrap();
    text
}

#[test]
fn the_recorded_containers_as_a_table() {
    let mut made = recorded();
    made.push(failed("lost", "the query timed out"));
    insta::assert_snapshot!(shown(&made, Choice::default()));
}

#[test]
fn many_containers_are_cut_and_the_table_says_where_the_rest_is() {
    let made = |i: usize| {
        let member =
            member("a-namespace-with-a-long-name", &format!("workload-{i}"), "container-of-it");
        let limit = if i.is_multiple_of(2) { 64.0 } else { 256.0 };
        of(member, 3, amounts([2.0, 4.0, 1.0 + i as f64 / 100.0], [512.0, limit, 128.0]))
    };
    let made: Vec<Advice> = (0..40).map(made).collect();
    let choice = Choice { term: Some(Term::Medium), engine: Engine::Performance };
    insta::assert_snapshot!(shown(&made, choice));
}

#[test]
fn without_containers_there_is_a_sentence() {
    assert_eq!(shown(&[], Choice::default()), "No containers were found.\n");
    let lost = [failed("a", "no answer"), failed("b", "no answer")];
    let found = shown(&lost, Choice::default());
    assert_eq!(found, "No recommendation for 2 containers: no answer\n");
}

#[test]
fn nothing_to_save_and_nothing_at_risk_is_said() {
    let made = [advice("web", 1, amounts([1.0, 1.0, 1.0], [64.0, 64.0, 64.0]))];
    let found = shown(&made, Choice::default());
    assert!(
        found.contains("No container is at risk.") && found.contains("all 1 container"),
        "{found}"
    );
}

#[test]
fn hostile_names_stay_in_their_line() {
    let found = shown(&hostile(), Choice::default());
    let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!found.contains(steers), "{found:?}");
    insta::assert_snapshot!(found);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn lines_fit_into_120_columns(made in any()) {
        let found = shown(&made, Choice::default());
        for line in found.lines() {
            prop_assert!(line.chars().count() <= 120, "{}", line);
            prop_assert_eq!(line.trim_end(), line);
        }
    }
}
