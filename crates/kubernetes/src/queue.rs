//! A keyed work queue: each key is queued once and processed by one worker at a time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use kernel::{Ambient, Backoff};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The delays of retries.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(30) };
/// Items that were acted on more often without a pause get the low lane, so that an object that
/// fails without end does not delay others. The start of a stream takes four attempts.
const ACTIVITY_MAX: f32 = 8.0;
/// The half-life of an item's activity.
const ACTIVITY_HALF_LIFE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// A user waits for it.
    Urgent,
    /// The state of the cluster changed.
    Normal,
    /// Nobody waits for it.
    Low,
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// Nothing to do, until the given time if there is one.
    Done(Option<Instant>),
    /// More to do now.
    Requeue(Lane),
    /// A step failed. It is retried after the backoff, at the earliest after the given time.
    Retry(&'static str, Duration),
}

pub struct Queue<T> {
    inner: Mutex<Inner<T>>,
    wake: Notify,
    ambient: Ambient,
}

struct Inner<T> {
    /// Items are accepted only while this process leads.
    open: bool,
    lanes: [VecDeque<T>; 3],
    entries: HashMap<T, Entry>,
    /// Scheduled items. Numbered, since items have no order.
    due: BTreeMap<DueKey, T>,
    last_number: u64,
    taken: u64,
}

type DueKey = (Instant, u64);

#[derive(Default)]
struct Entry {
    /// The lane in which it waits.
    lane: Option<Lane>,
    busy: bool,
    /// Enqueued while it was being processed.
    again: Option<Lane>,
    due: Option<DueKey>,
    /// The failing step and its consecutive failures.
    failed: (&'static str, u32),
    activity: f32,
    active_at: Option<Instant>,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.lane.is_none() && !self.busy && self.due.is_none()
    }

    fn activity(&self, now: Instant) -> f32 {
        let Some(active_at) = self.active_at else { return 0.0 };
        let half_lives = (now - active_at).as_secs_f32() / ACTIVITY_HALF_LIFE.as_secs_f32();
        self.activity * 0.5_f32.powf(half_lives)
    }
}

impl<T: Clone + Eq + Hash> Queue<T> {
    pub fn new(ambient: Ambient) -> Queue<T> {
        let inner = Inner {
            open: false,
            lanes: Default::default(),
            entries: HashMap::new(),
            due: BTreeMap::new(),
            last_number: 0,
            taken: 0,
        };
        Queue { inner: Mutex::new(inner), wake: Notify::new(), ambient }
    }

    /// Starts to accept and hand out items.
    pub fn open(&self) {
        self.inner.lock().open = true;
        self.wake.notify_one();
    }

    /// Drops all items and stops accepting them.
    pub fn close(&self) {
        let mut inner = self.inner.lock();
        inner.open = false;
        inner.lanes.iter_mut().for_each(VecDeque::clear);
        inner.due.clear();
        inner.entries.retain(|_, entry| {
            *entry = Entry { busy: entry.busy, ..Entry::default() };
            entry.busy
        });
    }

    pub fn push(&self, item: T, lane: Lane) {
        let mut inner = self.inner.lock();
        if inner.open {
            inner.push(item, lane);
            drop(inner);
            self.wake.notify_one();
        }
    }

    /// The numbers of waiting items and of items in process.
    pub fn depth(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        let waiting = inner.entries.values().filter(|entry| entry.lane.is_some()).count();
        (waiting, inner.entries.values().filter(|entry| entry.busy).count())
    }

    /// Waits for the next item.
    pub async fn pop(&self) -> (T, Lane) {
        loop {
            let wake = self.wake.notified();
            if let Some(taken) = self.try_pop() {
                return taken;
            }
            let due = {
                let inner = self.inner.lock();
                inner.due.first_key_value().map(|((due, _), _)| *due).filter(|_| inner.open)
            };
            match due {
                Some(due) => tokio::select! {
                    () = wake => {}
                    () = tokio::time::sleep_until(due) => {}
                },
                None => wake.await,
            }
        }
    }

    /// The next item, if one is waiting.
    pub fn try_pop(&self) -> Option<(T, Lane)> {
        let mut inner = self.inner.lock();
        inner.promote(Instant::now());
        let taken = inner.pop()?;
        let more = inner.lanes.iter().any(|lane| !lane.is_empty());
        drop(inner);
        // One notification may stand for several items.
        if more {
            self.wake.notify_one();
        }
        Some(taken)
    }

    /// Ends an attempt; `acted` says whether it did anything.
    pub fn finish(&self, item: &T, outcome: Outcome, acted: bool) {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let open = inner.open;
        let Some(entry) = inner.entries.get_mut(item) else { return };
        entry.busy = false;
        if acted {
            entry.activity = entry.activity(now) + 1.0;
            entry.active_at = Some(now);
        }
        let again = entry.again.take();
        let mut due = None;
        let mut lane = again;
        match outcome {
            Outcome::Done(at) => {
                entry.failed = Default::default();
                due = at;
            }
            Outcome::Requeue(least) => lane = Some(again.map_or(least, |again| again.min(least))),
            Outcome::Retry(step, at_least) => {
                // Another step failed, so the previous one succeeded, though its response may be
                // lost.
                let before = if entry.failed.0 == step { entry.failed.1 } else { 0 };
                entry.failed = (step, before.saturating_add(1));
                let delay = BACKOFF.delay(before, self.ambient.fraction());
                due = Some(now + delay.max(at_least));
                // Otherwise frequent events would cause retries without a pause.
                lane = lane.filter(|_| at_least.is_zero());
            }
        }
        let idle = lane.is_none() && due.is_none() && entry.activity(now) < 1.0;
        if !open || idle {
            inner.entries.remove(item);
            return;
        }
        match (lane, due) {
            (Some(lane), _) => inner.push(item.clone(), lane),
            (None, Some(due)) => inner.schedule(item, due),
            (None, None) => return,
        }
        drop(inner);
        self.wake.notify_one();
    }

    /// Drops the records of idle items.
    pub fn sweep(&self) {
        let now = Instant::now();
        let cool = |entry: &Entry| entry.is_idle() && entry.activity(now) < 1.0;
        self.inner.lock().entries.retain(|_, entry| !cool(entry));
    }
}

impl<T: Clone + Eq + Hash> Inner<T> {
    fn push(&mut self, item: T, lane: Lane) {
        let entry = self.entries.entry(item.clone()).or_default();
        if entry.busy {
            entry.again = Some(entry.again.map_or(lane, |again| again.min(lane)));
            return;
        }
        let lane = if entry.activity(Instant::now()) > ACTIVITY_MAX { Lane::Low } else { lane };
        if let Some(due) = entry.due.take() {
            self.due.remove(&due);
        }
        // Its previous entry in another lane is skipped when it is reached.
        if entry.lane.is_none_or(|before| lane < before) {
            entry.lane = Some(lane);
            self.lanes[lane as usize].push_back(item);
        }
    }

    fn schedule(&mut self, item: &T, due: Instant) {
        self.last_number += 1;
        let due = (due, self.last_number);
        let Some(entry) = self.entries.get_mut(item) else { return };
        if let Some(before) = entry.due.replace(due) {
            self.due.remove(&before);
        }
        self.due.insert(due, item.clone());
    }

    fn promote(&mut self, now: Instant) {
        while let Some(first) = self.due.first_entry().filter(|first| first.key().0 <= now) {
            let item = first.remove();
            if let Some(entry) = self.entries.get_mut(&item) {
                entry.due = None;
            }
            self.push(item, Lane::Normal);
        }
    }

    /// Prefers urgent items, but serves every lane.
    fn pop(&mut self) -> Option<(T, Lane)> {
        if !self.open {
            return None;
        }
        self.taken += 1;
        let order = match self.taken % 8 {
            0 => [Lane::Low, Lane::Normal, Lane::Urgent],
            3 | 6 => [Lane::Normal, Lane::Urgent, Lane::Low],
            _ => [Lane::Urgent, Lane::Normal, Lane::Low],
        };
        for lane in order {
            while let Some(item) = self.lanes[lane as usize].pop_front() {
                let Some(entry) = self.entries.get_mut(&item) else { continue };
                if entry.lane == Some(lane) {
                    entry.lane = None;
                    entry.busy = true;
                    return Some((item, lane));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Queue<u32> {
        let queue = Queue::new(Ambient::seeded(|| kernel::Timestamp(0), 1));
        queue.open();
        queue
    }

    async fn next(queue: &Queue<u32>) -> Option<u32> {
        let waited = tokio::time::timeout(Duration::from_millis(1), queue.pop()).await;
        waited.ok().map(|(item, _)| item)
    }

    #[tokio::test(start_paused = true)]
    async fn each_item_is_handed_out_once_and_to_one_worker_at_a_time() {
        let queue = queue();
        for _ in 0..3 {
            queue.push(1, Lane::Normal);
        }
        assert_eq!(next(&queue).await, Some(1));
        queue.push(1, Lane::Normal);
        assert_eq!(next(&queue).await, None, "it is being processed");
        queue.finish(&1, Outcome::Done(None), false);
        assert_eq!(next(&queue).await, Some(1), "it was enqueued meanwhile");
        queue.finish(&1, Outcome::Done(None), false);
        assert_eq!(next(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_items_go_before_a_thousand_that_fail_without_end() {
        let queue = queue();
        // All of them were acted on many times, and are due again.
        for _ in 0..20 {
            for item in 1..=1000 {
                queue.push(item, Lane::Urgent);
            }
            while let Some(item) = next(&queue).await {
                queue.finish(&item, Outcome::Done(None), true);
            }
        }
        for item in 1..=1000 {
            queue.push(item, Lane::Urgent);
        }
        queue.push(5000, Lane::Urgent);
        queue.push(5001, Lane::Normal);
        let mut first = Vec::new();
        for _ in 0..4 {
            first.extend(next(&queue).await);
        }
        assert!(first.contains(&5000) && first.contains(&5001), "{first:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn every_lane_is_served() {
        let queue = queue();
        for item in 0..100 {
            queue.push(item, Lane::Urgent);
        }
        queue.push(1000, Lane::Low);
        queue.push(2000, Lane::Normal);
        let mut first = Vec::new();
        for _ in 0..16 {
            first.extend(next(&queue).await);
        }
        assert!(first.contains(&1000) && first.contains(&2000), "{first:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn retries_back_off_and_an_event_ends_the_wait() {
        let queue = queue();
        queue.push(1, Lane::Normal);
        let mut waits = Vec::new();
        for _ in 0..14 {
            let begun = Instant::now();
            let (item, _) = queue.pop().await;
            waits.push(begun.elapsed());
            queue.finish(&item, Outcome::Retry("step", Duration::ZERO), true);
        }
        assert!(waits[3] > waits[1], "{waits:?}");
        let last = waits[13];
        assert!(last <= BACKOFF.longest && last >= BACKOFF.longest / 2, "{waits:?}");
        queue.push(1, Lane::Urgent);
        assert_eq!(next(&queue).await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn only_repeated_failures_of_one_step_back_off() {
        let queue = queue();
        queue.push(1, Lane::Normal);
        for i in 0..20 {
            let begun = Instant::now();
            let (item, _) = queue.pop().await;
            assert!(begun.elapsed() <= 2 * BACKOFF.first, "{:?}", begun.elapsed());
            let step = ["start Job", "set status"][i / 2 % 2];
            queue.finish(&item, Outcome::Retry(step, Duration::ZERO), true);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_requested_delay_is_respected() {
        let queue = queue();
        queue.push(1, Lane::Normal);
        assert_eq!(next(&queue).await, Some(1));
        queue.push(1, Lane::Normal);
        let begun = Instant::now();
        queue.finish(&1, Outcome::Retry("step", Duration::from_secs(7)), true);
        queue.pop().await;
        assert!(begun.elapsed() >= Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_scheduled_item_is_handed_out_at_its_time() {
        let queue = queue();
        queue.push(1, Lane::Normal);
        assert_eq!(next(&queue).await, Some(1));
        let due = Instant::now() + Duration::from_secs(3600);
        queue.finish(&1, Outcome::Done(Some(due)), false);
        assert_eq!(next(&queue).await, None);
        assert_eq!(queue.pop().await.0, 1);
        assert!(Instant::now() >= due);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_queue_drops_its_items_and_hands_out_nothing() {
        let queue = queue();
        queue.push(1, Lane::Urgent);
        queue.push(2, Lane::Urgent);
        assert_eq!(next(&queue).await, Some(1));
        queue.close();
        queue.push(3, Lane::Urgent);
        assert_eq!(next(&queue).await, None);
        queue.finish(&1, Outcome::Requeue(Lane::Urgent), true);
        queue.open();
        assert_eq!(next(&queue).await, None);
        queue.push(1, Lane::Normal);
        assert_eq!(next(&queue).await, Some(1));
    }
}
