//! Writes large answers as they are read.

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::stream::{self, Stream, StreamExt as _};
use kernel::{Error, Result};
use serde::Serialize;

use super::reply;

/// Items of a JSON list, and whether one was written yet.
#[derive(Debug, Default)]
pub struct Items {
    text: Vec<u8>,
    any_before: bool,
}

impl Items {
    /// Adds an item that is JSON already.
    pub fn push_text(&mut self, item: &[u8]) {
        if self.any_before {
            self.text.push(b',');
        }
        self.any_before = true;
        self.text.extend_from_slice(item);
    }

    pub fn push(&mut self, item: &impl Serialize) -> Result<()> {
        let text =
            serde_json::to_vec(item).map_err(|e| Error::internal("encoding an answer", e))?;
        self.push_text(&text);
        Ok(())
    }

    /// What was added since the last call.
    pub fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.text).into()
    }
}

/// A list of what the chunks have.
pub fn list(chunks: impl Stream<Item = Result<Bytes>> + Send + 'static) -> Response {
    let one = |text: &'static str| stream::once(async move { Ok(Bytes::from(text)) });
    let whole = one("[").chain(chunks).chain(one("]"));
    reply::text(200, Body::from_stream(whole))
}
