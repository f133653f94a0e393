//! Box plots: a term in slots, each with the quartiles of its buckets.
//!
//! The days of the medium term are the last seven of the long term, so a day is drawn once.

use super::buckets::Buckets;
use super::percentile::{self, rank};
use super::terms::DAY_MS;
use crate::model::recommendation::{BoxPlot, Plots, Slot, SlotUsage, Term};

/// The width of a slot of a term.
fn width_ms(term: Term) -> i64 {
    match term {
        Term::Short => DAY_MS / 4,
        Term::Medium | Term::Long => DAY_MS,
    }
}

/// How many slots a term has: the short one 4, the others one a day.
fn count(term: Term) -> usize {
    match term {
        Term::Short => 4,
        Term::Medium | Term::Long => term.days() as usize,
    }
}

/// Draws the terms of one workload.
pub(super) struct Plotter<'a> {
    buckets: &'a Buckets,
    /// One past the newest bucket.
    end: usize,
    sorted: &'a mut Vec<i64>,
    /// Days that are drawn already, oldest first.
    days: Vec<Slot>,
}

impl<'a> Plotter<'a> {
    pub(super) fn new(buckets: &'a Buckets, end: usize, sorted: &'a mut Vec<i64>) -> Self {
        Self { buckets, end, sorted, days: Vec::new() }
    }

    /// The slots of a term, oldest first.
    pub(super) fn draw(&mut self, term: Term) -> Plots {
        if term == Term::Short {
            return Plots { slots: self.slots(count(term), width_ms(term)) };
        }
        let count = count(term);
        if self.days.len() < count {
            self.days = self.slots(count, width_ms(term));
        }
        Plots { slots: self.days[self.days.len() - count..].to_vec() }
    }

    fn slots(&mut self, count: usize, width_ms: i64) -> Vec<Slot> {
        let times = &self.buckets.end_ms[..self.end];
        let newest = times.last().copied().unwrap_or_default();
        let start = |i: usize| newest - (count - i) as i64 * width_ms;
        let mut first = times.partition_point(|at| *at <= start(0));
        let slot = |i| {
            let end_ms = start(i + 1);
            let len = times[first..].partition_point(|at| *at <= end_ms);
            let range = first..first + len;
            first = range.end;
            let usage = (!range.is_empty()).then(|| SlotUsage {
                cpu: draw(
                    &self.buckets.cpu[range.clone()],
                    &self.buckets.cpu_min[range.clone()],
                    self.sorted,
                ),
                memory: draw(
                    &self.buckets.memory[range.clone()],
                    &self.buckets.memory_min[range],
                    self.sorted,
                ),
            });
            Slot { end_ms, usage }
        };
        (0..count).map(slot).collect()
    }
}

/// One box. The minimum is that of the buckets' minima, so a single 0 makes it 0.
fn draw(values: &[f64], minima: &[f64], sorted: &mut Vec<i64>) -> BoxPlot {
    sorted.clear();
    sorted.extend(values.iter().copied().map(percentile::key));
    sorted.sort_unstable();
    let at = |percent| percentile::value(sorted[rank(percent, sorted.len())]);
    BoxPlot {
        min: minima.iter().copied().fold(f64::INFINITY, f64::min),
        q1: at(25.0),
        median: at(50.0),
        q3: at(75.0),
        max: at(100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn buckets(hours: impl Iterator<Item = i64>) -> Buckets {
        let end_ms: Vec<i64> = hours.map(|hour| hour * HOUR_MS).collect();
        let values: Vec<f64> = (1..=end_ms.len()).map(|i| i as f64).collect();
        let minima: Vec<f64> = values.iter().map(|value| value - 1.0).collect();
        let mut buckets = Buckets::default();
        buckets.end_ms = end_ms;
        (buckets.cpu, buckets.cpu_min) = (values.clone(), minima.clone());
        (buckets.memory, buckets.memory_min) = (values, minima);
        buckets
    }

    #[test]
    fn a_slot_excludes_its_start_and_includes_its_end() {
        // Hours 0 to 24; hour 0 is the start of the term and in no slot.
        let buckets = buckets(0..=24);
        let mut sorted = Vec::new();
        let plots = Plotter::new(&buckets, 25, &mut sorted).draw(Term::Short);
        let ends: Vec<i64> = plots.slots.iter().map(|slot| slot.end_ms / HOUR_MS).collect();
        assert_eq!(ends, [6, 12, 18, 24]);
        // Hours 1 to 6 have the values 2 to 7 and the minima 1 to 6.
        let first = plots.slots[0].usage.unwrap().cpu;
        assert_eq!(first, BoxPlot { min: 1.0, q1: 3.0, median: 5.0, q3: 6.0, max: 7.0 });
    }

    #[test]
    fn empty_slots_have_no_boxes_and_the_medium_term_is_the_end_of_the_long_one() {
        let buckets = buckets((0..=10).map(|i| i * 24).chain([12 * 24]));
        let mut sorted = Vec::new();
        let mut plotter = Plotter::new(&buckets, 12, &mut sorted);
        let medium = plotter.draw(Term::Medium);
        let long = plotter.draw(Term::Long);
        assert_eq!(long.slots.len(), 15);
        assert_eq!(medium.slots, long.slots[8..]);
        assert_eq!(plotter.draw(Term::Medium), medium);
        let drawn: Vec<bool> = medium.slots.iter().map(|slot| slot.usage.is_some()).collect();
        assert_eq!(drawn, [true, true, true, true, true, false, true]);
    }

    #[test]
    fn a_zero_minimum_is_shown() {
        let one = draw(&[3.0, 4.0], &[2.0, 0.0], &mut Vec::new());
        assert_eq!((one.min, one.max), (0.0, 4.0));
    }
}
