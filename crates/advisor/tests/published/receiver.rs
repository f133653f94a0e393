//! The receiver of a webhook: answers as the test says, and remembers what came.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A call as it came.
#[derive(Debug, Clone)]
pub struct Called {
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Called {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// The status of an answer; none: there is no answer.
type Answer = dyn Fn(usize) -> Option<(u16, Option<String>)> + Send + Sync;

/// Gone when it is dropped.
pub struct Receiver {
    pub url: String,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

struct Shared {
    calls: Mutex<Vec<Called>>,
    answer: Box<Answer>,
}

impl Receiver {
    /// Answers the call of each number, from 0, with a status.
    pub async fn start(answer: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Receiver {
        Receiver::new(move |number| Some((answer(number), None))).await
    }

    pub async fn hanging() -> Receiver {
        Receiver::new(|_| None).await
    }

    /// Does not answer the first call, and takes the others.
    pub async fn hanging_once() -> Receiver {
        Receiver::new(|number| (number > 0).then_some((200, None))).await
    }

    pub async fn redirecting(to: &str) -> Receiver {
        let to = to.to_owned();
        Receiver::new(move |_| Some((307, Some(to.clone())))).await
    }

    async fn new(
        answer: impl Fn(usize) -> Option<(u16, Option<String>)> + Send + Sync + 'static,
    ) -> Receiver {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { calls: Mutex::default(), answer: Box::new(answer) });
        let router = Router::new().fallback(receive).with_state(shared.clone());
        let stop = CancellationToken::new();
        let serving = stop.clone();
        tokio::spawn(async move {
            serving.run_until_cancelled(async { axum::serve(listener, router).await }).await
        });
        Receiver { url, shared, _stop: stop.drop_guard() }
    }

    pub fn calls(&self) -> Vec<Called> {
        self.shared.calls.lock().clone()
    }
}

async fn receive(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let number = {
        let mut calls = shared.calls.lock();
        calls.push(Called { headers, body });
        calls.len() - 1
    };
    let Some((status, location)) = (shared.answer)(number) else {
        return std::future::pending().await;
    };
    let mut response = Response::builder().status(status);
    if let Some(location) = location {
        response = response.header("location", location);
    }
    response.body(Body::empty()).unwrap()
}
