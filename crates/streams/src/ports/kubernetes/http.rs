//! One request and its answer; what the API server says when it does not do it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde::Deserialize;

use super::{Kubernetes, REQUEST};
use crate::cluster::Refused;

/// More than any page of a list; nothing that answers so much is an API server.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

pub struct Ask {
    pub method: Method,
    pub path: String,
    pub body: Option<(&'static str, Vec<u8>)>,
    pub form: Form,
}

/// How much of objects is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Whole,
    /// Only what all objects have; in a list.
    MetadataList,
    /// The same, in a watch.
    Metadata,
}

impl Ask {
    pub fn get(path: String) -> Ask {
        Ask { method: Method::GET, path, body: None, form: Form::Whole }
    }

    pub fn json(method: Method, path: String, body: &serde_json::Value) -> Ask {
        let body = Some(("application/json", body.to_string().into_bytes()));
        Ask { method, path, body, form: Form::Whole }
    }
}

/// Of a `Status`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Said {
    pub message: String,
    pub reason: String,
    pub code: u16,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
}

impl Kubernetes {
    /// The whole answer.
    pub async fn ask(&self, ask: Ask) -> Result<Bytes, Refused> {
        let whole = async {
            let body = self.open(ask).await?.into_body();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            body.map(|body| body.to_bytes()).map_err(|error| Refused::Away(error.to_string()))
        };
        match tokio::time::timeout(REQUEST, whole).await {
            Ok(answer) => answer,
            Err(_) => Err(Refused::Away(format!("no answer in {} s", REQUEST.as_secs()))),
        }
    }

    /// An answer that goes on.
    pub async fn open(&self, ask: Ask) -> Result<Response<Body>, Refused> {
        let accept = match ask.form {
            Form::Whole => "application/json",
            Form::MetadataList => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
            Form::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        };
        let mut request =
            Request::builder().method(ask.method).uri(ask.path).header(ACCEPT, accept);
        let body = match ask.body {
            Some((kind, body)) => {
                request = request.header(CONTENT_TYPE, kind);
                Body::from(body)
            }
            None => Body::empty(),
        };
        let request = request.body(body).map_err(|error| Refused::Invalid(error.to_string()))?;
        let answer = self.client.send(request).await.map_err(unreachable)?;
        match answer.status() {
            status if status.is_success() => Ok(answer),
            status => {
                let (head, body) = answer.into_parts();
                let body = Limited::new(body, 1 << 20).collect().await;
                let body = body.map(|body| body.to_bytes()).unwrap_or_default();
                Err(refused(status, &head.headers, &body))
            }
        }
    }
}

fn unreachable(error: kube::Error) -> Refused {
    // The innermost one says what happened: "connection refused".
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    Refused::Away(cause.to_string())
}

fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Refused {
    let said = serde_json::from_slice::<Said>(body).unwrap_or_else(|_| Said {
        message: String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned(),
        ..Said::default()
    });
    let header = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let wait = header.or(Some(said.details.retry_after_seconds)).filter(|s| *s > 0);
    refusal(status.as_u16(), said, wait.map(Duration::from_secs))
}

pub fn refusal(code: u16, said: Said, wait: Option<Duration>) -> Refused {
    let message = match said.message.is_empty() {
        true => format!("HTTP {code}"),
        false => said.message,
    };
    match code {
        404 => Refused::NotFound,
        409 if said.reason == "AlreadyExists" => Refused::Exists,
        409 | 410 => Refused::Conflict,
        401 => Refused::Forbidden(format!("the credentials are not accepted: {message}")),
        403 => Refused::Forbidden(message),
        429 | 503 | 504 => Refused::Busy(wait),
        500.. => Refused::Away(message),
        _ => Refused::Invalid(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: u16, retry: Option<&'static str>, body: &str) -> Refused {
        let mut headers = HeaderMap::new();
        if let Some(retry) = retry {
            headers.insert(RETRY_AFTER, retry.parse().unwrap());
        }
        refused(StatusCode::from_u16(code).unwrap(), &headers, body.as_bytes())
    }

    #[test]
    fn each_refusal_is_told_for_what_it_is() {
        let seconds = |s| Some(Duration::from_secs(s));
        assert_eq!(said(404, None, "{}"), Refused::NotFound);
        assert_eq!(said(409, None, r#"{"reason":"AlreadyExists"}"#), Refused::Exists);
        assert_eq!(said(409, None, r#"{"reason":"Conflict"}"#), Refused::Conflict);
        assert_eq!(said(429, Some("7"), "slow down"), Refused::Busy(seconds(7)));
        assert_eq!(said(429, None, "slow down"), Refused::Busy(None));
        let later = r#"{"details":{"retryAfterSeconds":2}}"#;
        assert_eq!(said(504, None, later), Refused::Busy(seconds(2)));
        assert_eq!(said(500, None, "oops"), Refused::Away("oops".into()));
        assert_eq!(said(422, None, r#"{"message":"no"}"#), Refused::Invalid("no".into()));
        assert_eq!(
            said(403, None, r#"{"message":"cannot create resource \"jobs\""}"#),
            Refused::Forbidden("cannot create resource \"jobs\"".into())
        );
    }
}
