//! The windows of the three terms, and whether each has enough data.

use crate::model::recommendation::Term;

pub(super) const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const MINUTE_MS: i64 = 60 * 1000;

/// How far a bucket may be from where it is expected.
const TOLERANCE_MS: i64 = 30 * 1000;

/// What a term may lack, in minutes.
const SLACK_MIN: f64 = 0.5;

/// The buckets of a term: from index `first` to the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub term: Term,
    pub start_ms: i64,
    pub first: usize,
    pub enough: bool,
}

/// Minutes of data without which a term says nothing.
fn required_min(term: Term) -> f64 {
    match term {
        Term::Short => 30.0,
        Term::Medium => 2.0 * 24.0 * 60.0,
        Term::Long => 8.0 * 24.0 * 60.0,
    }
}

/// The windows that end with the last of these bucket times. There is at least one.
pub(super) fn windows(end_ms: &[i64], measurement_min: u32) -> [Window; 3] {
    let newest = end_ms.last().copied().unwrap_or_default();
    let starts = Term::ALL.map(|term| newest - i64::from(term.days()) * DAY_MS);
    let counted = count(end_ms, starts, i64::from(measurement_min.max(1)) * MINUTE_MS);
    Term::ALL.map(|term| {
        let start_ms = starts[term as usize];
        let minutes = f64::from(counted[term as usize]) * f64::from(measurement_min);
        Window {
            term,
            start_ms,
            first: end_ms.partition_point(|at| *at < start_ms),
            enough: minutes >= required_min(term) - SLACK_MIN,
        }
    })
}

/// Counts, for each start, the expected times after it that have a bucket. One walk serves all
/// starts: it goes back from the newest bucket step by step, and the distance between a bucket and
/// where it was expected goes into the next step, so that the walk follows a period that drifts.
fn count(end_ms: &[i64], starts: [i64; 3], step_ms: i64) -> [u32; 3] {
    let oldest = starts.into_iter().min().unwrap_or_default();
    let mut counted = [0; 3];
    let mut left = end_ms;
    let mut expected = end_ms.last().copied().unwrap_or(oldest);
    while expected > oldest {
        let offset_ms = match nearest(&mut left, expected) {
            Some(found) => {
                for (count, start) in counted.iter_mut().zip(starts) {
                    *count += u32::from(expected > start);
                }
                (expected - found) / 1000 * 1000
            }
            None => 0,
        };
        expected -= (step_ms + offset_ms).max(1000);
    }
    counted
}

/// The bucket nearest to a time, within the tolerance. Later ones leave `left`: the walk only goes
/// back.
fn nearest(left: &mut &[i64], expected: i64) -> Option<i64> {
    while let [earlier @ .., last] = *left
        && *last > expected + TOLERANCE_MS
    {
        *left = earlier;
    }
    if let [.., last] = *left
        && *last == expected
    {
        return Some(expected);
    }
    let near = left.iter().rev().take_while(|at| **at >= expected - TOLERANCE_MS);
    near.copied().min_by_key(|at| (at - expected).abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Times of `n` buckets before `newest`, `period_s` apart, oldest first.
    fn times(n: i64, period_s: i64) -> Vec<i64> {
        let newest = 1_700_000_000_000;
        (0..n).rev().map(|i| newest - i * period_s * 1000).collect()
    }

    fn enough(end_ms: &[i64]) -> [bool; 3] {
        windows(end_ms, 15).map(|window| window.enough)
    }

    #[test]
    fn terms_need_2_and_192_and_768_buckets() {
        let table = [
            (0, [false, false, false]),
            (1, [false, false, false]),
            (2, [true, false, false]),
            (191, [true, false, false]),
            (192, [true, true, false]),
            (767, [true, true, false]),
            (768, [true, true, true]),
            (1441, [true, true, true]),
        ];
        for (n, expected) in table {
            assert_eq!(enough(&times(n, 900)), expected, "{n} buckets");
        }
    }

    #[test]
    fn windows_include_both_ends() {
        let end_ms = times(1500, 900);
        let firsts = windows(&end_ms, 15).map(|window| window.first);
        assert_eq!(firsts, [1500 - 97, 1500 - 673, 1500 - 1441]);
    }

    #[test]
    fn a_period_that_drifts_is_followed() {
        for period_s in [871, 885, 899, 901, 905, 929] {
            assert_eq!(enough(&times(1000, period_s)), [true; 3], "{period_s} s");
        }
        // Beyond the tolerance only the newest bucket is where it is expected, and chance hits.
        for period_s in [850, 931, 945] {
            assert!(!enough(&times(1000, period_s))[2], "{period_s} s");
        }
    }

    #[test]
    fn gaps_count_for_nothing_and_do_not_stop_the_walk() {
        let mut end_ms = times(300, 900);
        end_ms.drain(100..208);
        assert_eq!(enough(&end_ms), [true, true, false]);
        end_ms.drain(50..51);
        assert_eq!(enough(&end_ms), [true, false, false]);
    }

    #[test]
    fn other_measurement_durations_need_fewer_or_more_buckets() {
        let windows = |n, minutes: u32| {
            windows(&times(n, i64::from(minutes) * 60), minutes).map(|window| window.enough)
        };
        assert_eq!(windows(30, 1), [true, false, false]);
        assert_eq!(windows(29, 1), [false, false, false]);
        assert_eq!(windows(1, 30), [true, false, false]);
        assert_eq!(windows(48, 60), [true, true, false]);
    }

    proptest! {
        /// The walk with one cursor finds what a search over all buckets at each step finds.
        #[test]
        fn the_walk_equals_a_search_of_everything(
            gaps in proptest::collection::vec(0..2_000_000i64, 1..200),
            step_min in 1..40i64,
        ) {
            let mut end_ms: Vec<i64> = gaps.iter().scan(0, |at, gap| {
                *at += gap + 1;
                Some(*at)
            }).collect();
            end_ms.dedup();
            let newest = *end_ms.last().unwrap();
            let starts = [newest - 20_000_000, newest - 50_000_000, newest - 200_000_000];
            let mut expected = [0; 3];
            for (i, start) in starts.iter().enumerate() {
                let mut at = newest;
                while at > *start {
                    let near = end_ms.iter().rev().filter(|other| (*other - at).abs() <= 30_000);
                    let found = near.min_by_key(|other| (*other - at).abs());
                    expected[i] += u32::from(found.is_some());
                    let offset = found.map_or(0, |found| (at - found) / 1000 * 1000);
                    at -= (step_min * 60_000 + offset).max(1000);
                }
            }
            prop_assert_eq!(count(&end_ms, starts, step_min * 60_000), expected);
        }
    }
}
