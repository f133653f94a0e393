//! Kafka through rdkafka.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, FutureProducer, FutureRecord, Producer, ProducerContext};
use rdkafka::{ClientConfig, Message};
use testkit::kafka::{Kafka, Listener, Mechanism};
use tokio::sync::mpsc;

const TIMEOUT: Duration = Duration::from_secs(60);

fn producer(config: &ClientConfig) -> FutureProducer {
    config.clone().set("acks", "all").create().unwrap()
}

async fn send(producer: &FutureProducer, topic: &str, payload: &str) {
    let record = FutureRecord::<str, str>::to(topic).payload(payload);
    producer.send(record, TIMEOUT).await.unwrap();
}

fn consumer(kafka: &Kafka, config: &ClientConfig, topic: &str) -> StreamConsumer {
    let mut config = config.clone();
    config.set("group.id", kafka.name("group")).set("auto.offset.reset", "earliest");
    let consumer: StreamConsumer = config.create().unwrap();
    consumer.subscribe(&[topic]).unwrap();
    consumer
}

async fn receive(consumer: &StreamConsumer, count: usize) -> Vec<String> {
    let mut got = Vec::with_capacity(count);
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while got.len() < count {
        // A broker that was just away is an error on the listener, and no end.
        if let Ok(message) = tokio::time::timeout_at(deadline, consumer.recv()).await.unwrap() {
            got.push(String::from_utf8(message.payload().unwrap().to_vec()).unwrap());
        }
    }
    got
}

/// Hands on what goes wrong between a client and its brokers.
#[derive(Clone)]
struct Complaints(mpsc::UnboundedSender<(KafkaError, String)>);

impl ClientContext for Complaints {
    fn error(&self, error: KafkaError, reason: &str) {
        let _ = self.0.send((error, reason.into()));
    }
}

impl ProducerContext for Complaints {
    type DeliveryOpaque = ();
    fn delivery(&self, _: &rdkafka::message::DeliveryResult<'_>, (): ()) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn each_listener_and_mechanism_carries_messages() {
    let Some(kafka) = testkit::kafka() else { return };
    let mut listeners = vec![Listener::Plain, Listener::Tls];
    listeners.extend(Mechanism::ALL.map(Listener::Sasl));
    listeners.extend(Mechanism::ALL.map(Listener::SaslTls));
    for (number, listener) in listeners.into_iter().enumerate() {
        let (config, topic) = (kafka.config(listener), kafka.topic(&number.to_string(), 1).await);
        send(&producer(&config), &topic, &format!("over {listener:?}")).await;
        let consumer = consumer(&kafka, &config, &topic);
        assert_eq!(receive(&consumer, 1).await, [format!("over {listener:?}")]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_refused_by_name() {
    let Some(kafka) = testkit::kafka() else { return };
    for mechanism in Mechanism::WITH_PASSWORD {
        let mut config = kafka.config(Listener::SaslTls(mechanism));
        config.set("sasl.password", "wrong");
        let (complaints, mut received) = mpsc::unbounded_channel();
        let producer: Arc<BaseProducer<Complaints>> = Arc::new(
            BaseProducer::from_config_and_context(&config, Complaints(complaints)).unwrap(),
        );
        let polled = Arc::downgrade(&producer);
        let poll = tokio::task::spawn_blocking(move || {
            while let Some(producer) = polled.upgrade() {
                producer.poll(Duration::from_millis(100));
            }
        });
        let refused = async {
            loop {
                let (error, reason) = received.recv().await.unwrap();
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Authentication) {
                    return reason;
                }
            }
        };
        let reason = tokio::time::timeout(TIMEOUT, refused).await.unwrap();
        assert!(reason.contains("uthentication failed"), "{mechanism:?}: {reason}");
        drop(producer);
        poll.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_rights_is_let_in_and_refused() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.topic("closed", 1).await;
    let config = kafka.config_of_limited(Listener::SaslTls(Mechanism::ScramSha512));
    let record = FutureRecord::<str, str>::to(&topic).payload("mine");
    let (error, _) = producer(&config).send(record, TIMEOUT).await.unwrap_err();
    assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::TopicAuthorizationFailed));
    assert_eq!(kafka.end(&topic, 0).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_nobody_made_is_unknown() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.name("never-made");
    let record = FutureRecord::<str, str>::to(&topic).payload("lost");
    let mut config = kafka.config(Listener::Plain);
    config.set("topic.metadata.propagation.max.ms", "1000");
    let (error, _) = producer(&config).send(record, TIMEOUT).await.unwrap_err();
    let code = error.rdkafka_error_code().unwrap();
    assert!(
        matches!(
            code,
            RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::InvalidTopic
        ),
        "{code:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_after_a_kill() {
    let Some(shared) = testkit::kafka() else { return };
    let own = shared.private().await;
    let config = own.config(Listener::Plain);
    let topic = own.topic("kept", 3).await;
    let payloads: Vec<String> = (0..3000).map(|number| format!("{number:04}")).collect();
    let sender = producer(&config);
    let sends = payloads.iter().map(|payload| send(&sender, &topic, payload));
    futures::future::join_all(sends).await;
    own.server.kill().await;
    own.server.start().await;
    let mut got = receive(&consumer(&own, &config, &topic), payloads.len()).await;
    got.sort_unstable();
    assert_eq!(got, payloads);
    // The producer of before finds its broker again.
    send(&sender, &topic, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_stands_still_goes_on_where_it_was() {
    let Some(shared) = testkit::kafka() else { return };
    let own = shared.private().await;
    let config = own.config(Listener::Plain);
    let topic = own.topic("paused", 1).await;
    let producer = producer(&config);
    send(&producer, &topic, "before").await;
    own.server.pause().await;
    let sending = send(&producer, &topic, "meanwhile");
    tokio::pin!(sending);
    let waits = tokio::time::timeout(Duration::from_millis(200), &mut sending).await;
    assert!(waits.is_err(), "it answers although it stands still");
    own.server.resume().await;
    sending.await;
    let consumer = consumer(&own, &config, &topic);
    assert_eq!(receive(&consumer, 2).await, ["before", "meanwhile"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_transaction_gave_up_is_not_read() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.topic("transactions", 1).await;
    let mut config = kafka.config(Listener::Plain);
    config.set("transactional.id", kafka.name("transaction"));
    let producer = producer(&config);
    let (within, name) = (producer.clone(), topic.clone());
    // Its transaction calls block.
    let write = move || {
        let queue = |payload: &str| {
            let record = FutureRecord::<str, str>::to(&name).payload(payload);
            within.send_result(record).map(drop).map_err(|(error, _)| error)
        };
        within.init_transactions(TIMEOUT)?;
        within.begin_transaction()?;
        queue("given up")?;
        within.flush(TIMEOUT)?;
        within.abort_transaction(TIMEOUT)?;
        within.begin_transaction()?;
        queue("one")?;
        queue("two")?;
        within.commit_transaction(TIMEOUT)
    };
    tokio::task::spawn_blocking(write).await.unwrap().unwrap();
    let mut config = kafka.config(Listener::Plain);
    config.set("isolation.level", "read_committed");
    let consumer = consumer(&kafka, &config, &topic);
    assert_eq!(receive(&consumer, 2).await, ["one", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_sent_to_the_proxy_in_front() {
    let Some(shared) = testkit::kafka() else { return };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let own = shared.private_behind(port).await;
    let address = own.server.get("").to_owned();
    let proxy = tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let address = address.clone();
            tokio::spawn(async move {
                let mut broker = tokio::net::TcpStream::connect(address).await.unwrap();
                tokio::io::copy_bidirectional(&mut client, &mut broker).await
            });
        }
    });
    // Only where the first word goes is the client's choice; the rest is the broker's.
    let topic = own.topic("through", 1).await;
    send(&producer(&own.config(Listener::Plain)), &topic, "through").await;
    proxy.abort();
    let record = FutureRecord::<str, str>::to(&topic).payload("past it");
    let mut config = own.config(Listener::Plain);
    let sent = producer(config.set("message.timeout.ms", "2000")).send(record, TIMEOUT).await;
    assert!(sent.is_err(), "it went past the proxy");
}
