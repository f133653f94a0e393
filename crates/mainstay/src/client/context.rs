//! Which server a client speaks to, and as whom: the context file that `mainstay login` writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kernel::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::local::Local;

/// All contexts of a person.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    #[serde(default)]
    pub current: String,
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

/// A server, and how to get a token for it. Never printed: it is all secrets.
#[derive(Clone, Default, Serialize, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Context {
    pub server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh: Option<Refresh>,
    /// The server's data is on this machine: tokens are made with its signing key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<Local>,
    /// Certificates to trust besides the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

#[derive(Clone, Default, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Refresh {
    pub token: String,
    pub token_endpoint: String,
    /// Where a sign-out is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation_endpoint: Option<String>,
    pub client_id: String,
}

impl Contexts {
    /// `$XDG_CONFIG_HOME/mainstay/contexts.toml`.
    pub fn usual_path() -> Option<PathBuf> {
        let set =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let dir = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
        Some(dir.join("mainstay/contexts.toml"))
    }

    /// The same path, where a context is to be stored.
    pub fn path() -> Result<PathBuf> {
        let missing = || kernel::Error::invalid("HOME", "must be set to keep a context").into();
        Contexts::usual_path().ok_or_else(missing)
    }

    /// Nothing there is an empty list; something unreadable is an error.
    pub fn read(path: &Path) -> Result<Contexts> {
        let text = match std::fs::read_to_string(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Contexts::default()),
            Err(e) => return Err(Error::file(format!("{} cannot be read", path.display()), e)),
            Ok(text) => text,
        };
        toml::from_str(&text).map_err(|e| {
            // Only the message: the text around it is full of tokens.
            let field = path.display().to_string();
            kernel::Error::invalid(
                field,
                format!("{}; `mainstay login` writes a new one once it is removed", e.message()),
            )
            .into()
        })
    }

    /// Replaces the file in one step, readable by its owner alone.
    pub fn write(&self, path: &Path) -> Result<()> {
        let failed = |e| Error::file(format!("{} cannot be written", path.display()), e);
        let text = toml::to_string(self).expect("contexts serialise");
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(failed)?;
        }
        kernel::files::replace(path, text.as_bytes(), 0o600).map_err(failed)
    }

    /// The context of this name, or the current one.
    pub fn pick(&self, name: Option<&str>) -> Result<Option<(String, Context)>> {
        let name = name.unwrap_or(&self.current);
        match self.contexts.get(name) {
            Some(context) => Ok(Some((name.into(), context.clone()))),
            None if name.is_empty() => Ok(None),
            None => {
                let names: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
                Err(kernel::Error::invalid(
                    "context",
                    format!("there is no context `{name}`; there are: {}", names.join(", ")),
                )
                .into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_read_back_as_they_were_written_and_only_their_owner_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/contexts.toml");
        let refresh =
            Refresh { token: "r".into(), token_endpoint: "e".into(), ..Refresh::default() };
        let context = Context {
            server: "http://x".into(),
            token: Some("t".into()),
            token_until: Some(Timestamp(1_700_000_000_000)),
            refresh: Some(refresh),
            ..Context::default()
        };
        let contexts = Contexts {
            current: "a".into(),
            contexts: BTreeMap::from([("a".into(), context.clone())]),
        };
        contexts.write(&path).unwrap();
        contexts.write(&path).unwrap();
        let read = Contexts::read(&path).unwrap();
        assert!(read.pick(None).unwrap() == Some(("a".into(), context)));
        assert!(read.pick(Some("b")).is_err());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert!(Contexts::read(&dir.path().join("none")).unwrap().contexts.is_empty());
    }

    #[test]
    fn a_damaged_file_is_an_error_that_shows_no_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("contexts.toml");
        std::fs::write(&path, "[contexts.a]\nserver = 'x'\ntoken = 'hunter2\n").unwrap();
        let report = Contexts::read(&path).err().unwrap().report();
        assert!(!report.contains("hunter2"), "{report}");
    }
}
