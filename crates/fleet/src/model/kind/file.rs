//! The format of kind files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A kind file. [`super::Kind`] is the compiled form.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindFile {
    /// Names the objects (`kafka/ID`) and the command.
    pub kind: String,
    /// Names the resource in paths.
    pub plural: String,
    /// `kind` in responses.
    pub title: String,
    pub list: String,
    pub admin_list: String,
    /// The segment after `/api/`.
    pub api: String,
    /// The prefix of error codes.
    pub codes: String,
    pub metrics_prefix: String,
    #[serde(default)]
    pub errors_without: Vec<u32>,
    /// What an instance is called in a "not found" error.
    pub resource: String,
    /// The unit of quota.
    #[serde(default = "default_units")]
    pub units: String,
    #[serde(default)]
    pub routes: Vec<Extra>,
    /// Whether the caller chooses if it spans zones; else its type does.
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
    pub field_type: FieldType,
    #[serde(default)]
    pub default: Value,
    /// Whether it can be changed later.
    #[serde(default)]
    pub patch: bool,
    #[serde(default)]
    pub required: bool,
    pub max_length: Option<usize>,
    /// The only values that it may have.
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
    /// The reason of the Ready condition during an upgrade.
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
    /// Needs no quota, but is limited in number and expires.
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
    /// Whether a marketplace account pays.
    #[serde(default)]
    pub account: bool,
    /// Whether it runs on the organisation's own cluster.
    #[serde(default)]
    pub own_cluster: bool,
    #[serde(default)]
    pub promotes_to: Vec<String>,
}

impl Billing {
    /// Its first billing model at AMS.
    pub fn model(&self) -> &str {
        self.models.first().map(String::as_str).unwrap_or_default()
    }
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
    /// Appended to the host in responses.
    pub port: Option<u16>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// The label with the instance's name.
    pub label: String,
    /// Whether its series also have its namespace.
    #[serde(default)]
    pub namespace: bool,
    #[serde(default)]
    pub without: BTreeMap<String, String>,
    /// Further labels that callers get; empty: all.
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
