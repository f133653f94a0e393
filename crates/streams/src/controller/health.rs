//! Serves health probes and metrics over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use kernel::{Error, Result};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::controller::Operator;

pub struct Servers {
    tasks: TaskTracker,
    stop: CancellationToken,
    /// The bound addresses; none if not configured.
    pub probes: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
}

impl Servers {
    /// Stops the servers, waiting at most this long.
    pub async fn stop(self, within: Duration) {
        self.stop.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(within, self.tasks.wait()).await;
    }

    async fn listen(&self, key: &str, address: &str, router: Router) -> Result<Option<SocketAddr>> {
        let address = match address.strip_prefix(':') {
            _ if address.is_empty() => return Ok(None),
            Some(port) => format!("[::]:{port}"),
            None => address.into(),
        };
        let mut listener = TcpListener::bind(&address).await;
        // Falls back to IPv4.
        if listener.is_err()
            && let Some(port) = address.strip_prefix("[::]:")
        {
            listener = TcpListener::bind(format!("0.0.0.0:{port}")).await;
        }
        let listener = listener
            .map_err(|error| Error::invalid(key, format!("cannot listen on {address}: {error}")))?;
        let local = listener.local_addr().ok();
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let served =
                axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
            if let Err(error) = served {
                tracing::error!(%error, "HTTP server ended");
            }
        });
        Ok(local)
    }
}

/// Binds the configured addresses.
pub async fn serve(operator: &Arc<Operator>, config: &Config) -> Result<Servers> {
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let mut servers = Servers { tasks, stop, probes: None, metrics: None };
    servers.probes =
        servers.listen("probes.addr", &config.probes_addr, probes(operator.clone())).await?;
    let metrics = Router::new().route("/metrics", get(text)).with_state(operator.clone());
    let address = &config.metrics_addr;
    servers.metrics = servers.listen("telemetry.metrics-bind-address", address, metrics).await?;
    Ok(servers)
}

fn probes(operator: Arc<Operator>) -> Router {
    let mut router = Router::new();
    for path in ["/startup", "/health", "/healthz"] {
        router = router.route(path, get(health));
    }
    for path in ["/health/ready", "/readyz"] {
        router = router.route(path, get(ready));
    }
    router.with_state(operator)
}

/// Whether the workers and watches are alive.
async fn health(State(operator): State<Arc<Operator>>) -> impl IntoResponse {
    match operator.unhealthy_reason() {
        None => (StatusCode::OK, "ok".to_owned()),
        Some(unhealthy_reason) => (StatusCode::INTERNAL_SERVER_ERROR, unhealthy_reason),
    }
}

/// Whether everything has been listed once.
async fn ready(State(operator): State<Arc<Operator>>) -> impl IntoResponse {
    match (operator.unhealthy_reason(), operator.is_ready()) {
        (Some(unhealthy_reason), _) => (StatusCode::SERVICE_UNAVAILABLE, unhealthy_reason),
        (None, false) => (StatusCode::SERVICE_UNAVAILABLE, "not all objects are listed yet".into()),
        (None, true) if operator.is_leading() => (StatusCode::OK, "ok: acting".into()),
        (None, true) => (StatusCode::OK, "ok: another replica acts".into()),
    }
}

async fn text(State(operator): State<Arc<Operator>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], operator.metrics())
}
