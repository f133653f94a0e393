//! The managed object: its key, its desired spec, its observed status.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::change::Cause;
use crate::{Error, Timestamp};

/// Identifies an object: `kind/id`, as in `widget/cq1v0c8h5g2s73d1q8pg`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(Box<str>);

/// The longest id that a caller may choose.
pub const ID_CHARS_MAX: usize = 128;

impl Key {
    /// A key from a trusted kind and id.
    pub fn new(kind: &str, id: &str) -> Key {
        Key(format!("{kind}/{id}").into())
    }

    /// A key from untrusted text.
    pub fn parse(text: &str) -> Result<Key, Error> {
        Key::parse_up_to(text, ID_CHARS_MAX)
    }

    fn parse_up_to(text: &str, chars_max: usize) -> Result<Key, Error> {
        let word = |part: &str, also: &[char]| {
            !part.is_empty()
                && part.len() <= chars_max
                && part.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(&c))
        };
        match text.split_once('/') {
            // Only dots would be a path traversal where ids become file names.
            Some((kind, id))
                if word(kind, &['-'])
                    && word(id, &['-', '_', '.', ':'])
                    && !id.bytes().all(|b| b == b'.') =>
            {
                Ok(Key(text.into()))
            }
            _ => Err(Error::invalid(
                "key",
                "must be kind/id; a kind has letters, digits and '-', an id also '_', '.' and ':'",
            )),
        }
    }

    pub fn kind(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(kind, _)| kind)
    }

    pub fn id(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, id)| id)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A key read from the store.
    pub(crate) fn stored(text: &str) -> Key {
        Key(text.into())
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Key {
    type Error = Error;
    /// Takes what we serialised too: the id of a queue row may name another key.
    fn try_from(text: String) -> Result<Key, Error> {
        Key::parse_up_to(&text, 2 * ID_CHARS_MAX)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> String {
        key.0.into()
    }
}

/// JSON that the kernel carries without parsing it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Json {
        Json(serde_json::value::to_raw_value(value).expect("our own types serialise"))
    }

    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(self.0.get()).map_err(|e| Error::internal("stored JSON", e))
    }

    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// JSON read from the store.
    pub fn stored(text: String) -> Result<Json, Error> {
        RawValue::from_string(text).map(Json).map_err(|e| Error::internal("stored JSON", e))
    }
}

impl Default for Json {
    fn default() -> Json {
        Json::encode(&serde_json::Map::new())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Json) -> bool {
        self.text() == other.text()
    }
}

pub type Labels = BTreeMap<String, String>;

/// A managed object. `spec` is the desired state, `status` the last observed one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Object {
    pub key: Key,
    /// The organisation that it belongs to.
    pub org: String,
    /// The subject that it belongs to.
    pub owner: String,
    pub name: String,
    #[serde(default)]
    pub description: String,
    pub phase: String,
    #[serde(default)]
    pub labels: Labels,
    pub spec: Json,
    pub status: Json,
    /// Counts changes of the desired state: of the spec, or that its deletion was requested.
    pub generation: i64,
    /// The generation that the status reflects.
    pub observed: i64,
    /// Counts every write; a writer names the revision that it read.
    pub revision: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    /// What led to the current generation.
    #[serde(default, skip_serializing_if = "Cause::is_empty")]
    pub cause: Cause,
}

impl Object {
    /// A new object, not yet written.
    pub fn new(
        key: Key,
        org: &str,
        owner: &str,
        name: &str,
        phase: &str,
        now: Timestamp,
    ) -> Object {
        Object {
            key,
            org: org.into(),
            owner: owner.into(),
            name: name.into(),
            description: String::new(),
            phase: phase.into(),
            labels: Labels::new(),
            spec: Json::default(),
            status: Json::default(),
            generation: 1,
            observed: 0,
            revision: 1,
            created_at: now,
            updated_at: now,
            deleted_at: None,
            cause: Cause::default(),
        }
    }

    /// The size of what [`crate::change::OBJECT_BYTES_MAX`] limits.
    pub fn bytes(&self) -> usize {
        self.spec.text().len() + self.status.text().len()
    }

    /// The words that a search matches.
    pub fn words(&self) -> Vec<String> {
        let labels = self.labels.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]);
        let all = [self.name.as_str(), self.description.as_str()].into_iter().chain(labels);
        all.flat_map(crate::query::tokenize).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_from_outside_holds_nothing_that_could_be_a_path() {
        assert_eq!(Key::parse("widget/a.b_c:d-1").unwrap().id(), "a.b_c:d-1");
        for bad in [
            "",
            "widget",
            "widget/",
            "/x",
            "widget/../etc",
            "widget/a/b",
            "widget/a b",
            "wid get/a",
            "widget/\0",
            "widget/.",
            "widget/..",
            "widget/😀",
        ] {
            assert!(Key::parse(bad).is_err(), "{bad:?} was taken");
        }
        assert!(Key::parse(&format!("widget/{}", "x".repeat(ID_CHARS_MAX + 1))).is_err());
    }
}
