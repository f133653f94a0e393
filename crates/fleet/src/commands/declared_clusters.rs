//! Registers the clusters that the clusters file declares, updates them, and deletes those that it
//! no longer names.

use kernel::change::Wake;
use kernel::{Change, Draft, Error, Object, Result, Timestamp};

use super::cluster_spec::edit_spec;
use crate::Fleet;
use crate::model::cluster::{self, Cluster, Phase, Provider, Spec};
use crate::model::providers::ClusterEntry;
use crate::model::recheck::Recheck;
use crate::store::clusters::{self, NewCluster};

/// Syncs clusters with the file. Also wakes the clusters that have our agent installed, so that this
/// process watches them for drift.
pub async fn sync(fleet: &Fleet) -> Result<()> {
    fleet.index.catch_up().await?;
    let catalogue = fleet.catalogue();
    for entry in &catalogue.clusters {
        upsert_declared(fleet, entry).await?;
    }
    for cluster in fleet.index.clusters() {
        let declared = catalogue.clusters.iter().any(|entry| entry.cluster_id == cluster.id);
        if cluster.spec.from_file && !cluster.spec.deleting && !declared {
            remove_undeclared(fleet, &cluster).await?;
        }
        if matches!(cluster.spec.provider, Provider::Standalone | Provider::Terraform) {
            let now = fleet.ambient.now();
            clusters::wake(fleet.store.as_ref(), &cluster.id, now, now).await?;
        }
    }
    Ok(())
}

async fn upsert_declared(fleet: &Fleet, entry: &ClusterEntry) -> Result<()> {
    let key = cluster::key(&entry.cluster_id);
    let label = entry.status.as_deref().unwrap_or(Phase::Accepted.label());
    let phase = Phase::parse(label).ok_or_else(|| {
        let known = Phase::ALL.map(Phase::label).join(", ");
        let field = format!("clusters[{}].status", entry.cluster_id);
        Error::invalid(field, format!("`{label}` is not a status; must be one of {known}"))
    })?;
    let upserted = |stored: Option<&Object>, now: Timestamp| {
        let live = stored.filter(|object| object.deleted_at.is_none());
        let (draft, event) = match live {
            Some(object) => {
                let before = Cluster::from_object(object)?;
                // The next sync after its deletion registers it again.
                if before.spec.deleting {
                    return Ok((None, ()));
                }
                let spec = Spec { from_file: true, ..updated_spec(fleet, &before, entry) };
                if spec == before.spec && object.name == entry.name {
                    return Ok((None, ()));
                }
                (Draft::of(object).name(&entry.name).spec(&spec), "updated")
            }
            None => {
                let new = NewCluster {
                    id: &entry.cluster_id,
                    owner: "mainstay",
                    name: &entry.name,
                    phase,
                    spec: declared_spec(entry),
                    ..NewCluster::default()
                };
                (new.draft(stored, now), "registered")
            }
        };
        let wakes = vec![Recheck::Waiting.wake(now), Wake::new(key.clone(), "", now)];
        let change = Change { wakes, ..Change::from(draft.respec(event, now)) };
        Ok((Some(change), ()))
    };
    fleet.edit(&key, upserted).await
}

fn declared_spec(entry: &ClusterEntry) -> Spec {
    Spec {
        provider: entry.provider_type,
        cloud_provider: entry.cloud_provider.clone(),
        region: entry.region.clone(),
        multi_az: entry.multi_az,
        schedulable: entry.schedulable,
        limit: entry.instance_limit,
        instance_types: instance_types(entry),
        dns_name: entry.cluster_dns.clone(),
        from_file: true,
        ..Spec::default()
    }
}

fn instance_types(entry: &ClusterEntry) -> Vec<String> {
    let types = entry.supported_instance_type.split(',').map(str::trim);
    types.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The spec of an existing cluster with the values of the file.
fn updated_spec(fleet: &Fleet, before: &Cluster, entry: &ClusterEntry) -> Spec {
    let mut spec = before.spec.clone();
    spec.schedulable = entry.schedulable;
    spec.instance_types = instance_types(entry);
    if !entry.cluster_dns.is_empty() {
        spec.dns_name = entry.cluster_dns.clone();
    }
    // Units are counted elsewhere with a limit than without: existing counts would be lost.
    let other_counter = spec.limit.is_some() != entry.instance_limit.is_some();
    if other_counter && !fleet.index.on_cluster(&before.id).is_empty() {
        tracing::warn!(
            cluster = before.id,
            "ignoring the changed limit: it can be added or removed only while the cluster is empty"
        );
    } else {
        spec.limit = entry.instance_limit;
    }
    spec
}

/// Deletes a cluster that the file no longer names, if it is empty.
async fn remove_undeclared(fleet: &Fleet, cluster: &Cluster) -> Result<()> {
    let count = fleet.index.on_cluster(&cluster.id).len();
    if count > 0 {
        tracing::warn!(
            cluster = cluster.id,
            count,
            "keeping a cluster that the file no longer names: it has instances"
        );
        return Ok(());
    }
    let delete = |spec: &mut Spec| {
        spec.schedulable = false;
        !std::mem::replace(&mut spec.deleting, true)
    };
    edit_spec(fleet, &cluster.id, "deleting", delete).await
}
