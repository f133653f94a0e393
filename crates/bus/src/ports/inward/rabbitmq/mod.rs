//! Commands from a quorum queue of RabbitMQ. A message is acknowledged when it is settled; one that
//! nobody can carry out becomes a dead letter first.
//!
//! Two connections: one consumes and acknowledges, the other publishes dead letters and replies. When
//! the broker has an alarm it stops reading from connections that publish, and acknowledgements on them
//! would wait, too.

mod dead;
mod lanes;
mod replies;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kernel::outbound::Outbound;
use kernel::{Error, Result};
use lapin::options::{BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Consumer};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::dead::DeadLetters;
use self::lanes::{Intake, Lanes};
use super::Handler;
use crate::model::settings::RabbitMqConsumer;
use crate::ports::rabbitmq::{Blocked, Broker, Link, NOT_FOUND, Settings, reply_code, short};

/// A connection that is silent is given up after 4 s, by us and (up to 6 s) by the broker.
const HEARTBEAT_S: u16 = 2;

/// For both connections, the queues and the consumer together.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

/// For commands in work when the inlet stops. What is not settled by then is delivered again.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Replies that wait to be published: some for each command in work. More are dropped.
const REPLIES_MAX: usize = 256;

/// Receives and settles commands until `stop`; an error says that a connection is lost, and that it is
/// to be run again.
pub async fn run(
    name: &str,
    config: &RabbitMqConsumer,
    outbound: &Outbound,
    bytes_max: usize,
    handler: Arc<dyn Handler>,
    stop: CancellationToken,
) -> Result<()> {
    RabbitMqInlet::new(name, config, outbound)?.run(bytes_max, handler, stop).await
}

/// The way in from one queue. Reads its secrets once, so that it can be run again and again.
pub struct RabbitMqInlet {
    name: String,
    config: RabbitMqConsumer,
    broker: Broker,
}

/// Why receiving has ended without an error.
enum End {
    Stopped,
    /// The credentials are others now.
    Outdated,
}

impl RabbitMqInlet {
    pub fn new(
        name: &str,
        config: &RabbitMqConsumer,
        outbound: &Outbound,
    ) -> Result<RabbitMqInlet> {
        let settings = Settings {
            key: &format!("bus.consumers.{name}.rabbitmq"),
            owner: &format!("consumer {name}"),
            url: &config.url,
            username: &config.username,
            password: &config.password,
            tls: &config.tls,
        };
        let broker = Broker::new(&settings, outbound)?;
        Ok(RabbitMqInlet { name: name.into(), config: config.clone(), broker })
    }

    /// As [`run`].
    pub async fn run(
        &mut self,
        bytes_max: usize,
        handler: Arc<dyn Handler>,
        stop: CancellationToken,
    ) -> Result<()> {
        loop {
            let session = self.session(bytes_max, handler.clone(), &stop);
            match session.await? {
                End::Stopped => return Ok(()),
                End::Outdated => {
                    tracing::info!(consumer = self.name, "credentials changed; reconnecting")
                }
            }
        }
    }

    async fn session(
        &mut self,
        bytes_max: usize,
        handler: Arc<dyn Handler>,
        stop: &CancellationToken,
    ) -> Result<End> {
        let opening = async {
            let consuming = self.broker.connect(HEARTBEAT_S, Blocked::default()).await?;
            let publishing = self.broker.connect(HEARTBEAT_S, Blocked::default()).await?;
            // Of several replicas one gets the commands, so that those about one object stay in order.
            let one_at_a_time = ("x-single-active-consumer", AMQPValue::Boolean(true));
            self.ensure_queue(&consuming, &self.config.queue, Some(one_at_a_time)).await?;
            self.ensure_queue(&consuming, &self.config.dead_letter_queue, None).await?;
            let (channel, consumer) = self.consume(&consuming).await?;
            Ok::<_, Error>((consuming, Arc::new(publishing), channel, consumer))
        };
        let opening = stop.run_until_cancelled(tokio::time::timeout(OPEN_TIMEOUT, opening));
        let (consuming, publishing, _channel, mut consumer) = match opening.await {
            None => return Ok(End::Stopped),
            Some(Ok(opened)) => opened?,
            Some(Err(_)) => {
                let what = format!("opening {}", self.broker.describe());
                return Err(Error::unavailable(what, "the broker does not answer"));
            }
        };
        tracing::info!(consumer = self.name, queue = self.config.queue, "consuming commands");
        handler.receives();

        let mut publishers = JoinSet::new();
        let (replies, waiting) = mpsc::channel(REPLIES_MAX);
        let finish = CancellationToken::new();
        publishers.spawn(replies::publish(publishing.clone(), waiting, finish.clone()));
        let dead_letter_queue = &self.config.dead_letter_queue;
        let (dead_letters, requests) = DeadLetters::new(&self.name, dead_letter_queue);
        publishers.spawn(dead::publish(publishing.clone(), dead_letter_queue.clone(), requests));
        let mut lanes = Lanes::new(Arc::new(Intake {
            handler,
            replies,
            dead_letters,
            bytes_max,
            reply_queues: self.config.reply_queues.clone(),
        }));

        let end = loop {
            tokio::select! {
                delivery = consumer.next() => match delivery {
                    Some(Ok(delivery)) => lanes.add(delivery),
                    Some(Err(error)) => return Err(consuming.failed("receiving", &error)),
                    None => return Err(consuming.refused(
                        &format!("receiving from the queue {}", self.config.queue),
                        "the broker has cancelled it: the queue was deleted, or the connection closed",
                    )),
                },
                Some(settled) = lanes.settled() => settled?,
                error = consuming.lost() => return Err(error),
                error = publishing.lost() => return Err(error),
                () = self.broker.outdated() => break End::Outdated,
                () = stop.cancelled() => break End::Stopped,
            }
        };
        // What is received but not in work stays unacknowledged. Not cancelled before the rest is settled:
        // the next consumer of the queue would begin with what comes after it.
        lanes.finish(SETTLE_TIMEOUT).await;
        finish.cancel();
        // Replies have a time limit of their own; dead letters end when nobody can ask for one.
        let ending = async { while publishers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(SETTLE_TIMEOUT, ending).await;
        drop(publishers);
        consuming.close().await;
        if let Some(publishing) = Arc::into_inner(publishing) {
            publishing.close().await;
        }
        Ok(end)
    }

    async fn consume(&self, link: &Link) -> Result<(Channel, Consumer)> {
        let channel = link.channel().await?;
        // 0 would be without a limit.
        let prefetch = self.config.prefetch.max(1);
        let limited = channel.basic_qos(prefetch, BasicQosOptions::default()).await;
        limited.map_err(|error| link.failed("limiting the prefetch", &error))?;
        let queue = short("the name of the queue", &self.config.queue)?;
        let tag = short("the name of the consumer", &format!("mainstay.{}", self.name))?;
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        let consumer = channel.basic_consume(queue, tag, options, none).await;
        let attempted = format!("consuming the queue {}", self.config.queue);
        Ok((channel, consumer.map_err(|error| link.failed(&attempted, &error))?))
    }

    /// Finds the queue, or creates it if that is allowed.
    async fn ensure_queue(
        &self,
        link: &Link,
        name: &str,
        further: Option<(&str, AMQPValue)>,
    ) -> Result<()> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        // First without creating it: one that exists may have further arguments.
        let Err(error) = declare(link, name, passive, None).await? else { return Ok(()) };
        if reply_code(&error) != Some(NOT_FOUND) {
            return Err(link.failed(&format!("looking for the queue {name}"), &error));
        }
        let attempted = format!("using the queue {name}");
        if !self.config.create_queues {
            let why =
                format!("it does not exist; create {name} as a quorum queue, or set create_queues");
            return Err(link.refused(&attempted, why));
        }
        if let Err(error) = declare(link, name, durable, further).await? {
            let why = format!(
                "it does not exist and cannot be created ({error}); create {name} as a quorum queue"
            );
            return Err(link.refused(&attempted, why));
        }
        tracing::info!(queue = name, "created the queue");
        Ok(())
    }
}

/// On a channel of its own: the broker closes it when it refuses.
async fn declare(
    link: &Link,
    name: &str,
    options: QueueDeclareOptions,
    further: Option<(&str, AMQPValue)>,
) -> Result<lapin::Result<()>> {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    if let Some((name, value)) = further {
        arguments.insert(name.into(), value);
    }
    let name = short("the name of the queue", name)?;
    let channel = link.channel().await?;
    Ok(channel.queue_declare(name, options, arguments).await.map(drop))
}
