//! Deliveries in work: at the same time, but those of the same lane one after the other.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use kernel::{Error, Result};
use lapin::Acker;
use lapin::message::Delivery;
use lapin::options::BasicAckOptions;
use lapin::types::{AMQPValue, ShortString};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::dead::{DeadLetters, Original};
use crate::ports::inward::{self, DeadLetter, Handler, Incoming, Reply, ReplyTo, Settled};

/// A message that came back this often may be what ends the server or its connection each time: such are
/// handled one after the other, so that the guilty one is the first of the next connection.
const DELIVERIES_SUSPECT: i64 = 10;
/// The first of a connection that came back this often is buried. Others may have been in work by chance
/// whenever a connection was lost. Fewer than the 20 after which RabbitMQ 4 drops it.
const DELIVERIES_MAX: i64 = 18;

/// The lane of suspects, and of what comes while there are some.
const SUSPECTS: u64 = u64::MAX;

/// What the broker makes of `amq.rabbitmq.reply-to`: the address of one waiting requester.
const DIRECT_REPLY: &str = "amq.rabbitmq.reply-to.";

/// What every delivery needs.
pub struct Intake {
    pub handler: Arc<dyn Handler>,
    pub replies: mpsc::Sender<Reply>,
    pub dead_letters: DeadLetters,
    pub bytes_max: usize,
    pub reply_queues: BTreeSet<String>,
}

/// A delivery that waits for its turn.
struct Waiting {
    acker: Acker,
    original: Original,
    suspect: bool,
    /// The message for the handler; or why it does not get it.
    next: std::result::Result<Incoming, DeadLetter>,
}

/// What is to happen with the next of a lane.
#[derive(PartialEq)]
enum Next {
    Start,
    /// The server stops, and the one before comes again.
    Leave,
}

/// Holds as many deliveries as the broker gives without an acknowledgement: the prefetch bounds them.
pub struct Lanes {
    intake: Arc<Intake>,
    working: JoinSet<(u64, Result<Next>)>,
    /// The lanes in work, and what came for them since.
    waiting: HashMap<u64, VecDeque<Waiting>>,
    /// Nothing has come over this connection.
    is_new: bool,
}

impl Lanes {
    pub fn new(intake: Arc<Intake>) -> Lanes {
        Lanes { intake, working: JoinSet::new(), waiting: HashMap::new(), is_new: true }
    }

    pub fn add(&mut self, delivery: Delivery) {
        // A lane of its own for what no handler sees.
        let own = delivery.delivery_tag;
        let waiting = self.intake.take(delivery, std::mem::take(&mut self.is_new));
        let lane = match &waiting.next {
            Ok(_) if waiting.suspect || self.waiting.contains_key(&SUSPECTS) => SUSPECTS,
            Ok(incoming) => {
                let lane = || self.intake.handler.lane(incoming);
                std::panic::catch_unwind(AssertUnwindSafe(lane)).unwrap_or(own)
            }
            Err(_) => own,
        };
        match self.waiting.get_mut(&lane) {
            Some(others) => others.push_back(waiting),
            None => {
                self.waiting.insert(lane, VecDeque::new());
                self.start(lane, waiting);
            }
        }
    }

    fn start(&mut self, lane: u64, waiting: Waiting) {
        let intake = self.intake.clone();
        self.working.spawn(async move { (lane, intake.settle(waiting).await) });
    }

    /// Waits until a delivery is settled, and starts the next of its lane. `None` if none is in work.
    /// An error says that it could not be acknowledged.
    pub async fn settled(&mut self) -> Option<Result<()>> {
        let (lane, result) = match self.working.join_next().await? {
            Ok(settled) => settled,
            Err(error) => return Some(Err(Error::internal("settling a delivery", error))),
        };
        if matches!(result, Ok(Next::Leave)) {
            return Some(Ok(()));
        }
        match self.waiting.get_mut(&lane).and_then(VecDeque::pop_front) {
            Some(next) => self.start(lane, next),
            None => drop(self.waiting.remove(&lane)),
        }
        Some(result.map(drop))
    }

    /// Settles what is in work, for as long as this, and nothing that waits.
    pub async fn finish(mut self, at_most: Duration) {
        let settle = async {
            while let Some(settled) = self.working.join_next().await {
                if let Ok((_, Err(error))) = settled {
                    tracing::warn!(error = error.with_causes(), "settling a delivery failed");
                }
            }
        };
        if tokio::time::timeout(at_most, settle).await.is_err() {
            let count = self.working.len();
            tracing::warn!(count, "commands were not settled in time; they are delivered again");
        }
    }
}

impl Intake {
    fn take(&self, delivery: Delivery, is_first: bool) -> Waiting {
        let Delivery { acker, data, properties, exchange, routing_key, .. } = delivery;
        let body = Bytes::from(data);
        let deliveries = header(&properties, "x-delivery-count").and_then(number).unwrap_or(0);
        let suspect = deliveries >= DELIVERIES_SUSPECT;
        let buried = (is_first && deliveries >= DELIVERIES_MAX)
            .then(|| format!("the message was delivered {deliveries} times and never settled"));
        let reason = self.too_large(&body).or(buried);
        let refusal = reason.map(|reason| DeadLetter { reason, field: None });
        let next = refusal.map_or_else(
            || {
                Ok(Incoming {
                    body: body.clone(),
                    author: properties.user_id().as_ref().map(ToString::to_string),
                    traceparent: header(&properties, "traceparent").and_then(text),
                    reply_to: self.reply_to(&properties),
                    bare: None,
                })
            },
            Err,
        );
        let original = Original { body, properties, exchange, routing_key };
        Waiting { acker, original, suspect, next }
    }

    fn too_large(&self, body: &Bytes) -> Option<String> {
        let (size, limit) = (body.len(), self.bytes_max);
        let why =
            || format!("the message has {size} bytes; the limit is {limit} (message_bytes_max)");
        (size > limit).then(why)
    }

    fn reply_to(&self, properties: &lapin::BasicProperties) -> Option<ReplyTo> {
        let address = properties.reply_to().as_ref()?.as_str();
        if !address.starts_with(DIRECT_REPLY) && !self.reply_queues.contains(address) {
            tracing::debug!(address, "ignored a reply address that reply_queues does not have");
            return None;
        }
        let correlation_id = properties.correlation_id().as_ref().map(ToString::to_string);
        Some(ReplyTo { address: address.into(), correlation_id })
    }

    /// Handles a message and acknowledges it, unless the server stops.
    async fn settle(&self, waiting: Waiting) -> Result<Next> {
        let Waiting { acker, original, next, .. } = waiting;
        let settled = match next {
            Ok(incoming) => inward::handle(&*self.handler, incoming, &self.replies).await,
            Err(letter) => {
                self.handler.buried();
                Settled::Dead(letter)
            }
        };
        match settled {
            Settled::Done => {}
            Settled::Dead(letter) => self.dead_letters.publish(original, letter).await?,
            Settled::Abandoned => return Ok(Next::Leave),
        }
        let acknowledged = acker.ack(BasicAckOptions::default()).await;
        // False if the connection was lost meanwhile, which its owner notices.
        acknowledged.map(|_| Next::Start).map_err(|error| {
            Error::unavailable("acknowledging a message to RabbitMQ", error.to_string())
        })
    }
}

fn header<'a>(properties: &'a lapin::BasicProperties, name: &str) -> Option<&'a AMQPValue> {
    properties.headers().as_ref()?.inner().get(name)
}

fn text(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok().map(Into::into),
        AMQPValue::ShortString(text) => Some(ShortString::as_str(text).into()),
        _ => None,
    }
}

fn number(value: &AMQPValue) -> Option<i64> {
    match value {
        AMQPValue::LongLongInt(number) => Some(*number),
        AMQPValue::LongInt(number) => Some(i64::from(*number)),
        AMQPValue::LongUInt(number) => Some(i64::from(*number)),
        _ => None,
    }
}
