//! A kind of managed service, as its file declares it: names, plans, fields, and what answers,
//! agents and manifests look like.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::template::{Path, Scope, Template};

/// The file, as it is written. [`Kind`] is what is made of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindFile {
    /// Names the objects (`kafka/ID`) and the command.
    pub kind: String,
    /// Names the resource in paths.
    pub plural: String,
    /// `kind` in answers.
    pub title: String,
    pub list: String,
    pub admin_list: String,
    /// The segment after `/api/`.
    pub api: String,
    /// Before the numbers of errors.
    pub codes: String,
    pub metrics_prefix: String,
    #[serde(default)]
    pub errors_without: Vec<u32>,
    /// What an instance is called where one is not found.
    pub resource: String,
    /// What quota counts.
    #[serde(default = "default_units")]
    pub units: String,
    #[serde(default)]
    pub routes: Vec<Extra>,
    /// Whether the caller says if it spans zones; else its type does.
    #[serde(default)]
    pub multi_az_asked: bool,
    /// The status of a cluster whose agent has not reported yet.
    #[serde(default = "default_waiting")]
    pub waiting_for_agent: String,
    #[serde(default)]
    pub fields: BTreeMap<String, Field>,
    pub versions: Option<Versions>,
    #[serde(default)]
    pub grows: Vec<String>,
    pub types: Vec<InstanceType>,
    #[serde(default)]
    pub sso: Sso,
    pub dns: Option<Dns>,
    pub response: Value,
    pub admin: Value,
    pub size: Option<Value>,
    pub agent: Value,
    #[serde(default)]
    pub reported: Vec<String>,
    pub metrics: Option<Metrics>,
    pub local: Option<Local>,
    #[serde(default)]
    pub manifests: Vec<Value>,
}

fn default_units() -> String {
    "instances".into()
}

fn default_waiting() -> String {
    "waiting_for_agent".into()
}

/// Routes that not every kind has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extra {
    ServiceAccounts,
    SsoProviders,
    Promote,
    InstanceTypes,
    Clusters,
    ObsProxy,
    RevokeCertificate,
    Status,
}

/// A field of the request that only this kind has.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    #[serde(rename = "type")]
    pub of: FieldType,
    #[serde(default)]
    pub default: Value,
    /// Whether it can be changed later.
    #[serde(default)]
    pub patch: bool,
    #[serde(default)]
    pub required: bool,
    pub max_length: Option<usize>,
    /// The only values it may have.
    #[serde(default)]
    pub values: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    Boolean,
    Integer,
    String,
}

impl FieldType {
    pub fn name(self) -> &'static str {
        match self {
            FieldType::Boolean => "boolean",
            FieldType::Integer => "integer",
            FieldType::String => "string",
        }
    }

    pub fn fits(self, value: &Value) -> bool {
        match self {
            FieldType::Boolean => value.is_boolean(),
            FieldType::Integer => value.is_i64(),
            FieldType::String => value.is_string(),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// The key of the operators' list in a cluster's status, and of the operator's own version.
    pub operator: String,
    /// A component, and the key of its versions in an operator's entry.
    pub components: BTreeMap<String, String>,
    #[serde(default)]
    pub admin: BTreeMap<String, AdminVersion>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminVersion {
    pub field: String,
    /// The reason of the Ready condition while this is changed.
    pub updating: String,
    /// The component whose version it may not exceed.
    pub at_most: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceType {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub multi_az: bool,
    /// For everyone, a few each, for a while.
    #[serde(default)]
    pub trial: bool,
    pub billing: Vec<Billing>,
    /// Smallest first; the first is the default.
    pub sizes: Vec<Size>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Billing {
    pub id: String,
    pub resource: String,
    pub product: String,
    pub models: Vec<String>,
    #[serde(default)]
    pub grace_days: i64,
    /// Whether an account of a marketplace pays.
    #[serde(default)]
    pub account: bool,
    /// Whether it runs on a cluster of the organisation's own.
    #[serde(default)]
    pub own_cluster: bool,
    #[serde(default)]
    pub promotes_to: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    pub id: String,
    pub name: String,
    pub units: i64,
    pub lifespan_s: Option<i64>,
    #[serde(default)]
    pub quota_type: String,
    #[serde(default)]
    pub maturity: String,
    #[serde(default)]
    pub values: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sso {
    /// Each instance has a client of its own.
    pub canary: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dns {
    /// Added to the host in answers.
    pub port: Option<u16>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// The label that has the instance's name.
    pub label: String,
    /// Whether its series also have its namespace.
    #[serde(default)]
    pub namespace: bool,
    #[serde(default)]
    pub without: BTreeMap<String, String>,
    /// The labels that callers see beside the one above; empty: all.
    #[serde(default)]
    pub labels: Vec<String>,
    pub series: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Local {
    pub command: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub ready: LocalReady,
    #[serde(default = "default_start")]
    pub start_s: u64,
    #[serde(default = "default_stop")]
    pub stop_s: u64,
    pub endpoint: String,
}

fn default_start() -> u64 {
    30
}

fn default_stop() -> u64 {
    10
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalReady {
    #[serde(default)]
    pub tcp: bool,
    pub http: Option<String>,
    pub line: Option<String>,
}

/// A kind that was read, checked and made ready for use.
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

/// Why a kind file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {field}: {message}")]
pub struct Problem {
    pub file: String,
    pub line: usize,
    pub field: String,
    pub message: String,
}

/// What an expression of any template may name, beside `size.X`, `field.X`, versions and `agent.X`.
const PLAIN: &[&str] = &[
    "id", "title", "href", "status", "name", "owner", "org", "account", "account_number",
    "cloud_provider", "region", "multi_az", "instance_type", "instance_type_name", "size_id",
    "units", "billing_model", "marketplace", "billing_cloud_account_id", "promotion_status",
    "promotion_details", "cluster_id", "own_cluster_id", "host", "endpoint", "namespace",
    "placement_id", "routes", "routes_created", "created_at", "updated_at", "expires_at",
    "failed_reason", "deleted", "suspended", "subscription_id", "quota_type", "browser_url",
    "session_lifetime_ms",
];
const GROUPS: &[(&str, &[&str])] = &[
    ("sso", &["token_url", "jwks", "issuer", "base_url"]),
    ("canary", &["name", "id", "secret"]),
    ("tls", &["cert", "key"]),
];
/// What only the template `size` may name.
const OF_SIZES: &[&str] =
    &["size_id", "size_name", "units", "az_mode", "lifespan_s", "quota_kind", "maturity"];

impl Kind {
    /// Reads a kind file. `file` is its name, for messages.
    pub fn read(file: &str, text: &str) -> Result<Kind, Problem> {
        let parsed: KindFile = serde_yaml_ng::from_str(text).map_err(|error| {
            let message = error.to_string();
            let line = error.location().map_or(1, |at| at.line());
            let (field, message) = match message.split_once(": ") {
                Some((field, rest)) if !field.contains(' ') => (field.to_owned(), rest.to_owned()),
                _ => ("kind file".into(), message),
            };
            Problem { file: file.into(), line, field, message }
        })?;
        Kind::of(parsed).map_err(|(field, message)| {
            let line = line_of(text, &field);
            Problem { file: file.into(), line, field, message }
        })
    }

    fn of(file: KindFile) -> Result<Kind, (String, String)> {
        check(&file)?;
        let template = |name: &str, value: &Value| {
            let known = |path: &Path| file.knows(path);
            Template::compile(value, &known).map_err(|why| placed(name, why))
        };
        let size = file.size.as_ref().map(|value| {
            let known = |path: &Path| match path.leaf.as_str() {
                "" => OF_SIZES.contains(&path.root.as_str()),
                _ => path.root == "size" && file.knows(path),
            };
            Template::compile(value, &known).map_err(|why| placed("size", why))
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

    pub fn of_type(&self, id: &str) -> Option<&InstanceType> {
        self.file.types.iter().find(|of| of.id == id)
    }

    pub fn size(&self, of: &str, id: &str) -> Option<&Size> {
        self.of_type(of)?.sizes.iter().find(|size| size.id == id)
    }

    pub fn billing(&self, of: &str, id: &str) -> Option<&Billing> {
        self.of_type(of)?.billing.iter().find(|billing| billing.id == id)
    }

    pub fn trial(&self) -> Option<&InstanceType> {
        self.file.types.iter().find(|of| of.trial)
    }

    /// What a promotion calls the billing model that it leads to.
    pub fn promotion_field(&self) -> String {
        format!("desired_{}_billing_model", self.file.kind.replace('-', "_"))
    }

    pub fn href(&self, id: &str) -> String {
        format!("{}/v1/{}/{id}", self.prefix, self.file.plural)
    }
}

fn placed(name: &str, why: String) -> (String, String) {
    match why.split_once(": ") {
        Some((place, why)) if !place.contains('`') => (format!("{name}.{place}"), why.to_owned()),
        _ => (name.into(), why),
    }
}

impl KindFile {
    /// A text with the values of its expressions; those that someone else fills in stay.
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
            return PLAIN.contains(&root.as_str());
        }
        let group = GROUPS.iter().find(|(group, _)| group == root);
        match (root.as_str(), group) {
            (_, Some((_, leaves))) => leaves.contains(&leaf.as_str()),
            ("size", _) => self.types.iter().flat_map(|of| &of.sizes).all(|size| {
                size.values.contains_key(leaf)
            }),
            ("field", _) => self.fields.contains_key(leaf),
            ("agent", _) => self.reported.contains(leaf),
            ("versions" | "desired" | "upgrading", _) => self.versions.as_ref().is_some_and(|v| {
                v.operator == *leaf || v.components.contains_key(leaf)
            }),
            _ => false,
        }
    }
}

type Found = Result<(), (String, String)>;

fn check(file: &KindFile) -> Found {
    let word = |text: &str, also: &str| {
        !text.is_empty()
            && text.len() <= 40
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || also.contains(c))
    };
    let wrong = |field: &str, message: &str| Err((field.to_owned(), message.to_owned()));
    if !word(&file.kind, "-") || ["cluster", "service-account"].contains(&file.kind.as_str()) {
        return wrong("kind", "must be lower-case letters, digits and '-', and not `cluster`");
    }
    if !word(&file.plural, "-_") || RESERVED.contains(&file.plural.as_str()) {
        return wrong("plural", "must be lower-case letters and digits, and no other resource");
    }
    if !word(&file.api, "_-") {
        return wrong("api", "must be lower-case letters, digits, '_' and '-'");
    }
    if file.api == "v1" {
        return wrong("api", "`v1` is the kernel's");
    }
    if file.types.is_empty() {
        return wrong("types", "must have at least one instance type");
    }
    if file.types.iter().filter(|of| of.trial).count() > 1 {
        return wrong("types", "at most one may be a trial");
    }
    for (i, of) in file.types.iter().enumerate() {
        if of.sizes.is_empty() {
            return wrong(&format!("types[{i}].sizes"), "must have at least one size");
        }
        if of.billing.is_empty() {
            return wrong(&format!("types[{i}].billing"), "must have at least one billing model");
        }
        if !of.sizes.is_sorted_by_key(|size| size.units) {
            return wrong(&format!("types[{i}].sizes"), "must be in order, smallest first");
        }
        if let Some(j) = of.sizes.iter().position(|size| size.units < 1) {
            return wrong(&format!("types[{i}].sizes[{j}].units"), "must be at least 1");
        }
    }
    for (name, field) in &file.fields {
        if !field.default.is_null() && !field.of.fits(&field.default) {
            let message = format!("must be a {}", field.of.name());
            return wrong(&format!("fields.{name}.default"), &message);
        }
    }
    if let Some(local) = &file.local {
        let ways = [local.ready.tcp, local.ready.http.is_some(), local.ready.line.is_some()];
        if ways.iter().filter(|way| **way).count() != 1 {
            return wrong("local.ready", "must be one of tcp: true, http: PATH and line: TEXT");
        }
    }
    Ok(())
}

/// Resources that every API has.
const RESERVED: &[&str] = &[
    "errors", "openapi", "cloud_providers", "instance_types", "service_accounts", "sso_providers",
    "clusters", "agent-clusters", "admin", "status", "obs-proxy-verification",
];

/// The line on which a field stands, as well as can be told from the text.
fn line_of(text: &str, field: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    for step in field.split('.') {
        let name = step.split('[').next().unwrap_or(step);
        let found = lines.iter().skip(at).position(|line| {
            let line = line.trim_start().trim_start_matches("- ");
            let rest = line.strip_prefix(name).or_else(|| {
                let inside = line.find(&format!("{name}:")).or_else(|| line.find(&format!("{name}?:")));
                inside.map(|from| &line[from + name.len()..])
            });
            rest.is_some_and(|rest| rest.starts_with(':') || rest.starts_with("?:"))
        });
        match found {
            Some(further) => at += further,
            None => break,
        }
    }
    at + 1
}

/// A kind, as clients are told of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    pub kind: String,
    pub plural: String,
    pub title: String,
    pub prefix: String,
    pub fields: BTreeMap<String, String>,
    pub promote: bool,
    /// What a cluster's agent says of versions, if it has to.
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
            fields: fields.map(|(name, field)| (name.clone(), field.of.name().into())).collect(),
            promote: kind.has(Extra::Promote),
            versions: kind.file.versions.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KAFKA: &str = include_str!("../../../../kinds/kafka.yaml");
    const DINOSAUR: &str = include_str!("../../../../kinds/dinosaur.yaml");

    #[test]
    fn the_kinds_that_come_along_are_right() {
        assert_eq!(Kind::read("kafka.yaml", KAFKA).unwrap().prefix, "/api/kafkas_mgmt");
        assert_eq!(Kind::read("dinosaur.yaml", DINOSAUR).unwrap().name(), "dinosaur");
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_field() {
        let problem = |from: &str, to: &str| {
            let text = DINOSAUR.replacen(from, to, 1);
            assert_ne!(text, DINOSAUR, "{from} is not there");
            let problem = Kind::read("d.yaml", &text).unwrap_err();
            let line = text.lines().nth(problem.line - 1).unwrap_or_default().trim().to_owned();
            (line, problem.field, problem.message)
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
