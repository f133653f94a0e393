//! Box plots: each row of the recorded table, with every bucket that was known by then.

use advisor::decide::maths::buckets::Scope;
use advisor::decide::maths::recommend::{Options, Recommender};
use advisor::model::recommendation::{BoxPlot, Plots, Slot, Term};

use super::table::{CONTAINER, Comparison, Table, workload};

const SLOTS: [(Term, &str, usize); 3] =
    [(Term::Short, "st", 4), (Term::Medium, "mt", 7), (Term::Long, "lt", 15)];

type Part = fn(&BoxPlot) -> f64;

const PARTS: [(&str, Part); 5] = [
    ("min", |it| it.min),
    ("q1", |it| it.q1),
    ("median", |it| it.median),
    ("q3", |it| it.q3),
    ("max", |it| it.max),
];

fn label(slot: Option<Slot>) -> String {
    let drawn = slot.filter(|slot| slot.usage.is_some());
    let at = drawn.map(|slot| jiff::Timestamp::from_millisecond(slot.end_ms).unwrap());
    at.map(|at| format!("{at:.3}")).unwrap_or_default()
}

#[test]
fn the_boxes_of_a_container_are_reproduced() {
    let name = "clowder-plugin.boxplots.expected.csv";
    let expected = Table::read(name);
    let table = Table::read("clowder-plugin.expected.csv");
    let inputs = table.inputs(&CONTAINER);
    let all = workload(Scope::Container, &table.end_ms, &inputs, table.end_ms.len());
    let mut recommender = Recommender::new(Options::default());
    let mut loaded = recommender.load(&all);
    let mut comparison = Comparison::default();
    for (row, end_ms) in expected.end_ms.iter().enumerate() {
        let latest = loaded.until(*end_ms).latest.unwrap();
        for (term, short, count) in SLOTS {
            let available = latest.term(term).available.clone();
            let plots = available.map(|it| it.plots.unwrap()).unwrap_or(Plots { slots: vec![] });
            assert!([0, count].contains(&plots.slots.len()));
            for i in 0..count {
                let slot = plots.slots.get(i).copied();
                let column = format!("{}_tz{}", term.as_str(), i + 1);
                let place = || format!("{column} of row {row}");
                comparison.text(expected.cell(&column, row), &label(slot), place);
                let usage = slot.and_then(|slot| slot.usage);
                for (part, of) in PARTS {
                    let boxes = [
                        ("cpu", usage.map(|it| of(&it.cpu))),
                        ("mem", usage.map(|it| of(&it.memory))),
                    ];
                    for (kind, found) in boxes {
                        let column = format!("{short}_tz{}_{kind}_{part}", i + 1);
                        let place = || format!("{column} of row {row}");
                        comparison.number(expected.number(&column, row), found, place);
                    }
                }
            }
        }
    }
    comparison.finish(name, 1421 * 26 * 11);
}
