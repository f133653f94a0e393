//! An answer that waits for something to happen. It gives its place among the concurrent requests
//! back while it waits, so that any number of waiters leaves room for work.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::Result;

/// Return it from a handler that wants to wait, and bound the wait yourself.
#[derive(Clone)]
pub struct Later(Arc<Mutex<Option<BoxFuture<'static, Response>>>>);

impl Later {
    pub fn new(answer: impl Future<Output = Result<Response>> + Send + 'static) -> Later {
        let response = answer.map(|answer| answer.unwrap_or_else(IntoResponse::into_response));
        Later(Arc::new(Mutex::new(Some(response.boxed()))))
    }

    /// What to wait for, if `response` stands for something to come.
    pub(super) fn take(response: &mut Response) -> Option<BoxFuture<'static, Response>> {
        let Later(answer) = response.extensions_mut().remove()?;
        Arc::into_inner(answer)?.into_inner()
    }
}

impl IntoResponse for Later {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(self);
        response
    }
}
