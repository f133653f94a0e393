//! Memory: the value and the spike of one bucket, and the amount for a window.

use super::columns::{ceil, ratio};
use super::cpu::{Sample, Value, smallest_positive};
use crate::model::notice::{Notice, Notices};

/// Room above the largest usage. `U + U * 0.2` and `U * 1.2` differ in the last bit.
const BUFFER: f64 = 0.2;

/// Room above the largest spike.
const SPIKE_BUFFER: f64 = 1.05;

/// The memory of one bucket of a container. `pods` is 0 if unknown.
pub(super) fn value(usage: Sample, pods: f64) -> Value {
    let per_pod = ratio(usage.sum, pods);
    Value { value: per_pod.max(usage.max), min: smallest_positive([per_pod, usage.max, usage.min]) }
}

/// How far memory moved within one bucket, in whole units of the metric.
pub(super) fn spike(usage: Sample, rss: Sample) -> f64 {
    let range = |sample: Sample| ceil(sample.max - sample.min);
    range(usage).max(range(rss)).max(0.0)
}

/// The amount for the largest usage and the largest spike of a window, the same for every engine.
/// There is none for a gauge that lies, with nothing but negative values.
pub(super) fn amount(usage: f64, spike: f64, notices: &mut Notices) -> Option<f64> {
    let amount = (usage + usage * BUFFER).min(usage + spike * SPIKE_BUFFER);
    if amount <= 0.0 {
        notices.add(Notice::MemoryZero);
        return None;
    }
    Some(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_counts_its_peak_or_the_share_of_a_pod() {
        let usage = Sample { sum: 300.0, avg: 100.0, min: 80.0, max: 120.0 };
        assert_eq!(value(usage, 3.0), Value { value: 120.0, min: 80.0 });
        assert_eq!(value(usage, 2.0), Value { value: 150.0, min: 80.0 });
        assert_eq!(value(usage, 0.0), Value { value: 120.0, min: 80.0 });
        let no_minimum = Sample { min: 0.0, ..usage };
        assert_eq!(value(no_minimum, 3.0).min, 100.0);
        assert_eq!(value(Sample::default(), 0.0), Value { value: 0.0, min: 0.0 });
    }

    #[test]
    fn a_spike_is_rounded_up_and_never_negative() {
        let sample = |min: f64, max: f64| Sample { min, max, ..Sample::default() };
        assert_eq!(spike(sample(1.0, 1.25), sample(0.0, 0.0)), 1.0);
        assert_eq!(spike(sample(1.0, 1.25), sample(2.0, 5.5)), 4.0);
        assert_eq!(spike(sample(5.0, 0.0), sample(7.0, 0.0)), 0.0);
    }

    #[test]
    fn the_smaller_room_wins() {
        let mut notices = Notices::default();
        assert_eq!(amount(100.0, 10.0, &mut notices), Some(110.5));
        assert_eq!(amount(100.0, 100.0, &mut notices), Some(120.0));
        // Constant memory has no room above it.
        assert_eq!(amount(100.0, 0.0, &mut notices), Some(100.0));
        assert!(notices.is_empty());
        for usage in [0.0, -100.0] {
            let mut notices = Notices::default();
            assert_eq!(amount(usage, 0.0, &mut notices), None);
            assert!(notices.contains(Notice::MemoryZero));
        }
    }
}
