//! The state backend of one run: Terraform's `http` backend, on the loopback interface. Each state
//! that the run writes is stored at once, under the fence of the work that it runs for.

use std::net::Ipv4Addr;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Router, routing::any};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kernel::{Ambient, Error, Result};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::{RunStore, STATE};

/// Larger states are refused.
const STATE_BYTES_MAX: usize = 64 << 20;
/// Terraform sends one request at a time.
const REQUESTS_MAX: usize = 4;
const USER: &str = "mainstay";

/// What a run asks of its backend.
enum StateRequest {
    Read,
    Write(Bytes),
    Remove,
}

type Asked = (StateRequest, oneshot::Sender<Result<Option<Vec<u8>>>>);

/// A listener for one run, and what comes in.
pub struct StateBackend {
    listener: TcpListener,
    router: Router,
    requests: mpsc::Receiver<Asked>,
    address: String,
    password: String,
}

impl StateBackend {
    pub async fn open(ambient: &Ambient) -> Result<StateBackend> {
        let failed = |error| Error::unavailable("the state backend on 127.0.0.1", error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = format!("http://{}/state", listener.local_addr().map_err(failed)?);
        let secret = ambient.random_bytes::<24>();
        let password: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        let expected = format!("Basic {}", STANDARD.encode(format!("{USER}:{password}")));
        let router = Router::new()
            .route("/state", any(handle))
            .layer(DefaultBodyLimit::max(STATE_BYTES_MAX))
            .with_state((sender, expected));
        Ok(StateBackend { listener, router, requests, address, password })
    }

    /// The environment that leads a run to this backend. The password is never in a file.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("TF_HTTP_ADDRESS", self.address.clone()),
            ("TF_HTTP_USERNAME", USER.into()),
            ("TF_HTTP_PASSWORD", self.password.clone()),
            // A state that cannot be stored is written to a file, which is stored later.
            ("TF_HTTP_RETRY_MAX", "3".into()),
        ]
    }

    /// Serves a run to its end.
    pub async fn serve<T>(self, run: impl Future<Output = T>, store: &dyn RunStore) -> T {
        let StateBackend { listener, router, mut requests, .. } = self;
        let answering = async {
            while let Some((request, reply)) = requests.recv().await {
                let _ = reply.send(carry_out(request, store).await);
            }
        };
        tokio::select! {
            ended = run => ended,
            never = async {
                let served = axum::serve(listener, router).into_future();
                let _ = tokio::join!(served, answering);
                std::future::pending().await
            } => never,
        }
    }
}

async fn carry_out(request: StateRequest, store: &dyn RunStore) -> Result<Option<Vec<u8>>> {
    match request {
        StateRequest::Read => store.read(STATE).await,
        StateRequest::Write(state) => store.write(&[(STATE, Some(&state))]).await.map(|()| None),
        StateRequest::Remove => store.write(&[(STATE, None)]).await.map(|()| None),
    }
}

async fn handle(
    State((sender, expected)): State<(mpsc::Sender<Asked>, String)>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let sent = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    if sent != Some(expected.as_bytes()) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let request = match method {
        Method::GET => StateRequest::Read,
        Method::POST => StateRequest::Write(body),
        Method::DELETE => StateRequest::Remove,
        _ => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
    };
    let (reply, answer) = oneshot::channel();
    if sender.send((request, reply)).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    match answer.await {
        Ok(Ok(Some(state))) => state.into_response(),
        Ok(Ok(None)) if method == Method::GET => StatusCode::NOT_FOUND.into_response(),
        Ok(Ok(None)) => StatusCode::OK.into_response(),
        Ok(Err(error)) => {
            tracing::warn!(error = error.with_causes(), "storing a Terraform state failed");
            (StatusCode::SERVICE_UNAVAILABLE, error.with_causes()).into_response()
        }
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
