//! The only way to add a route: it names the action that the caller must be allowed.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::routing::MethodRouter;
use axum::{Extension, Router};
use utoipa::openapi::path::{Operation, PathItem, Paths};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::{Tag, TagBuilder};
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, ResponseBuilder,
};
use utoipa_axum::router::UtoipaMethodRouter;

use super::ErrorMapper;
use super::auth::{AuthLayer, DenyWith, forbidden};
use super::mount::{AnyMount, Mount, Mounted};
use crate::command::AnyCommand;
use crate::identity::Action;
use crate::{App, Result};

/// Routes with the permission of each. There is no way to add one without.
#[derive(Default)]
pub struct Routes {
    entries: Vec<Entry>,
    pub(super) mounts: Vec<Arc<dyn AnyMount>>,
    pub(super) errors: Vec<(String, ErrorMapper)>,
    commands: Vec<Arc<dyn AnyCommand>>,
}

struct Entry {
    action: Action,
    schemas: Vec<(String, RefOr<Schema>)>,
    paths: Paths,
    router: MethodRouter<App>,
    body_bytes_max: Option<usize>,
    deny_with: DenyWith,
}

/// One row of the permission table.
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

    /// Adds `routes!(handler)` for callers who may do `action`.
    pub fn route(mut self, action: Action, routes: UtoipaMethodRouter<App>) -> Routes {
        let (schemas, mut paths, router) = routes;
        for item in paths.paths.values_mut() {
            operations(item).for_each(|(_, operation)| annotate(operation, action));
        }
        self.entries.push(Entry {
            action,
            schemas,
            paths,
            router,
            body_bytes_max: None,
            deny_with: forbidden,
        });
        self
    }

    /// Adds a command, and `routes!(handler)` whose handler executes it, for senders who may do the
    /// command's action.
    pub fn command(
        mut self,
        command: impl AnyCommand + 'static,
        routes: UtoipaMethodRouter<App>,
    ) -> Routes {
        let action = command.action();
        self.commands.push(Arc::new(command));
        self.route(action, routes)
    }

    /// Registers the commands of these routes. A name that is taken twice is an error. Called again,
    /// it has nothing left to do.
    pub fn register_commands(&mut self, app: &App) -> Result<()> {
        self.commands.drain(..).try_for_each(|command| app.commands().add(command))
    }

    /// Registers those that are not yet: an app may have several routers.
    pub(super) fn register_missing_commands(&mut self, app: &App) -> Result<()> {
        self.commands.retain(|command| app.commands().find(command.name()).is_none());
        self.register_commands(app)
    }

    /// Lets `mapper` write the errors of all requests whose path begins with `prefix`, whether a
    /// route matches or not.
    pub fn errors(mut self, prefix: impl Into<String>, mapper: ErrorMapper) -> Routes {
        self.errors.push((prefix.into(), mapper));
        self
    }

    /// Makes `deny_with` the error for callers whose roles do not allow an action of these routes.
    pub fn deny_with(mut self, deny_with: DenyWith) -> Routes {
        self.entries.iter_mut().for_each(|entry| entry.deny_with = deny_with);
        self
    }

    /// Gives the handlers of these routes a domain's state, as an `Extension`.
    pub fn with_state<T: Clone + Send + Sync + 'static>(mut self, state: &T) -> Routes {
        for entry in &mut self.entries {
            let router = std::mem::take(&mut entry.router);
            entry.router = router.layer(Extension(state.clone()));
        }
        self
    }

    /// Lets these routes take longer bodies than `http.body_bytes_max`.
    pub fn body_bytes_max(mut self, bytes: usize) -> Routes {
        self.entries.iter_mut().for_each(|entry| entry.body_bytes_max = Some(bytes));
        self
    }

    /// Serves APIs with a wire format of their own, which come and go while the server runs. Their
    /// prefixes take precedence over all other routes.
    pub fn mount(mut self, mount: impl Mount) -> Routes {
        self.mounts.push(Arc::new(Mounted::new(mount)));
        self
    }

    pub fn merge(mut self, other: Routes) -> Routes {
        self.entries.extend(other.entries);
        self.mounts.extend(other.mounts);
        self.errors.extend(other.errors);
        self.commands.extend(other.commands);
        self
    }

    /// Returns the permission table, with the APIs that are mounted now.
    pub fn rules(&self) -> Vec<Rule> {
        let apis = self.mounts.iter().flat_map(|mount| mount.apis());
        let mut rules: Vec<Rule> = apis.flat_map(|api| api.rules()).collect();
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

    /// Returns the OpenAPI document of these routes. Mounted APIs have documents of their own.
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
                if !self.errors.iter().any(|(prefix, _)| path.starts_with(prefix)) {
                    operations(&mut item).for_each(|(_, operation)| add_error(operation));
                }
                match paths.paths.get_mut(path) {
                    Some(existing) => existing.merge_operations(item),
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

    /// Returns the names that two different schemas share.
    pub fn clashes(&self) -> Vec<String> {
        let schemas = || self.entries.iter().flat_map(|entry| &entry.schemas);
        let clashing = |(name, schema): &&(String, RefOr<Schema>)| {
            schemas().any(|(other, another)| other == name && another != schema)
        };
        schemas().filter(clashing).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn into_router(self, app: &App) -> Router<App> {
        let mut router = Router::new();
        for Entry { action, paths, router: methods, body_bytes_max, deny_with, .. } in self.entries
        {
            for path in paths.paths.keys() {
                let (app, route) = (app.clone(), path.as_str().into());
                let auth = AuthLayer { app, action, route, body_bytes_max, deny_with };
                router = router.route(path, methods.clone().route_layer(auth));
            }
        }
        router
    }
}

/// The kernel's groups of routes, in the order in which a reader needs them.
const TAGS: [(&str, &str); 8] = [
    ("objects", "Managed objects of every kind"),
    ("events", "What changed, in order"),
    ("work", "The queue: what is due, running, retrying, stopped and why"),
    ("commands", "Requests to change something, by name"),
    ("audit", "Who did what, hash-chained"),
    ("self", "Health of this process"),
    ("oauth", "The built-in issuer of tokens"),
    ("doc", "This document"),
];

/// Returns the groups of routes: the domains', then the kernel's.
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

/// Writes the action of an operation into the document, so that its diff shows a permission change.
fn annotate(operation: &mut Operation, action: Action) {
    // A handler's name is unique only in its file; ids are unique in the document.
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
