//! Kafka as a sink. With transactions the messages of a batch and the sink's position become visible
//! together, and opening shuts out earlier holders by the transactional id; without, an idempotent
//! producer delivers at least once.

mod batch;
mod position;

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use kernel::outbound::{Delivery, Outbound};
use kernel::{Error, Result};
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use self::batch::{Cursor, Producer};
use self::position::Last;
use super::{Outlet, Refused, Sent};
use crate::model::settings::KafkaSink;
use crate::model::{Message, Position};
use crate::ports::kafka::{Access, Connection, Topics, failed, producer};

/// The broker aborts a transaction that is open for longer, so that readers are not held up by a sink
/// that has died.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(20);
/// Sends a batch, aborts once and sends it again.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
const OPEN_TIMEOUT: Duration = Duration::from_secs(40);

/// The way to a Kafka cluster.
pub struct KafkaOutlet {
    /// The transactional id, and the client's name for the broker's logs.
    id: String,
    cursor_topic: String,
    access: Access,
    topics: Topics,
    transactions: bool,
    installation: String,
    /// The cursor topic is ours.
    owned: bool,
    open: Option<Open>,
}

struct Open {
    connection: Connection,
    producer: Producer,
    /// Topics that exist.
    known: HashSet<String>,
}

impl KafkaOutlet {
    /// Reads the files of certificates and credentials; connects to nothing.
    pub fn new(name: &str, config: &KafkaSink, outbound: &Outbound) -> Result<KafkaOutlet> {
        let key = format!("bus.sinks.{name}.kafka");
        let (tls, sasl) = (config.tls.as_ref(), config.sasl.as_ref());
        Ok(KafkaOutlet {
            id: format!("mainstay-{name}"),
            cursor_topic: format!("mainstay-cursors.{name}"),
            access: Access::new(&key, &config.brokers, tls, sasl, outbound)?,
            topics: Topics {
                create: config.create_topics,
                partitions: config.partitions,
                replication_factor: config.replication_factor,
            },
            transactions: config.transactions,
            installation: String::new(),
            owned: false,
            open: None,
        })
    }

    /// Says which installation it is: two that share a broker may have sinks of the same name.
    pub fn of_installation(self, installation: String) -> KafkaOutlet {
        KafkaOutlet { installation, ..self }
    }

    async fn connect(&mut self) -> Result<(Open, Option<Position>)> {
        let connection = self.access.connect(&self.id).await?;
        let kafka = &connection.kafka;
        let (id, topic) = (&self.id, &self.cursor_topic);
        let (producer, position) = if self.transactions {
            let acl = format!("READ, WRITE and DESCRIBE on topic {topic}");
            self.topics.ensure_compacted(kafka, topic, &acl).await?;
            if !self.owned {
                position::check_owner(kafka, topic, &self.installation).await?;
                self.owned = true;
            }
            let committed = position::was_committed(kafka, id).await;
            let builder = producer(kafka).transaction_timeout(TRANSACTION_TIMEOUT);
            let producer = builder.build_transactional(id).await.map_err(|error| {
                let acl = format!("WRITE and DESCRIBE on transactional id {id}");
                failed(format!("opening transactional id {id} of Kafka"), &error, &acl)
            })?;
            // After the producer is initialised: earlier transactions of this id have ended.
            let last = position::read(kafka, topic, committed).await?;
            let producer = Producer::Transactional(Box::new(producer));
            let position = match last {
                Last::Committed(position) => position,
                Last::Hanging(position) => {
                    tracing::warn!(topic, "ended a transaction that the broker had left hanging");
                    let (key, installation) = (id, &self.installation);
                    producer.send(&[], Cursor { topic, key, position, installation }).await?;
                    Some(position)
                }
            };
            (producer, position)
        } else {
            let producer = producer(kafka).build().await.map_err(|error| {
                let acl = "IDEMPOTENT_WRITE on the cluster";
                failed("opening an idempotent producer of Kafka", &error, acl)
            })?;
            (Producer::Idempotent(Box::new(producer)), None)
        };
        Ok((Open { connection, producer, known: HashSet::new() }, position))
    }
}

impl Open {
    async fn ensure_topics(&mut self, topics: &Topics, messages: &[Message]) -> Result<()> {
        for message in messages {
            let topic = &message.to.name;
            if !self.known.contains(topic) {
                let acl = format!("WRITE and DESCRIBE on topic {topic}");
                topics.ensure(&self.connection.kafka, topic, &acl).await?;
                self.known.insert(topic.clone());
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Outlet for KafkaOutlet {
    async fn open(&mut self) -> Result<Option<Position>> {
        self.close().await;
        let connected = tokio::time::timeout(OPEN_TIMEOUT, self.connect()).await;
        let (open, position) = connected.unwrap_or_else(|_| Err(too_late("opening", &self.id)))?;
        self.open = Some(open);
        Ok(position)
    }

    async fn send(&mut self, messages: &[Message], position: Position) -> Result<Sent> {
        let KafkaOutlet { id, cursor_topic, access, topics, installation, .. } = self;
        // It stays there after an error, and if this future is dropped: a producer that is dropped sends
        // what it has, one that is closed does not.
        let Some(open) = &mut self.open else {
            let why = "the connection is not open";
            return Err(Error::unavailable(format!("sending to Kafka as {id}"), why));
        };
        // Not reconnected here: that would shut out a successor that has opened the sink meanwhile.
        if access.changed(&open.connection) {
            let what = format!("the connection to Kafka of {id}");
            let why = "its credentials or certificates have changed; opening it with the new ones";
            return Err(Error::unavailable(what, why).with_delivery(Delivery::NotSent));
        }
        let never = never_taken(messages);
        if !never.is_empty() {
            return Ok(Sent::None(never));
        }
        open.ensure_topics(topics, messages).await?;
        let cursor = Cursor { topic: cursor_topic, key: id, position, installation };
        let send = open.producer.send(messages, cursor);
        // The client logs each transaction and opens a span for each record; the relay has its own.
        let send = send.with_subscriber(NoSubscriber::new());
        let sent = tokio::time::timeout(SEND_TIMEOUT, send).await;
        sent.unwrap_or_else(|_| Err(too_late("sending", id)))
    }

    async fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.producer.close().await;
        }
    }
}

/// Messages whose topics cannot be.
fn never_taken(messages: &[Message]) -> Vec<Refused> {
    let refused = messages.iter().enumerate().filter_map(|(index, message)| {
        let name = &message.to.name;
        let impossible = name.is_empty() || name.len() > 249 || name == "." || name == "..";
        let reason = format!("`{name}` cannot be the name of a Kafka topic");
        impossible.then_some(Refused { index, reason })
    });
    refused.collect()
}

fn too_late(doing: &str, id: &str) -> Error {
    Error::unavailable(format!("{doing} to Kafka as {id}"), "it took too long")
}
