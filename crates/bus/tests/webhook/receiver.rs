//! A receiver of webhooks: it answers as a test says, and keeps what it got.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use ring::hmac;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::server::until;

/// How a delivery is answered.
#[derive(Debug, Clone)]
pub enum Reply {
    Status(u16),
    With(u16, &'static str, String),
    /// Never.
    Silence,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether it was answered 2xx.
    pub accepted: bool,
}

impl Delivery {
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}"));
        value.to_str().unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The number of the event: the last part of the id.
    pub fn seq(&self) -> i64 {
        self.header("webhook-id").rsplit('_').next().unwrap().parse().unwrap()
    }

    /// When it was sent, in seconds.
    pub fn sent_at(&self) -> i64 {
        self.header("webhook-timestamp").parse().unwrap()
    }

    /// Whether the signature is right, as a receiver finds out that knows only Standard Webhooks.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let (id, at) = (self.header("webhook-id"), self.header("webhook-timestamp"));
        assert!(!id.contains('.'), "it would be ambiguous what is signed: {id}");
        let signed = [id.as_bytes(), b".", at.as_bytes(), b".", &self.body].concat();
        let signatures = self.header("webhook-signature").split(' ');
        let mut v1 = signatures.filter_map(|one| one.strip_prefix("v1,"));
        v1.any(|one| hmac::verify(&key, &signed, &STANDARD.decode(one).unwrap()).is_ok())
    }
}

#[derive(Default)]
struct Shared {
    received: Mutex<Vec<Delivery>>,
    /// For the next deliveries; then `reply`.
    script: Mutex<VecDeque<Reply>>,
    reply: Mutex<Option<Reply>>,
}

pub struct Receiver {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl Receiver {
    pub async fn start() -> Receiver {
        Receiver::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub async fn start_at(address: SocketAddr) -> Receiver {
        let listener = kernel::http::listen(address).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let router = Router::new().fallback(receive).with_state(shared.clone());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            stopped.run_until_cancelled(async { axum::serve(listener, router).await }).await;
        });
        Receiver { address, shared, _stop: stop.drop_guard() }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook?of=orders", self.address)
    }

    /// Answers the next deliveries with these.
    pub fn then(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.script.lock().extend(replies);
    }

    /// Answers all others with this.
    pub fn always(&self, reply: Reply) {
        *self.shared.reply.lock() = Some(reply);
    }

    pub fn all(&self) -> Vec<Delivery> {
        self.shared.received.lock().clone()
    }

    pub fn count(&self) -> usize {
        self.shared.received.lock().len()
    }

    /// The numbers of the events that were accepted, in order.
    pub fn accepted(&self) -> Vec<i64> {
        let received = self.shared.received.lock();
        received.iter().filter(|delivery| delivery.accepted).map(Delivery::seq).collect()
    }

    /// Waits for so many requests.
    pub async fn wait(&self, count: usize) -> Vec<Delivery> {
        until("deliveries", async || self.count() >= count).await;
        self.all()
    }

    /// Waits until these were accepted, and nothing else was.
    pub async fn wait_for(&self, seqs: &[i64]) {
        until("accepted events", async || self.accepted().len() >= seqs.len()).await;
        assert_eq!(self.accepted(), seqs);
    }
}

async fn receive(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let next = shared.script.lock().pop_front();
    let reply = next.or_else(|| shared.reply.lock().clone()).unwrap_or(Reply::Status(204));
    let accepted = matches!(reply, Reply::Status(200..=299));
    shared.received.lock().push(Delivery { method, uri, headers, body, accepted });
    let status = |code: u16| axum::http::StatusCode::from_u16(code).unwrap();
    match reply {
        Reply::Status(code) => status(code).into_response(),
        Reply::With(code, header, value) => (status(code), [(header, value)]).into_response(),
        Reply::Silence => std::future::pending().await,
    }
}
