//! One look at a stream or a class: decide, carry out, decide again, until nothing is left to do.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::queue::{Lane, Outcome};
use super::{Item, Operator};
use crate::cluster::{Answer, Call, Object, Refused, What};
use crate::decide::Command;
use crate::decide::build::Subject;
use crate::decide::command::Mode;
use crate::index::class_place;
use crate::model::phase::Phase;
use crate::model::status::Status;
use crate::model::{ClassName, GROUP, Key, Line};

/// More is not needed for any way that a stream can take; whoever does is put at the end.
const ROUNDS: usize = 8;
/// Only a person can help, who will not in the next second.
const HOPELESS: Duration = Duration::from_secs(2);

/// A watch has told of it long before something has been in the way for so many attempts.
const STRANGER: u32 = 7;

/// What came of a look, and whether anything was done in it.
pub(super) struct Looked {
    pub outcome: Outcome,
    pub acted: bool,
}

impl Operator {
    pub(super) async fn look(&self, item: &Item, lane: Lane) -> Looked {
        match item {
            Item::Stream(key) => self.look_at_stream(key, lane).await,
            Item::Class(name) => self.look_at_class(name).await,
        }
    }

    async fn look_at_stream(&self, key: &Key, lane: Lane) -> Looked {
        let mut acted = false;
        for _ in 0..ROUNDS {
            let (decision, touched) = self.hands.decide(key);
            self.touched(touched.into_iter().filter(|other| other != key), Lane::Normal);
            if decision.commands.is_empty() {
                let due = decision.look_at.map(|at| self.instant(at));
                return Looked { outcome: Outcome::Rest(due), acted };
            }
            // Others are started before it is written down that this one was.
            let words = |c: &Command| {
                use Command::{Publish, RequestInitialBackfill, SetStatus};
                matches!(c, SetStatus(_) | Publish(_) | RequestInitialBackfill { .. })
            };
            if acted && lane == Lane::Urgent && decision.commands.iter().all(words) {
                return Looked { outcome: Outcome::Again(Lane::Low), acted };
            }
            for command in &decision.commands {
                if self.stopping.is_cancelled() {
                    return Looked { outcome: Outcome::Again(lane), acted };
                }
                let phase = self.phase(key);
                let done = self.hands.carry_out(key, command).await;
                acted = true;
                self.touched(done.touched.into_iter().filter(|other| other != key), Lane::Normal);
                match done.refused {
                    None => {
                        self.in_the_way.lock().remove(key);
                        self.metrics.done(key, phase, command);
                        note(key, command);
                    }
                    Some(refused) => {
                        let wait = self.refused(key, command, refused).await;
                        return Looked { outcome: Outcome::Retry(name(command), wait), acted };
                    }
                }
            }
        }
        Looked { outcome: Outcome::Again(Lane::Low), acted }
    }

    fn phase(&self, key: &Key) -> Phase {
        self.hands.index.lock().stream(key).map_or(Phase::New, |stream| stream.phase)
    }

    fn instant(&self, at: Timestamp) -> Instant {
        let wait = at.duration_since(self.hands.now());
        Instant::now() + Duration::try_from(wait).unwrap_or(Duration::ZERO)
    }

    /// A Job of someone else's, which has no labels of ours, is told of by no watch: it shows only
    /// in that ours can not be made.
    fn stranger(&self, key: &Key, command: &Command) -> Option<String> {
        let what = match command {
            Command::StartJob { .. } => "Job",
            Command::StartSchedule { .. } => "CronJob",
            _ => return None,
        };
        let mut all = self.in_the_way.lock();
        let times = all.entry(key.clone()).or_default();
        *times += 1;
        (*times >= STRANGER).then(|| {
            format!(
                "a {what} {} that is not of the stream stands in its place; remove it, or give \
                 the stream another name",
                key.place
            )
        })
    }

    /// Everything is looked at again; this says after how long at least, and tells a person what
    /// has to be known.
    async fn refused(&self, key: &Key, command: &Command, refused: Refused) -> Duration {
        match &refused {
            Refused::Exists if let Some(said) = self.stranger(key, command) => {
                self.complain(key, &said).await;
                HOPELESS
            }
            // The index is behind: a watch is about to tell.
            Refused::NotFound | Refused::Exists | Refused::Conflict => {
                tracing::debug!(%key, %refused, "the world is another than was thought");
                Duration::ZERO
            }
            Refused::Busy(wait) => wait.unwrap_or_default(),
            Refused::Away(_) => {
                tracing::debug!(%key, %refused, "it is tried again");
                Duration::ZERO
            }
            Refused::Forbidden(said) | Refused::Invalid(said) => {
                tracing::warn!(%key, command = name(command), said, "refused");
                if !matches!(command, Command::SetStatus(_)) {
                    self.complain(key, said).await;
                }
                HOPELESS
            }
        }
    }

    /// A condition on the stream that says what Kubernetes said.
    async fn complain(&self, key: &Key, said: &str) {
        let status = {
            let index = self.hands.index.lock();
            let (Some(class), Some(stream)) = (index.class(&key.class), index.stream(key)) else {
                return;
            };
            let status =
                Status::trouble(stream.phase, stream, format!("Kubernetes refused: {said}"));
            if status.is_of(stream, class.line) {
                return;
            }
            status
        };
        let done = self.hands.carry_out(key, &Command::SetStatus(status)).await;
        if let Some(refused) = done.refused {
            tracing::warn!(%key, %refused, "the stream cannot be told what is wrong");
        }
    }

    async fn look_at_class(&self, name: &ClassName) -> Looked {
        let now = self.hands.now();
        let rest = |acted| Looked { outcome: Outcome::Rest(None), acted };
        let barred = self.sight.barred();
        let (class, standing) = {
            let classes = self.classes.lock();
            let index = self.hands.index.lock();
            let Some(class) = classes.get(name).cloned() else { return rest(false) };
            let said = barred.as_ref().map(|barred| barred.said.as_str());
            let standing = super::standing::standing(&class, &classes, &index, said, now);
            (class, standing)
        };
        let Some(standing) = standing else { return rest(false) };
        // The other operator may fall silent, which nobody tells.
        let silent =
            (standing.reason == "OtherOperator").then(|| Instant::now() + Duration::from_secs(5));
        let due = barred.and_then(|barred| barred.look_at).or(silent);
        if standing.is_of(&class) {
            return Looked { outcome: Outcome::Rest(due), acted: false };
        }
        if let Some(later) = self.classes.lock().write_at(name) {
            return Looked { outcome: Outcome::Rest(Some(later)), acted: false };
        }
        self.classes.lock().wrote(name);
        if standing.is_trouble() {
            tracing::warn!(class = %name, reason = standing.reason, "{}", standing.message);
        }
        let place = class_place(name);
        let patch = Call::Patch {
            what: What::Class(class.line),
            place: place.clone(),
            patch: standing.patch(&class, now),
            status: true,
        };
        match self.hands.cluster.call(patch).await {
            Ok(Answer::Object(object)) => {
                if let Object::Class(class) = *object {
                    self.class_learnt(class);
                }
            }
            Ok(_) => {}
            Err(Refused::Busy(wait)) => {
                let outcome = Outcome::Retry("class", wait.unwrap_or_default());
                return Looked { outcome, acted: true };
            }
            Err(refused) => {
                tracing::warn!(class = %name, %refused, "the status of a class cannot be written");
                return Looked { outcome: Outcome::Retry("class", HOPELESS), acted: true };
            }
        }
        let version = match class.line {
            Line::V1 => format!("{GROUP}/v1"),
            Line::Beta => format!("{GROUP}/v1beta1"),
        };
        let subject = Subject {
            api_version: &version,
            kind: "StreamClass",
            namespace: &place.namespace,
            name: &place.name,
            uid: &class.uid,
        };
        for happened in standing.events(&class) {
            self.hands.publish_on(subject, &happened).await;
        }
        Looked { outcome: Outcome::Rest(due), acted: true }
    }
}

/// One line for each effect, and for what someone should know.
fn note(key: &Key, command: &Command) {
    match command {
        Command::StartJob { mode: Mode::Stream, .. } => tracing::info!(%key, "its Job is started"),
        Command::StartJob { mode: Mode::Backfill(request), .. } => {
            tracing::info!(%key, request, "a backfill is started");
        }
        Command::StopJob { why, .. } => tracing::info!(%key, ?why, "its Job is stopped"),
        Command::Publish(happened) if happened.warning => {
            tracing::warn!(%key, reason = happened.reason, "{}", happened.message);
        }
        Command::RefuseRequest { request, why } => tracing::warn!(%key, %request, "{why}"),
        Command::CompleteRequest { .. }
        | Command::StartSchedule { .. }
        | Command::StopSchedule { .. } => tracing::info!(%key, "{}", name(command)),
        _ => tracing::debug!(%key, "{}", name(command)),
    }
}

fn name(command: &Command) -> &'static str {
    match command {
        Command::RequestInitialBackfill { .. } => "request initial backfill",
        Command::StartJob { .. } => "start Job",
        Command::StopJob { .. } => "stop Job",
        Command::StartSchedule { .. } => "start schedule",
        Command::StopSchedule { .. } => "stop schedule",
        Command::AskFate { .. } => "ask fate",
        Command::CompleteRequest { .. } => "complete request",
        Command::RefuseRequest { .. } => "refuse request",
        Command::RemoveRequest { .. } => "remove request",
        Command::Annotate { .. } => "annotate",
        Command::SetStatus(_) => "set status",
        Command::Publish(_) => "publish",
    }
}
