//! Consumers that note when each event arrived, and queues that keep little.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use lapin::options::{
    BasicConsumeOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ExchangeKind};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use testkit::kafka::{Kafka, Listener};
use testkit::rabbitmq::VHost;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::bus::{DEADLINE, EXCHANGE, PARTITIONS};

const QUEUE: &str = "all";
/// More than a light load has in flight.
const ARRIVED_MAX: usize = 4096;

/// Events as they arrive: their number, and when.
pub struct Reader {
    arrived: mpsc::Receiver<(i64, Instant)>,
    /// Reads RabbitMQ; the thread that reads Kafka ends when the receiver is gone.
    task: Option<JoinHandle<()>>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Reader {
    /// Reads what is committed of a topic.
    pub fn kafka(kafka: &Kafka, topic: &str) -> anyhow::Result<Reader> {
        let mut config = kafka.config(Listener::Plain);
        config.set("group.id", "none").set("isolation.level", "read_committed");
        config.set("enable.auto.commit", "false");
        let consumer: BaseConsumer = config.create()?;
        let mut assigned = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            assigned.add_partition_offset(topic, partition, Offset::Beginning)?;
        }
        consumer.assign(&assigned)?;
        let (sender, arrived) = mpsc::channel(ARRIVED_MAX);
        std::thread::spawn(move || {
            while !sender.is_closed() {
                let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else { continue };
                let now = Instant::now();
                let seq = number(message.payload().unwrap_or_default());
                if sender.blocking_send((seq, now)).is_err() {
                    return;
                }
            }
        });
        Ok(Reader { arrived, task: None })
    }

    /// Reads the queue of [`queue`].
    pub async fn rabbitmq(vhost: &VHost) -> anyhow::Result<Reader> {
        let connection = vhost.connect().await;
        let channel = connection.create_channel().await?;
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let consumer = channel.basic_consume(QUEUE.into(), "".into(), options, table());
        let mut consumer = consumer.await?;
        let (sender, arrived) = mpsc::channel(ARRIVED_MAX);
        let task = tokio::spawn(async move {
            // Both live as long as the task.
            let _open = (connection, channel);
            while let Some(Ok(delivery)) = consumer.next().await {
                let now = Instant::now();
                if sender.send((number(&delivery.data), now)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Reader { arrived, task: Some(task) })
    }

    pub async fn next(&mut self) -> anyhow::Result<(i64, Instant)> {
        let next = tokio::time::timeout(DEADLINE, self.arrived.recv()).await;
        next.ok().flatten().ok_or_else(|| anyhow::anyhow!("no event within {DEADLINE:?}"))
    }
}

/// The number of the event in a message.
fn number(body: &[u8]) -> i64 {
    let event: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    event["sequence"].as_i64().unwrap_or(0)
}

fn table() -> FieldTable {
    FieldTable::default()
}

/// Declares the exchange and a quorum queue that gets all of it, and keeps at most so many messages.
pub async fn queue(vhost: &VHost, length_max: Option<i64>) -> anyhow::Result<Connection> {
    let connection = vhost.connect().await;
    let channel = connection.create_channel().await?;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(EXCHANGE.into(), ExchangeKind::Topic, durable, table()).await?;
    let mut arguments = table();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    if let Some(most) = length_max {
        arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(most));
    }
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(QUEUE.into(), durable, arguments).await?;
    let options = QueueBindOptions::default();
    channel.queue_bind(QUEUE.into(), EXCHANGE.into(), "#".into(), options, table()).await?;
    Ok(connection)
}

/// How many messages the queue has.
pub async fn queue_length(connection: &Connection) -> anyhow::Result<u32> {
    let channel = connection.create_channel().await?;
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let queue = channel.queue_declare(QUEUE.into(), passive, table()).await?;
    channel.close(200, "done".into()).await?;
    Ok(queue.message_count())
}

/// Empties the queue.
pub async fn purge(connection: &Connection) -> anyhow::Result<()> {
    let channel = connection.create_channel().await?;
    channel.queue_purge(QUEUE.into(), Default::default()).await?;
    channel.close(200, "done".into()).await?;
    Ok(())
}
