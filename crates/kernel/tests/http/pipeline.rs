//! What every route has: ids, traces, limits, errors in one format.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::body::Body as Raw;
use kernel::health::Check;
use kernel::http::Config;
use kernel::{Ambient, Timestamp};

use testkit::stores::Place;
use tower::ServiceExt as _;

use crate::server::{TestResponse, TestServer, eventually, misbehaving_routes};

#[tokio::test]
async fn every_response_has_a_request_id_and_a_trace() {
    let config = Config { request_timeout_s: 1, ..Config::default() };
    let server = TestServer::with(config, Ambient::system());
    let table = [
        ("/api/v1/self/ping", 200),
        ("/nowhere", 404),
        ("/test/panics", 500),
        ("/test/breaks", 500),
        ("/test/never", 503),
        ("/api/v1/objects", 401),
        ("/api/own/thing", 401),
    ];
    for (path, status) in table {
        let response = server.get("", path).await;
        assert_eq!(response.status, status, "{path}: {}", response.text);
        assert_eq!(response.header("x-request-id").len(), 20, "{path}");
        assert_eq!(response.header("traceparent").len(), 55, "{path}");
        assert!(!response.text.contains("secret detail"), "{path}: {}", response.text);
        if status >= 400 && !path.starts_with("/api/own") {
            assert_eq!(response.error("request_id"), response.header("x-request-id"), "{path}");
        }
    }
}

#[tokio::test]
async fn a_caller_s_request_id_and_trace_are_continued() {
    let server = TestServer::new();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = server.request("GET", "", "/test/traced").header("x-request-id", "mine-1");
    let request = request.header("traceparent", parent).body(Raw::empty()).unwrap();
    let response = server.send(request).await;
    assert_eq!(response.header("x-request-id"), "mine-1");
    let ours = response.header("traceparent");
    assert_eq!(ours[..36], parent[..36], "the same trace");
    assert_ne!(ours[36..52], parent[36..52], "a new span");
    assert_eq!(response.text, ours, "what a handler would hand on");
}

#[tokio::test]
async fn a_wrong_method_is_answered_with_the_allowed_ones() {
    let server = TestServer::new();
    let request = server.request("DELETE", "", "/api/v1/self/ping").body(Raw::empty()).unwrap();
    let response = server.send(request).await;
    assert_eq!((response.status, response.error("code")), (405, "method_not_allowed"));
    assert_eq!(response.header("allow"), "GET,HEAD");
}

#[tokio::test]
async fn a_domain_writes_errors_under_its_prefix_in_its_own_format() {
    let server = TestServer::new();
    let response = server.get("alice", "/api/own/thing").await;
    let id = response.header("x-request-id");
    assert_eq!(
        (response.status, response.text.as_str()),
        (404, &*format!("own: the thing does not exist ({id})"))
    );
    let response = server.get("", "/api/own/thing").await;
    assert_eq!(response.status, 401);
    assert!(response.text.starts_with("own: a bearer token is needed"), "{}", response.text);
    assert!(response.header("www-authenticate").starts_with("Bearer"));
    let response = server.get("", "/api/own/nowhere").await;
    assert!(response.text.starts_with("own: /api/own/nowhere does not exist"), "{}", response.text);
    let response = server.post("", "/api/own/thing", "{}").await;
    assert_eq!((response.status, &response.text[..4]), (405, "own:"));
}

#[tokio::test]
async fn one_trailing_slash_is_ignored() {
    let server = TestServer::new();
    assert_eq!(server.get("", "/api/v1/self/ping/").await.status, 200);
    assert_eq!(server.get("", "/api/v1/self/ping//").await.status, 404);
    assert_eq!(server.get("", "/").await.status, 404);
    assert_eq!(server.get("", "/api/v1/objects/").await.status, 401);
    let response = server.get("alice", "/api/v1/objects/?limit=0").await;
    assert_eq!((response.status, response.error("field")), (400, "limit"));
}

#[tokio::test]
async fn bad_bodies_are_rejected_with_clear_errors() {
    let server = TestServer::new();
    assert_eq!(server.post("alice", "/test/echo", r#"{"name":"😀"}"#).await.text, "😀 from alice");
    let table = [
        ("", "body", "body: is empty, a JSON object was expected"),
        ("{", "body", "body: is cut off: EOF while parsing an object at line 1 column 1"),
        (
            r#"{"nam":1}"#,
            "nam",
            "nam: `nam` is not a field here; did you mean `name`? There are: name",
        ),
        (r#"{"name":[]}"#, "name", "name: invalid type: sequence, expected a string"),
        (
            "{\"name\":\"a\u{202e}b\"}",
            "name",
            "name: must not contain invisible or control characters, there is U+202E",
        ),
    ];
    for (body, field, message) in table {
        let response = server.post("alice", "/test/echo", body).await;
        assert_eq!(response.status, 400, "{body}");
        assert_eq!(
            (response.error("field"), response.error("message")),
            (field, message),
            "{body}"
        );
    }
    let form = server.request("POST", "alice", "/test/echo").body(Raw::from("name=a")).unwrap();
    let response = server.send(form).await;
    assert_eq!((response.status, response.error("field")), (400, "content-type"));
}

#[tokio::test]
async fn a_body_over_the_limit_is_rejected_with_and_without_a_length() {
    let server = TestServer::new();
    let large = || Raw::from(vec![b'x'; (1 << 20) + 1]);
    let json =
        || server.request("POST", "alice", "/test/echo").header("content-type", "application/json");
    let announced = json().header("content-length", 100 << 20).body(Raw::empty()).unwrap();
    let response = server.send(announced).await;
    assert_eq!((response.status, response.error("code")), (413, "too_large"));
    let response = server.send(json().body(large()).unwrap()).await;
    assert_eq!(
        (response.status, response.error("message")),
        (413, "the body is larger than 1048576 bytes")
    );
}

#[tokio::test]
async fn a_route_can_take_longer_bodies_than_others() {
    let routes = misbehaving_routes().body_bytes_max(3 << 20);
    let server = TestServer::routing(routes, Config::default());
    let body = |bytes: usize| format!("{{\"name\":\"a\"{}}}", " ".repeat(bytes - 12));
    let response = server.post("alice", "/test/echo", &body(3 << 20)).await;
    assert_eq!(response.status, 200, "{}", response.text);
    let response = server.post("alice", "/test/echo", &body((3 << 20) + 1)).await;
    assert_eq!(response.error("message"), "the body is larger than 3145728 bytes");
    let announced = server
        .request("POST", "alice", "/test/echo")
        .header("content-type", "application/json")
        .header("content-length", (3 << 20) + 1);
    assert_eq!(server.send(announced.body(Raw::empty()).unwrap()).await.status, 413);
    let response = server.post("alice", "/api/v1/commands", &body(2 << 20)).await;
    assert_eq!(response.error("message"), "the body is larger than 1048576 bytes");
}

#[tokio::test]
async fn headers_over_the_limit_are_rejected() {
    let server = TestServer::new();
    let request =
        server.request("GET", "", "/api/v1/self/ping").header("x-long", "x".repeat(40 << 10));
    let response = server.send(request.body(Raw::empty()).unwrap()).await;
    assert_eq!((response.status, response.error("field")), (400, "headers"));
}

#[tokio::test]
async fn excess_concurrent_requests_get_503_but_probes_succeed() {
    let config = Config { concurrency_max: 2, ..Config::default() };
    let server = Arc::new(TestServer::with(config, Ambient::system()));
    let stuck: Vec<_> = (0..2)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { server.get("", "/test/never").await.status })
        })
        .collect();
    eventually("two requests hang", async || {
        server.get("", "/metrics").await.text.contains("mainstay_http_in_flight 3")
    })
    .await;
    let response = server.get("", "/test/large").await;
    assert_eq!((response.status, response.header("retry-after")), (503, "1"));
    assert_eq!(server.get("", "/api/v1/self/readiness").await.status, 200);
    for task in stuck {
        task.abort();
        let _ = task.await;
    }
    assert_eq!(server.get("", "/test/large").await.status, 200, "their places are free again");
}

#[tokio::test]
async fn the_rate_of_one_principal_does_not_limit_others() {
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let ticks = clock.clone();
    let ambient = Ambient::seeded(move || Timestamp(ticks.load(Ordering::Relaxed)), 1);
    let config = Config { rate_per_s: 1, rate_burst: 2, ..Config::default() };
    let server = TestServer::with(config, ambient);
    let get = async |token| server.get(token, "/api/v1/objects").await;
    assert_eq!(get("alice").await.status, 200);
    assert_eq!(get("alice").await.status, 200);
    let response = get("alice").await;
    assert_eq!((response.status, response.error("code")), (429, "busy"));
    assert_eq!(response.header("retry-after"), "1");
    assert_eq!(get("bob").await.status, 200);
    clock.fetch_add(1000, Ordering::Relaxed);
    assert_eq!(get("alice").await.status, 200);
}

#[tokio::test]
async fn responses_are_compressed_on_request() {
    let server = TestServer::new();
    let request = server.request("GET", "", "/test/large").header("accept-encoding", "gzip");
    let response = server.send(request.body(Raw::empty()).unwrap()).await;
    assert_eq!(response.header("content-encoding"), "gzip");
    assert!(response.text.len() < 2000);
    let plain = server.get("", "/test/large").await;
    assert_eq!((plain.text.len(), plain.header("vary")), (21_000, "accept-encoding"));
}

#[tokio::test]
async fn a_head_response_is_a_get_response_without_the_body() {
    let server = TestServer::new();
    for path in ["/api/v1/self/info", "/api/v1/objects/widget/nobody", "/nowhere"] {
        let get = server.get("alice", path).await;
        let request = server.request("HEAD", "alice", path).body(Raw::empty()).unwrap();
        let head = server.send(request).await;
        assert_eq!((head.status, head.text.as_str()), (get.status, ""), "{path}");
        assert_eq!(head.header("content-length"), get.text.len().to_string(), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
    }
}

#[tokio::test]
async fn pages_of_other_origins_may_call_only_if_configured() {
    let preflight = |server: &TestServer| {
        let request = server.request("OPTIONS", "", "/api/v1/objects");
        let request = request.header("origin", "https://a.example");
        request.header("access-control-request-method", "GET").body(Raw::empty()).unwrap()
    };
    let server = TestServer::new();
    let closed = server.send(preflight(&server)).await;
    assert_eq!(closed.header("access-control-allow-origin"), "");
    let config = Config { cors_origins: vec!["https://a.example".into()], ..Config::default() };
    let server = TestServer::with(config, Ambient::system());
    let open = server.send(preflight(&server)).await;
    assert_eq!(
        (open.status, open.header("access-control-allow-origin")),
        (200, "https://a.example")
    );
    assert_eq!(open.header("x-request-id").len(), 20);
    let get = server.request("GET", "", "/api/v1/objects").header("origin", "https://a.example");
    let response = server.send(get.body(Raw::empty()).unwrap()).await;
    assert_eq!(response.status, 401);
    assert_eq!(response.header("access-control-allow-origin"), "https://a.example", "errors too");
}

#[tokio::test]
async fn probes_report_the_health_of_the_process() {
    let server = TestServer::new();
    let info = server.get("", "/api/v1/self/info").await.body;
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert!(info["revision"].is_string() && info["buildtime"].is_string());
    let ping = server.get("", "/api/v1/self/ping").await.body;
    assert!(ping["response"].as_str().unwrap().starts_with("Pong - 20"), "{ping}");
    let started = server.get("", "/api/v1/self/started").await;
    assert_eq!((started.status, &started.body["status"]), (503, &"failed".into()));
    server.app.metrics.set_started();
    assert_eq!(server.get("", "/api/v1/self/started").await.status, 200);
    for path in ["liveliness", "readiness"] {
        let summary = server.get("", &format!("/api/v1/self/{path}")).await;
        assert_eq!((summary.status, &summary.body["status"]), (200, &"success".into()));
        assert!(summary.body["checks"][0].get("description").is_none());
        let detailed = server.get("", &format!("/api/v1/self/{path}?type=detailed")).await;
        assert!(detailed.body["checks"][0]["description"].is_string(), "{}", detailed.text);
        assert!(detailed.body["checks"][0]["timestamp"].is_string());
    }
    let wrong = server.get("", "/api/v1/self/readiness?type=short").await;
    assert_eq!((wrong.status, wrong.error("field")), (400, "type"));
}

#[tokio::test]
async fn a_failed_check_of_a_domain_is_shown_and_fails_no_probe() {
    let server = TestServer::new();
    let check = |name: &str, result| Check { name: name.into(), result };
    let checks =
        move || vec![check("mail", Err("is away".into())), check("index", Ok("current".into()))];
    server.app.checks().add_source(Arc::new(checks));
    let detailed = server.get("", "/api/v1/self/liveliness?type=detailed").await;
    assert_eq!((detailed.status, &detailed.body["status"]), (200, &"degraded".into()));
    let shown = detailed.body["checks"].as_array().unwrap().iter();
    let shown: Vec<String> = shown
        .map(|check| [&check["name"], &check["status"], &check["description"]])
        .map(|fields| fields.map(|field| field.as_str().unwrap()).join(" "))
        .collect();
    assert_eq!(
        shown,
        ["process success answers requests", "mail failed is away", "index success current"]
    );
    let summary = server.get("", "/api/v1/self/liveliness").await;
    assert_eq!(summary.body["checks"].as_array().unwrap().len(), 1);
    assert_eq!(summary.body["status"], "success", "the summary is about the process alone");
    let ready = server.get("", "/api/v1/self/readiness?type=detailed").await;
    assert_eq!((ready.status, ready.body["checks"].as_array().unwrap().len()), (200, 1));
}

#[tokio::test]
async fn a_process_with_an_unreachable_store_is_alive_but_not_ready() {
    let server = TestServer::new();
    let fresh = testkit::stores::sqlite().await.unwrap();
    let router = server.router_over(fresh.store.clone());
    let get = async |path: &str| {
        let request = server.request("GET", "", path).body(Raw::empty()).unwrap();
        TestResponse::read(router.clone().oneshot(request).await.unwrap()).await
    };
    let ready = get("/api/v1/self/readiness?type=detailed").await;
    assert_eq!((ready.status, &ready.body["checks"][0]["description"]), (200, &"SQLite".into()));
    let Place::Directory(dir) = &fresh.place else { panic!("SQLite lives in a directory") };
    let other = rusqlite::Connection::open(dir.path().join("mainstay.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ready = get("/api/v1/self/readiness?type=detailed").await;
    assert_eq!((ready.status, &ready.body["status"]), (503, &"failed".into()), "{}", ready.text);
    assert_eq!(get("/api/v1/self/liveliness").await.status, 200);
    other.execute_batch("ROLLBACK").unwrap();
    eventually("it is ready again", async || get("/api/v1/self/readiness").await.status == 200)
        .await;
}

#[tokio::test]
async fn requests_are_counted_by_route_and_not_by_path() {
    let server = TestServer::new();
    for path in ["/a", "/b", "/api/v1/objects/widget/x", "/api/v1/objects/widget/y"] {
        server.get("alice", path).await;
    }
    let text = server.get("", "/metrics").await.text;
    let line = |route: &str| {
        format!(r#"http_requests_total{{method="GET",route="{route}",status="4xx"}} 2"#)
    };
    assert!(text.contains(&line("unmatched")), "{text}");
    assert!(text.contains(&line("/api/v1/objects/{kind}/{id}")), "{text}");
    assert!(!text.contains("widget/x"));
    let kept = tokio::time::timeout(Duration::from_secs(1), server.get("", "/metrics")).await;
    assert!(kept.unwrap().header("content-type").starts_with("application/openmetrics-text"));
}
