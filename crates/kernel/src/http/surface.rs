//! The whole REST surface as one service, behind a listener or called in process.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures::future::BoxFuture;
use tower::{Service, ServiceExt as _, service_fn};
use tower_http::compression::Compression;

use super::envelope::Envelope;

type Answer = Result<Response, Infallible>;

#[derive(Clone)]
pub struct Surface(Arc<Envelope>);

impl Surface {
    pub(super) fn new(envelope: Envelope) -> Surface {
        Surface(Arc::new(envelope))
    }

    /// Answers a request that came from this address; compressed, if the client can read that.
    pub(super) async fn answer(&self, request: Request, origin: Option<IpAddr>) -> Response {
        if request.headers().contains_key(header::ACCEPT_ENCODING) {
            return Box::pin(self.clone().compressed(request, origin)).await;
        }
        let mut response = self.0.answer(request, origin).await;
        let vary = HeaderValue::from_static("accept-encoding");
        response.headers_mut().append(header::VARY, vary);
        response
    }

    async fn compressed(self, request: Request, origin: Option<IpAddr>) -> Response {
        let plain = service_fn(async |request| Answer::Ok(self.0.answer(request, origin).await));
        let Ok(response) = Compression::new(plain).gzip(true).oneshot(request).await;
        response.map(Body::new)
    }
}

impl Service<Request> for Surface {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Answer>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let surface = self.clone();
        Box::pin(async move { Ok(surface.answer(request, None).await) })
    }
}
