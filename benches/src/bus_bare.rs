//! Bare producers: the same clients with the same guarantees as the relay, and nothing else.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bus::model::{Message, Position};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use krafka::producer::{Producer, ProducerBuilder, TransactionalProducer};
use krafka::{Compression, Record};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use testkit::kafka::Kafka;
use testkit::rabbitmq::VHost;

/// Confirmations that a bare producer waits for at the same time.
const IN_FLIGHT: usize = 1024;

pub enum Bare {
    /// The batch and a position in one transaction.
    Transactions(Box<TransactionalProducer>, String),
    /// At least once, in order.
    Idempotent(Box<Producer>),
    /// Persistent, mandatory, confirmed.
    Confirms(Box<Connection>, Channel),
}

impl Bare {
    /// `name` is for its transactional id and the topic of its positions.
    pub async fn transactions(kafka: &Kafka, name: &str) -> anyhow::Result<Bare> {
        let positions = kafka.topic(&format!("{name}-positions"), 1).await;
        let producer = producer(kafka).await?;
        let producer = producer.build_transactional(&kafka.name(name)).await?;
        Ok(Bare::Transactions(Box::new(producer), positions))
    }

    pub async fn idempotent(kafka: &Kafka) -> anyhow::Result<Bare> {
        let producer = producer(kafka).await?.build().await?;
        Ok(Bare::Idempotent(Box::new(producer)))
    }

    pub async fn confirms(vhost: &VHost) -> anyhow::Result<Bare> {
        let connection = vhost.connect().await;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Bare::Confirms(Box::new(connection), channel))
    }

    /// Returns when all messages are durable. With transactions: in one.
    pub async fn publish(&self, messages: &[Message]) -> anyhow::Result<()> {
        match self {
            Bare::Transactions(producer, positions) => {
                producer.begin()?;
                for message in messages {
                    let _at_commit = producer.enqueue(record(message)).await?;
                }
                let seq = messages.last().map_or(0, |last| last.seq);
                let position = serde_json::to_vec(&Position { seq, ..Position::default() })?;
                let record = Record::new(positions.as_str(), position).key("bare").partition(0);
                let _at_commit = producer.enqueue(record).await?;
                producer.commit().await?;
            }
            Bare::Idempotent(producer) => {
                let mut handles = Vec::with_capacity(messages.len());
                for message in messages {
                    handles.push(producer.enqueue(record(message)).await?);
                }
                producer.flush().await?;
                for handle in handles {
                    let _delivered = handle.await?;
                }
            }
            Bare::Confirms(_, channel) => confirmed(channel, messages).await?,
        }
        Ok(())
    }

    pub async fn close(self) -> anyhow::Result<()> {
        match self {
            Bare::Transactions(producer, _) => producer.close().await?,
            Bare::Idempotent(producer) => producer.close().await?,
            Bare::Confirms(connection, _) => connection.close(200, "done".into()).await?,
        }
        Ok(())
    }
}

/// The settings of the relay.
async fn producer(kafka: &Kafka) -> anyhow::Result<ProducerBuilder> {
    let client = krafka::Kafka::builder(kafka.server.get("")).client_id("bare").connect().await?;
    let builder = client.producer().compression(Compression::Lz4).buffer_memory(16 << 20);
    Ok(builder.batch_size(256 << 10).linger(Duration::from_millis(2)).metrics_push(false))
}

fn record(message: &Message) -> Record {
    Record::new(message.to.name.as_str(), message.body.clone())
        .key(message.key.clone())
        .header("content-type", message.content_type)
}

/// Keeps the window of confirmations full.
async fn confirmed(channel: &Channel, messages: &[Message]) -> anyhow::Result<()> {
    type Confirmed = lapin::Result<Confirmation>;
    let mut in_flight: FuturesUnordered<Pin<Box<dyn Future<Output = Confirmed> + Send>>> =
        FuturesUnordered::new();
    let settle = |confirmed: Option<Confirmed>| match confirmed {
        Some(Ok(Confirmation::Ack(None))) | None => Ok(()),
        Some(other) => anyhow::bail!("a message was not confirmed: {other:?}"),
    };
    for message in messages {
        if in_flight.len() == IN_FLIGHT {
            settle(in_flight.next().await)?;
        }
        let (channel, body) = (channel.clone(), message.body.clone());
        let (exchange, key) = (message.to.name.clone(), message.to.routing_key.clone());
        let properties = BasicProperties::default()
            .with_content_type(message.content_type.into())
            .with_message_id(message.seq.to_string().into())
            .with_delivery_mode(2)
            .with_headers(FieldTable::default());
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let mut sending = Box::pin(async move {
            let sent =
                channel.basic_publish(exchange.into(), key.into(), options, &body, properties);
            sent.await?.await
        });
        // The first poll queues it, so that the order is kept.
        match std::future::poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await {
            Poll::Pending => in_flight.push(sending),
            Poll::Ready(confirmed) => settle(Some(confirmed))?,
        }
    }
    while let Some(confirmed) = in_flight.next().await {
        settle(Some(confirmed))?;
    }
    Ok(())
}
