//! `/api/v1/fleet`: what our own clients need in addition to the kinds' APIs: kinds, explanations of
//! instances, data planes, and reloading the catalogue.

use std::sync::Arc;

use axum::extract::{Path, Query};
use axum::response::Response;
use axum::{Extension, Json as Body};
use kernel::http::{Body as Sent, Routes, respond_to_command};
use kernel::identity::Action;
use kernel::queue::QueueRow;
use kernel::store::WorkFilter;
use kernel::{Error, Json, Key, Result, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::Fleet;
use crate::api::access::FleetRequest;
use crate::commands::catalogue_reload::{self, ReloadCommand};
use crate::commands::cluster::{ClusterChange, ClusterCommand, NewCluster, Verb};
use crate::model::catalogue_load::Load;
use crate::model::cluster::{self, Cluster, Spec, Status};
use crate::model::instance::Phase;
use crate::model::kind::Summary;
use crate::store::access;

pub fn routes() -> Routes {
    Routes::new()
        .route(Action::Read, routes!(kinds))
        .route(Action::Read, routes!(explain))
        .route(Action::AdminRead, routes!(clusters))
        .route(Action::AdminFull, routes!(register))
        .route(Action::AdminFull, routes!(change))
        .route(Action::AdminFull, routes!(remove))
        .route(Action::AdminFull, routes!(parameters))
        .route(Action::AdminFull, routes!(reload))
}

/// The kinds of managed services.
#[utoipa::path(get, path = "/api/v1/fleet/kinds", tag = "fleet",
    responses((status = 200, body = Vec<Object>)))]
async fn kinds(Extension(fleet): Extension<Arc<Fleet>>) -> Body<Vec<Summary>> {
    Body(fleet.catalogue().kinds.values().map(|kind| Summary::from(&**kind)).collect())
}

/// The phase of an instance, and what it waits for.
#[derive(Serialize, ToSchema)]
struct Explanation {
    status: &'static str,
    /// Since when it has this status.
    #[schema(value_type = String)]
    since: Timestamp,
    /// What it waits for, in words.
    waiting_for: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    failed_reason: String,
    /// The cluster that it is on; shown to admins.
    #[serde(skip_serializing_if = "String::is_empty")]
    cluster: String,
    /// Its queue row: when it is reconciled next, and what failed.
    #[schema(value_type = Object)]
    work: Value,
    /// Each cluster, and why it is rejected.
    clusters: Vec<ClusterFit>,
}

#[derive(Serialize, ToSchema)]
struct ClusterFit {
    cluster: String,
    /// The instance is on this one.
    chosen: bool,
    /// Why it is rejected; none if it is suitable.
    #[serde(rename = "against", skip_serializing_if = "Option::is_none")]
    rejection: Option<String>,
    /// Units that would be left.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<i64>,
}

/// Explains an instance.
#[utoipa::path(get, path = "/api/v1/fleet/instances/{kind}/{id}/explanation", tag = "fleet",
    params(("kind" = String, Path), ("id" = String, Path)),
    responses((status = 200, body = Explanation)))]
async fn explain(
    FleetRequest { fleet, who, .. }: FleetRequest,
    Path((kind, id)): Path<(String, String)>,
) -> Result<Body<Explanation>> {
    fleet.index.catch_up().await?;
    let row = fleet.index.get(&kind, &id);
    let admin = Action::AdminRead.allows(&who);
    if !admin {
        access::check(&fleet.catalogue(), &who)?;
    }
    let row = row.filter(|row| admin || access::can_see(&who, &row.instance));
    let row = row.ok_or_else(|| Error::NotFound(format!("{kind}/{id}")))?;
    let instance = &row.instance;
    let filter = WorkFilter { key: Some(instance.key()), ..WorkFilter::default() };
    let work = fleet.store.work(&filter, 1).await?.pop();
    let status = &instance.status;
    let waiting_for = match status.waiting_for.as_str() {
        "" => default_wait_reason(instance.phase),
        text => text,
    };
    let fits = fleet.rank_clusters(instance).into_iter().map(|verdict| {
        let chosen = verdict.cluster.id == status.cluster_id;
        let rejection = verdict.why().filter(|_| !chosen);
        ClusterFit { chosen, rejection, left: verdict.left, cluster: verdict.cluster.id.clone() }
    });
    Ok(Body(Explanation {
        status: instance.phase.label(),
        since: status.since,
        waiting_for: waiting_for.into(),
        failed_reason: status.failed_reason.clone(),
        cluster: if admin { status.cluster_id.clone() } else { String::new() },
        work: work.map_or(Value::Null, |row| shown_work(&row, admin)),
        // Clusters are visible to admins only.
        clusters: if admin { fits.collect() } else { Vec::new() },
    }))
}

/// Who works on an instance, and how often others did, is for admins.
fn shown_work(row: &QueueRow, admin: bool) -> Value {
    if admin {
        return json!(row);
    }
    let QueueRow { state, due, attempt, reason, paused, .. } = row;
    json!({ "state": state, "due": due, "attempt": attempt, "reason": reason, "paused": paused })
}

/// Returns what an instance in this phase usually waits for.
fn default_wait_reason(phase: Phase) -> &'static str {
    match phase {
        Phase::Accepted => "a worker to place it",
        Phase::Preparing => "its client and its names",
        Phase::Provisioning => "its data plane to report that it runs",
        Phase::Suspending => "its data plane to report that it is suspended",
        Phase::Resuming => "its data plane to report that it runs again",
        Phase::Deprovision => "its data plane to report that nothing of it is left",
        Phase::Deleting => "a worker to remove what is left of it",
        Phase::Ready | Phase::Failed | Phase::Suspended => "",
    }
}

#[derive(Serialize, ToSchema)]
struct ClusterView {
    id: String,
    name: String,
    org: String,
    #[serde(rename = "status")]
    phase: &'static str,
    #[schema(value_type = Object)]
    spec: Spec,
    #[serde(rename = "seen")]
    #[schema(value_type = Object)]
    status: Status,
    /// Units that it holds.
    used: i64,
    #[schema(value_type = String)]
    created_at: Timestamp,
}

fn cluster_view(fleet: &Fleet, cluster: &Cluster) -> ClusterView {
    let mut status = cluster.status.clone();
    status.agent_seen_at = fleet.agent_liveness.last_seen(cluster);
    ClusterView {
        id: cluster.id.clone(),
        name: cluster.name.clone(),
        org: cluster.org.clone(),
        phase: cluster.phase.label(),
        spec: cluster.spec.clone(),
        status,
        used: fleet.index.used_total(&cluster.id),
        created_at: cluster.created_at,
    }
}

/// All data planes.
#[utoipa::path(get, path = "/api/v1/fleet/clusters", tag = "fleet",
    responses((status = 200, body = Vec<ClusterView>)))]
async fn clusters(Extension(fleet): Extension<Arc<Fleet>>) -> Result<Body<Vec<ClusterView>>> {
    fleet.index.catch_up().await?;
    Ok(Body(fleet.index.clusters().iter().map(|cluster| cluster_view(&fleet, cluster)).collect()))
}

/// Registers a data plane. Its agent's parameters are under `…/parameters`.
#[utoipa::path(post, path = "/api/v1/fleet/clusters", tag = "fleet", request_body = NewCluster,
    responses((status = 202, body = ClusterView)))]
async fn register(request: FleetRequest, body: Sent<Json>) -> Result<Response> {
    execute(&request, Verb::Create, None, body.value).await
}

/// Changes a data plane.
#[utoipa::path(patch, path = "/api/v1/fleet/clusters/{id}", tag = "fleet",
    request_body = ClusterChange, params(("id" = String, Path)),
    responses((status = 200, body = ClusterView)))]
async fn change(
    request: FleetRequest,
    Path(id): Path<String>,
    body: Sent<Json>,
) -> Result<Response> {
    execute(&request, Verb::Update, Some(&id), body.value).await
}

/// How a data plane is deleted.
#[derive(Deserialize, utoipa::IntoParams)]
struct DeleteParams {
    /// It is gone already: neither it nor its agent is contacted, and its instances lose it.
    #[serde(default)]
    force: bool,
}

/// Deletes a data plane once it is empty.
#[utoipa::path(delete, path = "/api/v1/fleet/clusters/{id}", tag = "fleet",
    params(("id" = String, Path), DeleteParams), responses((status = 200, body = ClusterView)))]
async fn remove(
    request: FleetRequest,
    Path(id): Path<String>,
    Query(params): Query<DeleteParams>,
) -> Result<Response> {
    let body = Json::encode(&json!({ "force": params.force }));
    execute(&request, Verb::Delete, Some(&id), body).await
}

/// Carries out a command about a cluster, and responds with the cluster after it.
async fn execute(
    FleetRequest { fleet, sender, .. }: &FleetRequest,
    verb: Verb,
    id: Option<&str>,
    body: Json,
) -> Result<Response> {
    let key = |id: &str| Key::parse(&format!("{}/{id}", cluster::KIND));
    let command = ClusterCommand { fleet: fleet.clone(), verb };
    let mut answer = sender.execute(&command, id.map(key).transpose()?, body).await?;
    // A request that follows the response must find the index up to date.
    if let Err(error) = fleet.index.catch_up().await {
        tracing::warn!(%error, "the index did not catch up after a cluster was changed");
    }
    let cluster = Cluster::from_object(&answer.reply.body.parse()?)?;
    answer.reply.body = Json::encode(&cluster_view(fleet, &cluster));
    Ok(respond_to_command(answer))
}

/// What a data plane's agent is started with. Holds its secret.
#[utoipa::path(get, path = "/api/v1/fleet/clusters/{id}/parameters", tag = "fleet",
    params(("id" = String, Path)), responses((status = 200, body = Object)))]
async fn parameters(
    FleetRequest { fleet, context, who, .. }: FleetRequest,
    Path(id): Path<String>,
) -> Result<Body<Value>> {
    fleet.index.catch_up().await?;
    let cluster = fleet.index.cluster(&id);
    let cluster = cluster.ok_or_else(|| Error::NotFound(format!("cluster/{id}")))?;
    fleet.record(context.audit(&who, "cluster.parameters", cluster.key().as_str(), "")).await?;
    let parameters = fleet.agent_parameters(&cluster).into_iter();
    Ok(Body(parameters.map(|(name, value)| (name.to_owned(), Value::from(value))).collect()))
}

/// Has every replica read kinds, quota, lists, clouds and clusters again. A file with a mistake
/// changes nothing. Says which replicas have loaded the files by now.
#[utoipa::path(post, path = "/api/v1/fleet/reload", tag = "fleet",
    responses((status = 200, body = Object)))]
async fn reload(FleetRequest { fleet, sender, .. }: FleetRequest) -> Result<Response> {
    let command = ReloadCommand(fleet.clone());
    let mut answer = sender.execute(&command, None, Json::default()).await?;
    let requested: Value = answer.reply.body.parse()?;
    let generation = requested["generation"].as_i64().unwrap_or_default();
    let status = catalogue_reload::followed(&fleet, generation).await?;
    let kinds: Vec<String> = fleet.catalogue().kinds.keys().cloned().collect();
    let replica = |(name, load): (&String, &Load)| {
        let state = match (load.generation >= generation, load.error.is_empty()) {
            (false, _) => "pending",
            (true, true) => "loaded",
            (true, false) => "failed",
        };
        json!({ "name": name, "state": state, "error": load.error })
    };
    let replicas: Vec<Value> = status.replicas.iter().map(replica).collect();
    answer.reply.body = Json::encode(&json!({ "kinds": kinds, "replicas": replicas }));
    Ok(respond_to_command(answer))
}
