//! What is logged at the most talkative level. Alone in its process, because it takes all logs.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bus::config::{KafkaSink, RabbitMqSink, Sasl, SaslMechanism};
use bus::model::{Destination, Message, Position};
use bus::ports::out::kafka::KafkaOutlet;
use bus::ports::out::rabbitmq::RabbitMqOutlet;
use bus::ports::out::{Outlet, Sent};
use kernel::Ambient;
use kernel::outbound::{Config, Outbound};
use parking_lot::Mutex;
use testkit::kafka::Kafka;
use testkit::rabbitmq::RabbitMq;

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const BODY: &str = "the body of a message";
const RIGHT: &str = "correct-horse-battery";
const WRONG: &str = "wrong-horse-battery";

#[tokio::test(flavor = "multi_thread")]
async fn no_log_has_a_password_or_a_message() {
    let (Some(rabbitmq), Some(kafka)) = (testkit::rabbitmq(), testkit::kafka()) else { return };
    let logs = Buffer::default();
    let writer = logs.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .init();
    let outbound = Outbound::new(Config::default(), Ambient::system(), Arc::new(|_| ())).unwrap();
    to_rabbitmq(&rabbitmq, &outbound).await;
    let password = to_kafka(&kafka, &outbound).await;

    let logs = String::from_utf8_lossy(&logs.0.lock()).into_owned();
    for recorded in ["created the exchange", "created Kafka topic"] {
        assert!(logs.contains(recorded), "this level is recorded");
    }
    for secret in [RIGHT, WRONG, BODY, &password] {
        // Also as a list of bytes.
        let bytes = format!("{:?}", secret.as_bytes());
        let bytes = bytes.trim_matches(['[', ']']);
        let line = logs.lines().find(|line| line.contains(secret) || line.contains(bytes));
        assert_eq!(line, None, "{secret} is in a log");
    }
}

fn message(name: &str) -> Message {
    Message {
        seq: 1,
        to: Destination { name: name.into(), routing_key: "nobody.listens".into() },
        key: "widget/1".into(),
        content_type: "text/plain",
        attributes: Vec::new(),
        body: BODY.into(),
        after_all: false,
    }
}

async fn close(outlet: &mut dyn Outlet) {
    tokio::time::timeout(Duration::from_secs(10), outlet.close()).await.unwrap();
}

async fn to_rabbitmq(rabbitmq: &RabbitMq, outbound: &Outbound) {
    let vhost = rabbitmq.vhost().await;
    let path = format!("users/{}", vhost.name);
    let user = serde_json::json!({"password": RIGHT, "tags": ""});
    let changed = rabbitmq.management(reqwest::Method::PUT, &path).json(&user).send().await;
    assert!(changed.unwrap().status().is_success());
    let (_, host) = vhost.url.rsplit_once('@').unwrap();
    let mut config = RabbitMqSink {
        url: format!("amqp://{host}"),
        username: vhost.name.clone(),
        password: WRONG.into(),
        ..RabbitMqSink::default()
    };
    let mut outlet = RabbitMqOutlet::new("orders", &config, outbound).unwrap();
    assert!(outlet.open().await.is_err());
    config.password = RIGHT.into();
    let mut outlet = RabbitMqOutlet::new("orders", &config, outbound).unwrap();
    outlet.open().await.unwrap();
    let refused = outlet.send(&[message("mainstay")], Position::default()).await.unwrap();
    assert!(matches!(&refused, Sent::AllBut(refused) if refused.len() == 1), "it came back");
    close(&mut outlet).await;
}

/// Returns the password of the test server.
async fn to_kafka(kafka: &Kafka, outbound: &Outbound) -> String {
    let password = kafka.server.get("password").to_owned();
    let topic = kafka.name("logs");
    for mechanism in [SaslMechanism::Plain, SaslMechanism::ScramSha256] {
        for (password, right) in [(WRONG, false), (password.as_str(), true)] {
            let config = KafkaSink {
                brokers: vec![kafka.server.get("sasl").to_owned()],
                sasl: Some(Sasl {
                    mechanism,
                    username: kafka.server.get("user").into(),
                    password: password.into(),
                    token: Default::default(),
                }),
                ..KafkaSink::default()
            };
            let mut outlet = KafkaOutlet::new(&topic, &config, outbound).unwrap();
            let opened = outlet.open().await;
            assert_eq!(opened.is_ok(), right, "{opened:?}");
            if right {
                let sent = outlet.send(&[message(&topic)], Position::default()).await;
                assert_eq!(sent.unwrap(), Sent::All);
            }
            close(&mut outlet).await;
        }
    }
    password
}
