//! Independent consumers of what the relay sends, and the check of what they got.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use lapin::options::{
    BasicConsumeOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{Connection, ExchangeKind};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::Value;
use support::{Client, wait_for};
use testkit::kafka::{Kafka, Listener};
use testkit::rabbitmq::VHost;

/// A message as a consumer got it.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    pub seq: i64,
    pub subject: String,
    pub body: Value,
}

impl Received {
    fn of(body: &[u8]) -> Received {
        let body: Value = serde_json::from_slice(body).expect("a structured CloudEvent");
        let seq = body["sequence"].as_i64().expect("a sequence number");
        Received { seq, subject: body["subject"].as_str().expect("a subject").into(), body }
    }
}

/// Collects what comes until it is dropped.
#[derive(Clone, Default)]
pub struct Reader(Arc<std::sync::Mutex<Vec<Received>>>);

impl Reader {
    pub fn all(&self) -> Vec<Received> {
        self.0.lock().unwrap().clone()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub fn last(&self) -> i64 {
        self.0.lock().unwrap().last().map_or(0, |one| one.seq)
    }

    fn has(&self, body: &[u8]) -> bool {
        let seq = Received::of(body).seq;
        self.0.lock().unwrap().iter().any(|one| one.seq == seq)
    }

    pub fn push(&self, body: &[u8]) {
        self.0.lock().unwrap().push(Received::of(body));
    }

    /// Reads committed records of all partitions of a topic. Ends with the test's process.
    pub fn kafka(kafka: &Kafka, topic: &str, partitions: i32) -> Reader {
        let reader = Reader::default();
        let mut config = kafka.config(Listener::Plain);
        config.set("group.id", "none").set("isolation.level", "read_committed");
        config.set("enable.auto.commit", "false").set("socket.keepalive.enable", "true");
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let mut assigned = TopicPartitionList::new();
        for partition in 0..partitions {
            assigned.add_partition_offset(topic, partition, Offset::Beginning).expect("valid");
        }
        consumer.assign(&assigned).expect("assigned");
        let into = reader.clone();
        std::thread::spawn(move || {
            // Until only this thread has it.
            while Arc::strong_count(&into.0) > 1 {
                if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
                    into.push(message.payload().unwrap_or_default());
                }
            }
        });
        reader
    }

    /// Declares an exchange and a queue that gets all of it, and reads the queue. After a loss of the
    /// connection it reads on.
    pub async fn rabbitmq(vhost: &VHost, exchange: &str) -> Reader {
        let connection = vhost.connect().await;
        declare(&connection, exchange).await;
        let reader = Reader::default();
        let (into, url) = (reader.clone(), vhost.url.clone());
        tokio::spawn(async move {
            let mut connection = Some(connection);
            while Arc::strong_count(&into.0) > 1 {
                let current = match connection.take() {
                    Some(connection) => connection,
                    None => match testkit::rabbitmq::connect(&url).await {
                        Ok(connection) => connection,
                        Err(_) => {
                            tokio::time::sleep(Duration::from_millis(200)).await;
                            continue;
                        }
                    },
                };
                let _ = read_queue(&current, &into).await;
            }
        });
        reader
    }
}

const QUEUE: &str = "all";

async fn declare(connection: &Connection, exchange: &str) {
    let channel = connection.create_channel().await.expect("a channel");
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    let table = FieldTable::default;
    let declared =
        channel.exchange_declare(exchange.into(), ExchangeKind::Topic, durable, table()).await;
    declared.expect("an exchange");
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(QUEUE.into(), durable, table()).await.expect("a queue");
    let options = QueueBindOptions::default();
    let bound = channel.queue_bind(QUEUE.into(), exchange.into(), "#".into(), options, table());
    bound.await.expect("a binding");
}

async fn read_queue(connection: &Connection, into: &Reader) -> lapin::Result<()> {
    let channel = connection.create_channel().await?;
    let options = BasicConsumeOptions::default();
    let mut deliveries =
        channel.basic_consume(QUEUE.into(), "".into(), options, FieldTable::default()).await?;
    while let Some(delivery) = deliveries.next().await {
        let delivery = delivery?;
        // A redelivery is the consumer's own, not the relay's. It may not have got that far before.
        if !(delivery.redelivered && into.has(&delivery.data)) {
            into.push(&delivery.data);
        }
        delivery.ack(Default::default()).await?;
    }
    Ok(())
}

/// The events that the log has of widgets, in order.
pub async fn logged(client: &Client) -> Vec<(i64, String)> {
    let mut events = Vec::new();
    client
        .walk("/api/v1/events?limit=1000&kind=widget", "events", Some(0), |event| {
            let subject = event["subject"].as_str().expect("a subject").to_owned();
            events.push((event["sequence"].as_i64().expect("a number"), subject));
        })
        .await;
    events
}

/// Waits until every event of the log has arrived, and checks the order. Returns how many came twice.
pub async fn settle(what: &str, reader: &Reader, client: &Client) -> usize {
    let logged = logged(client).await;
    let newest = logged.last().expect("there are events").0;
    wait_for(&format!("{what}: event {newest}"), async || {
        let there: BTreeSet<i64> = reader.all().iter().map(|one| one.seq).collect();
        logged.iter().all(|(seq, _)| there.contains(seq))
    })
    .await;
    let all = reader.all();
    let mut first = BTreeSet::new();
    let mut newest_of: BTreeMap<&str, i64> = BTreeMap::new();
    for one in &all {
        if first.insert(one.seq) {
            let before = newest_of.insert(&one.subject, one.seq);
            assert!(before < Some(one.seq), "{what}: {one:?} came after {before:?}");
        }
    }
    // Who keeps only the last message of each object has the newest.
    let last: BTreeMap<&str, i64> = all.iter().map(|one| (one.subject.as_str(), one.seq)).collect();
    for (subject, seq) in
        logged.iter().map(|(seq, subject)| (subject.as_str(), *seq)).collect::<BTreeMap<_, _>>()
    {
        assert_eq!(last.get(subject), Some(&seq), "{what}: the last of {subject}");
    }
    let unknown: Vec<i64> =
        first.iter().copied().filter(|seq| logged.iter().all(|(there, _)| there != seq)).collect();
    assert_eq!(unknown, [0; 0], "{what}: not in the log");
    all.len() - first.len()
}
