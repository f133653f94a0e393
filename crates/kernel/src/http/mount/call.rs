//! A request that a route of a mounted API has matched, as its handler gets it.

use std::ops::Deref;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use parking_lot::Mutex;

use super::RouteTable;
use super::table::PathParams;
use crate::http::extract::read_body;
use crate::http::{CommandSender, RequestContext};
use crate::{App, Result};

/// A matched request. Dereferences to the API that serves it.
pub struct Call<A> {
    pub app: App,
    pub context: Arc<RequestContext>,
    pub parts: Parts,
    /// The lock makes the call `Sync`, so that handlers can hold it across an await.
    pub(super) body: Mutex<Body>,
    pub(super) table: Arc<RouteTable<A>>,
    pub(super) params: PathParams,
}

impl<A> Deref for Call<A> {
    type Target = A;
    fn deref(&self) -> &A {
        &self.table.api
    }
}

impl<A> Call<A> {
    /// Returns a parameter of the path, as it was sent. Empty if the route has no such parameter:
    /// one that it has is never empty.
    pub fn param(&self, name: &str) -> &str {
        let range = self.table.param_names(&self.params).position(|known| known == name);
        range.and_then(|i| self.context.path.get(self.params.range(i))).unwrap_or_default()
    }

    /// Returns a parameter of the query; the first, if it is given more than once.
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

    /// Reads the body.
    pub async fn bytes(&mut self) -> Result<Bytes> {
        let body = std::mem::take(self.body.get_mut());
        read_body(&self.context, body).await
    }

    /// Returns the caller as the sender of commands.
    pub fn sender(&self) -> Result<CommandSender> {
        CommandSender::new(&self.app, &self.context, &self.parts.headers)
    }

    /// Returns the OpenAPI document of the API.
    pub fn openapi(&self) -> Bytes
    where
        A: super::Api,
    {
        self.table.document()
    }
}
