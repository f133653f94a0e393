//! Reads recorded tables: inputs become columns, expectations are compared cell by cell.

use std::collections::HashMap;

use advisor::decide::maths::buckets::Scope;
use advisor::decide::maths::columns::{Columns, Series};
use advisor::decide::maths::recommend::Workload;
use advisor::model::measure::{Aggregate, Metric};
use advisor::model::recommendation::{
    EngineResult, Formats, Recommendation, Resources, Term, TermResult,
};

use crate::support::recorded::unpack;

/// A CSV file by columns.
pub struct Table {
    columns: HashMap<String, Vec<String>>,
    pub end_ms: Vec<i64>,
}

impl Table {
    pub fn read(name: &str) -> Table {
        let text = unpack(name);
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap().split(',').collect();
        // An experiment of a namespace has a comma in its name, which is not quoted.
        let rows: Vec<Vec<String>> = lines
            .map(|line| line.split(',').map(str::to_owned).collect())
            .inspect(|row: &Vec<String>| assert_eq!(row.len(), names.len()))
            .collect();
        let column = |i: usize| rows.iter().map(|row| row[i].clone()).collect();
        let columns: HashMap<String, Vec<String>> =
            names.iter().enumerate().map(|(i, name)| ((*name).to_owned(), column(i))).collect();
        let times = columns["timezone"].iter();
        let end_ms =
            times.map(|at| at.parse::<jiff::Timestamp>().unwrap().as_millisecond()).collect();
        Table { columns, end_ms }
    }

    pub fn cell(&self, column: &str, row: usize) -> &str {
        &self.columns[column][row]
    }

    /// The number in a cell, if there is one.
    pub fn number(&self, column: &str, row: usize) -> Option<f64> {
        let cell = self.cell(column, row);
        (!cell.is_empty()).then(|| cell.parse().unwrap())
    }

    /// A column of numbers; empty cells are NaN. Nothing if the table has no such column.
    pub fn numbers(&self, column: &str) -> Option<Vec<f64>> {
        let cells = self.columns.get(column)?;
        let number = |cell: &String| if cell.is_empty() { f64::NAN } else { cell.parse().unwrap() };
        Some(cells.iter().map(number).collect())
    }

    /// The input columns of a table.
    pub fn inputs(&self, metrics: &[(&str, Metric)]) -> Vec<(Metric, Aggregate, Vec<f64>)> {
        let aggregates = [
            ("sum", Aggregate::Sum),
            ("avg", Aggregate::Avg),
            ("min", Aggregate::Min),
            ("max", Aggregate::Max),
        ];
        let mut inputs = Vec::new();
        for (name, metric) in metrics {
            for (suffix, aggregate) in aggregates {
                if let Some(values) = self.numbers(&format!("{name}_{suffix}")) {
                    inputs.push((*metric, aggregate, values));
                }
            }
        }
        inputs
    }
}

pub const CONTAINER: [(&str, Metric); 8] = [
    ("cpuUsage", Metric::CpuUsage),
    ("cpuThrottle", Metric::CpuThrottle),
    ("cpuRequest", Metric::CpuRequest),
    ("cpuLimit", Metric::CpuLimit),
    ("memoryUsage", Metric::MemoryUsage),
    ("memoryRSS", Metric::MemoryRss),
    ("memoryRequest", Metric::MemoryRequest),
    ("memoryLimit", Metric::MemoryLimit),
];

/// A workload of the first `rows` rows of these inputs.
pub fn workload<'a>(
    scope: Scope,
    end_ms: &'a [i64],
    inputs: &'a [(Metric, Aggregate, Vec<f64>)],
    rows: usize,
) -> Workload<'a> {
    let mut columns = Columns::default();
    for (metric, aggregate, values) in inputs {
        let series = Series::new(&end_ms[..rows], &values[..rows]).unwrap();
        columns.set(*metric, *aggregate, series);
    }
    let formats = Formats { cpu: Some("cores".into()), memory: Some("MiB".into()) };
    Workload { scope, columns, formats, accelerator: None, covered_min: None, runtimes: &[] }
}

/// Counts cells, and remembers those that differ.
#[derive(Default)]
pub struct Comparison {
    pub cells: usize,
    pub mismatches: Vec<String>,
}

impl Comparison {
    /// Numbers must be equal to the last bit.
    pub fn number(
        &mut self,
        expected: Option<f64>,
        found: Option<f64>,
        place: impl Fn() -> String,
    ) {
        self.cells += 1;
        if expected != found {
            self.mismatches.push(format!("{}: {expected:?} expected, {found:?} found", place()));
        }
    }

    pub fn text(&mut self, expected: &str, found: &str, place: impl Fn() -> String) {
        self.cells += 1;
        if expected != found {
            self.mismatches.push(format!("{}: {expected} expected, {found} found", place()));
        }
    }

    /// Fails if a cell differs, or if the data was not what the test was written for.
    pub fn finish(self, name: &str, cells: usize) {
        let first: Vec<_> = self.mismatches.iter().take(10).collect();
        let (all, wrong) = (self.cells, self.mismatches.len());
        assert_eq!(wrong, 0, "{name}: {wrong} of {all} cells differ: {first:#?}");
        assert_eq!(all, cells, "{name}: the number of compared cells");
    }
}

type Field = fn(&Resources) -> Option<f64>;

/// Compares the 48 amounts and variations of a row with a recommendation as of that row.
pub fn compare_row(table: &Table, row: usize, found: &Recommendation, comparison: &mut Comparison) {
    for term in Term::ALL {
        let result = found.latest.as_ref().map(|latest| latest.term(term));
        for engine in ["cost", "performance"] {
            let result = result.and_then(|result| self::engine(result, engine));
            let sections = [
                ("requests", result.map(|it| (it.config.requests, it.variation.requests))),
                ("limits", result.map(|it| (it.config.limits, it.variation.limits))),
            ];
            for (section, amounts) in sections {
                let (config, variation) = amounts.unwrap_or_default();
                let kinds: [(&str, Field); 2] = [("cpu", |it| it.cpu), ("memory", |it| it.memory)];
                for (kind, of) in kinds {
                    let name = format!("{engine}_{}_{kind}_{section}", term.as_str());
                    let changed = format!("{name}_variation");
                    for (name, found) in [(name, of(&config)), (changed, of(&variation))] {
                        let place = || format!("{name} of row {row}");
                        comparison.number(table.number(&name, row), found, place);
                    }
                }
            }
        }
    }
}

pub fn engine<'a>(result: &'a TermResult, name: &str) -> Option<&'a EngineResult> {
    let available = result.available.as_ref()?;
    Some(if name == "cost" { &available.cost } else { &available.performance })
}
