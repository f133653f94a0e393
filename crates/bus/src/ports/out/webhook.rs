//! Events to a URL, one at a time, signed as Standard Webhooks describes it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::outbound::Target;
use kernel::outbound::webhook::{self, Answer};
use kernel::secret::SecretValue;
use kernel::{Ambient, Error, Result};
use parking_lot::Mutex;
use url::Url;

use super::{Closed, Outlet, Refused, Sent};
use crate::model::{Message, Position};

/// Posts messages to a URL.
pub struct WebhookOutlet {
    /// The id of the sink.
    pub sink: String,
    pub target: Target,
    pub url: Url,
    pub secret: SecretValue,
    pub ambient: Ambient,
    /// Shared by the webhooks of an organisation.
    pub rate: Option<Arc<RateLimit>>,
}

#[async_trait]
impl Outlet for WebhookOutlet {
    async fn open(&mut self) -> Result<Option<Position>> {
        Ok(None)
    }

    async fn send(&mut self, messages: &[Message], position: Position) -> Result<Sent> {
        let mut refused = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            if let Some(rate) = &self.rate {
                rate.admit().await;
            }
            let reason = self.post(message, position.epoch).await?;
            refused.extend(reason.map(|reason| Refused { index, reason }));
        }
        Ok(refused.into())
    }

    /// What was delivered before a failure must not be sent again.
    fn batch_max(&self) -> usize {
        1
    }

    async fn close(&mut self) {}
}

impl WebhookOutlet {
    /// Returns why the message can never be delivered, if so.
    async fn post(&self, message: &Message, epoch: i64) -> Result<Option<String>> {
        let id = format!("{}_{epoch}_{}", self.sink, message.seq);
        let mut request = webhook::request(
            &self.target,
            webhook::Message {
                url: &self.url,
                secret: &self.secret.current()?,
                id: &id,
                at: self.ambient.now(),
                content_type: message.content_type,
                body: message.body.clone(),
            },
        )?;
        // A structured message has its attributes in its body.
        let binary = !message.content_type.starts_with("application/cloudevents");
        for (name, value) in &message.attributes {
            if name == "traceparent" {
                request = request.header("traceparent", value);
            }
            if binary {
                request = request.header(format!("ce-{name}"), header_text(value));
            }
        }
        match webhook::deliver(&self.target, request).await? {
            Answer::Taken => Ok(None),
            Answer::TooLarge => Ok(Some("the receiver answered 413".into())),
            Answer::Gone => {
                let why = Closed("it answered 410 Gone: it wants no more events");
                Err(Error::unavailable("the webhook", why))
            }
        }
    }
}

/// Attributes are percent-encoded where HTTP headers have no room for them.
fn header_text(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'"' | b'%' | 0..=0x20 | 0x7f.. => text.push_str(&format!("%{byte:02X}")),
            _ => text.push(char::from(byte)),
        }
    }
    text
}

/// Lets so many through in a second.
pub struct RateLimit {
    every: Duration,
    next: Mutex<tokio::time::Instant>,
}

impl RateLimit {
    pub fn per_second(rate: NonZeroU32) -> RateLimit {
        let every = Duration::from_secs(1) / rate.get();
        RateLimit { every, next: Mutex::new(tokio::time::Instant::now()) }
    }

    async fn admit(&self) {
        let at = {
            let mut next = self.next.lock();
            let at = (*next).max(tokio::time::Instant::now());
            *next = at + self.every;
            at
        };
        tokio::time::sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_encoded_as_the_http_binding_says() {
        assert_eq!(header_text("mainstay.kafka.ready"), "mainstay.kafka.ready");
        assert_eq!(header_text("a b\"%é\n"), "a%20b%22%25%C3%A9%0A");
    }
}
