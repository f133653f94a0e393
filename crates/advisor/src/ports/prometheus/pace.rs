//! How many queries a data source is sent at once. It follows what the data source says and how
//! long it takes: one more after a window of answers, half as many when it is overloaded, which is
//! what it says, does not answer in time, or takes twice as long.
//!
//! A query is slow in comparison with the fastest one of its class, because the queries of a shard
//! differ in cost, and so do shards of different sizes.

use std::collections::BTreeMap;
use std::time::Duration;

/// Queries of one class cost about the same: which query it is, and how large its shard is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    pub query: usize,
    pub pods_log2: u32,
}

impl Class {
    pub fn new(query: usize, pods: u64) -> Self {
        Self { query, pods_log2: pods.checked_ilog2().unwrap_or(0) }
    }
}

/// When a query began, counted in halvings. What was sent before one says nothing about the pace
/// after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch(u64);

/// Answers in a window for each query that may be sent at once, and at least.
const ANSWERS_EACH: usize = 2;
const ANSWERS_MIN: usize = 8;
/// Below this nothing is slow: the network and the scheduler make such differences.
const FAST: Duration = Duration::from_millis(50);
const SLOW_RATIO: f64 = 2.0;
const FIRST: usize = 4;

#[derive(Debug)]
pub struct Pace {
    max: usize,
    limit: usize,
    epoch: u64,
    answers: usize,
    /// The sum of how much slower than the best of its class each answer of the window was.
    slowness: f64,
    best: BTreeMap<Class, Duration>,
}

impl Pace {
    pub fn new(max: usize) -> Self {
        let max = max.max(1);
        let (limit, best) = (FIRST.min(max), BTreeMap::new());
        Self { max, limit, epoch: 0, answers: 0, slowness: 0.0, best }
    }

    /// Queries that may be sent at once: from 1 to the maximum.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// To be kept for the report of a query that begins now.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// A query was answered.
    pub fn answered(&mut self, epoch: Epoch, class: Class, took: Duration) {
        if epoch.0 != self.epoch {
            return;
        }
        let took = took.max(FAST);
        let best = self.best.entry(class).or_insert(took);
        *best = (*best).min(took);
        self.answers += 1;
        self.slowness += took.as_secs_f64() / best.as_secs_f64();
        if self.answers < ANSWERS_MIN.max(ANSWERS_EACH * self.limit) {
            return;
        }
        if self.slowness / self.answers as f64 >= SLOW_RATIO {
            self.halve();
        } else {
            self.limit = self.max.min(self.limit + 1);
            self.begin_window();
        }
    }

    /// A query was not answered in time, or refused because there are too many.
    pub fn overloaded(&mut self, epoch: Epoch) {
        if epoch.0 == self.epoch {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.limit = (self.limit / 2).max(1);
        self.epoch += 1;
        // What is fast is another question now; a data source that stays slow stops no job.
        self.best.clear();
        self.begin_window();
    }

    fn begin_window(&mut self) {
        (self.answers, self.slowness) = (0, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLASS: Class = Class { query: 0, pods_log2: 0 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn answer(pace: &mut Pace, count: usize, took_ms: u64) {
        for _ in 0..count {
            pace.answered(pace.epoch(), CLASS, ms(took_ms));
        }
    }

    #[test]
    fn it_grows_by_one_after_each_window_up_to_the_maximum() {
        let mut pace = Pace::new(6);
        assert_eq!(pace.limit(), 4);
        answer(&mut pace, 7, 100);
        assert_eq!(pace.limit(), 4);
        answer(&mut pace, 1, 100);
        assert_eq!(pace.limit(), 5);
        answer(&mut pace, 10, 100);
        assert_eq!(pace.limit(), 6);
        answer(&mut pace, 100, 100);
        assert_eq!(pace.limit(), 6);
    }

    #[test]
    fn queries_that_were_sent_together_halve_it_once() {
        let mut pace = Pace::new(8);
        let sent = [pace.epoch(); 4];
        for epoch in sent {
            pace.overloaded(epoch);
        }
        assert_eq!(pace.limit(), 2);
        pace.overloaded(pace.epoch());
        pace.overloaded(pace.epoch());
        assert_eq!(pace.limit(), 1, "never zero");
        answer(&mut pace, 8, 100);
        assert_eq!(pace.limit(), 2);
    }

    #[test]
    fn it_halves_when_answers_take_twice_as_long_and_then_takes_that_as_given() {
        let mut pace = Pace::new(8);
        answer(&mut pace, 8, 100);
        assert_eq!(pace.limit(), 5);
        answer(&mut pace, 10, 190);
        assert_eq!(pace.limit(), 6, "not twice as long");
        answer(&mut pace, 12, 200);
        assert_eq!(pace.limit(), 3);
        answer(&mut pace, 8, 200);
        assert_eq!(pace.limit(), 4);
    }

    #[test]
    fn a_class_is_compared_with_itself() {
        let mut pace = Pace::new(8);
        for round in 0..3 {
            for (query, took) in [(0, 60), (1, 600), (2, 6000)] {
                for pods in [1, 1000] {
                    pace.answered(
                        pace.epoch(),
                        Class::new(query, pods),
                        ms(took * (1 + pods / 100)),
                    );
                }
            }
            assert!(pace.limit() >= 4, "round {round}");
        }
        assert_eq!(pace.limit(), 6);
        assert_eq!(Class::new(3, 0), Class::new(3, 1));
        assert_ne!(Class::new(3, 2), Class::new(3, 4));
    }

    #[test]
    fn what_is_fast_enough_is_never_slow() {
        let mut pace = Pace::new(8);
        answer(&mut pace, 1, 1);
        answer(&mut pace, 100, 45);
        assert_eq!(pace.limit(), 8);
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Begin,
        Answer(usize, u64),
        Overload(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Begin),
            3 => (0..8_usize, 1..5_000_u64).prop_map(|(which, took)| Step::Answer(which, took)),
            1 => (0..8_usize).prop_map(Step::Overload),
        ]
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds_and_moves_in_small_steps_up_and_halves_down(
            max in 0..20_usize, steps in prop::collection::vec(step(), 0..400),
        ) {
            let mut pace = Pace::new(max);
            let mut open = Vec::new();
            for step in steps {
                let before = pace.limit();
                match step {
                    Step::Begin if open.len() < pace.limit() => open.push(pace.epoch()),
                    Step::Answer(which, took) if which < open.len() => {
                        pace.answered(open.swap_remove(which), CLASS, ms(took));
                    }
                    Step::Overload(which) if which < open.len() => {
                        pace.overloaded(open.swap_remove(which));
                    }
                    _ => {}
                }
                let after = pace.limit();
                prop_assert!((1..=max.max(1)).contains(&after));
                prop_assert!(after == before || after == before + 1 || after == (before / 2).max(1));
            }
        }

        #[test]
        fn steady_answers_reach_the_maximum_after_any_past(
            max in 1..20_usize, steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut pace = Pace::new(max);
            for step in steps {
                match step {
                    Step::Begin => {}
                    Step::Answer(_, took) => pace.answered(pace.epoch(), CLASS, ms(took)),
                    Step::Overload(_) => pace.overloaded(pace.epoch()),
                }
            }
            // One window ends the past, one more may be slow in comparison with it.
            answer(&mut pace, 100, 100);
            answer(&mut pace, (max + 1) * (max + 1) * ANSWERS_MIN, 100);
            prop_assert_eq!(pace.limit(), max);
        }
    }
}
