//! Reads the catalogue's files: all of them, or none if one has an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use kernel::kind::Kinds;
use kernel::{Error, Result};
use serde::de::DeserializeOwned;

use crate::model::catalogue::Catalogue;
use crate::model::kind::Kind;
use crate::model::providers::{ClusterFile, Providers};
use crate::model::quota::{AccessRules, QuotaList};
use crate::model::{account, cluster};

/// The kinds that are built in.
const EMBEDDED: [(&str, &str); 2] = [
    ("kinds/kafka.yaml", include_str!("../../../../kinds/kafka.yaml")),
    ("kinds/dinosaur.yaml", include_str!("../../../../kinds/dinosaur.yaml")),
];

/// Paths of the catalogue's files.
#[derive(Debug, Clone, Default)]
pub struct CatalogueFiles {
    pub kinds_dir: Option<PathBuf>,
    pub quota: Option<PathBuf>,
    pub deny: Option<PathBuf>,
    pub access: Option<PathBuf>,
    pub providers: Option<PathBuf>,
    pub clusters: Option<PathBuf>,
}

impl CatalogueFiles {
    pub fn read(&self) -> Result<Catalogue> {
        let providers: Providers = match &self.providers {
            Some(file) => read(file)?,
            None => parse("providers.yaml", include_str!("providers.yaml"))?,
        };
        let quota: QuotaList = optional(self.quota.as_deref())?;
        let clusters: ClusterFile = optional(self.clusters.as_deref())?;
        let checked = |file: &Option<PathBuf>, result: Result<(), (String, String)>| {
            let file =
                file.as_ref().map_or_else(|| "the file".into(), |file| file.display().to_string());
            result.map_err(|(field, message)| Error::invalid(format!("{file}: {field}"), message))
        };
        checked(&self.quota, quota.check())?;
        checked(&self.providers, providers.check())?;
        let denied = self.deny.as_deref().map(names).transpose()?.unwrap_or_default();
        let allowed = self.access.as_deref().map(names).transpose()?;
        Ok(Catalogue {
            kinds: kinds(self.kinds_dir.as_deref())?,
            quota,
            access: AccessRules { denied, allowed },
            providers,
            clusters: clusters.clusters,
        })
    }

    /// Reads them on a thread for blocking calls. A kind whose name is taken is an error.
    pub async fn load(self, taken: &Kinds) -> Result<Catalogue> {
        let catalogue = kernel::files::blocking(move || self.read()).await?;
        let reserved =
            |name: &str| [cluster::KIND, account::KIND].contains(&name) || taken.is_reserved(name);
        match catalogue.kinds.keys().find(|name| reserved(name)) {
            Some(name) => Err(Error::invalid(
                format!("kinds: {name}"),
                "is the name of a kind of Mainstay's own; choose another",
            )),
            None => Ok(catalogue),
        }
    }

    /// The modification time of each file.
    pub fn modified(&self) -> Vec<(PathBuf, Option<SystemTime>)> {
        let kinds = self.kinds_dir.iter().flat_map(|dir| std::fs::read_dir(dir).ok());
        let kinds = kinds.flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let files = [&self.quota, &self.deny, &self.access, &self.providers, &self.clusters];
        let files = files.into_iter().flatten().cloned();
        let mut times: Vec<_> = kinds
            .chain(files)
            .map(|path| {
                let time = std::fs::metadata(&path).and_then(|meta| meta.modified()).ok();
                (path, time)
            })
            .collect();
        times.sort();
        times
    }
}

/// Reads a list of names, which may be numbers.
fn names(file: &Path) -> Result<BTreeSet<String>> {
    let listed: Vec<serde_yaml_ng::Value> = read(file)?;
    let name = |(i, value): (usize, serde_yaml_ng::Value)| match value {
        serde_yaml_ng::Value::String(name) => Ok(name),
        serde_yaml_ng::Value::Number(number) => Ok(number.to_string()),
        _ => Err(Error::invalid(format!("{}: [{i}]", file.display()), "must be a name")),
    };
    listed.into_iter().enumerate().map(name).collect()
}

fn optional<T: DeserializeOwned + Default>(file: Option<&Path>) -> Result<T> {
    file.map_or_else(|| Ok(T::default()), read)
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<T> {
    parse(&file.display().to_string(), &text(file)?)
}

fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T> {
    serde_yaml_ng::from_str(text).map_err(|error| {
        let line = error.location().map_or(1, |at| at.line());
        Error::invalid(format!("{file}:{line}"), error.to_string())
    })
}

fn text(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|error| {
        Error::invalid(file.display().to_string(), format!("cannot be read: {error}"))
    })
}

fn kinds(dir: Option<&Path>) -> Result<BTreeMap<String, Arc<Kind>>> {
    let mut kinds = BTreeMap::new();
    for (file, text) in EMBEDDED {
        let kind = Kind::read(file, text)?;
        kinds.insert(kind.file.kind.clone(), Arc::new(kind));
    }
    let Some(dir) = dir else { return Ok(kinds) };
    let unreadable = |error: std::io::Error| {
        Error::invalid("fleet.kinds_dir", format!("{} cannot be read: {error}", dir.display()))
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|ext| ext == "yaml" || ext == "yml") {
            files.push(path);
        }
    }
    files.sort();
    for file in files {
        let kind = Kind::read(&file.display().to_string(), &text(&file)?)?;
        kinds.insert(kind.file.kind.clone(), Arc::new(kind));
    }
    for kind in kinds.values() {
        let same = |other: &&Arc<Kind>| other.file.api == kind.file.api;
        if kinds.values().filter(same).count() > 1 {
            let message = format!("`{}` is the API of two kinds", kind.file.api);
            return Err(Error::invalid(format!("kind {}: api", kind.file.kind), message));
        }
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(dir: &Path) -> CatalogueFiles {
        CatalogueFiles { kinds_dir: Some(dir.into()), ..CatalogueFiles::default() }
    }

    #[test]
    fn kinds_are_built_in_and_read_from_the_directory() {
        assert_eq!(CatalogueFiles::default().read().unwrap().kinds.len(), 2);
        let dir = tempfile::tempdir().unwrap();
        let dinosaur = EMBEDDED[1].1;
        let bird = dinosaur
            .replace("dinosaurs_mgmt", "birds_mgmt")
            .replace("kind: dinosaur\n", "kind: bird\n");
        std::fs::write(dir.path().join("bird.yaml"), &bird).unwrap();
        let catalogue = with(dir.path()).read().unwrap();
        assert_eq!(catalogue.kind("bird").unwrap().prefix, "/api/birds_mgmt");
        std::fs::write(dir.path().join("bird.yaml"), bird.replace("birds_mgmt", "kafkas_mgmt"))
            .unwrap();
        assert!(with(dir.path()).read().unwrap_err().to_string().contains("two kinds"));
    }

    #[test]
    fn an_error_in_a_file_names_the_line() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x.yaml"), "kind: x\nplural: [").unwrap();
        let why = with(dir.path()).read().unwrap_err().to_string();
        assert!(why.contains("x.yaml:"), "{why}");
        let file = dir.path().join("deny");
        std::fs::write(&file, "- alice\n- 5\n").unwrap();
        let files = CatalogueFiles { deny: Some(file.clone()), ..CatalogueFiles::default() };
        assert!(files.read().unwrap().access.denied.contains("5"));
        std::fs::write(&file, "- alice\n- {a: b}\n").unwrap();
        assert!(files.read().unwrap_err().to_string().contains("deny: [1]"));
    }
}
