//! Calls over a real socket: what is repeated, what is held back, what is refused, what is said.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect};
use axum::routing::any;
use futures::FutureExt;
use kernel::outbound::{self, Config, Delivery, Failure, Lookup, Outbound, breaker};
use kernel::{Ambient, Class, Error, Timestamp};
use parking_lot::Mutex;
use reqwest::Method;
use url::Url;

/// A server that counts, and answers by path.
struct Server {
    address: SocketAddr,
    calls: Arc<AtomicUsize>,
    trace: Arc<Mutex<Option<String>>>,
}

impl Server {
    async fn start() -> Server {
        let calls = Arc::new(AtomicUsize::new(0));
        let trace = Arc::new(Mutex::new(None));
        let (count, seen) = (calls.clone(), trace.clone());
        let handler = move |uri: Uri, headers: HeaderMap| {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            *seen.lock() = headers.get("traceparent").map(|v| v.to_str().unwrap().to_owned());
            async move {
                match uri.path() {
                    "/flaky" if number < 3 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
                    "/busy" if number < 2 => {
                        (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")]).into_response()
                    }
                    "/busy-long" => {
                        (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "900")]).into_response()
                    }
                    "/down" => StatusCode::BAD_GATEWAY.into_response(),
                    "/full" => {
                        let said = r#"{"error":"x","message":"no disk for hunter2-token"}"#;
                        (StatusCode::INTERNAL_SERVER_ERROR, said).into_response()
                    }
                    "/missing" => StatusCode::NOT_FOUND.into_response(),
                    "/stuck" => std::future::pending().await,
                    "/elsewhere" => Redirect::temporary("/missing").into_response(),
                    "/huge" => "x".repeat(100_000).into_response(),
                    _ => "ok".into_response(),
                }
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(any(handler));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Server { address, calls, trace }
    }

    fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.address)).unwrap()
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn config() -> Config {
    Config { backoff_ms: 1, backoff_max_ms: 5, ..Config::default() }
}

fn outbound(config: Config) -> (Outbound, Arc<Mutex<Vec<Option<Delivery>>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let observe: outbound::Observe = Arc::new(move |o| log.lock().push(o.failure));
    (Outbound::new(config, Ambient::system(), observe).unwrap(), seen)
}

async fn send(outbound: &Outbound, method: Method, url: Url) -> Result<reqwest::Response, Error> {
    let target = outbound.target("peer");
    target.http("test", target.request(method, url)).await
}

#[tokio::test]
async fn an_idempotent_call_is_repeated_until_it_works_and_each_attempt_is_observed() {
    let server = Server::start().await;
    let (outbound, seen) = outbound(config());
    let response = send(&outbound, Method::GET, server.url("/flaky")).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(*seen.lock(), [Some(Delivery::Unknown), Some(Delivery::Unknown), None]);
}

#[tokio::test]
async fn a_call_that_may_have_happened_is_not_repeated_unless_it_is_idempotent() {
    let server = Server::start().await;
    let (outbound, _) = outbound(config());
    let error = send(&outbound, Method::POST, server.url("/flaky")).await.unwrap_err();
    assert_eq!((error.class(), server.calls()), (Class::Transient, 1));

    let target = outbound.target("peer");
    let keyed = target.request(Method::POST, server.url("/flaky")).header("idempotency-key", "k1");
    assert_eq!(target.http("test", keyed).await.unwrap().status(), 200);
    assert_eq!(server.calls(), 3);
}

#[tokio::test]
async fn a_call_that_was_not_sent_is_repeated_whatever_it_does() {
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let (outbound, seen) = outbound(config());
    let url = Url::parse(&format!("http://{closed}/")).unwrap();
    assert!(send(&outbound, Method::POST, url).await.is_err());
    assert_eq!(*seen.lock(), [Some(Delivery::NotSent); 3]);
}

#[tokio::test]
async fn a_busy_server_is_asked_again_when_it_says_so_and_left_alone_if_that_is_long() {
    let server = Server::start().await;
    let (outbound, _) = outbound(config());
    let response = send(&outbound, Method::POST, server.url("/busy")).await.unwrap();
    assert_eq!((response.status().as_u16(), server.calls()), (200, 2));
    assert!(send(&outbound, Method::GET, server.url("/busy-long")).await.is_err());
    assert_eq!(server.calls(), 3);
}

#[tokio::test]
async fn a_refusal_is_an_answer_and_a_redirect_is_not_followed() {
    let server = Server::start().await;
    let (outbound, seen) = outbound(config());
    for (path, status) in [("/missing", 404), ("/elsewhere", 307)] {
        let response = send(&outbound, Method::GET, server.url(path)).await.unwrap();
        assert_eq!(response.status(), status, "{path}");
    }
    assert_eq!((server.calls(), seen.lock().len()), (2, 2));
}

#[tokio::test]
async fn after_repeated_failures_calls_are_held_back_until_a_probe_succeeds() {
    let server = Server::start().await;
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let time = clock.clone();
    let ambient = Ambient::seeded(move || Timestamp(time.load(Ordering::SeqCst)), 7);
    let breaker = breaker::Config { failures_in_row: 3, open_ms: 1_000, ..Default::default() };
    let config = Config { breaker, ..config() };
    let outbound = Outbound::new(config, ambient, Arc::new(|_| ())).unwrap();
    assert!(send(&outbound, Method::GET, server.url("/down")).await.is_err());
    assert_eq!(server.calls(), 3);

    let error = send(&outbound, Method::GET, server.url("/fine")).await.unwrap_err();
    assert_eq!(server.calls(), 3, "nothing was sent");
    let why = error.to_string();
    assert!(why.contains("the circuit breaker is open for another 1.0 s"), "{why}");
    assert!(why.contains("last: GET http://") && why.contains("answered 502"), "{why}");
    assert_eq!(error.delivery(), Some(Delivery::Rejected));
    let other = outbound.target("other");
    assert!(other.http("test", other.request(Method::GET, server.url("/fine"))).await.is_ok());

    clock.fetch_add(1_000, Ordering::SeqCst);
    assert!(send(&outbound, Method::GET, server.url("/fine")).await.is_ok());
    assert!(send(&outbound, Method::GET, server.url("/fine")).await.is_ok());
}

#[tokio::test]
async fn a_target_can_have_its_own_breaker_and_number_of_attempts() {
    let server = Server::start().await;
    let (outbound, seen) = outbound(config());
    let breaker = || breaker::Config { failures_in_row: 2, ..Default::default() };
    let target = || outbound.target("peer").with_attempts(1).with_breaker(breaker());
    let (one, other) = (target(), target());
    for _ in 0..3 {
        let call = one.http("test", one.request(Method::GET, server.url("/down"))).await;
        assert!(call.is_err());
    }
    let (unknown, rejected) = (Some(Delivery::Unknown), Some(Delivery::Rejected));
    assert_eq!(*seen.lock(), [unknown, unknown, rejected]);
    assert!(other.http("test", other.request(Method::GET, server.url("/fine"))).await.is_ok());
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_given_up() {
    let server = Server::start().await;
    let (outbound, seen) = outbound(Config { attempts_max: 1, ..config() });
    let target = outbound.target("peer").with_timeout(Duration::from_millis(30));
    let request = target.request(Method::GET, server.url("/stuck"));
    assert_eq!(target.http("test", request).await.unwrap_err().class(), Class::Transient);
    let waited = target.call("test", true, |_| std::future::pending::<Result<(), Failure>>()).await;
    assert_eq!(waited.unwrap_err().class(), Class::Transient);
    assert_eq!(*seen.lock(), [Some(Delivery::Unknown); 2]);
}

#[tokio::test]
async fn an_error_has_what_the_other_side_said_and_whether_it_may_have_acted() {
    let server = Server::start().await;
    let (outbound, _) = outbound(Config { attempts_max: 1, ..config() });
    let target = outbound.target("peer");
    let request = target.request(Method::POST, server.url("/full")).bearer_auth("hunter2-token");
    let error = target.http("test", request).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("peer: POST http://127.0.0.1:"), "{text}");
    assert!(
        text.ends_with("/full answered 500 Internal Server Error: no disk for [redacted]"),
        "{text}"
    );
    assert_eq!(error.delivery(), Some(Delivery::Unknown));
    assert_eq!(error.public_message(), "peer is unavailable", "not for clients");

    let away = target.request(Method::POST, Url::parse("http://127.0.0.1:9/").unwrap());
    let error = target.http("test", away).await.unwrap_err();
    assert!(error.to_string().contains("Connection refused"), "{error}");
    assert_eq!(error.delivery(), Some(Delivery::NotSent));
}

#[tokio::test]
async fn no_secret_of_a_url_or_header_is_in_an_error() {
    let (outbound, _) = outbound(Config { attempts_max: 1, ..config() });
    let url = Url::parse("http://user:hunter2@127.0.0.1:1/p?key=hunter2").unwrap();
    let target = outbound.target("peer");
    let request = target.request(Method::GET, url).bearer_auth("hunter2");
    let error = target.http("test", request).await.unwrap_err();
    let mut said = format!("{error} {error:?}");
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        said += &format!(" {error}");
        source = error.source();
    }
    assert!(said.contains("127.0.0.1:1/p?key="), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[tokio::test]
async fn every_call_carries_a_trace_and_a_body_over_the_limit_is_refused() {
    let server = Server::start().await;
    let (outbound, _) = outbound(config());
    let response = send(&outbound, Method::GET, server.url("/huge")).await.unwrap();
    let trace = server.trace.lock().clone().unwrap();
    let parts: Vec<&str> = trace.split('-').collect();
    assert_eq!(parts.iter().map(|p| p.len()).collect::<Vec<_>>(), [2, 32, 16, 2], "{trace}");
    assert!(outbound::body(response, 99_999).await.is_err());
    let response = send(&outbound, Method::GET, server.url("/huge")).await.unwrap();
    assert_eq!(outbound::body(response, 100_000).await.unwrap().len(), 100_000);
}

#[tokio::test]
async fn a_name_that_turns_inward_after_it_was_checked_is_not_dialled() {
    let server = Server::start().await;
    let lookups = Arc::new(AtomicUsize::new(0));
    for turns_after in [1, 2] {
        lookups.store(0, Ordering::SeqCst);
        let count = lookups.clone();
        // Public while it is checked; turns to this machine at the request's own check, or at
        // the very last moment, when the connection is made.
        let lookup: Lookup = Arc::new(move |_| {
            let inward = count.fetch_add(1, Ordering::SeqCst) >= turns_after;
            let ip = if inward { [127, 0, 0, 1] } else { [93, 184, 216, 34] };
            std::future::ready(Ok(vec![IpAddr::from(ip)])).boxed()
        });
        let config = Config { attempts_max: 1, ..config() };
        let outbound =
            Outbound::with_lookup(config, Ambient::system(), Arc::new(|_| ()), lookup).unwrap();
        let target = format!("http://rebound.example:{}/", server.address.port());
        let url = outbound.user_url("url", &target).await.unwrap();
        let target = outbound.target("webhook").guard_ssrf();
        assert!(target.http("test", target.request(Method::POST, url)).await.is_err());
        assert_eq!(lookups.load(Ordering::SeqCst), turns_after + 1);
    }
    assert_eq!(server.calls(), 0);
}

#[tokio::test]
async fn a_user_url_reaches_this_machine_only_if_the_configuration_allows_it() {
    let server = Server::start().await;
    let (closed, _) = outbound(config());
    let target = closed.target("webhook").guard_ssrf();
    let request = target.request(Method::POST, server.url("/"));
    assert_eq!(target.http("test", request).await.unwrap_err().class(), Class::Invalid);
    assert_eq!(server.calls(), 0);

    let (open, _) = outbound(Config { allow_targets: vec!["127.0.0.0/8".into()], ..config() });
    let url = open.user_url("url", server.url("/").as_str()).await.unwrap();
    let target = open.target("webhook").guard_ssrf();
    assert_eq!(target.http("test", target.request(Method::POST, url)).await.unwrap().status(), 200);
}
