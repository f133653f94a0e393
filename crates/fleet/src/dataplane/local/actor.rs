//! The actor of one instance: starts its process, watches it, restarts it, stops it. All operations
//! on an instance happen here, one after the other.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernel::{Backoff, Error, Result};
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::output::Output;
use super::readiness::read_facts;
use super::record::{Intent, Record};
use super::start::start;
use super::{ProcessSpec, State, SupervisorInner};
use crate::ports::process::{self, Identity, Owner};

/// The delays of restarts after failures.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) };

/// After so long in the ready state, earlier failures no longer count.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// Consecutive crashes after readiness before the instance is marked failed.
const CRASHES_MAX: u32 = 3;

/// How often the size of its output is checked.
const TRIM_INTERVAL: Duration = Duration::from_secs(60);

/// Before a failed stop is tried again.
const RETRY_STOP: Duration = Duration::from_secs(5);

pub struct Request {
    pub operation: Operation,
    /// Gets the result when the operation is done; that of [`Operation::Run`] once it is durable.
    pub done: oneshot::Sender<Result<()>>,
}

#[derive(Clone)]
pub enum Operation {
    Run(ProcessSpec),
    Suspend,
    Remove,
}

pub struct ProcessActor {
    inner: Arc<SupervisorInner>,
    id: String,
    dir: PathBuf,
    /// If it names a process, then one that we have observed alive.
    record: Record,
    requests: mpsc::Receiver<Request>,
    waiting: Vec<oneshot::Sender<Result<()>>>,
    /// An adopted process is not our child.
    child: Option<Child>,
    started: Instant,
    ready_since: Option<Instant>,
    /// Consecutive failures without a stable run between.
    failures: u32,
    not_before: Instant,
}

impl ProcessActor {
    /// Adopts the process if it still runs.
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
                // It died while no server ran.
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

    /// Runs until the instance is removed or the server stops, which leaves the process alone.
    pub async fn supervise(mut self) {
        let stop = self.inner.stop.clone();
        stop.run_until_cancelled(self.work()).await;
    }

    /// The state before the actor runs.
    pub fn initial_state(&self) -> State {
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
        let (port, facts) = read_facts(&self.dir, *self.record.ports.first()?).ok()?;
        Some(State::Ready { port, facts })
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
                    let failed = ended.is_err();
                    self.reply(ended);
                    if !failed && self.record.intent == Intent::Remove {
                        return;
                    }
                    let grace = if failed { RETRY_STOP } else { Duration::MAX };
                    tokio::time::timeout(grace, next(&mut self.requests)).await.ok()
                }
            };
            if let Some(request) = request {
                self.handle(request).await;
            }
        }
    }

    fn reply(&mut self, done: Result<()>) {
        let problem = done.err().map(|error| error.to_string());
        if let Some(problem) = &problem {
            tracing::error!(instance = self.id, problem, "stopping an instance failed");
        }
        for waiting in self.waiting.drain(..) {
            let failed = |why: &String| Error::unavailable("the end of the instance", why.clone());
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
                let changed = before.command != spec.command || before.env != spec.env;
                record.intent = Intent::Run;
                let written = self.write(record).await;
                let restart = written.is_ok() && (changed || !running);
                let _ = request.done.send(written);
                if restart {
                    (self.failures, self.not_before) = (0, Instant::now());
                    self.publish(State::Starting);
                }
                if restart
                    && changed
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

    /// Keeps the process running until the next request.
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
                ProcessEvent::Ready(state) => self.became_ready(state).await,
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

    /// Starts the process, after the rest of an earlier one has been stopped.
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
                    Err(error) => format!("it ended with an unknown status: {error}"),
                },
                None => {
                    process.ended().await;
                    "it ended".to_owned()
                }
            }
        };
        let spec = &record.spec;
        let port = record.ports.first().copied().unwrap_or_default();
        let deadline = self.started + Duration::from_secs(spec.start_s);
        let is_ready = self.ready_since.is_some();
        let readiness = async {
            if is_ready {
                loop {
                    tokio::time::sleep(TRIM_INTERVAL).await;
                    if let Err(error) = Output::in_dir(dir).trim() {
                        tracing::warn!(dir = %dir.display(), %error, "trimming an instance's output failed");
                    }
                }
            }
            let mut pause = Duration::from_millis(10);
            loop {
                match spec.ready.check(dir, port, attempt.output_from).await {
                    Ok(state) => return ProcessEvent::Ready(state),
                    Err(why) if Instant::now() >= deadline => {
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

    async fn became_ready(&mut self, state: State) {
        self.ready_since = Some(Instant::now());
        let mut record = self.record.clone();
        if let Some(attempt) = &mut record.attempt {
            attempt.ready = true;
        }
        if let Err(error) = self.write(record).await {
            // The next server finds out again; this one knows.
            tracing::warn!(instance = self.id, %error, "recording an instance's readiness failed");
        }
        if let State::Ready { port, .. } = &state {
            tracing::info!(instance = self.id, port, "an instance is ready");
        }
        self.publish(state);
    }

    fn failed(&mut self, reason: String, was_ready: bool) {
        self.failures = self.failures.saturating_add(1);
        let delay = BACKOFF.delay(self.failures - 1, self.inner.ambient.fraction());
        self.not_before = Instant::now() + delay;
        tracing::warn!(instance = self.id, reason, retry_after = ?delay, "an instance failed");
        self.publish(if was_ready && self.failures <= CRASHES_MAX {
            State::Starting
        } else {
            State::Failed { reason, restarts: self.record.restarts }
        });
    }

    fn with_last_output(&self, reason: String) -> String {
        let from = self.record.attempt.as_ref().map_or(0, |attempt| attempt.output_from);
        let output = Output::in_dir(&self.dir).tail(5, from).join(" / ");
        if output.is_empty() {
            reason
        } else {
            format!("{reason}; its last output: {}", shortened(&output))
        }
    }

    fn stop_grace(&self) -> Duration {
        Duration::from_secs(self.record.spec.stop_s)
    }

    /// Stops all of its processes, by SIGKILL after `grace`.
    async fn terminate(&mut self, grace: Duration) -> Result<()> {
        let Some(attempt) = &self.record.attempt else { return Ok(()) };
        let owner = Owner {
            mark: format!("{}:{}", self.id, attempt.nonce),
            group: attempt.process.as_ref().map(|process| process.pid),
        };
        process::terminate(owner, grace).await.map_err(|error| {
            Error::unavailable(format!("the end of instance {}", self.id), error)
        })?;
        if let Some(mut child) = self.child.take() {
            // It has exited: this only reaps it.
            let _ = child.wait().await;
        }
        self.record.attempt = None;
        self.ready_since = None;
        self.inner.publish_pid(&self.id, None);
        Ok(())
    }

    /// Stops a suspended or removed instance, and deletes the files of a removed one.
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
    Ready(State),
    Exited(String),
    StartTimeout(String),
}

/// Never ends: the sender lives as long as the instance.
async fn next(requests: &mut mpsc::Receiver<Request>) -> Request {
    match requests.recv().await {
        Some(request) => request,
        None => std::future::pending().await,
    }
}

/// Keeps the end, which is more informative.
fn shortened(text: &str) -> String {
    const LENGTH: usize = 1_000;
    match text.char_indices().rev().nth(LENGTH) {
        Some((from, _)) => format!("…{}", &text[from..]),
        None => text.to_owned(),
    }
}
