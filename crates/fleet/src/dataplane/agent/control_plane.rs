//! The client of the control plane.

use std::sync::Arc;
use std::time::Duration;

use kernel::outbound::{Delivery, Outbound, Target, json};
use kernel::{Error, Result};
use parking_lot::Mutex;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;
use url::Url;

use super::{PAUSE, Settings};
use crate::model::kind::Summary;

/// How long the control plane waits for a change before it responds that there is none.
const WAIT: Duration = Duration::from_secs(25);
/// A complete list may be long.
const BYTES_MAX: usize = 256 << 20;
/// A token that expires within this time is not used.
const LEFT: Duration = Duration::from_secs(30);

/// A change of the desired instances of a kind.
pub struct Delta {
    pub kind: String,
    /// The items are all that exist.
    pub full: bool,
    pub items: Vec<Value>,
    pub gone: Vec<String>,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct ControlPlane {
    settings: Arc<Settings>,
    target: Target,
    issuer: Target,
    token: Arc<Mutex<Option<(String, Instant)>>>,
}

impl ControlPlane {
    pub fn new(settings: &Settings, outbound: &Outbound) -> Result<ControlPlane> {
        for (name, url) in [
            ("control-plane-url", &settings.control_plane_url),
            ("sso-auth-server-url", &settings.sso_url),
        ] {
            Url::parse(url).map_err(|error| Error::invalid(name, error.to_string()))?;
        }
        Ok(ControlPlane {
            settings: Arc::new(settings.clone()),
            target: outbound.target("control plane").with_timeout(WAIT + Duration::from_secs(10)),
            issuer: outbound.target("issuer"),
            token: Arc::default(),
        })
    }

    pub async fn kinds(&self) -> Result<Vec<Summary>> {
        let response = self.call("kinds", Method::GET, "/api/v1/fleet/kinds", None).await?;
        json(response, BYTES_MAX).await
    }

    /// Sends all desired instances of a kind, and then their changes.
    pub async fn follow(&self, kind: Summary, poll: Duration, deltas: mpsc::Sender<Delta>) {
        let mut after = None;
        loop {
            match self.delta(&kind, after).await {
                Ok((delta, revision)) => {
                    // Without long polling it would respond at once with the same list.
                    let idle = revision.is_none();
                    after = revision;
                    if deltas.send(delta).await.is_err() {
                        return;
                    }
                    if idle {
                        tokio::time::sleep(poll).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, kind = kind.kind, "reading desired instances failed; retrying");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn delta(&self, kind: &Summary, after: Option<i64>) -> Result<(Delta, Option<i64>)> {
        let base = self.path(kind, &format!("/{}", kind.plural));
        let path = match after {
            None => format!("{base}?manifests=true"),
            Some(after) => {
                format!("{base}?manifests=true&after={after}&wait={}", WAIT.as_secs())
            }
        };
        let response = self.call("list", Method::GET, &path, None).await?;
        let revision = response.headers().get("x-revision").and_then(|text| text.to_str().ok());
        let revision = revision.and_then(|text| text.parse().ok());
        let mut body: Value = json(response, BYTES_MAX).await?;
        let items = match body["items"].take() {
            Value::Array(items) => items,
            _ => return Err(Error::unavailable("the control plane", "its response is not a list")),
        };
        let gone = body["gone"].as_array().map(Vec::as_slice).unwrap_or_default();
        let gone = gone.iter().filter_map(|id| Some(id.as_str()?.to_owned())).collect();
        let full = after.is_none() || body["full"] == true;
        Ok((Delta { kind: kind.kind.clone(), full, items, gone }, revision))
    }

    pub async fn report(&self, kind: &Summary, statuses: &Map<String, Value>) -> Result<()> {
        let path = self.path(kind, &format!("/{}/status", kind.plural));
        let body = Value::Object(statuses.clone());
        self.call("report", Method::PUT, &path, Some(&body)).await.map(drop)
    }

    pub async fn report_cluster(&self, kind: &Summary, body: &Value) -> Result<()> {
        let path = self.path(kind, "/status");
        self.call("report cluster", Method::PUT, &path, Some(body)).await.map(drop)
    }

    fn path(&self, kind: &Summary, rest: &str) -> String {
        format!("{}/agent-clusters/{}{rest}", kind.prefix, self.settings.cluster_id)
    }

    async fn call(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response> {
        let url = parse(&format!("{}{path}", self.settings.control_plane_url))?;
        for fresh in [false, true] {
            let token = self.token(fresh).await?;
            let mut request = self.target.request(method.clone(), url.clone()).bearer_auth(token);
            if let Some(body) = body {
                request = request.json(body);
            }
            let response = self.target.http(what, request).await?;
            // Keys may have been rotated: a new token is tried once.
            if fresh || response.status() != StatusCode::UNAUTHORIZED {
                return expect(response);
            }
        }
        Err(Error::unavailable("the control plane", "it rejects new tokens"))
    }

    async fn token(&self, fresh: bool) -> Result<String> {
        let known = self.token.lock().clone().filter(|_| !fresh);
        if let Some((token, _)) = known.filter(|(_, until)| Instant::now() + LEFT < *until) {
            return Ok(token);
        }
        let Settings { sso_url, client_id, client_secret, .. } = &*self.settings;
        let discovery = parse(&format!("{sso_url}/.well-known/openid-configuration"))?;
        let document = self.issuer.request(Method::GET, discovery);
        let document = expect(self.issuer.http("discovery", document).await?)?;
        let document: Value = json(document, BYTES_MAX).await?;
        let endpoint = parse(document["token_endpoint"].as_str().unwrap_or_default())?;
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", client_id),
            ("client_secret", client_secret.expose()),
        ];
        let request = self.issuer.request(Method::POST, endpoint).form(&form);
        let response = expect(self.issuer.http("token", request).await?)?;
        let response: Value = json(response, BYTES_MAX).await?;
        let Some(token) = response["access_token"].as_str() else {
            return Err(Error::unavailable("the issuer", "its response has no token"));
        };
        let lifetime = Duration::from_secs(response["expires_in"].as_u64().unwrap_or(60));
        *self.token.lock() = Some((token.to_owned(), Instant::now() + lifetime));
        Ok(token.to_owned())
    }
}

fn parse(url: &str) -> Result<Url> {
    Url::parse(url).map_err(|error| Error::unavailable(format!("the address `{url}`"), error))
}

fn expect(response: Response) -> Result<Response> {
    match response.status() {
        status if status.is_success() => Ok(response),
        status => {
            let path = response.url().path().to_owned();
            let error = Error::unavailable(path, format!("it responded with {status}"));
            Err(error.with_delivery(Delivery::Answered))
        }
    }
}
