//! A small HTTP server in the place of a Prometheus, or in front of one.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    pub form: BTreeMap<String, String>,
}

impl Seen {
    pub fn query(&self) -> &str {
        self.form.get("query").map_or("", String::as_str)
    }

    pub fn is_range(&self) -> bool {
        self.path.ends_with("/query_range")
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub enum Reply {
    Json(Value),
    Text(u16, Vec<(&'static str, String)>, String),
    /// However long it is.
    Body(Body),
    /// Never.
    Hang,
    /// What the server behind says to this query.
    Ask(String),
}

impl Reply {
    pub fn status(status: u16) -> Reply {
        Reply::Text(status, Vec::new(), String::new())
    }

    /// An error as Prometheus words it.
    pub fn error(status: u16, kind: &str, why: &str) -> Reply {
        let body = serde_json::json!({ "status": "error", "errorType": kind, "error": why });
        Reply::Text(status, Vec::new(), body.to_string())
    }
}

type Answer = dyn Fn(&Seen) -> Reply + Send + Sync;

/// Gone when it is dropped.
pub struct StandIn {
    pub url: String,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

struct Shared {
    behind: String,
    seen: Mutex<Vec<Seen>>,
    answer: Box<Answer>,
}

impl StandIn {
    pub async fn new(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> StandIn {
        StandIn::before("", answer).await
    }

    /// In front of a server.
    pub async fn before(
        behind: &str,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> StandIn {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            behind: behind.to_owned(),
            seen: Mutex::default(),
            answer: Box::new(answer),
        });
        let router = Router::new().fallback(handle).with_state(shared.clone());
        let stop = CancellationToken::new();
        let serving = stop.clone();
        tokio::spawn(async move {
            serving.run_until_cancelled(async { axum::serve(listener, router).await }).await
        });
        StandIn { url, shared, _stop: stop.drop_guard() }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }
}

async fn handle(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let form = url::form_urlencoded::parse(&body).into_owned().collect();
    let seen = Seen { path: uri.path().to_owned(), headers, form };
    shared.seen.lock().push(seen.clone());
    match (shared.answer)(&seen) {
        Reply::Json(value) => Response::new(Body::from(value.to_string())),
        Reply::Text(status, headers, text) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(Body::from(text)).unwrap()
        }
        Reply::Body(body) => Response::new(body),
        Reply::Hang => std::future::pending().await,
        Reply::Ask(query) => {
            let mut form = seen.form.clone();
            form.insert("query".into(), query);
            let request =
                testkit::servers::http::client().post(format!("{}{}", shared.behind, seen.path));
            let response = request.form(&form).send().await.unwrap();
            let status = response.status().as_u16();
            let body = response.bytes().await.unwrap();
            Response::builder().status(status).body(Body::from(body)).unwrap()
        }
    }
}
