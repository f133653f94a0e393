//! The API of one kind, in the wire format of the existing service.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::VARY;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use kernel::http::{Api, Mount, RequestContext, Route};
use kernel::identity::{Action, Principal};
use kernel::{Error, Result};
use serde_json::{Map, Value};

use super::wire::reply;
use super::{access as denied, openapi, routes};
use crate::Fleet;
use crate::model::catalogue::Catalogue;
use crate::model::error_code::ErrorCode;
use crate::model::kind::Kind;
use crate::store::access;

/// A request to the API of a kind.
pub type Call = kernel::http::Call<KindApi>;

/// The API of one kind of one catalogue.
pub struct KindApi {
    pub fleet: Arc<Fleet>,
    pub catalogue: Arc<Catalogue>,
    pub kind: Arc<Kind>,
}

/// The APIs of all kinds. They are replaced with the catalogue.
pub struct KindApis(pub Arc<Fleet>);

impl Mount for KindApis {
    type Api = KindApi;

    fn routes(&self) -> Vec<Route<KindApi>> {
        routes::routes()
    }

    fn apis(&self) -> Vec<KindApi> {
        let catalogue = self.0.catalogue();
        let api = |kind: &Arc<Kind>| KindApi {
            fleet: self.0.clone(),
            catalogue: catalogue.clone(),
            kind: kind.clone(),
        };
        catalogue.kinds.values().map(api).collect()
    }

    fn version(&self) -> u64 {
        self.0.catalogue_version()
    }
}

impl Api for KindApi {
    fn prefix(&self) -> &str {
        &self.kind.prefix
    }

    fn fixed_param(&self, name: &str) -> Option<&str> {
        (name == "plural").then_some(&self.kind.file.plural)
    }

    fn authorize(call: &Call, action: Action, who: &Principal) -> Result<()> {
        match action {
            Action::OrgUser | Action::OrgMember => access::check(&call.catalogue, who),
            Action::Agent => check_own_cluster(call, who),
            _ => Ok(()),
        }
    }

    fn deny(&self, action: Action, who: &Principal) -> Error {
        denied::deny(action, who)
    }

    fn error(&self, error: &Error, context: &RequestContext) -> Response {
        let (code, response) = reply::error(&self.kind, error, context);
        self.fleet.counts.error(format!("{}-{}", self.kind.file.codes, code.number()));
        response
    }

    fn add_headers(&self, context: &RequestContext, headers: &mut HeaderMap) {
        headers.append(VARY, HeaderValue::from_static("Authorization"));
        if let Ok(id) = HeaderValue::from_str(&context.request_id) {
            headers.insert(reply::OPERATION_ID, id);
        }
    }

    fn observe(&self, method: &'static str, route: &Arc<str>, status: u16, took: Duration) {
        self.fleet.counts.request(method, route.clone(), status, took);
    }

    fn parameter(&self, name: &str, in_path: bool) -> Value {
        openapi::parameter(name, in_path)
    }

    fn document(&self, paths: Map<String, Value>) -> Value {
        openapi::document(&self.kind, paths)
    }

    fn document_link(&self) -> (String, String) {
        (self.kind.file.title.clone(), format!("{}/v1/openapi", self.kind.prefix))
    }
}

/// An agent may act only for its own cluster. The existence of others is hidden.
fn check_own_cluster(call: &Call, who: &Principal) -> Result<()> {
    let cluster = call.param("cluster");
    let own = who.agent_of.as_deref() == Some(cluster);
    if cluster.is_empty() || (own && call.fleet.index.cluster(cluster).is_some()) {
        return Ok(());
    }
    Err(ErrorCode::NotFound.default_error())
}
