//! Replies to those who sent commands. A reply is a courtesy: one that cannot be delivered is logged and
//! dropped, and nothing waits for it. The sender can ask `GET /api/v1/command/{id}`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kernel::Result;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::ports::inward::Reply;
use crate::ports::rabbitmq::{Link, PERSISTENT, short};

/// Replies that are not confirmed. Beyond them the broker is too slow, and replies are dropped.
const IN_FLIGHT_MAX: usize = 1_024;

/// For a new channel, and for the last confirmations at the end.
const TIMEOUT: Duration = Duration::from_secs(2);

type Confirmed = lapin::Result<Confirmation>;
type InFlight = FuturesUnordered<Pin<Box<dyn Future<Output = Confirmed> + Send>>>;

/// Publishes replies until `finish`, and those that are there by then.
pub async fn publish(
    link: Arc<Link>,
    mut replies: mpsc::Receiver<Reply>,
    finish: CancellationToken,
) {
    let mut publisher = Publisher { link, channel: None, in_flight: InFlight::new() };
    loop {
        tokio::select! {
            Some(reply) = replies.recv() => publisher.send(reply).await,
            Some(confirmed) = publisher.in_flight.next(), if !publisher.in_flight.is_empty() => {
                publisher.settle(confirmed);
            }
            () = finish.cancelled() => break,
            else => break,
        }
    }
    while let Ok(reply) = replies.try_recv() {
        publisher.send(reply).await;
    }
    let rest = async {
        while let Some(confirmed) = publisher.in_flight.next().await {
            publisher.settle(confirmed);
        }
    };
    let _ = tokio::time::timeout(TIMEOUT, rest).await;
}

struct Publisher {
    link: Arc<Link>,
    /// Not that of dead letters: the broker closes a channel when it dislikes an address.
    channel: Option<Channel>,
    in_flight: InFlight,
}

impl Publisher {
    async fn send(&mut self, reply: Reply) {
        let address = reply.to.address.clone();
        if let Err(why) = self.try_send(reply).await {
            tracing::warn!(address, why, "dropped a reply");
        }
    }

    async fn try_send(&mut self, reply: Reply) -> Result<(), String> {
        if let Some(reason) = self.link.blocked() {
            return Err(format!("the broker blocks the connection: {reason}"));
        }
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return Err("too many replies are not confirmed".into());
        }
        let address = short("the address", &reply.to.address).map_err(|error| error.to_string())?;
        let properties = properties(&reply)?;
        let channel = self.channel().await?;
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let mut sending: Pin<Box<dyn Future<Output = Confirmed> + Send>> = Box::pin(async move {
            let sent = channel.basic_publish("".into(), address, options, &reply.body, properties);
            sent.await?.await
        });
        // The first poll puts it into the library's queue: that decides on the order.
        match std::future::poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await {
            Poll::Pending => self.in_flight.push(sending),
            Poll::Ready(confirmed) => self.settle(confirmed),
        }
        Ok(())
    }

    async fn channel(&mut self) -> Result<Channel, String> {
        if let Some(channel) = self.channel.as_ref().filter(|one| one.status().connected()) {
            return Ok(channel.clone());
        }
        let opening = async {
            let channel = self.link.channel().await.map_err(|error| error.to_string())?;
            let confirmed = channel.confirm_select(ConfirmSelectOptions::default()).await;
            confirmed.map_err(|error| error.to_string())?;
            Ok::<Channel, String>(channel)
        };
        let opened = tokio::time::timeout(TIMEOUT, opening).await;
        let channel = opened.map_err(|_| "opening a channel took too long")??;
        self.channel = Some(channel.clone());
        Ok(channel)
    }

    fn settle(&mut self, confirmed: Confirmed) {
        match confirmed {
            Ok(Confirmation::Ack(Some(returned))) => {
                let address = returned.routing_key.as_str();
                tracing::debug!(address, "dropped a reply: nobody is at its address");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "dropped a reply"),
        }
    }
}

fn properties(reply: &Reply) -> Result<BasicProperties, String> {
    let mut properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_delivery_mode(PERSISTENT);
    if let Some(id) = &reply.to.correlation_id {
        let id = ShortString::try_new(id.as_str()).map_err(|error| error.to_string())?;
        properties = properties.with_correlation_id(id);
    }
    if let Some(traceparent) = &reply.traceparent {
        let mut headers = FieldTable::default();
        let value = AMQPValue::LongString(traceparent.as_str().into());
        headers.insert("traceparent".into(), value);
        properties = properties.with_headers(headers);
    }
    Ok(properties)
}
