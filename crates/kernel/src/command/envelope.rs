//! A command as it is sent.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use crate::identity::Principal;
use crate::{Error, Json, Key, Result};

const ID_CHARS_MAX: usize = 255;

/// A command as it is sent, over any transport.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CommandEnvelope)]
pub struct Envelope {
    /// Chosen by the sender: commands with the same id are carried out once, and get the same reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// As in `widget.create`.
    #[serde(rename = "type")]
    pub name: String,
    #[serde(default = "first_version")]
    pub version: u32,
    /// The object that it is about, as `kind/id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Key>,
    /// Refused unless the object has this generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_generation: Option<i64>,
    /// As defined by the command.
    #[serde(default)]
    pub body: Json,
}

fn first_version() -> u32 {
    1
}

impl Envelope {
    pub fn new(name: impl Into<String>, subject: Option<Key>, body: Json) -> Envelope {
        let (id, expected_generation) = (None, None);
        Envelope { id, name: name.into(), version: 1, subject, expected_generation, body }
    }

    /// Returns the id of the stored record, which is unique per sender, and the digest that guards
    /// it: over what the command says, not over how it came.
    pub(super) fn record_key(&self, sender: &Principal) -> Result<Option<(String, String)>> {
        let Some(id) = &self.id else { return Ok(None) };
        let id = record_id(id, sender)?;
        let mut body: Value = serde_json::from_str(self.body.text())
            .map_err(|e| Error::invalid("body", e.to_string()))?;
        body.sort_all_objects();
        let mut hash = Sha256::new();
        let subject = self.subject.as_ref().map_or("", Key::as_str);
        let generation = self.expected_generation.map(|n| n.to_string()).unwrap_or_default();
        for part in [self.name.as_str(), subject, &generation, &body.to_string()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Ok(Some((id, format!("{:x}", hash.finalize()))))
    }
}

/// The id of the stored record of a sender's command.
pub(super) fn record_id(id: &str, sender: &Principal) -> Result<String> {
    let legible = id.bytes().all(|b| b.is_ascii_graphic());
    if id.is_empty() || id.len() > ID_CHARS_MAX || !legible {
        let message = format!("must be 1 to {ID_CHARS_MAX} visible ASCII characters");
        return Err(Error::invalid("id", message));
    }
    // An id has no spaces, so the ids of two senders cannot be equal.
    Ok(format!("{id} {} {}", sender.issuer, sender.subject))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(name: &str, subject: Option<&str>, generation: Option<i64>, body: &str) -> String {
        let envelope = Envelope {
            id: Some("1".into()),
            expected_generation: generation,
            ..Envelope::new(
                name,
                subject.map(|id| Key::new("widget", id)),
                Json::stored(body.into()).expect("JSON"),
            )
        };
        envelope.record_key(&Principal::default()).expect("valid").expect("it has an id").1
    }

    #[test]
    fn the_digest_is_over_what_a_command_says() {
        let first = digest("widget.resize", Some("a"), None, r#"{"a":1,"b":{"c":2,"d":3}}"#);
        assert_eq!(
            first,
            digest("widget.resize", Some("a"), None, r#"{ "b":{"d":3,"c":2}, "a":1 }"#)
        );
        for other in [
            digest("widget.delete", Some("a"), None, r#"{"a":1,"b":{"c":2,"d":3}}"#),
            digest("widget.resize", Some("b"), None, r#"{"a":1,"b":{"c":2,"d":3}}"#),
            digest("widget.resize", None, None, r#"{"a":1,"b":{"c":2,"d":3}}"#),
            digest("widget.resize", Some("a"), Some(1), r#"{"a":1,"b":{"c":2,"d":3}}"#),
            digest("widget.resize", Some("a"), None, r#"{"a":2,"b":{"c":2,"d":3}}"#),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn an_id_that_could_be_misread_is_refused_and_another_senders_is_another() {
        let with = |id: &str, subject: &str| {
            let sender = Principal { subject: subject.into(), ..Principal::default() };
            let envelope =
                Envelope { id: Some(id.into()), ..Envelope::new("x", None, Json::default()) };
            envelope.record_key(&sender)
        };
        for bad in ["", "a b", "é", &"x".repeat(256)] {
            let message = with(bad, "alice").expect_err(bad).to_string();
            assert!(message.starts_with("id: must be 1 to 255"), "{message}");
        }
        let id = |subject| with("k", subject).expect("valid").expect("it has an id").0;
        assert_ne!(id("alice"), id("bob"));
    }
}
