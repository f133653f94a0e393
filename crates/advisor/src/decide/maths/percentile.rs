//! The percentile that recommendations and box plots use: the nearest rank.

/// The index of a percentile in `len` ascending values.
pub(super) fn rank(percentile: f64, len: usize) -> usize {
    let last = len.saturating_sub(1);
    let index = (percentile / 100.0 * last as f64 + 0.5).floor();
    (index as usize).min(last)
}

/// An integer that sorts like the number. Sorting integers takes half the time.
pub(super) fn key(value: f64) -> i64 {
    flip(value.to_bits() as i64)
}

/// The number of a key.
pub(super) fn value(key: i64) -> f64 {
    f64::from_bits(flip(key) as u64)
}

/// Among negative numbers a larger representation is a smaller number. This is its own inverse.
fn flip(bits: i64) -> i64 {
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

/// A percentile of values, by their keys in any order, which it reorders. 0 if there are none.
pub(super) fn of(percentile: f64, keys: &mut [i64]) -> f64 {
    if keys.is_empty() {
        return 0.0;
    }
    let rank = rank(percentile, keys.len());
    value(*keys.select_nth_unstable(rank).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranks_are_the_nearest_with_halves_upwards() {
        let table = [
            (60.0, 1, 0),
            (60.0, 2, 1),
            (98.0, 2, 1),
            (25.0, 2, 0),
            (50.0, 2, 1),
            (75.0, 2, 1),
            (25.0, 3, 1),
            (50.0, 4, 2),
            (60.0, 97, 58),
            (98.0, 97, 94),
            (60.0, 1441, 864),
            (98.0, 1441, 1411),
            (100.0, 1441, 1440),
            (0.0, 5, 0),
        ];
        for (percentile, len, index) in table {
            assert_eq!(rank(percentile, len), index, "P{percentile} of {len}");
        }
    }

    #[test]
    fn nothing_has_a_percentile_of_zero() {
        assert_eq!(of(98.0, &mut []), 0.0);
    }

    proptest! {
        #[test]
        fn keys_sort_like_numbers(a in proptest::num::f64::ANY, b in proptest::num::f64::ANY) {
            prop_assert_eq!(key(a).cmp(&key(b)), a.total_cmp(&b));
            prop_assert_eq!(value(key(a)).to_bits(), a.to_bits());
        }

        #[test]
        fn a_percentile_is_one_of_the_values_and_grows(
            mut values in proptest::collection::vec(-1e9..1e9f64, 1..200),
            low in 0.0..100.0f64,
            more in 0.0..100.0f64,
        ) {
            let high = (low + more).min(100.0);
            let mut keys: Vec<i64> = values.iter().copied().map(key).collect();
            let (a, b) = (of(low, &mut keys), of(high, &mut keys));
            prop_assert!(a <= b);
            prop_assert!(values.contains(&a) && values.contains(&b));
            values.sort_by(f64::total_cmp);
            prop_assert_eq!(a, values[rank(low, values.len())]);
        }
    }
}
