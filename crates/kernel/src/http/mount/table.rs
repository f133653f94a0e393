//! The routes of one API, compiled: a path is matched without allocation.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, Method};
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use serde_json::{Map, Value};

use super::route::Handler;
use super::{Api, Call, MountedApi, Route};
use crate::http::auth::{self, Cached};
use crate::http::{RequestContext, Rule};
use crate::identity::{Action, Principal};
use crate::{App, Error};

/// The most segments that a path has below its prefix.
const SEGMENTS_MAX: usize = 8;
/// The most parameters that a path has.
const PARAMS_MAX: usize = 3;

/// The routes of one API.
pub struct RouteTable<A> {
    pub(super) api: A,
    prefix: String,
    rows: Vec<Row>,
    routes: Arc<[Route<A>]>,
    document: OnceLock<Bytes>,
}

/// A route as one API has it.
struct Row {
    /// Its place in the mount's table.
    route: usize,
    segments: Vec<Segment>,
    /// The path with `-` for each parameter: few enough to label metrics with.
    label: Arc<str>,
}

enum Segment {
    Literal(String),
    Param(&'static str),
}

/// Where in the path the parameters of a matched row are.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathParams {
    row: usize,
    ranges: [(usize, usize); PARAMS_MAX],
}

impl PathParams {
    pub(super) fn range(&self, i: usize) -> Range<usize> {
        self.ranges.get(i).map_or(0..0, |(start, end)| *start..*end)
    }
}

enum Found {
    Row(PathParams),
    OtherMethod,
    Nothing,
}

impl<A> RouteTable<A> {
    pub(super) fn param_names(&self, params: &PathParams) -> impl Iterator<Item = &'static str> {
        self.rows[params.row].segments.iter().filter_map(|segment| match segment {
            Segment::Param(name) => Some(*name),
            Segment::Literal(_) => None,
        })
    }

    pub(super) fn serves(&self, path: &str) -> bool {
        path.strip_prefix(self.prefix.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Finds the route of a path that begins with the prefix. One trailing slash is ignored.
    fn find(&self, method: &Method, path: &str) -> Found {
        let path = path.strip_suffix('/').unwrap_or(path);
        let (mut segments, mut count) = ([(0, 0); SEGMENTS_MAX], 0);
        let mut start = self.prefix.len() + 1;
        while start <= path.len() {
            let Some(segment) = segments.get_mut(count) else { return Found::Nothing };
            let end = path[start..].find('/').map_or(path.len(), |at| start + at);
            *segment = (start, end);
            (count, start) = (count + 1, end + 1);
        }
        let segments = &segments[..count];
        let mut found = Found::Nothing;
        for (row, Row { route, segments: wanted, .. }) in self.rows.iter().enumerate() {
            if wanted.len() != count {
                continue;
            }
            let (mut ranges, mut params) = ([(0, 0); PARAMS_MAX], 0);
            let matches = wanted.iter().zip(segments).all(|(wanted, (start, end))| match wanted {
                Segment::Literal(text) => path[*start..*end] == *text,
                Segment::Param(_) => {
                    ranges[params] = (*start, *end);
                    params += 1;
                    start != end
                }
            });
            if matches && self.routes[*route].method == *method {
                return Found::Row(PathParams { row, ranges });
            }
            if matches {
                found = Found::OtherMethod;
            }
        }
        found
    }
}

impl<A: Api> RouteTable<A> {
    pub(super) fn new(api: A, routes: Arc<[Route<A>]>) -> RouteTable<A> {
        let prefix = api.prefix().to_owned();
        let existing = routes.iter().enumerate().filter(|(_, route)| (route.exists)(&api));
        let rows = existing.map(|(i, route)| Row::compile(&api, i, route.path)).collect();
        RouteTable { api, prefix, rows, routes, document: OnceLock::new() }
    }

    /// Returns the OpenAPI document, which is written when it is first asked for.
    pub(super) fn document(&self) -> Bytes {
        let write = || {
            let document = self.api.document(self.paths());
            serde_json::to_vec(&document).unwrap_or_default().into()
        };
        self.document.get_or_init(write).clone()
    }

    fn paths(&self) -> Map<String, Value> {
        let mut paths = Map::new();
        for row in &self.rows {
            let route = &self.routes[row.route];
            let Some(document) = route.document else { continue };
            let params = row.segments.iter().filter_map(|segment| match segment {
                Segment::Param(name) => Some(*name),
                Segment::Literal(_) => None,
            });
            let operation = document(&self.api).write(&self.api, params, route.action);
            let item = paths.entry(self.template(row)).or_insert_with(|| Map::new().into());
            item[route.method.as_str().to_lowercase()] = operation;
        }
        paths
    }

    /// The path with the names of its parameters.
    fn template(&self, row: &Row) -> String {
        let mut template = self.prefix.clone();
        for segment in &row.segments {
            match segment {
                Segment::Literal(text) => template.extend(["/", text]),
                Segment::Param(name) => template.extend(["/{", name, "}"]),
            }
        }
        template
    }

    /// Goes on with a caller whose token is valid.
    fn authenticated(
        self: Arc<Self>,
        app: App,
        context: Arc<RequestContext>,
        request: Request,
        found: Found,
        who: Arc<Principal>,
    ) -> BoxFuture<'static, Response> {
        if let Err(error) = auth::admit(&app, &context, who.clone()) {
            return respond(error);
        }
        match found {
            Found::Row(params) => self.run(app, context, request, params, Some(who)),
            Found::OtherMethod => {
                respond(Error::MethodNotAllowed { method: context.method.to_string() })
            }
            Found::Nothing => respond(Error::NotFound(context.path.clone())),
        }
    }

    /// Authorises the caller and calls the handler.
    fn run(
        self: Arc<Self>,
        app: App,
        context: Arc<RequestContext>,
        request: Request,
        params: PathParams,
        who: Option<Arc<Principal>>,
    ) -> BoxFuture<'static, Response> {
        let row = &self.rows[params.row];
        context.set_route(row.label.clone());
        let Route { action, handler, .. } = &self.routes[row.route];
        let call = Call::new(app, context, request.into_parts(), self.clone(), params);
        match (handler, who) {
            (Handler::Public(handler), _) => handler(call),
            (Handler::Authorized(handler), Some(who)) => {
                if !action.allows(&who) {
                    return respond(self.api.deny(*action, &who));
                }
                match A::authorize(&call, *action, &who) {
                    Ok(()) => handler(call, who),
                    Err(error) => respond(error),
                }
            }
            (Handler::Authorized(_), None) => {
                respond(Error::internal("the route has no caller", "it was taken for public"))
            }
        }
    }
}

impl Row {
    fn compile<A: Api>(api: &A, route: usize, path: &'static str) -> Row {
        let mut label = api.prefix().to_owned();
        let mut segments = Vec::new();
        for segment in path.split('/').skip(1) {
            let param = segment.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
            let segment = match param {
                Some(name) => match api.fixed_param(name) {
                    Some(value) => Segment::Literal(value.to_owned()),
                    None => Segment::Param(name),
                },
                None => Segment::Literal(segment.to_owned()),
            };
            label.push('/');
            label.push_str(match &segment {
                Segment::Literal(text) => text,
                Segment::Param(_) => "-",
            });
            segments.push(segment);
        }
        let params = segments.iter().filter(|segment| matches!(segment, Segment::Param(_))).count();
        assert!(segments.len() <= SEGMENTS_MAX && params <= PARAMS_MAX, "{path} is too long");
        Row { route, segments, label: label.into() }
    }
}

fn respond(error: Error) -> BoxFuture<'static, Response> {
    ready(error.into_response()).boxed()
}

impl<A: Api> MountedApi for RouteTable<A> {
    /// Matches the path, authenticates the caller and calls the handler, whose future is the only
    /// one that is boxed. A path or method that does not exist is denied to callers without a
    /// token before it is found missing.
    fn dispatch(
        self: Arc<Self>,
        app: App,
        context: Arc<RequestContext>,
        request: Request,
    ) -> BoxFuture<'static, Response> {
        let found = self.find(&context.method, &context.path);
        if let Found::Row(params) = found
            && self.routes[self.rows[params.row].route].action == Action::Public
        {
            return self.run(app, context, request, params, None);
        }
        let token = match auth::authenticate_cached(&app, request.method(), request.headers()) {
            Ok(Cached::Known(who)) => {
                return self.authenticated(app, context, request, found, who);
            }
            Ok(Cached::Unverified(token)) => token.to_owned(),
            Err(error) => return respond(error),
        };
        Box::pin(async move {
            match app.identity.authenticate(&token).await {
                Ok(who) => self.authenticated(app, context, request, found, who).await,
                Err(error) => error.into_response(),
            }
        })
    }

    fn error(&self, error: &Error, context: &RequestContext) -> Response {
        self.api.error(error, context)
    }

    fn add_headers(&self, context: &RequestContext, headers: &mut HeaderMap) {
        self.api.add_headers(context, headers);
    }

    fn observe(&self, method: &'static str, route: &Arc<str>, status: u16, took: Duration) {
        self.api.observe(method, route, status, took);
    }

    fn rules(&self) -> Vec<Rule> {
        let rule = |row: &Row| {
            let Route { method, action, .. } = &self.routes[row.route];
            Rule { method: method.to_string(), path: self.template(row), action: *action }
        };
        self.rows.iter().map(rule).collect()
    }

    fn document_link(&self) -> (String, String) {
        self.api.document_link()
    }
}
