//! The clusters that the file declares: registered, kept as it says, and taken away when it does
//! not name them any more.

use kernel::change::{EventDraft, Wake, Write};
use kernel::store::edit;
use kernel::{Change, Error, Json, Object, Result, Timestamp};

use crate::Fleet;
use crate::model::cluster::{self, Cluster, Provider, Seen, Spec, Status};
use crate::model::providers::ClusterEntry;

/// Makes the clusters as the file says. Also has those looked at on which we keep things, so that
/// this process watches them.
pub async fn sync_clusters(fleet: &Fleet) -> Result<()> {
    fleet.index.catch_up().await?;
    let rules = fleet.rules();
    for entry in &rules.clusters {
        declare(fleet, entry).await?;
    }
    for cluster in fleet.index.clusters() {
        let declared = rules.clusters.iter().any(|entry| entry.cluster_id == cluster.id);
        if cluster.spec.from_file && !cluster.spec.deleting && !declared {
            undeclare(fleet, &cluster).await?;
        }
        let kept = matches!(cluster.spec.provider, Provider::Standalone | Provider::Terraform);
        if kept {
            super::cluster::wake(fleet, &cluster.id, fleet.ambient.now()).await?;
        }
    }
    Ok(())
}

async fn declare(fleet: &Fleet, entry: &ClusterEntry) -> Result<()> {
    let key = cluster::key(&entry.cluster_id);
    let begins = entry.status.as_deref().unwrap_or(Status::Accepted.label());
    if Status::parse(begins).is_none() {
        let known = Status::ALL.map(Status::label).join(", ");
        let field = format!("clusters[{}].status", entry.cluster_id);
        return Err(Error::invalid(field, format!("`{begins}` is none; there are {known}")));
    }
    let registered = |there: Option<&Object>, now: Timestamp| {
        let (mut object, before) = match there {
            Some(object) if object.deleted_at.is_none() => {
                (object.clone(), Some(Cluster::of(object)?))
            }
            Some(object) => (object.clone(), None),
            None => (Object::new(key.clone(), "", "mainstay", &entry.name, begins, now), None),
        };
        let what = match &before {
            // It goes first, and is registered anew when someone asks again.
            Some(before) if before.spec.deleting => return Ok((None, ())),
            Some(before) => {
                let mut spec = changed(fleet, before, entry);
                spec.from_file = true;
                if spec == before.spec && object.name == entry.name {
                    return Ok((None, ()));
                }
                object.spec = Json::encode(&spec);
                object.generation += 1;
                "updated"
            }
            None => {
                object.spec = Json::encode(&declared(entry));
                object.status = Json::encode(&Seen { since: now, ..Seen::default() });
                object.phase = begins.into();
                object.deleted_at = None;
                object.created_at = now;
                object.generation += i64::from(there.is_some());
                "registered"
            }
        };
        object.name = entry.name.clone();
        object.updated_at = now;
        let mut wakes = fleet.waiting_instances(now);
        wakes.push(Wake::new(key.clone(), "", now));
        let change = Change {
            event: Some(EventDraft::of(&object, what)),
            write: Some(match there {
                Some(_) => Write::Update(object),
                None => Write::Create(object),
            }),
            wakes,
            ..Change::default()
        };
        Ok((Some(change), ()))
    };
    edit(fleet.store.as_ref(), &fleet.ambient, &key, registered).await
}

fn declared(entry: &ClusterEntry) -> Spec {
    Spec {
        provider: entry.provider_type,
        cloud_provider: entry.cloud_provider.clone(),
        region: entry.region.clone(),
        multi_az: entry.multi_az,
        schedulable: entry.schedulable,
        limit: entry.instance_limit,
        instance_types: types(entry),
        dns_name: entry.cluster_dns.clone(),
        from_file: true,
        ..Spec::default()
    }
}

fn types(entry: &ClusterEntry) -> Vec<String> {
    let types = entry.supported_instance_type.split(',').map(str::trim);
    types.filter(|of| !of.is_empty()).map(str::to_owned).collect()
}

/// What the file may change of a cluster that is there.
fn changed(fleet: &Fleet, before: &Cluster, entry: &ClusterEntry) -> Spec {
    let mut spec = before.spec.clone();
    spec.schedulable = entry.schedulable;
    spec.instance_types = types(entry);
    if !entry.cluster_dns.is_empty() {
        spec.dns_name = entry.cluster_dns.clone();
    }
    // With and without a limit units are counted in different places: what is there would be lost.
    let other_count = spec.limit.is_some() != entry.instance_limit.is_some();
    if other_count && !fleet.index.on_cluster(&before.id).is_empty() {
        tracing::warn!(
            cluster = before.id,
            "a limit can be added or taken away only while a cluster is empty; it stays as it was"
        );
    } else {
        spec.limit = entry.instance_limit;
    }
    spec
}

/// The file does not name it any more: it goes, if it is empty.
async fn undeclare(fleet: &Fleet, cluster: &Cluster) -> Result<()> {
    let count = fleet.index.on_cluster(&cluster.id).len();
    if count > 0 {
        tracing::warn!(
            cluster = cluster.id,
            count,
            "the file does not name this cluster any more, but instances are on it; it stays"
        );
        return Ok(());
    }
    take_away(fleet, &cluster.id, false).await
}

/// Asks for a cluster to go: once it is empty, or by force, because it is gone already.
pub async fn take_away(fleet: &Fleet, id: &str, force: bool) -> Result<()> {
    let key = cluster::key(id);
    let going = |there: Option<&Object>, now: Timestamp| {
        let object = there.filter(|object| object.deleted_at.is_none());
        let mut object = object.ok_or_else(|| Error::NotFound(key.to_string()))?.clone();
        let mut cluster = Cluster::of(&object)?;
        if cluster.spec.deleting && cluster.spec.force == force {
            return Ok((None, ()));
        }
        cluster.spec.deleting = true;
        cluster.spec.schedulable = false;
        cluster.spec.force |= force;
        object.spec = Json::encode(&cluster.spec);
        object.generation += 1;
        object.updated_at = now;
        let change = Change {
            event: Some(EventDraft::of(&object, "deleting")),
            write: Some(Write::Update(object)),
            wakes: vec![Wake::new(key.clone(), "", now)],
            ..Change::default()
        };
        Ok((Some(change), ()))
    };
    edit(fleet.store.as_ref(), &fleet.ambient, &key, going).await
}
