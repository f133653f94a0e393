//! The only way to add a route: it names the action that the caller must be allowed.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::MethodRouter;
use futures::future::BoxFuture;
use utoipa::openapi::path::{Operation, PathItem, Paths};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::{Tag, TagBuilder};
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, ResponseBuilder,
};
use utoipa_axum::router::UtoipaMethodRouter;

use super::guard::Guard;
use super::{ErrorMapper, RequestContext};
use crate::App;
use crate::identity::Action;

/// Routes with the permission of each. There is no way to add one without.
#[derive(Default)]
pub struct Routes {
    entries: Vec<Entry>,
    surfaces: Vec<OwnSurface>,
    errors: Vec<(Take, ErrorMapper)>,
    documents: Documents,
}

/// OpenAPI documents beside that of all routes: names, and where each is served. Asked for
/// whenever someone looks, because there may be others by then.
#[derive(Clone, Default)]
pub(super) struct Documents(Vec<Named>);

type Named = Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>;

impl Documents {
    pub fn now(&self) -> Vec<(String, String)> {
        self.0.iter().flat_map(|documents| documents()).collect()
    }
}

impl std::fmt::Debug for Documents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.now().fmt(f)
    }
}

/// Whether a path is someone's. Asked for every request, so it must be quick.
pub(super) type Take = Arc<dyn Fn(&str) -> bool + Send + Sync>;

type Handler =
    Arc<dyn Fn(App, Arc<RequestContext>, Request) -> BoxFuture<'static, Response> + Send + Sync>;

/// Paths that a domain answers by itself.
#[derive(Clone)]
pub(super) struct OwnSurface {
    pub take: Take,
    pub answer: Handler,
}

struct Entry {
    action: Action,
    schemas: Vec<(String, RefOr<Schema>)>,
    paths: Paths,
    router: MethodRouter<App>,
}

/// One line of the permission table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub method: String,
    pub path: String,
    pub action: Action,
}

impl Routes {
    pub fn new() -> Routes {
        Routes::default()
    }

    /// `routes!(handler)`, for callers who may do `action`.
    pub fn route(mut self, action: Action, routes: UtoipaMethodRouter<App>) -> Routes {
        let (schemas, mut paths, router) = routes;
        for item in paths.paths.values_mut() {
            operations(item).for_each(|(_, operation)| annotate(operation, action));
        }
        self.entries.push(Entry { action, schemas, paths, router });
        self
    }

    /// Errors of all requests whose path begins with `prefix`, also of those that no route takes,
    /// are written by `mapper`.
    pub fn errors(self, prefix: impl Into<String>, mapper: ErrorMapper) -> Routes {
        let prefix = prefix.into();
        self.errors_where(move |path| path.starts_with(&prefix), mapper)
    }

    /// Errors of all requests whose path `take` takes are written by `mapper`.
    pub fn errors_where(
        mut self,
        take: impl Fn(&str) -> bool + Send + Sync + 'static,
        mapper: ErrorMapper,
    ) -> Routes {
        self.errors.push((Arc::new(take), mapper));
        self
    }

    /// Every request whose path `take` takes, whatever its method, goes to `answer` and to no
    /// route. Nobody is asked for a token and nothing is documented: `answer` does its own
    /// dispatch, with [`super::sign_in`]. What `take` takes may change while the server runs; it is
    /// asked for every request, so it must be quick.
    pub fn surfaces(
        mut self,
        take: impl Fn(&str) -> bool + Clone + Send + Sync + 'static,
        answer: impl Fn(App, Arc<RequestContext>, Request) -> BoxFuture<'static, Response>
        + Clone
        + Send
        + Sync
        + 'static,
    ) -> Routes {
        self.surfaces.push(OwnSurface { take: Arc::new(take), answer: Arc::new(answer) });
        self
    }

    /// Documents of what surfaces answer, for the page that shows them: name and path of each.
    pub fn documented_by(
        mut self,
        documents: impl Fn() -> Vec<(String, String)> + Send + Sync + 'static,
    ) -> Routes {
        self.documents.0.push(Arc::new(documents));
        self
    }

    pub fn merge(mut self, other: Routes) -> Routes {
        self.entries.extend(other.entries);
        self.surfaces.extend(other.surfaces);
        self.errors.extend(other.errors);
        self.documents.0.extend(other.documents.0);
        self
    }

    /// Who may call what.
    pub fn rules(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for entry in &self.entries {
            for (path, item) in &entry.paths.paths {
                for (method, _) in operations(&mut item.clone()) {
                    rules.push(Rule {
                        method: method.into(),
                        path: path.clone(),
                        action: entry.action,
                    });
                }
            }
        }
        rules
    }

    /// The OpenAPI document of these routes.
    pub fn document(&self) -> OpenApi {
        let mut components = Components::new();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        components.schemas.insert("Error".into(), super::failure::schema());
        let mut paths = Paths::new();
        for entry in &self.entries {
            components.schemas.extend(entry.schemas.iter().cloned());
            for (path, item) in &entry.paths.paths {
                let mut item = item.clone();
                if !self.errors.iter().any(|(take, _)| take(path)) {
                    operations(&mut item).for_each(|(_, operation)| add_error(operation));
                }
                match paths.paths.get_mut(path) {
                    Some(there) => there.merge_operations(item),
                    None => drop(paths.paths.insert(path.clone(), item)),
                }
            }
        }
        let info = InfoBuilder::new()
            .title("Mainstay")
            .description(Some(
                "One control plane for managed services, environments, streams and right-sizing.\n\n\
                 To try a request here, press Authorize and paste what `mainstay token` prints on \
                 the server's machine; `mainstay token --role admin-full` for the queue and the \
                 audit log.",
            ))
            .version(crate::telemetry::build::VERSION)
            .build();
        let tags = Some(tags(&paths));
        OpenApiBuilder::new()
            .info(info)
            .tags(tags)
            .paths(paths)
            .components(Some(components))
            .build()
    }

    /// Names that stand for two different schemas, which the document could not tell apart.
    pub fn clashes(&self) -> Vec<String> {
        let schemas = || self.entries.iter().flat_map(|entry| &entry.schemas);
        let clashing = |(name, schema): &&(String, RefOr<Schema>)| {
            schemas().any(|(other, another)| other == name && another != schema)
        };
        schemas().filter(clashing).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn mappers(&self) -> Vec<(Take, ErrorMapper)> {
        self.errors.clone()
    }

    pub(super) fn documents(&self) -> Documents {
        self.documents.clone()
    }

    pub(super) fn own_surfaces(&self) -> Vec<OwnSurface> {
        self.surfaces.clone()
    }

    pub(super) fn into_router(self, app: &App) -> Router<App> {
        let mut router = Router::new();
        for Entry { action, paths, router: methods, .. } in self.entries {
            for path in paths.paths.keys() {
                let guard = Guard { app: app.clone(), action, route: path.as_str().into() };
                router = router.route(path, methods.clone().route_layer(guard));
            }
        }
        router
    }
}

/// The kernel's groups of routes, in the order in which a reader wants them.
const TAGS: [(&str, &str); 7] = [
    ("objects", "Every managed thing, whatever its kind"),
    ("events", "What changed, in the order in which it happened"),
    ("work", "The queue: what is due, running, retrying, stopped and why"),
    ("audit", "Who did what, hash-chained"),
    ("self", "How this process is"),
    ("oauth", "The built-in issuer of tokens"),
    ("doc", "This document"),
];

/// The domains' groups come before the kernel's.
fn tags(paths: &Paths) -> Vec<Tag> {
    let mut items: Vec<PathItem> = paths.paths.values().cloned().collect();
    let used = items.iter_mut().flat_map(operations);
    let used: BTreeSet<String> =
        used.flat_map(|(_, op)| op.tags.clone().unwrap_or_default()).collect();
    let ours = |name: &str| TAGS.iter().any(|(tag, _)| *tag == name);
    let theirs = used.iter().filter(|name| !ours(name)).map(Tag::new);
    let ours = TAGS
        .iter()
        .filter(|(name, _)| used.contains(*name))
        .map(|(name, about)| TagBuilder::new().name(*name).description(Some(*about)).build());
    theirs.chain(ours).collect()
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem { get, put, post, delete, options, head, patch, trace, .. } = item;
    [
        ("GET", get),
        ("PUT", put),
        ("POST", post),
        ("DELETE", delete),
        ("OPTIONS", options),
        ("HEAD", head),
        ("PATCH", patch),
        ("TRACE", trace),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// The document says of every operation what it needs, so that its diff shows a permission change.
fn annotate(operation: &mut Operation, action: Action) {
    // A handler's name is unique in its file only; ids are unique in the document.
    if let (Some(id), Some([tag, ..])) = (&operation.operation_id, operation.tags.as_deref()) {
        operation.operation_id = Some(format!("{tag}_{id}"));
    }
    if action != Action::Public {
        let bearer = SecurityRequirement::new("bearer", std::iter::empty::<String>());
        operation.security.get_or_insert_default().push(bearer);
    }
    let action = serde_json::Value::String(format!("{action:?}"));
    operation.extensions.get_or_insert_default().insert("x-action".into(), action);
}

fn add_error(operation: &mut Operation) {
    let shape = ContentBuilder::new().schema(Some(Ref::from_schema_name("Error"))).build();
    let response =
        ResponseBuilder::new().description("An error").content("application/json", shape).build();
    operation.responses.responses.entry("default".into()).or_insert(RefOr::T(response));
}
