//! What an admin may change of an instance: versions, values that grow, and whether it is
//! suspended. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use kernel::{Error, Result, Timestamp};
use serde_json::{Value, json};

use crate::api::instances::quantity_of;
use crate::api::payload::Payload;
use crate::decide::lifecycle::Event;
use crate::model::cluster::{Cluster, version_order};
use crate::model::code::Code;
use crate::model::instance::{Instance, Status};
use crate::model::kind::{AdminVersion, Kind, Versions};
use crate::model::shared::Shared;

/// What is asked for; what is empty is not.
#[derive(Debug, Default)]
pub struct Wanted {
    /// By component, the operator's too.
    versions: BTreeMap<String, String>,
    raised: BTreeMap<String, String>,
    suspended: Option<bool>,
}

/// The statuses in which something can be changed.
const CHANGEABLE: [Status; 7] = [
    Status::Preparing,
    Status::Provisioning,
    Status::Ready,
    Status::Failed,
    Status::Suspending,
    Status::Suspended,
    Status::Resuming,
];

/// The operator's version first, then those of the components.
fn admin_versions(kind: &Kind) -> Vec<(&String, &AdminVersion)> {
    let Some(versions) = &kind.file.versions else { return Vec::new() };
    let mut all: Vec<_> = versions.admin.iter().collect();
    all.sort_by_key(|(component, _)| **component != versions.operator);
    all
}

impl Wanted {
    pub fn read(kind: &Kind, body: &Payload) -> Result<Wanted> {
        let text = |name: &str| {
            let text = body.text(name)?.filter(|text| !text.is_empty());
            Ok::<_, Error>(text.map(str::to_owned))
        };
        let mut wanted = Wanted::default();
        for (component, version) in admin_versions(kind) {
            if let Some(version) = text(&version.field)? {
                wanted.versions.insert(component.clone(), version);
            }
        }
        for name in &kind.file.grows {
            if let Some(value) = text(name)? {
                wanted.raised.insert(name.clone(), value);
            }
        }
        wanted.suspended = body.boolean("suspended")?;
        Ok(wanted)
    }

    /// For the record.
    pub fn asked(&self) -> Value {
        let Wanted { versions, raised, suspended } = self;
        json!({ "versions": versions, "raised": raised, "suspended": suspended })
    }

    pub fn must_ask_something(&self, kind: &Kind) -> Result<()> {
        if !self.versions.is_empty() || !self.raised.is_empty() || self.suspended.is_some() {
            return Ok(());
        }
        let versions = admin_versions(kind).into_iter().map(|(_, version)| version.field.as_str());
        let fields: Vec<&str> =
            versions.chain(kind.file.grows.iter().map(String::as_str)).collect();
        Err(Code::Field.error(format!(
            "Field validation failed: failed to update {} Request. Expecting at least one of the \
             following fields: {} or suspended to be provided",
            kind.file.title,
            fields.join(", ")
        )))
    }

    /// The instance as it is to be, and what happens to it, if all of it may be.
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
        if !CHANGEABLE.contains(&instance.status) {
            let all: Vec<&str> = CHANGEABLE.iter().map(|status| status.label()).collect();
            return Err(Code::Validation.error(format!(
                "unable to update {} in {} status. Supported statuses for update are: [{}]",
                kind.name(),
                instance.status.label(),
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
    let size = kind.size(&next.spec.instance_type, &next.spec.size_id);
    let current = next.spec.raised.get(name).or_else(|| size?.values.get(name));
    let title = &kind.file.title;
    let wrong = |why: String| {
        Err(Code::Field
            .error(format!("Field validation failed: failed to update {title} Request. {why}")))
    };
    let asked = json!(value);
    let Some(more) = quantity_of(&asked) else {
        return wrong(format!("Unable to parse current requested size: '{value}'"));
    };
    let now = current.and_then(quantity_of).unwrap_or(0);
    if more < now {
        let current = current.map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
        let current = current.unwrap_or_default();
        return wrong(format!(
            "Requested size: '{value}' should be greater than current size: '{current}'"
        ));
    }
    if more > now {
        next.spec.raised.insert(name.to_owned(), asked);
    }
    Ok(())
}

/// Versions that are asked for, of an instance that has others.
struct VersionChange<'a> {
    kind: &'a Kind,
    versions: &'a Versions,
    instance: &'a Instance,
    asked: &'a BTreeMap<String, String>,
}

impl VersionChange<'_> {
    /// All versions as they are to be, if the cluster can run them together.
    fn check(&self, cluster: Option<&Cluster>) -> Result<Shared<String>> {
        let Instance { spec, seen, .. } = self.instance;
        for (component, version) in self.asked {
            let other = spec.versions.get(component) != Some(version);
            if other && seen.upgrading.contains(component) {
                return self.wrong(format!(
                    "unable to update {component} version. Another upgrade is already in progress"
                ));
            }
        }
        let mut desired = spec.versions.clone();
        desired.extend(self.asked.clone());
        let (name, id) = (self.kind.name(), &self.instance.id);
        let Some(cluster) = cluster else {
            return self.wrong(format!("unable to get cluster for {name} {id}"));
        };
        self.check_offered(cluster, &desired)?;
        for (component, version) in self.asked {
            let is_operator = *component == self.versions.operator;
            let has = seen.versions.get(component).or_else(|| spec.versions.get(component));
            let lower = has.is_some_and(|has| line(version) < line(has));
            if let (true, false, Some(has)) = (lower, is_operator, has) {
                return self.wrong(format!(
                    "unable to downgrade {name}: {id} {component} version: {has} to a lower \
                     version: {version}"
                ));
            }
        }
        for (component, admin) in &self.versions.admin {
            let Some(most) = &admin.at_most else { continue };
            let (Some(version), Some(limit)) = (desired.get(component), desired.get(most)) else {
                continue;
            };
            if version_order(version) > version_order(limit) {
                return self.wrong(format!(
                    "unable to update {name}: {id} {component} version: {version} with {most} \
                     version: {limit}"
                ));
            }
        }
        Ok(desired)
    }

    fn check_offered(&self, cluster: &Cluster, desired: &BTreeMap<String, String>) -> Result<()> {
        let cannot = |component: &str| {
            let version = desired.get(component).map(String::as_str).unwrap_or_default();
            self.wrong(format!(
                "unable to update {}: {} with {component} version: {version}",
                self.kind.name(),
                self.instance.id
            ))
        };
        let operator = &self.versions.operator;
        let operators = cluster.seen.operators.get(self.kind.name());
        let mut operators = operators.into_iter().flatten();
        let offers = operators.find(|one| one.ready && desired.get(operator) == Some(&one.version));
        let Some(offers) = offers else { return cannot(operator) };
        for component in self.versions.components.keys() {
            let offered = offers.components.get(component);
            let wants = desired.get(component);
            let can = wants.is_none_or(|wants| offered.is_some_and(|all| all.contains(wants)));
            if !can {
                return cannot(component);
            }
        }
        Ok(())
    }

    fn wrong<T>(&self, why: String) -> Result<T> {
        Err(Code::Validation.error(why))
    }
}

/// Major and minor: what a downgrade is told by.
fn line(version: &str) -> Vec<(u64, String)> {
    version_order(version).into_iter().take(2).collect()
}

fn suspend(kind: &Kind, instance: &Instance) -> Result<Event> {
    let status = instance.status.label();
    if instance.status != Status::Ready {
        return Err(Code::Validation.error(format!(
            "{} instance with a status of \"{status}\" cannot be suspended. {} instances can only \
             be suspended in the following states: [ready]",
            kind.name(),
            kind.file.title
        )));
    }
    Ok(Event::Suspend)
}

fn resume(kind: &Kind, instance: &Instance, now: Timestamp) -> Result<Event> {
    let (name, status) = (kind.name(), instance.status.label());
    if instance.status != Status::Suspended {
        return Err(Code::Validation.error(format!(
            "{name} instance with a status of \"{status}\" cannot be resumed. {} instances can \
             only be resumed in the following states: [suspended]",
            kind.file.title
        )));
    }
    let billing = kind.billing(&instance.spec.instance_type, &instance.spec.billing_model);
    let days = billing.map_or(0, |billing| billing.grace_days);
    let grace = Duration::from_secs(u64::try_from(days).unwrap_or(0) * 86_400);
    // It would be suspended again at once.
    if let Some(end) = instance.spec.expires_at
        && now.plus(grace) >= end
    {
        return Err(Code::Validation.error(format!(
            "{name} instance with a status of \"{status}\" cannot be resumed: it is within its \
             grace period, which ends at {end}"
        )));
    }
    Ok(Event::Resume)
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
