//! `/api/v1/fleet`: what our own clients need in addition to the kinds' APIs: kinds, explanations of
//! instances, data planes, and reloading the catalogue.

use std::sync::Arc;

use axum::Json as Body;
use axum::extract::{Path, Query, State};
use kernel::change::{EventDraft, Wake, Write};
use kernel::http::{Caller, Context, Routes};
use kernel::identity::{Action, Principal};
use kernel::store::WorkFilter;
use kernel::{App, Change, Error, Json, Key, Object, Result, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::Fleet;
use crate::commands::catalogue_reload;
use crate::model::cluster::{self, Cluster, Phase, Provider, Spec, Status};
use crate::model::kind::Summary;
use crate::store::clusters;

pub fn routes() -> Routes {
    Routes::new()
        .route(Action::Read, routes!(kinds))
        .route(Action::Read, routes!(explain))
        .route(Action::AdminRead, routes!(clusters))
        .route(Action::AdminFull, routes!(register))
        .route(Action::AdminFull, routes!(change))
        .route(Action::AdminFull, routes!(remove))
        .route(Action::AdminRead, routes!(parameters))
        .route(Action::AdminFull, routes!(reload))
}

/// The kinds of managed services.
#[utoipa::path(get, path = "/api/v1/fleet/kinds", tag = "fleet",
    responses((status = 200, body = Vec<Object>)))]
async fn kinds(State(app): State<App>) -> Result<Body<Vec<Summary>>> {
    let fleet = app.shared::<Fleet>()?;
    Ok(Body(fleet.catalogue().kinds.values().map(|kind| Summary::from(&**kind)).collect()))
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
    cluster: String,
    /// What the queue says of it: when it is looked at next, and what failed.
    #[schema(value_type = Object)]
    work: serde_json::Value,
    /// Each cluster, and why it would or would not do.
    clusters: Vec<ClusterFit>,
}

#[derive(Serialize, ToSchema)]
struct ClusterFit {
    cluster: String,
    /// It is on this one.
    chosen: bool,
    /// Why not; none if it would do.
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
    State(app): State<App>,
    Caller(who): Caller,
    Path((kind, id)): Path<(String, String)>,
) -> Result<Body<Explanation>> {
    let fleet = app.shared::<Fleet>()?;
    fleet.index.catch_up().await?;
    let row = fleet.index.get(&kind, &id);
    let admin = Action::AdminRead.allows(&who);
    let row = row.filter(|row| admin || super::public::instances::can_see(&who, &row.instance));
    let row = row.ok_or_else(|| Error::NotFound(format!("{kind}/{id}")))?;
    let instance = &row.instance;
    let filter = WorkFilter { key: Some(instance.key()), ..WorkFilter::default() };
    let work = fleet.store.work(&filter, 1).await?.pop();
    let status = &instance.status;
    let waiting_for = match status.waiting_for.as_str() {
        "" => default_wait_reason(instance.phase),
        text => text.to_owned(),
    };
    let fits = fleet.rank_clusters(instance).into_iter().map(|verdict| {
        let chosen = verdict.cluster.id == status.cluster_id;
        let rejection = verdict.why().filter(|_| !chosen);
        ClusterFit { chosen, rejection, left: verdict.left, cluster: verdict.cluster.id.clone() }
    });
    Ok(Body(Explanation {
        status: instance.phase.label(),
        since: status.since,
        waiting_for,
        failed_reason: status.failed_reason.clone(),
        cluster: status.cluster_id.clone(),
        work: work.map_or(serde_json::Value::Null, |row| serde_json::json!(row)),
        // Clusters are visible to admins only.
        clusters: if admin { fits.collect() } else { Vec::new() },
    }))
}

/// Returns what an instance in this phase usually waits for.
fn default_wait_reason(status: crate::model::instance::Phase) -> String {
    use crate::model::instance::Phase as S;
    match status {
        S::Accepted => "a worker to place it",
        S::Preparing => "its client and its names",
        S::Provisioning => "its data plane to report that it runs",
        S::Suspending => "its data plane to report that it is suspended",
        S::Resuming => "its data plane to report that it runs again",
        S::Deprovision => "its data plane to report that nothing of it is left",
        S::Deleting => "a worker to remove what is left of it",
        S::Ready | S::Failed | S::Suspended => "",
    }
    .into()
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
async fn clusters(State(app): State<App>) -> Result<Body<Vec<ClusterView>>> {
    let fleet = app.shared::<Fleet>()?;
    fleet.index.catch_up().await?;
    Ok(Body(fleet.index.clusters().iter().map(|cluster| cluster_view(&fleet, cluster)).collect()))
}

/// A data plane that is to be had.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewCluster {
    id: String,
    #[serde(default)]
    name: String,
    /// `agent` (an agent will report), `standalone` (a kubeconfig context) or `terraform`.
    #[serde(default)]
    #[schema(value_type = String)]
    provider: Option<Provider>,
    #[serde(default)]
    cloud_provider: String,
    #[serde(default)]
    region: String,
    #[serde(default)]
    dns_name: String,
    #[serde(default)]
    external_id: String,
    /// Units that it may hold; none: as many as its agent says.
    limit: Option<i64>,
    #[serde(default)]
    kinds: Vec<String>,
    #[serde(default)]
    instance_types: Vec<String>,
}

/// Registers a data plane. Its agent's parameters are under `…/parameters`.
#[utoipa::path(post, path = "/api/v1/fleet/clusters", tag = "fleet", request_body = NewCluster,
    responses((status = 202, body = ClusterView)))]
async fn register(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    body: kernel::http::Body<NewCluster>,
) -> Result<(axum::http::StatusCode, Body<ClusterView>)> {
    let fleet = app.shared::<Fleet>()?;
    let new = body.value;
    Key::parse(&format!("{}/{}", cluster::KIND, new.id))
        .map_err(|_| Error::invalid("id", "must be letters, digits and '-'"))?;
    if new.limit.is_some_and(|limit| limit < 0) {
        return Err(Error::invalid("limit", "must not be negative"));
    }
    let now = app.ambient.now();
    let cluster = clusters::NewCluster {
        id: &new.id,
        org: "",
        owner: &who.subject,
        name: if new.name.is_empty() { &new.id } else { &new.name },
        phase: Phase::Accepted,
        spec: Spec {
            provider: new.provider.unwrap_or(Provider::Agent),
            cloud_provider: new.cloud_provider,
            region: new.region,
            multi_az: true,
            schedulable: true,
            limit: new.limit,
            kinds: new.kinds,
            instance_types: new.instance_types,
            dns_name: new.dns_name,
            external_id: new.external_id,
            ..Spec::default()
        },
        reason: "",
    };
    let object = cluster.object(now);
    let view = cluster_view(&fleet, &Cluster::from_object(&object)?);
    let change = Change {
        wakes: vec![Wake::for_object(&object, now)],
        event: Some(EventDraft::for_object(&object, Phase::Accepted.label())),
        audit: Some(kernel::change::AuditDraft {
            after: object.spec.clone(),
            ..context.audit(&who, "cluster.create", object.key.as_str(), "")
        }),
        write: Some(Write::Create(object)),
        ..Change::default()
    };
    kernel::store::commit(app.store.as_ref(), change, now).await?;
    Ok((axum::http::StatusCode::ACCEPTED, Body(view)))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ClusterChange {
    /// Whether it takes new instances.
    schedulable: Option<bool>,
    limit: Option<i64>,
    /// Gives its agent a new secret.
    #[serde(default)]
    rotate: bool,
}

/// Changes a data plane.
#[utoipa::path(patch, path = "/api/v1/fleet/clusters/{id}", tag = "fleet",
    request_body = ClusterChange, params(("id" = String, Path)),
    responses((status = 200, body = ClusterView)))]
async fn change(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    Path(id): Path<String>,
    body: kernel::http::Body<ClusterChange>,
) -> Result<Body<ClusterView>> {
    let wish = body.value;
    let fleet = app.shared::<Fleet>()?;
    if wish.limit.is_some_and(|limit| limit < 0) {
        return Err(Error::invalid("limit", "must not be negative"));
    }
    fleet.index.catch_up().await?;
    // Units are counted elsewhere without a limit, so existing ones would not be counted.
    let unlimited = fleet.index.cluster(&id).is_some_and(|cluster| cluster.spec.limit.is_none());
    if wish.limit.is_some() && unlimited && !fleet.index.on_cluster(&id).is_empty() {
        let why = "can be added only while nothing is on the cluster; lower what its agent offers";
        return Err(Error::invalid("limit", why));
    }
    edit(&app, &who, &context, &id, "cluster.update", |spec| {
        spec.schedulable = wish.schedulable.unwrap_or(spec.schedulable);
        spec.limit = wish.limit.or(spec.limit);
        spec.rotation += i64::from(wish.rotate);
    })
    .await
}

/// How a data plane goes.
#[derive(Deserialize, utoipa::IntoParams)]
struct DeleteParams {
    /// It vanished: nothing is asked of it any more, and its instances are without one.
    #[serde(default)]
    force: bool,
}

/// Takes a data plane away, once nothing is on it.
#[utoipa::path(delete, path = "/api/v1/fleet/clusters/{id}", tag = "fleet",
    params(("id" = String, Path), DeleteParams), responses((status = 200, body = ClusterView)))]
async fn remove(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    Path(id): Path<String>,
    Query(params): Query<DeleteParams>,
) -> Result<Body<ClusterView>> {
    edit(&app, &who, &context, &id, "cluster.delete", |spec| {
        spec.deleting = true;
        spec.force |= params.force;
        spec.schedulable = false;
    })
    .await
}

async fn edit(
    app: &App,
    who: &Principal,
    context: &kernel::http::RequestContext,
    id: &str,
    action: &str,
    wish: impl Fn(&mut Spec),
) -> Result<Body<ClusterView>> {
    let fleet = app.shared::<Fleet>()?;
    let key = Key::parse(&format!("{}/{id}", cluster::KIND))?;
    let wished = |there: Option<&Object>, now: Timestamp| {
        let object = there.filter(|object| object.deleted_at.is_none());
        let mut object = object.ok_or_else(|| Error::NotFound(key.to_string()))?.clone();
        let before = object.spec.clone();
        let mut spec: Spec = before.parse()?;
        wish(&mut spec);
        object.spec = Json::encode(&spec);
        object.generation += 1;
        object.updated_at = now;
        let audit = context.audit(who, action, key.as_str(), "");
        let view = cluster_view(&fleet, &Cluster::from_object(&object)?);
        let mut wakes = fleet.index.wakes_of_waiting(&fleet.catalogue(), now);
        wakes.push(Wake::for_object(&object, now));
        let change = Change {
            wakes,
            event: Some(EventDraft::for_object(&object, "updated")),
            audit: Some(kernel::change::AuditDraft { before, after: object.spec.clone(), ..audit }),
            write: Some(Write::Update(object)),
            ..Change::default()
        };
        Ok((Some(change), view))
    };
    let view = kernel::store::edit(app.store.as_ref(), &app.ambient, &key, wished).await?;
    // A request that follows the response must find the index up to date.
    if let Err(error) = fleet.index.catch_up().await {
        tracing::warn!(%error, "the index did not catch up after a cluster was changed");
    }
    Ok(Body(view))
}

/// What a data plane's agent is started with. Holds its secret.
#[utoipa::path(get, path = "/api/v1/fleet/clusters/{id}/parameters", tag = "fleet",
    params(("id" = String, Path)), responses((status = 200, body = Object)))]
async fn parameters(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    Path(id): Path<String>,
) -> Result<Body<serde_json::Value>> {
    if !Action::AdminFull.allows(&who) {
        return Err(Error::Forbidden("an agent's secret is shown to admin-full only".into()));
    }
    let fleet = app.shared::<Fleet>()?;
    fleet.index.catch_up().await?;
    let cluster = fleet.index.cluster(&id);
    let cluster = cluster.ok_or_else(|| Error::NotFound(format!("cluster/{id}")))?;
    let audit = context.audit(&who, "cluster.parameters", cluster.key().as_str(), "");
    let change = Change { audit: Some(audit), ..Change::default() };
    kernel::store::commit(app.store.as_ref(), change, app.ambient.now()).await?;
    let parameters = fleet.agent_parameters(&cluster).into_iter();
    Ok(Body(
        parameters.map(|(name, value)| (name.to_owned(), serde_json::Value::from(value))).collect(),
    ))
}

/// Reads kinds, quota, lists, clouds and clusters again. A file with a mistake changes nothing.
#[utoipa::path(post, path = "/api/v1/fleet/reload", tag = "fleet",
    responses((status = 200, body = Object)))]
async fn reload(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
) -> Result<Body<serde_json::Value>> {
    let fleet: Arc<Fleet> = app.shared::<Fleet>()?;
    let audit = context.audit(&who, "fleet.reload", "fleet", "");
    catalogue_reload::reload(&fleet, Some(audit)).await?;
    let kinds: Vec<String> = fleet.catalogue().kinds.keys().cloned().collect();
    Ok(Body(serde_json::json!({ "kinds": kinds })))
}
