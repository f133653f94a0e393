//! Tells the senders of commands how they go on: progress, then done. For as long as this process
//! runs; the durable way is a sink with `filter.commands`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use kernel::event_presenter::{EventPresenter, Shown};
use kernel::event_tail::{Page, TailEvent};
use kernel::log::{CommandState, EventFilter};
use kernel::{App, Json, Key};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::model::AnswerBody;
use crate::ports::inward::{Reply, ReplyTo};

/// Commands that are followed at most; beyond them the oldest is not followed any more.
const FOLLOWED_MAX: usize = 10_000;
/// Events that are kept for a sender until it has its first answer.
const EARLY_MAX: usize = 64;
/// While the store is away.
const RETRY: Duration = Duration::from_secs(1);

/// The senders that wait for more than the first answer.
#[derive(Clone, Default)]
pub struct Followers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Counts those who were ever pending.
    numbers: u64,
    /// What happened before the first answer, by the id of the command and the number of its sender:
    /// several may have chosen the same id.
    pending: HashMap<String, HashMap<u64, Vec<Arc<TailEvent>>>>,
    /// By the object that the command has written, with the number of the sender.
    following: HashMap<Key, Vec<(u64, Follower)>>,
    count: usize,
}

/// A sender that waits for more than the first answer.
pub struct Follower {
    /// The id of its command.
    pub command: String,
    /// What it may see.
    pub presenter: EventPresenter,
    pub to: ReplyTo,
    pub replies: mpsc::Sender<Reply>,
    /// The newest event of the command that is known. What others did before it supersedes nothing.
    pub own: Option<i64>,
}

/// A command in work: what happens to it is kept until its sender has the first answer.
pub struct Pending {
    followers: Followers,
    command: String,
    number: u64,
}

impl Followers {
    /// Begins to keep what happens to a command.
    pub fn begin(&self, command: &str) -> Pending {
        let mut state = self.0.lock();
        state.numbers += 1;
        let number = state.numbers;
        state.pending.entry(command.to_owned()).or_default().insert(number, Vec::new());
        Pending { followers: self.clone(), command: command.to_owned(), number }
    }

    /// Reads the event log until `stop`.
    pub async fn run(&self, app: &App, stop: &CancellationToken) {
        let newest = app.store.wakeups().newest_event();
        let mut reader = app.tail().subscribe(newest, EventFilter::default());
        while !stop.is_cancelled() {
            match reader.next(100).await {
                Ok(Page::Events { events, more }) => {
                    events.iter().for_each(|event| self.see(event));
                    if events.is_empty() && !more {
                        stop.run_until_cancelled(reader.wait()).await;
                    }
                }
                Ok(Page::Expired { oldest }) => {
                    reader = app.tail().subscribe(oldest - 1, EventFilter::default());
                }
                Err(error) => {
                    tracing::warn!(%error, "reading events for senders of commands failed");
                    stop.run_until_cancelled(tokio::time::sleep(RETRY)).await;
                }
            }
        }
    }

    fn see(&self, event: &Arc<TailEvent>) {
        let Some(command) = &event.event.cause.command else { return };
        let mut state = self.0.lock();
        let early = state.pending.get_mut(command).into_iter().flat_map(HashMap::values_mut);
        early.filter(|early| early.len() < EARLY_MAX).for_each(|early| early.push(event.clone()));
        state.tell(event);
    }
}

impl State {
    fn take_early(&mut self, command: &str, number: u64) -> Vec<Arc<TailEvent>> {
        let Some(of_command) = self.pending.get_mut(command) else { return Vec::new() };
        let early = of_command.remove(&number).unwrap_or_default();
        if of_command.is_empty() {
            self.pending.remove(command);
        }
        early
    }

    fn tell(&mut self, event: &TailEvent) {
        self.retain(&event.event.subject, |_, follower| follower.tell(event));
    }

    fn add(&mut self, key: Key, number: u64, follower: Follower) {
        if self.count >= FOLLOWED_MAX {
            // Those of an object are in order.
            let first = |(key, followers): (&Key, &Vec<(u64, Follower)>)| {
                followers.first().map(|(number, _)| (*number, key.clone()))
            };
            let oldest = self.following.iter().filter_map(first).min_by_key(|(number, _)| *number);
            if let Some((number, key)) = oldest {
                self.retain(&key, |of, _| of != number);
            }
        }
        self.following.entry(key).or_default().push((number, follower));
        self.count += 1;
    }

    fn retain(&mut self, key: &Key, mut keep: impl FnMut(u64, &mut Follower) -> bool) {
        let Some(followers) = self.following.get_mut(key) else { return };
        let before = followers.len();
        followers.retain_mut(|(number, follower)| keep(*number, follower));
        self.count -= before - followers.len();
        if followers.is_empty() {
            self.following.remove(key);
        }
    }
}

impl Pending {
    /// Tells the sender, who has the first answer, how its command goes on with this object.
    pub fn follow(self, object: Key, mut follower: Follower) {
        let followers = self.followers.clone();
        let mut state = followers.0.lock();
        let early = state.take_early(&self.command, self.number);
        let mut of_object = early.iter().filter(|event| event.event.subject == object);
        if of_object.all(|event| follower.tell(event)) {
            state.add(object, self.number, follower);
        }
        // Before `self` is dropped, which takes the lock.
        drop(state);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.followers.0.lock().take_early(&self.command, self.number);
    }
}

impl Follower {
    /// Tells what happened to the object. Returns whether more is to come.
    fn tell(&mut self, event: &TailEvent) -> bool {
        let seq = event.event.seq;
        let same = event.event.cause.command.as_ref() == Some(&self.command);
        if same {
            self.own = self.own.max(Some(seq));
        } else if self.own.is_none_or(|own| seq < own) {
            return true;
        }
        let state = match event.event.command_state() {
            None => return true,
            Some(CommandState::Accepted) if same => return true,
            Some(state) if same => state,
            // How far an earlier command is.
            Some(CommandState::Progress) => return true,
            Some(_) => CommandState::Superseded,
        };
        let last = matches!(state, CommandState::Done | CommandState::Superseded);
        let hidden = Json::default();
        let body = match self.presenter.present(event) {
            Some(Shown::Whole) => &event.event.data,
            Some(Shown::Part(part)) => &part.data,
            None if last => &hidden,
            None => return true,
        };
        let (id, event_seq) = (&self.command, Some(seq));
        let answer = AnswerBody { id, state, status: None, body, event: event_seq };
        let body = Bytes::from(serde_json::to_vec(&answer).expect("our own types serialise"));
        let traceparent = event.event.cause.trace.map(|trace| trace.to_string());
        // A sender that reads too slowly misses some: nobody waits for it.
        let _ = self.replies.try_send(Reply { to: self.to.clone(), body, traceparent });
        !last && !self.replies.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use kernel::Timestamp;
    use kernel::change::{Cause, CommandRecord};
    use kernel::identity::Principal;
    use kernel::kind::Kinds;
    use kernel::log::{Effects, Event};
    use serde_json::{Value, json};

    use super::*;

    fn event(seq: i64, command: &str, effects: Effects) -> Arc<TailEvent> {
        let event = Event {
            seq,
            kind: "mainstay.widget.changed".into(),
            subject: Key::new("widget", "w"),
            org: "acme".into(),
            at: Timestamp(seq),
            data: Json::encode(&json!({"generation": 2, "observed": 1})),
            cause: Cause { command: Some(command.into()), trace: None },
            effects: Some(effects),
        };
        Arc::new(TailEvent { event, encoded: Default::default(), part: Default::default() })
    }

    fn accepted(seq: i64, command: &str) -> Arc<TailEvent> {
        event(
            seq,
            command,
            Effects { command: Some(CommandRecord::default()), ..Effects::default() },
        )
    }

    fn progress(seq: i64, command: &str) -> Arc<TailEvent> {
        event(seq, command, Effects::default())
    }

    fn done(seq: i64, command: &str) -> Arc<TailEvent> {
        event(seq, command, Effects { settles: true, ..Effects::default() })
    }

    fn follower(command: &str, replies: &mpsc::Sender<Reply>) -> Follower {
        let admin = Principal { roles: ["admin-full".into()].into(), ..Principal::default() };
        Follower {
            command: command.into(),
            presenter: EventPresenter::new(&Kinds::default(), Arc::new(admin)),
            to: ReplyTo { address: "answers".into(), correlation_id: None },
            replies: replies.clone(),
            own: None,
        }
    }

    fn sent(answers: &mut mpsc::Receiver<Reply>) -> Vec<String> {
        let answers = std::iter::from_fn(|| answers.try_recv().ok());
        let say = |reply: Reply| {
            let body: Value = serde_json::from_slice(&reply.body).expect("JSON");
            format!(
                "{} {}",
                body["id"].as_str().unwrap_or(""),
                body["state"].as_str().unwrap_or("")
            )
        };
        answers.map(say).collect()
    }

    #[test]
    fn only_a_command_after_ones_own_supersedes_it() {
        let (followers, (replies, mut answers)) = (Followers::default(), mpsc::channel(9));
        let key = Key::new("widget", "w");
        followers.begin("own").follow(key, follower("own", &replies));
        for before in [accepted(1, "earlier"), done(2, "earlier"), accepted(3, "own")] {
            followers.see(&before);
        }
        followers.see(&progress(4, "earlier"));
        assert_eq!(sent(&mut answers), [""; 0]);
        followers.see(&progress(5, "own"));
        followers.see(&accepted(6, "later"));
        followers.see(&done(7, "own"));
        assert_eq!(sent(&mut answers), ["own progress", "own superseded"]);
    }

    #[test]
    fn each_of_several_commands_about_an_object_gets_its_own_answers() {
        let (followers, (replies, mut answers)) = (Followers::default(), mpsc::channel(9));
        for command in ["a", "b"] {
            let key = Key::new("widget", "w");
            followers.begin(command).follow(key, follower(command, &replies));
        }
        for event in [accepted(1, "a"), accepted(2, "b"), done(3, "b")] {
            followers.see(&event);
        }
        assert_eq!(sent(&mut answers), ["a superseded", "b done"]);
        assert!(followers.0.lock().following.is_empty());
    }

    #[test]
    fn what_happens_before_the_first_answer_is_sent_after_it() {
        let (followers, (replies, mut answers)) = (Followers::default(), mpsc::channel(9));
        let (pending, other) = (followers.begin("a"), followers.begin("a"));
        for event in [accepted(1, "a"), progress(2, "a"), done(3, "a")] {
            followers.see(&event);
        }
        assert_eq!(sent(&mut answers), [""; 0]);
        pending.follow(Key::new("widget", "w"), follower("a", &replies));
        assert_eq!(sent(&mut answers), ["a progress", "a done"]);
        drop(other);
        let state = followers.0.lock();
        assert!(state.following.is_empty() && state.pending.is_empty());
    }

    #[test]
    fn the_oldest_is_not_followed_any_more_when_there_are_too_many() {
        let (followers, (replies, _answers)) = (Followers::default(), mpsc::channel(1));
        for n in 0..=FOLLOWED_MAX {
            let key = Key::new("widget", &n.to_string());
            followers.begin("a").follow(key, follower("a", &replies));
        }
        let state = followers.0.lock();
        assert_eq!((state.count, state.following.len()), (FOLLOWED_MAX, FOLLOWED_MAX));
        assert!(!state.following.contains_key(&Key::new("widget", "0")));
    }
}
