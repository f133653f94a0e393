//! APIs with a wire format of their own, mounted at prefixes that come and go while the server runs.
//!
//! A domain implements [`Mount`]: one table of [`Route`]s, and the [`Api`]s that serve it, each
//! under its own prefix. The kernel compiles a [`RouteTable`] for every API, so a request's path is
//! classified once: the prefix picks the table, the table picks the route, and the same table maps
//! the errors, adds the headers and writes the OpenAPI document.

mod call;
mod operation;
mod route;
mod table;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::Response;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use serde_json::{Map, Value};

use super::{RequestContext, Rule};
use crate::identity::{Action, Principal};
use crate::{App, Error, Result};

pub use call::Call;
pub use operation::Operation;
pub use route::Route;
pub use table::RouteTable;

/// One API of a mount: a prefix, and everything in which its wire format differs from the kernel's.
pub trait Api: Send + Sync + 'static {
    /// Returns the path that all routes of the API begin with, such as `/api/kafkas_mgmt`.
    fn prefix(&self) -> &str;

    /// Whether every path below the prefix is this API's, also one that no route matches. An API that
    /// shares its prefix with others serves only the paths of its routes.
    fn owns_prefix(&self) -> bool {
        true
    }

    /// Returns who callers of this path without a token are. Without it they are refused.
    fn anonymous(&self, _path: &str) -> Option<Arc<Principal>> {
        None
    }

    /// Returns the value of a path parameter that is fixed for the whole API, such as `{plural}`.
    fn fixed_param(&self, name: &str) -> Option<&str>;

    /// Checks the domain's own access rules, after the role table has allowed the action.
    fn authorize(call: &Call<Self>, action: Action, who: &Principal) -> Result<()>
    where
        Self: Sized;

    /// Returns the error for a caller whose roles do not allow the action.
    fn deny(&self, action: Action, who: &Principal) -> Error;

    /// Writes an error of any request below the prefix, whether a route matched or not.
    fn error(&self, error: &Error, context: &RequestContext) -> Response;

    /// Adds the headers that every response of a matched route has.
    fn add_headers(&self, context: &RequestContext, headers: &mut HeaderMap);

    /// Called after each request that matched a route, for metrics of the API's own.
    fn observe(&self, method: &'static str, route: &Arc<str>, status: u16, took: Duration);

    /// Returns the OpenAPI description of a path or query parameter.
    fn parameter(&self, name: &str, in_path: bool) -> Value;

    /// Completes the OpenAPI document of which the table has written the paths.
    fn document(&self, paths: Map<String, Value>) -> Value;

    /// Returns the document's title, and the path that serves it.
    fn document_link(&self) -> (String, String);
}

/// A set of APIs that share one route table.
pub trait Mount: Send + Sync + 'static {
    type Api: Api;

    /// Returns the route table. Called once.
    fn routes(&self) -> Vec<Route<Self::Api>>;

    /// Returns the APIs that exist now. Called when `version` changes.
    fn apis(&self) -> Vec<Self::Api>;

    /// Changes when `apis` returns something else. Called for every request.
    fn version(&self) -> u64;
}

/// A mount whose API type is erased.
pub(super) trait AnyMount: Send + Sync {
    /// Returns the API whose prefix the path begins with.
    fn resolve(&self, path: &str) -> Option<Arc<dyn MountedApi>>;
    fn apis(&self) -> Vec<Arc<dyn MountedApi>>;
}

/// A compiled API whose type is erased.
pub(super) trait MountedApi: Send + Sync {
    fn dispatch(
        self: Arc<Self>,
        app: App,
        context: Arc<RequestContext>,
        request: Request,
    ) -> BoxFuture<'static, Response>;
    fn rules(&self) -> Vec<Rule>;
    fn api(&self) -> &dyn Api;
}

/// A mount with the compiled tables of its APIs.
pub(super) struct Mounted<M: Mount> {
    mount: M,
    routes: Arc<[Route<M::Api>]>,
    tables: RwLock<Tables<M::Api>>,
}

struct Tables<A> {
    version: u64,
    all: Vec<Arc<RouteTable<A>>>,
}

impl<M: Mount> Mounted<M> {
    pub(super) fn new(mount: M) -> Mounted<M> {
        let routes: Arc<[_]> = mount.routes().into();
        let tables = RwLock::new(compile(&mount, &routes));
        Mounted { mount, routes, tables }
    }

    /// Calls `read` with the tables of the APIs that exist now.
    fn with_tables<T>(&self, read: impl Fn(&Tables<M::Api>) -> T) -> T {
        let tables = self.tables.read();
        if tables.version == self.mount.version() {
            return read(&tables);
        }
        drop(tables);
        // Compiled before the lock is taken: requests go on with the old tables until then.
        let compiled = compile(&self.mount, &self.routes);
        let mut tables = self.tables.write();
        *tables = compiled;
        read(&tables)
    }
}

/// Reads the version first: APIs that change in between are compiled again by the next request.
fn compile<M: Mount>(mount: &M, routes: &Arc<[Route<M::Api>]>) -> Tables<M::Api> {
    let version = mount.version();
    let apis = mount.apis().into_iter();
    Tables {
        version,
        all: apis.map(|api| Arc::new(RouteTable::new(api, routes.clone()))).collect(),
    }
}

impl<M: Mount> AnyMount for Mounted<M> {
    fn resolve(&self, path: &str) -> Option<Arc<dyn MountedApi>> {
        self.with_tables(|tables| {
            let table = tables.all.iter().find(|table| table.serves(path))?;
            Some(table.clone() as Arc<dyn MountedApi>)
        })
    }

    fn apis(&self) -> Vec<Arc<dyn MountedApi>> {
        self.with_tables(|tables| {
            tables.all.iter().map(|table| table.clone() as Arc<dyn MountedApi>).collect()
        })
    }
}
