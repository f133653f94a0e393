//! Recorded answers of a real Prometheus, and what the original service made of them.

use advisor::model::measure::{Aggregate, Metric};
use advisor::model::wire::Element;

use crate::support::recorded::Pair;

/// The queries without which nothing changes: 17 of 32.
const NEEDED: [(Metric, &[Aggregate]); 8] = {
    use Aggregate::{Avg, Max, Min, Sum};
    [
        (Metric::CpuRequest, &[Avg]),
        (Metric::MemoryRequest, &[Avg]),
        (Metric::CpuLimit, &[Avg]),
        (Metric::MemoryLimit, &[Avg]),
        (Metric::CpuUsage, &[Sum, Avg, Min, Max]),
        (Metric::CpuThrottle, &[Sum, Min, Max]),
        (Metric::MemoryUsage, &[Sum, Avg, Min, Max]),
        (Metric::MemoryRss, &[Min, Max]),
    ]
};

/// Compares the whole element: names, numbers to the last bit, notices, times, plots.
fn replay(name: &str) {
    let pair = Pair::read(name);
    let compare = |wanted: &dyn Fn(Metric, Aggregate) -> bool| {
        let advice = pair.advice(wanted);
        let found = serde_json::to_value(Element::from(&advice)).unwrap();
        assert_eq!(found, pair.expected, "{name}");
    };
    compare(&|_, _| true);
    compare(&|metric, aggregate| {
        let (_, aggregates) = NEEDED.iter().find(|(other, _)| *other == metric).unwrap();
        aggregates.contains(&aggregate)
    });
}

#[test]
fn three_pods_above_one_core() {
    replay("busy_ge_1core");
}

#[test]
fn constant_memory() {
    replay("constmem");
}

#[test]
fn idle_cpu() {
    replay("idle");
}

#[test]
fn no_cpu_at_all() {
    replay("zerocpu");
}

#[test]
fn nothing_is_measured() {
    replay("no_usage_data");
}

#[test]
fn no_limits_are_set() {
    replay("nolimit");
}

#[test]
fn the_container_stopped_a_day_ago() {
    replay("stopped_1day_ago");
}

#[test]
fn limits_are_nearly_what_is_recommended() {
    replay("threshold_lim_near");
}

#[test]
fn requests_are_nearly_what_is_recommended() {
    replay("threshold_req_near");
}

#[test]
fn requests_are_what_is_recommended() {
    replay("threshold_request");
}

#[test]
fn every_recorded_pair_is_replayed() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pairs");
    let files = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, Pair::NAMES.map(|name| format!("{name}.json.gz")));
}
