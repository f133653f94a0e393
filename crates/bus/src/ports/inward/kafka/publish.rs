//! What the inlet publishes: dead letters, which must arrive, and answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kernel::Result;
use krafka::consumer::ConsumerRecord;
use krafka::error::KrafkaError;
use krafka::producer::Producer;
use krafka::{Kafka, Record};
use tokio::sync::mpsc;

use super::super::{DeadLetter, Reply};
use crate::model::without_token;
use crate::ports::kafka::{failed, is_too_large, producer};

/// Answers that are not acknowledged yet.
const SENDING_MAX: usize = 256;
/// For a place in the producer's buffer. A topic that is gone must not hold up answers to others.
const ENQUEUE_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Publisher {
    producer: Producer,
    dead_letter_topic: String,
}

impl Publisher {
    pub async fn new(kafka: &Kafka, dead_letter_topic: &str) -> Result<Publisher> {
        let producer = producer(kafka).build().await.map_err(|error| {
            let acl = "IDEMPOTENT_WRITE on the cluster";
            failed("opening a producer of Kafka for dead letters and answers", &error, acl)
        })?;
        Ok(Publisher { producer, dead_letter_topic: dead_letter_topic.into() })
    }

    /// Returns when the broker has it. One that is too large for its topic goes without what it holds of
    /// the original: where that is it says.
    pub async fn dead_letter(
        &self,
        original: &ConsumerRecord,
        why: &DeadLetter,
        with_body: bool,
    ) -> Result<()> {
        let topic = &self.dead_letter_topic;
        let ConsumerRecord { partition, offset, .. } = original;
        let (reason, field) = (&why.reason, why.field.as_deref().unwrap_or_default());
        tracing::warn!(topic = &*original.topic, partition, offset, reason, field, "dead letter");
        let mut sent = self.producer.send(dead_letter(topic, original, why, with_body)).await;
        if sent.as_ref().is_err_and(is_too_large) {
            sent = self.producer.send(about(Record::new(topic.as_str(), ""), original, why)).await;
        }
        sent.map(drop).map_err(|error| {
            let acl = format!("WRITE on topic {topic}");
            failed(format!("publishing a dead letter to Kafka topic {topic}"), &error, &acl)
        })
    }

    /// Publishes answers until there are no more senders. `busy` says whether some are on their way.
    ///
    /// An answer that cannot be published is lost: its command is recorded, and can be asked for.
    pub async fn answer(&self, waiting: &mut mpsc::Receiver<Reply>, busy: &AtomicBool) {
        let mut sending = FuturesUnordered::new();
        loop {
            busy.store(!sending.is_empty(), Ordering::Release);
            let outcome = tokio::select! {
                reply = waiting.recv(), if sending.len() < SENDING_MAX => {
                    let Some(reply) = reply else { return };
                    busy.store(true, Ordering::Release);
                    let enqueued = self.producer.enqueue(record(reply));
                    match tokio::time::timeout(ENQUEUE_TIMEOUT, enqueued).await {
                        Ok(Ok(handle)) => {
                            sending.push(handle);
                            continue;
                        }
                        Ok(Err(error)) => Err(error),
                        Err(_) => Err(KrafkaError::timeout("a place in the buffer")),
                    }
                }
                Some(sent) = sending.next() => sent.map(drop),
            };
            if let Err(error) = outcome {
                tracing::warn!(%error, "publishing an answer to Kafka failed");
            }
        }
    }
}

/// The original with its key and headers.
fn dead_letter(
    topic: &str,
    original: &ConsumerRecord,
    why: &DeadLetter,
    with_body: bool,
) -> Record {
    let body = original.value.as_ref().filter(|_| with_body).map(without_token).unwrap_or_default();
    let mut record = Record::new(topic, body);
    if let Some(key) = &original.key {
        record = record.key(key.clone());
    }
    const OURS: [&str; 5] =
        ["reason", "field", "original-topic", "original-partition", "original-offset"];
    let kept = original.headers.iter().filter(|(name, _)| !OURS.contains(&name.as_str()));
    for (name, value) in kept {
        record = match value {
            Some(value) => record.header(name.clone(), value.clone()),
            None => record.null_header(name.clone()),
        };
    }
    about(record, original, why)
}

/// Says why, and where the original is.
fn about(record: Record, original: &ConsumerRecord, why: &DeadLetter) -> Record {
    let mut record = record.header("reason", why.reason.clone());
    if let Some(field) = &why.field {
        record = record.header("field", field.clone());
    }
    record
        .header("original-topic", Bytes::copy_from_slice(original.topic.as_bytes()))
        .header("original-partition", original.partition.to_string())
        .header("original-offset", original.offset.to_string())
}

fn record(reply: Reply) -> Record {
    let mut record =
        Record::new(reply.to.address, reply.body).header("content-type", "application/json");
    if let Some(id) = reply.to.correlation_id {
        // Answers to one command stay in order.
        record = record.key(id.clone()).header("correlation-id", id);
    }
    if let Some(traceparent) = reply.traceparent {
        record = record.header("traceparent", traceparent);
    }
    record
}
