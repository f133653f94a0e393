//! The report for a spreadsheet.

use std::collections::HashMap;

use advisor::model::advice::Advice;
use advisor::report::{Choice, Summary, csv};
use proptest::prelude::*;

use super::made::{HOSTILE, MIB, advice, amounts, any, failed, hostile};
use crate::support::recorded::Pair;

fn shown(made: &[Advice]) -> String {
    let mut text = String::new();
    csv::write(&Summary::new(made, Choice::default()), &mut text).unwrap();
    text
}

/// Reads CSV as RFC 4180 defines it.
fn records(text: &str) -> Vec<Vec<String>> {
    let mut records = vec![vec![String::new()]];
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let cell = records.last_mut().unwrap().last_mut().unwrap();
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => cell.push(chars.next().unwrap()),
            '"' => quoted = !quoted,
            c if quoted => cell.push(c),
            ',' => records.last_mut().unwrap().push(String::new()),
            '\r' => {
                assert_eq!(chars.next(), Some('\n'));
                records.push(vec![String::new()]);
            }
            c => cell.push(c),
        }
    }
    assert!(!quoted);
    assert_eq!(records.pop(), Some(vec![String::new()]));
    records
}

/// The lines by the names of columns.
fn rows(text: &str) -> Vec<HashMap<String, String>> {
    let mut records = records(text).into_iter();
    let head = records.next().unwrap();
    records
        .map(|record| {
            assert_eq!(record.len(), head.len());
            head.iter().cloned().zip(record).collect()
        })
        .collect()
}

#[test]
fn every_container_has_a_line_with_its_numbers() {
    let made = [
        advice("web", 3, amounts([1.0, 2.0, 0.0001], [512.0, 1024.0, 2048.0])),
        failed("lost", "timed out, twice"),
        advice("api", 1, amounts([1.0, 2.0, 1.0], [512.0, 1024.0, 512.0])),
    ];
    let rows = rows(&shown(&made));
    let cell = |row: usize, column: &str| rows[row][column].as_str();
    for (column, expected) in [
        ("namespace", "shop"),
        ("container", "web"),
        ("term", "long_term"),
        ("engine", "cost"),
        ("pods", "3"),
        ("cpu_request_cores", "1"),
        ("cpu_limit_cores", "2"),
        ("cpu_recommended_cores", "0.0001"),
        ("cpu_change_all_pods_cores", "-2.9997"),
        ("memory_recommended_bytes", "2147483648"),
        ("memory_change_all_pods_bytes", "4831838208"),
        ("risks", "out of memory"),
        ("monitoring_end", "2026-11-18T00:00:00.000Z"),
        ("monitoring_start", "2026-11-03T00:00:00.000Z"),
        ("short_term_performance_cpu_cores", "0.00015000000000000001"),
        ("medium_term_cost_memory_bytes", "2147483648"),
        ("no_recommendation_because", ""),
    ] {
        assert_eq!(cell(0, column), expected, "{column}");
    }
    assert_eq!((cell(1, "container"), cell(1, "saving_rank")), ("api", ""));
    let lost = ("lost", "timed out, twice", "");
    let cells = (cell(2, "container"), cell(2, "no_recommendation_because"), cell(2, "term"));
    assert_eq!(cells, lost);
}

#[test]
fn the_header_and_a_recorded_container_are_pinned() {
    insta::assert_snapshot!(shown(&[Pair::read("nolimit").advice(|_, _| true)]));
}

#[test]
fn a_name_is_not_a_formula_and_comes_back_whole() {
    let text = shown(&hostile());
    let rows = rows(&text);
    assert_eq!(rows.len(), 2 * HOSTILE.len());
    for (row, name) in rows.iter().zip(HOSTILE.iter().cycle()) {
        for column in ["namespace", "workload", "workload_type", "container", "image", "experiment"]
        {
            let cell = &row[column];
            let formula = cell.trim_start().starts_with(['=', '+', '-', '@', '\t', '\r']);
            assert!(!formula, "{column}: {cell}");
            if column != "workload_type" && column != "image" && column != "experiment" {
                continue;
            }
            let plain = cell.strip_prefix('\'').unwrap_or(cell);
            let known = [*name, "deployment"].contains(&plain) || plain.contains(name);
            assert!(known, "{column}: {cell}");
        }
    }
    // Where a semicolon separates, too, a cell does not start with a formula.
    assert!(text.contains("\"'+1;-2\"") && text.contains("\"'=cmd|' /C calc'!A0\""));
    assert!(text.contains("\"\"\"quoted\"\", with 'both' & a comma\""));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_names_and_numbers_come_back(made in any()) {
        let text = shown(&made);
        let rows = rows(&text);
        prop_assert_eq!(rows.len(), made.len());
        let summary = Summary::new(&made, Choice::default());
        let mut change = 0.0;
        for (row, found) in rows.iter().zip(&summary.rows) {
            let name = &found.advice.member.container;
            let cell = &row["container"];
            prop_assert!(cell == name || *cell == format!("'{name}"), "{} of {}", cell, name);
            change += row["memory_change_all_pods_bytes"].parse::<f64>().unwrap();
            let request = row["cpu_request_cores"].parse().ok();
            prop_assert_eq!(request, found.cpu.request);
        }
        prop_assert!((change - summary.totals.memory.change()).abs() < MIB / 1e3);
    }
}
