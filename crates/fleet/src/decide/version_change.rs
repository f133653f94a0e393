//! Whether the versions of an instance may change.

use std::collections::BTreeMap;

use kernel::Result;

use crate::model::cluster::{Cluster, version_order};
use crate::model::error_code::ErrorCode;
use crate::model::instance::Instance;
use crate::model::interned::InternedMap;
use crate::model::kind::{Kind, Versions};

/// Requested versions of an instance.
pub struct VersionChange<'a> {
    pub kind: &'a Kind,
    pub versions: &'a Versions,
    pub instance: &'a Instance,
    pub asked: &'a BTreeMap<String, String>,
}

impl VersionChange<'_> {
    /// The versions after the change, if the cluster can run them together.
    pub fn check(&self, cluster: Option<&Cluster>) -> Result<InternedMap<String>> {
        let Instance { spec, status, .. } = self.instance;
        for (component, version) in self.asked {
            let other = spec.versions.get(component) != Some(version);
            if other && status.upgrading.contains(component) {
                return invalid(format!(
                    "unable to update {component} version. Another upgrade is already in progress"
                ));
            }
        }
        let mut desired = spec.versions.clone();
        desired.extend(self.asked.clone());
        let (name, id) = (self.kind.name(), &self.instance.id);
        let Some(cluster) = cluster else {
            return invalid(format!("unable to get cluster for {name} {id}"));
        };
        self.check_offered(cluster, &desired)?;
        for (component, version) in self.asked {
            let is_operator = *component == self.versions.operator;
            let has = status.versions.get(component).or_else(|| spec.versions.get(component));
            let lower = has.is_some_and(|has| major_minor(version) < major_minor(has));
            if let (true, false, Some(has)) = (lower, is_operator, has) {
                return invalid(format!(
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
                return invalid(format!(
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
            invalid(format!(
                "unable to update {}: {} with {component} version: {version}",
                self.kind.name(),
                self.instance.id
            ))
        };
        let operator = &self.versions.operator;
        let operators = cluster.status.operators.get(self.kind.name());
        let mut operators = operators.into_iter().flatten();
        let offers = operators.find(|one| one.ready && desired.get(operator) == Some(&one.version));
        let Some(offers) = offers else { return cannot(operator) };
        for component in self.versions.components.keys() {
            let offered = offers.components.get(component);
            let version = desired.get(component);
            let can =
                version.is_none_or(|version| offered.is_some_and(|all| all.contains(version)));
            if !can {
                return cannot(component);
            }
        }
        Ok(())
    }
}

fn invalid<T>(why: String) -> Result<T> {
    Err(ErrorCode::Validation.error(why))
}

/// Major and minor version: only these may not be lower.
fn major_minor(version: &str) -> Vec<(u64, String)> {
    version_order(version).into_iter().take(2).collect()
}
