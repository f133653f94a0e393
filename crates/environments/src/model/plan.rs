//! A plan: everything that would be done to an environment, in which order, and what else it touches.
//! Plans with the same hash do the same.

use kernel::typed::{Kind, NoStatus};
use kernel::{Timestamp, labels};
use serde::{Deserialize, Serialize};

use super::drift::FieldDiff;
use super::label::stored_as_label;
use super::refs::{Address, Reference};

pub const KIND: &str = "plan";
/// The blob of a plan with its [`Body`].
pub const BODY: &str = "body";

labels! {
    pub enum Phase {
        Open = "open",
        AwaitingApproval = "awaiting-approval",
        Approved = "approved",
        Rejected = "rejected",
        /// The approval, or the plan, was not used in time.
        Expired = "expired",
        Applied = "applied",
        /// The world or the template is not what it was made of.
        Superseded = "superseded",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub environment: String,
    pub hash: String,
    /// The digest of what exists, as the plan was made of it.
    pub world: String,
    pub expires_at: Timestamp,
}

impl Kind for Plan {
    type Phase = Phase;
    type Status = NoStatus;
    const RECONCILED: bool = false;
}

labels! {
    pub enum Action {
        Create = "create",
        Update = "update",
        /// Destroyed and created again: a field cannot be changed in place.
        Replace = "replace",
        Destroy = "destroy",
    }
}
stored_as_label!(Action);

/// What is done to one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceChange {
    pub address: Address,
    pub executor: String,
    pub action: Action,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diff: Vec<FieldDiff>,
    /// The fields because of which it is replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced_by: Vec<String>,
    /// Nothing is applied: what changes is kept here, such as dependencies, tags and policies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub metadata_only: bool,
    pub takes_ms: u64,
    /// When it begins at the earliest, from the begin of the plan.
    pub begins_ms: u64,
}

/// A resource of another environment that notices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Affected {
    pub environment: String,
    pub address: Address,
    /// The change that it notices.
    pub by: Address,
    /// How many dependencies are between them.
    pub distance: u32,
}

/// Per hour, of all resources with a hint, in one currency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub currency: String,
    pub before: f64,
    pub after: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Body {
    pub template: String,
    pub hash: String,
    pub world: String,
    /// In an order in which they could be carried out one after another.
    pub changes: Vec<ResourceChange>,
    pub unchanged: usize,
    /// With everything at once that can be.
    pub takes_ms: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cost: Vec<Cost>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub affected: Vec<Affected>,
    /// What it needs of other environments and from outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Reference>,
}

impl Body {
    pub fn count(&self, action: Action) -> usize {
        self.changes.iter().filter(|change| change.action == action).count()
    }
}
