//! A template: what people write to describe an environment, versioned and never changed once it is
//! published. Its resources may be written out, come in counts, or in groups that are used often.

mod action;
mod endpoint;
mod generated;
mod read;
mod resource;
mod terms;

use std::collections::BTreeMap;

use kernel::{Labels, labels};
use serde::{Deserialize, Serialize};

use super::parameter::Parameters;
pub use action::{Action, When};
pub use endpoint::{EntryPoint, External, StatusEndpoint};
pub use generated::{Certificate, GeneratedSecret};
pub use resource::{Count, GroupUse, Link, Member, ResourceTemplate};
pub use terms::{Approval, Permissions, Price, Rate};

pub const KIND: &str = "template";
pub const GROUP_KIND: &str = "group";
/// The blob of a published template with the file that people wrote.
pub const SOURCE: &str = "source";

/// What is written in a file. The commit is that of the file's repository.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Template {
    pub name: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub tags: Labels,
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    /// What it needs and does not manage.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub externals: BTreeMap<String, External>,
    /// Groups that `resources` use. Those published apart are copied here at publish, so that a
    /// version never changes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, Group>,
    pub resources: BTreeMap<String, Member>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub actions: BTreeMap<String, Action>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, GeneratedSecret>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub certificates: BTreeMap<String, Certificate>,
    #[serde(default)]
    pub permissions: Permissions,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entry_points: Vec<EntryPoint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status_endpoints: Vec<StatusEndpoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// Resources that are used together, with parameters of their own. It knows nothing of what is
/// around it, so that it means the same wherever it is used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub tags: Labels,
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    pub resources: BTreeMap<String, ResourceTemplate>,
}

labels! {
    /// Of a published template or group.
    pub enum Phase {
        Published = "published",
        /// Environments that have it stay; no new one is made of it.
        Retired = "retired",
    }
}

impl kernel::typed::Kind for Template {
    type Phase = Phase;
    type Status = kernel::typed::NoStatus;
    const RECONCILED: bool = false;
}

impl kernel::typed::Kind for Group {
    type Phase = Phase;
    type Status = kernel::typed::NoStatus;
    const RECONCILED: bool = false;
}

#[cfg(test)]
mod tests;
