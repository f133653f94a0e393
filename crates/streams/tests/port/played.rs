//! A scripted API server.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use streams::ports::kubernetes::Kubernetes;
use tokio::net::TcpListener;

pub enum Reply {
    Whole {
        status: u16,
        headers: Vec<(&'static str, &'static str)>,
        body: String,
    },
    /// Chunks that are sent one by one; then the connection is closed.
    Lines(Vec<String>),
    /// Nothing more is sent.
    Hang,
    /// The connection is closed without a response.
    Cut,
}

impl Reply {
    pub fn json(status: u16, body: &Value) -> Reply {
        Reply::Whole { status, headers: Vec::new(), body: body.to_string() }
    }

    pub fn with(mut self, name: &'static str, value: &'static str) -> Reply {
        if let Reply::Whole { headers, .. } = &mut self {
            headers.push((name, value));
        }
        self
    }
}

type Script = Arc<Mutex<VecDeque<(&'static str, Reply)>>>;

pub struct Played {
    address: String,
    script: Script,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Played {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Played {
    /// Each reply is used once, for the first request that contains its text; other requests hang.
    pub async fn new<const N: usize>(script: [(&'static str, Reply); N]) -> Played {
        let script: Script = Arc::new(Mutex::new(script.into_iter().collect()));
        let router = Router::new().fallback(answer).with_state(script.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Played { address, script, task }
    }

    pub fn api(&self) -> Kubernetes {
        let config = kube::Config::new(format!("http://{}", self.address).parse().unwrap());
        Kubernetes::with(config).unwrap()
    }

    pub fn all_asked(&self) {
        let script = self.script.lock();
        let left: Vec<_> = script.iter().map(|(requests, _)| requests).collect();
        assert!(left.is_empty(), "nobody asked for {left:?}");
    }
}

async fn answer(State(script): State<Script>, request: Request) -> Response {
    let requests = format!("{} {}", request.method(), request.uri());
    let reply = {
        let mut script = script.lock();
        let at = script.iter().position(|(part, _)| requests.contains(part));
        at.and_then(|at| script.remove(at)).map(|(_, reply)| reply)
    };
    match reply {
        Some(Reply::Whole { status, headers, body }) => {
            let answer = headers
                .iter()
                .fold(Response::builder().status(status), |a, (n, v)| a.header(*n, *v));
            answer.body(Body::from(body)).unwrap()
        }
        Some(Reply::Lines(lines)) => {
            let cut = Err(std::io::Error::other("cut"));
            let parts = lines.into_iter().map(Ok).chain([cut]);
            Response::new(Body::from_stream(futures::stream::iter(parts).then(async |part| {
                // Each chunk in a packet of its own.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                part
            })))
        }
        Some(Reply::Cut) => panic!("the connection is cut on purpose"),
        Some(Reply::Hang) | None => std::future::pending().await,
    }
}
