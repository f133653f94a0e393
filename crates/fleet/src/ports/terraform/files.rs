//! The working directory of a cluster's runs. All functions block.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use kernel::files;
use serde_json::Value;

use crate::ports::process::Identity;

/// Has Terraform use the backend that the server provides.
const BACKEND: &str = "mainstay_override.tf";
/// Records the process that runs, for the server that takes over.
const RUNNING: &str = "mainstay-running.json";
/// A state that Terraform could not store.
const ERRORED: &str = "errored.tfstate";
/// Where earlier versions kept the state, and that it is of a run that completed.
const LOCAL_STATE: &str = "terraform.tfstate";
const APPLIED: &str = "mainstay-applied";

/// Copies the module. Returns whether the server keeps the state, which is so unless the module
/// names a backend of its own.
pub fn prepare(module: &Path, dir: &Path) -> Result<bool> {
    std::fs::create_dir_all(dir)?;
    let own = own_backend(module)?;
    copy(module, dir)?;
    if own {
        files::remove(&dir.join(BACKEND))?;
    } else {
        std::fs::write(dir.join(BACKEND), "terraform {\n  backend \"http\" {}\n}\n")?;
    }
    Ok(!own)
}

/// Whether the prepared directory uses the backend of the server.
pub fn uses_backend(dir: &Path) -> bool {
    dir.join(BACKEND).exists()
}

/// Whether a module names a backend of its own, which then has the state.
fn own_backend(module: &Path) -> Result<bool> {
    for entry in std::fs::read_dir(module)? {
        let path = entry?.path();
        let ours = path.file_name().is_some_and(|name| name == BACKEND);
        if ours || path.extension().is_none_or(|extension| extension != "tf") {
            continue;
        }
        for line in std::fs::read_to_string(&path)?.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.contains(&"backend") && words.contains(&"\"local\"") {
                let text = "backend \"local\" would keep the state on one machine; leave it out";
                return Err(Error::other(text));
            }
            let comment = line.trim_start().starts_with(['#', '/']);
            if !comment && (words.contains(&"backend") || words.starts_with(&["cloud", "{"])) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Copies a module's files, without what a run by hand may have left.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if text == ".terraform" || text.starts_with(LOCAL_STATE) || text.starts_with(".git") {
            continue;
        }
        let target = to.join(&name);
        if entry.path().is_dir() {
            std::fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// The process of the last run, if it still runs.
pub fn running(dir: &Path) -> Option<Identity> {
    let record = std::fs::read(dir.join(RUNNING)).ok()?;
    serde_json::from_slice(&record).ok().filter(Identity::is_alive)
}

/// Records the process that runs.
pub fn record_running(dir: &Path, pid: u32) -> Result<()> {
    // None if it has ended already.
    let Some(identity) = Identity::of_pid(pid) else { return Ok(()) };
    let record = serde_json::to_vec(&identity).expect("two plain fields");
    files::replace(&dir.join(RUNNING), &record, 0o600)
}

/// A state that only this machine has: one that the last run could not store, or one of an earlier
/// version, which is used only if `stored` is none.
pub fn unstored_state(dir: &Path, stored: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
    if !dir.exists() || own_backend(dir)? {
        return Ok(None);
    }
    match std::fs::read(dir.join(ERRORED)) {
        Ok(state) => return newer(state, stored),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    match std::fs::read(dir.join(LOCAL_STATE)) {
        Ok(state) if stored.is_none() && !state.is_empty() => Ok(Some(state)),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(None),
    }
}

/// The outputs of a run of an earlier version, if it completed.
pub fn earlier_outputs(dir: &Path) -> Result<Option<Value>> {
    if !dir.join(APPLIED).exists() {
        return Ok(None);
    }
    match std::fs::read(dir.join(LOCAL_STATE)) {
        Ok(state) => {
            let mut state: Value = serde_json::from_slice(&state).map_err(Error::other)?;
            Ok(Some(state["outputs"].take()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The state, unless the stored one is as new.
fn newer(state: Vec<u8>, stored: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
    let read = |bytes: &[u8]| -> Result<(String, i64)> {
        let state: Value = serde_json::from_slice(bytes).map_err(Error::other)?;
        let lineage = state["lineage"].as_str().unwrap_or_default().to_owned();
        Ok((lineage, state["serial"].as_i64().unwrap_or(0)))
    };
    let Some(stored) = stored else { return Ok(Some(state)) };
    let ((ours, serial), (theirs, stored_serial)) = (read(&state)?, read(stored)?);
    if ours != theirs {
        let text = format!("{ERRORED} and the stored state are of different resources");
        return Err(Error::other(text));
    }
    Ok((serial > stored_serial).then_some(state))
}

/// Removes the states that are stored now.
pub fn remove_stored(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    files::remove(&dir.join(RUNNING))?;
    if own_backend(dir)? {
        return Ok(());
    }
    let backup = "terraform.tfstate.backup";
    for name in [ERRORED, LOCAL_STATE, APPLIED, backup, ".terraform.tfstate.lock.info"] {
        files::remove(&dir.join(name))?;
    }
    Ok(())
}

pub fn remove_all(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_was_not_stored_is_used_only_if_it_is_newer_and_of_the_same_resources() {
        let dir = tempfile::tempdir().unwrap();
        let state = |lineage: &str, serial: i64| {
            format!(r#"{{"lineage":"{lineage}","serial":{serial}}}"#).into_bytes()
        };
        assert_eq!(unstored_state(dir.path(), None).unwrap(), None);
        std::fs::write(dir.path().join(LOCAL_STATE), state("a", 1)).unwrap();
        assert_eq!(unstored_state(dir.path(), None).unwrap(), Some(state("a", 1)));
        assert_eq!(unstored_state(dir.path(), Some(&state("a", 1))).unwrap(), None);
        std::fs::write(dir.path().join(ERRORED), state("a", 3)).unwrap();
        assert_eq!(unstored_state(dir.path(), Some(&state("a", 2))).unwrap(), Some(state("a", 3)));
        assert_eq!(unstored_state(dir.path(), Some(&state("a", 3))).unwrap(), None);
        assert!(unstored_state(dir.path(), Some(&state("b", 1))).is_err());
        remove_stored(dir.path()).unwrap();
        assert_eq!(unstored_state(dir.path(), None).unwrap(), None);
    }

    #[test]
    fn a_module_with_a_backend_of_its_own_keeps_it() {
        let (module, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(module.path().join("main.tf"), "# backend \"x\"\nterraform {\n}\n").unwrap();
        assert!(prepare(module.path(), dir.path()).unwrap() && uses_backend(dir.path()));
        std::fs::write(module.path().join("b.tf"), "terraform {\n  backend \"s3\" {\n  }\n}\n")
            .unwrap();
        assert!(!prepare(module.path(), dir.path()).unwrap() && !uses_backend(dir.path()));
        std::fs::write(dir.path().join(ERRORED), "theirs").unwrap();
        assert_eq!(unstored_state(dir.path(), None).unwrap(), None);
        remove_stored(dir.path()).unwrap();
        assert!(dir.path().join(ERRORED).exists(), "nothing of it is ours");
        std::fs::write(module.path().join("b.tf"), "terraform {\n  backend \"local\" {\n").unwrap();
        assert!(prepare(module.path(), dir.path()).unwrap_err().to_string().contains("local"));
    }
}
