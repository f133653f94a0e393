//! Commands in: over RabbitMQ, with the same outcome as over REST.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use lapin::message::Delivery;
use lapin::options::{
    BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, ExchangeDeclareOptions,
    QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Consumer, ExchangeKind};
use serde_json::{Value, json};
use support::{Client, Plan, wait_for};
use testkit::rabbitmq::VHost;

const QUEUE: &str = "mainstay.commands";
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

pub fn plan(dir: &Path) -> Plan {
    let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir);
    plan.set("http.rate_per_s", 0).set("telemetry.level", "info")
}

fn from_rabbitmq(plan: Plan, vhost: &VHost) -> Plan {
    let host = vhost.url.rsplit_once('@').expect("it has a user").1;
    let set = |key: &str| format!("bus.consumers.orders.rabbitmq.{key}");
    plan.set(&set("url"), format!("amqp://{host}"))
        .set(&set("username"), &vhost.name)
        .set(&set("password"), &vhost.password)
        .set(&set(&format!("users.{}.subject", vhost.name)), "orders")
        .set(&set(&format!("users.{}.org", vhost.name)), "acme")
}

pub fn command(id: &str, name: &str, subject: Option<&str>, body: Value) -> Value {
    let now = kernel::Ambient::system().now();
    json!({"id": id, "type": name, "subject": subject, "issued_at": now, "body": body})
}

pub fn create(id: &str, name: &str) -> Value {
    command(id, "widget.create", None, json!({"name": name}))
}

/// Sends as a user whom the broker knows.
async fn publish(channel: &Channel, user: Option<&str>, reply: bool, body: &[u8]) {
    let mut headers = FieldTable::default();
    headers.insert("traceparent".into(), AMQPValue::LongString(TRACE.into()));
    let mut properties = BasicProperties::default().with_delivery_mode(2).with_headers(headers);
    if let Some(user) = user {
        properties = properties.with_user_id(user.into());
    }
    if reply {
        properties = properties
            .with_reply_to("amq.rabbitmq.reply-to".into())
            .with_correlation_id("mine".into());
    }
    let options = BasicPublishOptions::default();
    let published = channel.basic_publish("".into(), QUEUE.into(), options, body, properties);
    published.await.expect("published").await.expect("confirmed");
}

/// The answers to what is published on this channel.
async fn answers(channel: &Channel) -> Consumer {
    let no_ack = BasicConsumeOptions { no_ack: true, ..Default::default() };
    let (queue, table) = ("amq.rabbitmq.reply-to".into(), FieldTable::default());
    channel.basic_consume(queue, "".into(), no_ack, table).await.expect("a consumer")
}

async fn next_delivery(consumer: &mut Consumer) -> Delivery {
    let next = tokio::time::timeout(Duration::from_secs(30), consumer.next()).await;
    next.expect("a message in time").unwrap().unwrap()
}

async fn next_answer(answers: &mut Consumer) -> Value {
    serde_json::from_slice(&next_delivery(answers).await.data).unwrap()
}

/// What is published to an exchange from now on.
async fn notices(channel: &Channel, exchange: &str) -> Consumer {
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    let none = FieldTable::default();
    let topic = ExchangeKind::Topic;
    channel.exchange_declare(exchange.into(), topic, durable, none.clone()).await.unwrap();
    let own = QueueDeclareOptions { exclusive: true, ..Default::default() };
    let queue = channel.queue_declare("".into(), own, none.clone()).await.unwrap();
    let name = queue.name().clone();
    let bind = QueueBindOptions::default();
    channel
        .queue_bind(name.clone(), exchange.into(), "#".into(), bind, none.clone())
        .await
        .unwrap();
    let no_ack = BasicConsumeOptions { no_ack: true, ..Default::default() };
    channel.basic_consume(name, "".into(), no_ack, none).await.unwrap()
}

async fn queue_is_there(plan: &Plan) {
    wait_for("the consumer", async || plan.log().contains("consuming")).await;
}

/// How a command went, as the server tells an admin.
pub async fn state(client: &Client, id: &str) -> Option<Value> {
    let path = format!("/api/v1/command/{id}?subject=orders&issuer=bus");
    let answer = client.get(&path).await.ok()?;
    (answer.status == 200).then_some(answer.body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_over_rabbitmq_is_accepted_done_and_answered() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let dir = tempfile::tempdir().unwrap();
    let vhost = rabbitmq.vhost().await;
    let plan = from_rabbitmq(plan(dir.path()), &vhost);
    let _server = plan.start().await;
    queue_is_there(&plan).await;
    let client = plan.client();
    let connection = vhost.connect().await;
    let channel = connection.create_channel().await.unwrap();
    let mut answers = answers(&channel).await;
    let user = Some(vhost.name.as_str());
    publish(&channel, user, true, create("c1", "a").to_string().as_bytes()).await;
    let mut states = Vec::new();
    let key = loop {
        let next = tokio::time::timeout(Duration::from_secs(30), answers.next()).await;
        let delivery = next.expect("an answer in time").unwrap().unwrap();
        assert_eq!(
            delivery.properties.correlation_id().as_ref().map(|id| id.as_str()),
            Some("mine")
        );
        let answer: Value = serde_json::from_slice(&delivery.data).unwrap();
        assert_eq!(answer["id"], "c1");
        states.push(answer["state"].as_str().unwrap().to_owned());
        if answer["state"] == "done" {
            assert_eq!(answer["body"]["phase"], "ready", "{answer}");
            break answer["body"]["key"].as_str().unwrap().to_owned();
        }
    };
    assert_eq!(
        (states.first().unwrap().as_str(), states.last().unwrap().as_str()),
        ("accepted", "done")
    );
    let status = state(&client, "c1").await.expect("it is known");
    assert_eq!((&status["state"], &status["subject"]), (&json!("done"), &json!(key)));
    // One trace from the sender to the event.
    let events = client.read(&format!("/api/v1/events?object={key}")).await;
    for event in events["events"].as_array().unwrap() {
        assert_eq!(event["commandid"], "c1", "{event}");
        let trace = event["traceparent"].as_str().unwrap_or_default();
        assert!(trace.contains("4bf92f3577b34da6a3ce929d0e0e4736"), "{event}");
    }
    // What was carried out stays so, whatever is wrong with the message that comes again.
    let mut version = create("c1", "a");
    version["version"] = json!(9);
    let mut old = create("c1", "a");
    old["issued_at"] = json!("2020-01-01T00:00:00Z");
    for message in [version, old] {
        publish(&channel, user, true, message.to_string().as_bytes()).await;
        for state in ["accepted", "done"] {
            let answer = next_answer(&mut answers).await;
            assert_eq!((&answer["id"], &answer["state"]), (&json!("c1"), &json!(state)));
        }
    }
    // Each of these is rejected and answered, and does not hold up the next.
    let mut stale = command("c2", "widget.update", Some(&key), json!({"size": 3}));
    stale["expected_generation"] = json!(7);
    let mut old = create("c3", "b");
    old["issued_at"] = json!("2020-01-01T00:00:00Z");
    let mut version = create("c4", "b");
    version["version"] = json!(9);
    let other = create("c1", "another");
    for (message, status, part) in [
        (stale, 409, "has generation 1, not 7"),
        (old, 400, "issued_at"),
        (version, 400, "versions 1 to 1, not 9"),
        (command("c5", "widget.craete", None, json!({})), 400, "did you mean `widget.create`"),
        (command("c6", "widget.create", None, json!({"nmae": "x"})), 400, "nmae"),
        (other, 409, "different request"),
    ] {
        publish(&channel, user, true, message.to_string().as_bytes()).await;
        let answer = next_answer(&mut answers).await;
        assert_eq!(
            (&answer["state"], &answer["status"]),
            (&json!("rejected"), &json!(status)),
            "{answer}"
        );
        assert!(answer["body"]["message"].as_str().unwrap().contains(part), "{answer}");
    }
    let refused = state(&client, "c3").await.expect("a rejection is remembered");
    assert_eq!(
        (&refused["state"], &refused["reply"]["field"]),
        (&json!("rejected"), &json!("issued_at"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_comes_while_the_server_starts_is_not_rejected() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let dir = tempfile::tempdir().unwrap();
    let vhost = rabbitmq.vhost().await;
    let plan = from_rabbitmq(plan(dir.path()), &vhost);
    let server = plan.start().await;
    queue_is_there(&plan).await;
    server.stop();
    let connection = vhost.connect().await;
    let channel = connection.create_channel().await.unwrap();
    let user = Some(vhost.name.as_str());
    publish(&channel, user, false, create("early", "a").to_string().as_bytes()).await;
    // The start waits for secrets after the domains have started.
    let plan = plan
        .set("vault.address", "http://127.0.0.1:9")
        .set("vault.token", "root")
        .set("fleet.prometheus.token.vault", "kv/data/a#b");
    let _server = plan.start().await;
    let client = plan.client();
    wait_for("its end", async || {
        let found = state(&client, "early").await;
        let state = found.map(|found| found["state"].as_str().unwrap_or_default().to_owned());
        assert_ne!(state.as_deref(), Some("rejected"));
        state.is_some_and(|state| state == "done")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_far_a_command_is_comes_as_an_answer_and_over_the_notification_exchange() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let dir = tempfile::tempdir().unwrap();
    let vhost = rabbitmq.vhost().await;
    let host = vhost.url.rsplit_once('@').expect("it has a user").1;
    let set = |key: &str| format!("bus.sinks.notices.{key}");
    let plan = from_rabbitmq(plan(dir.path()), &vhost)
        .set(&set("rabbitmq.url"), format!("amqp://{host}"))
        .set(&set("rabbitmq.username"), &vhost.name)
        .set(&set("rabbitmq.password"), &vhost.password)
        .set(&set("rabbitmq.unroutable"), "drop")
        .set(&set("filter.commands"), true)
        .set(&set("mode"), "binary");
    let _server = plan.start().await;
    queue_is_there(&plan).await;
    let connection = vhost.connect().await;
    let channel = connection.create_channel().await.unwrap();
    let mut notices = notices(&channel, "mainstay").await;
    let mut answers = answers(&channel).await;
    let slow = command("slow", "widget.create", None, json!({"name": "slow", "hold_s": 10}));
    publish(&channel, Some(&vhost.name), true, slow.to_string().as_bytes()).await;
    let mut states = Vec::new();
    while states.last().is_none_or(|state| state != "done") {
        let answer = next_answer(&mut answers).await;
        if answer["state"] == "progress" && answer["body"]["message"] == "building" {
            states.push("building".to_owned());
        }
        states.push(answer["state"].as_str().unwrap().to_owned());
    }
    assert_eq!(states[0], "accepted");
    assert!(states.contains(&"building".to_owned()), "{states:?}");
    let bad = command("bad", "widget.create", None, json!({"name": ""}));
    publish(&channel, Some(&vhost.name), true, bad.to_string().as_bytes()).await;
    assert_eq!(next_answer(&mut answers).await["state"], "rejected");
    // The same over the notification exchange, in the trace of the sender.
    let mut noticed = Vec::new();
    while noticed.last().is_none_or(|state| state != "rejected") {
        let notice = next_delivery(&mut notices).await;
        let headers = notice.properties.headers().clone().unwrap_or_default();
        let header = |name: &str| match headers.inner().get(name) {
            Some(AMQPValue::LongString(text)) => text.to_string(),
            other => panic!("{name} is {other:?}"),
        };
        let rejected = header("cloudEvents:type") == "mainstay.command.rejected";
        assert_eq!(header("cloudEvents:commandid"), if rejected { "bad" } else { "slow" });
        assert!(header("traceparent").contains("4bf92f3577b34da6a3ce929d0e0e4736"));
        noticed.push(header("cloudEvents:commandstate"));
    }
    assert_eq!(noticed[0], "accepted");
    for state in ["progress", "done"] {
        assert!(noticed.contains(&state.to_owned()), "{noticed:?}");
    }
}

/// The reply to a repetition is the first one, and so is the end: also of one that is long done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_managed_kafka_is_ordered_over_rabbitmq_and_a_repetition_changes_nothing() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let dir = tempfile::tempdir().unwrap();
    let vhost = rabbitmq.vhost().await;
    let plan = from_rabbitmq(plan(dir.path()).set("fleet.local.enabled", true), &vhost);
    let _server = plan.start().await;
    queue_is_there(&plan).await;
    let connection = vhost.connect().await;
    let channel = connection.create_channel().await.unwrap();
    let mut answers = answers(&channel).await;
    let order = command("k1", "kafka.create", None, json!({"name": "orders"})).to_string();
    for _ in 0..2 {
        publish(&channel, Some(&vhost.name), true, order.as_bytes()).await;
        let mut states = Vec::new();
        while states.last().is_none_or(|state| state != "done") {
            let next = tokio::time::timeout(Duration::from_secs(60), answers.next()).await;
            let delivery = next.unwrap_or_else(|_| panic!("after {states:?}")).unwrap().unwrap();
            let answer: Value = serde_json::from_slice(&delivery.data).unwrap();
            states.push(answer["state"].as_str().unwrap().to_owned());
        }
        assert_eq!(states[0], "accepted");
    }
    let client = plan.client();
    let status = state(&client, "k1").await.expect("it is known");
    assert_eq!((&status["state"], &status["phase"]), (&json!("done"), &json!("ready")));
    // Its process would outlive the server.
    let delete = command("k2", "kafka.delete", status["subject"].as_str(), json!({})).to_string();
    publish(&channel, Some(&vhost.name), false, delete.as_bytes()).await;
    wait_for("it is deleted", async || {
        state(&client, "k2").await.is_some_and(|state| state["state"] == "done")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_understood_or_is_nobodys_becomes_a_dead_letter() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let dir = tempfile::tempdir().unwrap();
    let vhost = rabbitmq.vhost().await;
    let plan =
        from_rabbitmq(plan(dir.path()), &vhost).set("bus.consumers.orders.message_bytes_max", 2000);
    let _server = plan.start().await;
    queue_is_there(&plan).await;
    let client = plan.client();
    let connection = vhost.connect().await;
    let channel = connection.create_channel().await.unwrap();
    let user = Some(vhost.name.as_str());
    let secret = "eyJhbGciOiJub25lIn0.e30.c2VjcmV0LXRva2Vu";
    let mut forged = create("d4", "x");
    forged["token"] = json!(secret);
    let mut large = create("d5", "x");
    large["body"]["description"] = json!("x".repeat(3000));
    for (message, author, reason, field) in [
        ("not JSON".to_owned(), user, "JSON", None),
        (json!({"type": "widget.create"}).to_string(), user, "id", Some("id")),
        (create(&"i".repeat(300), "x").to_string(), user, "at most 255 bytes", Some("id")),
        (create("d3", "x").to_string(), None, "the sender is not known", None),
        (forged.to_string(), user, "token", None),
        (large.to_string(), user, "2000", None),
        (
            command("d6", "widget.create", None, json!({"name": ""})).to_string(),
            user,
            "name",
            Some("name"),
        ),
    ] {
        publish(&channel, author, false, message.as_bytes()).await;
        let mut dead = None;
        wait_for("a dead letter", async || {
            let options = BasicGetOptions { no_ack: true };
            let got = channel.basic_get("mainstay.commands.dead".into(), options).await.unwrap();
            dead = got.map(|got| got.delivery);
            dead.is_some()
        })
        .await;
        let dead = dead.unwrap();
        let headers = dead.properties.headers().clone().unwrap_or_default();
        let header = |name: &str| match headers.inner().get(name) {
            Some(AMQPValue::LongString(text)) => Some(text.to_string()),
            _ => None,
        };
        assert!(header("reason").unwrap_or_default().contains(reason), "{headers:?}");
        if field.is_some() {
            assert_eq!(header("field").as_deref(), field, "{headers:?}");
        }
        let whole = format!("{headers:?} {}", String::from_utf8_lossy(&dead.data));
        assert!(!whole.contains(secret), "{whole}");
    }
    let audit = client.read("/api/v1/audit?limit=100").await;
    let entries = audit["entries"].as_array().unwrap();
    let rejected = |actor: &str| {
        entries.iter().any(|entry| {
            entry["entry"]["outcome"] == "rejected" && entry["entry"]["actor"] == actor
        })
    };
    assert!(rejected("unknown") && rejected("orders"), "{audit}");
    for (what, text) in [("the audit log", audit.to_string()), ("the log", plan.log())] {
        assert!(!text.contains(secret), "{what} has a token");
    }
    // The next one is carried out.
    publish(&channel, user, false, create("d9", "good").to_string().as_bytes()).await;
    wait_for("it is done", async || {
        state(&client, "d9").await.is_some_and(|s| s["state"] == "done")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_over_rabbitmq_are_carried_out_once_when_the_server_is_killed() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let dir = tempfile::tempdir().unwrap();
    let vhost = rabbitmq.vhost().await;
    let plan = from_rabbitmq(plan(dir.path()), &vhost);
    let mut server = plan.start().await;
    queue_is_there(&plan).await;
    let connection = vhost.connect().await;
    let channel = connection.create_channel().await.unwrap();
    let (user, count) = (Some(vhost.name.as_str()), 400);
    for n in 0..count {
        let message = create(&format!("k{n}"), &format!("w{n}")).to_string();
        publish(&channel, user, false, message.as_bytes()).await;
        if n % 10 == 0 {
            publish(&channel, user, false, message.as_bytes()).await;
        }
        if n % 100 == 50 {
            server.kill();
            server = plan.start().await;
        }
    }
    let client = plan.client();
    each_once(&client, count, "k").await;
    drop(server);
}

/// Waits until all commands are done, and checks that each made one widget.
pub async fn each_once(client: &Client, count: usize, prefix: &str) {
    for n in 0..count {
        wait_for(&format!("command {prefix}{n}"), async || {
            state(client, &format!("{prefix}{n}"))
                .await
                .is_some_and(|state| state["state"] == "done")
        })
        .await;
    }
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    client
        .walk("/api/v1/objects?kind=widget&limit=500", "objects", None, |object| {
            *names.entry(object["name"].as_str().unwrap().into()).or_default() += 1;
        })
        .await;
    assert_eq!(names.len(), count);
    assert!(names.values().all(|made| *made == 1), "{names:?}");
}
