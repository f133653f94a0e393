//! `/api/v1/objects`: managed objects of every kind.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::super::{Caller, Context, Deferred, Params, PathKey, Routes, restrict};
use super::limit;
use crate::change::Edge;
use crate::identity::{Action, Principal};
use crate::query::{ObjectQuery, PAGE_MAX, QueryPage};
use crate::wait;
use crate::{App, Error, Key, Object, Result};

const WAIT_S_MAX: u64 = 300;

pub(super) fn routes() -> Routes {
    Routes::new()
        .route(Action::Read, routes!(list))
        .route(Action::Read, routes!(get))
        .route(Action::Read, routes!(graph))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Filter {
    kind: Option<String>,
    phase: Option<String>,
    owner: Option<String>,
    org: Option<String>,
    name: Option<String>,
    /// `KEY=VALUE`; several are separated by commas.
    label: Option<String>,
    /// Includes deleted objects.
    #[serde(default)]
    deleted: bool,
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
    /// `next` of the previous page.
    after: Option<i64>,
}

impl Filter {
    fn find(self) -> Result<ObjectQuery> {
        let pair = |pair: &str| match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(Error::invalid("label", "must be KEY=VALUE, several separated by commas")),
        };
        let labels = self.label.iter().flat_map(|labels| labels.split(','));
        Ok(ObjectQuery {
            labels: labels.map(pair).collect::<Result<_>>()?,
            limit: limit(self.limit, PAGE_MAX)?,
            org: self.org,
            owner: self.owner,
            kind: self.kind,
            phase: self.phase,
            name: self.name,
            deleted: self.deleted,
            after: self.after,
            ..ObjectQuery::default()
        })
    }
}

/// Returns the objects of a query that are visible to the caller.
pub(super) async fn find(app: &App, who: &Principal, find: ObjectQuery) -> Result<Json<QueryPage>> {
    let Some(find) = restrict(who, find) else { return Ok(Json(QueryPage::default())) };
    let mut page = app.store.find(&find).await?;
    page.objects = page
        .objects
        .into_iter()
        .filter_map(|object| match app.kinds().present(&object, who)? {
            Cow::Borrowed(_) => Some(object),
            Cow::Owned(shown) => Some(shown),
        })
        .collect();
    Ok(Json(page))
}

/// Objects, newest first.
#[utoipa::path(get, path = "/api/v1/objects", tag = "objects", params(Filter),
    responses((status = 200, body = QueryPage)))]
async fn list(
    State(app): State<App>,
    Caller(who): Caller,
    Params(filter): Params<Filter>,
) -> Result<Json<QueryPage>> {
    find(&app, &who, filter.find()?).await
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Wait {
    /// Wait until the object is in one of these phases, as in `ready,failed`.
    wait_phase: Option<String>,
    /// Wait until its observed generation is this one or a later one.
    wait_generation: Option<i64>,
    /// Wait at most this long; then the object is returned as it is.
    #[param(maximum = 300, default = 30)]
    timeout_s: Option<u64>,
    /// Return the object even if it was deleted.
    #[serde(default)]
    deleted: bool,
}

impl Wait {
    fn waits(&self) -> bool {
        self.wait_phase.is_some() || self.wait_generation.is_some()
    }

    fn reached(&self, object: &Object) -> bool {
        let phase = self.wait_phase.as_deref();
        object.deleted_at.is_some()
            || (phase.is_none_or(|phases| phases.split(',').any(|phase| phase == object.phase))
                && self.wait_generation.is_none_or(|generation| object.observed >= generation))
    }
}

/// One object, now or when it reaches a phase or generation.
///
/// With `wait_phase` or `wait_generation` the response waits until that is reached, or until the
/// object is deleted.
#[utoipa::path(get, path = "/api/v1/objects/{kind}/{id}", tag = "objects",
    params(("kind" = String, Path), ("id" = String, Path), Wait),
    responses((status = 200, body = Object, headers(("etag" = String, description = "The revision"))),
        (status = 304, description = "It still has the revision of If-None-Match")))]
async fn get(
    State(app): State<App>,
    Caller(who): Caller,
    Context(context): Context,
    PathKey(key): PathKey,
    Params(wait): Params<Wait>,
    known: IfNoneMatch,
) -> Result<Response> {
    let timeout = super::wait("timeout_s", wait.timeout_s.unwrap_or(30), WAIT_S_MAX)?;
    let shows = wait.deleted || wait.waits();
    let object = visible(&app, &who, &key).await?;
    if object.deleted_at.is_some() && !shows {
        return Err(Error::NotFound(key.to_string()));
    }
    if !wait.waits() || wait.reached(&object) {
        let shown = app.kinds().present(&object, &who);
        return Ok(respond(&*shown.ok_or_else(|| Error::NotFound(key.to_string()))?, &known));
    }
    let closing = context.closing();
    Ok(Deferred::new(timeout, async move {
        let deadline = async { drop(tokio::time::timeout(timeout, closing.cancelled()).await) };
        let object = wait::until(app.tail(), &key, deadline, |now| wait.reached(now)).await?;
        // Its owner may have changed during the wait.
        let shown = object.as_ref().and_then(|object| app.kinds().present(object, &who));
        let shown = shown.ok_or_else(|| Error::NotFound(key.to_string()))?;
        Ok(respond(&shown, &known))
    })
    .into_response())
}

async fn visible(app: &App, who: &Principal, key: &Key) -> Result<Arc<Object>> {
    let found = app.store.object(key).await?;
    let found = found.filter(|object| app.kinds().present(object, who).is_some());
    found.ok_or_else(|| Error::NotFound(key.to_string()))
}

/// The revisions that the client has, from `If-None-Match`.
struct IfNoneMatch(Vec<HeaderValue>);

impl<S: Sync> FromRequestParts<S> for IfNoneMatch {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<IfNoneMatch, Infallible> {
        Ok(IfNoneMatch(parts.headers.get_all(header::IF_NONE_MATCH).into_iter().cloned().collect()))
    }
}

impl IfNoneMatch {
    fn matches(&self, etag: &str) -> bool {
        let tags = self.0.iter().filter_map(|v| v.to_str().ok()).flat_map(|tags| tags.split(','));
        let mut tags = tags.map(|tag| tag.trim());
        tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
    }
}

fn respond(object: &Object, known: &IfNoneMatch) -> Response {
    let etag = format!("\"{}\"", object.revision);
    let unchanged = known.matches(&etag);
    let etag = HeaderValue::try_from(etag).expect("digits in quotes are a header value");
    if unchanged {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response();
    }
    // An object of ordinary size needs no second allocation.
    let mut body = Vec::with_capacity(1024);
    serde_json::to_writer(&mut body, object).expect("our own types serialise");
    let json = HeaderValue::from_static("application/json");
    ([(header::ETAG, etag), (header::CONTENT_TYPE, json)], body).into_response()
}

#[derive(Serialize, ToSchema)]
#[schema(as = ObjectGraph)]
struct Graph {
    key: Key,
    /// What it depends on.
    dependencies: Vec<Node>,
    /// What depends on it.
    dependents: Vec<Node>,
    /// Whether there are more of either than are returned.
    truncated: bool,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ObjectNode)]
struct Node {
    key: Key,
    /// What a direct dependency is for, as in `placed-on`; left out if that needs no saying.
    #[serde(skip_serializing_if = "String::is_empty")]
    role: String,
    name: String,
    phase: String,
    deleted: bool,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct GraphParams {
    /// Also what it depends on through others, and what depends on it through others.
    #[serde(default)]
    transitive: bool,
}

/// An object's dependencies and dependents that are visible to the caller.
#[utoipa::path(get, path = "/api/v1/objects/{kind}/{id}/graph", tag = "objects",
    params(("kind" = String, Path), ("id" = String, Path), GraphParams),
    responses((status = 200, body = Graph)))]
async fn graph(
    State(app): State<App>,
    Caller(who): Caller,
    PathKey(key): PathKey,
    Params(params): Params<GraphParams>,
) -> Result<Json<Graph>> {
    visible(&app, &who, &key).await?;
    let (to, from) = (app.store.dependencies(&key).await?, app.store.dependents(&key).await?);
    if params.transitive {
        let (near, near_from) = (roles(&to), roles(&from));
        let all = || ObjectQuery { deleted: true, limit: PAGE_MAX, ..ObjectQuery::default() };
        let to = ObjectQuery { used_by: Some(key.clone()), ..all() };
        let from = ObjectQuery { depends_on: Some(key.clone()), ..all() };
        let (to, from) = (find(&app, &who, to).await?.0, find(&app, &who, from).await?.0);
        let truncated = to.next.is_some() || from.next.is_some();
        let dependencies = to.objects.into_iter().map(|object| Node::new(object, &near));
        let dependents = from.objects.into_iter().map(|object| Node::new(object, &near_from));
        let (dependencies, dependents) = (dependencies.collect(), dependents.collect());
        return Ok(Json(Graph { key, dependencies, dependents, truncated }));
    }
    let truncated = to.len().max(from.len()) > PAGE_MAX;
    let dependencies = nodes(&app, &who, &to).await?;
    let dependents = nodes(&app, &who, &from).await?;
    Ok(Json(Graph { key, dependencies, dependents, truncated }))
}

async fn nodes(app: &App, who: &Principal, edges: &[Edge]) -> Result<Vec<Node>> {
    let edges = &edges[..edges.len().min(PAGE_MAX)];
    let keys: Vec<Key> = edges.iter().map(|edge| edge.key.clone()).collect();
    let (objects, roles) = (app.store.get(&keys).await?.into_iter(), roles(edges));
    let objects = objects.filter(|object| app.kinds().present(object, who).is_some());
    Ok(objects.map(|object| Node::new(object, &roles)).collect())
}

fn roles(edges: &[Edge]) -> BTreeMap<&Key, &str> {
    edges.iter().map(|edge| (&edge.key, edge.role.as_str())).collect()
}

impl Node {
    fn new(object: Object, roles: &BTreeMap<&Key, &str>) -> Node {
        let Object { key, name, phase, deleted_at, .. } = object;
        let role = roles.get(&key).copied().unwrap_or_default().to_owned();
        Node { key, role, name, phase, deleted: deleted_at.is_some() }
    }
}
