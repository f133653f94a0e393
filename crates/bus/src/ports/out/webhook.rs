//! Events to a URL, one at a time, signed as Standard Webhooks describes it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kernel::outbound::{Outbound, Target, breaker};
use kernel::secret::SecretValue;
use kernel::telemetry::Secret;
use kernel::{Ambient, Error, Result, Timestamp};
use parking_lot::Mutex;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode};
use ring::hmac;
use url::Url;

use super::{Closed, Outlet, Refused, Sent};
use crate::model::{Message, Position};

/// What the secrets of webhooks begin with; the rest is base64.
const SECRET_PREFIX: &str = "whsec_";

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
    /// What a webhook is called through. The pump alone decides about retries: a breaker would still
    /// reject calls after a person resumed the sink.
    pub fn target(outbound: &Outbound, name: &str, timeout: Duration) -> Target {
        let never =
            breaker::Config { failures_in_row: u32::MAX, failure_ratio: 2.0, ..Default::default() };
        outbound.target(name).with_breaker(never).with_attempts(1).with_timeout(timeout)
    }

    /// Returns why the message can never be delivered, if so.
    async fn post(&self, message: &Message, epoch: i64) -> Result<Option<String>> {
        // The same for every try, so that receivers recognise a repetition. Without a full stop, which
        // separates the parts of what is signed.
        let id = format!("{}_{epoch}_{}", self.sink, message.seq);
        let at = self.ambient.now();
        let signature = sign(&self.secret.current()?, &id, at, &message.body)?;
        let mut request = self
            .target
            .request(Method::POST, self.url.clone())
            .header(CONTENT_TYPE, message.content_type)
            .header("webhook-id", &id)
            .header("webhook-timestamp", (at.0 / 1000).to_string())
            .header("webhook-signature", signature)
            // It is: the receiver has the id.
            .header("idempotency-key", &id)
            .body(message.body.clone());
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
        let answer = self.target.http("deliver", request).await?;
        match answer.status() {
            status if status.is_success() => Ok(None),
            StatusCode::PAYLOAD_TOO_LARGE => Ok(Some("the receiver answered 413".into())),
            StatusCode::GONE => {
                let why = Closed("it answered 410 Gone: it wants no more events");
                Err(Error::unavailable("the webhook", why))
            }
            status if status.is_redirection() => {
                let why = format!("it answered {status}; redirects are not followed");
                Err(Error::unavailable("the webhook", why))
            }
            status => Err(Error::unavailable("the webhook", format!("it answered {status}"))),
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

/// `v1,` and the HMAC-SHA256 over id, time and body.
fn sign(secret: &Secret, id: &str, at: Timestamp, body: &[u8]) -> Result<String> {
    let text = secret.expose();
    let bytes = match text.strip_prefix(SECRET_PREFIX) {
        Some(encoded) => STANDARD
            .decode(encoded)
            .map_err(|_| Error::invalid("secret", "must be base64 after whsec_"))?,
        None => text.as_bytes().to_vec(),
    };
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &bytes));
    context.update(format!("{id}.{}.", at.0 / 1000).as_bytes());
    context.update(body);
    Ok(format!("v1,{}", STANDARD.encode(context.sign())))
}

/// The secret of a user's webhook, as its receiver gets it.
pub fn secret_text(bytes: &[u8]) -> Secret {
    Secret::new(format!("{SECRET_PREFIX}{}", STANDARD.encode(bytes)))
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

    /// The example of the Standard Webhooks specification's reference libraries.
    #[test]
    fn a_signature_is_the_one_that_receivers_expect() {
        let secret = Secret::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let at = Timestamp(1_614_265_330_000);
        let body = br#"{"test": 2432232314}"#;
        let signature = sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body).unwrap();
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn attributes_are_encoded_as_the_http_binding_says() {
        assert_eq!(header_text("mainstay.kafka.ready"), "mainstay.kafka.ready");
        assert_eq!(header_text("a b\"%é\n"), "a%20b%22%25%C3%A9%0A");
    }
}
