//! An answer that waits for something to happen. It gives its place among the concurrent requests
//! back while it waits, so that any number of waiters leaves room for work.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::Result;

/// Return it from a handler that wants to wait.
#[derive(Clone)]
pub struct Later {
    wait: Duration,
    answer: Arc<Mutex<Option<BoxFuture<'static, Response>>>>,
}

impl Later {
    /// `answer` waits for `wait` at the most; then it has the time that any request has.
    pub fn new(
        wait: Duration,
        answer: impl Future<Output = Result<Response>> + Send + 'static,
    ) -> Later {
        let answer = answer.map(|answer| answer.unwrap_or_else(IntoResponse::into_response));
        Later { wait, answer: Arc::new(Mutex::new(Some(answer.boxed()))) }
    }

    /// What to wait for and how long, if `response` stands for something to come.
    pub(super) fn take(
        response: &mut Response,
    ) -> Option<(Duration, BoxFuture<'static, Response>)> {
        let Later { wait, answer } = response.extensions_mut().remove()?;
        Some((wait, Arc::into_inner(answer)?.into_inner()?))
    }
}

impl IntoResponse for Later {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(self);
        response
    }
}
