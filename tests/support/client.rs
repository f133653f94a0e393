//! Asks a server over HTTP; an answer that does not come is an error, never a wait.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;

/// A server that takes longer has not answered.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
    traceparent: Option<String>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Whether the same request was carried out before.
    pub replayed: bool,
    pub retry_after: bool,
    pub body: Value,
}

impl Answer {
    pub fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_default()
    }

    /// Worth another try with the same key.
    pub fn later(&self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

impl Client {
    pub fn new(url: &str, token: &str) -> Client {
        kernel::outbound::install_tls();
        let http = reqwest::Client::builder().timeout(ANSWER_WITHIN).no_proxy().build();
        let (url, token) = (url.into(), token.into());
        Client { http: http.expect("a client"), url, token, traceparent: None }
    }

    /// The same caller, whose requests are a part of this trace (W3C `traceparent`).
    pub fn traced(self, traceparent: &str) -> Client {
        Client { traceparent: Some(traceparent.into()), ..self }
    }

    /// The same caller at another server.
    pub fn at(&self, url: &str) -> Client {
        Client { url: url.into(), ..self.clone() }
    }

    /// As it is sent: the method, the path, the idempotency key, the body.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> reqwest::Result<Answer> {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if !self.token.is_empty() {
            request = request.bearer_auth(&self.token);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(traceparent) = &self.traceparent {
            request = request.header("traceparent", traceparent);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let has = |name: &str| response.headers().contains_key(name);
        let (replayed, retry_after) = (has("idempotent-replay"), has("retry-after"));
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status, replayed, retry_after, body })
    }

    pub async fn get(&self, path: &str) -> reqwest::Result<Answer> {
        self.send(Method::GET, path, None, None).await
    }

    /// Asks a server that is well.
    pub async fn read(&self, path: &str) -> Value {
        let answer = self.get(path).await.expect("a healthy server answers");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    pub async fn post(&self, path: &str, body: &Value) -> reqwest::Result<Answer> {
        self.send(Method::POST, path, None, Some(body)).await
    }

    /// Creates a widget; returns its id.
    pub async fn create(&self, body: &Value) -> String {
        let answer = self.post("/api/v1/widgets", body).await.expect("a healthy server answers");
        assert_eq!(answer.status, 202, "{}", answer.body);
        id_of(&answer.body)
    }

    /// Walks all pages of a list, from `after` on.
    pub async fn walk(
        &self,
        path: &str,
        list: &str,
        after: Option<i64>,
        mut see: impl FnMut(&Value),
    ) {
        let mut after = after;
        loop {
            let from = after.map(|after| format!("&after={after}")).unwrap_or_default();
            let page = self.read(&format!("{path}{from}")).await;
            let some = page[list].as_array().unwrap_or_else(|| panic!("no {list} at {path}"));
            some.iter().for_each(&mut see);
            after = page["next"].as_i64();
            if after.is_none() || some.is_empty() {
                return;
            }
        }
    }
}

/// The id of an object as an answer shows it.
pub fn id_of(object: &Value) -> String {
    let key = object["key"].as_str().expect("an object has a key");
    key.strip_prefix("widget/").expect("it is a widget").to_owned()
}
