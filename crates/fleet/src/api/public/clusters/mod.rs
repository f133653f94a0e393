//! An organisation's own clusters.

mod check;
mod wire;

use std::sync::Arc;

use axum::response::Response;
use kernel::change::{EventDraft, Wake, Write};
use kernel::identity::Principal;
use kernel::store::edit;
use kernel::{Change, Error, Json, Object, Refusal, Result, Timestamp};
use serde_json::json;

use self::check::{ClusterRegistration, check};
use crate::api::kind_api::Call;
use crate::api::wire::reply;
use crate::api::wire::request::{read_payload, require_async};
use crate::model::cluster::{self, Cluster, Phase, Provider, Spec};
use crate::model::error_code::ErrorCode;
use crate::model::kind::{Billing, InstanceType};
use crate::model::settings::QuotaType;
use crate::store::clusters::NewCluster;

pub async fn list(call: Call, who: Arc<Principal>) -> Result<Response> {
    check_quota(&call, &who).await?;
    call.fleet.index.catch_up().await?;
    let mut own = call.fleet.index.clusters();
    own.retain(|cluster| is_own(cluster, &who));
    let items: Vec<_> = own.iter().map(|cluster| wire::one(&call, cluster)).collect();
    let total = items.len();
    let list = json!({
        "kind": "ClusterList", "page": 1, "size": total, "total": total, "items": items,
    });
    Ok(reply::json(200, &list))
}

pub async fn get(call: Call, who: Arc<Principal>) -> Result<Response> {
    check_quota(&call, &who).await?;
    let cluster = own(&call, &who).await?;
    Ok(reply::json(200, &wire::one(&call, &cluster)))
}

/// Returns the installation parameters of the cluster's agent. They hold a secret, so reading them is
/// audited.
pub async fn addon_parameters(call: Call, who: Arc<Principal>) -> Result<Response> {
    check_quota(&call, &who).await?;
    require_org_admin(&who)?;
    let cluster = own(&call, &who).await?;
    let key = cluster.key();
    let audit = call.context.audit(&who, "cluster.addon_parameters", key.as_str(), &cluster.org);
    let change = Change { audit: Some(audit), ..Change::default() };
    kernel::store::commit(call.fleet.store.as_ref(), change, call.fleet.ambient.now()).await?;
    Ok(reply::json(200, &wire::addon_parameters(&call, &cluster)))
}

pub async fn create(mut call: Call, who: Arc<Principal>) -> Result<Response> {
    check_quota(&call, &who).await?;
    let body = read_payload(&mut call).await?;
    let registration = check(&body)?;
    require_org_admin(&who)?;
    let fleet = &call.fleet;
    let now = fleet.ambient.now();
    let key = cluster::key(&registration.id);
    let taken = || {
        ErrorCode::ClusterTaken
            .error(format!("cluster id {} is already registered", registration.id))
    };
    let before = fleet.store.object(&key).await?;
    if before.as_ref().is_some_and(|before| before.deleted_at.is_none()) {
        return Err(taken());
    }
    // A deregistered cluster may be registered again, with another secret.
    let rotation = match &before {
        Some(before) => before.spec.parse::<Spec>()?.rotation + 1,
        None => 0,
    };
    // Where clients are kept in another system, the worker registers the agent's client there
    // before anything waits for it; its secret is known already.
    let phase = if fleet.sso_is_external { Phase::Accepted } else { Phase::Waiting };
    let new = NewCluster {
        id: &registration.id,
        org: &who.org,
        owner: &who.subject,
        name: &registration.id,
        phase,
        spec: registered_spec(&call, &registration, rotation),
        reason: "",
    };
    let object = match &before {
        Some(deleted) => new.object_after(deleted, now),
        None => new.object(now),
    };
    let mut audit = call.context.audit(&who, "cluster.create", key.as_str(), &who.org);
    audit.after = object.spec.clone();
    let event = EventDraft::for_object(&object, &object.phase);
    let wakes = vec![Wake::for_object(&object, now)];
    let write = match before {
        None => Write::Create(object.clone()),
        Some(_) => Write::Update(object.clone()),
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
    Ok(reply::json(200, &wire::registration(&call, &Cluster::from_object(&object)?)))
}

/// Returns the spec of a registered cluster.
fn registered_spec(call: &Call, registration: &ClusterRegistration, rotation: i64) -> Spec {
    let own = own_cluster_billing(call).map(|(of, _)| of.id.clone());
    let mut instance_types: Vec<String> = own.collect();
    instance_types.dedup();
    let nodes = registration.nodes;
    Spec {
        provider: Provider::Enterprise,
        multi_az: true,
        schedulable: true,
        kinds: vec![call.kind.name().to_owned()],
        max_nodes: instance_types.iter().map(|of| (of.clone(), nodes)).collect(),
        instance_types,
        dns_name: registration.dns_name.clone(),
        private_network: registration.private_network,
        node_count: nodes,
        rotation,
        ..Spec::default()
    }
}

pub async fn delete(call: Call, who: Arc<Principal>) -> Result<Response> {
    check_quota(&call, &who).await?;
    require_async(&call)?;
    require_org_admin(&who)?;
    call.fleet.index.catch_up().await?;
    let id = call.param("id");
    let cluster = call.fleet.index.cluster(id).ok_or_else(|| missing(id, &who))?;
    if !is_own(&cluster, &who) {
        let why = "unable to deregister cluster from different organization";
        return Err(ErrorCode::Forbidden.error(why));
    }
    let held = call.fleet.index.on_cluster(id).len();
    if held > 0 {
        let (plural, kind) = (&call.kind.file.plural, call.kind.name());
        let why = format!(
            "unable to deregister cluster {id}: {held} {plural} are on it; delete every {kind} first"
        );
        return Err(ErrorCode::Forbidden.error(why));
    }
    request_delete(&call, &who, &cluster).await?;
    Ok(reply::json(202, &wire::deleted(&call, &cluster)))
}

/// Requests the deletion of a cluster; the worker deletes it once it is empty.
async fn request_delete(call: &Call, who: &Principal, cluster: &Cluster) -> Result<()> {
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
            event: Some(EventDraft::for_object(&after, "deleting")),
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

/// Returns the cluster of the path, if it belongs to the caller's organisation.
async fn own(call: &Call, who: &Principal) -> Result<Arc<Cluster>> {
    call.fleet.index.catch_up().await?;
    let id = call.param("id");
    let cluster = call.fleet.index.cluster(id).filter(|cluster| is_own(cluster, who));
    cluster.ok_or_else(|| missing(id, who))
}

fn missing(id: &str, who: &Principal) -> Error {
    ErrorCode::NotFound.error(format!(
        "enterprise data plane cluster with id='{id}' not found within organization: {}",
        who.org
    ))
}

fn require_org_admin(who: &Principal) -> Result<()> {
    let why = "non admin user not authorized to perform this action";
    if who.org_admin { Ok(()) } else { Err(ErrorCode::Unauthorized.error(why)) }
}

/// Returns the types and billing models that run on an organisation's own cluster.
fn own_cluster_billing(call: &Call) -> impl Iterator<Item = (&InstanceType, &Billing)> {
    let types = call.kind.file.types.iter();
    let all = types.flat_map(|of| of.billing.iter().map(move |billing| (of, billing)));
    all.filter(|(_, billing)| billing.own_cluster)
}

/// Checks that the organisation has quota for instances on its own clusters.
async fn check_quota(call: &Call, who: &Principal) -> Result<()> {
    let (fleet, now) = (&call.fleet, call.fleet.ambient.now());
    if let (QuotaType::Ams, Some(ams)) = (fleet.config.quota_type, &fleet.ams) {
        for (_, billing) in own_cluster_billing(call) {
            let model = billing.models.first().map(String::as_str).unwrap_or_default();
            let quota = ams.quota(&who.org, &billing.product, model).await.map_err(|error| {
                tracing::warn!(%error, "reading the quota failed");
                ErrorCode::QuotaCheck.default_error()
            })?;
            if quota.is_some_and(|quota| quota.allowed > 0) {
                return Ok(());
            }
        }
    } else {
        let max = fleet.config.max_allowed_instances;
        let entitled = call.catalogue.quota.entitlement(&who.org, &who.subject, max);
        let some = |of: &InstanceType, billing: &Billing| {
            entitled.as_ref().is_some_and(|e| e.limit(&call.kind, &of.id, &billing.id, now) > 0)
        };
        if own_cluster_billing(call).any(|(of, billing)| some(of, billing)) {
            return Ok(());
        }
    }
    Err(ErrorCode::NoQuota.error(format!(
        "organization '{}' has no quota for {} on clusters of its own",
        who.org, call.kind.file.plural
    )))
}
