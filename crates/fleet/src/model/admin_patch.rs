//! An admin's patch of an instance, as it is requested.

use std::collections::BTreeMap;

use kernel::{Error, Result};
use serde_json::{Value, json};

use crate::model::error_code::ErrorCode;
use crate::model::kind::{AdminVersion, Kind};
use crate::model::payload::Payload;

/// The requested values.
#[derive(Debug, Default)]
pub struct AdminPatch {
    /// By component, including the operator.
    pub versions: BTreeMap<String, String>,
    pub raised: BTreeMap<String, String>,
    pub suspended: Option<bool>,
}

/// The operator's version first, then the components'.
fn admin_versions(kind: &Kind) -> Vec<(&String, &AdminVersion)> {
    let Some(versions) = &kind.file.versions else { return Vec::new() };
    let mut all: Vec<_> = versions.admin.iter().collect();
    all.sort_by_key(|(component, _)| **component != versions.operator);
    all
}

impl AdminPatch {
    pub fn from_payload(kind: &Kind, body: &Payload) -> Result<AdminPatch> {
        let text = |name: &str| {
            let text = body.text(name)?.filter(|text| !text.is_empty());
            Ok::<_, Error>(text.map(str::to_owned))
        };
        let mut patch = AdminPatch::default();
        for (component, version) in admin_versions(kind) {
            if let Some(version) = text(&version.field)? {
                patch.versions.insert(component.clone(), version);
            }
        }
        for name in &kind.file.grows {
            if let Some(value) = text(name)? {
                patch.raised.insert(name.clone(), value);
            }
        }
        patch.suspended = body.boolean("suspended")?;
        Ok(patch)
    }

    /// The patch as it is in the audit log.
    pub fn audit_entry(&self) -> Value {
        let AdminPatch { versions, raised, suspended } = self;
        json!({ "versions": versions, "raised": raised, "suspended": suspended })
    }

    pub fn check_not_empty(&self, kind: &Kind) -> Result<()> {
        if !self.versions.is_empty() || !self.raised.is_empty() || self.suspended.is_some() {
            return Ok(());
        }
        let versions = admin_versions(kind).into_iter().map(|(_, version)| version.field.as_str());
        let fields: Vec<&str> =
            versions.chain(kind.file.grows.iter().map(String::as_str)).collect();
        Err(ErrorCode::Field.error(format!(
            "Field validation failed: failed to update {} Request. Expecting at least one of the \
             following fields: {} or suspended to be provided",
            kind.file.title,
            fields.join(", ")
        )))
    }
}
