//! An organisation's own clusters.

mod check;
mod wire;

use std::sync::Arc;

use axum::response::Response;
use kernel::command::Answer;
use kernel::identity::Principal;
use kernel::{Json, Key, Result};

use self::check::{ClusterRegistration, check};
use crate::api::kind_api::Call;
use crate::api::wire::reply;
use crate::api::wire::request::{read_payload, require_async};
use crate::commands::cluster::{
    ClusterCommand, Registration, Verb, is_own, missing, require_org_admin,
};
use crate::commands::instance_create::granted_by_ams;
use crate::model::cluster::{self, Cluster, Provider, Spec};
use crate::model::error_code::ErrorCode;
use crate::model::kind::{Billing, InstanceType};
use crate::model::settings::QuotaType;

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
    let spec = registered_spec(&call, &registration);
    let body = Json::encode(&Registration { id: registration.id, spec });
    let answer = execute(&call, Verb::Register, None, body).await?;
    let cluster = Cluster::from_object(&answer.reply.body.parse()?)?;
    Ok(reply::of(&answer, |status, _| reply::json(status, &wire::registration(&call, &cluster))))
}

async fn execute(call: &Call, verb: Verb, subject: Option<Key>, body: Json) -> Result<Answer> {
    let command = ClusterCommand { fleet: call.fleet.clone(), verb };
    call.sender()?.execute(&command, subject, body).await
}

/// Returns the spec of a registered cluster.
fn registered_spec(call: &Call, registration: &ClusterRegistration) -> Spec {
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
        ..Spec::default()
    }
}

pub async fn delete(call: Call, who: Arc<Principal>) -> Result<Response> {
    check_quota(&call, &who).await?;
    require_async(&call)?;
    require_org_admin(&who)?;
    let key = cluster::key(call.param("id"));
    let answer = execute(&call, Verb::Deregister, Some(key), Json::default()).await?;
    let cluster = Cluster::from_object(&answer.reply.body.parse()?)?;
    Ok(reply::of(&answer, |status, _| reply::json(status, &wire::deleted(&call, &cluster))))
}

/// Returns the cluster of the path, if it belongs to the caller's organisation.
async fn own(call: &Call, who: &Principal) -> Result<Arc<Cluster>> {
    call.fleet.index.catch_up().await?;
    let id = call.param("id");
    let cluster = call.fleet.index.cluster(id).filter(|cluster| is_own(cluster, who));
    cluster.ok_or_else(|| missing(id, who))
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
