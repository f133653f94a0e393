//! How a command went, whichever way it came.

use serde::Serialize;
use utoipa::ToSchema;

use super::envelope::record_id;
use crate::identity::Principal;
use crate::log::{CommandState, Event, EventFilter};
use crate::store::is_last_page;
use crate::{App, Error, Json, Key, Result};

/// Events per read of an object's history.
const PAGE: usize = 500;

/// How a command went.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CommandStatus {
    pub id: String,
    /// `accepted`, `progress`, `done`, `rejected`, or `superseded` by a later command.
    #[schema(value_type = String)]
    pub state: CommandState,
    /// As HTTP would say it.
    pub status: u16,
    /// What the command replied, or why it was rejected.
    pub reply: Json,
    /// The object that it has written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub subject: Option<Key>,
    /// The phase that the object has now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The last event of the command that is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<i64>,
}

/// Finds out how a sender's command went, for as long as its record is kept.
pub async fn status(app: &App, sender: &Principal, id: &str) -> Result<CommandStatus> {
    let found = app.store.command(&record_id(id, sender)?).await?;
    let record = found.ok_or_else(|| Error::NotFound(format!("command {id}")))?;
    let (mut state, mut event, mut phase) = (CommandState::Done, None, None);
    if record.reply.status >= 400 {
        state = CommandState::Rejected;
    } else if let Some(key) = &record.subject {
        phase = app.store.object(key).await?.map(|object| object.phase.clone());
        (state, event) = follow(app, key, id).await?;
    }
    let (status, reply) = (record.reply.status, record.reply.body);
    Ok(CommandStatus { id: id.into(), state, status, reply, subject: record.subject, phase, event })
}

/// Reads the history of the object that a command has written.
async fn follow(app: &App, key: &Key, id: &str) -> Result<(CommandState, Option<i64>)> {
    let filter = EventFilter { subject: Some(key.clone()), ..EventFilter::default() };
    let mut history = History::default();
    let mut after = 0;
    loop {
        let events = app.store.events(after, &filter, PAGE).await?;
        events.iter().for_each(|event| history.add(event, id));
        match events.last() {
            Some(last) if !is_last_page(&events, PAGE) => after = last.seq,
            _ => return Ok((history.state, history.last)),
        }
    }
}

struct History {
    state: CommandState,
    last: Option<i64>,
}

impl Default for History {
    fn default() -> History {
        History { state: CommandState::Accepted, last: None }
    }
}

impl History {
    fn add(&mut self, event: &Event, id: &str) {
        if self.state == CommandState::Done {
            return;
        }
        if event.cause.command.as_deref() == Some(id) {
            self.last = Some(event.seq);
            self.state = event.command_state().unwrap_or(CommandState::Accepted);
        } else if self.last.is_some()
            // How far an earlier command is says nothing.
            && event.command_state().is_some_and(|state| state != CommandState::Progress)
        {
            self.state = CommandState::Superseded;
        }
    }
}
