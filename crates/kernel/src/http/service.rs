//! The REST API as one service, behind a listener or called in process.

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

use super::pipeline::RequestPipeline;

#[derive(Clone)]
pub struct HttpService(Arc<RequestPipeline>);

impl HttpService {
    pub(super) fn new(pipeline: RequestPipeline) -> HttpService {
        HttpService(Arc::new(pipeline))
    }

    /// Handles a request from this address, and compresses the response if the client accepts that.
    pub(super) async fn handle(&self, request: Request, origin: Option<IpAddr>) -> Response {
        if request.headers().contains_key(header::ACCEPT_ENCODING) {
            return Box::pin(self.clone().handle_compressed(request, origin)).await;
        }
        let mut response = self.0.handle(request, origin).await;
        let vary = HeaderValue::from_static("accept-encoding");
        response.headers_mut().append(header::VARY, vary);
        response
    }

    async fn handle_compressed(self, request: Request, origin: Option<IpAddr>) -> Response {
        let plain =
            service_fn(async |request| Ok::<_, Infallible>(self.0.handle(request, origin).await));
        let Ok(response) = Compression::new(plain).gzip(true).oneshot(request).await;
        response.map(Body::new)
    }
}

impl Service<Request> for HttpService {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.handle(request, None).await) })
    }
}
