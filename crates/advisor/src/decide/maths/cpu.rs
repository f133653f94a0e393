//! CPU: the value of one bucket of a container, and the amount for a window.

use super::columns::ratio;
use crate::model::notice::{Notice, Notices};

/// Below one core the largest value counts, from there on a percentile.
pub(super) const ONE_CORE: f64 = 1.0;

const ONE_MILLICORE: f64 = 0.001;

/// The aggregates of one metric in one bucket. Missing ones are 0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sample {
    pub sum: f64,
    pub avg: f64,
    pub min: f64,
    pub max: f64,
}

impl Sample {
    /// The maximum, or the average where there is no maximum.
    pub(super) fn peak(self) -> f64 {
        if self.max > 0.0 { self.max } else { self.avg }
    }

    /// How many pods the sum is about. It is not rounded.
    pub(super) fn pods(self) -> f64 {
        ratio(self.sum, self.avg)
    }
}

/// What a bucket says about one resource: its value, and the minimum that its box plot shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Value {
    pub value: f64,
    pub min: f64,
}

/// The smallest positive number, or 0.
pub(super) fn smallest_positive(values: [f64; 3]) -> f64 {
    let positive = values.into_iter().filter(|value| *value > 0.0);
    positive.min_by(f64::total_cmp).unwrap_or(0.0)
}

/// The CPU of one bucket of a container. `pods` is 0 if unknown.
pub(super) fn value(usage: Sample, throttle: Sample, pods: f64) -> Value {
    let total = usage.peak() + throttle.peak();
    let per_pod = if total < ONE_CORE { 0.0 } else { ratio(usage.sum + throttle.sum, pods) };
    Value {
        value: per_pod.max(total),
        min: smallest_positive([per_pod, total, usage.min + throttle.min]),
    }
}

/// The amount to print. Zero and idle CPU have none, and say so.
pub(super) fn amount(amount: f64, notices: &mut Notices) -> Option<f64> {
    if amount == 0.0 {
        notices.add(Notice::CpuZero);
        return None;
    }
    if amount <= ONE_MILLICORE {
        notices.add(Notice::CpuIdle);
        return None;
    }
    Some(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sum: f64, avg: f64, min: f64, max: f64) -> Sample {
        Sample { sum, avg, min, max }
    }

    #[test]
    fn below_one_core_pods_do_not_matter() {
        let usage = sample(1.6, 0.4, 0.1, 0.8);
        let value = value(usage, sample(0.2, 0.05, 0.0, 0.1), usage.pods());
        assert_eq!(value, Value { value: 0.8 + 0.1, min: 0.1 });
    }

    #[test]
    fn from_one_core_the_larger_of_total_and_share_of_a_pod_counts() {
        // Two pods, by 6 / 3. The share of a pod is (6 + 2) / 2 = 4.
        let usage = sample(6.0, 3.0, 0.5, 3.2);
        let throttle = sample(2.0, 1.0, 0.25, 0.3);
        assert_eq!(value(usage, throttle, usage.pods()), Value { value: 4.0, min: 0.75 });
        // A peak above the share.
        let peak = Sample { max: 9.0, ..usage };
        assert_eq!(value(peak, throttle, peak.pods()).value, 9.3);
        // Unknown pods.
        assert_eq!(value(usage, throttle, 0.0), Value { value: 3.5, min: 0.75 });
    }

    #[test]
    fn exactly_one_core_is_shared_among_pods() {
        let usage = sample(4.0, 2.0, 1.0, 1.0);
        assert_eq!(value(usage, Sample::default(), usage.pods()).value, 2.0);
    }

    #[test]
    fn without_a_maximum_the_average_counts() {
        let usage = sample(0.4, 0.2, 0.0, 0.0);
        assert_eq!(value(usage, Sample::default(), 2.0), Value { value: 0.2, min: 0.2 });
        assert_eq!(
            value(Sample::default(), Sample::default(), 0.0),
            Value { value: 0.0, min: 0.0 }
        );
    }

    #[test]
    fn zero_and_idle_are_not_recommended() {
        let table = [
            (0.0, None, Some(Notice::CpuZero)),
            (0.000_4, None, Some(Notice::CpuIdle)),
            (-1.0, None, Some(Notice::CpuIdle)),
            (0.001, None, Some(Notice::CpuIdle)),
            (0.001_000_1, Some(0.001_000_1), None),
            (2.5, Some(2.5), None),
        ];
        for (from, expected, notice) in table {
            let mut notices = Notices::default();
            assert_eq!(amount(from, &mut notices), expected, "{from}");
            assert_eq!(notices, notice.into_iter().collect(), "{from}");
        }
    }
}
