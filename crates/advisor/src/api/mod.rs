//! The REST API of the existing service, at its own paths and in its own shapes, and what Mainstay
//! adds to it.

mod bulk;
mod datasources;
mod declared;
mod document;
mod experiments;
mod listing;
mod metadata;
mod pages;
mod recommendations;
mod reply;
mod results;
mod stream;
pub mod topics;
mod webhook;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::Response;
use kernel::http::{Api, Mount, RequestContext, Route};
use kernel::identity::{Action, Principal};
use kernel::{Error, Json, Key, Result};
use serde_json::{Map, Value};

use crate::config::Config;
use crate::metrics::Calls;
use crate::model::experiment_name::NameTemplate;
use crate::ports::kubernetes::Cluster;
use crate::ports::prometheus::sources::Sources;

/// What the paths begin with that the existing service does not have.
const OWN_PATHS: &str = "/api/";

/// A request to one of the routes.
pub type Call = kernel::http::Call<AdvisorApi>;

/// What the routes share.
pub struct ApiState {
    pub config: Config,
    pub sources: Arc<Sources>,
    pub names: NameTemplate,
    pub cluster: Cluster,
    /// Who callers without a token are.
    pub anonymous: Option<Arc<Principal>>,
    pub calls: Arc<Calls>,
}

/// The API. Its paths begin with nothing that other routes do not begin with.
#[derive(Clone)]
pub struct AdvisorApi(pub Arc<ApiState>);

impl Deref for AdvisorApi {
    type Target = ApiState;
    fn deref(&self) -> &ApiState {
        &self.0
    }
}

impl Mount for AdvisorApi {
    type Api = AdvisorApi;

    fn routes(&self) -> Vec<Route<AdvisorApi>> {
        let groups = [
            bulk::routes(),
            datasources::routes(),
            metadata::routes(),
            declared::routes(),
            pages::routes(),
            experiments::routes(),
            recommendations::routes(),
            results::routes(),
            webhook::routes(),
            document::routes(),
        ];
        groups.into_iter().flatten().collect()
    }

    fn apis(&self) -> Vec<AdvisorApi> {
        vec![self.clone()]
    }

    fn version(&self) -> u64 {
        0
    }
}

impl Api for AdvisorApi {
    fn prefix(&self) -> &str {
        ""
    }

    fn owns_prefix(&self) -> bool {
        false
    }

    /// On the paths of the existing service only: what Mainstay adds needs a token.
    fn anonymous(&self, path: &str) -> Option<Arc<Principal>> {
        self.anonymous.clone().filter(|_| !path.starts_with(OWN_PATHS))
    }

    fn fixed_param(&self, _: &str) -> Option<&str> {
        None
    }

    fn authorize(_: &Call, _: Action, _: &Principal) -> Result<()> {
        Ok(())
    }

    fn deny(&self, _: Action, who: &Principal) -> Error {
        Error::Forbidden(format!("{} has no role that allows this", who.subject))
    }

    fn error(&self, error: &Error, _: &RequestContext) -> Response {
        reply::error(error)
    }

    fn add_headers(&self, _: &RequestContext, _: &mut HeaderMap) {}

    fn observe(&self, method: &'static str, route: &Arc<str>, status: u16, took: Duration) {
        self.calls.request(method, route, status, took);
    }

    fn parameter(&self, name: &str, in_path: bool) -> Value {
        document::parameter(name, in_path)
    }

    fn document(&self, paths: Map<String, Value>) -> Value {
        document::document(paths)
    }

    fn document_link(&self) -> (String, String) {
        ("Right-sizing".into(), document::PATH.into())
    }
}

/// Carries out a command for the caller; returns the status and the body of its reply.
async fn execute(
    call: &Call,
    name: &str,
    subject: Option<Key>,
    body: &Value,
) -> Result<(u16, Value)> {
    let missing = || Error::internal(format!("command {name}"), "it is not registered");
    let command = call.app.commands().find(name).ok_or_else(missing)?;
    let answer = call.sender()?.execute(&*command, subject, Json::encode(body)).await?;
    Ok((answer.reply.status, answer.reply.body.parse()?))
}
