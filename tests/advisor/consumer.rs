//! An independent consumer of committed records, and the check of what it got.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::Value;
use support::wait_for;
use testkit::kafka::{Kafka, Listener};

use crate::stage::Topics;

/// A message as the consumer got it.
#[derive(Debug, Clone)]
pub struct Received {
    pub topic: String,
    pub key: Option<String>,
    /// When its producer made it.
    pub at_ms: i64,
    pub body: Value,
}

impl Received {
    pub fn job(&self) -> &str {
        self.body["summary"]["job_id"].as_str().unwrap_or_default()
    }

    pub fn experiments(&self) -> Vec<&str> {
        let experiments = self.body["experiments"].as_object();
        experiments.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }
}

/// Collects what comes until it is dropped.
#[derive(Clone, Default)]
pub struct Consumer(Arc<Mutex<Vec<Received>>>);

impl Consumer {
    /// Reads all partitions of the topics, which exist, from the beginning.
    pub fn start(kafka: &Kafka, topics: &Topics) -> Consumer {
        let mut config = kafka.config(Listener::Plain);
        config.set("group.id", "none").set("isolation.level", "read_committed");
        config.set("enable.auto.commit", "false");
        let source: BaseConsumer = config.create().expect("a consumer");
        let mut assigned = TopicPartitionList::new();
        for topic in topics.all() {
            for partition in 0..Topics::PARTITIONS {
                let from = Offset::Beginning;
                assigned.add_partition_offset(topic, partition, from).expect("valid");
            }
        }
        source.assign(&assigned).expect("assigned");
        let consumer = Consumer::default();
        let into = consumer.clone();
        std::thread::spawn(move || {
            // Until only this thread has it.
            while Arc::strong_count(&into.0) > 1 {
                let Some(Ok(message)) = source.poll(Duration::from_millis(100)) else { continue };
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                into.0.lock().unwrap().push(Received {
                    topic: message.topic().to_owned(),
                    key: message.key().map(text),
                    at_ms: message.timestamp().to_millis().unwrap_or_default(),
                    body: serde_json::from_slice(message.payload().unwrap()).unwrap(),
                });
            }
        });
        consumer
    }

    pub fn all(&self) -> Vec<Received> {
        self.0.lock().unwrap().clone()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Waits for the summary of a job.
    pub async fn summary(&self, topics: &Topics, job: &str) -> Received {
        let mut found = None;
        wait_for("the summary", async || {
            let all = self.all();
            found = all.into_iter().find(|one| one.topic == topics.summary && one.job() == job);
            found.is_some()
        })
        .await;
        found.unwrap()
    }
}

/// Waits for the whole of a job, and checks it: each experiment exactly once, and the summary once and
/// last. Returns how many messages of experiments per second there were.
pub async fn settle(
    kafka: &Kafka,
    topics: &Topics,
    consumer: &Consumer,
    job: &str,
    expected: &BTreeSet<String>,
) -> f64 {
    let summary = consumer.summary(topics, job).await;
    let shown = &summary.body["summary"];
    assert_eq!(
        (&shown["status"], &shown["processed_experiments"]),
        (&"COMPLETED".into(), &expected.len().into())
    );
    // Who has the summary finds everything else: by a consumer that begins only now.
    let late = Consumer::start(kafka, topics);
    wait_for("the rest of the job", async || {
        late.all().iter().filter(|one| one.job() == job).count() > expected.len()
    })
    .await;
    let mine: Vec<Received> =
        consumer.all().into_iter().chain(late.all()).filter(|one| one.job() == job).collect();
    for one in &mine {
        assert!(one.at_ms <= summary.at_ms, "{} came after the summary", one.body["summary"]);
    }
    assert_eq!(summary.key.as_deref(), Some(job));
    // Whatever still comes would be one too many.
    let counted = Instant::now();
    wait_for("the first consumer", async || {
        counted.elapsed() > Duration::from_secs(2)
            && consumer.all().iter().filter(|one| one.job() == job).count() > expected.len()
    })
    .await;
    for consumer in [consumer, &late] {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let (mut summaries, mut times) = (0, Vec::new());
        for one in consumer.all().iter().filter(|one| one.job() == job) {
            if one.topic == topics.summary {
                summaries += 1;
                continue;
            }
            assert_eq!(one.topic, topics.recommendations, "{}", one.body);
            let [name] = one.experiments()[..] else { panic!("{}", one.body) };
            assert_eq!(one.key.as_deref(), Some(name));
            *counts.entry(name.to_owned()).or_default() += 1;
            times.push(one.at_ms);
        }
        assert_eq!(summaries, 1);
        let doubled: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
        assert!(doubled.is_empty(), "{} of {} came twice", doubled.len(), counts.len());
        assert_eq!(counts.into_keys().collect::<BTreeSet<_>>(), *expected);
    }
    let times: Vec<i64> = mine.iter().map(|one| one.at_ms).collect();
    let took = times.iter().max().unwrap() - times.iter().min().unwrap();
    expected.len() as f64 / (took.max(1) as f64 / 1000.0)
}

/// A dead letter.
#[derive(Debug, Clone)]
pub struct Dead {
    pub reason: String,
    /// The topic that it was on.
    pub topic: String,
}

impl Dead {
    /// Waits for so many, on a topic of one partition.
    pub async fn read(kafka: &Kafka, topic: &str, count: i64) -> Vec<Dead> {
        let mut config = kafka.config(Listener::Plain);
        config.set("group.id", "none").set("enable.auto.commit", "false");
        let topic = topic.to_owned();
        let read = move || {
            let source: BaseConsumer = config.create().expect("a consumer");
            let mut assigned = TopicPartitionList::new();
            assigned.add_partition_offset(&topic, 0, Offset::Beginning).expect("valid");
            source.assign(&assigned).expect("assigned");
            let (begun, mut found) = (Instant::now(), Vec::new());
            while (found.len() as i64) < count {
                assert!(begun.elapsed() < support::DEADLINE, "{count} dead letters: {found:?}");
                let Some(Ok(message)) = source.poll(Duration::from_millis(100)) else { continue };
                let headers = message.headers().expect("headers");
                let header = |name: &str| {
                    let found = headers.iter().find(|header| header.key == name);
                    let value = found.and_then(|header| header.value).unwrap_or_default();
                    String::from_utf8(value.to_vec()).unwrap()
                };
                found.push(Dead { reason: header("reason"), topic: header("original-topic") });
            }
            found
        };
        tokio::task::spawn_blocking(read).await.unwrap()
    }
}
