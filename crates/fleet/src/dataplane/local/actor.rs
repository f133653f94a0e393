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
use super::readiness::ReadinessFile;
use super::record::{Intent, Record};
use super::start::start;
use super::{ProcessSpec, State, SupervisorInner};
use crate::ports::process::{self, Identity, Owner};

/// After the first end it starts again almost at once; after many, rarely.
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Ready for so long: what ended it before is forgotten.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// It may end so often in a row, though it was ready each time, before it counts as failed.
const CRASHES_MAX: u32 = 3;

/// How often its output is looked at for its size.
const TRIM_INTERVAL: Duration = Duration::from_secs(60);

/// When ending it did not work.
const RETRY_STOP: Duration = Duration::from_secs(5);

pub struct Request {
    pub operation: Operation,
    /// Answered when it is done; for [`What::Run`], when it will be done whatever happens.
    pub done: oneshot::Sender<Result<()>>,
}

pub enum Operation {
    Run(ProcessSpec),
    Suspend,
    Remove,
}

pub struct ProcessActor {
    inner: Arc<SupervisorInner>,
    id: String,
    dir: PathBuf,
    /// If it names a process, then one that we have seen alive.
    record: Record,
    requests: mpsc::Receiver<Request>,
    waiting: Vec<oneshot::Sender<Result<()>>>,
    /// An adopted process is nobody's child.
    child: Option<Child>,
    started: Instant,
    ready_since: Option<Instant>,
    /// How often it has ended without a good run between.
    failures: u32,
    not_before: Instant,
}

impl ProcessActor {
    /// Takes over what still runs.
    pub fn new(
        inner: Arc<SupervisorInner>,
        mut record: Record,
        requests: mpsc::Receiver<Request>,
    ) -> ProcessActor {
        let now = Instant::now();
        let (mut ready_since, mut failures) = (None, 0);
        if let Some(attempt) = &mut record.attempt {
            attempt.process = attempt.process.take().filter(Identity::is_alive);
            match attempt.process {
                Some(_) => ready_since = attempt.ready.then_some(now),
                // It died while nobody looked.
                None => failures = 1,
            }
        }
        let id = record.spec.id.clone();
        let dir = inner.dir(&id);
        ProcessActor {
            inner,
            id,
            dir,
            record,
            requests,
            waiting: Vec::new(),
            child: None,
            started: now,
            ready_since,
            failures,
            not_before: now,
        }
    }

    /// Until the instance is removed or the server stops, which leaves the process alone.
    pub async fn supervise(mut self) {
        let stop = self.inner.stop.clone();
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
        let found = ReadinessFile::read(&self.dir, *self.record.ports.first()?).ok()?;
        Some(State::Ready { port: found.port, facts: found.facts })
    }

    fn process(&self) -> Option<&Identity> {
        self.record.attempt.as_ref()?.process.as_ref()
    }

    fn publish(&self, state: State) {
        self.inner.publish(&self.id, state, self.pid());
    }

    async fn work(&mut self) {
        loop {
            let request = match self.record.intent {
                Intent::Run => Some(self.run().await),
                Intent::Suspend | Intent::Remove => {
                    let ended = self.stop_or_remove().await;
                    let again = ended.is_err();
                    self.answer(ended);
                    if !again && self.record.intent == Intent::Remove {
                        return;
                    }
                    let grace = if again { RETRY_STOP } else { Duration::MAX };
                    tokio::time::timeout(grace, next(&mut self.requests)).await.ok()
                }
            };
            if let Some(request) = request {
                self.handle(request).await;
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

    async fn handle(&mut self, request: Request) {
        let mut record = self.record.clone();
        let (removing, running) = (record.intent == Intent::Remove, record.intent == Intent::Run);
        match request.operation {
            Operation::Run(_) if removing => {
                let problem = Error::Conflict(format!("instance {} is being removed", self.id));
                let _ = request.done.send(Err(problem));
            }
            Operation::Run(spec) => {
                let before = std::mem::replace(&mut record.spec, spec);
                let spec = &record.spec;
                let other = before.command != spec.command || before.env != spec.env;
                record.intent = Intent::Run;
                let written = self.write(record).await;
                let go = written.is_ok() && (other || !running);
                let _ = request.done.send(written);
                if go {
                    (self.failures, self.not_before) = (0, Instant::now());
                    self.publish(State::Starting);
                }
                if go
                    && other
                    && let Err(error) = self.terminate(self.stop_grace()).await
                {
                    self.failed(error.to_string(), false);
                }
            }
            Operation::Suspend | Operation::Remove => {
                let suspend = matches!(request.operation, Operation::Suspend) && !removing;
                record.intent = if suspend { Intent::Suspend } else { Intent::Remove };
                match self.write(record).await {
                    Ok(()) => self.waiting.push(request.done),
                    Err(error) => drop(request.done.send(Err(error))),
                }
            }
        }
    }

    async fn write(&mut self, record: Record) -> Result<()> {
        if record != self.record {
            self.inner.write(record.clone()).await?;
            self.record = record;
        }
        Ok(())
    }

    /// Keeps it running until told otherwise.
    async fn run(&mut self) -> Request {
        loop {
            if self.process().is_none() {
                tokio::select! {
                    request = next(&mut self.requests) => return request,
                    () = tokio::time::sleep_until(self.not_before) => {}
                }
                if let Err(error) = self.start_process().await {
                    self.failed(error.to_string(), false);
                    continue;
                }
            }
            match self.watch().await {
                ProcessEvent::Requested(request) => return request,
                ProcessEvent::Ready(found) => self.became_ready(found).await,
                ProcessEvent::Exited(reason) => {
                    let was_ready = self.ready_since.take();
                    if was_ready.is_some_and(|since| since.elapsed() > STABLE_AFTER) {
                        self.failures = 0;
                    }
                    let reason = self.with_last_output(reason);
                    let ended = self.terminate(Duration::ZERO).await;
                    let reason = ended.err().map_or(reason, |error| error.to_string());
                    self.failed(reason, was_ready.is_some());
                }
                ProcessEvent::StartTimeout(reason) => {
                    let reason = self.with_last_output(reason);
                    let ended = self.terminate(self.stop_grace()).await;
                    let reason = ended.err().map_or(reason, |error| error.to_string());
                    self.failed(reason, false);
                }
            }
        }
    }

    /// Starts the process, after what an earlier one left.
    async fn start_process(&mut self) -> Result<()> {
        self.terminate(Duration::ZERO).await?;
        if self.failures > 0 {
            self.record.restarts = self.record.restarts.saturating_add(1);
        }
        self.started = Instant::now();
        self.child = Some(start(&self.inner, &self.dir, &mut self.record).await?);
        self.inner.publish_pid(&self.id, self.pid());
        Ok(())
    }

    async fn watch(&mut self) -> ProcessEvent {
        let ProcessActor { requests, child, record, dir, .. } = self;
        let Some(attempt) = &record.attempt else {
            return ProcessEvent::Exited("it was never started".into());
        };
        let Some(process) = &attempt.process else {
            return ProcessEvent::Exited("it ended at once".into());
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
        let spec = &record.spec;
        let port = record.ports.first().copied().unwrap_or_default();
        let late = self.started + Duration::from_secs(spec.start_s);
        let is_ready = self.ready_since.is_some();
        let readiness = async {
            if is_ready {
                loop {
                    tokio::time::sleep(TRIM_INTERVAL).await;
                    if let Err(error) = Output::in_dir(dir).trim() {
                        tracing::warn!(dir = %dir.display(), %error, "the output grows");
                    }
                }
            }
            let mut pause = Duration::from_millis(10);
            loop {
                match spec.ready.check(dir, port, attempt.output_from).await {
                    Ok(found) => return ProcessEvent::Ready(found),
                    Err(why) if Instant::now() >= late => {
                        return ProcessEvent::StartTimeout(format!(
                            "it was not ready after {} s: {why}",
                            spec.start_s
                        ));
                    }
                    Err(_) => tokio::time::sleep(pause).await,
                }
                pause = (pause * 3 / 2).min(Duration::from_millis(250));
            }
        };
        tokio::select! {
            biased;
            reason = ended => ProcessEvent::Exited(reason),
            request = next(requests) => ProcessEvent::Requested(request),
            event = readiness => event,
        }
    }

    async fn became_ready(&mut self, found: ReadinessFile) {
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
        self.failures = self.failures.saturating_add(1);
        let delay = BACKOFF.saturating_mul(1 << (self.failures - 1).min(16)).min(BACKOFF_MAX);
        let delay = delay.mul_f64(0.75 + self.inner.ambient.fraction() / 2.0);
        self.not_before = Instant::now() + delay;
        tracing::warn!(instance = self.id, reason, again = ?delay, "an instance does not run");
        self.publish(if was_ready && self.failures <= CRASHES_MAX {
            State::Starting
        } else {
            State::Failed { reason, restarts: self.record.restarts }
        });
    }

    fn with_last_output(&self, reason: String) -> String {
        let from = self.record.attempt.as_ref().map_or(0, |attempt| attempt.output_from);
        let words = Output::in_dir(&self.dir).tail(5, from).join(" / ");
        if words.is_empty() {
            reason
        } else {
            format!("{reason}; its last words: {}", shortened(&words))
        }
    }

    fn stop_grace(&self) -> Duration {
        Duration::from_secs(self.record.spec.stop_s)
    }

    /// Ends every process of it; after `patience` without mercy.
    async fn terminate(&mut self, grace: Duration) -> Result<()> {
        let Some(attempt) = &self.record.attempt else { return Ok(()) };
        let owner = Owner {
            mark: format!("{}:{}", self.id, attempt.nonce),
            group: attempt.process.as_ref().map(|process| process.pid),
        };
        process::terminate(owner, grace).await.map_err(|error| {
            Error::unavailable(format!("the end of instance {} ({error})", self.id), error)
        })?;
        if let Some(mut child) = self.child.take() {
            // It has ended: this only takes it out of the table.
            let _ = child.wait().await;
        }
        self.record.attempt = None;
        self.ready_since = None;
        self.inner.publish_pid(&self.id, None);
        Ok(())
    }

    /// For one that shall not run: nothing of it does any more, and if it shall be removed,
    /// nothing of it is left.
    async fn stop_or_remove(&mut self) -> Result<()> {
        if self.record.attempt.is_some() {
            self.terminate(self.stop_grace()).await?;
            self.inner.write(self.record.clone()).await?;
        }
        if self.record.intent == Intent::Remove {
            self.inner.delete(&self.id).await?;
            self.inner.ports.release(&self.record.ports);
            self.inner.forget(&self.id);
        } else {
            self.publish(State::Gone);
        }
        Ok(())
    }
}

enum ProcessEvent {
    Requested(Request),
    Ready(ReadinessFile),
    Exited(String),
    StartTimeout(String),
}

/// The sender is kept as long as the instance is: there is always a next one to wait for.
async fn next(requests: &mut mpsc::Receiver<Request>) -> Request {
    match requests.recv().await {
        Some(request) => request,
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
