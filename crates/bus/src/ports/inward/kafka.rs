//! Commands from Kafka: a consumer group, one task per partition, and an offset that is committed
//! when its record is settled.

mod partitions;
mod publish;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernel::outbound::Outbound;
use kernel::{Error, Result};
use krafka::CloseOptions;
use krafka::consumer::{AutoOffsetReset, Consumer, IsolationLevel};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::partitions::{Partitions, SettledRecord, Work};
use self::publish::Publisher;
use super::{Handler, Reply};
use crate::model::settings::KafkaConsumer;
use crate::ports::kafka::{Access, CALL_TIMEOUT, Connection, Topics, failed};

/// The group gives the partitions of a member that has died to others after this long.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Of one poll.
const RECORDS_MAX: i32 = 64;
const FETCH_BYTES_MAX: i32 = 4 << 20;
const POLL: Duration = Duration::from_millis(200);
const IDLE: Duration = Duration::from_millis(5);
/// Errors that pass are tolerated for this long before the connection is replaced.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
const CREDENTIALS_CHECK: Duration = Duration::from_secs(1);
/// Answers that wait to be published. More are dropped.
const REPLIES_MAX: usize = 256;
const SETTLED_MAX: usize = 256;
/// For tasks and the last commit when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Receives commands until `stop`. An error says that the connection is broken; run it again after a
/// while.
pub async fn run(
    name: &str,
    config: &KafkaConsumer,
    outbound: &Outbound,
    bytes_max: usize,
    handler: Arc<dyn Handler>,
    stop: CancellationToken,
) -> Result<()> {
    let key = format!("bus.consumers.{name}.kafka");
    let (tls, sasl) = (config.tls.as_ref(), config.sasl.as_ref());
    let access = Access::new(&key, &config.brokers, tls, sasl, outbound)?;
    let started = stop.run_until_cancelled(start(name, config, &access)).await;
    let Some(started) = started else { return Ok(()) };
    let (connection, publisher) = started?;
    let (replies, mut waiting) = mpsc::channel::<Reply>(REPLIES_MAX);
    let (settled, mut to_commit) = mpsc::channel::<SettledRecord>(SETTLED_MAX);
    let publisher = Arc::new(publisher);
    let work = Work {
        handler: handler.clone(),
        replies,
        publisher: publisher.clone(),
        reply_topics: config.reply_topics.clone(),
        commands: commands(config),
        bytes_max,
        settled,
    };
    let partitions = Arc::new(Partitions::new(work));
    let consumer = subscribe(config, &connection, partitions.clone()).await?;
    handler.receives();

    let polling = poll(&consumer, &partitions, &config.group);
    let committing = commit(&consumer, &partitions, &mut to_commit);
    // Not dropped before the end: an answer that was taken from the channel would be lost.
    let (busy, outbox) = (AtomicBool::new(false), partitions.replies());
    let answering = publisher.answer(&mut waiting, &busy);
    tokio::pin!(answering);
    let ended = tokio::select! {
        () = stop.cancelled() => Ok(()),
        result = polling => result,
        result = committing => result,
        error = partitions.broken() => Err(error),
        () = credentials_changed(&access, &connection) => Err(Error::unavailable(
            format!("the connection to Kafka of consumer {name}"),
            "its credentials or certificates have changed; opening it with the new ones",
        )),
        () = &mut answering => Ok(()),
    };
    if ended.is_ok() {
        // The handlers see that the server stops; what they have finished is committed.
        let last = async {
            partitions.finish().await;
            while outbox.capacity() < REPLIES_MAX || busy.load(Ordering::Acquire) {
                tokio::time::sleep(IDLE).await;
            }
            if let Err(error) = commit_waiting(&consumer, &partitions, &mut to_commit, None).await {
                tracing::warn!(consumer = name, %error, "the last commit failed");
            }
        };
        let last = tokio::time::timeout(STOP_TIMEOUT, last);
        let finished = tokio::select! {
            finished = last => finished.is_ok(),
            () = &mut answering => false,
        };
        if !finished {
            tracing::warn!(consumer = name, "commands are not finished; they are delivered again");
        }
    }
    partitions.abort();
    let options = CloseOptions::new().timeout(STOP_TIMEOUT);
    if let Err(error) = consumer.close_with(options).await {
        tracing::debug!(consumer = name, %error, "leaving the consumer group failed");
    }
    ended
}

/// The commands of topics whose records have no envelope.
fn commands(config: &KafkaConsumer) -> BTreeMap<String, String> {
    let topics = config.topics.iter();
    topics.filter_map(|(name, topic)| Some((name.clone(), topic.command.clone()?))).collect()
}

async fn start(
    name: &str,
    config: &KafkaConsumer,
    access: &Access,
) -> Result<(Connection, Publisher)> {
    let connection = access.connect(&format!("mainstay-{name}")).await?;
    let topics =
        Topics { create: config.create_topics, partitions: None, replication_factor: None };
    for topic in config.topics.keys() {
        let acl = format!("READ and DESCRIBE on topic {topic}");
        topics.ensure(&connection.kafka, topic, &acl).await?;
    }
    for topic in config.reply_topics.iter().chain([&config.dead_letter_topic]) {
        let acl = format!("WRITE and DESCRIBE on topic {topic}");
        topics.ensure(&connection.kafka, topic, &acl).await?;
    }
    let publisher = Publisher::new(&connection.kafka, &config.dead_letter_topic).await?;
    Ok((connection, publisher))
}

async fn subscribe(
    config: &KafkaConsumer,
    connection: &Connection,
    partitions: Arc<Partitions>,
) -> Result<Consumer> {
    let joining = |error| {
        let attempt = format!("joining consumer group {} of Kafka", config.group);
        failed(attempt, &error, &format!("READ on group {}", config.group))
    };
    let consumer = connection
        .kafka
        .consumer(&config.group)
        .enable_auto_commit(false)
        // A group without offsets must not miss the commands that are there already.
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .isolation_level(IsolationLevel::ReadCommitted)
        .session_timeout(SESSION_TIMEOUT)
        .heartbeat_interval(HEARTBEAT)
        .max_poll_records(RECORDS_MAX)
        // No limit over all partitions: one that is paused would keep the others from being fetched. None
        // is fetched again before what is here of it is taken.
        .max_buffered_records(0)
        .fetch_max_bytes(FETCH_BYTES_MAX)
        .metrics_push(false)
        .rebalance_listener(partitions)
        .build()
        .await
        .map_err(joining)?;
    consumer.subscribe(config.topics.keys()).await.map_err(joining)?;
    Ok(consumer)
}

/// Hands records to the tasks of their partitions. A partition whose task is busy is paused.
async fn poll(consumer: &Consumer, partitions: &Partitions, group: &str) -> Result<()> {
    let mut failing_since = None;
    loop {
        match consumer.poll(POLL).await {
            Ok(records) => {
                failing_since = None;
                for (partition, records) in partitions.accept(records) {
                    tracing::debug!(?partition, waiting = records, "paused a partition");
                    consumer.pause(&partition.topic, &[partition.partition]).await;
                }
            }
            Err(error) => {
                let since = *failing_since.get_or_insert_with(tokio::time::Instant::now);
                if !error.is_retriable() || since.elapsed() > RETRY_TIMEOUT {
                    let attempt = format!("receiving from Kafka as group {group}");
                    let acl = format!("READ on group {group} and on its topics");
                    return Err(failed(attempt, &error, &acl));
                }
                tracing::debug!(%error, "receiving from Kafka failed; retrying");
                tokio::time::sleep(POLL).await;
            }
        }
        for partition in partitions.drained() {
            consumer.resume(&partition.topic, &[partition.partition]).await;
        }
    }
}

async fn commit(
    consumer: &Consumer,
    partitions: &Partitions,
    settled: &mut mpsc::Receiver<SettledRecord>,
) -> Result<()> {
    while let Some(first) = settled.recv().await {
        commit_waiting(consumer, partitions, settled, Some(first)).await?;
    }
    Ok(())
}

async fn commit_waiting(
    consumer: &Consumer,
    partitions: &Partitions,
    settled: &mut mpsc::Receiver<SettledRecord>,
    first: Option<SettledRecord>,
) -> Result<()> {
    let rest = std::iter::from_fn(|| settled.try_recv().ok());
    let offsets = partitions.owned(first.into_iter().chain(rest));
    if offsets.is_empty() {
        return Ok(());
    }
    let committed = tokio::time::timeout(CALL_TIMEOUT, consumer.commit_offsets(&offsets)).await;
    match committed {
        Ok(Ok(())) => Ok(()),
        // The group has moved on; the new owners of the partitions receive the records again.
        Ok(Err(error)) if partitions::is_rebalance(&error) => {
            tracing::debug!(%error, "offsets were not committed");
            Ok(())
        }
        Ok(Err(error)) => Err(failed("committing offsets to Kafka", &error, "READ on the group")),
        Err(_) => Err(Error::unavailable("committing offsets to Kafka", "it took too long")),
    }
}

async fn credentials_changed(access: &Access, connection: &Connection) {
    while !access.changed(connection) {
        tokio::time::sleep(CREDENTIALS_CHECK).await;
    }
}
