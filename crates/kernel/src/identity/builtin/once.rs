//! Steps that are taken at most once, on whichever replica: stored as command records, which are
//! purged after a while. Anyone may cause some of them, so they must leave nothing permanent behind.
//! Command ids of callers cannot collide: they contain spaces.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::change::{AuditDraft, CommandRecord, CommandReply};
use crate::store::commit;
use crate::{Change, Error, Json, Refusal, Result, Store, Timestamp};

/// Takes the step; `false` if it was taken before.
pub async fn take(
    store: &dyn Store,
    now: Timestamp,
    id: String,
    what: &impl Serialize,
    audit: Option<AuditDraft>,
) -> Result<bool> {
    let reply = CommandReply { status: 200, body: Json::encode(what) };
    let command = CommandRecord { id, reply, ..CommandRecord::default() };
    let change = Change { command: Some(command), audit, ..Change::default() };
    match commit(store, change, now).await {
        Ok(_) => Ok(true),
        Err(Error::Refused(Refusal::Repeated { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What was recorded with the step.
pub async fn taken<T: DeserializeOwned>(store: &dyn Store, id: &str) -> Result<Option<T>> {
    let command = store.command(id).await?;
    command.map(|command| command.reply.body.parse()).transpose()
}
