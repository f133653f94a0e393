//! Where commands come from: one inlet per consumer, which receives, hands each message to a
//! [`Handler`], and acknowledges it when that is done.

pub mod kafka;
pub mod rabbitmq;

use std::panic::AssertUnwindSafe;

use async_trait::async_trait;
use axum::body::Bytes;
use futures::FutureExt as _;
use kernel::Timestamp;
use tokio::sync::mpsc;

/// A message as it was received.
#[derive(Debug, Clone)]
pub struct Incoming {
    pub body: Bytes,
    /// Who sent it, as the broker has verified it (RabbitMQ's `user-id`); `None` if it has not.
    pub author: Option<String>,
    /// W3C `traceparent`.
    pub traceparent: Option<String>,
    /// Where the sender wants answers, if that is an address that is allowed.
    pub reply_to: Option<ReplyTo>,
    /// What its envelope would say, if the body is that of a command.
    pub bare: Option<Bare>,
}

/// A message without an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bare {
    /// The name of the command.
    pub command: String,
    /// The same at each delivery, and of no other message.
    pub id: String,
    pub issued_at: Timestamp,
}

/// Where answers to a command go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyTo {
    /// A queue of RabbitMQ, or a topic of Kafka.
    pub address: String,
    /// As the sender gave it; given back with every answer.
    pub correlation_id: Option<String>,
}

/// An answer to the sender of a command.
#[derive(Debug, Clone)]
pub struct Reply {
    pub to: ReplyTo,
    /// JSON.
    pub body: Bytes,
    pub traceparent: Option<String>,
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// It is carried out, or its rejection is recorded: acknowledge it.
    Done,
    /// It cannot be carried out, and its sender has no reply: publish it to the dead letters, wait for
    /// the confirmation, and acknowledge it.
    Dead(DeadLetter),
    /// The server stops: do not acknowledge it.
    Abandoned,
}

/// Why a message became a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub reason: String,
    /// The field that is wrong, if it is one.
    pub field: Option<String>,
}

impl DeadLetter {
    /// A reason is for a person to read.
    const REASON_BYTES_MAX: usize = 4 << 10;
    const FIELD_BYTES_MAX: usize = 256;

    /// Headers must fit into what the broker takes, whatever they quote.
    fn bounded(mut self) -> DeadLetter {
        self.reason.truncate(self.reason.floor_char_boundary(DeadLetter::REASON_BYTES_MAX));
        if let Some(field) = &mut self.field {
            field.truncate(field.floor_char_boundary(DeadLetter::FIELD_BYTES_MAX));
        }
        self
    }
}

/// Carries out the command of a message.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Messages with equal numbers are to be handled in the order in which they came; others may be
    /// handled at the same time. Not asked if a partition has the order.
    fn lane(&self, _: &Incoming) -> u64 {
        0
    }

    /// Messages are received from now on.
    fn receives(&self) {}

    /// A message becomes a dead letter that this has not decided on.
    fn buried(&self) {}

    /// Repeats what fails for a while, until it is done or the server stops. Answers go to `replies`,
    /// now and later, which the inlet publishes as long as its connection lives.
    async fn handle(&self, incoming: Incoming, replies: &mpsc::Sender<Reply>) -> Settled;
}

/// Has a message handled. One that makes the handler panic becomes a dead letter: it must not end the
/// consumer, and not come back for ever.
async fn handle(
    handler: &dyn Handler,
    incoming: Incoming,
    replies: &mpsc::Sender<Reply>,
) -> Settled {
    let handling = AssertUnwindSafe(handler.handle(incoming, replies));
    match handling.catch_unwind().await {
        Ok(Settled::Dead(letter)) => Settled::Dead(letter.bounded()),
        Ok(settled) => settled,
        Err(_) => {
            handler.buried();
            let reason = "the server panicked while it handled the message".into();
            Settled::Dead(DeadLetter { reason, field: None })
        }
    }
}
