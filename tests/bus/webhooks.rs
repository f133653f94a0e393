//! Webhooks of the binary: nothing is lost when it is killed, and nobody reads a secret.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use support::load::Load;
use support::{Client, Plan, wait_for};

use crate::readers::{Reader, settle};

/// What may be sent twice at a crash: what was delivered since the position was saved.
const IN_FLIGHT_MAX: usize = 1000;

fn plan(dir: &Path) -> Plan {
    let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir);
    plan.set("driver.lease_s", 2).set("http.rate_per_s", 0)
}

fn to_loopback(plan: Plan) -> Plan {
    plan.set("outbound.allow_targets", "[\"127.0.0.1\"]")
        .set("bus.webhooks.backoff_ms", 1)
        .set("bus.webhooks.backoff_max_ms", 20)
        .set("bus.webhooks.rate_per_organisation_max", 0)
}

#[derive(Clone)]
struct Receiver {
    url: String,
    reader: Reader,
    /// The ids of what was accepted, in order.
    ids: Arc<Mutex<Vec<String>>>,
    requests: Arc<AtomicUsize>,
}

impl Receiver {
    /// Ends with the test.
    async fn start() -> Receiver {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Receiver {
            url: format!("http://{}/", listener.local_addr().unwrap()),
            reader: Reader::default(),
            ids: Arc::default(),
            requests: Arc::default(),
        };
        let router = Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    async fn create(&self, client: &Client, key: &str) -> Value {
        let body = json!({"name": "orders", "url": self.url, "filter": {"kinds": ["widget"]}});
        let answer = client.send(Method::POST, "/api/v1/sinks", Some(key), Some(&body)).await;
        let answer = answer.expect("a healthy server answers");
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.body
    }
}

/// Fails now and then: before it has taken the event, and after.
async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let request = receiver.requests.fetch_add(1, Ordering::Relaxed);
    if request % 7 == 3 {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let id = headers["webhook-id"].to_str().unwrap().to_owned();
    receiver.ids.lock().unwrap().push(id);
    receiver.reader.push(&body);
    if request % 11 == 5 { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_loses_nothing_when_the_server_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let plan = to_loopback(plan(dir.path())).set("telemetry.level", "warn");
    let receiver = Receiver::start().await;
    let reader = &receiver.reader;
    let mut server = plan.start().await;
    let client = plan.client();
    let created = receiver.create(&client, "first").await;
    let id = created["key"].as_str().unwrap().strip_prefix("sink/").unwrap().to_owned();
    let load = Load::start(std::slice::from_ref(&client), 2);
    for _ in 0..3 {
        let (before, there) = (load.acknowledged(), reader.len());
        wait_for("acknowledgements", async || load.acknowledged() > before + 30).await;
        wait_for("deliveries", async || reader.len() > there + 30).await;
        server.kill();
        server = plan.start().await;
    }
    load.end().await;
    let doubled = settle("kill -9, webhook", reader, &client).await;
    let failed = receiver.requests.load(Ordering::Relaxed) / 11 + 1;
    assert!(doubled <= 3 * IN_FLIGHT_MAX + failed, "{doubled}");
    // All of the sink is in order, not only each object; and ids tell repetitions.
    let all = reader.all();
    let ids = receiver.ids.lock().unwrap().clone();
    let mut newest = 0;
    for (one, there) in all.iter().zip(&ids) {
        assert_eq!(*there, format!("{id}_0_{}", one.seq));
        let repeated = all.iter().take_while(|earlier| !std::ptr::eq(*earlier, one));
        if one.seq < newest {
            assert!(repeated.into_iter().any(|earlier| earlier.seq == one.seq), "{one:?} is late");
        }
        newest = newest.max(one.seq);
    }
    assert!(!plan.log().contains("panicked"), "{}", plan.log());
    drop(server);
}

fn holds(file: &Path, text: &str) -> bool {
    let bytes = std::fs::read(file).unwrap_or_default();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_of_a_webhook_is_in_the_reply_to_its_creation_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let plan = to_loopback(plan(dir.path())).set("telemetry.level", "trace");
    let receiver = Receiver::start().await;
    let server = plan.start().await;
    let client = plan.client();
    let created = receiver.create(&client, "first").await;
    let secret = created["secret"].as_str().expect("a secret").to_owned();
    let encoded = secret.strip_prefix("whsec_").expect("as Standard Webhooks writes it");
    assert_eq!(STANDARD.decode(encoded).expect("base64").len(), 32);
    // The same reply to the same request.
    assert_eq!(receiver.create(&client, "first").await["secret"], secret);
    client.create(&json!({"name": "a"})).await;
    wait_for("a delivery", async || receiver.reader.len() > 0).await;
    let at = format!("/api/v1/sinks/{}", created["key"].as_str().unwrap().replace("sink/", ""));
    for (method, path, body) in [
        (Method::POST, format!("{at}/replay"), json!({"from": 1})),
        (Method::POST, format!("{at}/resume"), json!({})),
        (Method::DELETE, at.clone(), Value::Null),
    ] {
        let body = Some(&body).filter(|body| !body.is_null());
        let answer = client.send(method, &path, None, body).await.unwrap();
        assert!(answer.status < 300, "{path}: {}", answer.body);
        assert!(!answer.body.to_string().contains(encoded), "{path}");
        if path != at {
            assert!(!client.read(&at).await.to_string().contains(encoded));
        }
    }
    for path in [
        "/api/v1/sinks",
        "/api/v1/objects?kind=sink&deleted=true",
        "/api/v1/events?after=0&limit=1000",
        "/api/v1/audit?after=0&limit=1000",
        "/api/v1/self/liveliness?type=detailed",
    ] {
        assert!(!client.read(path).await.to_string().contains(encoded), "{path}");
    }
    let command = client.get("/api/v1/command/first").await.unwrap();
    assert!(!command.body.to_string().contains(encoded), "{}", command.body);
    assert!(server.stop().0.success());
    assert!(plan.log().contains("/api/v1/sinks"), "the log has the requests");
    assert!(!plan.log().contains(encoded), "the log has it");
    for entry in std::fs::read_dir(plan.data()).unwrap() {
        let path = entry.unwrap().path();
        assert!(!holds(&path, encoded), "{} has it", path.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loopback_and_unsigned_webhooks_are_refused_by_default() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let unsigned = plan.clone().set("bus.sinks.all.webhook.url", "http://127.0.0.1:9/").refused();
    assert_eq!(unsigned.code, 2, "{unsigned:?}");
    assert!(unsigned.stderr.contains("bus.sinks.all.webhook.secret"), "{unsigned:?}");
    let _server = plan.start().await;
    let client = plan.client();
    for url in [plan.url(), "http://169.254.169.254/".into(), "http://[::1]/".into()] {
        let body = json!({"name": "orders", "url": url});
        let answer = client.post("/api/v1/sinks", &body).await.unwrap();
        assert_eq!((answer.status, answer.body["error"]["field"].as_str()), (400, Some("url")));
        assert!(answer.message().contains("outbound.allow_targets"), "{}", answer.message());
    }
}
