//! Everything about the fleet that is data in files: kinds, quota, access, clouds, data planes.
//! Read together and replaced together; a file with a mistake leaves what was there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use kernel::{Error, Result};
use serde::de::DeserializeOwned;

use crate::config::Config;
use crate::model::kind::{Kind, Problem};
use crate::model::providers::{ClusterEntry, ClusterFile, Providers};
use crate::model::quota::{AccessRules, QuotaList};

/// What comes along.
const EMBEDDED: [(&str, &str); 2] = [
    ("kinds/kafka.yaml", include_str!("../../../kinds/kafka.yaml")),
    ("kinds/dinosaur.yaml", include_str!("../../../kinds/dinosaur.yaml")),
];

#[derive(Debug)]
pub struct Rules {
    pub kinds: BTreeMap<String, Arc<Kind>>,
    pub quota: QuotaList,
    pub access: AccessRules,
    pub providers: Providers,
    pub clusters: Vec<ClusterEntry>,
}

impl Rules {
    /// Reads all files that the configuration names.
    pub fn read(config: &Config) -> Result<Rules> {
        let providers: Providers = match &config.providers_file {
            Some(file) => read(file)?,
            None => Providers::embedded(),
        };
        let quota: QuotaList = optional(config.quota_file.as_deref())?;
        let clusters: ClusterFile = optional(config.clusters_file.as_deref())?;
        let named = |file: Option<&Path>, checked: Result<(), (String, String)>| {
            let file = file.map_or_else(|| "the file".into(), |file| file.display().to_string());
            checked.map_err(|(field, message)| Error::invalid(format!("{file}: {field}"), message))
        };
        named(config.quota_file.as_deref(), quota.check())?;
        named(config.providers_file.as_deref(), providers.check())?;
        let denied = config.deny_file.as_deref().map(names).transpose()?.unwrap_or_default();
        let allowed = config.access_file.as_deref().map(names).transpose()?;
        Ok(Rules {
            kinds: kinds(config.kinds_dir.as_deref())?,
            quota,
            access: AccessRules { denied, allowed },
            providers,
            clusters: clusters.clusters,
        })
    }

    pub fn kind(&self, name: &str) -> Option<&Arc<Kind>> {
        self.kinds.get(name)
    }

    /// The kind whose API the path belongs to, and the rest of the path.
    pub fn kind_of_path<'p>(&self, path: &'p str) -> Option<(&Arc<Kind>, &'p str)> {
        let rest = path.strip_prefix("/api/")?;
        let end = rest.find('/').unwrap_or(rest.len());
        let (api, rest) = rest.split_at(end);
        let kind = self.kinds.values().find(|kind| kind.file.api == api)?;
        Some((kind, rest))
    }
}

/// A list of names, which may be numbers.
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
    let text = text(file)?;
    serde_yaml_ng::from_str(&text).map_err(|error| {
        let line = error.location().map_or(1, |at| at.line());
        Error::invalid(format!("{}:{line}", file.display()), error.to_string())
    })
}

fn text(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|error| {
        Error::invalid(file.display().to_string(), format!("cannot be read: {error}"))
    })
}

fn kinds(dir: Option<&Path>) -> Result<BTreeMap<String, Arc<Kind>>> {
    let wrong = |problem: Problem| {
        let Problem { file, line, field, message } = problem;
        Error::invalid(format!("{file}:{line}: {field}"), message)
    };
    let mut kinds = BTreeMap::new();
    for (file, text) in EMBEDDED {
        let kind = Kind::read(file, text).map_err(wrong)?;
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
        let kind = Kind::read(&file.display().to_string(), &text(&file)?).map_err(wrong)?;
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

    fn with(dir: &Path) -> Config {
        Config { kinds_dir: Some(dir.into()), ..Config::default() }
    }

    #[test]
    fn kinds_come_along_and_from_the_directory() {
        assert_eq!(Rules::read(&Config::default()).unwrap().kinds.len(), 2);
        let dir = tempfile::tempdir().unwrap();
        let dinosaur = EMBEDDED[1].1;
        let bird = dinosaur
            .replace("dinosaurs_mgmt", "birds_mgmt")
            .replace("kind: dinosaur\n", "kind: bird\n");
        std::fs::write(dir.path().join("bird.yaml"), &bird).unwrap();
        let rules = Rules::read(&with(dir.path())).unwrap();
        assert!(rules.kind("bird").is_some());
        let (kind, rest) = rules.kind_of_path("/api/birds_mgmt/v1/x").unwrap();
        assert_eq!((kind.name(), rest), ("bird", "/v1/x"));
        assert!(rules.kind_of_path("/api/birds_mgmtx/v1").is_none());
        std::fs::write(dir.path().join("bird.yaml"), bird.replace("birds_mgmt", "kafkas_mgmt"))
            .unwrap();
        assert!(Rules::read(&with(dir.path())).unwrap_err().to_string().contains("two kinds"));
    }

    #[test]
    fn a_mistake_in_a_file_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x.yaml"), "kind: x\nplural: [").unwrap();
        let why = Rules::read(&with(dir.path())).unwrap_err().to_string();
        assert!(why.contains("x.yaml:"), "{why}");
        let file = dir.path().join("deny");
        std::fs::write(&file, "- alice\n- 5\n").unwrap();
        let config = Config { deny_file: Some(file.clone()), ..Config::default() };
        assert!(Rules::read(&config).unwrap().access.denied.contains("5"));
        std::fs::write(&file, "- alice\n- {a: b}\n").unwrap();
        assert!(Rules::read(&config).unwrap_err().to_string().contains("deny: [1]"));
    }
}
