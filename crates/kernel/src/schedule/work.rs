//! Carries out the commands of schedules.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::decide::ran;
use super::{KIND, Plan, Run, Spec, Status, command_id, plan};
use crate::command::{Envelope, Origin, Sender};
use crate::driver::{AnyWorker, Attempt, Requeue};
use crate::{App, Change, Class, Error, Key, Result};

/// Carries out a schedule's command with this id, as its maker; once for each id. Returns when that
/// is durable.
pub type Execute = Arc<dyn Fn(Key, Spec, String) -> BoxFuture<'static, Result<()>> + Send + Sync>;

pub struct ScheduleWorker {
    pub execute: Execute,
}

impl ScheduleWorker {
    /// Carries out the commands of the server.
    pub fn new(app: &App) -> ScheduleWorker {
        let app = app.clone();
        let execute = move |key: Key, spec: Spec, id: String| {
            let app = app.clone();
            async move {
                let (principal, origin) = (&spec.run_as, &Origin::Schedule(key));
                let sender = Sender { principal, origin, request_id: &id, trace: None };
                let envelope = Envelope { id: Some(id.clone()), ..spec.command };
                app.commands().execute(&app, sender, &envelope).await.map(|_| ())
            }
            .boxed()
        };
        ScheduleWorker { execute: Arc::new(execute) }
    }
}

const TIMEOUT: Duration = Duration::from_secs(60);

#[async_trait]
impl AnyWorker for ScheduleWorker {
    fn kind(&self) -> &str {
        KIND
    }

    async fn reconcile(&self, attempt: &Attempt) -> Result<(Change, Requeue)> {
        let object = &attempt.object;
        if object.deleted_at.is_some() {
            return Ok((Change::default(), Requeue::Never));
        }
        let spec: Spec = object.spec.parse()?;
        let status: Status = object.status.parse()?;
        let handled = status.handled.unwrap_or(object.created_at);
        let (planned, next, result) =
            match plan(&spec.times()?, spec.catch_up, handled, attempt.now()) {
                Plan::Wait(next) => return Ok((Change::default(), at(next))),
                Plan::Skip { planned, next } => (planned, next, "skipped".into()),
                Plan::Run { planned, next } => {
                    let id = command_id(object, planned);
                    let executed = (self.execute)(object.key.clone(), spec, id);
                    let executed = tokio::time::timeout(TIMEOUT, executed).await;
                    let result = match executed {
                        Ok(Ok(())) => "done".into(),
                        // Carried out or not: the same id again shows it.
                        Ok(Err(error)) if error.class() == Class::Transient => return Err(error),
                        Err(_) => {
                            let late = format!("the command did not end within {TIMEOUT:?}");
                            return Err(Error::Transient(late));
                        }
                        Ok(Err(error)) => error.to_string(),
                    };
                    (planned, next, result)
                }
            };
        let run = Run { planned, at: attempt.now(), result };
        Ok((ran(object, &status, run, next), at(next)))
    }
}

fn at(next: Option<crate::Timestamp>) -> Requeue {
    next.map_or(Requeue::Never, Requeue::At)
}
