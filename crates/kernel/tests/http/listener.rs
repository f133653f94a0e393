//! What only a listener shows: connections, headers on the wire, draining.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use kernel::Ambient;
use kernel::http::{self, Config, Routes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::server::{TestServer, eventually};

pub struct Served {
    pub server: TestServer,
    pub address: SocketAddr,
    pub stop: CancellationToken,
    pub task: JoinHandle<kernel::Result<()>>,
}

pub async fn served(config: Config) -> Served {
    let server = TestServer::with(config.clone(), Ambient::system());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serve = http::serve(server.app.clone(), Routes::new(), listener, config, stop.clone());
    Served { server, address, stop, task: tokio::spawn(serve) }
}

impl Served {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends and reads until the server closes.
    async fn talk(&self, text: &[u8]) -> String {
        let mut stream = self.connect().await;
        let _ = stream.write_all(text).await;
        let mut response = Vec::new();
        let read = stream.read_to_end(&mut response);
        let _ = tokio::time::timeout(Duration::from_secs(60), read).await.expect("in time");
        String::from_utf8_lossy(&response).into_owned()
    }
}

/// Reads until `until` has come.
pub async fn read_until(stream: &mut (impl tokio::io::AsyncRead + Unpin), until: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains(until) {
        let read = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut buffer));
        let n = read.await.expect("in time").unwrap();
        assert!(n > 0, "closed after {text:?}");
        text.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    text
}

#[tokio::test]
async fn a_request_over_a_socket_is_served_and_its_origin_audited() {
    let served = served(Config::default()).await;
    served.server.create("a", "acme", "alice", "new").await;
    let token = served.server.token("admin");
    let request = format!(
        "POST /api/v1/work/widget/a/retry HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         authorization: Bearer {token}\r\ncontent-length: 0\r\n\r\n"
    );
    let response = served.talk(request.as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 202 "), "{response}");
    let origin = served.server.audit().await.remove(0).entry.origin;
    assert_eq!(origin, "127.0.0.1");
}

#[tokio::test]
async fn a_million_headers_and_one_endless_header_are_rejected() {
    let served = served(Config::default()).await;
    let many = format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(1_000_000));
    assert!(served.talk(many.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    let long = format!("GET / HTTP/1.1\r\nhost: x\r\na: {}\r\n\r\n", "b".repeat(1 << 20));
    assert!(served.talk(long.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    let somewhat = format!(
        "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\na: {}\r\n\r\n",
        "b".repeat(33 << 10)
    );
    let response = served.talk(somewhat.as_bytes()).await;
    assert!(
        response.starts_with("HTTP/1.1 400 ") && response.contains("\"field\":\"headers\""),
        "{response}"
    );
    assert!(served.talk(b"\x00\x01nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn a_truncated_body_is_rejected_and_a_huge_one_is_not_read() {
    let served = served(Config::default()).await;
    let token = served.server.token("admin");
    let head = format!(
        "POST /api/v1/work/widget/a/pause HTTP/1.1\r\nhost: x\r\n\
         authorization: Bearer {token}\r\ncontent-type: application/json\r\n"
    );
    let huge = format!("{head}content-length: 104857600\r\n\r\n{{\"reason\":\"");
    let mut stream = served.connect().await;
    stream.write_all(huge.as_bytes()).await.unwrap();
    assert!(read_until(&mut stream, "too_large").await.starts_with("HTTP/1.1 413 "));
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n5\r\n{{\"rea\r\nzz\r\n");
    let response = served.talk(chunked.as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    assert!(response.contains("body: ended before it was complete"), "{response}");
}

#[tokio::test]
async fn a_connection_without_a_complete_request_is_closed() {
    let served = served(Config { header_timeout_s: 1, ..Config::default() }).await;
    for start in ["", "P", "GET / HTTP/1.1\r\nhost:"] {
        let response = served.talk(start.as_bytes()).await;
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 408"), "{start}: {response}");
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_an_active_one_is_not() {
    let served = served(Config { header_timeout_s: 1, ..Config::default() }).await;
    let ping = b"GET /api/v1/self/ping HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut stream = served.connect().await;
    let begun = Instant::now();
    // For longer than the first deadline lasts, with pauses that are shorter.
    for _ in 0..5 {
        stream.write_all(ping).await.unwrap();
        read_until(&mut stream, "Pong").await;
        let early = tokio::time::timeout(Duration::from_millis(400), stream.read(&mut [0])).await;
        assert!(early.is_err(), "closed after {:?}", begun.elapsed());
    }
    let closed = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut [0])).await;
    assert_eq!(closed.expect("in time").unwrap(), 0);
    let half = format!("{}GET / HTTP/1.1\r\nhost:", String::from_utf8_lossy(ping));
    let response = served.talk(half.as_bytes()).await;
    assert!(response.contains("Pong"), "closed after the response, though half of another came");
}

#[tokio::test]
async fn no_more_connections_are_accepted_than_allowed() {
    let served = served(Config { connections_max: 1, ..Config::default() }).await;
    let ping = b"GET /api/v1/self/ping HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut first = served.connect().await;
    first.write_all(ping).await.unwrap();
    read_until(&mut first, "Pong").await;
    let mut second = served.connect().await;
    second.write_all(ping).await.unwrap();
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(200), second.read(&mut byte)).await;
    assert!(early.is_err(), "it has to wait");
    drop(first);
    read_until(&mut second, "Pong").await;
}

#[tokio::test]
async fn shutdown_drains_requests_and_ends_streams_and_waits_at_once() {
    let served = served(Config::default()).await;
    served.server.create("a", "acme", "alice", "new").await;
    let token = served.server.token("alice");
    let ask = |path: &str, accept: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\naccept: {accept}\r\n\r\n"
        )
    };
    let mut stream = served.connect().await;
    let path = "/api/v1/events";
    stream.write_all(ask(path, "text/event-stream").as_bytes()).await.unwrap();
    read_until(&mut stream, "id: 1\n").await;
    let mut wait = served.connect().await;
    let path = "/api/v1/objects/widget/a?wait_phase=x&timeout_s=300";
    wait.write_all(ask(path, "*/*").as_bytes()).await.unwrap();
    eventually("it waits", async || {
        served.server.app.metrics.encode().contains("mainstay_http_in_flight 1")
    })
    .await;
    served.stop.cancel();
    read_until(&mut stream, ": the server is stopping\n").await;
    let response = read_until(&mut wait, "\"phase\":\"new\"").await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let ended = tokio::time::timeout(Duration::from_secs(60), served.task).await;
    ended.expect("drained in time").unwrap().unwrap();
    assert!(TcpStream::connect(served.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn an_unfinished_request_does_not_block_shutdown() {
    let served = served(Config { drain_s: 1, ..Config::default() }).await;
    let mut stream = served.connect().await;
    let token = served.server.token("admin");
    let half = format!(
        "POST /api/v1/work/widget/a/pause HTTP/1.1\r\nhost: x\r\n\
         authorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: 100\r\n\r\n{{"
    );
    stream.write_all(half.as_bytes()).await.unwrap();
    eventually("it is being answered", async || {
        served.server.app.metrics.encode().contains("mainstay_http_in_flight 1")
    })
    .await;
    served.stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(60), served.task).await;
    ended.expect("cut off in time").unwrap().unwrap();
    let metrics = served.server.app.metrics.encode();
    assert!(metrics.contains("mainstay_http_connections 0"), "{metrics}");
}

/// Nobody accepts meanwhile: without room to wait, the rest would try again for minutes.
#[tokio::test]
async fn a_burst_of_connections_waits_in_the_backlog() {
    let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    let crowd = limit.trim().parse().unwrap_or(128).min(500);
    let listener = http::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let all = futures::future::try_join_all((0..crowd).map(|_| TcpStream::connect(address)));
    let connected = tokio::time::timeout(Duration::from_secs(60), all).await;
    assert_eq!(connected.expect("all are let wait").unwrap().len(), crowd);
}
