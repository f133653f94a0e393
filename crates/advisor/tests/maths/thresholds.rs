//! What whole recommendations say at the edges that the recorded tables do not reach.

use advisor::decide::maths::buckets::Scope;
use advisor::decide::maths::columns::Series;
use advisor::decide::maths::gpu::Accelerator;
use advisor::decide::maths::recommend::{Options, Recommender, Workload};
use advisor::model::measure::{Aggregate, Metric};
use advisor::model::notice::{Notice, Notices};
use advisor::model::recommendation::{
    Available, Formats, Recommendation, Resources, Runtime, Sizing, Snapshot, Term,
};

use super::table::workload;

type Inputs = Vec<(Metric, Aggregate, Vec<f64>)>;

/// Times of `n` buckets, a quarter of an hour apart.
fn times(n: usize) -> Vec<i64> {
    (1..=n as i64).map(|i| i * 900_000).collect()
}

/// A container that uses the same all the time.
fn steady(n: usize, amounts: &[(Metric, Aggregate, f64)]) -> Inputs {
    amounts
        .iter()
        .map(|(metric, aggregate, amount)| (*metric, *aggregate, vec![*amount; n]))
        .collect()
}

/// One pod that uses so many cores and so much memory, without spikes.
fn usage(cores: f64, memory: f64) -> [(Metric, Aggregate, f64); 7] {
    [
        (Metric::CpuUsage, Aggregate::Sum, cores),
        (Metric::CpuUsage, Aggregate::Avg, cores),
        (Metric::CpuUsage, Aggregate::Max, cores),
        (Metric::MemoryUsage, Aggregate::Sum, memory),
        (Metric::MemoryUsage, Aggregate::Avg, memory),
        (Metric::MemoryUsage, Aggregate::Min, memory),
        (Metric::MemoryUsage, Aggregate::Max, memory),
    ]
}

/// Requests and limits: CPU request, CPU limit, memory request, memory limit.
fn configured(amounts: [f64; 4]) -> [(Metric, Aggregate, f64); 4] {
    [
        (Metric::CpuRequest, Aggregate::Avg, amounts[0]),
        (Metric::CpuLimit, Aggregate::Avg, amounts[1]),
        (Metric::MemoryRequest, Aggregate::Avg, amounts[2]),
        (Metric::MemoryLimit, Aggregate::Avg, amounts[3]),
    ]
}

fn recommend(end_ms: &[i64], inputs: &Inputs) -> Recommendation {
    let workload = workload(Scope::Container, end_ms, inputs, end_ms.len());
    Recommender::new(Options::default()).recommend(&workload)
}

fn latest(amounts: &[(Metric, Aggregate, f64)]) -> Snapshot {
    recommend(&times(2), &steady(2, amounts)).latest.unwrap()
}

fn short(snapshot: &Snapshot) -> &Available {
    snapshot.term(Term::Short).available.as_ref().unwrap()
}

fn notices<const N: usize>(notices: [Notice; N]) -> Notices {
    notices.into_iter().collect()
}

#[test]
fn a_request_and_a_limit_within_the_threshold_print_the_limit_twice() {
    let amounts = [0.5004, 0.4997, 1000.5, 999.5];
    let snapshot = latest(&[&usage(0.5, 1000.0)[..], &configured(amounts)].concat());
    let both = Resources { cpu: Some(0.4997), memory: Some(999.5) };
    let zero = Resources { cpu: Some(0.0), memory: Some(0.0) };
    for engine in [&short(&snapshot).cost, &short(&snapshot).performance] {
        assert_eq!(engine.config, Sizing { requests: both, limits: both });
        assert_eq!(engine.variation, Sizing { requests: zero, limits: zero });
        let optimised = notices([
            Notice::CpuRequestOptimised,
            Notice::CpuLimitOptimised,
            Notice::MemoryRequestOptimised,
            Notice::MemoryLimitOptimised,
        ]);
        assert_eq!(engine.notices, optimised);
    }
}

#[test]
fn a_threshold_can_be_wider_for_one_resource() {
    let end_ms = times(2);
    let inputs =
        steady(2, &[&usage(0.5, 1000.0)[..], &configured([0.54, 2.0, 1090.0, 2e3])].concat());
    let options = Options { memory_threshold_percent: 10.0, ..Options::default() };
    let workload = workload(Scope::Container, &end_ms, &inputs, 2);
    let found = Recommender::new(options).recommend(&workload).latest.unwrap();
    let requests = Resources { cpu: Some(0.5), memory: Some(1090.0) };
    assert_eq!(short(&found).cost.config.requests, requests);
    assert_eq!(short(&found).cost.notices, notices([Notice::MemoryRequestOptimised]));
}

#[test]
fn from_one_core_the_engines_differ_and_only_one_may_be_optimised() {
    let n = 97;
    let cores: Vec<f64> = (0..n).map(|i| 1.0 + f64::from(i) / 100.0).collect();
    let mut inputs = steady(n as usize, &configured([1.58, 8.0, 1.0, 1.0]));
    inputs.push((Metric::CpuUsage, Aggregate::Max, cores));
    let found = recommend(&times(n as usize), &inputs).latest.unwrap();
    let Available { cost, performance, .. } = short(&found);
    // Ranks 58 and 94 of 0 to 96.
    assert_eq!(cost.config.requests.cpu, Some(1.58));
    assert_eq!(performance.config.requests.cpu, Some(1.94));
    assert!(cost.notices.contains(Notice::CpuRequestOptimised));
    assert!(!performance.notices.contains(Notice::CpuRequestOptimised));
}

#[test]
fn what_is_not_configured_is_reported_at_the_time() {
    let snapshot = latest(&usage(0.5, 1000.0));
    assert_eq!(snapshot.current, Sizing::default());
    let expected = notices([
        Notice::ShortTermAvailable,
        Notice::CpuAmountMissing,
        Notice::MemoryAmountMissing,
        Notice::CpuLimitNotSet,
        Notice::CpuRequestNotSet,
        Notice::MemoryRequestNotSet,
        Notice::MemoryLimitNotSet,
    ]);
    assert_eq!(snapshot.notices, expected);
    // Everything is more than nothing.
    let engine = &short(&snapshot).cost;
    assert_eq!(engine.variation, engine.config);
    assert_eq!(engine.config.limits, Resources { cpu: Some(0.5), memory: Some(1000.0) });
}

#[test]
fn zero_is_not_a_valid_configuration() {
    let amounts = [&usage(0.5, 1000.0)[..], &configured([0.0, 1.0, -1.0, 2e3])].concat();
    let snapshot = latest(&amounts);
    let expected = notices([
        Notice::ShortTermAvailable,
        Notice::CpuAmountInvalid,
        Notice::MemoryAmountInvalid,
    ]);
    assert_eq!(snapshot.notices, expected);
    assert_eq!(snapshot.current.requests, Resources::default());
    assert_eq!(short(&snapshot).cost.variation.requests.cpu, Some(0.5));
}

#[test]
fn no_use_at_all_is_recommended_nothing() {
    let snapshot = latest(&configured([0.5, 1.0, 1e3, 2e3]));
    let engine = &short(&snapshot).cost;
    assert_eq!((engine.config, engine.variation), (Sizing::default(), Sizing::default()));
    let expected = notices([Notice::PodsZero, Notice::CpuZero, Notice::MemoryZero]);
    assert_eq!(engine.notices, expected);
}

#[test]
fn nothing_and_one_bucket_are_not_enough() {
    for n in [0, 1] {
        let found = recommend(&times(n), &steady(n, &usage(0.5, 1000.0)));
        assert_eq!(found.latest, None, "{n} buckets");
        assert_eq!(found.notices, notices([Notice::NotEnoughData]), "{n} buckets");
    }
}

#[test]
fn a_term_without_enough_data_has_only_hours_and_a_notice() {
    let found = latest(&usage(0.5, 1000.0));
    for (term, hours) in [(Term::Medium, 168.0), (Term::Long, 360.0)] {
        let result = found.term(term);
        assert_eq!((result.duration_hours, &result.available), (hours, &None));
        assert_eq!(result.notices, notices([Notice::NotEnoughData]));
    }
}

#[test]
fn a_sum_without_an_average_counts_no_pods() {
    let without: Vec<_> =
        usage(0.5, 1000.0).into_iter().filter(|input| input.1 != Aggregate::Avg).collect();
    let engine = short(&latest(&without)).cost.clone();
    assert_eq!(engine.pods_count, 0);
    assert_eq!(engine.config.requests, Resources { cpu: Some(0.5), memory: Some(1000.0) });
    assert_eq!(engine.notices, notices([Notice::PodsZero]));
}

#[test]
fn pods_are_rounded_up_and_may_not_be_negative() {
    let pods = |sum: f64, avg: f64| {
        let cpu =
            [(Metric::CpuUsage, Aggregate::Sum, sum), (Metric::CpuUsage, Aggregate::Avg, avg)];
        let engine = short(&latest(&cpu)).cost.clone();
        (engine.pods_count, engine.notices.iter().next())
    };
    assert_eq!(pods(0.9, 0.3).0, 3);
    assert_eq!(pods(1.0, 0.3).0, 4);
    assert_eq!(pods(-0.9, 0.3), (-3, Some(Notice::PodsNegative)));
}

#[test]
fn uploaded_results_count_the_hours_that_they_cover() {
    let end_ms = times(200);
    let inputs = steady(200, &usage(0.5, 1000.0));
    let covered = vec![14.9; 200];
    let mut workload = workload(Scope::Container, &end_ms, &inputs, 200);
    workload.covered_min = Some(Series::new(&end_ms, &covered).unwrap());
    let found = Recommender::new(Options::default()).recommend(&workload).latest.unwrap();
    // 97 buckets of the short term exceed a day; 200 of the others are 49.67 hours.
    let hours = Term::ALL.map(|term| found.term(term).duration_hours);
    assert_eq!(hours, [24.0, 49.67, 49.67]);
}

#[test]
fn formats_that_were_not_uploaded_are_reported() {
    let end_ms = times(2);
    let inputs = steady(2, &[&usage(0.5, 1000.0)[..], &configured([0.4, 1.0, 1e3, 2e3])].concat());
    let formats = Formats { cpu: None, memory: Some(" ".into()) };
    let workload = Workload { formats, ..workload(Scope::Container, &end_ms, &inputs, 2) };
    let found = Recommender::new(Options::default()).recommend(&workload).latest.unwrap();
    let expected = notices([
        Notice::ShortTermAvailable,
        Notice::CpuFormatMissing,
        Notice::MemoryFormatInvalid,
    ]);
    assert_eq!((found.notices, found.current), (expected, Sizing::default()));
}

#[test]
fn gpus_and_runtimes_are_part_of_a_recommendation() {
    let end_ms = times(2);
    let inputs = steady(2, &usage(0.5, 1000.0));
    let (core, memory) = ([10.0, 60.0], [10.0, 10.0]);
    let runtimes =
        [Runtime { runtime: "HotSpot".into(), vendor: "Temurin".into(), version: "25".into() }];
    let accelerator = Accelerator {
        model: "NVIDIA H100 80GB HBM3",
        core: Series::new(&end_ms, &core).unwrap(),
        memory: Series::new(&end_ms, &memory).unwrap(),
        frame_buffer: Series::default(),
    };
    let workload = Workload {
        accelerator: Some(accelerator),
        runtimes: &runtimes,
        ..workload(Scope::Container, &end_ms, &inputs, 2)
    };
    let found = Recommender::new(Options::default()).recommend(&workload);
    assert_eq!(found.runtimes, runtimes);
    let snapshot = found.latest.unwrap();
    let engine = &short(&snapshot).performance;
    assert_eq!(engine.accelerator.as_ref().unwrap().resource(), "nvidia.com/mig-7g.80gb");
    assert_eq!(engine.notices, notices([Notice::AcceleratorAvailable]));
}

#[test]
fn plots_can_be_switched_off() {
    let end_ms = times(2);
    let inputs = steady(2, &usage(0.5, 1000.0));
    let workload = workload(Scope::Container, &end_ms, &inputs, 2);
    let options = Options { plots: false, ..Options::default() };
    let without = Recommender::new(options).recommend(&workload).latest.unwrap();
    let with = Recommender::new(Options::default()).recommend(&workload).latest.unwrap();
    assert_eq!(short(&without).plots, None);
    assert_eq!(short(&with).plots.as_ref().unwrap().slots.len(), 4);
    assert_eq!(short(&without).cost, short(&with).cost);
}
