//! The formulas alone: 10,000 containers with 15 days of 15-minute buckets, on one core.

use std::time::Instant;

use advisor::decide::maths::buckets::Scope;
use advisor::decide::maths::columns::{Columns, Series};
use advisor::decide::maths::recommend::{Options, Recommender, Workload};
use advisor::model::measure::{Aggregate, Metric};
use advisor::model::recommendation::Formats;

use crate::figures::{Figures, Target};

const CONTAINERS: usize = 10_000;
/// Containers with data of their own; more would only measure the memory.
const DISTINCT: usize = 200;
const BUCKETS: usize = 15 * 24 * 4 + 1;

/// What the queries of a shard measure.
const MEASURED: [(Metric, Aggregate, f64); 17] = [
    (Metric::CpuRequest, Aggregate::Avg, 1.0),
    (Metric::CpuLimit, Aggregate::Avg, 2.0),
    (Metric::CpuUsage, Aggregate::Avg, 0.8),
    (Metric::CpuUsage, Aggregate::Sum, 2.4),
    (Metric::CpuUsage, Aggregate::Min, 0.4),
    (Metric::CpuUsage, Aggregate::Max, 1.6),
    (Metric::CpuThrottle, Aggregate::Sum, 0.3),
    (Metric::CpuThrottle, Aggregate::Min, 0.05),
    (Metric::CpuThrottle, Aggregate::Max, 0.2),
    (Metric::MemoryRequest, Aggregate::Avg, 1e9),
    (Metric::MemoryLimit, Aggregate::Avg, 2e9),
    (Metric::MemoryUsage, Aggregate::Avg, 6e8),
    (Metric::MemoryUsage, Aggregate::Sum, 18e8),
    (Metric::MemoryUsage, Aggregate::Min, 5e8),
    (Metric::MemoryUsage, Aggregate::Max, 7e8),
    (Metric::MemoryRss, Aggregate::Min, 4e8),
    (Metric::MemoryRss, Aggregate::Max, 5e8),
];

pub fn run(figures: &mut Figures) -> anyhow::Result<()> {
    let end_ms: Vec<i64> = (0..BUCKETS as i64).map(|i| 1_790_000_000_000 + i * 900_000).collect();
    // Without order, as measurements are: equal or ascending values would sort at once.
    let mut state = 7_u64;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let data: Vec<Vec<Vec<f64>>> = (0..DISTINCT)
        .map(|_| {
            let column = |mean: f64, unit: &mut dyn FnMut() -> f64| {
                (0..BUCKETS).map(|_| mean * (0.5 + unit())).collect()
            };
            MEASURED.iter().map(|(.., mean)| column(*mean, &mut unit)).collect()
        })
        .collect();
    let mut recommender = Recommender::new(Options::default());
    let mut recommended = 0;
    let begun = Instant::now();
    for container in 0..CONTAINERS {
        let mut columns = Columns::default();
        for ((metric, aggregate, _), values) in MEASURED.iter().zip(&data[container % DISTINCT]) {
            columns.set(*metric, *aggregate, Series::new(&end_ms, values)?);
        }
        let workload = Workload {
            scope: Scope::Container,
            columns,
            formats: Formats::PROMETHEUS,
            accelerator: None,
            covered_min: None,
            runtimes: &[],
        };
        let found = recommender.recommend(&workload);
        recommended += usize::from(found.latest.is_some());
    }
    let took_s = begun.elapsed().as_secs_f64();
    anyhow::ensure!(recommended == CONTAINERS, "only {recommended} were recommended");
    let name = "maths of 10,000 containers, 15 days, one core";
    figures.add(name, took_s, "s", None, Target::AtMost(2.0));
    Ok(())
}
