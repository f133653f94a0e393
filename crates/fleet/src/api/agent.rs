//! The agents' API: desired instances of a cluster, and reports about them.

use std::sync::Arc;

use axum::http::HeaderName;
use axum::response::Response;
use kernel::Result;
use kernel::identity::Principal;
use serde_json::{Value, json};

use crate::Fleet;
use crate::api::kind_api::Call;
use crate::api::public::watch;
use crate::api::wire::reply::{self, ListEtag};
use crate::commands::agent_report::{ingest_reports, report_cluster};
use crate::model::cluster::Cluster;
use crate::model::error_code::ErrorCode;
use crate::model::instance::Phase;
use crate::model::kind::{Extra, Kind};
use crate::model::payload::parse_object;
use crate::model::{UUID_PATTERN, is_uuid};
use crate::store::index::{FeedKey, Row};

/// Returns the configuration of the cluster's agent.
pub async fn config(call: Call, _: Arc<Principal>) -> Result<Response> {
    let cluster = cluster(&call).await?;
    let agent = &call.fleet.config.agent;
    let mut spec = serde_json::Map::new();
    // Agents of kinds without enterprise clusters do not know these fields.
    if call.kind.has(Extra::Clusters) {
        spec.insert("net".into(), json!({ "private": cluster.spec.private_network }));
        if !cluster.spec.max_nodes.is_empty() {
            let nodes = |(of, max): (&String, &i64)| (of.clone(), json!({ "maxNodes": max }));
            spec.insert("capacity".into(), cluster.spec.max_nodes.iter().map(nodes).collect());
        }
    }
    let token = call.fleet.ports.observability_access_token.current()?;
    let observability = json!({
        "accessToken": token.expose(),
        "channel": agent.observability_channel,
        "repository": agent.observability_repository,
        "tag": agent.observability_tag,
    });
    spec.insert("observability".into(), observability);
    Ok(reply::json(200, &json!({ "spec": spec })))
}

pub async fn cluster(call: &Call) -> Result<Arc<Cluster>> {
    call.fleet.index.catch_up().await?;
    call.fleet
        .index
        .cluster(call.param("cluster"))
        .ok_or_else(|| ErrorCode::NotFound.default_error())
}

/// Lists the instances of the cluster, or those that changed after `?after=`. Responds with 304 if
/// the client's ETag is current.
pub async fn list(call: &Call) -> Result<Response> {
    let cluster = cluster(call).await?;
    let kind = &call.kind;
    call.fleet.touch_agent(&cluster.id);
    let after = watch::after(call)?;
    let feed = FeedKey::agent(kind.name(), &cluster.id);
    let tag = ListEtag::new(&call.fleet, &feed);
    if after.is_none() && tag.is_known(&call.parts.headers) {
        return Ok(tag.unchanged());
    }
    let delta = call.fleet.index.delta(&feed, after);
    let head = list_head(kind);
    let end = after.map_or_else(|| "]}".into(), |_| watch::delta_suffix(&delta));
    let manifests = wants_manifests(call);
    let mut response = reply::list(&head, &delta.changed, &end, |row, out| {
        render_for_agent(&call.fleet, kind, row, manifests, out);
    });
    response.headers_mut().insert(REVISION, delta.seq.into());
    Ok(tag.on(response))
}

pub fn list_head(kind: &Kind) -> String {
    format!(r#"{{"kind":"Managed{}List","items":["#, kind.file.title)
}

/// The `after` of the next request.
pub const REVISION: HeaderName = HeaderName::from_static("x-revision");

/// Whether the agent asks for manifests, too, as our own does.
pub fn wants_manifests(call: &Call) -> bool {
    call.query("manifests").as_deref() == Some("true")
}

/// Renders an instance for the agent of its cluster.
pub fn render_for_agent(fleet: &Fleet, kind: &Kind, row: &Row, manifests: bool, out: &mut Vec<u8>) {
    let instance = &row.instance;
    let secrets = fleet.agent_secrets(instance);
    let view = fleet.scope(kind, instance, Some(&secrets));
    kind.agent.render_into(&view, out);
    if !manifests || out.pop() != Some(b'}') {
        return;
    }
    let cluster = fleet.index.cluster(&instance.status.cluster_id);
    let rendered = kind.manifests.iter().map(|template| {
        serde_json::from_slice::<Value>(&template.render(&view)).unwrap_or_default()
    });
    let suspended = matches!(instance.phase, Phase::Suspending | Phase::Suspended);
    let more = json!({
        "namespace": instance.status.namespace,
        "placement": instance.status.placement_id,
        "deleted": instance.phase.is_going(),
        "suspended": suspended,
        "versions": instance.spec.versions,
        "router": cluster.map(|cluster| cluster.spec.dns_name.clone()).unwrap_or_default(),
        "manifests": rendered.collect::<Vec<Value>>(),
    });
    out.extend_from_slice(format!(r#","mainstay":{more}}}"#).as_bytes());
}

/// Ingests the agent's report on its instances; everything new is written in one commit.
pub async fn report(mut call: Call, _: Arc<Principal>) -> Result<Response> {
    let bytes = call.bytes().await?;
    let body = parse_object(&bytes)?;
    let cluster = cluster(&call).await?;
    call.fleet.touch_agent(&cluster.id);
    let results = ingest_reports(&call.fleet, &call.kind, &cluster, &body).await?;
    match call.query("results").as_deref() {
        Some("true") => Ok(reply::json(200, &json!({ "results": results }))),
        _ => Ok(reply::empty(200)),
    }
}

/// Ingests the agent's report on its cluster.
pub async fn status(mut call: Call, _: Arc<Principal>) -> Result<Response> {
    let bytes = call.bytes().await?;
    let body = Value::Object(parse_object(&bytes)?);
    let cluster = cluster(&call).await?;
    report_cluster(&call.fleet, &call.kind, &cluster.id, &body).await?;
    Ok(reply::empty(204))
}

/// Verifies that the agent's cluster has this external id.
pub async fn verify(call: Call, who: Arc<Principal>) -> Result<Response> {
    let id = call.param("id");
    if !is_uuid(id) {
        let why = format!("external cluster id does not match {}", UUID_PATTERN);
        return Err(ErrorCode::ExternalClusterId.error(why));
    }
    call.fleet.index.catch_up().await?;
    let clusters = call.fleet.index.clusters();
    let found = clusters.iter().find(|cluster| cluster.spec.external_id == id);
    let Some(cluster) = found else { return Err(ErrorCode::NotFound.default_error()) };
    if who.agent_of.as_deref() != Some(cluster.id.as_str()) {
        return Err(ErrorCode::Forbidden.default_error());
    }
    Ok(reply::empty(200))
}
