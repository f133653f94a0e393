//! What a receiver gets.

use bus::config::{Config, Sink, WebhookSink};
use bus::store;
use kernel::Timestamp;
use kernel::change::Cause;
use kernel::telemetry::Trace;
use reqwest::Method;
use serde_json::{Value, json};

use crate::receiver::{Receiver, Reply};
use crate::server::{Server, Setup, until};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn cause(command: &str) -> Cause {
    Cause { command: Some(command.into()), trace: Trace::parse(TRACE) }
}

#[tokio::test]
async fn a_structured_delivery_is_a_signed_cloudevent() {
    let (server, receiver) = (Setup::default().start().await, Receiver::start().await);
    let hook = server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let begun = server.app.ambient.now();
    let seq = server.happen_because("acme", "a", cause("order-7")).await;
    let mut delivery = receiver.wait(1).await.remove(0);
    let ended = server.app.ambient.now();
    assert_eq!(delivery.method, "POST");
    assert_eq!(delivery.uri, "/hook?of=orders");
    assert_eq!(delivery.header("content-type"), "application/cloudevents+json");
    assert_eq!(delivery.header("webhook-id"), format!("{}_0_{seq}", hook.id));
    assert_eq!(delivery.header("idempotency-key"), delivery.header("webhook-id"));
    assert_eq!(delivery.header("traceparent"), TRACE);
    assert!(!delivery.headers.keys().any(|name| name.as_str().starts_with("ce-")));
    assert!((begun.0 / 1000..=ended.0 / 1000).contains(&delivery.sent_at()));
    assert!(delivery.is_signed_with(&hook.secret));
    let event = delivery.json();
    let at = event["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!((begun.0..=ended.0).contains(&at.as_millisecond()));
    let expected = json!({
        "specversion": "1.0", "id": seq.to_string(), "source": "/mainstay",
        "type": "mainstay.widget.ready", "subject": "widget/a", "time": event["time"],
        "datacontenttype": "application/json", "sequence": seq, "epoch": 0, "org": "acme",
        "commandid": "order-7", "commandstate": event["commandstate"], "traceparent": TRACE,
        "data": {"widget": "a"},
    });
    assert_eq!(event, expected);
    // A change of any part is noticed.
    let other = server.webhook("alice", "others", &receiver.url(), json!({})).await;
    assert!(!delivery.is_signed_with(&other.secret));
    let whole = delivery.clone();
    delivery.body = [&whole.body[..], b" "].concat().into();
    assert!(!delivery.is_signed_with(&hook.secret));
    for (name, value) in [("webhook-timestamp", "1"), ("webhook-id", "another")] {
        let mut changed = whole.clone();
        changed.headers.insert(name, value.parse().unwrap());
        assert!(!changed.is_signed_with(&hook.secret), "{name}");
    }
}

#[tokio::test]
async fn a_binary_delivery_has_its_attributes_in_headers() {
    let (server, receiver) = (Setup::default().start().await, Receiver::start().await);
    let mode = json!({"mode": "binary"});
    let hook = server.webhook("alice", "orders", &receiver.url(), mode).await;
    let seq = server.happen_because("acme", "a", cause("order 7 \"é\" 100%")).await;
    let delivery = receiver.wait(1).await.remove(0);
    assert_eq!(delivery.header("content-type"), "application/json");
    assert_eq!(&delivery.body[..], br#"{"widget":"a"}"#);
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", &seq.to_string()),
        ("ce-source", "/mainstay"),
        ("ce-type", "mainstay.widget.ready"),
        ("ce-subject", "widget/a"),
        ("ce-sequence", &seq.to_string()),
        ("ce-epoch", "0"),
        ("ce-org", "acme"),
        ("ce-commandid", "order%207%20%22%C3%A9%22%20100%25"),
        ("ce-traceparent", TRACE),
        ("traceparent", TRACE),
    ] {
        assert_eq!(delivery.header(name), value, "{name}");
    }
    assert!(delivery.header("ce-time").parse::<jiff::Timestamp>().is_ok());
    assert!(!delivery.headers.contains_key("ce-datacontenttype"), "it is the content type");
    assert!(delivery.is_signed_with(&hook.secret));
}

#[tokio::test]
async fn a_repetition_has_the_same_id_and_another_time() {
    let mut setup = Setup::default();
    setup.bus.webhooks.backoff_max_ms = 10_000;
    let (server, receiver) = (setup.start().await, Receiver::start().await);
    // One says seconds, the other a date; both are waited for, although retries come much sooner.
    let date = Timestamp(server.app.ambient.now().0 + 3000);
    let date = jiff::Timestamp::from_millisecond(date.0).unwrap();
    let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    receiver.then([
        Reply::With(429, "retry-after", "1".into()),
        Reply::With(503, "retry-after", date.clone()),
    ]);
    let hook = server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let seq = server.happen("acme", "a").await;
    receiver.wait_for(&[seq]).await;
    let tries = receiver.all();
    assert_eq!(tries.len(), 3);
    assert!(tries.iter().all(|one| one.is_signed_with(&hook.secret)));
    assert!(tries.iter().all(|one| one.header("webhook-id") == tries[0].header("webhook-id")));
    assert!(tries[1].sent_at() > tries[0].sent_at());
    let asked: jiff::Timestamp = jiff::fmt::rfc2822::parse(&date).unwrap().timestamp();
    assert!(tries[2].sent_at() >= asked.as_second(), "{} < {asked}", tries[2].sent_at());
}

fn to(receiver: &Receiver) -> Sink {
    let webhook =
        WebhookSink { url: receiver.url(), secret: SECRET.into(), ..WebhookSink::default() };
    let mut sink = Sink { webhook: Some(webhook), ..Sink::default() };
    sink.filter.kinds = vec!["widget".into()];
    sink
}

/// The operators decide where it goes: no address is refused.
#[tokio::test]
async fn a_sink_of_the_configuration_may_be_on_loopback() {
    let receiver = Receiver::start().await;
    let mut setup = Setup { allow: Vec::new(), ..Setup::default() };
    setup.bus.sinks.insert("all".into(), to(&receiver));
    let server = setup.start().await;
    // It begins with the next event, once it has begun.
    server.until_phase("all", "running").await;
    until("a position", async || server.store().cursor("sink/all").await.unwrap().is_some()).await;
    let seqs = [server.happen("acme", "a").await, server.happen("globex", "b").await];
    receiver.wait_for(&seqs).await;
    for (delivery, seq) in receiver.all().iter().zip(seqs) {
        assert_eq!(delivery.header("webhook-id"), format!("all_0_{seq}"));
        assert!(delivery.is_signed_with(SECRET));
    }
}

#[test]
fn a_webhook_of_the_configuration_needs_a_url_and_a_secret() {
    let check = |url: &str, secret: &str| {
        let webhook =
            WebhookSink { url: url.into(), secret: secret.into(), ..WebhookSink::default() };
        let sink = Sink { webhook: Some(webhook), ..Sink::default() };
        Config { sinks: [("all".into(), sink)].into(), ..Config::default() }.check()
    };
    assert!(check("https://hooks.example/", SECRET).is_ok());
    let why = check("https://hooks.example/", "").unwrap_err().to_string();
    assert!(why.starts_with("bus.sinks.all.webhook.secret: must be given"), "{why}");
    for bad in ["", "hooks.example", "ftp://hooks.example/"] {
        let why = check(bad, SECRET).unwrap_err().to_string();
        assert!(why.starts_with("bus.sinks.all.webhook.url: must be http"), "{bad}: {why}");
    }
}

/// The fence of one lease says nothing about that of another.
#[tokio::test]
async fn a_sink_that_was_deleted_and_is_configured_again_gets_events() {
    let receiver = Receiver::start().await;
    let without = Setup::default();
    // The lease of who cleans up changes hands more often than that of the sink.
    for _ in 0..3 {
        without.start().await.stop().await;
    }
    let mut with = without.clone();
    with.bus.sinks.insert("audit".into(), to(&receiver));
    let server = with.start().await;
    let begins = async |server: &Server| {
        let has_position = async || store::cursor(server.store(), "audit").await.unwrap().is_some();
        until("a position", has_position).await;
    };
    begins(&server).await;
    server.stop().await;
    let server = without.start().await;
    server.until_phase("audit", "off").await;
    let path = "/api/v1/sinks/audit";
    let (status, body) = server.call("admin", Method::DELETE, path, Value::Null).await;
    assert_eq!(status, 200, "{body}");
    until("it is retired", async || server.is_retired("audit").await).await;
    server.stop().await;
    let server = with.start().await;
    begins(&server).await;
    let seq = server.happen("acme", "a").await;
    receiver.wait_for(&[seq]).await;
}
