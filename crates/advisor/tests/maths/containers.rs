//! Containers: each row of the recorded tables, with everything that was known by then.

use advisor::decide::maths::buckets::Scope;
use advisor::decide::maths::recommend::{Options, Recommender};

use super::table::{CONTAINER, Comparison, Table, compare_row, workload};

/// Replays every row: what is recommended when its bucket is the newest.
fn replay(name: &str) {
    let table = Table::read(name);
    let inputs = table.inputs(&CONTAINER);
    let options = Options { plots: false, ..Options::default() };
    let mut recommender = Recommender::new(options);
    let mut comparison = Comparison::default();
    let all = workload(Scope::Container, &table.end_ms, &inputs, table.end_ms.len());
    let mut loaded = recommender.load(&all);
    for (row, end_ms) in table.end_ms.iter().enumerate() {
        compare_row(&table, row, &loaded.until(*end_ms), &mut comparison);
    }
    comparison.finish(name, 1422 * 48);
}

#[test]
fn the_rows_of_a_backend_with_requests_and_limits_are_reproduced() {
    replay("advisor-backend-api-gpu.expected.csv");
}

#[test]
fn the_rows_of_a_frontend_that_is_often_idle_are_reproduced() {
    replay("advisor-frontend.expected.csv");
}

#[test]
fn the_rows_of_an_idle_plugin_are_reproduced() {
    replay("clowder-plugin.expected.csv");
}

/// Looking back at a time is the same as not knowing what came later.
#[test]
fn a_recommendation_as_of_an_earlier_time_ignores_later_buckets() {
    let table = Table::read("advisor-backend-api-gpu.expected.csv");
    let inputs = table.inputs(&CONTAINER);
    let all = workload(Scope::Container, &table.end_ms, &inputs, table.end_ms.len());
    let mut recommender = Recommender::new(Options::default());
    let rows: Vec<usize> = (0..30).map(|i| i * 49).collect();
    let mut loaded = recommender.load(&all);
    assert_eq!(loaded.end_ms(), table.end_ms);
    let earlier: Vec<_> = rows.iter().map(|row| loaded.until(table.end_ms[*row] + 1)).collect();
    for (row, earlier) in rows.into_iter().zip(earlier) {
        let known = workload(Scope::Container, &table.end_ms, &inputs, row + 1);
        assert_eq!(earlier, recommender.recommend(&known), "row {row}");
    }
    assert_eq!(recommender.load(&all).until(0).latest, None);
}
