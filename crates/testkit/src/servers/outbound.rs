//! Requests to servers that speak JSON over HTTP, on the way out that Mainstay takes.

use std::sync::Arc;

use kernel::Ambient;
use kernel::outbound::{Config, Outbound, Target, body};
use reqwest::{Method, Url};
use serde_json::Value;

/// One server as one of its users sees it.
#[derive(Clone)]
pub struct Http {
    target: Target,
    url: String,
    header: &'static str,
    token: String,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    /// JSON, or null if there was none.
    pub body: Value,
}

impl Http {
    pub fn new(url: &str, header: &'static str, token: &str) -> Http {
        let config = Config::default();
        let outbound = Outbound::new(config, Ambient::system(), Arc::new(|_| ()));
        let target = outbound.expect("it is configured").target("a test server");
        Http { target, url: url.into(), header, token: token.into() }
    }

    /// The same server as another user.
    pub fn with_token(&self, token: &str) -> Http {
        Http { token: token.into(), ..self.clone() }
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    /// An error says that nothing was answered, or 500 and above.
    pub async fn call(&self, method: Method, path: &str, body: &Value) -> kernel::Result<Answer> {
        let url = Url::parse(&format!("{}{path}", self.url)).expect("a path of a URL");
        let mut request = self.target.request(method, url).header(self.header, &self.token);
        if !body.is_null() {
            request = request.json(body);
        }
        let answer = self.target.http("a test", request).await?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let text = self::body(answer, 16 << 20).await?;
        Ok(Answer { status, headers, body: serde_json::from_slice(&text).unwrap_or_default() })
    }

    /// The body of an answer that must be a success.
    pub async fn expect(&self, method: Method, path: &str, body: Value) -> Value {
        let answer = self.call(method, path, &body).await;
        let answer = answer.unwrap_or_else(|error| panic!("{path}: {error:?}"));
        assert!(answer.status < 300, "{path}: {answer:?}");
        answer.body
    }

    pub async fn get(&self, path: &str) -> kernel::Result<Answer> {
        self.call(Method::GET, path, &Value::Null).await
    }
}
