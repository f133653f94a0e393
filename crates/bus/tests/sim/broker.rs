//! A broker that delays, loses answers, and shuts out all but the newest connection.

use std::sync::Arc;

use async_trait::async_trait;
use bus::model::{Message, Position};
use bus::ports::out::{Outlet, Sent};
use kernel::{Error, Result};
use parking_lot::Mutex;
use testkit::sim::World;
use testkit::sim::flaky::Flaky;

/// What the broker does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// It takes messages from connections that were replaced.
    NoFence,
    /// It stores messages without the position that comes with them.
    ForgetsPosition,
    /// It acknowledges what it then loses.
    AcknowledgesTooEarly,
}

#[derive(Default)]
pub struct Broker {
    pub keeps_position: bool,
    pub bug: Option<Bug>,
    pub state: Mutex<State>,
}

/// A message, and how it came.
pub struct Stored {
    pub connection: u64,
    pub send: u64,
    pub key: String,
    pub seq: i64,
}

#[derive(Default)]
pub struct State {
    /// What consumers read.
    pub log: Vec<Stored>,
    pub position: Option<Position>,
    /// Counts what came together.
    sends: u64,
    /// The newest connection.
    connection: u64,
}

impl Broker {
    /// Stores what came over a connection: the keys and events of messages.
    fn store(
        &self,
        world: &World,
        connection: u64,
        messages: Vec<(String, i64)>,
        position: Position,
    ) -> Result<()> {
        let mut state = self.state.lock();
        if state.connection != connection && self.bug != Some(Bug::NoFence) {
            return Err(Error::unavailable("the broker", "the connection was replaced"));
        }
        let lost = self.bug == Some(Bug::AcknowledgesTooEarly) && world.unlucky(0.1);
        // Without a transaction a broken connection may leave a part of a batch.
        let whole = self.keeps_position || !world.unlucky(0.1);
        let stored = if whole { messages.len() } else { messages.len() / 2 };
        let taken = messages.into_iter().take(stored).filter(|_| !lost);
        state.sends += 1;
        let send = state.sends;
        state.log.extend(taken.map(|(key, seq)| Stored { connection, send, key, seq }));
        if self.bug != Some(Bug::ForgetsPosition) {
            state.position = Some(position);
        }
        if whole { Ok(()) } else { Err(Error::unavailable("the broker", "the connection broke")) }
    }
}

pub struct SimOutlet {
    pub broker: Arc<Broker>,
    pub process: Arc<Flaky>,
    pub connection: u64,
}

#[async_trait]
impl Outlet for SimOutlet {
    async fn open(&mut self) -> Result<Option<Position>> {
        self.process.pass().await;
        self.process.fail_sometimes(0.1)?;
        let position = {
            let mut state = self.broker.state.lock();
            state.connection += 1;
            self.connection = state.connection;
            state.position
        };
        // The answer takes its time, and may get lost: the older connection is shut out all the same.
        self.process.pass().await;
        self.process.fail_sometimes(0.1)?;
        Ok(position.filter(|_| self.broker.keeps_position))
    }

    async fn send(&mut self, messages: &[Message], position: Position) -> Result<Sent> {
        self.process.pass().await;
        self.process.fail_sometimes(0.05)?;
        let (broker, world, connection) =
            (self.broker.clone(), self.process.world.clone(), self.connection);
        let messages: Vec<_> = messages.iter().map(|one| (one.key.clone(), one.seq)).collect();
        if world.unlucky(0.01) {
            // They are on their way, whatever becomes of their sender.
            let arrive = async move {
                tokio::time::sleep(world.millis(0, 60_000)).await;
                broker.store(&world, connection, messages, position)
            };
            tokio::spawn(arrive).await.map_err(|error| Error::internal("the network", error))??;
        } else {
            broker.store(&world, connection, messages, position)?;
        }
        self.process.pass().await;
        self.process.fail_sometimes(0.05)?;
        Ok(Sent::All)
    }

    async fn close(&mut self) {}
}
