//! What is to be done about a stream: the phases and what may follow them.
//!
//! A look goes as far as it can without waiting: the phases that are only passed are not written.
//! What is waited for (a Job that is still ending, say) is a phase that is.

use jiff::Timestamp;

use super::changed::ASKED;
use super::command::{Command, Decision, Happened, Mode, Why};
use super::{build, recover, rest};
use crate::index::{Index, Past};
use crate::model::class::Class;
use crate::model::job::{Cron, Fate, Job};
use crate::model::layout::{Backend, Execution};
use crate::model::phase::Phase;
use crate::model::request::Request;
use crate::model::status::{Status, in_job, job_of};
use crate::model::stream::Stream;
use crate::model::{Key, Line, Place};

/// What is known of one stream.
pub(super) struct View<'a> {
    pub index: &'a Index,
    pub class: &'a Class,
    pub stream: &'a Stream,
    pub now: Timestamp,
}

pub fn decide(index: &Index, key: &Key, now: Timestamp) -> Decision {
    let class = index.class(&key.class);
    let (Some(class), Some(stream)) = (class, index.stream(key)) else {
        return rest::without_stream(index, key, class.map(|class| &**class));
    };
    if stream.deleting || stream.wishes.paused || !index.knows_secrets_for(stream) {
        return Decision::default();
    }
    if let Some(until) = rest::others_turn(index, stream, now) {
        return Decision { look_at: Some(until), ..Decision::default() };
    }
    let view = View { index, class, stream, now };
    let mut decision = view.decide();
    if decision.commands.is_empty() {
        decision.commands = rest::surplus_requests(&view);
    }
    decision
}

/// A backfill that is wanted.
enum Backfill<'a> {
    Request(&'a Request),
    /// v1beta1: an annotation asks for it, or the stream is new.
    Reload,
}

impl View<'_> {
    fn decide(&self) -> Decision {
        let execution = match &self.stream.execution {
            Ok(execution) => execution,
            Err(problem) => return self.trouble("InvalidSpec", problem.to_string()),
        };
        if let Some(in_the_way) = self.in_the_way() {
            return in_the_way;
        }
        if let Some(owed) = self.owed_request() {
            return Decision::of([owed]);
        }
        if self.suspended(execution) {
            return self.suspend();
        }
        if self.stream.phase == Phase::Failed || self.crash_looped() {
            match recover::after_failure(self) {
                recover::Next::Start => {}
                recover::Next::Stay(decision) => return decision,
            }
        }
        if let Some(failed) = self.failed(execution) {
            return failed;
        }
        match (self.backfill(execution), &execution.backend) {
            (_, None) => self.no_backend(),
            (Err(ask), Some(_)) => self.start_first(execution, ask),
            (Ok(Some(backfill)), Some(_)) => self.run_backfill(execution, &backfill),
            (Ok(None), Some(Backend::ChangeCapture { template })) => self.run_stream(template),
            (Ok(None), Some(Backend::Batch { schedule, template })) => {
                self.run_schedule(schedule, template)
            }
        }
    }

    pub(super) fn job(&self) -> Option<&Job> {
        self.index.job_at(self.stream.place()).filter(|job| self.owns(job.owner.as_deref()))
    }

    pub(super) fn cron(&self) -> Option<&Cron> {
        self.index.cron_at(self.stream.place()).filter(|cron| self.owns(cron.owner.as_deref()))
    }

    fn owns(&self, owner: Option<&crate::model::meta::Owner>) -> bool {
        owner.is_some_and(|owner| *owner.uid == *self.stream.uid)
    }

    /// A Job or CronJob of the stream's name that is not its own.
    fn in_the_way(&self) -> Option<Decision> {
        let place = self.stream.place();
        let job = self.index.job_at(place).map(|job| ("Job", &job.owner));
        let cron = self.index.cron_at(place).map(|cron| ("CronJob", &cron.owner));
        let stranger = |(_, owner): &(&str, &Option<_>)| !self.owns(owner.as_deref());
        let (what, owner) = job.filter(stranger).or(cron.filter(stranger))?;
        Some(match owner {
            // It was of this stream before that was made anew: the garbage collector takes it.
            Some(owner) if *owner.kind == *self.class.kind && *owner.name == *place.name => {
                self.wait(format!("The {what} of an earlier stream of that name is still ending."))
            }
            owner => {
                let whose =
                    owner.as_ref().map_or("nobody".into(), |o| format!("{} {}", o.kind, o.name));
                let why = format!(
                    "A {what} {place} stands in its place and belongs to {whose}; remove it, or \
                     give the stream another name: names must be unique across kinds."
                );
                self.trouble("NameTaken", why)
            }
        })
    }

    fn suspended(&self, execution: &Execution) -> bool {
        match self.class.line {
            Line::V1 => execution.suspended,
            Line::Beta => self.state() == Some("suspended"),
        }
    }

    pub(super) fn state(&self) -> Option<&str> {
        self.stream.wishes.state.as_deref()
    }

    pub(super) fn crash_looped(&self) -> bool {
        self.class.line == Line::Beta && self.state() == Some("crash-loop")
    }

    fn suspend(&self) -> Decision {
        let mut commands = Vec::new();
        commands.extend(self.job().and_then(|job| stop(job, Why::Suspended)));
        commands.extend(self.cron().and_then(stop_schedule));
        let status = Status::new(Phase::Suspended, self.stream, "The stream is suspended.");
        let message = match self.stream.phase {
            Phase::New => {
                format!(
                    "The new stream {} was added in the suspended state, nothing to do",
                    self.name()
                )
            }
            Phase::Backfilling => {
                format!("The backfilling for stream {} has been suspended", self.name())
            }
            _ => "The stream was suspended".into(),
        };
        commands.extend(self.say(status, Happened::normal("StreamSuspended", message)));
        Decision { commands, ..Decision::default() }
    }

    /// Its Job has failed: that is written down first, so that a crash can not lose it.
    fn failed(&self, execution: &Execution) -> Option<Decision> {
        let batch = matches!(execution.backend, Some(Backend::Batch { .. }));
        if batch && self.stream.phase != Phase::Backfilling {
            // What a schedule's stream had before is no run of it.
            return None;
        }
        let (why, stop) = match self.job() {
            Some(job) if !job.deleting => (job.failed()?.to_owned(), stop(job, Why::Failed)),
            Some(_) => return None,
            None if matches!(self.stream.phase, Phase::Running | Phase::Backfilling) => {
                match self.fate() {
                    Some(Fate::Failed(why)) => (why.to_string(), None),
                    _ => return None,
                }
            }
            None => return None,
        };
        Some(recover::failed(self, &why, stop))
    }

    /// The last Job of this stream that is gone; one of an earlier stream of that name is not its.
    fn past(&self) -> Option<&Past> {
        let past = self.index.past(self.stream.place())?;
        past.owner.as_ref().is_none_or(|owner| **owner == *self.stream.uid).then_some(past)
    }

    /// How the Job ended that the status speaks of and that is gone, as far as it is known.
    fn fate(&self) -> Option<&Fate> {
        let past = self.past()?;
        past.fate.as_ref().filter(|_| self.spoken_of().is_none_or(|uid| *past.uid == *uid))
    }

    /// The Job that the status names.
    fn spoken_of(&self) -> Option<&str> {
        job_of(&self.stream.written.as_ref()?.message)
    }

    /// A Job went while nobody looked: the events that it left may tell how it ended.
    fn ask_fate(&self) -> Option<Command> {
        if !matches!(self.stream.phase, Phase::Running | Phase::Backfilling) {
            return None;
        }
        let past = self.past();
        let uid = match (self.spoken_of(), past) {
            (Some(uid), Some(past)) if *past.uid == *uid && past.fate.is_some() => return None,
            (Some(uid), _) => uid,
            (None, Some(past)) if past.fate.is_none() => &past.uid,
            (None, _) => return None,
        };
        Some(Command::AskFate { uid: uid.into() })
    }

    /// The backfill that is to run, if one is; or what is to be asked for first.
    fn backfill(&self, execution: &Execution) -> Result<Option<Backfill<'_>>, Command> {
        let capture = matches!(execution.backend, Some(Backend::ChangeCapture { .. }));
        if self.class.line == Line::Beta {
            let wanted = self.state() == Some("reload-requested")
                || self.stream.phase == Phase::New && self.job().is_none()
                || self.job().is_some_and(|job| {
                    job.backfilling && !job.complete()
                        || matches!(
                            job.state.as_deref(),
                            Some("schema-mismatch" | "reload-requested")
                        )
                });
            return Ok(wanted.then_some(Backfill::Reload));
        }
        if let Some(open) = self.open_request() {
            return Ok(Some(Backfill::Request(open)));
        }
        if self.stream.phase == Phase::New && capture && self.initial_request().is_none() {
            return Err(self.ask_initially());
        }
        Ok(None)
    }

    /// The requests for this stream, the oldest first.
    pub(super) fn requests(&self) -> impl Iterator<Item = &Request> {
        let all = self.index.requests(&self.stream.key);
        all.filter(|request| request.is_for(&self.class.kind, self.stream))
    }

    /// The oldest that is not completed.
    pub(super) fn open_request(&self) -> Option<&Request> {
        self.requests().find(|request| !request.completed && !request.deleting)
    }

    fn run_backfill(&self, execution: &Execution, backfill: &Backfill<'_>) -> Decision {
        if let Some(cron) = self.cron() {
            return match stop_schedule(cron) {
                Some(stop) => Decision::of([stop]),
                None => self.wait("Its CronJob is ending, then the backfill starts."),
            };
        }
        let (mode, request) = match backfill {
            Backfill::Request(request) => {
                (Mode::Backfill(Some((*request.place.name).into())), Some(*request))
            }
            Backfill::Reload => (Mode::Backfill(None), None),
        };
        let Some(job) = self.job() else {
            if let Some(Fate::Complete) = self.fate()
                && self.stream.phase == Phase::Backfilling
                && let Some(request) = request.filter(|request| self.speaks_of(request))
            {
                return Decision::of([self.complete(request)]);
            }
            if let Some(ask) = self.ask_fate() {
                return Decision::of([ask]);
            }
            if !self.index.backfill_allowed() {
                let many = self.index.backfills();
                let why = format!("Waiting: {many} backfills are running, and no more may.");
                return Decision { waits_for_backfills: true, ..self.wait(why) };
            }
            // A class that is read without it has no layout that lacks one.
            let Some(template) = &execution.backfill else { return self.no_backend() };
            return self.start(template, mode, request);
        };
        let ours = job.backfilling
            && match request {
                Some(request) => job.backfill_id.as_deref() == Some(&*request.place.name),
                None => true,
            };
        let reload_done = request.is_none() && self.state() == Some("reload-requested");
        match ours {
            _ if job.deleting => self.wait(ending(job)),
            true if job.complete() => {
                let mut commands: Vec<Command> =
                    request.map(|r| self.complete(r)).into_iter().collect();
                commands.extend(stop(job, Why::Ended));
                Decision { commands, ..Decision::default() }
            }
            // The annotation has been answered.
            true if reload_done => {
                Decision::of([Command::Annotate { name: crate::model::STATE, value: None }])
            }
            true if asked_again(self.stream, job.restart.as_deref()) => self.restart(job, ASKED),
            true => self.backfilling(job, request),
            false => {
                let mut commands = Vec::new();
                if self.stream.phase == Phase::Running {
                    let message = format!("Backfill was requested for stream {}", self.name());
                    let status = Status::new(Phase::Pending, self.stream, ending(job));
                    commands = self.say(status, Happened::normal("BackfillRequested", message));
                }
                commands.extend(stop(job, Why::Backfill));
                Decision { commands, ..Decision::default() }
            }
        }
    }

    /// Whether the status says that this request is being carried out.
    pub(super) fn speaks_of(&self, request: &Request) -> bool {
        let written = self.stream.written.as_ref();
        written.is_some_and(|written| written.message.ends_with(&*request.place.name))
    }

    fn complete(&self, request: &Request) -> Command {
        Command::CompleteRequest { name: (*request.place.name).into() }
    }

    fn backfilling(&self, job: &Job, request: Option<&Request>) -> Decision {
        let job = in_job(&job.uid);
        let message = match request {
            Some(request) => format!(
                "The stream is currently backfilling data{job}, request ID: {}",
                request.place.name
            ),
            None => format!("The stream is currently backfilling data{job}."),
        };
        let mut status = Status::new(Phase::Backfilling, self.stream, message);
        status.hash = build::hash(self.stream, request);
        let name = self.name();
        let happened = match self.stream.phase {
            Phase::New => Happened::normal(
                "StreamCreated",
                format!("Backfill was requested for the new stream definition: {name}"),
            ),
            Phase::Pending => Happened::normal(
                "BackfillStarted",
                format!("Backfill for stream {name} has started"),
            ),
            _ => Happened::normal(
                "BackfillRequested",
                format!("Backfill was requested for stream {name}"),
            ),
        };
        Decision { commands: self.say(status, happened), ..Decision::default() }
    }

    fn run_stream(&self, template: &Place) -> Decision {
        if let Some(cron) = self.cron() {
            return match stop_schedule(cron) {
                Some(stop) => Decision::of([stop]),
                None => self.wait("Its CronJob is ending, then the stream starts."),
            };
        }
        let Some(job) = self.job() else {
            return match self.ask_fate() {
                Some(ask) => Decision::of([ask]),
                None => self.start(template, Mode::Stream, None),
            };
        };
        if job.deleting {
            return self.wait(ending(job));
        }
        if job.backfilling {
            return Decision::of(stop(job, Why::Ended));
        }
        if let Some(why) = self.changed(job, template) {
            return match self.index.restart_at(self.now) {
                Some(at) if job.ended.is_none() => {
                    Decision { look_at: Some(at), ..self.running(job) }
                }
                _ => self.restart(job, why),
            };
        }
        self.running(job)
    }

    fn running(&self, job: &Job) -> Decision {
        let message = format!("The stream is currently running{}.", in_job(&job.uid));
        let status = Status::new(Phase::Running, self.stream, message);
        let commands = self.say(status, self.started(Phase::Running));
        Decision { commands, ..Decision::default() }
    }

    /// Stops a Job so that it is started as it should be.
    fn restart(&self, job: &Job, why: &str) -> Decision {
        let mut commands: Vec<Command> = stop(job, Why::Changed).into_iter().collect();
        if job.ended.is_none() {
            let status = Status::new(Phase::Pending, self.stream, ending(job));
            let why = format!("The stream {} is started anew: {why}", self.name());
            commands.extend(self.say(status, Happened::normal("StreamRestarting", why)));
        }
        Decision { commands, ..Decision::default() }
    }

    fn run_schedule(&self, schedule: &str, template: &Place) -> Decision {
        if let Some(job) = self.job() {
            return match stop(job, Why::Backend) {
                Some(stop) => Decision::of([stop]),
                None => self.wait(ending(job)),
            };
        }
        let Some(cron) = self.cron() else {
            return match self.parts(template) {
                Ok(parts) => match build::cron(&parts, schedule) {
                    Ok(manifest) => Decision::of([Command::StartSchedule { manifest }]),
                    Err(why) => self.trouble("FailedCreateJob", why),
                },
                Err(why) => self.trouble("FailedCreateJob", why),
            };
        };
        if cron.deleting {
            return self.wait("Its CronJob is ending, then the new one is made.");
        }
        if self.schedule_changed(cron, schedule, template) {
            return Decision::of(stop_schedule(cron));
        }
        let last = match self.index.last_run(self.stream.place()) {
            Some((Fate::Failed(why), at)) => format!(" The run that ended at {at} failed: {why}"),
            Some((_, at)) => format!(" The run that ended at {at} succeeded."),
            None => String::new(),
        };
        let failed = matches!(self.index.last_run(self.stream.place()), Some((Fate::Failed(_), _)));
        let message = format!("The stream is scheduled: {}.{last}", cron.schedule);
        let mut status = Status::new(Phase::Scheduled, self.stream, message);
        status.trouble = failed;
        let happened = match failed && self.stream.phase == Phase::Scheduled {
            true => Happened::warning("ScheduledRunFailed", last.trim()),
            false => self.started(Phase::Scheduled),
        };
        Decision { commands: self.say(status, happened), ..Decision::default() }
    }

    fn no_backend(&self) -> Decision {
        let mut commands = Vec::new();
        commands.extend(self.job().and_then(|job| stop(job, Why::Backend)));
        commands.extend(self.cron().and_then(stop_schedule));
        let why = "spec.execution.streamingBackend has neither changeCapture nor batch: give one";
        let trouble = self.trouble("NoValidBackend", why);
        commands.extend(trouble.commands);
        Decision { commands, ..Decision::default() }
    }

    pub(super) fn start(
        &self,
        template: &Place,
        mode: Mode,
        request: Option<&Request>,
    ) -> Decision {
        let made = self.parts(template).and_then(|parts| build::job(&parts, &mode, request));
        match made {
            Ok(manifest) => {
                let mut commands = self.leave_failed();
                commands.push(Command::StartJob { mode, manifest });
                Decision { commands, ..Decision::default() }
            }
            Err(why) => self.trouble("FailedCreateJob", why),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.stream.place().name
    }
}

/// Someone asked for a restart since the Job was made.
pub(super) fn asked_again(stream: &Stream, made_with: Option<&str>) -> bool {
    let wished = stream.wishes.restart.as_deref();
    wished.is_some() && wished != made_with
}

fn ending(job: &Job) -> String {
    format!("Waiting until Job {} has ended.", job.uid)
}

pub(super) fn stop(job: &Job, why: Why) -> Option<Command> {
    let running = job.ended.is_none();
    (!job.deleting).then(|| Command::StopJob { uid: job.uid.clone(), running, why })
}

fn stop_schedule(cron: &Cron) -> Option<Command> {
    (!cron.deleting).then(|| Command::StopSchedule { uid: cron.uid.clone() })
}
