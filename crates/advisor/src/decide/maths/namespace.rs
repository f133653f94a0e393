//! Whole namespaces: their metrics are sums already, so pods do not divide them.

use super::cpu::{Sample, Value, smallest_positive};

/// The CPU of one bucket of a namespace.
pub(super) fn cpu(usage: Sample, throttle: Sample) -> Value {
    let total = usage.peak() + throttle.peak();
    Value { value: total, min: smallest_positive([total, usage.min + throttle.min, 0.0]) }
}

/// The memory of one bucket of a namespace.
pub(super) fn memory(usage: Sample) -> Value {
    Value { value: usage.max, min: smallest_positive([usage.max, usage.min, 0.0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_and_throttling_add_up_and_are_not_divided() {
        let usage = Sample { sum: 0.0, avg: 3.0, min: 1.0, max: 6.0 };
        let throttle = Sample { sum: 0.0, avg: 0.5, min: 0.0, max: 0.0 };
        assert_eq!(cpu(usage, throttle), Value { value: 6.5, min: 1.0 });
        assert_eq!(memory(usage), Value { value: 6.0, min: 1.0 });
        assert_eq!(memory(Sample { min: 0.0, ..usage }).min, 6.0);
    }
}
