//! The responses of probes, and the metrics.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kernel::Ambient;
use streams::config::Config;
use streams::controller::Operator;
use streams::controller::health;
use streams::model::watch::{ApiError, Resource, WatchEvent};
use streams::ports::api_server::{ApiServer, Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// An empty cluster that sends no events until it is released.
struct Empty {
    telling: watch::Receiver<bool>,
}

#[async_trait]
impl ApiServer for Empty {
    fn watch(&self, _: Resource) -> BoxStream<'static, WatchEvent> {
        let mut telling = self.telling.clone();
        let first = async move {
            let _ = telling.wait_for(|telling| *telling).await;
            WatchEvent::Snapshot(Vec::new())
        };
        futures::stream::once(first).chain(futures::stream::pending()).boxed()
    }

    async fn send(&self, _: Request) -> Result<Response, ApiError> {
        Err(ApiError::NotFound)
    }
}

async fn get(address: std::net::SocketAddr, path: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test]
async fn ready_means_that_all_objects_are_listed() {
    let (log, telling) = watch::channel(false);
    let address = "127.0.0.1:0".to_owned();
    let mut config = Config {
        probes_addr: address.clone(),
        metrics_addr: address,
        legacy_metrics: true,
        ..Config::default()
    };
    config.lease.enabled = false;
    let operator = Operator::new(Arc::new(Empty { telling }), config.clone(), Ambient::system());
    let servers = health::serve(&operator, &config).await.unwrap();
    let (probes, metrics) = (servers.probes.unwrap(), servers.metrics.unwrap());
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(operator.clone().run(shutdown.clone()));
    for path in ["/startup", "/health", "/healthz"] {
        assert_eq!(get(probes, path).await, (200, "ok".into()), "{path}");
    }
    for path in ["/health/ready", "/readyz"] {
        assert_eq!(get(probes, path).await.0, 503, "{path}");
    }
    log.send(true).unwrap();
    let ready = async {
        while get(probes, "/readyz").await != (200, "ok: acting".into()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ready).await.expect("it is ready");
    let (status, text) = get(metrics, "/metrics").await;
    assert_eq!(status, 200);
    for wanted in [
        "mainstay_streams_leading 1",
        "mainstay_streams_api_calls_total{verb=\"list\",resource=\"jobs\",status=\"ok\"} 1",
        "rest_client_requests_total{code=\"200\",method=\"GET\"} 7",
        "workqueue_depth 0",
    ] {
        assert!(text.contains(wanted), "{wanted} is missing: {text}");
    }
    assert_eq!(text.matches("# EOF").count(), 1);
    shutdown.cancel();
    running.await.unwrap().unwrap();
    servers.stop(Duration::from_secs(5)).await;
}
