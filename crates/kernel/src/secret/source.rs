//! Where a secret of the configuration comes from: the configuration itself, a file, an environment
//! variable, or Vault.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::file_watch::Content;
use crate::telemetry::Secret;
use crate::{Error, Result};

/// In the configuration a text, or `{ file = "/path" }`, `{ env = "NAME" }` or
/// `{ vault = "MOUNT/PATH#FIELD" }`. Only for the configuration: read from what others send, it would
/// make them read our files.
#[derive(Debug, Clone, PartialEq)]
pub enum SecretSource {
    Value(Secret),
    File(PathBuf),
    Env(String),
    Vault(VaultField),
}

impl SecretSource {
    /// Whether it is not set: an empty text.
    pub fn is_empty(&self) -> bool {
        matches!(self, SecretSource::Value(secret) if secret.expose().is_empty())
    }

    /// The value now, for those who need it once. `key` is its setting. Vault is refused: it is not
    /// there yet when such values are needed.
    pub fn read(&self, key: &str) -> Result<Secret> {
        match self {
            SecretSource::Value(secret) => Ok(secret.clone()),
            SecretSource::File(path) => {
                let content = std::fs::read(path).map_err(|error| error.to_string());
                text(key, path, &content)
            }
            SecretSource::Env(name) => match std::env::var(name) {
                Ok(value) if !value.is_empty() => Ok(Secret::new(value)),
                Ok(_) => {
                    Err(Error::invalid(key, format!("the environment variable {name} is empty")))
                }
                Err(std::env::VarError::NotPresent) => {
                    Err(Error::invalid(key, format!("the environment variable {name} is not set")))
                }
                Err(std::env::VarError::NotUnicode(_)) => {
                    let why = format!("the environment variable {name} is not UTF-8 text");
                    Err(Error::invalid(key, why))
                }
            },
            SecretSource::Vault(_) => Err(Error::invalid(
                key,
                "cannot come from Vault; give a value, a file or a variable",
            )),
        }
    }
}

/// The secret in a file, without the line break at its end.
pub(super) fn text(key: &str, path: &Path, content: &Content) -> Result<Secret> {
    let invalid = |why: &str| Error::invalid(key, format!("the file {} {why}", path.display()));
    let bytes = content.as_ref().map_err(|error| invalid(&format!("cannot be read: {error}")))?;
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("is not UTF-8 text"))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(invalid("is empty")),
        text => Ok(Secret::from(text)),
    }
}

impl Default for SecretSource {
    fn default() -> SecretSource {
        SecretSource::Value(Secret::default())
    }
}

impl From<&str> for SecretSource {
    fn from(text: &str) -> SecretSource {
        SecretSource::Value(text.into())
    }
}

/// A field of what is at a path of Vault's API, as in `secret/data/fleet/ams#token`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct VaultField {
    /// Without `/v1/`. That of a KV store of version 2 has `data/` after the mount.
    pub path: String,
    pub field: String,
}

impl TryFrom<String> for VaultField {
    type Error = String;

    fn try_from(text: String) -> Result<VaultField, String> {
        let (path, field) = text.split_once('#').unwrap_or((&text, ""));
        let path = path.trim_matches('/');
        let path = path.strip_prefix("v1/").unwrap_or(path);
        let strange = path.split('/').any(|part| matches!(part, "" | "." | ".."));
        if strange || !path.contains('/') || field.is_empty() {
            return Err(format!(
                "{text:?} must be MOUNT/PATH#FIELD, such as \"secret/data/fleet/ams#token\""
            ));
        }
        Ok(VaultField { path: path.into(), field: field.into() })
    }
}

impl fmt::Display for VaultField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.path, self.field)
    }
}

/// Shows the source, never the value.
impl Serialize for SecretSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry = |serializer: S, name: &str, value: &str| {
            let mut map = serializer.serialize_map(Some(1))?;
            map.serialize_entry(name, value)?;
            map.end()
        };
        match self {
            _ if self.is_empty() => serializer.serialize_str(""),
            SecretSource::Value(secret) => secret.serialize(serializer),
            SecretSource::File(path) => entry(serializer, "file", &path.to_string_lossy()),
            SecretSource::Env(name) => entry(serializer, "env", name),
            SecretSource::Vault(field) => entry(serializer, "vault", &field.to_string()),
        }
    }
}

impl<'de> Deserialize<'de> for SecretSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SecretSource, D::Error> {
        deserializer.deserialize_any(SourceVisitor)
    }
}

const FORMS: &str =
    "must be text in quotes, or { file = \"…\" }, { env = \"…\" } or { vault = \"…\" }";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    file: Option<PathBuf>,
    env: Option<String>,
    vault: Option<VaultField>,
}

struct SourceVisitor;

impl<'de> Visitor<'de> for SourceVisitor {
    type Value = SecretSource;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text in quotes, or a table with file, env or vault")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SecretSource, E> {
        Ok(text.into())
    }

    // Serde's own message would show the number, which may be a password without its quotes.
    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<SecretSource, E> {
        Err(E::custom(FORMS))
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<SecretSource, E> {
        Err(E::custom(FORMS))
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<SecretSource, E> {
        Err(E::custom(FORMS))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SecretSource, A::Error> {
        match Table::deserialize(MapAccessDeserializer::new(map))? {
            Table { file: Some(path), env: None, vault: None } => Ok(SecretSource::File(path)),
            Table { file: None, env: Some(name), vault: None } => Ok(SecretSource::Env(name)),
            Table { file: None, env: None, vault: Some(field) } => Ok(SecretSource::Vault(field)),
            _ => Err(serde::de::Error::custom("must have one of file, env and vault")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: serde_json::Value) -> Result<SecretSource, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn every_form_is_read_and_only_the_source_is_shown() {
        let vault = VaultField { path: "kv/data/a".into(), field: "token".into() };
        for (form, expected, shown) in [
            (json!("hunter2"), SecretSource::from("hunter2"), json!("[redacted]")),
            (json!(""), SecretSource::default(), json!("")),
            (json!({"file": "/s"}), SecretSource::File("/s".into()), json!({"file": "/s"})),
            (json!({"env": "S"}), SecretSource::Env("S".into()), json!({"env": "S"})),
            (
                json!({"vault": "/v1/kv/data/a#token"}),
                SecretSource::Vault(vault),
                json!({"vault": "kv/data/a#token"}),
            ),
        ] {
            let source = read(form).unwrap();
            assert_eq!(source, expected);
            assert_eq!(serde_json::to_value(&source).unwrap(), shown);
            assert!(!format!("{source:?}").contains("hunter2"));
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_value() {
        for (form, part) in [
            (json!(123_456), "text in quotes"),
            (json!(-123_456), "text in quotes"),
            (json!(123_456.5), "text in quotes"),
            (json!({"flie": "/123456"}), "unknown field `flie`"),
            (json!({}), "one of file, env and vault"),
            (json!({"file": "/s", "env": "S"}), "one of file, env and vault"),
            (json!({"vault": "kv/data/a"}), "MOUNT/PATH#FIELD"),
            (json!({"vault": "kv#a"}), "MOUNT/PATH#FIELD"),
            (json!({"vault": "kv/../sys/x#a"}), "MOUNT/PATH#FIELD"),
        ] {
            let error = read(form).unwrap_err();
            assert!(error.contains(part) && !error.contains("123456"), "{error}");
        }
    }

    #[test]
    fn a_source_that_cannot_be_read_names_the_setting_and_the_source() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            std::fs::write(dir.path().join(name), bytes).unwrap();
            SecretSource::File(dir.path().join(name))
        };
        let good = file("good", b" hunter2 \r\n");
        assert_eq!(good.read("a.b").unwrap().expose(), " hunter2 ");
        let path = SecretSource::Env("PATH".into()).read("a.b").unwrap();
        assert_eq!(*path.expose(), std::env::var("PATH").unwrap());
        for (source, part) in [
            (SecretSource::File(dir.path().join("none")), "/none cannot be read: No such file"),
            (file("empty", b"\n"), "/empty is empty"),
            (file("binary", b"hunter2\xff"), "/binary is not UTF-8 text"),
            (SecretSource::Env("MAINSTAY_TEST_UNSET".into()), "MAINSTAY_TEST_UNSET is not set"),
        ] {
            let error = source.read("a.b").unwrap_err().to_string();
            assert!(error.starts_with("a.b: ") && error.contains(part), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
