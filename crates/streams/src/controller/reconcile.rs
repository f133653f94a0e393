//! Reconciles one stream or class: decide, execute, and decide again until nothing is left to do.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubernetes::{Lane, Outcome};
use tokio::time::Instant;

use super::{Operator, WorkItem};
use crate::decide::Action;
use crate::decide::action::Mode;
use crate::decide::build::Subject;
use crate::decide::class::{ClassFacts, ForeignWriter, class_status};
use crate::decide::foreign_owner_until;
use crate::index::Index;
use crate::model::class::Class;
use crate::model::phase::Phase;
use crate::model::status::Status;
use crate::model::stream::Stream;
use crate::model::watch::{ApiError, Object, Resource};
use crate::model::{ClassName, CrdVersion, GROUP, Key};
use crate::ports::api_server::{Request, Response};

/// More rounds than any sequence of decisions needs; after that the item is queued again.
const ROUNDS_MAX: usize = 8;
/// The retry delay of errors that only a person can resolve.
const MANUAL_FIX_RETRY: Duration = Duration::from_secs(2);

/// After so many attempts a watch would have reported a Job of ours.
const CONFLICT_ATTEMPTS: u32 = 7;

/// The result of a reconcile, and whether it executed any action.
pub(super) struct Reconciled {
    pub outcome: Outcome,
    pub acted: bool,
}

impl Operator {
    pub(super) async fn reconcile(&self, item: &WorkItem, lane: Lane) -> Reconciled {
        match item {
            WorkItem::Stream(key) => self.reconcile_stream(key, lane).await,
            WorkItem::Class(name) => self.reconcile_class(name).await,
        }
    }

    async fn reconcile_stream(&self, key: &Key, lane: Lane) -> Reconciled {
        let mut acted = false;
        for _ in 0..ROUNDS_MAX {
            let (decision, affected) = self.effects.decide(key);
            self.enqueue(affected.into_iter().filter(|other| other != key), Lane::Normal);
            if decision.actions.is_empty() {
                let due = decision.requeue_at.map(|at| self.instant(at));
                return Reconciled { outcome: Outcome::Done(due), acted };
            }
            // Other streams are started before the status of this one is written.
            let words = |c: &Action| {
                use Action::{Publish, RequestInitialBackfill, SetStatus};
                matches!(c, SetStatus(_) | Publish(_) | RequestInitialBackfill { .. })
            };
            if acted && lane == Lane::Urgent && decision.actions.iter().all(words) {
                return Reconciled { outcome: Outcome::Requeue(Lane::Low), acted };
            }
            for action in &decision.actions {
                if self.stopping.is_cancelled() {
                    return Reconciled { outcome: Outcome::Requeue(lane), acted };
                }
                let phase = self.phase(key);
                let done = self.effects.execute(key, action).await;
                acted = true;
                self.enqueue(done.affected.into_iter().filter(|other| other != key), Lane::Normal);
                match done.error {
                    None => {
                        self.name_conflicts.lock().remove(key);
                        self.metrics.executed(key, phase, action);
                        log_action(key, action);
                    }
                    Some(error) => {
                        let wait = self.retry_after(key, action, error).await;
                        return Reconciled {
                            outcome: Outcome::Retry(action_name(action), wait),
                            acted,
                        };
                    }
                }
            }
        }
        Reconciled { outcome: Outcome::Requeue(Lane::Low), acted }
    }

    fn phase(&self, key: &Key) -> Phase {
        self.effects.index.lock().stream(key).map_or(Phase::New, |stream| stream.phase)
    }

    fn instant(&self, at: Timestamp) -> Instant {
        let wait = at.duration_since(self.effects.now());
        Instant::now() + Duration::try_from(wait).unwrap_or(Duration::ZERO)
    }

    /// Describes a name conflict with an object that no watch reports because it lacks our labels:
    /// it shows only in that ours cannot be created.
    fn unlabelled_conflict(&self, key: &Key, action: &Action) -> Option<String> {
        let what = match action {
            Action::StartJob { .. } => "Job",
            Action::StartSchedule { .. } => "CronJob",
            _ => return None,
        };
        let mut all = self.name_conflicts.lock();
        let times = all.entry(key.clone()).or_default();
        *times += 1;
        (*times >= CONFLICT_ATTEMPTS).then(|| {
            format!(
                "a {what} {} that is not of the stream stands in its place; remove it, or give \
                 the stream another name",
                key.object_name
            )
        })
    }

    /// The least delay before the retry. Also reports errors that a person has to resolve.
    async fn retry_after(&self, key: &Key, action: &Action, error: ApiError) -> Duration {
        match &error {
            ApiError::AlreadyExists if let Some(said) = self.unlabelled_conflict(key, action) => {
                self.write_error_condition(key, &said).await;
                MANUAL_FIX_RETRY
            }
            // The index is stale: a watch is about to report the change.
            ApiError::NotFound | ApiError::AlreadyExists | ApiError::Conflict => {
                tracing::debug!(%key, %error, "cached state is stale; retrying");
                Duration::ZERO
            }
            ApiError::Throttled(wait) => wait.unwrap_or_default(),
            ApiError::Unreachable(_) => {
                tracing::debug!(%key, %error, "request failed; retrying");
                Duration::ZERO
            }
            ApiError::Forbidden(said) | ApiError::Invalid(said) => {
                tracing::warn!(%key, action = action_name(action), said, "request refused");
                if !matches!(action, Action::SetStatus(_)) {
                    self.write_error_condition(key, said).await;
                }
                MANUAL_FIX_RETRY
            }
        }
    }

    /// Writes the message of Kubernetes to the stream's condition.
    async fn write_error_condition(&self, key: &Key, said: &str) {
        let status = {
            let index = self.effects.index.lock();
            let (Some(class), Some(stream)) = (index.class(&key.class), index.stream(key)) else {
                return;
            };
            let status = Status::error(stream.phase, stream, format!("Kubernetes refused: {said}"));
            if status.is_of(stream, class.crd_version) {
                return;
            }
            status
        };
        let done = self.effects.execute(key, &Action::SetStatus(status)).await;
        if let Some(error) = done.error {
            tracing::warn!(%key, %error, "writing the error condition to the stream failed");
        }
    }

    async fn reconcile_class(&self, name: &ClassName) -> Reconciled {
        let now = self.effects.now();
        let rest = |acted| Reconciled { outcome: Outcome::Done(None), acted };
        let blocked = self.sync.blocked();
        let (class, class_status) = {
            let classes = self.classes.lock();
            let index = self.effects.index.lock();
            let Some(class) = classes.get(name).cloned() else { return rest(false) };
            let said = blocked.as_ref().map(|blocked| blocked.said.as_str());
            let foreign_writer = Operator::foreign_writer(&class, &index, now);
            let class_status = class_status(ClassFacts {
                class: &class,
                watch: classes.watched(name).map(|watched| &watched.state),
                conflicting_class: classes.conflicting_class(&class).map(|other| &**other),
                blocked: said,
                foreign_writer: foreign_writer.as_ref(),
                other_quiet_s: index.settings.other_quiet_s,
            });
            (class, class_status)
        };
        let Some(class_status) = class_status else { return rest(false) };
        // No event reports that the other operator went silent.
        let silent = (class_status.reason == "OtherOperator")
            .then(|| Instant::now() + Duration::from_secs(5));
        let due = blocked.and_then(|blocked| blocked.requeue_at).or(silent);
        if class_status.is_of(&class) {
            return Reconciled { outcome: Outcome::Done(due), acted: false };
        }
        if let Some(later) = self.classes.lock().status_write_at(name) {
            return Reconciled { outcome: Outcome::Done(Some(later)), acted: false };
        }
        self.classes.lock().status_written(name);
        if class_status.is_error() {
            tracing::warn!(class = %name, reason = class_status.reason, "{}", class_status.message);
        }
        let object_name = class.object_name();
        let patch = Request::Patch {
            resource: Resource::Classes(class.crd_version),
            object_name: object_name.clone(),
            patch: class_status.patch(&class, now),
            status: true,
        };
        match self.effects.api.send(patch).await {
            Ok(Response::Object(object)) => {
                if let Object::Class(class) = *object {
                    self.apply_class(class);
                }
            }
            Ok(_) => {}
            Err(ApiError::Throttled(wait)) => {
                let outcome = Outcome::Retry("class", wait.unwrap_or_default());
                return Reconciled { outcome, acted: true };
            }
            Err(error) => {
                tracing::warn!(class = %name, %error, "writing the status of a class failed");
                return Reconciled {
                    outcome: Outcome::Retry("class", MANUAL_FIX_RETRY),
                    acted: true,
                };
            }
        }
        let version = match class.crd_version {
            CrdVersion::V1 => format!("{GROUP}/v1"),
            CrdVersion::V1Beta1 => format!("{GROUP}/v1beta1"),
        };
        let subject = Subject {
            api_version: &version,
            kind: "StreamClass",
            namespace: &object_name.namespace,
            name: &object_name.name,
            uid: &class.uid,
        };
        for event in class_status.events(&class) {
            self.effects.publish_on(subject, &event).await;
        }
        Reconciled { outcome: Outcome::Done(due), acted: true }
    }

    /// Finds another operator that writes to streams of a class.
    fn foreign_writer(class: &Class, index: &Index, now: Timestamp) -> Option<ForeignWriter> {
        let theirs = |stream: &&Arc<Stream>| {
            stream.key.class == class.name
                && foreign_owner_until(
                    &index.settings,
                    index.leading_since,
                    index.foreign_write_seen(&stream.key),
                    now,
                )
                .is_some()
        };
        let theirs: Vec<_> = index.streams().filter(theirs).collect();
        let (manager, _) = theirs.first()?.other_writer.as_deref()?;
        Some(ForeignWriter { manager: manager.clone(), streams: theirs.len() })
    }
}

/// Logs an action.
fn log_action(key: &Key, action: &Action) {
    match action {
        Action::StartJob { mode: Mode::Stream, .. } => tracing::info!(%key, "started the Job"),
        Action::StartJob { mode: Mode::Backfill(request), .. } => {
            tracing::info!(%key, request, "started a backfill");
        }
        Action::StopJob { why, .. } => tracing::info!(%key, ?why, "stopped the Job"),
        Action::Publish(event) if event.warning => {
            tracing::warn!(%key, reason = event.reason, "{}", event.message);
        }
        Action::RefuseRequest { request, why } => tracing::warn!(%key, %request, "{why}"),
        Action::CompleteRequest { .. }
        | Action::StartSchedule { .. }
        | Action::StopSchedule { .. } => tracing::info!(%key, "{}", action_name(action)),
        _ => tracing::debug!(%key, "{}", action_name(action)),
    }
}

fn action_name(action: &Action) -> &'static str {
    match action {
        Action::RequestInitialBackfill { .. } => "request initial backfill",
        Action::StartJob { .. } => "start Job",
        Action::StopJob { .. } => "stop Job",
        Action::StartSchedule { .. } => "start schedule",
        Action::StopSchedule { .. } => "stop schedule",
        Action::LookUpJobResult { .. } => "look up Job result",
        Action::CompleteRequest { .. } => "complete request",
        Action::RefuseRequest { .. } => "refuse request",
        Action::RemoveRequest { .. } => "remove request",
        Action::Annotate { .. } => "annotate",
        Action::SetStatus(_) => "set status",
        Action::Publish(_) => "publish",
    }
}
