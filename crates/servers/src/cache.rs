//! Where what is installed is kept: outside the checkout, so that a new clone finds it.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// `MAINSTAY_SERVERS_DIR`, or a directory below the user's own cache.
    pub fn of_user() -> Result<Cache> {
        let set = |name| std::env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let usual = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        let root = set("MAINSTAY_SERVERS_DIR").or_else(|| Some(usual()?.join("mainstay")));
        let root = root.context(
            "set MAINSTAY_SERVERS_DIR to a directory for the test servers (HOME is not set)",
        )?;
        Ok(Cache::at(std::path::absolute(root)?))
    }

    pub fn at(root: impl Into<PathBuf>) -> Cache {
        Cache { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where one version of something is. It is there as a whole or not at all; see [`Cache::put`].
    pub fn dir(&self, name: &str, version: &str) -> PathBuf {
        self.root.join("servers").join(format!("{name}-{version}"))
    }

    /// Makes one version of something: `fill` writes into a directory that becomes the final one
    /// only when it is complete. What an interrupted attempt left there is handed over as it is.
    pub fn put(
        &self,
        name: &str,
        version: &str,
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let done = self.dir(name, version);
        let begun = self.root.join("servers").join(format!(".{name}-{version}"));
        std::fs::create_dir_all(&begun)
            .with_context(|| format!("{} cannot be made", begun.display()))?;
        fill(&begun)?;
        std::fs::rename(&begun, &done).with_context(|| format!("{} cannot be made", done.display()))
    }

    /// For as long as the value lives, no other installation into this cache runs.
    pub fn lock(&self) -> Result<File> {
        std::fs::create_dir_all(&self.root)
            .with_context(|| format!("{} cannot be made", self.root.display()))?;
        let path = self.root.join("install.lock");
        let lock = File::create(&path).with_context(|| format!("{} is closed", path.display()))?;
        if lock.try_lock().is_err() {
            eprintln!("another installation runs; waiting for it");
            lock.lock()?;
        }
        Ok(lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_interrupted_is_not_there_and_goes_on_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let failed = cache.put("thing", "1", |dir| {
            std::fs::write(dir.join("half"), "one")?;
            anyhow::bail!("interrupted")
        });
        assert_eq!(failed.unwrap_err().to_string(), "interrupted");
        assert!(!cache.dir("thing", "1").exists());
        cache
            .put("thing", "1", |dir| {
                assert_eq!(std::fs::read_to_string(dir.join("half"))?, "one");
                Ok(std::fs::write(dir.join("other half"), "two")?)
            })
            .unwrap();
        assert_eq!(std::fs::read_dir(cache.dir("thing", "1")).unwrap().count(), 2);
    }

    #[test]
    fn two_installations_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let first = cache.lock().unwrap();
        let other = File::open(dir.path().join("install.lock")).unwrap();
        assert!(other.try_lock().is_err());
        drop(first);
        other.try_lock().unwrap();
    }
}
