//! Sends one batch: with transactions all of its messages and the position, or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use krafka::error::KrafkaError;
use krafka::producer::{DeliveryHandle, TransactionState, TransactionalProducer};
use krafka::{CloseOptions, Record};

use super::super::{Refused, Sent};
use super::position::StoredPosition;
use crate::model::{Message, Position};
use crate::ports::kafka::{failed, is_too_large, is_too_large_for_us};

const ABORT_TIMEOUT: Duration = Duration::from_secs(5);
/// A broker that is away must not hold up the next try.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) enum Producer {
    Transactional(Box<TransactionalProducer>),
    Idempotent(Box<krafka::producer::Producer>),
}

/// Where the position goes.
pub(super) struct Cursor<'a> {
    pub topic: &'a str,
    pub key: &'a str,
    pub position: Position,
    pub installation: &'a str,
}

impl Producer {
    pub async fn send(&self, messages: &[Message], cursor: Cursor<'_>) -> kernel::Result<Sent> {
        let too_large = match self {
            Producer::Transactional(producer) => {
                self.send_in_transactions(producer, messages, &cursor).await?
            }
            Producer::Idempotent(_) => self.send_idempotently(messages).await?,
        };
        let reason = |index: usize| {
            let (bytes, topic) = (messages[index].body.len(), &messages[index].to.name);
            format!(
                "{bytes} bytes are more than Kafka topic {topic} takes; raise max.message.bytes"
            )
        };
        let refused = too_large.into_iter().map(|index| Refused { index, reason: reason(index) });
        let refused: Vec<Refused> = refused.collect();
        Ok(match self {
            Producer::Transactional(_) if !refused.is_empty() => Sent::None(refused),
            _ => refused.into(),
        })
    }

    /// Fails what is still queued: the holder of the sink sends it again.
    pub async fn close(self) {
        let within = |timeout| CloseOptions::new().timeout(timeout);
        let closed = match self {
            // Aborts the open transaction, which readers would wait for.
            Producer::Transactional(producer) => producer.close_with(within(CLOSE_TIMEOUT)).await,
            Producer::Idempotent(producer) => producer.close_with(within(Duration::ZERO)).await,
        };
        if let Err(error) = closed {
            tracing::debug!(%error, "closing a producer of Kafka failed");
        }
    }

    async fn send_idempotently(&self, messages: &[Message]) -> kernel::Result<BTreeSet<usize>> {
        let mut refused = BTreeSet::new();
        let mut from = 0;
        loop {
            let skipped = (0..from).collect();
            let mut queued = self.enqueue_all(messages, &skipped, &BTreeSet::new()).await;
            // Sends what waits for more; the handles have the outcome.
            self.flush().await;
            let stopped = queued.stopped.take();
            for (index, error) in queued.failures().await {
                if !is_too_large(&error) {
                    return Err(not_sent(&messages[index], &error));
                }
                refused.insert(index);
            }
            match stopped {
                None => return Ok(refused),
                Some((index, error)) if is_too_large_for_us(&error) => {
                    refused.insert(index);
                    from = index + 1;
                }
                Some((index, error)) => return Err(not_sent(&messages[index], &error)),
            }
        }
    }

    /// Returns the messages that are too large; then nothing is sent. The client does not split batches
    /// within a transaction, so one that is too large fails with its neighbours; those are suspects,
    /// and each is sent alone the next time.
    async fn send_in_transactions(
        &self,
        producer: &TransactionalProducer,
        messages: &[Message],
        cursor: &Cursor<'_>,
    ) -> kernel::Result<BTreeSet<usize>> {
        let mut suspects = BTreeSet::new();
        loop {
            let done = self.transaction(producer, messages, cursor, &suspects).await;
            let Err((cause, too_large)) = done else { return Ok(BTreeSet::new()) };
            // Best effort: the next opening aborts it as well.
            let aborted = tokio::time::timeout(ABORT_TIMEOUT, producer.abort()).await;
            if too_large.is_empty() || !matches!(aborted, Ok(Ok(()))) {
                return Err(cause);
            }
            let alone = |index: &usize| too_large.len() == 1 || suspects.contains(index);
            let found: BTreeSet<usize> = too_large.iter().copied().filter(alone).collect();
            if !found.is_empty() {
                return Ok(found);
            }
            suspects.extend(too_large);
        }
    }

    /// One transaction. On failure it is still open, and the indexes are those that were too large,
    /// if that was the reason.
    async fn transaction(
        &self,
        producer: &TransactionalProducer,
        messages: &[Message],
        cursor: &Cursor<'_>,
        alone: &BTreeSet<usize>,
    ) -> Result<(), (kernel::Error, BTreeSet<usize>)> {
        let attempt = || format!("a transaction of {} in Kafka", cursor.key);
        let fatal = |error: KrafkaError| (failed(attempt(), &error, ""), BTreeSet::new());
        producer.begin().map_err(fatal)?;
        let queued = self.enqueue_all(messages, &BTreeSet::new(), alone).await;
        // A message that was not queued is not part of the transaction: it must not be committed.
        let committed = match &queued.stopped {
            None => self.commit(producer, cursor).await,
            Some((_, error)) => Err(error.clone()),
        };
        let Err(error) = committed else { return Ok(()) };
        if !matches!(producer.state(), TransactionState::Open) {
            return Err(fatal(error));
        }
        let stopped = queued.stopped.clone();
        let failures = queued.failures().await;
        let too_large: BTreeSet<usize> = match &stopped {
            Some((index, error)) if is_too_large_for_us(error) => [*index].into(),
            _ => failures.iter().filter(|one| is_too_large(one.1)).map(|one| *one.0).collect(),
        };
        let cause = match failures.iter().next() {
            Some((index, error)) => not_sent(&messages[*index], error),
            None => match &stopped {
                Some((index, error)) => not_sent(&messages[*index], error),
                None => failed(attempt(), &error, &format!("WRITE on topic {}", cursor.topic)),
            },
        };
        Err((cause, too_large))
    }

    /// Waits for all messages and the position, and fails if one has failed.
    async fn commit(
        &self,
        producer: &TransactionalProducer,
        cursor: &Cursor<'_>,
    ) -> krafka::Result<()> {
        let installation = cursor.installation.to_owned();
        let stored = StoredPosition { position: cursor.position, installation };
        let position = serde_json::to_vec(&stored).expect("our own types serialise");
        let record = Record::new(cursor.topic, position).key(cursor.key.to_owned()).partition(0);
        let _at_commit = self.enqueue(record).await?;
        producer.commit().await
    }

    async fn enqueue_all(
        &self,
        messages: &[Message],
        skipped: &BTreeSet<usize>,
        alone: &BTreeSet<usize>,
    ) -> Queued {
        let mut queued = Queued::default();
        for (index, message) in messages.iter().enumerate() {
            if skipped.contains(&index) {
                continue;
            }
            let by_itself = alone.contains(&index);
            if by_itself {
                self.flush().await;
            }
            match self.enqueue(record(message)).await {
                Ok(handle) => queued.handles.push((index, handle)),
                Err(error) => {
                    queued.stopped = Some((index, error));
                    break;
                }
            }
            if by_itself {
                self.flush().await;
            }
        }
        queued
    }

    async fn flush(&self) {
        let flushed = match self {
            Producer::Transactional(producer) => producer.flush().await,
            Producer::Idempotent(producer) => producer.flush().await,
        };
        // The handles of the records have the same error.
        if let Err(error) = flushed {
            tracing::debug!(%error, "flushing a producer of Kafka failed");
        }
    }

    async fn enqueue(&self, record: Record) -> krafka::Result<DeliveryHandle> {
        match self {
            Producer::Transactional(producer) => producer.enqueue(record).await,
            Producer::Idempotent(producer) => producer.enqueue(record).await,
        }
    }
}

/// Messages on their way.
#[derive(Default)]
struct Queued {
    handles: Vec<(usize, DeliveryHandle)>,
    /// The first that was not queued, and why; none after it is.
    stopped: Option<(usize, KrafkaError)>,
}

impl Queued {
    /// Waits for all that are queued, and returns why some were not delivered, by their index.
    async fn failures(self) -> BTreeMap<usize, KrafkaError> {
        let mut failures = BTreeMap::new();
        for (index, handle) in self.handles {
            if let Err(error) = handle.await {
                failures.insert(index, error);
            }
        }
        failures
    }
}

fn not_sent(message: &Message, error: &KrafkaError) -> kernel::Error {
    let topic = &message.to.name;
    failed(format!("sending to Kafka topic {topic}"), error, &format!("WRITE on topic {topic}"))
}

/// The Kafka binding of CloudEvents: attributes have the prefix `ce_`.
fn record(message: &Message) -> Record {
    let mut record = Record::new(message.to.name.as_str(), message.body.clone())
        .header("content-type", message.content_type);
    if !message.key.is_empty() {
        record = record.key(message.key.clone());
    }
    for (name, value) in &message.attributes {
        if name == "traceparent" {
            record = record.header("traceparent", value.clone());
        }
        record = record.header(format!("ce_{name}"), value.clone());
    }
    record
}
