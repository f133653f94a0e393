//! A response that waits for something to happen. It returns its permit for a concurrent request
//! while it waits, so that waiting requests do not keep others out.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::Result;

/// Returned by a handler whose response has to wait.
#[derive(Clone)]
pub struct Deferred {
    wait: Duration,
    response: Arc<Mutex<Option<BoxFuture<'static, Response>>>>,
}

impl Deferred {
    /// `response` waits for at most `wait`; after that it has the time that any request has.
    pub fn new(
        wait: Duration,
        response: impl Future<Output = Result<Response>> + Send + 'static,
    ) -> Deferred {
        let response = response.map(|done| done.unwrap_or_else(IntoResponse::into_response));
        Deferred { wait, response: Arc::new(Mutex::new(Some(response.boxed()))) }
    }

    /// Returns what to wait for and how long, if `response` is a placeholder.
    pub(super) fn take(
        response: &mut Response,
    ) -> Option<(Duration, BoxFuture<'static, Response>)> {
        let Deferred { wait, response } = response.extensions_mut().remove()?;
        Some((wait, Arc::into_inner(response)?.into_inner()?))
    }
}

impl IntoResponse for Deferred {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(self);
        response
    }
}
