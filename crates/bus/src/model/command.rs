//! A command as a message, and the answers to it.

use kernel::command::Envelope;
use kernel::log::CommandState;
use kernel::telemetry::Secret;
use kernel::{Json, Key, Timestamp};
use serde::{Deserialize, Serialize};

/// A command as a message: the envelope of `POST /api/v1/commands`, with what a connection would say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandMessage {
    /// Chosen by the sender: commands with the same id are carried out once.
    pub id: String,
    #[serde(rename = "type")]
    pub name: String,
    #[serde(default = "first_version")]
    pub version: u32,
    #[serde(default)]
    pub subject: Option<Key>,
    #[serde(default)]
    pub expected_generation: Option<i64>,
    /// When the sender made it. One that is older than the records of commands is refused: its
    /// repetition could not be recognised.
    pub issued_at: Timestamp,
    /// A bearer token, if the sender is not who the broker says.
    #[serde(default)]
    pub token: Option<Secret>,
    #[serde(default)]
    pub body: Json,
}

fn first_version() -> u32 {
    1
}

impl CommandMessage {
    pub fn envelope(&self) -> Envelope {
        Envelope {
            id: Some(self.id.clone()),
            name: self.name.clone(),
            version: self.version,
            subject: self.subject.clone(),
            expected_generation: self.expected_generation,
            body: self.body.clone(),
        }
    }
}

/// The body of an answer.
#[derive(Debug, Serialize)]
pub struct AnswerBody<'a> {
    /// The id of the command.
    pub id: &'a str,
    pub state: CommandState,
    /// As HTTP would say it; of the first answer only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What the command replied, why it was rejected, how far it is, or the object as it is now.
    pub body: &'a Json,
    /// The event that says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<i64>,
}
