//! Data sources that organisations make over the API.

mod certificates;
mod changed;
mod guarded;
mod made;

use serde_json::{Value, json};

use crate::support::server::{Answer, Server};

/// No secret of these tests begins otherwise, so that one search finds them all.
const SECRET: &str = "hunter2";

/// A server on which users' data sources may be on this machine.
fn open_config() -> advisor::Config {
    advisor::Config { private_addresses: true, ..advisor::Config::default() }
}

async fn put(server: &Server, name: &str, source: &Value) -> Answer {
    let path = format!("/api/v1/advisor/datasources/{name}");
    server.call("PUT", &path, &source.to_string()).await
}

/// Makes a data source that asks for no authentication.
async fn made(server: &Server, name: &str, url: &str) -> Answer {
    let answer = put(server, name, &json!({ "url": url })).await;
    assert!([200, 201].contains(&answer.status), "{}", answer.text);
    answer
}

async fn delete(server: &Server, name: &str) -> Answer {
    server.call("DELETE", &format!("/api/v1/advisor/datasources/{name}"), "").await
}

fn message(answer: &Answer) -> &str {
    let (status, code) = (u64::from(answer.status), answer.body["httpcode"].as_u64());
    assert_eq!(code, Some(status), "{}", answer.text);
    answer.body["message"].as_str().unwrap()
}
