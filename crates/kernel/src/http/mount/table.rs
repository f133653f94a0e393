//! The routes of one API, compiled: a path is matched without allocation.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::route::Handler;
use super::{Api, Call, MountedApi, Route};
use crate::http::auth::{self, Cached};
use crate::http::{RequestContext, Rule};
use crate::identity::{Principal, TokenProblem};
use crate::{App, Error, Result};

/// The most segments that a path has below its prefix.
const SEGMENTS_MAX: usize = 8;
/// The most parameters that a path has.
const PARAMS_MAX: usize = 3;

/// The routes of one API.
pub struct RouteTable<A> {
    pub(super) api: A,
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

impl<A> RouteTable<A> {
    pub(super) fn param_names(&self, params: &PathParams) -> impl Iterator<Item = &'static str> {
        self.rows[params.row].params()
    }
}

impl<A: Api> RouteTable<A> {
    pub(super) fn new(api: A, routes: Arc<[Route<A>]>) -> RouteTable<A> {
        let existing = routes.iter().enumerate().filter(|(_, route)| (route.exists)(&api));
        let rows = existing.map(|(i, route)| Row::compile(&api, i, route.path)).collect();
        RouteTable { api, rows, routes, document: OnceLock::new() }
    }

    pub(super) fn serves(&self, path: &str) -> bool {
        let Some(rest) = path.strip_prefix(self.api.prefix()) else { return false };
        if self.api.owns_prefix() {
            return rest.is_empty() || rest.starts_with('/');
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        self.rows.iter().any(|row| row.matches(rest))
    }

    /// Finds the route of a path that begins with the prefix. One trailing slash is ignored.
    fn find(&self, method: &Method, given: &str) -> Result<PathParams> {
        let path = given.strip_suffix('/').unwrap_or(given);
        let (mut segments, mut count) = ([(0, 0); SEGMENTS_MAX], 0);
        let mut start = self.api.prefix().len() + 1;
        while start <= path.len() {
            let Some(segment) = segments.get_mut(count) else {
                return Err(Error::NotFound(given.to_owned()));
            };
            let end = path[start..].find('/').map_or(path.len(), |at| start + at);
            *segment = (start, end);
            (count, start) = (count + 1, end + 1);
        }
        let segments = &segments[..count];
        let mut other_method = false;
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
                return Ok(PathParams { row, ranges });
            }
            other_method |= matches;
        }
        if other_method {
            return Err(Error::MethodNotAllowed { method: method.to_string() });
        }
        Err(Error::NotFound(given.to_owned()))
    }

    fn route(&self, params: &PathParams) -> &Route<A> {
        &self.routes[self.rows[params.row].route]
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
            let operation = document(&self.api).write(&self.api, row.params(), route.action);
            let item = paths.entry(self.template(row)).or_insert_with(|| Map::new().into());
            item[route.method.as_str().to_lowercase()] = operation;
        }
        paths
    }

    /// The path with the names of its parameters.
    fn template(&self, row: &Row) -> String {
        let mut template = self.api.prefix().to_owned();
        for segment in &row.segments {
            match segment {
                Segment::Literal(text) => template.extend(["/", text]),
                Segment::Param(name) => template.extend(["/{", name, "}"]),
            }
        }
        template
    }

    fn call(
        self: &Arc<Self>,
        app: App,
        context: Arc<RequestContext>,
        request: Request,
        params: PathParams,
    ) -> Result<Call<A>> {
        let (label, limit) = (&self.rows[params.row].label, self.route(&params).body_bytes_max);
        context.set_route(label.clone(), limit, request.headers())?;
        let (parts, body) = request.into_parts();
        Ok(Call { app, context, parts, body: Mutex::new(body), table: self.clone(), params })
    }

    /// Admits a caller whose token is valid, authorises them and calls the handler.
    fn call_as(
        self: Arc<Self>,
        who: Arc<Principal>,
        app: App,
        context: Arc<RequestContext>,
        request: Request,
        found: Result<PathParams>,
    ) -> Result<BoxFuture<'static, Response>> {
        auth::admit(&app, &context, who.clone())?;
        let params = found?;
        let call = self.call(app, context, request, params)?;
        let Route { action, handler, .. } = self.route(&params);
        match handler {
            Handler::Public(handler) => Ok(handler(call)),
            Handler::Authorized(handler) => {
                if !action.allows(&who) {
                    return Err(self.api.deny(*action, &who));
                }
                A::authorize(&call, *action, &who)?;
                Ok(handler(call, who))
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
            let literal = param.map_or(Some(segment), |name| api.fixed_param(name));
            label.extend(["/", literal.unwrap_or("-")]);
            segments.push(match (literal, param) {
                (None, Some(name)) => Segment::Param(name),
                _ => Segment::Literal(literal.unwrap_or(segment).to_owned()),
            });
        }
        let row = Row { route, segments, label: label.into() };
        let fits = row.segments.len() <= SEGMENTS_MAX && row.params().count() <= PARAMS_MAX;
        assert!(fits, "{path} is too long");
        row
    }

    /// Whether the path below the prefix is this row's, for any method.
    fn matches(&self, path: &str) -> bool {
        let mut given = path.split('/').skip(1);
        let fits = self.segments.iter().all(|wanted| match (wanted, given.next()) {
            (Segment::Literal(text), Some(given)) => text == given,
            (Segment::Param(_), Some(given)) => !given.is_empty(),
            (_, None) => false,
        });
        fits && given.next().is_none()
    }

    fn params(&self) -> impl Iterator<Item = &'static str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Param(name) => Some(*name),
            Segment::Literal(_) => None,
        })
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
        if let Ok(params) = &found
            && let Handler::Public(handler) = &self.route(params).handler
        {
            let call = self.call(app, context, request, *params);
            return call.map_or_else(respond, handler);
        }
        let token = match auth::authenticate_cached(&app, request.method(), request.headers()) {
            Ok(Cached::Known(who)) => {
                return self.call_as(who, app, context, request, found).unwrap_or_else(respond);
            }
            Ok(Cached::Unverified(token)) => token.to_owned(),
            Err(Error::Unauthenticated { problem: TokenProblem::Missing, .. })
                if let Some(who) = self.api.anonymous(&context.path) =>
            {
                return self.call_as(who, app, context, request, found).unwrap_or_else(respond);
            }
            Err(error) => return respond(error),
        };
        Box::pin(async move {
            match app.identity.authenticate_from(&token, context.origin).await {
                Ok(who) => {
                    let called = self.call_as(who, app, context, request, found);
                    called.unwrap_or_else(respond).await
                }
                Err(error) => error.into_response(),
            }
        })
    }

    fn rules(&self) -> Vec<Rule> {
        let rule = |row: &Row| {
            let Route { method, action, .. } = &self.routes[row.route];
            Rule { method: method.to_string(), path: self.template(row), action: *action }
        };
        self.rows.iter().map(rule).collect()
    }

    fn api(&self) -> &dyn Api {
        &self.api
    }
}
