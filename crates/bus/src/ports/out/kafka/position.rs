//! Reads back the position of a sink: the newest committed record of its cursor topic.
//!
//! Each sink has a cursor topic of its own. In a shared one the open transaction of another sink would
//! hide our newest record from committed reads, and an older position would deliver events twice.

use std::ops::Range;
use std::time::Duration;

use kernel::{Error, Result};
use krafka::admin::{DescribeTransactionsOptions, ListOffsetsOptions, OffsetSpec, TopicPartition};
use krafka::consumer::{AutoOffsetReset, Consumer, IsolationLevel};
use krafka::error::{ErrorCode, KrafkaError};
use krafka::{CloseOptions, Kafka};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::model::Position;
use crate::ports::kafka::{CALL_TIMEOUT, failed, has_code};

/// The newest record is among the last few, unless many transactions were aborted after it.
const FIRST_STEP: i64 = 64;
const POLL: Duration = Duration::from_millis(500);

/// A broker that runs writes the end of a transaction within this time.
const HANGING_AFTER: Duration = Duration::from_secs(3);

/// The record of a position.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredPosition {
    #[serde(flatten)]
    pub position: Position,
    /// Which installation of Mainstay it belongs to.
    #[serde(default)]
    pub installation: String,
}

pub(super) enum Last {
    /// Of the newest transaction that was committed.
    Committed(Option<Position>),
    /// Of a transaction that was committed, but whose end is missing in the topic.
    Hanging(Position),
}

/// Whether the newest transaction of an id was committed, as the coordinator knows it. Ask before the
/// producer is initialised: then it is forgotten.
pub(super) async fn was_committed(kafka: &Kafka, id: &str) -> bool {
    let options = DescribeTransactionsOptions::default().timeout(CALL_TIMEOUT);
    let described = kafka.admin().describe_transactions([id], options).await;
    let state = described.ok().and_then(|mut all| all.remove(id)).and_then(Result::ok);
    state.is_some_and(|described| described.state == "CompleteCommit")
}

/// Call it when every earlier transaction of the sink has ended.
///
/// A broker that is killed while it ends a transaction can lose the end: Kafka 4.3 with one node was
/// seen to record the commit when it started again, without writing it to the topics (decision 0021).
/// The sink's next transaction ends it, too, in the partitions that it writes to.
pub(super) async fn read(kafka: &Kafka, topic: &str, committed: bool) -> Result<Last> {
    let acl = format!("READ and DESCRIBE on topic {topic}");
    let read = read_last(kafka, topic, committed).await;
    let attempt = || format!("reading the position in Kafka topic {topic}");
    let (value, hanging) = read.map_err(|error| failed(attempt(), &error, &acl))?;
    let position = value.map(|value| parse(topic, &value)).transpose()?;
    Ok(match position.map(|stored| stored.position) {
        Some(position) if hanging => Last::Hanging(position),
        position => Last::Committed(position),
    })
}

/// Refuses a topic that another installation writes to. Before the producer is initialised: that would
/// shut out its rightful holder.
pub(super) async fn check_owner(kafka: &Kafka, topic: &str, installation: &str) -> Result<()> {
    let newest = async {
        let start = offset(kafka, topic, OffsetSpec::Earliest, false).await?;
        let end = offset(kafka, topic, OffsetSpec::Latest, false).await?;
        // Of open and aborted transactions, too: what matters is who writes.
        newest_before(kafka, topic, start..end, IsolationLevel::ReadUncommitted).await
    };
    let acl = format!("READ and DESCRIBE on topic {topic}");
    let attempt = || format!("reading the position in Kafka topic {topic}");
    let newest = newest.await.map_err(|error| failed(attempt(), &error, &acl))?;
    let Some(newest) = newest else { return Ok(()) };
    let owner = parse(topic, &newest)?.installation;
    if owner.is_empty() || owner == installation {
        return Ok(());
    }
    let why = format!(
        "it belongs to another installation of Mainstay ({owner}; this one is {installation}): give the \
         sink another name, or delete the topic if that installation is gone"
    );
    Err(Error::unavailable(format!("using Kafka topic {topic}"), why))
}

fn parse(topic: &str, value: &[u8]) -> Result<StoredPosition> {
    let what = || format!("the position in Kafka topic {topic} is not one of ours");
    serde_json::from_slice(value).map_err(|error| Error::internal(what(), error))
}

async fn read_last(
    kafka: &Kafka,
    topic: &str,
    committed: bool,
) -> krafka::Result<(Option<Vec<u8>>, bool)> {
    let (started, deadline) = (Instant::now(), Instant::now() + CALL_TIMEOUT);
    let start = offset(kafka, topic, OffsetSpec::Earliest, false).await?;
    let end = offset(kafka, topic, OffsetSpec::Latest, false).await?;
    loop {
        // What is not stable yet belongs to a transaction whose end the broker is writing.
        let stable = offset(kafka, topic, OffsetSpec::Latest, true).await?;
        if stable >= end {
            break;
        }
        if committed && started.elapsed() > HANGING_AFTER {
            // Only one transaction of a sink is open at a time: this is the newest.
            let consumer = consumer(kafka, topic, IsolationLevel::ReadUncommitted).await?;
            let found = last_between(&consumer, topic, stable..end, deadline).await?;
            return Ok((found, true));
        }
        if Instant::now() > deadline {
            return Err(KrafkaError::timeout(format!(
                "the end of the transaction at offset {stable}; if it hangs, abort it with \
                 kafka-transactions.sh abort --topic {topic} --partition 0 --start-offset {stable}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let found = newest_before(kafka, topic, start..end, IsolationLevel::ReadCommitted).await?;
    Ok((found, false))
}

/// The newest record in a range of offsets, searched backwards in growing steps.
async fn newest_before(
    kafka: &Kafka,
    topic: &str,
    offsets: Range<i64>,
    isolation: IsolationLevel,
) -> krafka::Result<Option<Vec<u8>>> {
    if offsets.is_empty() {
        return Ok(None);
    }
    let deadline = Instant::now() + CALL_TIMEOUT;
    let consumer = consumer(kafka, topic, isolation).await?;
    let (mut until, mut step, mut found) = (offsets.end, FIRST_STEP, None);
    while found.is_none() && until > offsets.start {
        let from = (until - step).max(offsets.start);
        found = last_between(&consumer, topic, from..until, deadline).await?;
        (until, step) = (from, step * 16);
    }
    let _ = consumer.close_with(CloseOptions::new().timeout(Duration::from_secs(1))).await;
    Ok(found)
}

async fn consumer(
    kafka: &Kafka,
    topic: &str,
    isolation: IsolationLevel,
) -> krafka::Result<Consumer> {
    let builder = kafka.consumer_without_group().isolation_level(isolation);
    let builder = builder.auto_offset_reset(AutoOffsetReset::Earliest).metrics_push(false);
    let consumer = builder.build().await?;
    consumer.assign(topic, vec![0]).await?;
    Ok(consumer)
}

async fn last_between(
    consumer: &Consumer,
    topic: &str,
    offsets: Range<i64>,
    deadline: Instant,
) -> krafka::Result<Option<Vec<u8>>> {
    consumer.seek(topic, 0, offsets.start).await?;
    let mut last = None;
    // Aborted records and the marks of transactions move the position, too.
    while consumer.position(topic, 0).await.is_none_or(|position| position < offsets.end) {
        if Instant::now() > deadline {
            return Err(KrafkaError::timeout("the records of the topic"));
        }
        for record in consumer.poll(POLL).await? {
            if offsets.contains(&record.offset)
                && let Some(value) = record.value
            {
                last = Some(value.to_vec());
            }
        }
    }
    Ok(last)
}

/// The caller has seen that the topic exists: a broker that does not know it yet is asked again.
async fn offset(kafka: &Kafka, topic: &str, spec: OffsetSpec, stable: bool) -> krafka::Result<i64> {
    let partition = TopicPartition::new(topic, 0);
    let deadline = Instant::now() + CALL_TIMEOUT;
    loop {
        let options = ListOffsetsOptions::default().read_committed(stable).timeout(CALL_TIMEOUT);
        let mut all = kafka.admin().list_offsets([(partition.clone(), spec)], options).await?;
        let answer = all.remove(&partition);
        match answer.unwrap_or_else(|| Err(KrafkaError::timeout("offsets"))) {
            Err(error)
                if has_code(&error, ErrorCode::UnknownTopicOrPartition)
                    && Instant::now() < deadline =>
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            listed => return listed.map(|listed| listed.offset),
        }
    }
}
