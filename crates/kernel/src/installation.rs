//! The keys of an installation. Their fingerprints are in the store, so that a server with another
//! key refuses to start instead of making tokens and secrets that fit nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::change::AuditDraft;
use crate::store::edit;
use crate::typed::{Kind, NoStatus};
use crate::{Ambient, Change, Draft, Error, Json, Key, Object, Result, Store, Timestamp};

/// A file that holds a key of the installation.
#[derive(Debug, Clone)]
pub struct KeyFile {
    /// The name of the file in a backup.
    pub name: &'static str,
    pub path: PathBuf,
    /// The setting that names another path.
    pub setting: &'static str,
}

/// By the name of the key.
pub type Fingerprints = BTreeMap<String, String>;

crate::labels! { enum Phase { Ready = "ready" } }

/// The object that holds the fingerprints.
#[derive(Serialize, Deserialize)]
struct Keys(Fingerprints);

impl Kind for Keys {
    type Phase = Phase;
    type Status = NoStatus;
    const RECONCILED: bool = false;
}

pub(crate) const KEYS_OBJECT: &str = "installation/keys";

impl KeyFile {
    /// The content; none if there is no such file.
    pub fn read(&self) -> Result<Option<Vec<u8>>> {
        match std::fs::read(&self.path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let what = format!("{} cannot be read: {error}", self.path.display());
                Err(Error::invalid(self.setting, what))
            }
        }
    }

    /// Keys are random, so a hash reveals nothing of them. White space around one does not count.
    pub fn fingerprint(&self, content: &[u8]) -> String {
        let hash = Sha256::new_with_prefix(format!("mainstay key {}\n", self.name));
        format!("{:x}", hash.chain_update(content.trim_ascii()).finalize())
    }

    /// Compares the file with the fingerprint in the store.
    fn check(&self, expected: &str) -> Result<()> {
        let path = self.path.display();
        let what = match self.read()? {
            None => {
                format!("{path} is missing; the store was made with the key {}", short(expected))
            }
            Some(content) if self.fingerprint(&content) == expected => return Ok(()),
            Some(content) => format!(
                "{path} is the key {}, but the store was made with {}",
                short(&self.fingerprint(&content)),
                short(expected)
            ),
        };
        Err(Error::Conflict(format!(
            "{}: {what}. Copy the right file to {path}: from the data directory of another replica, or \
             keys/{} of a backup. If the key was replaced on purpose, run `mainstay migrate --accept-keys`",
            self.setting, self.name
        )))
    }
}

/// Enough to tell keys apart.
fn short(fingerprint: &str) -> &str {
    fingerprint.get(..12).unwrap_or(fingerprint)
}

fn stored(object: Option<&Object>) -> Result<Fingerprints> {
    object.map_or_else(|| Ok(Fingerprints::new()), |object| object.spec.parse())
}

fn write(there: Option<&Object>, fingerprints: Fingerprints, now: Timestamp) -> Result<Change> {
    let (draft, event) = match there {
        Some(there) => (Draft::of(there), "changed"),
        // No organisation and no owner: only admins see it.
        None => (Draft::new(Key::parse(KEYS_OBJECT)?, "", "", "keys", now), "created"),
    };
    Ok(draft.phase(&Phase::Ready).spec(&Keys(fingerprints)).respec(event, now).into())
}

/// Refuses keys other than those that the store was made with. Called before keys are opened, which
/// creates missing ones.
pub async fn check_keys(store: &dyn Store, keys: &[KeyFile]) -> Result<()> {
    let object = store.object(&Key::parse(KEYS_OBJECT)?).await?;
    let expected = stored(object.as_deref())?;
    for key in keys {
        if let Some(expected) = expected.get(key.name) {
            key.check(expected)?;
        }
    }
    Ok(())
}

/// Adds the fingerprints of keys that the store does not know. The first server wins; another with
/// other keys is refused.
pub async fn record_keys(store: &dyn Store, ambient: &Ambient, keys: &[KeyFile]) -> Result<()> {
    edit(store, ambient, &Key::parse(KEYS_OBJECT)?, |there, now| {
        let before = stored(there)?;
        let mut after = before.clone();
        for key in keys {
            match (before.get(key.name), key.read()?) {
                (Some(expected), _) => key.check(expected)?,
                (None, Some(content)) => {
                    after.insert(key.name.into(), key.fingerprint(&content));
                }
                (None, None) => {}
            }
        }
        let change = (after != before).then(|| write(there, after, now)).transpose()?;
        Ok((change, ()))
    })
    .await
}

/// Makes the keys that are there now the ones of the store. One that is missing is created at the
/// next start.
pub async fn accept_keys(store: &dyn Store, ambient: &Ambient, keys: &[KeyFile]) -> Result<()> {
    edit(store, ambient, &Key::parse(KEYS_OBJECT)?, |there, now| {
        let before = stored(there)?;
        let mut after = before.clone();
        for key in keys {
            match key.read()? {
                Some(content) => after.insert(key.name.into(), key.fingerprint(&content)),
                None => after.remove(key.name),
            };
        }
        if after == before {
            return Ok((None, ()));
        }
        let audit = AuditDraft {
            actor: "mainstay migrate".into(),
            action: "installation.accept_keys".into(),
            target: KEYS_OBJECT.into(),
            outcome: "done".into(),
            before: Json::encode(&before),
            after: Json::encode(&after),
            ..AuditDraft::default()
        };
        let change = Change { audit: Some(audit), ..write(there, after, now)? };
        Ok((Some(change), ()))
    })
    .await
}

/// In a data directory while a restore writes to it.
const RESTORE_MARK: &str = "restore-in-progress";

/// Refuses a directory that a restore did not finish.
pub fn check_data_dir(dir: &Path) -> Result<()> {
    if dir.join(RESTORE_MARK).try_exists().unwrap_or(false) {
        return Err(Error::Conflict(format!(
            "data_dir: a restore into {} did not finish; empty the directory and restore again",
            dir.display()
        )));
    }
    Ok(())
}

/// The file that says that a restore writes to the directory.
pub(crate) fn restore_mark(dir: &Path) -> PathBuf {
    dir.join(RESTORE_MARK)
}
