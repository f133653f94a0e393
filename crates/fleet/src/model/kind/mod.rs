//! A kind of managed service, as its file declares it: names, plans, fields, and templates of
//! responses, agents' specs and manifests.

mod check;
mod file;

use std::collections::BTreeMap;

use kernel::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::instance::Instance;
use super::template::{Path, Scope, Template};
use super::template_scope::InstanceScope;
use check::{check, line_of};
pub use file::*;

/// A kind that was parsed, checked and compiled.
#[derive(Debug)]
pub struct Kind {
    pub file: KindFile,
    /// `/api/kafkas_mgmt`.
    pub prefix: String,
    pub response: Template,
    pub admin: Template,
    pub size: Option<Template>,
    pub agent: Template,
    pub manifests: Vec<Template>,
}

/// Secrets that an expression may name.
const GROUPS: &[(&str, &[&str])] = &[
    ("sso", &["token_url", "jwks", "issuer", "base_url"]),
    ("canary", &["name", "id", "secret"]),
    ("tls", &["cert", "key"]),
];
/// What only the template `size` may name.
const SIZE_NAMES: &[&str] =
    &["size_id", "size_name", "units", "az_mode", "lifespan_s", "quota_kind", "maturity"];

impl Kind {
    /// Reads a kind file. `file` is its name, for messages.
    pub fn read(file: &str, text: &str) -> kernel::Result<Kind> {
        let invalid = |line: usize, field: &str, message: &str| {
            Error::invalid(format!("{file}:{line}: {field}"), message)
        };
        let parsed: KindFile = serde_yaml_ng::from_str(text).map_err(|error| {
            let message = error.to_string();
            let line = error.location().map_or(1, |at| at.line());
            match message.split_once(": ") {
                Some((field, rest)) if !field.contains(' ') => invalid(line, field, rest),
                _ => invalid(line, "kind file", &message),
            }
        })?;
        Kind::compile(parsed)
            .map_err(|(field, message)| invalid(line_of(text, &field), &field, &message))
    }

    fn compile(file: KindFile) -> Result<Kind, (String, String)> {
        check(&file)?;
        let template = |name: &str, value: &Value| {
            let known = |path: &Path| file.knows(path);
            Template::compile(value, &known).map_err(|why| located(name, why))
        };
        let size = file.size.as_ref().map(|value| {
            let known = |path: &Path| match path.leaf.as_str() {
                "" => SIZE_NAMES.contains(&path.root.as_str()),
                _ => path.root == "size" && file.knows(path),
            };
            Template::compile(value, &known).map_err(|why| located("size", why))
        });
        let manifests =
            file.manifests.iter().enumerate().map(|(i, m)| template(&format!("manifests[{i}]"), m));
        Ok(Kind {
            prefix: format!("/api/{}", file.api),
            response: template("response", &file.response)?,
            admin: template("admin", &file.admin)?,
            size: size.transpose()?,
            agent: template("agent", &file.agent)?,
            manifests: manifests.collect::<Result<_, _>>()?,
            file,
        })
    }

    pub fn name(&self) -> &str {
        &self.file.kind
    }

    pub fn has(&self, extra: Extra) -> bool {
        self.file.routes.contains(&extra)
    }

    pub fn billing(&self, instance_type: &str, id: &str) -> Option<&Billing> {
        self.file.instance_type(instance_type)?.billing.iter().find(|billing| billing.id == id)
    }

    /// Each type with each of its billing models.
    pub fn billings(&self) -> impl Iterator<Item = (&InstanceType, &Billing)> {
        self.file.types.iter().flat_map(|ty| ty.billing.iter().map(move |billing| (ty, billing)))
    }

    pub fn trial(&self) -> Option<&InstanceType> {
        self.file.types.iter().find(|ty| ty.trial)
    }

    /// The field of a promotion with the target billing model.
    pub fn promotion_field(&self) -> String {
        format!("desired_{}_billing_model", self.file.kind.replace('-', "_"))
    }
}

fn located(name: &str, why: String) -> (String, String) {
    match why.split_once(": ") {
        Some((place, why)) if !place.contains('`') => (format!("{name}.{place}"), why.to_owned()),
        _ => (name.into(), why),
    }
}

impl KindFile {
    pub fn instance_type(&self, id: &str) -> Option<&InstanceType> {
        self.types.iter().find(|ty| ty.id == id)
    }

    pub fn size(&self, instance_type: &str, id: &str) -> Option<&Size> {
        self.instance_type(instance_type)?.sizes.iter().find(|size| size.id == id)
    }

    pub fn href(&self, id: &str) -> String {
        format!("/api/{}/v1/{}/{id}", self.api, self.plural)
    }

    /// Fills in the expressions of a text; unknown ones stay.
    pub fn fill(&self, text: &str, scope: &dyn Scope) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some(start) = rest.find("${") {
            let Some(end) = rest[start..].find('}').map(|end| start + end) else { break };
            out.push_str(&rest[..start]);
            match Path::parse(&rest[start + 2..end]) {
                Ok(path) if self.knows(&path) => scope.get(&path).write_plain(&mut out),
                _ => out.push_str(&rest[start..=end]),
            }
            rest = &rest[end + 1..];
        }
        out + rest
    }

    fn knows(&self, path: &Path) -> bool {
        let Path { root, leaf } = path;
        if leaf.is_empty() {
            let instance = Instance::default();
            let scope =
                InstanceScope { kind: self, instance: &instance, browser_url: "", secrets: None };
            return scope.top_level(root).is_some();
        }
        let group = GROUPS.iter().find(|(group, _)| group == root);
        match (root.as_str(), group) {
            (_, Some((_, leaves))) => leaves.contains(&leaf.as_str()),
            ("size", _) => self
                .types
                .iter()
                .flat_map(|ty| &ty.sizes)
                .all(|size| size.values.contains_key(leaf)),
            ("field", _) => self.fields.contains_key(leaf),
            ("agent", _) => self.reported.contains(leaf),
            ("versions" | "desired" | "upgrading", _) => self
                .versions
                .as_ref()
                .is_some_and(|v| v.operator == *leaf || v.components.contains_key(leaf)),
            _ => false,
        }
    }
}

/// A kind in the API's list of kinds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    pub kind: String,
    pub plural: String,
    pub title: String,
    pub prefix: String,
    pub fields: BTreeMap<String, String>,
    pub promote: bool,
    /// The versions that a cluster's agent must report, if any.
    #[serde(default)]
    pub versions: Option<Versions>,
}

impl From<&Kind> for Summary {
    fn from(kind: &Kind) -> Summary {
        let fields = kind.file.fields.iter();
        Summary {
            kind: kind.file.kind.clone(),
            plural: kind.file.plural.clone(),
            title: kind.file.title.clone(),
            prefix: format!("{}/v1", kind.prefix),
            fields: fields
                .map(|(name, field)| (name.clone(), field.field_type.name().into()))
                .collect(),
            promote: kind.has(Extra::Promote),
            versions: kind.file.versions.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KAFKA: &str = include_str!("../../../../../kinds/kafka.yaml");
    const DINOSAUR: &str = include_str!("../../../../../kinds/dinosaur.yaml");

    #[test]
    fn the_embedded_kinds_are_valid() {
        assert_eq!(Kind::read("kafka.yaml", KAFKA).unwrap().prefix, "/api/kafkas_mgmt");
        assert_eq!(Kind::read("dinosaur.yaml", DINOSAUR).unwrap().name(), "dinosaur");
    }

    #[test]
    fn an_error_names_its_line_and_field() {
        let problem = |from: &str, to: &str| {
            let text = DINOSAUR.replacen(from, to, 1);
            assert_ne!(text, DINOSAUR, "{from} is not in the file");
            let Err(Error::Invalid { field, message }) = Kind::read("d.yaml", &text) else {
                panic!("{to} is valid")
            };
            let (line, field) = field.strip_prefix("d.yaml:").unwrap().split_once(": ").unwrap();
            let line = text.lines().nth(line.parse::<usize>().unwrap() - 1).unwrap_or_default();
            (line.trim().to_owned(), field.to_owned(), message)
        };
        let (line, field, message) = problem("host?: ${endpoint}", "host?: ${endpiont}");
        assert_eq!((line.as_str(), field.as_str()), ("host?: ${endpiont}", "response.host"));
        assert!(message.contains("endpiont"), "{message}");
        let (line, _, message) = problem("plural: dinosaurs", "plurals: dinosaurs");
        assert!(message.contains("plurals"), "{line}: {message}");
        let (line, field, _) = problem("plural: dinosaurs", "plural: errors");
        assert_eq!((line.as_str(), field.as_str()), ("plural: errors", "plural"));
        let (_, field, message) = problem("units: 1, maturity", "units: 0, maturity");
        assert_eq!(field, "types[0].sizes[0].units", "{message}");
        let (_, _, message) = problem("types:", "types: 5 #");
        assert!(!message.is_empty());
    }
}
