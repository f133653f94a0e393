//! Replaces the catalogue by the content of its files.

use kernel::change::AuditDraft;
use kernel::{Change, Result};

use super::{declared_clusters, local_cluster};
use crate::Fleet;
use crate::decide::catalogue_change::CatalogueChange;
use crate::model::cluster::{LOCAL_ID, Provider};

/// Reads the files, all or none, and reconciles the instances and clusters that they concern.
pub async fn reload(fleet: &Fleet, audit: Option<AuditDraft>) -> Result<()> {
    let next = fleet.config.catalogue_files().read()?;
    let change = CatalogueChange::between(&fleet.catalogue(), &next);
    let now = fleet.ambient.now();
    let mut wakes = Vec::new();
    if !change.is_empty() {
        for kind in next.kinds.keys() {
            fleet.index.each(kind, |instance| {
                wakes.extend(change.affects(instance).then(|| instance.wake(now)));
            });
        }
    }
    fleet.set_catalogue(next);
    // The local cluster supports new kinds at once.
    if fleet.index.cluster(LOCAL_ID).is_some_and(|c| c.spec.provider == Provider::Local) {
        local_cluster::register(fleet).await?;
    }
    declared_clusters::sync(fleet).await?;
    if audit.is_some() || !wakes.is_empty() {
        let change = Change { wakes, audit, ..Change::default() };
        fleet.commit(change, now).await?;
    }
    Ok(())
}
