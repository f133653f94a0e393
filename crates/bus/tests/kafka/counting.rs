//! What the tests share: messages with numbers, a pump, and a reader that counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bus::config::KafkaSink;
use bus::model::{Destination, Message, Position};
use bus::ports::out::kafka::KafkaOutlet;
use bus::ports::out::{Outlet, Sent};
use kernel::Ambient;
use kernel::outbound::{Config, Outbound};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message as _};
use testkit::kafka::{Kafka, Listener};
use tokio::sync::watch;
use tokio::time::Instant;

pub const TIMEOUT: Duration = Duration::from_secs(120);
pub const KEYS: i64 = 20;

pub fn outbound() -> Outbound {
    Outbound::new(Config::default(), Ambient::system(), Arc::new(|_| ())).unwrap()
}

pub fn sink(kafka: &Kafka) -> KafkaSink {
    KafkaSink {
        brokers: vec![kafka.server.get("").to_owned()],
        partitions: Some(3),
        ..KafkaSink::default()
    }
}

/// Names of sinks are without a prefix in the product; here many tests share a broker.
pub fn outlet(name: &str, config: &KafkaSink) -> KafkaOutlet {
    KafkaOutlet::new(name, config, &outbound()).unwrap()
}

pub fn message(topic: &str, seq: i64) -> Message {
    Message {
        seq,
        to: Destination { name: topic.into(), routing_key: String::new() },
        key: format!("object-{}", seq % KEYS),
        content_type: "application/json",
        attributes: vec![("type".into(), "mainstay.widget.changed".into())],
        body: format!("{seq}").into(),
        after_all: false,
    }
}

/// Bytes that do not compress.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

pub fn at(seq: i64) -> Position {
    Position { epoch: 1, seq, at: None }
}

pub fn batch(topic: &str, seqs: std::ops::Range<i64>) -> Vec<Message> {
    seqs.map(|seq| message(topic, seq)).collect()
}

/// How far a test is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    pub next: i64,
    pub errors: u32,
}

/// Sends `total` messages as the relay does: after an error it opens the outlet again, and goes on
/// where the broker says. Returns how many errors there were.
pub async fn pump(
    mut outlet: KafkaOutlet,
    topic: String,
    total: i64,
    size: i64,
    progress: watch::Sender<Progress>,
) -> u32 {
    let deadline = Instant::now() + TIMEOUT;
    let (mut next, mut errors, mut open) = (0, 0, false);
    while next < total {
        assert!(Instant::now() < deadline, "only {next} of {total} were sent");
        let step = async {
            if !open {
                if let Some(position) = outlet.open().await? {
                    next = position.seq + 1;
                }
                open = true;
            }
            let end = (next + size).min(total);
            let refused = outlet.send(&batch(&topic, next..end), at(end - 1)).await?;
            assert_eq!(refused, Sent::All);
            next = end;
            Ok::<(), kernel::Error>(())
        };
        if let Err(error) = step.await {
            eprintln!("at {next}: {error}");
            (errors, open) = (errors + 1, false);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        progress.send_replace(Progress { next, errors });
    }
    outlet.close().await;
    errors
}

/// Sends as the pump would: what is refused is left out. Returns it, in order.
pub async fn send_but(
    outlet: &mut KafkaOutlet,
    mut messages: Vec<Message>,
    position: Position,
) -> Vec<(i64, String)> {
    let mut all = Vec::new();
    loop {
        let (refused, again) = match outlet.send(&messages, position).await.unwrap() {
            Sent::All => (Vec::new(), false),
            Sent::AllBut(refused) => (refused, false),
            Sent::None(refused) => (refused, true),
        };
        all.extend(refused.iter().map(|one| (messages[one.index].seq, one.reason.clone())));
        if !again {
            all.sort();
            return all;
        }
        messages.retain(|message| all.iter().all(|(seq, _)| *seq != message.seq));
    }
}

pub async fn reached(progress: &mut watch::Receiver<Progress>, seq: i64) {
    let wait = progress.wait_for(|now| now.next >= seq);
    tokio::time::timeout(TIMEOUT, wait).await.expect("it gets that far").unwrap();
}

/// Waits until one more thing has failed.
pub async fn fails(progress: &mut watch::Receiver<Progress>) {
    let before = progress.borrow().errors;
    let wait = progress.wait_for(|now| now.errors > before);
    tokio::time::timeout(TIMEOUT, wait).await.expect("it is noticed").unwrap();
}

#[derive(Debug, Clone)]
pub struct Received {
    pub partition: i32,
    pub key: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Received {
    pub fn seq(&self) -> i64 {
        String::from_utf8(self.body.clone()).unwrap().parse().unwrap()
    }
}

/// Everything committed that a topic has, by partition in order.
pub async fn read(kafka: &Kafka, topic: &str) -> Vec<Received> {
    let (mut config, topic) = (kafka.config(Listener::Plain), topic.to_owned());
    config.set("group.id", kafka.name("count")).set("isolation.level", "read_committed");
    config.set("enable.partition.eof", "true").set("enable.auto.commit", "false");
    let read = move || {
        let consumer: BaseConsumer = config.create().unwrap();
        let metadata = consumer.fetch_metadata(Some(&topic), TIMEOUT).unwrap();
        let partitions = metadata.topics()[0].partitions().len();
        let mut list = rdkafka::TopicPartitionList::new();
        for partition in 0..partitions {
            let (topic, partition) = (&topic, i32::try_from(partition).unwrap());
            list.add_partition_offset(topic, partition, rdkafka::Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let (mut all, mut ended) = (Vec::new(), BTreeSet::new());
        let deadline = std::time::Instant::now() + TIMEOUT;
        while ended.len() < partitions {
            assert!(std::time::Instant::now() < deadline, "{topic} has no end");
            match consumer.poll(Duration::from_millis(200)) {
                Some(Ok(message)) => all.push(received(&message)),
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
                Some(Err(_)) | None => {}
            }
        }
        all
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

fn received(message: &rdkafka::message::BorrowedMessage<'_>) -> Received {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    Received {
        partition: message.partition(),
        key: message.key().map(text),
        headers: headers
            .map(|one| (one.key.to_owned(), text(one.value.unwrap_or_default())))
            .collect(),
        body: message.payload().unwrap_or_default().to_vec(),
    }
}

/// How often each number is there, and whether those of each key are in order.
pub fn count(received: &[Received], total: i64) -> (Vec<i64>, Vec<i64>) {
    let mut seen = BTreeMap::<i64, u32>::new();
    let mut newest = BTreeMap::<String, i64>::new();
    for one in received {
        let seq = one.seq();
        let first = *seen.entry(seq).and_modify(|times| *times += 1).or_insert(1) == 1;
        let newest = newest.entry(one.key.clone().unwrap()).or_insert(-1);
        assert!(!first || seq > *newest, "{seq} of its key came after {newest}");
        *newest = seq.max(*newest);
    }
    let lost = (0..total).filter(|seq| !seen.contains_key(seq)).collect();
    let doubled = seen.iter().filter(|(_, times)| **times > 1).map(|(seq, _)| *seq).collect();
    (lost, doubled)
}

pub async fn assert_exactly_once(kafka: &Kafka, topic: &str, total: i64) {
    let (lost, doubled) = count(&read(kafka, topic).await, total);
    assert!(lost.is_empty() && doubled.is_empty(), "lost {lost:?}, doubled {doubled:?}");
}
