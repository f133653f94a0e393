//! An admin's patch of an instance: versions, values that grow, and whether it is suspended. Pure.

use std::time::Duration;

use kernel::{Result, Timestamp};
use serde_json::json;

use crate::decide::instance::lifecycle::Event;
use crate::decide::version_change::VersionChange;
use crate::model::admin_patch::AdminPatch;
use crate::model::cluster::Cluster;
use crate::model::error_code::ErrorCode;
use crate::model::instance::{Instance, Phase};
use crate::model::kind::Kind;
use crate::model::quantity_of;

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

impl AdminPatch {
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
