//! Properties of recommendations from any data: gaps, missing aggregates, NaN, infinities.

use advisor::decide::maths::buckets::Scope;
use advisor::decide::maths::columns::{Columns, Series};
use advisor::decide::maths::gpu::Accelerator;
use advisor::decide::maths::recommend::{Options, Recommender, Workload};
use advisor::model::measure::{Aggregate, Metric};
use advisor::model::recommendation::{
    Available, BoxPlot, EngineResult, Formats, Recommendation, Resources, Sizing, Term,
};
use proptest::prelude::*;

const METRICS: [Metric; 9] = [
    Metric::CpuUsage,
    Metric::CpuThrottle,
    Metric::CpuRequest,
    Metric::CpuLimit,
    Metric::MemoryUsage,
    Metric::MemoryRss,
    Metric::MemoryRequest,
    Metric::MemoryLimit,
    Metric::Pods,
];

const AGGREGATES: [Aggregate; 4] = [Aggregate::Sum, Aggregate::Avg, Aggregate::Min, Aggregate::Max];

/// One column: times and values.
type Column = (Vec<i64>, Vec<f64>);

/// Columns of every metric and aggregate, and three of a GPU.
#[derive(Debug, Clone)]
struct Measured {
    scope: Scope,
    columns: Vec<Column>,
}

const COLUMNS: usize = METRICS.len() * AGGREGATES.len() + 3;

impl Measured {
    fn workload(&self) -> Workload<'_> {
        let series = |i: usize| {
            let (end_ms, values) = &self.columns[i];
            Series::new(end_ms, values).unwrap()
        };
        let mut columns = Columns::default();
        for (i, metric) in METRICS.into_iter().enumerate() {
            for (j, aggregate) in AGGREGATES.into_iter().enumerate() {
                columns.set(metric, aggregate, series(i * AGGREGATES.len() + j));
            }
        }
        let accelerator = Accelerator {
            model: "NVIDIA H200",
            core: series(COLUMNS - 3),
            memory: series(COLUMNS - 2),
            frame_buffer: series(COLUMNS - 1),
        };
        Workload {
            scope: self.scope,
            columns,
            formats: Formats::PROMETHEUS,
            accelerator: Some(accelerator),
            covered_min: None,
            runtimes: &[],
        }
    }

    /// The same without the samples that are not numbers.
    fn without_gaps(&self) -> Measured {
        let kept = |(end_ms, values): &Column| {
            let pairs = end_ms.iter().zip(values).filter(|(_, value)| value.is_finite());
            pairs.map(|(at, value)| (*at, *value)).unzip()
        };
        Measured { scope: self.scope, columns: self.columns.iter().map(kept).collect() }
    }
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![Just(Scope::Container), Just(Scope::Namespace)]
}

/// Up to 60 quarter hours. Each sample may be absent or drift a little.
fn measured(value: impl Strategy<Value = f64> + Clone) -> impl Strategy<Value = Measured> {
    let sample = (0..8u8, -20_000..20_000i64, value);
    let column = proptest::collection::vec(sample, 0..60).prop_map(|samples| {
        let at = |i: usize, drift: i64| i as i64 * 900_000 + drift / 10_000 * 1000;
        let kept = samples.into_iter().enumerate().filter(|(_, (absent, ..))| *absent > 0);
        kept.map(|(i, (_, drift, value))| (at(i, drift), value)).unzip()
    });
    let columns = proptest::collection::vec(column, COLUMNS);
    (scope(), columns).prop_map(|(scope, columns)| Measured { scope, columns })
}

fn plausible() -> impl Strategy<Value = f64> + Clone {
    prop_oneof![Just(0.0), Just(f64::NAN), 0.0..3.0f64, 0.0..5e9f64]
}

/// Gauges that lie, and counters that decrease.
fn negative() -> impl Strategy<Value = f64> + Clone {
    prop_oneof![-5e9..0.0f64, -3.0..0.0f64]
}

/// Columns of the same times, without gaps: a missing sample counts as 0.
fn complete(value: impl Strategy<Value = f64> + Clone) -> impl Strategy<Value = Measured> {
    (scope(), 8..60usize).prop_flat_map(move |(scope, len)| {
        let column = proptest::collection::vec(value.clone(), len);
        proptest::collection::vec(column, COLUMNS).prop_map(move |columns| {
            let times: Vec<i64> = (0..len as i64).map(|i| i * 900_000).collect();
            let columns = columns.into_iter().map(|values| (times.clone(), values)).collect();
            Measured { scope, columns }
        })
    })
}

fn recommend(measured: &Measured) -> Recommendation {
    Recommender::new(Options::default()).recommend(&measured.workload())
}

fn available(found: &Recommendation) -> impl Iterator<Item = &Available> {
    let terms = found.latest.iter().flat_map(|latest| Term::ALL.map(|term| latest.term(term)));
    terms.filter_map(|term| term.available.as_ref())
}

fn engines(found: &Recommendation) -> impl Iterator<Item = &EngineResult> {
    available(found).flat_map(|it| [&it.cost, &it.performance])
}

fn boxes(found: &Recommendation) -> impl Iterator<Item = BoxPlot> {
    let slots = available(found).flat_map(|it| it.plots.iter().flat_map(|it| &it.slots));
    slots.filter_map(|slot| slot.usage).flat_map(|usage| [usage.cpu, usage.memory])
}

fn amounts(sizing: &Sizing) -> impl Iterator<Item = f64> + use<> {
    let resources = [sizing.requests, sizing.limits];
    resources.into_iter().flat_map(|Resources { cpu, memory }| [cpu, memory]).flatten()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_number_of_a_result_is_nan_or_infinite(
        measured in measured(proptest::num::f64::ANY),
    ) {
        let found = recommend(&measured);
        let sizings = engines(&found).flat_map(|it| [&it.config, &it.variation]);
        prop_assert!(sizings.flat_map(amounts).all(f64::is_finite));
        let numbers = boxes(&found).flat_map(|it| [it.min, it.q1, it.median, it.q3, it.max]);
        prop_assert!(numbers.into_iter().all(f64::is_finite));
    }

    #[test]
    fn what_is_not_a_number_is_missing(measured in measured(plausible())) {
        prop_assert_eq!(recommend(&measured), recommend(&measured.without_gaps()));
    }

    #[test]
    fn boxes_are_ordered_and_amounts_positive(measured in measured(plausible())) {
        let found = recommend(&measured);
        for drawn in boxes(&found) {
            let BoxPlot { min, q1, median, q3, max } = drawn;
            prop_assert!(0.0 <= min && min <= max);
            prop_assert!(q1 <= median && median <= q3 && q3 <= max);
        }
        for engine in engines(&found) {
            prop_assert_eq!(engine.config.requests, engine.config.limits);
            prop_assert!(amounts(&engine.config).all(|amount| amount > 0.0));
        }
    }

    #[test]
    fn no_amount_is_negative(measured in complete(negative())) {
        let found = recommend(&measured);
        for engine in engines(&found) {
            prop_assert!(amounts(&engine.config).all(|amount| amount > 0.0), "{:?}", engine);
        }
    }

    #[test]
    fn performance_is_never_below_cost(measured in measured(plausible())) {
        for term in available(&recommend(&measured)) {
            let cpu = |engine: &EngineResult| engine.config.requests.cpu.unwrap_or(0.0);
            // Adopting a configured amount moves an amount by a thousandth at most.
            prop_assert!(cpu(&term.cost) <= cpu(&term.performance) * 1.003);
            prop_assert_eq!(
                term.cost.config.requests.memory,
                term.performance.config.requests.memory
            );
        }
    }

    #[test]
    fn buffers_of_an_earlier_workload_have_no_effect(
        first in measured(plausible()),
        second in measured(plausible()),
    ) {
        let mut recommender = Recommender::new(Options::default());
        recommender.recommend(&first.workload());
        let reused = recommender.recommend(&second.workload());
        prop_assert_eq!(reused, recommend(&second));
    }
}
