//! The catalogue: the API itself, clouds, regions, instance types, sign-in systems.

use std::sync::Arc;

use axum::response::Response;
use kernel::Result;
use kernel::identity::Principal;
use serde_json::{Value, json};

use crate::api::kind_api::Call;
use crate::api::wire::reply;
use crate::model::cluster::{Candidate, limit};
use crate::model::error_code::ErrorCode;
use crate::model::kind::{Extra, InstanceType};
use crate::model::providers::{Cloud, Region};
use crate::model::settings::Scaling;
use crate::model::template_scope::SizeScope;

pub async fn root(call: Call) -> Result<Response> {
    let (api, prefix) = (&call.kind.file.api, &call.kind.prefix);
    let version = json!({
        "id": "v1", "href": format!("{prefix}/v1"), "kind": "APIVersion",
        "server_version": "", "collections": null,
    });
    let body = json!({"id": api, "href": prefix, "kind": "API", "versions": [version]});
    Ok(reply::json(200, &body))
}

pub async fn version(call: Call) -> Result<Response> {
    let kind = &call.kind;
    let prefix = &kind.prefix;
    let collection =
        |id: &str, of: &str| json!({"id": id, "href": format!("{prefix}/v1/{id}"), "kind": of});
    let mut collections = vec![collection(&kind.file.plural, &format!("{}List", kind.file.title))];
    if kind.has(Extra::ServiceAccounts) {
        collections.push(collection("service_accounts", "ServiceAccountList"));
    }
    collections.push(collection("cloud_providers", "CloudProviderList"));
    if kind.has(Extra::Clusters) {
        collections.push(collection("clusters", "EnterpriseClusterList"));
    }
    let body = json!({
        "id": "v1", "href": format!("{prefix}/v1"), "kind": "APIVersion",
        "server_version": kernel::telemetry::build::REVISION, "collections": collections,
    });
    Ok(reply::json(200, &body))
}

pub async fn openapi(call: Call) -> Result<Response> {
    Ok(reply::json_line(200, call.openapi().to_vec()))
}

pub async fn sso_providers(call: Call) -> Result<Response> {
    let sso = call.fleet.ports.sso.endpoints();
    let body = json!({
        "id": "", "kind": "", "href": "", "name": sso.name, "base_url": sso.base_url,
        "token_url": sso.token_url, "jwks": sso.jwks, "valid_issuer": sso.issuer,
    });
    Ok(reply::json(200, &body))
}

/// Returns whether there is capacity for another instance.
pub async fn status(call: Call, _: Arc<Principal>) -> Result<Response> {
    call.fleet.index.catch_up().await?;
    let types = &call.kind.file.types;
    let clouds = &call.catalogue.providers.supported_providers;
    let mut regions = clouds.iter().flat_map(|cloud| cloud.regions.iter().map(move |r| (cloud, r)));
    let room = regions.any(|(cloud, region)| {
        types.iter().any(|of| !available(&call, cloud, region, of).is_empty())
    });
    let plural = &call.kind.file.plural;
    Ok(reply::json(200, &json!({ plural.as_str(): { "max_capacity_reached": !room } })))
}

pub async fn providers(call: Call, _: Arc<Principal>) -> Result<Response> {
    let clouds = call.catalogue.providers.supported_providers.iter().map(|cloud| {
        json!({
            "kind": "CloudProvider", "id": cloud.name, "display_name": cloud.title(),
            "name": cloud.name, "enabled": !cloud.regions.is_empty(),
        })
    });
    Ok(reply::one_page("CloudProviderList", clouds.collect()))
}

pub async fn regions(call: Call, _: Arc<Principal>) -> Result<Response> {
    call.fleet.index.catch_up().await?;
    let types = &call.kind.file.types;
    let cloud = call.catalogue.providers.cloud(call.param("id"));
    let regions = cloud.into_iter().flat_map(|cloud| cloud.regions.iter().map(move |r| (cloud, r)));
    let items = regions.map(|(cloud, region)| {
        let offered: Vec<&InstanceType> =
            types.iter().filter(|of| region.offer(&of.id).is_some()).collect();
        let mut item = json!({
            "kind": "CloudRegion", "id": region.name, "display_name": region.title(),
            "enabled": !offered.is_empty(),
        });
        if call.kind.has(Extra::InstanceTypes) {
            let capacity = offered.iter().map(|of| {
                let sizes = available(&call, cloud, region, of);
                json!({ "instance_type": of.id, "available_sizes": sizes })
            });
            item["capacity"] = capacity.collect();
        } else {
            item["supported_instance_types"] = offered.iter().map(|of| of.id.clone()).collect();
        }
        item
    });
    Ok(reply::one_page("CloudRegionList", items.collect()))
}

/// Returns the sizes for which a cluster of the region has capacity.
fn available<'k>(
    call: &Call,
    cloud: &Cloud,
    region: &Region,
    of: &'k InstanceType,
) -> Vec<&'k str> {
    let Some(offer) = region.offer(&of.id) else { return Vec::new() };
    let candidates = call.fleet.index.candidates(&of.id);
    let here = candidates.iter().filter(|Candidate { cluster, .. }| {
        let spec = &cluster.spec;
        let is = |has: &str, want: &str| has.is_empty() || has == want;
        cluster.org.is_empty()
            && cluster.phase == crate::model::cluster::Phase::Ready
            && spec.schedulable
            && is(&spec.cloud_provider, &cloud.name)
            && is(&spec.region, &region.name)
            && spec.takes(call.kind.name(), &of.id)
    });
    let left = here.map(|Candidate { cluster, used }| {
        match (call.fleet.config.scaling, limit(cluster, &of.id)) {
            (Scaling::None, _) | (_, None) => i64::MAX,
            (_, Some(limit)) => limit - used,
        }
    });
    let most = left.max().unwrap_or(match call.fleet.config.scaling {
        // A cluster is created on demand.
        Scaling::Auto => i64::MAX,
        _ => 0,
    });
    let (index, kind) = (&call.fleet.index, call.kind.name());
    let used = || index.used_in_region(kind, &cloud.name, &region.name, &of.id);
    let most = offer.limit.map_or(most, |limit| most.min(limit - used()));
    of.sizes.iter().filter(|size| size.units <= most).map(|size| size.id.as_str()).collect()
}

pub async fn instance_types(call: Call, _: Arc<Principal>) -> Result<Response> {
    let (cloud, region) = (call.param("cloud_provider"), call.param("cloud_region"));
    let Some(cloud) = call.catalogue.providers.cloud(cloud) else {
        return Err(ErrorCode::Provider.error(format!("cloud provider '{cloud}' is unsupported")));
    };
    let Some(region) = cloud.region(region) else {
        return Err(ErrorCode::Region.error(format!("cloud region '{region}' is unsupported")));
    };
    let mut types: Vec<&InstanceType> =
        call.kind.file.types.iter().filter(|of| region.offer(&of.id).is_some()).collect();
    types.sort_by(|a, b| a.id.cmp(&b.id));
    let types: Vec<Value> = types.into_iter().map(|of| instance_type(&call, of)).collect();
    Ok(reply::json(200, &json!({ "instance_types": types })))
}

pub fn instance_type(call: &Call, of: &InstanceType) -> Value {
    let billing = of.billing.iter().map(|billing| {
        json!({
            "id": billing.id, "ams_resource": billing.resource,
            "ams_product": billing.product, "ams_billing_models": billing.models,
        })
    });
    let sizes = of.sizes.iter().filter_map(|size| {
        let template = call.kind.size.as_ref()?;
        Some(template.value(&SizeScope { multi_az: of.multi_az, size }))
    });
    json!({
        "id": of.id,
        "display_name": of.name,
        "supported_billing_models": billing.collect::<Vec<_>>(),
        "sizes": sizes.collect::<Vec<_>>(),
    })
}
