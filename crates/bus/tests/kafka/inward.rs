//! Commands from Kafka: offsets, redelivery, dead letters, answers, rebalances.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::config::{KafkaConsumer, KafkaTopic};
use bus::ports::inward::{DeadLetter, Handler, Incoming, Reply, Settled, kafka};
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};
use testkit::kafka::{Kafka, Listener};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::counting::*;
use crate::refusals::admin;

const BYTES_MAX: usize = 10_000;

/// Does what the body says, once it is let.
pub struct Script {
    handled: mpsc::UnboundedSender<Incoming>,
    permits: Semaphore,
}

#[async_trait]
impl Handler for Script {
    async fn handle(&self, incoming: Incoming, replies: &mpsc::Sender<Reply>) -> Settled {
        let body = String::from_utf8(incoming.body.to_vec()).unwrap();
        if body == "hangs" {
            std::future::pending::<()>().await;
        }
        self.permits.acquire().await.unwrap().forget();
        if let Some(to) = incoming.reply_to.clone() {
            let (body, traceparent) = (format!("done {body}").into(), incoming.traceparent.clone());
            replies.send(Reply { to, body, traceparent }).await.unwrap();
        }
        self.handled.send(incoming).unwrap();
        assert_ne!(body, "panic", "as asked");
        if body == "poison" {
            let (reason, field) = ("it is poison".into(), Some("spec.size".into()));
            return Settled::Dead(DeadLetter { reason, field });
        }
        if body == "quoted" {
            let long = "é".repeat(1 << 20);
            return Settled::Dead(DeadLetter { reason: long.clone(), field: Some(long) });
        }
        Settled::Done
    }
}

pub struct Inlet {
    script: Arc<Script>,
    handled: mpsc::UnboundedReceiver<Incoming>,
    stop: CancellationToken,
    running: JoinHandle<kernel::Result<()>>,
}

impl Inlet {
    pub fn start(config: &KafkaConsumer, permits: usize) -> Inlet {
        let (sender, handled) = mpsc::unbounded_channel();
        let script = Arc::new(Script { handled: sender, permits: Semaphore::new(permits) });
        let (stop, config) = (CancellationToken::new(), config.clone());
        let (handler, stopped) = (script.clone(), stop.clone());
        let running = tokio::spawn(async move {
            kafka::run("test", &config, &outbound(), BYTES_MAX, handler, stopped).await
        });
        Inlet { script, handled, stop, running }
    }

    pub async fn next(&mut self) -> Incoming {
        let next = tokio::time::timeout(TIMEOUT, self.handled.recv());
        next.await.expect("a command is handled").unwrap()
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
    }
}

pub fn consumer(kafka: &Kafka, topic: &str) -> KafkaConsumer {
    KafkaConsumer {
        brokers: vec![kafka.server.get("").to_owned()],
        topics: BTreeMap::from([(topic.to_owned(), KafkaTopic::default())]),
        group: kafka.name("group"),
        dead_letter_topic: kafka.name("dead"),
        reply_topics: [kafka.name("replies")].into(),
        ..KafkaConsumer::default()
    }
}

pub async fn produce(kafka: &Kafka, topic: &str, body: &[u8], headers: &[(&str, &str)]) {
    let producer: FutureProducer = kafka.config(Listener::Plain).create().unwrap();
    let mut list = OwnedHeaders::new();
    for (key, value) in headers {
        list = list.insert(Header { key, value: Some(*value) });
    }
    let record = FutureRecord::<str, [u8]>::to(topic).payload(body).headers(list);
    producer.send(record, TIMEOUT).await.unwrap();
}

/// What the group has committed, over all partitions.
pub async fn committed(kafka: &Kafka, group: &str, topic: &str, partitions: i32) -> i64 {
    let (mut config, topic) = (kafka.config(Listener::Plain), topic.to_owned());
    config.set("group.id", group);
    let ask = move || {
        let consumer: BaseConsumer = config.create().unwrap();
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition(&topic, partition);
        }
        let committed = consumer.committed_offsets(list, TIMEOUT).unwrap();
        let offsets = committed.elements().into_iter().map(|one| match one.offset() {
            Offset::Offset(offset) => offset,
            _ => 0,
        });
        offsets.sum()
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}

pub async fn until_committed(kafka: &Kafka, config: &KafkaConsumer, topic: &str, offset: i64) {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while committed(kafka, &config.group, topic, 3).await != offset {
        assert!(tokio::time::Instant::now() < deadline, "{offset} is not committed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_is_committed_when_its_command_is_settled_and_not_before() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.topic("settled", 3).await;
    let config = consumer(&kafka, &topic);
    let mut inlet = Inlet::start(&config, 1);
    for body in ["one", "two"] {
        let trace = [("traceparent", "00-1-2-01")];
        produce(&kafka, &topic, body.as_bytes(), &trace).await;
    }
    let first = inlet.next().await;
    assert_eq!(first.author.as_deref(), Some(topic.as_str()));
    assert_eq!(first.traceparent.as_deref(), Some("00-1-2-01"));
    assert_eq!(first.reply_to, None);
    until_committed(&kafka, &config, &topic, 1).await;
    inlet.script.permits.add_permits(1);
    inlet.next().await;
    until_committed(&kafka, &config, &topic, 2).await;
    inlet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_not_settled_is_delivered_again_after_a_crash() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.topic("crash", 1).await;
    let config = consumer(&kafka, &topic);
    let mut first = Inlet::start(&config, 1);
    for body in ["one", "two", "three"] {
        produce(&kafka, &topic, body.as_bytes(), &[]).await;
    }
    assert_eq!(first.next().await.body, "one");
    until_committed(&kafka, &config, &topic, 1).await;
    // It holds the second when it ends.
    first.running.abort();
    let mut second = Inlet::start(&config, 9);
    assert_eq!(second.next().await.body, "two");
    assert_eq!(second.next().await.body, "three");
    until_committed(&kafka, &config, &topic, 3).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_panics_and_what_is_too_large_become_dead_letters_and_the_next_is_handled() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.topic("poison", 1).await;
    let config = consumer(&kafka, &topic);
    let mut inlet = Inlet::start(&config, 9);
    produce(&kafka, &topic, b"poison", &[("traceparent", "00-1-2-01")]).await;
    produce(&kafka, &topic, &noise(BYTES_MAX + 1), &[]).await;
    produce(&kafka, &topic, b"panic", &[]).await;
    produce(&kafka, &topic, b"quoted", &[]).await;
    produce(&kafka, &topic, b"good", &[]).await;
    for body in ["poison", "panic", "quoted", "good"] {
        assert_eq!(inlet.next().await.body, body);
    }
    until_committed(&kafka, &config, &topic, 5).await;
    inlet.stop().await;
    let dead = read(&kafka, &config.dead_letter_topic).await;
    assert_eq!(dead.len(), 4);
    let header = |index: usize, name: &str| dead[index].headers.get(name).map(String::as_str);
    assert_eq!(header(0, "reason"), Some("it is poison"));
    assert_eq!(header(0, "field"), Some("spec.size"));
    assert_eq!(header(0, "traceparent"), Some("00-1-2-01"));
    assert_eq!(dead[0].body, b"poison");
    assert_eq!(header(1, "reason"), Some("10001 bytes are more than the 10000 that are allowed"));
    assert_eq!(header(1, "original-topic"), Some(topic.as_str()));
    assert_eq!(header(1, "original-partition"), Some("0"));
    assert_eq!(header(1, "original-offset"), Some("1"));
    assert!(dead[1].body.is_empty());
    assert!(header(2, "reason").is_some_and(|reason| reason.contains("panicked")));
    let long = |name: &str| header(3, name).map(str::len);
    assert_eq!((long("reason"), long("field")), (Some(4096), Some(256)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_its_topic_does_not_take_goes_without_the_message() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.topic("dead-large", 1).await;
    let config = consumer(&kafka, &topic);
    let small = NewTopic::new(&config.dead_letter_topic, 1, TopicReplication::Fixed(1));
    let small = small.set("max.message.bytes", "2000");
    admin(&kafka).create_topics([&small], &AdminOptions::new()).await.unwrap();
    let mut inlet = Inlet::start(&config, 9);
    // Larger than the topic of dead letters takes; it does not compress.
    let header: String = noise(4_000).iter().map(|byte| format!("{byte:02x}")).collect();
    produce(&kafka, &topic, b"poison", &[("large", &header)]).await;
    produce(&kafka, &topic, b"good", &[]).await;
    assert_eq!(inlet.next().await.body, "poison");
    assert_eq!(inlet.next().await.body, "good");
    until_committed(&kafka, &config, &topic, 2).await;
    inlet.stop().await;
    let dead = read(&kafka, &config.dead_letter_topic).await;
    assert_eq!(dead.len(), 1);
    assert!(dead[0].body.is_empty() && !dead[0].headers.contains_key("large"));
    assert_eq!(dead[0].headers["reason"], "it is poison");
    assert_eq!(dead[0].headers["original-offset"], "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_hangs_holds_up_its_partition_and_no_other() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.topic("hangs", 2).await;
    let config = consumer(&kafka, &topic);
    let producer: FutureProducer = kafka.config(Listener::Plain).create().unwrap();
    let send = async |partition: i32, body: String| {
        let record = FutureRecord::<str, str>::to(&topic).partition(partition).payload(&body);
        producer.send(record, TIMEOUT).await.unwrap();
    };
    send(0, "hangs".into()).await;
    // More than the client holds of one partition.
    futures::future::join_all((0..400).map(|n| send(0, format!("a{n}")))).await;
    let mut inlet = Inlet::start(&config, 100_000);
    futures::future::join_all((0..400).map(|n| send(1, format!("b{n}")))).await;
    let mut handled = Vec::new();
    while handled.len() < 400 {
        handled.push(text(inlet.next().await));
    }
    assert!(handled.iter().all(|body| body.starts_with('b')), "{handled:?}");
    inlet.running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_go_to_topics_that_are_allowed_and_to_no_others() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.topic("asked", 1).await;
    let config = consumer(&kafka, &topic);
    let (replies, other) = (kafka.name("replies"), kafka.topic("elsewhere", 1).await);
    let mut inlet = Inlet::start(&config, 9);
    produce(&kafka, &topic, b"a", &[("reply-to", &other), ("correlation-id", "1")]).await;
    produce(&kafka, &topic, b"b", &[("reply-to", &replies), ("correlation-id", "2")]).await;
    assert_eq!(inlet.next().await.reply_to, None);
    inlet.next().await;
    until_committed(&kafka, &config, &topic, 2).await;
    inlet.stop().await;
    assert!(read(&kafka, &other).await.is_empty());
    let answers = read(&kafka, &replies).await;
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].body, b"done b");
    assert_eq!(answers[0].headers["correlation-id"], "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_member_takes_partitions_over_and_no_command_is_missed() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.topic("shared", 3).await;
    let config = consumer(&kafka, &topic);
    let mut first = Inlet::start(&config, 100_000);
    let producer: FutureProducer = kafka.config(Listener::Plain).create().unwrap();
    let send = async |number: i32| {
        let (key, body) = (number.to_string(), number.to_string());
        let record = FutureRecord::to(&topic).key(&key).payload(&body);
        producer.send(record, TIMEOUT).await.unwrap();
    };
    futures::future::join_all((0..300).map(send)).await;
    let mut seen: Vec<String> = Vec::new();
    seen.push(text(first.next().await));
    let mut second = Inlet::start(&config, 100_000);
    // Until it has a share, and has handled of it.
    let mut number = 300;
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while second.handled.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the second member has no share");
        send(number).await;
        number += 1;
    }
    first.stop.cancel();
    (&mut first.running).await.unwrap().unwrap();
    for _ in 0..50 {
        send(number).await;
        number += 1;
    }
    until_committed(&kafka, &config, &topic, i64::from(number)).await;
    for inlet in [&mut first, &mut second] {
        while let Ok(incoming) = inlet.handled.try_recv() {
            seen.push(text(incoming));
        }
    }
    let missed = (0..number).filter(|number| !seen.contains(&number.to_string()));
    assert_eq!(missed.count(), 0);
    second.stop().await;
}

fn text(incoming: Incoming) -> String {
    String::from_utf8(incoming.body.to_vec()).unwrap()
}
