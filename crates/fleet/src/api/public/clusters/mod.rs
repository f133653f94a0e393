//! An organisation's own clusters.

mod check;
mod wire;

use std::sync::Arc;

use axum::response::Response;
use kernel::change::AuditDraft;
use kernel::identity::Principal;
use kernel::{Error, Refusal, Result};

use self::check::{ClusterRegistration, check};
use crate::api::kind_api::Call;
use crate::api::wire::reply;
use crate::api::wire::request::{read_payload, require_async};
use crate::commands::cluster_spec::edit_spec;
use crate::commands::instance_create::granted_by_ams;
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
    let items = own.iter().map(|cluster| wire::one(&call, cluster)).collect();
    Ok(reply::one_page("ClusterList", items))
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
    call.fleet.record(audit).await?;
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
    let phase = if fleet.ports.sso_is_external { Phase::Accepted } else { Phase::Waiting };
    let new = NewCluster {
        id: &registration.id,
        org: &who.org,
        owner: &who.subject,
        name: &registration.id,
        phase,
        spec: registered_spec(&call, &registration, rotation),
        ..NewCluster::default()
    };
    let (object, mut change) = new.register(before.as_deref(), now);
    let audit = call.context.audit(&who, "cluster.create", key.as_str(), &who.org);
    change.audit = Some(AuditDraft { after: object.spec.clone(), ..audit });
    let made = fleet.commit(change, now).await;
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
    let audit = call.context.audit(&who, "cluster.delete", cluster.key().as_str(), &cluster.org);
    // The worker deletes it once it is empty.
    edit_spec(&call.fleet, id, "deleting", Some(audit), |spec| {
        !std::mem::replace(&mut spec.deleting, true)
    })
    .await?;
    Ok(reply::json(202, &wire::deleted(&call, &cluster)))
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
    call.kind.billings().filter(|(_, billing)| billing.own_cluster)
}

/// Checks that the organisation has quota for instances on its own clusters.
async fn check_quota(call: &Call, who: &Principal) -> Result<()> {
    let (fleet, now) = (&call.fleet, call.fleet.ambient.now());
    let granted = if let (QuotaType::Ams, Some(ams)) = (fleet.config.quota_type, &fleet.ports.ams) {
        granted_by_ams(&**ams, who, own_cluster_billing(call)).await?.is_some()
    } else {
        let max = fleet.config.max_allowed_instances;
        let entitlement = call.catalogue.quota.entitlement(&who.org, &who.subject, max);
        entitlement.is_some_and(|entitlement| {
            own_cluster_billing(call)
                .any(|(of, billing)| entitlement.limit(&call.kind, &of.id, &billing.id, now) > 0)
        })
    };
    if granted {
        return Ok(());
    }
    Err(ErrorCode::NoQuota.error(format!(
        "organization '{}' has no quota for {} on clusters of its own",
        who.org, call.kind.file.plural
    )))
}
