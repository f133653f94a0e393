//! Messages to a URL, signed as Standard Webhooks describes it. Who calls decides about retries.

use std::time::Duration;

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder, StatusCode};
use ring::hmac;
use url::Url;

use super::{Outbound, Target, breaker};
use crate::telemetry::Secret;
use crate::{Error, Result, Timestamp};

/// What secrets begin with; the rest is base64.
const SECRET_PREFIX: &str = "whsec_";

/// A message to a receiver. Each try of it has the same id, so that receivers recognise a repetition.
pub struct Message<'a> {
    pub url: &'a Url,
    pub secret: &'a Secret,
    /// Without a full stop, which separates the parts of what is signed.
    pub id: &'a str,
    pub at: Timestamp,
    pub content_type: &'a str,
    pub body: Bytes,
}

/// What a receiver answered that needs no other try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Taken,
    /// It will never take this one.
    TooLarge,
    /// It wants no more.
    Gone,
}

/// What webhooks are called through: without a breaker, which would still reject calls after a person
/// resumed one.
pub fn target(outbound: &Outbound, name: &str, timeout: Duration) -> Target {
    let never =
        breaker::Config { failures_in_row: u32::MAX, failure_ratio: 2.0, ..Default::default() };
    outbound.target(name).with_breaker(never).with_attempts(1).with_timeout(timeout)
}

/// The signed request of a message.
pub fn request(target: &Target, message: Message<'_>) -> Result<RequestBuilder> {
    let Message { url, secret, id, at, content_type, body } = message;
    let signature = sign(secret, id, at, &body)?;
    let request = target.request(Method::POST, url.clone());
    Ok(request
        .header(CONTENT_TYPE, content_type)
        .header("webhook-id", id)
        .header("webhook-timestamp", (at.0 / 1000).to_string())
        .header("webhook-signature", signature)
        // It is: the receiver has the id.
        .header("idempotency-key", id)
        .body(body))
}

/// Sends a request once. What may be different at the next try is an error.
pub async fn deliver(target: &Target, request: RequestBuilder) -> Result<Answer> {
    let answer = target.http("deliver", request).await?;
    match answer.status() {
        status if status.is_success() => Ok(Answer::Taken),
        StatusCode::PAYLOAD_TOO_LARGE => Ok(Answer::TooLarge),
        StatusCode::GONE => Ok(Answer::Gone),
        status if status.is_redirection() => {
            let why = format!("it answered {status}; redirects are not followed");
            Err(Error::unavailable("the webhook", why))
        }
        status => Err(Error::unavailable("the webhook", format!("it answered {status}"))),
    }
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

/// A derived secret, as its receiver gets it.
pub fn secret_text(bytes: &[u8]) -> Secret {
    Secret::new(format!("{SECRET_PREFIX}{}", STANDARD.encode(bytes)))
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
}
