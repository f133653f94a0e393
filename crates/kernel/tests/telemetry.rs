//! Traces leave for a collector, and a collector that is away holds nothing up.

use std::time::{Duration, Instant};

use kernel::telemetry::{self, Config, Trace};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tracing::Instrument as _;

/// Answers one request and returns it.
async fn collect(listener: TcpListener) -> Vec<u8> {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let mut request = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let n = stream.read(&mut buffer).await.expect("a request");
        request.extend_from_slice(&buffer[..n]);
        let head = request.windows(4).position(|window| window == b"\r\n\r\n");
        if n == 0 || head.is_some_and(|at| request.len() > at + 4) {
            break;
        }
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("an answer");
    request
}

fn holds(request: &[u8], needle: &[u8]) -> bool {
    request.windows(needle.len()).any(|window| window == needle)
}

/// One test, because a process has one subscriber.
#[tokio::test(flavor = "multi_thread")]
async fn spans_reach_the_collector_within_the_caller_s_trace() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let collected = tokio::spawn(collect(listener));
    let config = Config { otlp_endpoint: endpoint, level: "info".into(), ..Config::default() };
    let guard = telemetry::init(&config).unwrap();

    let parent = Trace::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    let span = tracing::info_span!("a-span-to-find");
    parent.adopt(&span);
    let sent_on = async { telemetry::current_traceparent() }.instrument(span.clone()).await;
    let sent_on = Trace::parse(&sent_on.expect("a trace")).unwrap();
    assert_eq!(sent_on.trace_id, parent.trace_id);
    assert_ne!(sent_on.span_id, parent.span_id);
    drop(span);
    drop(guard);

    let request = tokio::time::timeout(Duration::from_secs(60), collected).await;
    let request = request.expect("in time").unwrap();
    assert!(request.starts_with(b"POST /v1/traces HTTP/1.1"));
    assert!(holds(&request, b"a-span-to-find") && holds(&request, &parent.trace_id));

    let away = Config { otlp_endpoint: "http://127.0.0.1:9/v1/traces".into(), ..config };
    let begun = Instant::now();
    let guard = telemetry::init(&away).unwrap();
    drop(guard);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
