//! Publishing on one channel: many messages in flight, each confirmed or refused.

use std::collections::HashSet;
use std::pin::Pin;
use std::task::Poll;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kernel::Result;
use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, ExchangeDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, ExchangeKind};

use super::Refused;
use crate::model::Message;
use crate::model::settings::{RabbitMqSink, Unroutable};
use crate::ports::rabbitmq::{CONFIRM_TIMEOUT, Link, NOT_FOUND, PERSISTENT, reply_code, short};

/// Enough to fill the time of a confirmation; more only adds to what is sent twice after a loss.
const IN_FLIGHT_MAX: usize = 1_024;

/// The library copies each message: bounds that memory.
const IN_FLIGHT_BYTES_MAX: usize = 8 << 20;

/// All headers are in one frame, of 128 KiB by default; the broker ends the connection if it is larger.
const HEADERS_BYTES_MAX: usize = 64 << 10;

/// What the broker says before it closes the channel, followed by the limit.
const TOO_LARGE: &str = "is larger than configured max size ";

/// A channel whose messages are confirmed, and the connection that it has for itself.
pub struct Publisher {
    link: Link,
    channel: Channel,
    create_exchange: bool,
    mandatory: bool,
    /// Exchanges that are known to exist.
    exchanges: HashSet<String>,
    /// The broker's limit, if a message was larger.
    limit: Option<usize>,
}

/// The number of a message in its batch, and what the broker says to it.
type Confirmed = (usize, lapin::Result<Confirmation>);
type InFlight = FuturesUnordered<Pin<Box<dyn Future<Output = Confirmed> + Send>>>;

impl Publisher {
    pub fn new(link: Link, channel: Channel, config: &RabbitMqSink) -> Publisher {
        Publisher {
            link,
            channel,
            create_exchange: config.create_exchange,
            mandatory: config.unroutable == Unroutable::Park,
            exchanges: HashSet::new(),
            limit: None,
        }
    }

    /// The size of the largest message that the broker takes, if it has said so.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    pub async fn close(self) {
        self.link.close().await;
    }

    /// Finds the exchange, or creates it if that is allowed. Each name is asked for once per
    /// connection.
    pub async fn ensure_exchange(&mut self, name: &str) -> Result<()> {
        // The default exchange is always there, and cannot be declared.
        if name.is_empty() || self.exchanges.contains(name) {
            return Ok(());
        }
        let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        // First without creating it: one that exists may be of another type.
        if let Err(error) = self.declare(name, passive).await? {
            if reply_code(&error) != Some(NOT_FOUND) {
                return Err(self.link.failed(&format!("looking for the exchange {name}"), &error));
            }
            let attempted = format!("publishing to the exchange {name}");
            if !self.create_exchange {
                let why = format!(
                    "it does not exist; create {name} (topic, durable), or set create_exchange"
                );
                return Err(self.link.refused(&attempted, why));
            }
            if let Err(error) = self.declare(name, durable).await? {
                let why = format!(
                    "it does not exist and cannot be created ({error}); create {name} (topic, durable)"
                );
                return Err(self.link.refused(&attempted, why));
            }
            tracing::info!(exchange = name, "created the exchange");
        }
        self.exchanges.insert(name.to_owned());
        Ok(())
    }

    /// On a channel of its own: the broker closes it when it refuses.
    async fn declare(
        &self,
        name: &str,
        options: ExchangeDeclareOptions,
    ) -> Result<lapin::Result<()>> {
        let name = short("the name of the exchange", name)?;
        let channel = self.link.channel().await?;
        let table = FieldTable::default();
        tokio::select! {
            declared = channel.exchange_declare(name, ExchangeKind::Topic, options, table) => {
                Ok(declared)
            }
            error = self.link.lost() => Err(error),
        }
    }

    /// Publishes messages in order, and returns when each is confirmed or refused. Waits as long as the
    /// broker blocks the connection: what is under way would otherwise be sent twice.
    pub async fn publish(
        &mut self,
        messages: &[Message],
        bytes_max: Option<usize>,
    ) -> Result<Vec<Refused>> {
        let mut in_flight = InFlight::new();
        let mut bytes = 0;
        let mut refused: Vec<Refused> = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            if let Some(reason) = never_taken(message, bytes_max) {
                refused.push(Refused { index, reason });
                continue;
            }
            self.ensure_exchange(&message.to.name).await?;
            let size = message.body.len();
            while !in_flight.is_empty()
                && (in_flight.len() >= IN_FLIGHT_MAX || bytes + size > IN_FLIGHT_BYTES_MAX)
            {
                bytes -= self.settle(&mut in_flight, messages, &mut refused).await?;
            }
            bytes += size;
            let mut sending = self.send(index, message)?;
            // The first poll puts it into the library's queue: that decides on the order.
            match std::future::poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await {
                Poll::Pending => in_flight.push(sending),
                Poll::Ready(ready) => in_flight.push(Box::pin(std::future::ready(ready))),
            }
        }
        while !in_flight.is_empty() {
            self.settle(&mut in_flight, messages, &mut refused).await?;
        }
        refused.sort_by_key(|refused| refused.index);
        Ok(refused)
    }

    fn send(
        &self,
        index: usize,
        message: &Message,
    ) -> Result<Pin<Box<dyn Future<Output = Confirmed> + Send>>> {
        let exchange = short("the name of the exchange", &message.to.name)?;
        let routing_key = short("the routing key", &message.to.routing_key)?;
        let options =
            BasicPublishOptions { mandatory: self.mandatory, ..BasicPublishOptions::default() };
        let (channel, body) = (self.channel.clone(), message.body.clone());
        let properties = properties(message);
        Ok(Box::pin(async move {
            let sent = channel.basic_publish(exchange, routing_key, options, &body, properties);
            let confirmed = async { sent.await?.await };
            (index, confirmed.await)
        }))
    }

    async fn next_confirmed(&self, in_flight: &mut InFlight) -> Option<Confirmed> {
        if let Ok(confirmed) = tokio::time::timeout(CONFIRM_TIMEOUT, in_flight.next()).await {
            return confirmed;
        }
        self.link.set_blocked(Some("it confirms nothing"));
        let confirmed = in_flight.next().await;
        self.link.set_blocked(None);
        confirmed
    }

    /// Waits for one confirmation; returns the size of its message.
    async fn settle(
        &mut self,
        in_flight: &mut InFlight,
        messages: &[Message],
        refused: &mut Vec<Refused>,
    ) -> Result<usize> {
        let confirmed = tokio::select! {
            // The error of a message says more than that of the connection.
            biased;
            confirmed = self.next_confirmed(in_flight) => confirmed,
            error = self.link.lost() => return Err(error),
        };
        let Some((index, confirmation)) = confirmed else { return Ok(0) };
        let message = &messages[index];
        match confirmation {
            Ok(Confirmation::Ack(None)) => {}
            Ok(Confirmation::Ack(Some(returned))) => {
                let Some(found) = unroutable(&returned, messages, refused) else {
                    let why = "a message came back that is none of those that were sent";
                    return Err(self.link.refused("publishing", why));
                };
                refused.push(found);
            }
            Ok(Confirmation::Nack(_)) => {
                let why = "the broker could not store it (basic.nack)";
                return Err(self.link.refused(&format!("publishing event {}", message.seq), why));
            }
            Ok(Confirmation::NotRequested) => {
                let why = "the broker does not confirm messages";
                return Err(self.link.refused(&format!("publishing event {}", message.seq), why));
            }
            Err(error) => {
                self.limit = limit_in(&error.to_string());
                return Err(self.link.failed(&format!("publishing event {}", message.seq), &error));
            }
        }
        Ok(message.body.len())
    }
}

/// Why the broker would never take a message.
fn never_taken(message: &Message, bytes_max: Option<usize>) -> Option<String> {
    let (size, key) = (message.body.len(), &message.to.routing_key);
    if let Some(limit) = bytes_max.filter(|limit| size > *limit) {
        return Some(format!(
            "it has {size} bytes, and the broker takes {limit} (max_message_size)"
        ));
    }
    if key.len() > 255 || message.to.name.len() > 255 {
        return Some("its exchange or routing key has more than 255 bytes".into());
    }
    let attributes: usize =
        message.attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
    if attributes > HEADERS_BYTES_MAX {
        return Some(format!("its attributes have {attributes} bytes; {HEADERS_BYTES_MAX} fit"));
    }
    None
}

/// The limit in the broker's error, if it was about the size of a message.
fn limit_in(error: &str) -> Option<usize> {
    let (_, limit) = error.split_once(TOO_LARGE)?;
    limit.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The message that has come back. The library gives what came back to any of the messages that are
/// confirmed together, so it is found by its content.
fn unroutable(
    returned: &BasicReturnMessage,
    messages: &[Message],
    refused: &[Refused],
) -> Option<Refused> {
    let (exchange, key) = (returned.exchange.as_str(), returned.routing_key.as_str());
    let id = returned.properties.message_id().as_ref().map(ShortString::as_str);
    let same = |message: &Message| {
        Some(&*message.seq.to_string()) == id
            && message.to.name == exchange
            && message.to.routing_key == key
            && message.body == returned.data
    };
    let known = |index: usize| refused.iter().any(|refused| refused.index == index);
    let index =
        messages.iter().enumerate().position(|(at, message)| !known(at) && same(message))?;
    let reason = format!(
        "no queue is bound to the exchange {exchange} for the routing key {key} ({} {})",
        returned.reply_code,
        returned.reply_text.as_str(),
    );
    Some(Refused { index, reason })
}

/// The AMQP binding of CloudEvents: attributes are headers with a prefix, in both modes.
fn properties(message: &Message) -> BasicProperties {
    let mut headers = FieldTable::default();
    for (name, value) in &message.attributes {
        let value = AMQPValue::LongString(value.as_str().into());
        if name == "traceparent" {
            // Where consumers that know nothing of CloudEvents look for it.
            headers.insert("traceparent".into(), value.clone());
        }
        if let Ok(name) = ShortString::try_new(format!("cloudEvents:{name}")) {
            headers.insert(name, value);
        }
    }
    BasicProperties::default()
        .with_content_type(message.content_type.into())
        .with_message_id(message.seq.to_string().into())
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_read_from_the_error_of_the_broker() {
        let error = "PRECONDITION_FAILED - message size 9 is larger than configured max size 8";
        assert_eq!(limit_in(error), Some(8));
        assert_eq!(limit_in("NOT_FOUND - no exchange"), None);
    }
}
