//! A command as a message, and the answers to it.

use kernel::command::Envelope;
use kernel::log::CommandState;
use kernel::telemetry::Secret;
use kernel::{Error, Json, Key, Result, Timestamp};
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

/// No valid command has a longer id or name.
const ID_BYTES_MAX: usize = 255;
const NAME_BYTES_MAX: usize = 128;

/// What a body may say of itself.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    #[serde(rename = "requestId")]
    request_id: Option<String>,
}

impl CommandMessage {
    /// A command of which there is only the body. Its id is the body's `requestId`, if it has one.
    pub fn bare(name: &str, id: &str, issued_at: Timestamp, body: Json) -> CommandMessage {
        let named: Named = serde_json::from_str(body.text()).unwrap_or_default();
        let named = named.request_id.filter(|id| !id.is_empty());
        // The end of a long one tells more: the offset.
        let skipped = id.len().saturating_sub(ID_BYTES_MAX);
        CommandMessage {
            id: named.unwrap_or_else(|| id.chars().skip(skipped).collect()),
            name: name.into(),
            version: first_version(),
            subject: None,
            expected_generation: None,
            issued_at,
            token: None,
            body,
        }
    }

    /// Refuses what is too long for logs, events and records.
    pub fn check(&self) -> Result<()> {
        for (field, text, bytes_max) in
            [("id", &self.id, ID_BYTES_MAX), ("type", &self.name, NAME_BYTES_MAX)]
        {
            if text.len() > bytes_max {
                return Err(Error::invalid(field, format!("must have at most {bytes_max} bytes")));
            }
        }
        Ok(())
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn id(given: &str, body: &str) -> String {
        let body = serde_json::from_str(body).unwrap();
        CommandMessage::bare("note.add", given, Timestamp(7), body).id
    }

    #[test]
    fn a_body_alone_is_named_by_its_request_id_or_by_its_place() {
        assert_eq!(id("t.0.7.1", r#"{"requestId":"nightly","x":1}"#), "nightly");
        for body in [r#"{"x":1}"#, r#"{"requestId":""}"#, r#"{"requestId":7}"#, "[]", "7"] {
            assert_eq!(id("t.0.7.1", body), "t.0.7.1", "{body}");
        }
        let long = format!("{}.0.7.1", "t".repeat(249));
        assert_eq!(id(&long, "{}"), long[long.len() - 255..]);
    }
}
