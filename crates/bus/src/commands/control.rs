//! What people ask of a sink: to go on, and to send again.

use async_trait::async_trait;
use kernel::command::{Command, CommandContext, Decided};
use kernel::identity::Action;
use kernel::{Error, Object, Result};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{respec, subject};
use crate::model::Spec;

/// Resumes a parked sink, and sends its parked events again.
pub struct Resume;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResumeHow {
    /// Forget the parked events instead of sending them again.
    discard: bool,
}

#[async_trait]
impl Command for Resume {
    const NAME: &'static str = "sink.resume";
    const ACTION: Action = Action::Write;
    type Body = ResumeHow;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, how: ResumeHow) -> Result<Decided<Object>> {
        let (object, sink) = subject(cx)?;
        let spec = Spec { resumes: sink.spec.resumes + 1, discard: how.discard, ..sink.spec };
        Ok(respec(cx, &object, &spec, "resumed"))
    }
}

/// Sends events again, in a new epoch.
pub struct Replay;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayFrom {
    /// The number of the first event to send again.
    from: i64,
}

#[async_trait]
impl Command for Replay {
    const NAME: &'static str = "sink.replay";
    const ACTION: Action = Action::Write;
    type Body = ReplayFrom;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, body: ReplayFrom) -> Result<Decided<Object>> {
        let (object, sink) = subject(cx)?;
        let newest = cx.app.store.newest_event().await?;
        let oldest = cx.app.store.first_event().await?.unwrap_or(newest + 1);
        if !(oldest..=newest + 1).contains(&body.from) {
            let why = format!("must be the number of an event that is kept: {oldest} to {newest}");
            return Err(Error::invalid("from", why));
        }
        // The pump may have begun an epoch of its own after a restore.
        let reached = crate::store::cursor(cx.app.store.as_ref(), &sink.id).await?;
        let reached = reached.map_or(0, |(position, _)| position.epoch);
        let epoch = sink.spec.epoch.max(reached) + 1;
        let spec = Spec { epoch, from: Some(body.from), ..sink.spec };
        Ok(respec(cx, &object, &spec, "replayed"))
    }
}
