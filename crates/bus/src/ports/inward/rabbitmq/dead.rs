//! Dead letters: the original message with the reason, confirmed by the broker before the original is
//! acknowledged.

use std::sync::Arc;

use axum::body::Bytes;
use kernel::{Error, Result};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::sync::{mpsc, oneshot};

use crate::model::without_token;
use crate::ports::inward::DeadLetter;
use crate::ports::rabbitmq::{CONFIRM_TIMEOUT, Link, PERSISTENT, short};

/// Requests that wait. Those who ask wait for the answer anyway.
const WAITING_MAX: usize = 16;

/// All headers are in one frame, of 128 KiB by default. Those of the original may fill it.
const HEADERS_BYTES_MAX: usize = 64 << 10;

/// Headers by which the broker routes or counts: they would act again.
const ACTING: [&str; 3] = ["CC", "BCC", "x-delivery-count"];

/// A message as it came.
pub struct Original {
    pub body: Bytes,
    pub properties: BasicProperties,
    pub exchange: ShortString,
    pub routing_key: ShortString,
}

/// Publishes dead letters of one consumer, one at a time: the library gives a message that came back to
/// any of those that are confirmed together.
pub struct DeadLetters {
    consumer: String,
    queue: String,
    requests: mpsc::Sender<Request>,
}

pub struct Request {
    body: Bytes,
    properties: BasicProperties,
    /// Without anything of the original's, should the broker refuse that.
    plain: BasicProperties,
    done: oneshot::Sender<Result<()>>,
}

impl DeadLetters {
    pub fn new(consumer: &str, queue: &str) -> (DeadLetters, mpsc::Receiver<Request>) {
        let (requests, waiting) = mpsc::channel(WAITING_MAX);
        (DeadLetters { consumer: consumer.into(), queue: queue.into(), requests }, waiting)
    }

    /// Returns when the broker has the dead letter.
    pub async fn publish(&self, original: Original, letter: DeadLetter) -> Result<()> {
        let (reason, field) = (&letter.reason, letter.field.as_deref().unwrap_or_default());
        tracing::warn!(consumer = self.consumer, reason, field, "dead letter");
        let headers = self.headers(&original, &letter);
        let plain = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_headers(table(headers.clone(), None));
        let kept = original.properties.headers().as_ref();
        let kept = kept.filter(|headers| format!("{headers:?}").len() <= HEADERS_BYTES_MAX);
        let properties = cleaned(&original.properties).with_headers(table(headers, kept));
        let (done, answer) = oneshot::channel();
        let request = Request { body: without_token(&original.body), properties, plain, done };
        let gone = || {
            let what = format!("publishing a dead letter to the queue {}", self.queue);
            Error::unavailable(what, "the connection is lost")
        };
        self.requests.send(request).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    fn headers(&self, original: &Original, letter: &DeadLetter) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("reason", letter.reason.clone()),
            ("mainstay-consumer", self.consumer.clone()),
            ("mainstay-exchange", original.exchange.to_string()),
            ("mainstay-routing-key", original.routing_key.to_string()),
        ];
        headers.extend(letter.field.clone().map(|field| ("field", field)));
        let author = original.properties.user_id().as_ref();
        headers.extend(author.map(|author| ("mainstay-user-id", author.to_string())));
        headers
    }
}

/// The properties of the original, without those that would act once more.
fn cleaned(original: &BasicProperties) -> BasicProperties {
    let mut kept = BasicProperties::default().with_delivery_mode(PERSISTENT);
    macro_rules! keep {
        ($($get:ident => $with:ident),*) => {
            // `user-id` must be ours or none, `expiration` would delete the letter, and the requester
            // behind a direct `reply-to` is gone.
            $(if let Some(value) = original.$get().clone() { kept = kept.$with(value); })*
        };
    }
    keep!(content_type => with_content_type, content_encoding => with_content_encoding,
        priority => with_priority, correlation_id => with_correlation_id,
        message_id => with_message_id, timestamp => with_timestamp, kind => with_type,
        app_id => with_app_id);
    kept
}

fn table(ours: Vec<(&'static str, String)>, original: Option<&FieldTable>) -> FieldTable {
    let mut table = original.cloned().unwrap_or_default();
    let mut all = FieldTable::default();
    for (name, value) in std::mem::take(&mut table).inner() {
        if !ACTING.contains(&name.as_str()) {
            all.insert(name.clone(), value.clone());
        }
    }
    for (name, value) in ours {
        all.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    all
}

/// Publishes what is asked for until nobody asks any more, or the connection is lost.
pub async fn publish(link: Arc<Link>, queue: String, mut requests: mpsc::Receiver<Request>) {
    let mut channel = None;
    while let Some(Request { body, properties, plain, done }) = requests.recv().await {
        let mut published = one(&link, &mut channel, &queue, &body, properties).await;
        if published.is_err() && channel.is_none() {
            // The broker closed the channel. If the original's properties are the cause, that would
            // happen at each delivery.
            published = one(&link, &mut channel, &queue, &body, plain).await;
        }
        let _ = done.send(published);
    }
}

async fn one(
    link: &Link,
    channel: &mut Option<Channel>,
    queue: &str,
    body: &[u8],
    properties: BasicProperties,
) -> Result<()> {
    let attempted = format!("publishing a dead letter to the queue {queue}");
    let on = match channel.take() {
        Some(channel) => channel,
        None => {
            let new = link.channel().await?;
            let confirmed = new.confirm_select(ConfirmSelectOptions::default()).await;
            confirmed.map_err(|error| link.failed(&attempted, &error))?;
            new
        }
    };
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let key = short("the name of the dead-letter queue", queue)?;
    let sent = on.basic_publish("".into(), key, options, body, properties);
    let confirmed = async {
        let mut confirmed = std::pin::pin!(async { sent.await?.await });
        match tokio::time::timeout(CONFIRM_TIMEOUT, &mut confirmed).await {
            Ok(confirmed) => confirmed,
            Err(_) => {
                tracing::warn!(queue, "the broker has not confirmed a dead letter; waiting for it");
                confirmed.await
            }
        }
    };
    let confirmation = tokio::select! {
        biased;
        confirmation = confirmed => confirmation,
        error = link.lost() => return Err(error),
    };
    let confirmation = confirmation.map_err(|error| link.failed(&attempted, &error))?;
    *channel = Some(on);
    match confirmation {
        Confirmation::Ack(None) => Ok(()),
        Confirmation::Ack(Some(_)) => {
            let why = format!("the queue does not exist; create {queue} as a quorum queue");
            Err(link.refused(&attempted, why))
        }
        _ => Err(link.refused(&attempted, "the broker could not store it (basic.nack)")),
    }
}
