//! Where events go: one [`Outlet`] per sink.

pub mod cloudevents;
pub mod kafka;
pub mod rabbitmq;
pub mod webhook;

use async_trait::async_trait;
use kernel::{Error, Result};
use tokio::sync::watch;

use crate::model::{Message, Position};

/// The way out of one sink. Used by one pump, which calls `open` before the first `send`, and again
/// after an error.
#[async_trait]
pub trait Outlet: Send {
    /// Connects, and shuts out earlier holders of the sink: what they still send is refused. Returns
    /// the position that the other side has, if it keeps one.
    async fn open(&mut self) -> Result<Option<Position>>;

    /// Sends messages, those with the same key in order, and returns when each of them is acknowledged
    /// or refused for good. `position` is the one after them, for sides that keep it.
    ///
    /// An error concerns all of them: each may have been delivered. They are sent again after `open`.
    async fn send(&mut self, messages: &[Message], position: Position) -> Result<Sent>;

    /// The most messages of one `send`.
    fn batch_max(&self) -> usize {
        1000
    }

    /// Says why the other side takes no messages now, while `send` waits for it.
    fn blocked(&self) -> Option<watch::Receiver<Option<String>>> {
        None
    }

    /// Ends the connection. Nothing is in flight.
    async fn close(&mut self);
}

/// Why the other side wants no more messages. The cause of an error after which only a person resumes
/// the sink.
#[derive(Debug)]
pub struct Closed(pub &'static str);

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Closed {}

/// Whether the other side wants no more messages.
pub fn is_closed(error: &Error) -> bool {
    matches!(error, Error::Unavailable { cause, .. } if cause.is::<Closed>())
}

/// What became of messages that were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    All,
    /// The others are delivered.
    AllBut(Vec<Refused>),
    /// None is delivered, because of these: the others are to be sent without them. A side that keeps the
    /// position says so, for the pump must know first what is skipped.
    None(Vec<Refused>),
}

impl From<Vec<Refused>> for Sent {
    /// The others are delivered.
    fn from(refused: Vec<Refused>) -> Sent {
        if refused.is_empty() { Sent::All } else { Sent::AllBut(refused) }
    }
}

/// A message that the other side will never take, such as one that is too large or that no queue is
/// bound for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its index in what was sent.
    pub index: usize,
    pub reason: String,
}
