//! A queue row and its transitions. Pure: every store applies the same functions, with the times of
//! its own clock.
//!
//! A row says only which key to reconcile, never what changed. There is one row per key, so a key
//! is never reconciled twice at once; the lane is its priority.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::change::{Lane, Outcome};
use crate::{Key, Timestamp};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkState)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Due: claimed by the next free worker.
    Ready,
    /// Becomes ready at `due`.
    Waiting,
    /// Claimed; `due` is when the lease ends.
    Running,
    /// Needs a person.
    Stopped,
}

impl State {
    /// The stored representation.
    pub fn number(self) -> i16 {
        match self {
            State::Ready => 0,
            State::Waiting => 1,
            State::Running => 2,
            State::Stopped => 3,
        }
    }

    /// The label of metrics.
    pub fn label(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Waiting => "waiting",
            State::Running => "running",
            State::Stopped => "stopped",
        }
    }

    pub fn from_number(number: i16) -> State {
        match number {
            0 => State::Ready,
            1 => State::Waiting,
            2 => State::Running,
            _ => State::Stopped,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueRow {
    pub key: Key,
    pub org: String,
    pub lane: Lane,
    pub state: State,
    pub paused: bool,
    /// Null while stopped: only a person or a change makes it due again.
    #[schema(nullable)]
    pub due: Timestamp,
    /// Failed attempts in a row.
    pub attempt: i32,
    /// The number of the claim that may complete this row. Never given twice.
    pub fence: i64,
    /// The process that claimed it last.
    pub worker: String,
    /// A wake-up that came during the attempt.
    pub woken: Option<Timestamp>,
    /// Why it is retrying, stopped or paused.
    pub reason: String,
    /// How far the attempt is, or what goes on outside until the next one.
    #[serde(default)]
    pub note: String,
}

impl QueueRow {
    pub fn new(key: Key, org: &str) -> QueueRow {
        QueueRow {
            key,
            org: org.into(),
            lane: Lane::Normal,
            state: State::Stopped,
            paused: false,
            due: Timestamp::MAX,
            attempt: 0,
            fence: 0,
            worker: String::new(),
            woken: None,
            reason: String::new(),
            note: String::new(),
        }
    }

    /// Ready now, or waiting until `due`.
    fn at(&mut self, due: Timestamp, now: Timestamp) {
        self.due = due;
        self.state = if due <= now { State::Ready } else { State::Waiting };
    }

    /// Clears the reason, unless it explains a pause.
    fn clear_reason(&mut self) {
        if !self.paused {
            self.reason.clear();
        }
    }

    /// Excludes the row from claims until it is resumed.
    pub fn pause(&mut self, reason: &str) {
        self.paused = true;
        self.reason = reason.into();
    }

    pub fn resume(&mut self, now: Timestamp) {
        self.paused = false;
        if self.attempt == 0 {
            self.reason.clear();
        }
        self.wake(self.lane, now, now);
    }

    /// Clears the note of what goes on: it was said before whatever changed now.
    pub fn wake(&mut self, lane: Lane, due: Timestamp, now: Timestamp) {
        self.lane = self.lane.min(lane);
        if self.state != State::Running {
            self.note.clear();
        }
        match self.state {
            State::Running => {
                self.woken = Some(self.woken.map_or(due, |at| at.min(due)));
            }
            State::Ready => {}
            State::Waiting => self.at(self.due.min(due), now),
            State::Stopped => {
                self.clear_reason();
                self.attempt = 0;
                self.at(due, now);
            }
        }
    }

    /// Ends an attempt. `None`: the row is removed.
    pub fn complete(mut self, outcome: &Outcome, now: Timestamp) -> Option<QueueRow> {
        let woken = self.woken.take();
        self.note.clear();
        self.clear_reason();
        if !matches!(outcome, Outcome::Retry { .. }) {
            self.attempt = 0;
            // A wake-up during the attempt may have been urgent.
            if woken.is_none() {
                self.lane = Lane::Normal;
            }
        }
        match (outcome, woken) {
            (Outcome::Done, None) if self.paused => self.at(now, now),
            (Outcome::Done, None) => return None,
            (Outcome::Done | Outcome::Stopped { .. }, Some(woken)) => self.at(woken, now),
            (Outcome::RequeueAt { at }, woken) => {
                self.at(woken.map_or(*at, |woken| woken.min(*at)), now);
            }
            (Outcome::Pending { at, note }, woken) => {
                if woken.is_none() {
                    self.note.clone_from(note);
                }
                self.at(woken.map_or(*at, |woken| woken.min(*at)), now);
            }
            (Outcome::Retry { at, reason }, woken) => {
                self.attempt = self.attempt.saturating_add(1);
                self.reason.clone_from(reason);
                self.at(woken.map_or(*at, |woken| woken.min(*at)), now);
            }
            (Outcome::Stopped { reason }, None) => {
                self.state = State::Stopped;
                self.due = Timestamp::MAX;
                self.reason.clone_from(reason);
            }
        }
        Some(self)
    }

    pub fn claim(&mut self, worker: &str, fence: i64, lease_until: Timestamp) {
        self.state = State::Running;
        self.worker = worker.into();
        self.fence = fence;
        self.due = lease_until;
        self.woken = None;
    }

    /// Handles a due time that has passed: a wait is over, or a lease expired.
    pub fn promote(&mut self, now: Timestamp) {
        match self.state {
            State::Waiting => self.at(self.due.min(now), now),
            State::Running => {
                self.attempt = self.attempt.saturating_add(1);
                self.reason = format!("the lease of {} expired", self.worker);
                self.woken = None;
                self.at(now, now);
            }
            State::Ready | State::Stopped => {}
        }
    }
}

/// What a driver asks the queue for.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    pub worker: String,
    /// The most rows, of any lane.
    pub slots: usize,
    /// How many of them may be of the normal lane.
    pub slots_normal: usize,
    /// How long the leases are.
    pub ttl: Duration,
}

/// The organisation that was served last, by lane.
#[derive(Debug, Default, Clone)]
pub(crate) struct FairnessCursor {
    pub last_org: [String; 2],
}

/// A key that this worker holds until its lease ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    pub key: Key,
    pub org: String,
    pub lane: Lane,
    pub fence: i64,
    pub attempt: i32,
    pub due: Timestamp,
    /// What the attempt before said of itself.
    pub note: String,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClaimBatch {
    /// The time of the claim, by the store's clock, as all times here.
    pub now: Timestamp,
    pub claims: Vec<Claim>,
    /// When the next row is due, as far as the store knows; sooner if a wake-up comes.
    pub next_due: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Change;
    use crate::admission::{BatchState, Clocks, Tracked};
    use crate::change::{Wake, Work};

    const NOW: Timestamp = Timestamp(1000);
    const LATER: Timestamp = Timestamp(5000);

    fn running() -> QueueRow {
        let mut row = QueueRow::new(Key::new("widget", "a"), "acme");
        row.claim("w1", 7, Timestamp(2000));
        row
    }

    fn wake(row: &mut QueueRow, due: Timestamp) {
        row.wake(Lane::Normal, due, NOW);
    }

    #[test]
    fn a_wake_up_during_work_is_never_lost_whatever_the_outcome() {
        let outcomes = [
            Outcome::Done,
            Outcome::RequeueAt { at: LATER },
            Outcome::Pending { at: LATER, note: "it builds".into() },
            Outcome::Retry { at: LATER, reason: "x".into() },
            Outcome::Stopped { reason: "x".into() },
        ];
        for outcome in outcomes {
            let mut row = running();
            wake(&mut row, NOW);
            let row = row.complete(&outcome, NOW).expect("the row stays");
            assert_eq!((row.state, row.due), (State::Ready, NOW), "after {outcome:?}");
        }
    }

    #[test]
    fn done_without_a_wake_up_removes_the_row() {
        assert_eq!(running().complete(&Outcome::Done, NOW), None);
    }

    #[test]
    fn what_goes_on_outside_is_not_a_failure_and_says_what_it_is() {
        let mut row = running();
        row.attempt = 3;
        let note = "it builds".to_owned();
        let row = row.complete(&Outcome::Pending { at: LATER, note }, NOW).expect("the row stays");
        assert_eq!((row.state, row.due, row.attempt), (State::Waiting, LATER, 0));
        assert_eq!((row.note.as_str(), row.reason.as_str()), ("it builds", ""));
        let mut row = row;
        row.claim("w1", 8, Timestamp(9000));
        assert_eq!(row.note, "it builds", "until an attempt has seen that it is over");
        let mut woken = row.clone();
        woken.wake(Lane::Normal, NOW, NOW);
        let pending = Outcome::Pending { at: LATER, note: "it builds".into() };
        assert_eq!(woken.complete(&pending, NOW).unwrap().note, "", "said before the wake-up");
        let row = row.complete(&Outcome::RequeueAt { at: LATER }, NOW).expect("the row stays");
        assert_eq!(row.note, "");
    }

    #[test]
    fn a_stopped_row_starts_again_when_something_changes() {
        let mut row = running().complete(&Outcome::Stopped { reason: "bad".into() }, NOW).unwrap();
        assert_eq!(row.state, State::Stopped);
        wake(&mut row, NOW);
        assert_eq!((row.state, row.reason.as_str()), (State::Ready, ""));
    }

    #[test]
    fn an_expired_lease_releases_the_key_and_counts_as_a_failure() {
        let mut row = running();
        row.promote(Timestamp(2000));
        assert_eq!((row.state, row.attempt), (State::Ready, 1));
    }

    #[test]
    fn an_earlier_wake_up_wins_and_a_later_one_does_not_delay() {
        let mut row = running().complete(&Outcome::RequeueAt { at: LATER }, NOW).unwrap();
        wake(&mut row, Timestamp(9000));
        assert_eq!(row.due, LATER);
        wake(&mut row, Timestamp(3000));
        assert_eq!((row.state, row.due), (State::Waiting, Timestamp(3000)));
    }

    #[test]
    fn an_urgent_wake_up_during_work_stays_urgent() {
        let mut row = running();
        row.wake(Lane::Urgent, NOW, NOW);
        let row = row.complete(&Outcome::Done, NOW).expect("the row stays");
        assert_eq!((row.state, row.lane), (State::Ready, Lane::Urgent));
        let mut row = row;
        row.claim("w1", 8, Timestamp(2000));
        let row = row.complete(&Outcome::RequeueAt { at: LATER }, NOW).expect("the row stays");
        assert_eq!(row.lane, Lane::Normal, "a completed row is back in the normal lane");
    }

    #[test]
    fn a_paused_row_says_why_until_it_is_resumed() {
        let mut row = running();
        (row.paused, row.reason) = (true, "new disk".into());
        let mut row = row.complete(&Outcome::Done, NOW).expect("the pause is kept");
        assert_eq!(row.reason, "new disk");
        wake(&mut row, NOW);
        assert_eq!(row.reason, "new disk");
        row.resume(NOW);
        assert_eq!((row.paused, row.reason.as_str(), row.state), (false, "", State::Ready));
    }

    #[derive(Debug, Clone)]
    enum Act {
        Pass(i64),
        Wake { due_in: i64 },
        Claim,
        Settle(Outcome),
        Pause,
        Resume,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let outcome = prop_oneof![
            Just(Outcome::Done),
            (0..9000_i64).prop_map(|at| Outcome::RequeueAt { at: Timestamp(at) }),
            (0..9000_i64).prop_map(|at| Outcome::Retry { at: Timestamp(at), reason: "r".into() }),
            (0..9000_i64).prop_map(|at| Outcome::Pending { at: Timestamp(at), note: "n".into() }),
            Just(Outcome::Stopped { reason: "s".into() }),
        ];
        let act = prop_oneof![
            (-500..2000_i64).prop_map(Act::Pass),
            (-100..3000_i64).prop_map(|due_in| Act::Wake { due_in }),
            Just(Act::Claim),
            outcome.prop_map(Act::Settle),
            Just(Act::Pause),
            Just(Act::Resume),
        ];
        proptest::collection::vec(act, 1..40)
    }

    fn applied(
        row: Option<QueueRow>,
        work: Option<Work>,
        wakes: Vec<Wake>,
        now: Timestamp,
    ) -> BatchState {
        let mut rows = BatchState::default();
        rows.queue.extend(row.map(|row| (row.key.clone(), Tracked::loaded(row))));
        let change = Change { work, wakes, ..Change::default() };
        let _ = rows.admit(&[change], Clocks { caller: now, store: now });
        rows
    }

    proptest! {
        /// From a wake-up until the next claim, the row exists and becomes due in time.
        #[test]
        fn a_wake_up_is_never_lost_whatever_happens(acts in acts()) {
            let key = Key::new("widget", "a");
            let (mut row, mut now, mut fence) = (None::<QueueRow>, NOW, 0);
            let mut wanted: Option<Timestamp> = None;
            for act in acts {
                let change = match &act {
                    Act::Wake { due_in } => {
                        let due = Timestamp(now.0 + due_in);
                        wanted = Some(wanted.map_or(due, |wanted| wanted.min(due)));
                        Some((None, vec![Wake::new(key.clone(), "acme", due)]))
                    }
                    Act::Settle(outcome) => {
                        let (key, outcome) = (key.clone(), outcome.clone());
                        Some((Some(Work::Complete { key, fence, outcome }), vec![]))
                    }
                    Act::Pause => {
                        let (org, reason) = ("acme".into(), "by hand".into());
                        Some((Some(Work::Pause { key: key.clone(), org, reason }), vec![]))
                    }
                    Act::Resume => Some((Some(Work::Resume { key: key.clone() }), vec![])),
                    Act::Pass(_) | Act::Claim => None,
                };
                if let Some((work, wakes)) = change {
                    let rows = applied(row.take(), work, wakes, now);
                    row = rows.queue.get(&key).and_then(|tracked| tracked.after.clone());
                }
                if let Act::Pass(ms) = act {
                    now.0 += ms;
                }
                if let (Act::Claim, Some(row)) = (&act, &mut row) {
                    if row.due <= now {
                        row.promote(now);
                    }
                    if row.state == State::Ready && !row.paused {
                        fence += 1;
                        row.claim("w", fence, now.plus(Duration::from_secs(1)));
                        wanted = None;
                    }
                }
                if let Some(wanted) = wanted {
                    let row = row.as_ref().expect("a row that was woken stays");
                    let kept = match row.state {
                        State::Ready => true,
                        State::Waiting => row.due <= wanted,
                        State::Running => row.woken.is_some_and(|woken| woken <= wanted),
                        State::Stopped => false,
                    };
                    prop_assert!(kept, "{row:?} although it was due at {wanted:?}");
                }
            }
        }
    }
}
