//! An admin's patch of an instance: versions, values that grow, and whether it is suspended. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use kernel::{Error, Result, Timestamp};
use serde_json::{Value, json};

use crate::decide::instance::lifecycle::Event;
use crate::decide::version_change::VersionChange;
use crate::model::cluster::Cluster;
use crate::model::error_code::ErrorCode;
use crate::model::instance::{Instance, Phase};
use crate::model::kind::{AdminVersion, Kind};
use crate::model::payload::Payload;
use crate::model::quantity_of;

/// The requested values.
#[derive(Debug, Default)]
pub struct AdminPatch {
    /// By component, including the operator.
    versions: BTreeMap<String, String>,
    raised: BTreeMap<String, String>,
    suspended: Option<bool>,
}

/// The phases in which an instance can be patched.
const CHANGEABLE: [Phase; 7] = [
    Phase::Preparing,
    Phase::Provisioning,
    Phase::Ready,
    Phase::Failed,
    Phase::Suspending,
    Phase::Suspended,
    Phase::Resuming,
];

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

    /// The patched instance and its life-cycle event, if all of the patch is allowed.
    pub fn apply(
        &self,
        kind: &Kind,
        instance: &Instance,
        cluster: Option<&Cluster>,
        now: Timestamp,
    ) -> Result<(Instance, Option<Event>)> {
        let mut next = instance.clone();
        for (name, value) in &self.raised {
            grow(kind, &mut next, name, value)?;
        }
        if !CHANGEABLE.contains(&instance.phase) {
            let all: Vec<&str> = CHANGEABLE.iter().map(|phase| phase.label()).collect();
            return Err(ErrorCode::Validation.error(format!(
                "unable to update {} in {} status. Supported statuses for update are: [{}]",
                kind.name(),
                instance.phase.label(),
                all.join(" ")
            )));
        }
        if let (Some(versions), false) = (&kind.file.versions, self.versions.is_empty()) {
            let change = VersionChange { kind, versions, instance, asked: &self.versions };
            next.spec.versions = change.check(cluster)?;
        }
        let event = match self.suspended {
            None => None,
            Some(true) => Some(suspend(kind, instance)?),
            Some(false) => Some(resume(kind, instance, now)?),
        };
        Ok((next, event))
    }
}

fn grow(kind: &Kind, next: &mut Instance, name: &str, value: &str) -> Result<()> {
    let size = kind.file.size(&next.spec.instance_type, &next.spec.size_id);
    let current = next.spec.raised.get(name).or_else(|| size?.values.get(name));
    let title = &kind.file.title;
    let invalid = |why: String| {
        Err(ErrorCode::Field
            .error(format!("Field validation failed: failed to update {title} Request. {why}")))
    };
    let asked = json!(value);
    let Some(more) = quantity_of(&asked) else {
        return invalid(format!("Unable to parse current requested size: '{value}'"));
    };
    let now = current.and_then(quantity_of).unwrap_or(0);
    if more < now {
        let current = current.map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
        let current = current.unwrap_or_default();
        return invalid(format!(
            "Requested size: '{value}' should be greater than current size: '{current}'"
        ));
    }
    if more > now {
        next.spec.raised.insert(name.to_owned(), asked);
    }
    Ok(())
}

fn suspend(kind: &Kind, instance: &Instance) -> Result<Event> {
    require_phase(kind, instance, Phase::Ready, "suspended")?;
    Ok(Event::Suspend)
}

fn require_phase(kind: &Kind, instance: &Instance, phase: Phase, action: &str) -> Result<()> {
    if instance.phase == phase {
        return Ok(());
    }
    Err(ErrorCode::Validation.error(format!(
        "{} instance with a status of \"{}\" cannot be {action}. {} instances can only be {action} \
         in the following states: [{}]",
        kind.name(),
        instance.phase.label(),
        kind.file.title,
        phase.label()
    )))
}

fn resume(kind: &Kind, instance: &Instance, now: Timestamp) -> Result<Event> {
    require_phase(kind, instance, Phase::Suspended, "resumed")?;
    let billing = kind.billing(&instance.spec.instance_type, &instance.spec.billing_model);
    let days = billing.map_or(0, |billing| billing.grace_days);
    let grace = Duration::from_secs(u64::try_from(days).unwrap_or(0) * 86_400);
    // Otherwise it would be suspended again at once.
    if let Some(end) = instance.spec.expires_at
        && now.plus(grace) >= end
    {
        return Err(ErrorCode::Validation.error(format!(
            "{} instance with a status of \"{}\" cannot be resumed: it is within its grace period, \
             which ends at {end}",
            kind.name(),
            instance.phase.label()
        )));
    }
    Ok(Event::Resume)
}

#[cfg(test)]
#[path = "admin_patch_tests.rs"]
mod tests;
