//! An organisation's own clusters.

mod check;
mod shape;

use std::sync::Arc;

use axum::response::Response;
use kernel::change::{EventDraft, Wake, Write};
use kernel::identity::Principal;
use kernel::store::edit;
use kernel::{Change, Error, Json, Object, Refusal, Result, Timestamp};
use serde_json::json;

use self::check::{Asked, check};
use super::payload::Payload;
use super::router::Call;
use crate::config::QuotaType;
use crate::model::cluster::{self, Cluster, Provider, Seen, Spec, Status};
use crate::model::code::Code;
use crate::model::kind::{Billing, InstanceType};

pub async fn list(call: &Call, who: &Principal) -> Result<Response> {
    entitled(call, who).await?;
    call.fleet.index.catch_up().await?;
    let mut own = call.fleet.index.clusters();
    own.retain(|cluster| is_own(cluster, who));
    let items: Vec<_> = own.iter().map(|cluster| shape::one(call, cluster)).collect();
    let total = items.len();
    let list = json!({
        "kind": "ClusterList", "page": 1, "size": total, "total": total, "items": items,
    });
    Ok(call.json(200, &list))
}

pub async fn get(call: &Call, who: &Principal) -> Result<Response> {
    entitled(call, who).await?;
    let cluster = own(call, who).await?;
    Ok(call.json(200, &shape::one(call, &cluster)))
}

/// What the cluster's agent is to be installed with. It holds a secret, so reading it is put on
/// record.
pub async fn addon_parameters(call: &Call, who: &Principal) -> Result<Response> {
    entitled(call, who).await?;
    must_administer(who)?;
    let cluster = own(call, who).await?;
    let key = cluster.key();
    let audit = call.context.audit(who, "cluster.addon_parameters", key.as_str(), &cluster.org);
    let change = Change { audit: Some(audit), ..Change::default() };
    kernel::store::commit(call.fleet.store.as_ref(), change, call.fleet.ambient.now()).await?;
    Ok(call.json(200, &shape::addon_parameters(call, &cluster)))
}

pub async fn create(mut call: Call, who: &Principal) -> Result<Response> {
    entitled(&call, who).await?;
    let body = Payload(call.object().await?);
    let asked = check(&body)?;
    must_administer(who)?;
    let fleet = &call.fleet;
    let now = fleet.ambient.now();
    let key = cluster::key(&asked.id);
    let taken =
        || Code::ClusterTaken.error(format!("cluster id {} is already registered", asked.id));
    let before = fleet.store.object(&key).await?;
    if before.as_ref().is_some_and(|before| before.deleted_at.is_none()) {
        return Err(taken());
    }
    // One that was given up may come again, under another secret.
    let rotation = match &before {
        Some(before) => before.spec.parse::<Spec>()?.rotation + 1,
        None => 0,
    };
    let mut object = registered(&call, who, &asked, rotation, now);
    let mut audit = call.context.audit(who, "cluster.create", key.as_str(), &who.org);
    audit.after = object.spec.clone();
    let event = EventDraft::of(&object, &object.phase);
    let wakes = vec![Wake::for_object(&object, now)];
    let write = match before {
        None => Write::Create(object.clone()),
        Some(before) => {
            (object.revision, object.generation) = (before.revision, before.generation + 1);
            Write::Update(object.clone())
        }
    };
    let change = Change {
        write: Some(write),
        event: Some(event),
        audit: Some(audit),
        wakes,
        ..Change::default()
    };
    let made = kernel::store::commit(fleet.store.as_ref(), change, now).await;
    made.map_err(|error| match error {
        Error::Refused(Refusal::Exists(_) | Refusal::Stale { .. }) => taken(),
        error => error,
    })?;
    Ok(call.json(200, &shape::registration(&call, &Cluster::of(&object)?)))
}

/// The cluster as it is written down. Where clients are kept in another system, the worker tells
/// that of its agent before anything waits for it; its secret is known already.
fn registered(
    call: &Call,
    who: &Principal,
    asked: &Asked,
    rotation: i64,
    now: Timestamp,
) -> Object {
    let status = if call.fleet.sso_is_outside { Status::Accepted } else { Status::Waiting };
    let own = own_cluster_billing(call).map(|(of, _)| of.id.clone());
    let mut instance_types: Vec<String> = own.collect();
    instance_types.dedup();
    let (key, label) = (cluster::key(&asked.id), status.label());
    let mut object = Object::new(key, &who.org, &who.subject, &asked.id, label, now);
    object.spec = Json::encode(&Spec {
        provider: Provider::Enterprise,
        multi_az: true,
        schedulable: true,
        kinds: vec![call.kind.name().to_owned()],
        max_nodes: instance_types.iter().map(|of| (of.clone(), asked.nodes)).collect(),
        instance_types,
        dns_name: asked.dns_name.clone(),
        private_network: asked.private_network,
        node_count: asked.nodes,
        rotation,
        ..Spec::default()
    });
    object.status = Json::encode(&Seen { since: now, ..Seen::default() });
    object
}

pub async fn delete(call: Call, who: &Principal) -> Result<Response> {
    entitled(&call, who).await?;
    call.must_be_async()?;
    must_administer(who)?;
    call.fleet.index.catch_up().await?;
    let id = &call.args[0];
    let cluster = call.fleet.index.cluster(id).ok_or_else(|| missing(id, who))?;
    if !is_own(&cluster, who) {
        let why = "unable to deregister cluster from different organization";
        return Err(Code::Forbidden.error(why));
    }
    let held = call.fleet.index.on_cluster(id).len();
    if held > 0 {
        let (plural, kind) = (&call.kind.file.plural, call.kind.name());
        let why = format!(
            "unable to deregister cluster {id}: {held} {plural} are on it; delete every {kind} first"
        );
        return Err(Code::Forbidden.error(why));
    }
    leave(&call, who, &cluster).await?;
    Ok(call.json(202, &shape::deleted(&call, &cluster)))
}

/// Asks for a cluster to go; the worker does the rest, once it is empty.
async fn leave(call: &Call, who: &Principal, cluster: &Cluster) -> Result<()> {
    let fleet = &call.fleet;
    let gone = |there: Option<&Object>, now: Timestamp| {
        let object = there.filter(|object| object.deleted_at.is_none());
        let before = object.ok_or_else(|| missing(&cluster.id, who))?;
        let spec: Spec = before.spec.parse()?;
        if spec.deleting {
            return Ok((None, ()));
        }
        let mut after = before.clone();
        after.spec = Json::encode(&Spec { deleting: true, ..spec });
        after.generation += 1;
        after.updated_at = now;
        let mut audit = call.context.audit(who, "cluster.delete", after.key.as_str(), &after.org);
        (audit.before, audit.after) = (before.spec.clone(), after.spec.clone());
        let change = Change {
            event: Some(EventDraft::of(&after, "deleting")),
            audit: Some(audit),
            wakes: vec![Wake::for_object(&after, now)],
            write: Some(Write::Update(after)),
            ..Change::default()
        };
        Ok((Some(change), ()))
    };
    edit(fleet.store.as_ref(), &fleet.ambient, &cluster.key(), gone).await
}

fn is_own(cluster: &Cluster, who: &Principal) -> bool {
    cluster.org == who.org && cluster.spec.provider == Provider::Enterprise
}

/// The cluster of the path, if it is the caller's organisation's.
async fn own(call: &Call, who: &Principal) -> Result<Arc<Cluster>> {
    call.fleet.index.catch_up().await?;
    let id = &call.args[0];
    let cluster = call.fleet.index.cluster(id).filter(|cluster| is_own(cluster, who));
    cluster.ok_or_else(|| missing(id, who))
}

fn missing(id: &str, who: &Principal) -> Error {
    Code::NotFound.error(format!(
        "enterprise data plane cluster with id='{id}' not found within organization: {}",
        who.org
    ))
}

fn must_administer(who: &Principal) -> Result<()> {
    let why = "non admin user not authorized to perform this action";
    if who.org_admin { Ok(()) } else { Err(Code::Unauthorized.error(why)) }
}

/// Types and billing models that run on an organisation's own cluster.
fn own_cluster_billing(call: &Call) -> impl Iterator<Item = (&InstanceType, &Billing)> {
    let types = call.kind.file.types.iter();
    let all = types.flat_map(|of| of.billing.iter().map(move |billing| (of, billing)));
    all.filter(|(_, billing)| billing.own_cluster)
}

/// Only for organisations that have quota for instances on clusters of their own.
async fn entitled(call: &Call, who: &Principal) -> Result<()> {
    let (fleet, now) = (&call.fleet, call.fleet.ambient.now());
    if let (QuotaType::Ams, Some(ams)) = (fleet.config.quota_type, &fleet.ams) {
        for (_, billing) in own_cluster_billing(call) {
            let model = billing.models.first().map(String::as_str).unwrap_or_default();
            let quota = ams.quota(&who.org, &billing.product, model).await.map_err(|error| {
                tracing::warn!(%error, "the quota could not be asked for");
                Code::QuotaCheck.plain()
            })?;
            if quota.is_some_and(|quota| quota.allowed > 0) {
                return Ok(());
            }
        }
    } else {
        let max = fleet.config.max_allowed_instances;
        let entitled = call.rules.quota.entitlement(&who.org, &who.subject, max);
        let some = |of: &InstanceType, billing: &Billing| {
            entitled.as_ref().is_some_and(|e| e.limit(&call.kind, &of.id, &billing.id, now) > 0)
        };
        if own_cluster_billing(call).any(|(of, billing)| some(of, billing)) {
            return Ok(());
        }
    }
    Err(Code::NoQuota.error(format!(
        "organization '{}' has no quota for {} on clusters of its own",
        who.org, call.kind.file.plural
    )))
}
