//! One instance's keeper: starts its process, watches it, starts it again, ends it. Everything
//! that is done to an instance is done here, one thing after the other.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernel::{Error, Result};
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::output::Output;
use super::process::{self, Identity, Owner};
use super::ready::Found;
use super::record::{Intent, Record};
use super::start::start;
use super::{House, State, Wanted};

/// After the first end it starts again almost at once; after many, rarely.
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Ready for so long: what ended it before is forgotten.
const GOOD_RUN: Duration = Duration::from_secs(30);

/// It may end so often in a row, though it was ready each time, before it counts as failed.
const RELAPSES: u32 = 3;

/// How often its output is looked at for its size.
const TRIM: Duration = Duration::from_secs(60);

/// When ending it did not work.
const AGAIN: Duration = Duration::from_secs(5);

pub struct Order {
    pub what: What,
    /// Answered when it is done; for [`What::Run`], when it will be done whatever happens.
    pub done: oneshot::Sender<Result<()>>,
}

pub enum What {
    Run(Wanted),
    Suspend,
    Remove,
}

pub struct Keeper {
    house: Arc<House>,
    id: String,
    dir: PathBuf,
    /// If it names a process, then one that we have seen alive.
    record: Record,
    orders: mpsc::Receiver<Order>,
    waiting: Vec<oneshot::Sender<Result<()>>>,
    /// An adopted process is nobody's child.
    child: Option<Child>,
    started: Instant,
    ready_since: Option<Instant>,
    /// How often it has ended without a good run between.
    streak: u32,
    not_before: Instant,
}

impl Keeper {
    /// Takes over what still runs.
    pub fn new(house: Arc<House>, mut record: Record, orders: mpsc::Receiver<Order>) -> Keeper {
        let now = Instant::now();
        let (mut ready_since, mut streak) = (None, 0);
        if let Some(attempt) = &mut record.attempt {
            attempt.process = attempt.process.take().filter(Identity::is_alive);
            match attempt.process {
                Some(_) => ready_since = attempt.ready.then_some(now),
                // It died while nobody looked.
                None => streak = 1,
            }
        }
        let id = record.wanted.id.clone();
        let dir = house.dir(&id);
        Keeper {
            house,
            id,
            dir,
            record,
            orders,
            waiting: Vec::new(),
            child: None,
            started: now,
            ready_since,
            streak,
            not_before: now,
        }
    }

    /// Until the instance is removed or the server stops, which leaves the process alone.
    pub async fn keep(mut self) {
        let stop = self.house.stop.clone();
        stop.run_until_cancelled(self.work()).await;
    }

    /// What can be said of it without waiting.
    pub fn first_state(&self) -> State {
        match self.record.intent {
            Intent::Run => self.ready().unwrap_or(State::Starting),
            Intent::Suspend | Intent::Remove => State::Gone,
        }
    }

    pub fn pid(&self) -> Option<u32> {
        self.process().map(|process| process.pid)
    }

    fn ready(&self) -> Option<State> {
        self.ready_since?;
        let found = Found::read(&self.dir, *self.record.ports.first()?).ok()?;
        Some(State::Ready { port: found.port, facts: found.facts })
    }

    fn process(&self) -> Option<&Identity> {
        self.record.attempt.as_ref()?.process.as_ref()
    }

    fn publish(&self, state: State) {
        self.house.publish(&self.id, state, self.pid());
    }

    async fn work(&mut self) {
        loop {
            let order = match self.record.intent {
                Intent::Run => Some(self.run().await),
                Intent::Suspend | Intent::Remove => {
                    let ended = self.leave().await;
                    let again = ended.is_err();
                    self.answer(ended);
                    if !again && self.record.intent == Intent::Remove {
                        return;
                    }
                    let patience = if again { AGAIN } else { Duration::MAX };
                    tokio::time::timeout(patience, next(&mut self.orders)).await.ok()
                }
            };
            if let Some(order) = order {
                self.take(order).await;
            }
        }
    }

    fn answer(&mut self, done: Result<()>) {
        let problem = done.err().map(|error| error.to_string());
        if let Some(problem) = &problem {
            tracing::error!(instance = self.id, problem, "an instance does not end");
        }
        for waiting in self.waiting.drain(..) {
            let failed = |what: &String| Error::Unavailable { what: what.clone(), source: None };
            let _ = waiting.send(problem.as_ref().map(failed).map_or(Ok(()), Err));
        }
    }

    async fn take(&mut self, order: Order) {
        let mut record = self.record.clone();
        let (removing, running) = (record.intent == Intent::Remove, record.intent == Intent::Run);
        match order.what {
            What::Run(_) if removing => {
                let problem = Error::Conflict(format!("instance {} is being removed", self.id));
                let _ = order.done.send(Err(problem));
            }
            What::Run(wanted) => {
                let before = std::mem::replace(&mut record.wanted, wanted);
                let wanted = &record.wanted;
                let other = before.command != wanted.command || before.env != wanted.env;
                record.intent = Intent::Run;
                let written = self.write(record).await;
                let go = written.is_ok() && (other || !running);
                let _ = order.done.send(written);
                if go {
                    (self.streak, self.not_before) = (0, Instant::now());
                    self.publish(State::Starting);
                }
                if go
                    && other
                    && let Err(error) = self.end(self.stop_patience()).await
                {
                    self.failed(error.to_string(), false);
                }
            }
            What::Suspend | What::Remove => {
                let suspend = matches!(order.what, What::Suspend) && !removing;
                record.intent = if suspend { Intent::Suspend } else { Intent::Remove };
                match self.write(record).await {
                    Ok(()) => self.waiting.push(order.done),
                    Err(error) => drop(order.done.send(Err(error))),
                }
            }
        }
    }

    async fn write(&mut self, record: Record) -> Result<()> {
        if record != self.record {
            self.house.write(record.clone()).await?;
            self.record = record;
        }
        Ok(())
    }

    /// Keeps it running until told otherwise.
    async fn run(&mut self) -> Order {
        loop {
            if self.process().is_none() {
                tokio::select! {
                    order = next(&mut self.orders) => return order,
                    () = tokio::time::sleep_until(self.not_before) => {}
                }
                if let Err(error) = self.begin().await {
                    self.failed(error.to_string(), false);
                    continue;
                }
            }
            match self.watch().await {
                Event::Told(order) => return order,
                Event::Ready(found) => self.became_ready(found).await,
                Event::Ended(reason) => {
                    let was_ready = self.ready_since.take();
                    if was_ready.is_some_and(|since| since.elapsed() > GOOD_RUN) {
                        self.streak = 0;
                    }
                    let reason = self.with_last_words(reason);
                    let ended = self.end(Duration::ZERO).await;
                    let reason = ended.err().map_or(reason, |error| error.to_string());
                    self.failed(reason, was_ready.is_some());
                }
                Event::Late(reason) => {
                    let reason = self.with_last_words(reason);
                    let ended = self.end(self.stop_patience()).await;
                    let reason = ended.err().map_or(reason, |error| error.to_string());
                    self.failed(reason, false);
                }
            }
        }
    }

    /// Starts the process, after what an earlier one left.
    async fn begin(&mut self) -> Result<()> {
        self.end(Duration::ZERO).await?;
        if self.streak > 0 {
            self.record.restarts = self.record.restarts.saturating_add(1);
        }
        self.started = Instant::now();
        self.child = Some(start(&self.house, &self.dir, &mut self.record).await?);
        self.house.publish_pid(&self.id, self.pid());
        Ok(())
    }

    async fn watch(&mut self) -> Event {
        let Keeper { orders, child, record, dir, .. } = self;
        let Some(attempt) = &record.attempt else {
            return Event::Ended("it was never started".into());
        };
        let Some(process) = &attempt.process else {
            return Event::Ended("it ended at once".into());
        };
        let ended = async {
            match child {
                Some(child) => match child.wait().await {
                    Ok(status) => format!("it ended with {status}"),
                    Err(error) => format!("it ended, nobody knows how: {error}"),
                },
                None => {
                    process.ended().await;
                    "it ended".to_owned()
                }
            }
        };
        let wanted = &record.wanted;
        let port = record.ports.first().copied().unwrap_or_default();
        let late = self.started + Duration::from_secs(wanted.start_s);
        let is_ready = self.ready_since.is_some();
        let readiness = async {
            if is_ready {
                loop {
                    tokio::time::sleep(TRIM).await;
                    if let Err(error) = Output::in_dir(dir).trim() {
                        tracing::warn!(dir = %dir.display(), %error, "the output grows");
                    }
                }
            }
            let mut pause = Duration::from_millis(10);
            loop {
                match wanted.ready.check(dir, port, attempt.output_from).await {
                    Ok(found) => return Event::Ready(found),
                    Err(why) if Instant::now() >= late => {
                        return Event::Late(format!(
                            "it was not ready after {} s: {why}",
                            wanted.start_s
                        ));
                    }
                    Err(_) => tokio::time::sleep(pause).await,
                }
                pause = (pause * 3 / 2).min(Duration::from_millis(250));
            }
        };
        tokio::select! {
            biased;
            reason = ended => Event::Ended(reason),
            order = next(orders) => Event::Told(order),
            event = readiness => event,
        }
    }

    async fn became_ready(&mut self, found: Found) {
        self.ready_since = Some(Instant::now());
        let mut record = self.record.clone();
        if let Some(attempt) = &mut record.attempt {
            attempt.ready = true;
        }
        if let Err(error) = self.write(record).await {
            // Found out again by the next server; this one knows.
            tracing::warn!(instance = self.id, %error, "cannot note that an instance is ready");
        }
        tracing::info!(instance = self.id, port = found.port, "an instance is ready");
        self.publish(State::Ready { port: found.port, facts: found.facts });
    }

    fn failed(&mut self, reason: String, was_ready: bool) {
        self.streak = self.streak.saturating_add(1);
        let delay = BACKOFF.saturating_mul(1 << (self.streak - 1).min(16)).min(BACKOFF_MAX);
        let delay = delay.mul_f64(0.75 + self.house.ambient.fraction() / 2.0);
        self.not_before = Instant::now() + delay;
        tracing::warn!(instance = self.id, reason, again = ?delay, "an instance does not run");
        self.publish(match was_ready && self.streak <= RELAPSES {
            true => State::Starting,
            false => State::Failed { reason, restarts: self.record.restarts },
        });
    }

    fn with_last_words(&self, reason: String) -> String {
        let from = self.record.attempt.as_ref().map_or(0, |attempt| attempt.output_from);
        let words = Output::in_dir(&self.dir).tail(5, from).join(" / ");
        match words.is_empty() {
            true => reason,
            false => format!("{reason}; its last words: {}", shortened(&words)),
        }
    }

    fn stop_patience(&self) -> Duration {
        Duration::from_secs(self.record.wanted.stop_s)
    }

    /// Ends every process of it; after `patience` without mercy.
    async fn end(&mut self, patience: Duration) -> Result<()> {
        let Some(attempt) = &self.record.attempt else { return Ok(()) };
        let owner = Owner {
            mark: format!("{}:{}", self.id, attempt.nonce),
            group: attempt.process.as_ref().map(|process| process.pid),
        };
        process::end(owner, patience).await.map_err(|error| {
            Error::unavailable(format!("the end of instance {} ({error})", self.id), error)
        })?;
        if let Some(mut child) = self.child.take() {
            // It has ended: this only takes it out of the table.
            let _ = child.wait().await;
        }
        self.record.attempt = None;
        self.ready_since = None;
        self.house.publish_pid(&self.id, None);
        Ok(())
    }

    /// For one that shall not run: nothing of it does any more, and if it shall be removed,
    /// nothing of it is left.
    async fn leave(&mut self) -> Result<()> {
        if self.record.attempt.is_some() {
            self.end(self.stop_patience()).await?;
            self.house.write(self.record.clone()).await?;
        }
        if self.record.intent == Intent::Remove {
            self.house.delete(&self.id).await?;
            self.house.ports.give_back(&self.record.ports);
            self.house.forget(&self.id);
        } else {
            self.publish(State::Gone);
        }
        Ok(())
    }
}

enum Event {
    Told(Order),
    Ready(Found),
    Ended(String),
    Late(String),
}

/// The sender is kept as long as the instance is: there is always a next one to wait for.
async fn next(orders: &mut mpsc::Receiver<Order>) -> Order {
    match orders.recv().await {
        Some(order) => order,
        None => std::future::pending().await,
    }
}

/// The end says more than the beginning.
fn shortened(words: &str) -> String {
    const LENGTH: usize = 1_000;
    match words.char_indices().rev().nth(LENGTH) {
        Some((from, _)) => format!("…{}", &words[from..]),
        None => words.to_owned(),
    }
}
