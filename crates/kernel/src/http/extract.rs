//! Extractors of handlers. Each names the field that it rejects.

use std::borrow::Cow;
use std::time::Duration;

use axum::RequestExt as _;
use axum::body::{Bytes, HttpBody as _};
use axum::extract::{
    FromRequest, FromRequestParts, OptionalFromRequest, Path, Query, RawPathParams, Request,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use futures::StreamExt as _;
use serde::de::DeserializeOwned;

use super::context::{Context, RequestContext};
use super::input_errors;
use crate::{Error, Key, Result};

/// A JSON body. `T` should have `deny_unknown_fields`, so that a misspelt field is refused.
pub struct Body<T> {
    pub value: T,
    /// As it was sent, for the digest of a command.
    pub bytes: Bytes,
}

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Body<T> {
    type Rejection = Error;
    async fn from_request(mut request: Request, _: &S) -> Result<Body<T>> {
        let Context(context) = request.extract_parts().await?;
        check_content_type(request.headers())?;
        let bytes = read_body(&context, request.into_body()).await?;
        Ok(Body { value: input_errors::json(&bytes)?, bytes })
    }
}

impl<T: DeserializeOwned, S: Sync> OptionalFromRequest<S> for Body<T> {
    type Rejection = Error;
    /// Returns `None` if there is neither a body nor a content type.
    async fn from_request(request: Request, state: &S) -> Result<Option<Body<T>>> {
        let has_type = request.headers().contains_key(header::CONTENT_TYPE);
        if !has_type && request.body().is_end_stream() {
            return Ok(None);
        }
        <Body<T> as FromRequest<S>>::from_request(request, state).await.map(Some)
    }
}

pub(super) fn check_content_type(headers: &HeaderMap) -> Result<()> {
    let value = headers.get(header::CONTENT_TYPE).map_or("", |v| v.to_str().unwrap_or(""));
    let kind = value.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Ok(());
    }
    let found = if kind.is_empty() { "none".into() } else { format!("`{kind}`") };
    Err(Error::invalid("content-type", format!("must be application/json, there is {found}")))
}

/// Reads the body of a request within the limits on its size and on pauses.
pub(super) async fn read_body(context: &RequestContext, body: axum::body::Body) -> Result<Bytes> {
    read(body, context.body_bytes_max(), context.server.config.body_pause_max()).await
}

async fn read(body: axum::body::Body, limit_bytes: usize, pause_max: Duration) -> Result<Bytes> {
    let mut chunks = body.into_data_stream();
    let mut all = Vec::new();
    let stalled = |_| {
        let message = format!("is incomplete, and nothing of it came for {pause_max:?}");
        Error::invalid("body", message)
    };
    while let Some(chunk) = tokio::time::timeout(pause_max, chunks.next()).await.map_err(stalled)? {
        let chunk = chunk.map_err(|e| {
            tracing::debug!(error = %e, "reading a body");
            Error::invalid("body", "ended before it was complete")
        })?;
        if all.len() + chunk.len() > limit_bytes {
            return Err(Error::TooLarge { limit_bytes });
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.into())
}

/// The query. `T` should have `deny_unknown_fields`. A repeated parameter is read as one with
/// commas between the values.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Params<T>> {
        query(parts.uri.query().unwrap_or("")).map(Params)
    }
}

fn query<T: DeserializeOwned>(text: &str) -> Result<T> {
    if text.is_empty() {
        return parsed(&Uri::from_static("/"));
    }
    let mut pairs: Vec<(Cow<'_, str>, Cow<'_, str>)> = Vec::new();
    for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
        if name.contains('\0') || value.contains('\0') {
            return Err(Error::invalid(name.replace('\0', ""), "must not contain NUL"));
        }
        match pairs.iter_mut().find(|(there, _)| *there == name) {
            Some((_, values)) => *values = format!("{values},{value}").into(),
            None => pairs.push((name, value)),
        }
    }
    let text =
        url::form_urlencoded::Serializer::new(String::from("/?")).extend_pairs(pairs).finish();
    parsed(&text.parse().map_err(|e| Error::internal("a query", e))?)
}

fn parsed<T: DeserializeOwned>(uri: &Uri) -> Result<T> {
    Query::<T>::try_from_uri(uri).map(|Query(value)| value).map_err(|e| input_errors::query(&e))
}

/// The key that `{kind}` and `{id}` of the path form.
pub struct PathKey(pub Key);

impl<S: Send + Sync> FromRequestParts<S> for PathKey {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathKey> {
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params.map_err(|e| Error::invalid("path", e.body_text()))?;
        let value = |name: &str| params.iter().find_map(|(n, value)| (n == name).then_some(value));
        let (kind, id) = (value("kind").unwrap_or(""), value("id").unwrap_or(""));
        Key::parse(&[kind, id].join("/")).map(PathKey)
    }
}

/// The only parameter of a path.
pub struct PathId(pub String);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathId> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(id)| PathId(id)).map_err(|e| Error::invalid("path", e.body_text()))
    }
}

/// How many characters a name may have.
pub const NAME_CHARS_MAX: usize = 255;

/// Rejects names that people cannot read, distinguish or type: empty, too long, or with invisible
/// or reordering characters. Emoji are allowed.
pub fn valid_name(field: &str, name: &str) -> Result<()> {
    if name.trim().is_empty() {
        return Err(Error::invalid(field, "must not be empty"));
    }
    if name.chars().count() > NAME_CHARS_MAX {
        return Err(Error::invalid(
            field,
            format!("must have at most {NAME_CHARS_MAX} characters"),
        ));
    }
    match name.chars().find(|c| is_invisible(*c)) {
        None => Ok(()),
        Some(c) => Err(Error::invalid(
            field,
            format!(
                "must not contain invisible or control characters, there is U+{:04X}",
                c as u32
            ),
        )),
    }
}

fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
            | '\u{180B}'..='\u{180F}' | '\u{200B}' | '\u{200C}' | '\u{200E}' | '\u{200F}'
            | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FEFF}'
            | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}' | '\u{1BCA0}'..='\u{1BCA3}'
            | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_in_any_script_and_have_emoji() {
        // The family is four people held together by zero-width joiners.
        for good in ["a", "Blue widget", "größe", "ウィジェット", "عنصر", "👨‍👩‍👧‍👦 2", "☕️"]
        {
            valid_name("name", good).unwrap();
        }
        valid_name("name", &"é".repeat(NAME_CHARS_MAX)).unwrap();
    }

    #[test]
    fn an_unreadable_name_is_rejected_by_its_field() {
        let long = "x".repeat(NAME_CHARS_MAX + 1);
        for bad in
            ["", "  ", "a\0b", "a\nb", "a\u{202E}b", "a\u{200B}b", "\u{FEFF}a", "\u{E0041}", &long]
        {
            let message = valid_name("name", bad).expect_err(bad).to_string();
            assert!(message.starts_with("name: must "), "{message}");
        }
    }

    #[test]
    fn a_repeated_parameter_is_a_list_or_rejected() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Query {
            label: Option<String>,
            page: Option<u32>,
        }
        let parsed: Query = query("label=a%3Db&label=c%26d").unwrap();
        assert_eq!(parsed, Query { label: Some("a=b,c&d".into()), page: None });
        let message = query::<Query>("page=1&page=2").unwrap_err().to_string();
        assert_eq!(message, "page: must be a whole number, 0 or more");
        let message = query::<Query>("label=a%00b").unwrap_err().to_string();
        assert_eq!(message, "label: must not contain NUL");
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        let body = |n: usize| axum::body::Body::from(vec![b'x'; n]);
        let pause_max = Duration::from_secs(9);
        assert_eq!(read(body(10), 10, pause_max).await.unwrap().len(), 10);
        let refused = read(body(11), 10, pause_max).await;
        assert!(matches!(refused, Err(Error::TooLarge { limit_bytes: 10 })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_body_is_the_client_s_mistake() {
        let never = futures::stream::pending::<Result<Bytes, std::io::Error>>();
        let body = axum::body::Body::from_stream(never);
        let message = read(body, 10, Duration::from_secs(9)).await.unwrap_err().to_string();
        assert_eq!(message, "body: is incomplete, and nothing of it came for 9s");
    }
}
