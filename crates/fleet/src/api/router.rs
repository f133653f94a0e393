//! From a path to what answers it: one table for every kind's API, and who may call what.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};
use kernel::http::{RequestContext, sign_in};
use kernel::identity::Principal;
use kernel::{App, Error, Result};

use super::guard::Guard;
use super::public::{
    accounts, catalogue, clusters, create, errors, instances, list, metrics, watch,
};
use super::wire::reply;
use super::{admin, agent};
use crate::Fleet;
use crate::model::catalogue::Catalogue;
use crate::model::error_code::ErrorCode;
use crate::model::kind::{Extra, Kind};

/// A request on its way: what every handler needs.
pub struct Call {
    pub fleet: Arc<Fleet>,
    pub app: App,
    pub kind: Arc<Kind>,
    pub catalogue: Arc<Catalogue>,
    pub context: Arc<RequestContext>,
    pub parts: Parts,
    /// In a lock only so that calls can be shared between threads.
    body: parking_lot::Mutex<Body>,
    /// The parts of the path that stand for something.
    pub args: Vec<String>,
}

impl Call {
    /// A parameter of the query; the first, if it is given more than once.
    pub fn query(&self, name: &str) -> Option<String> {
        self.queries(name).into_iter().next()
    }

    pub fn queries(&self, name: &str) -> Vec<String> {
        let query = self.parts.uri.query().unwrap_or_default();
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.filter(|(key, _)| key == name).map(|(_, value)| value.into_owned()).collect()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.parts.headers.get(name)?.to_str().ok()
    }

    /// The body as it came.
    pub async fn bytes(&mut self) -> Result<axum::body::Bytes> {
        let body = std::mem::take(self.body.get_mut());
        kernel::http::read_body(&self.context, body).await
    }

    /// The body as a JSON object.
    pub async fn object(&mut self) -> Result<serde_json::Map<String, serde_json::Value>> {
        let bytes = self.bytes().await?;
        crate::model::payload::parse_object(&bytes)
    }

    /// Refused unless the caller knows that the answer comes before the deed.
    pub fn must_be_async(&self) -> Result<()> {
        let is = matches!(
            self.query("async").as_deref(),
            Some("true" | "1" | "t" | "T" | "TRUE" | "True")
        );
        let why = "Synchronous action is not supported, use async=true parameter";
        if is { Ok(()) } else { Err(ErrorCode::Sync.error(why)) }
    }

    pub fn json(&self, status: u16, value: &impl serde::Serialize) -> Response {
        reply::json(&self.context, status, value)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    Root,
    Version,
    Openapi,
    Errors,
    OneError,
    SsoProviders,
    Status,
    List,
    Create,
    Get,
    Patch,
    Delete,
    Promote,
    Query,
    QueryRange,
    Federate,
    Providers,
    Regions,
    InstanceTypes,
    Accounts,
    AccountCreate,
    AccountGet,
    AccountDelete,
    AccountReset,
    Clusters,
    ClusterCreate,
    ClusterGet,
    ClusterDelete,
    AddonParameters,
    AgentConfig,
    AgentStatus,
    AgentList,
    AgentReport,
    ObsProxy,
    AdminList,
    AdminGet,
    AdminPatch,
    AdminDelete,
    AdminRevoke,
}

/// Method, path (`@` is the kind's plural, `-` anything), guard, what answers, and the extra
/// routes that it belongs to.
type RouteRow = (&'static str, &'static [&'static str], Guard, Route, Option<Extra>);

pub const TABLE: &[RouteRow] = &[
    ("GET", &[], Guard::Anyone, Route::Root, None),
    ("GET", &["v1"], Guard::Anyone, Route::Version, None),
    ("GET", &["v1", "openapi"], Guard::Anyone, Route::Openapi, None),
    ("GET", &["v1", "errors"], Guard::Anyone, Route::Errors, None),
    ("GET", &["v1", "errors", "-"], Guard::Anyone, Route::OneError, None),
    (
        "GET",
        &["v1", "sso_providers"],
        Guard::Anyone,
        Route::SsoProviders,
        Some(Extra::SsoProviders),
    ),
    ("GET", &["v1", "status"], Guard::SignedIn, Route::Status, Some(Extra::Status)),
    ("GET", &["v1", "@"], Guard::User, Route::List, None),
    ("POST", &["v1", "@"], Guard::User, Route::Create, None),
    ("GET", &["v1", "@", "-"], Guard::User, Route::Get, None),
    ("PATCH", &["v1", "@", "-"], Guard::User, Route::Patch, None),
    ("DELETE", &["v1", "@", "-"], Guard::User, Route::Delete, None),
    ("POST", &["v1", "@", "-", "promote"], Guard::User, Route::Promote, Some(Extra::Promote)),
    ("GET", &["v1", "@", "-", "metrics", "query"], Guard::User, Route::Query, None),
    ("GET", &["v1", "@", "-", "metrics", "query_range"], Guard::User, Route::QueryRange, None),
    ("GET", &["v1", "@", "-", "metrics", "federate"], Guard::Reader, Route::Federate, None),
    ("GET", &["v1", "cloud_providers"], Guard::SignedIn, Route::Providers, None),
    ("GET", &["v1", "cloud_providers", "-", "regions"], Guard::SignedIn, Route::Regions, None),
    (
        "GET",
        &["v1", "instance_types", "-", "-"],
        Guard::User,
        Route::InstanceTypes,
        Some(Extra::InstanceTypes),
    ),
    (
        "GET",
        &["v1", "service_accounts"],
        Guard::User,
        Route::Accounts,
        Some(Extra::ServiceAccounts),
    ),
    (
        "POST",
        &["v1", "service_accounts"],
        Guard::User,
        Route::AccountCreate,
        Some(Extra::ServiceAccounts),
    ),
    (
        "GET",
        &["v1", "service_accounts", "-"],
        Guard::User,
        Route::AccountGet,
        Some(Extra::ServiceAccounts),
    ),
    (
        "DELETE",
        &["v1", "service_accounts", "-"],
        Guard::User,
        Route::AccountDelete,
        Some(Extra::ServiceAccounts),
    ),
    (
        "POST",
        &["v1", "service_accounts", "-", "reset_credentials"],
        Guard::User,
        Route::AccountReset,
        Some(Extra::ServiceAccounts),
    ),
    ("GET", &["v1", "clusters"], Guard::User, Route::Clusters, Some(Extra::Clusters)),
    ("POST", &["v1", "clusters"], Guard::User, Route::ClusterCreate, Some(Extra::Clusters)),
    ("GET", &["v1", "clusters", "-"], Guard::User, Route::ClusterGet, Some(Extra::Clusters)),
    ("DELETE", &["v1", "clusters", "-"], Guard::User, Route::ClusterDelete, Some(Extra::Clusters)),
    (
        "GET",
        &["v1", "clusters", "-", "addon_parameters"],
        Guard::User,
        Route::AddonParameters,
        Some(Extra::Clusters),
    ),
    ("GET", &["v1", "agent-clusters", "-"], Guard::Agent, Route::AgentConfig, None),
    ("PUT", &["v1", "agent-clusters", "-", "status"], Guard::Agent, Route::AgentStatus, None),
    ("GET", &["v1", "agent-clusters", "-", "@"], Guard::Agent, Route::AgentList, None),
    ("PUT", &["v1", "agent-clusters", "-", "@", "status"], Guard::Agent, Route::AgentReport, None),
    (
        "POST",
        &["v1", "obs-proxy-verification", "-"],
        Guard::AnyAgent,
        Route::ObsProxy,
        Some(Extra::ObsProxy),
    ),
    ("GET", &["v1", "admin", "@"], Guard::Admin, Route::AdminList, None),
    ("GET", &["v1", "admin", "@", "-"], Guard::Admin, Route::AdminGet, None),
    ("PATCH", &["v1", "admin", "@", "-"], Guard::Admin, Route::AdminPatch, None),
    ("DELETE", &["v1", "admin", "@", "-"], Guard::Admin, Route::AdminDelete, None),
    (
        "POST",
        &["v1", "admin", "@", "-", "revoke_tls_certificate"],
        Guard::Admin,
        Route::AdminRevoke,
        Some(Extra::RevokeCertificate),
    ),
];

enum RouteMatch {
    /// The place in the table, and what stands for something in the path.
    Row(usize, Vec<String>),
    MethodNotAllowed,
    NotFound,
}

/// The most segments that a path has.
const SEGMENTS_MAX: usize = 5;

/// What answers a path, of which this comes after the kind's prefix.
fn find(kind: &Kind, method: &Method, rest: &str) -> RouteMatch {
    let mut found = RouteMatch::NotFound;
    let (mut segments, mut count) = ([""; SEGMENTS_MAX], 0);
    for segment in rest.split('/').skip(1) {
        let Some(place) = segments.get_mut(count) else { return RouteMatch::NotFound };
        (*place, count) = (segment, count + 1);
    }
    let segments = &segments[..count];
    for (place, (of, path, _, _, extra)) in TABLE.iter().enumerate() {
        let fits = path.len() == segments.len()
            && extra.is_none_or(|extra| kind.has(extra))
            && path.iter().zip(segments).all(|(want, has)| match *want {
                "-" => !has.is_empty(),
                "@" => *has == kind.file.plural,
                want => want == *has,
            });
        if !fits {
            continue;
        }
        if method.as_str() == *of {
            let args = path.iter().zip(segments).filter(|(want, _)| **want == "-");
            return RouteMatch::Row(place, args.map(|(_, has)| (*has).to_owned()).collect());
        }
        found = RouteMatch::MethodNotAllowed;
    }
    found
}

/// The path with `-` for what stands for something: few, so that they can be labels.
fn metric_label(kind: &Kind, place: usize) -> Arc<str> {
    let all = || TABLE.iter().map(|(_, path, ..)| template(kind, path)).collect();
    kind.labels.get_or_init(all)[place].clone()
}

fn template(kind: &Kind, path: &[&str]) -> Arc<str> {
    let mut template = kind.prefix.clone();
    for segment in path {
        template.push('/');
        template.push_str(if *segment == "@" { &kind.file.plural } else { segment });
    }
    template.into()
}

/// Answers every request under a kind's prefix.
pub async fn handle(
    fleet: Arc<Fleet>,
    app: App,
    context: Arc<RequestContext>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    if parts.method == Method::OPTIONS {
        return preflight(&parts);
    }
    let cross_origin = parts.headers.contains_key(header::ORIGIN);
    let mut response = match dispatch(fleet, app, context, parts, body).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    };
    if cross_origin {
        let any = HeaderValue::from_static("*");
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, any);
    }
    response
}

/// Pages of any origin may call, with a token: nothing here is let in by a cookie's origin.
fn preflight(parts: &Parts) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    if parts.headers.contains_key(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        let allowed = HeaderValue::from_static("Authorization,Content-Type");
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    if parts.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
        let allowed = HeaderValue::from_static("DELETE,GET,PATCH,POST");
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, allowed);
    }
    response
}

async fn dispatch(
    fleet: Arc<Fleet>,
    app: App,
    context: Arc<RequestContext>,
    parts: Parts,
    body: Body,
) -> Result<Response> {
    let catalogue = fleet.catalogue();
    let path = parts.uri.path();
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some((kind, rest)) = catalogue.kind_of_path(path) else {
        return Err(ErrorCode::NotFound.default_error());
    };
    let kind = kind.clone();
    let found = find(&kind, &parts.method, rest);
    let public = matches!(&found, RouteMatch::Row(place, _) if TABLE[*place].2 == Guard::Anyone);
    let who = if public {
        None
    } else {
        Some(sign_in(&app, &context, &parts.method, &parts.headers).await?)
    };
    let (place, args) = match found {
        RouteMatch::Row(place, args) => (place, args),
        RouteMatch::MethodNotAllowed => {
            let why = format!(
                "method: {} is not allowed or not yet implemented for {}",
                parts.method,
                parts.uri.path()
            );
            return Err(ErrorCode::NotImplemented.error(why));
        }
        RouteMatch::NotFound => {
            return Err(ErrorCode::NotFound
                .error(format!("The requested resource '{}' doesn't exist", parts.uri.path())));
        }
    };
    let (method, _, guard, route, _) = &TABLE[place];
    context.set_route(metric_label(&kind, place));
    let body = parking_lot::Mutex::new(body);
    let call = Call { fleet, app, kind, catalogue: catalogue.clone(), context, parts, body, args };
    match who {
        None => dispatch_public(call, *route),
        Some(who) => {
            guard.admit(&call, method, &who)?;
            match route {
                // Asked for most: the others are large, and would be moved along.
                Route::Get => instances::get(&call, &who).await,
                route => Box::pin(dispatch_authenticated(call, *route, &who)).await,
            }
        }
    }
}

/// What anyone may ask.
fn dispatch_public(call: Call, route: Route) -> Result<Response> {
    match route {
        Route::Root => Ok(catalogue::root(&call)),
        Route::Version => Ok(catalogue::version(&call)),
        Route::Openapi => Ok(catalogue::openapi(&call)),
        Route::Errors => Ok(errors::list(&call)),
        Route::OneError => errors::get(&call),
        Route::SsoProviders => Ok(catalogue::sso_providers(&call)),
        _ => Err(Error::internal("a route of the fleet", "it is open but has no answer")),
    }
}

async fn dispatch_authenticated(call: Call, route: Route, who: &Principal) -> Result<Response> {
    match route {
        Route::Status => catalogue::status(&call).await,
        Route::List if call.query("watch").is_some() || call.query("wait").is_some() => {
            watch::for_user(call, who).await
        }
        Route::List => list::for_user(&call, who).await,
        Route::Create => create::create(call, who).await,
        Route::Get => instances::get(&call, who).await,
        Route::Patch => instances::patch(call, who).await,
        Route::Delete => instances::delete(call, who).await,
        Route::Promote => instances::promote(call, who).await,
        Route::Query => metrics::query(&call, who).await,
        Route::QueryRange => metrics::query_range(&call, who).await,
        Route::Federate => metrics::federate(&call, who).await,
        Route::Providers => Ok(catalogue::providers(&call)),
        Route::Regions => catalogue::regions(&call).await,
        Route::InstanceTypes => catalogue::instance_types(&call),
        Route::Accounts => accounts::list(&call, who).await,
        Route::AccountCreate => accounts::create(call, who).await,
        Route::AccountGet => accounts::get(&call, who).await,
        Route::AccountDelete => accounts::delete(call, who).await,
        Route::AccountReset => accounts::reset(call, who).await,
        Route::Clusters => clusters::list(&call, who).await,
        Route::ClusterCreate => clusters::create(call, who).await,
        Route::ClusterGet => clusters::get(&call, who).await,
        Route::ClusterDelete => clusters::delete(call, who).await,
        Route::AddonParameters => clusters::addon_parameters(&call, who).await,
        Route::AgentConfig => agent::config(&call).await,
        Route::AgentStatus => agent::status(call).await,
        Route::AgentList if call.query("watch").is_some() || call.query("wait").is_some() => {
            watch::for_agent(call).await
        }
        Route::AgentList => agent::list(&call).await,
        Route::AgentReport => agent::report(call).await,
        Route::ObsProxy => agent::verify(&call, who).await,
        Route::AdminList => admin::list(&call, who).await,
        Route::AdminGet => admin::get(&call, who).await,
        Route::AdminPatch => admin::patch(call, who).await,
        Route::AdminDelete => admin::delete(call, who).await,
        Route::AdminRevoke => admin::revoke(call, who).await,
        Route::Root
        | Route::Version
        | Route::Openapi
        | Route::Errors
        | Route::OneError
        | Route::SsoProviders => dispatch_public(call, route),
    }
}
