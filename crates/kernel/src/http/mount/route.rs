//! One row of a route table: method, path, action, handler, and what documents it.

use std::sync::Arc;

use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{Call, Operation};
use crate::Result;
use crate::identity::{Action, Principal};

/// A route of every API of a mount. There is no way to add one without its action.
pub struct Route<A> {
    pub(super) method: Method,
    /// The path below the prefix, with parameters in braces: `/v1/{plural}/{id}`.
    pub(super) path: &'static str,
    pub(super) action: Action,
    pub(super) handler: Handler<A>,
    pub(super) body_bytes_max: Option<usize>,
    pub(super) exists: fn(&A) -> bool,
    pub(super) document: Option<fn(&A) -> Operation>,
}

type Responding = BoxFuture<'static, Response>;
type PublicHandler<A> = dyn Fn(Call<A>) -> Responding + Send + Sync;
type AuthorizedHandler<A> = dyn Fn(Call<A>, Arc<Principal>) -> Responding + Send + Sync;

/// Only the handler of a route that needs a token gets a caller.
pub(super) enum Handler<A> {
    Public(Box<PublicHandler<A>>),
    Authorized(Box<AuthorizedHandler<A>>),
}

impl<A: 'static> Route<A> {
    /// A route for callers who may do `action`.
    pub fn new<F, Fut>(method: Method, path: &'static str, action: Action, handler: F) -> Route<A>
    where
        F: Fn(Call<A>, Arc<Principal>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response>> + Send + 'static,
    {
        debug_assert_ne!(action, Action::Public, "{path} needs no caller: use Route::public");
        let handler = move |call, who| respond(handler(call, who)).boxed();
        Route::with(method, path, action, Handler::Authorized(Box::new(handler)))
    }

    /// A route that needs no token.
    pub fn public<F, Fut>(method: Method, path: &'static str, handler: F) -> Route<A>
    where
        F: Fn(Call<A>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response>> + Send + 'static,
    {
        let handler = move |call| respond(handler(call)).boxed();
        Route::with(method, path, Action::Public, Handler::Public(Box::new(handler)))
    }

    fn with(method: Method, path: &'static str, action: Action, handler: Handler<A>) -> Route<A> {
        let (exists, document): (fn(&A) -> bool, _) = (|_| true, None);
        Route { method, path, action, handler, body_bytes_max: None, exists, document }
    }

    /// Limits the route to APIs for which `exists` returns true.
    pub fn only_if(mut self, exists: fn(&A) -> bool) -> Route<A> {
        self.exists = exists;
        self
    }

    /// Lets the route take longer bodies than `http.body_bytes_max`.
    pub fn body_bytes_max(mut self, bytes: usize) -> Route<A> {
        self.body_bytes_max = Some(bytes);
        self
    }

    /// Documents the route. A route without a document is not public knowledge.
    pub fn document(mut self, document: fn(&A) -> Operation) -> Route<A> {
        self.document = Some(document);
        self
    }
}

async fn respond(response: impl Future<Output = Result<Response>>) -> Response {
    response.await.unwrap_or_else(|error| error.into_response())
}
