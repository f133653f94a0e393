//! `Idempotency-Key`: requests with the same key are carried out once and get the same response.
//!
//! A handler takes [`Idempotency`], does its work within [`Idempotent::run`], and lets
//! [`commit_idempotent`] commit its change.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

use super::RequestContext;
use super::context::Context;
use crate::change::{Change, CommandRecord, CommandReply, Refusal};
use crate::{App, Error, Result, Store};

const KEY_CHARS_MAX: usize = 255;

/// The request's `Idempotency-Key`, if it has one.
pub struct Idempotency {
    id: Option<String>,
    request: String,
}

/// A request that is carried out at most once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotent {
    /// The command id, which the caller's subject is part of, and the digest of the request.
    pub command: Option<(String, String)>,
}

impl<S: Sync> FromRequestParts<S> for Idempotency {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Idempotency> {
        let Context(context) = Context::from_request_parts(parts, state).await?;
        Idempotency::read(parts, &context)
    }
}

impl Idempotency {
    pub(super) fn read(parts: &Parts, context: &RequestContext) -> Result<Idempotency> {
        let who = context.caller()?;
        let request = format!("{} {}", parts.method, parts.uri.path());
        let Some(key) = parts.headers.get("idempotency-key") else {
            return Ok(Idempotency { id: None, request });
        };
        let key = key.to_str().unwrap_or("");
        if key.is_empty() || key.len() > KEY_CHARS_MAX || !key.bytes().all(|b| b.is_ascii_graphic())
        {
            let message = format!("must be 1 to {KEY_CHARS_MAX} visible ASCII characters");
            return Err(Error::invalid("idempotency-key", message));
        }
        // A key has no spaces, so the ids of two callers cannot be equal.
        Ok(Idempotency { id: Some(format!("{key} {} {}", who.issuer, who.subject)), request })
    }

    /// Adds the body to what identifies the request.
    pub fn of(self, body: &[u8]) -> Idempotent {
        let digest = || {
            let mut hash = Sha256::new();
            hash.update((self.request.len() as u64).to_be_bytes());
            hash.update(&self.request);
            hash.update(body);
            format!("{:x}", hash.finalize())
        };
        Idempotent { command: self.id.as_ref().map(|id| (id.clone(), digest())) }
    }
}

impl Idempotent {
    /// Runs `work`, unless the request was carried out before. The same request may be carried out
    /// concurrently: if `work` fails, that one's response is returned, if there is one.
    pub async fn run(
        &self,
        store: &dyn Store,
        work: impl Future<Output = Result<Response>>,
    ) -> Result<Response> {
        if let Some(before) = self.replay(store).await? {
            return Ok(before);
        }
        match work.await {
            Err(error) => self.replay(store).await.ok().flatten().ok_or(error),
            done => done,
        }
    }

    async fn replay(&self, store: &dyn Store) -> Result<Option<Response>> {
        let Some((id, digest)) = &self.command else { return Ok(None) };
        match store.command(id).await? {
            None => Ok(None),
            Some(done) if done.digest == *digest => Ok(Some(respond(&done.reply, true))),
            Some(done) => Err(Refusal::Mismatch { id: done.id }.into()),
        }
    }

    /// Returns the record for the change that carries the request out.
    pub fn command(&self, reply: &CommandReply) -> Option<CommandRecord> {
        let (id, digest) = self.command.clone()?;
        Some(CommandRecord { id, digest, reply: reply.clone() })
    }
}

/// Commits the change once, and responds; with the first response if it was committed before.
pub async fn commit_idempotent(
    app: &App,
    idempotent: &Idempotent,
    mut change: Change,
    reply: CommandReply,
) -> Result<Response> {
    change.command = idempotent.command(&reply);
    match crate::store::commit(app.store.as_ref(), change, app.ambient.now()).await {
        Ok(_) => Ok(respond(&reply, false)),
        Err(Error::Refused(Refusal::Repeated { reply: before, .. })) => Ok(respond(&before, true)),
        Err(error) => Err(error),
    }
}

fn respond(reply: &CommandReply, replay: bool) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
    let json = HeaderValue::from_static("application/json");
    let body = reply.body.text().to_owned();
    let mut response = (status, [(header::CONTENT_TYPE, json)], body).into_response();
    if replay {
        let name = HeaderName::from_static("idempotent-replay");
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::RequestContext;
    use crate::identity::Principal;
    use std::sync::Arc;

    async fn idempotent(key: &str, subject: &str, path: &str, body: &[u8]) -> Result<Idempotent> {
        let request = axum::http::Request::builder().method("POST").uri(path);
        let (mut parts, ()) = request.header("idempotency-key", key).body(()).unwrap().into_parts();
        let principal = Principal { subject: subject.into(), ..Principal::default() };
        let context = RequestContext::detached("r1", parts.method.clone(), path);
        context.caller.set(Arc::new(principal)).unwrap();
        parts.extensions.insert(Arc::new(context));
        Ok(Idempotency::from_request_parts(&mut parts, &()).await?.of(body))
    }

    #[tokio::test]
    async fn the_same_request_has_the_same_command_and_any_other_a_different_one() {
        let first = idempotent("k", "alice", "/a", b"{}").await.unwrap();
        assert_eq!(idempotent("k", "alice", "/a", b"{}").await.unwrap(), first);
        let (id, digest) = first.command.unwrap();
        let of = async |key, subject, path, body| {
            idempotent(key, subject, path, body).await.unwrap().command.unwrap()
        };
        assert_ne!(of("k2", "alice", "/a", b"{}").await.0, id);
        assert_ne!(of("k", "bob", "/a", b"{}").await.0, id);
        assert_ne!(of("k", "alice", "/b", b"{}").await.1, digest);
        assert_ne!(of("k", "alice", "/a", b"{ }").await.1, digest);
    }

    #[tokio::test]
    async fn a_key_that_could_be_misread_is_refused() {
        for bad in ["", "a b", &"x".repeat(256)] {
            let message = idempotent(bad, "alice", "/a", b"").await.expect_err(bad).to_string();
            assert!(message.starts_with("idempotency-key: must be"), "{message}");
        }
    }
}
