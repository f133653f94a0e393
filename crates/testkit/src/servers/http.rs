//! Requests to the test servers' own interfaces.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::Value;

/// Goes straight to where it is sent.
pub fn client() -> Client {
    kernel::outbound::install_tls();
    let client = Client::builder().no_proxy().timeout(Duration::from_secs(60)).build();
    client.expect("a client")
}

/// The body of an answer that is well; panics with what the server says if it is not.
pub async fn answer(request: RequestBuilder) -> Value {
    let (status, body) = try_answer(request).await;
    assert!(status.is_success(), "{status}: {body}");
    body
}

/// Whatever the server says; a body that is not JSON becomes a text.
pub async fn try_answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.expect("the test server answers");
    let status = response.status();
    let text = response.text().await.expect("a whole answer");
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
