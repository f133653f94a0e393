//! Speaks to a server byte by byte, as no client library would.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Whatever is sent, the server has answered or hung up by then.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// What came back; nothing, if the server hung up or is not there.
#[derive(Debug)]
pub struct Reply {
    pub status: Option<u16>,
    pub head: String,
    pub body: Value,
    pub took: Duration,
}

impl Reply {
    /// What the error's own words are, and what its field.
    pub fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_default()
    }

    pub fn field(&self) -> Option<&str> {
        self.body["error"]["field"].as_str()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(there, _)| there.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }
}

/// A request with a token and a body; `connection: close`, so that the answer has an end.
pub fn request(method: &str, path: &str, token: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Sends the bytes, `last` or not, and reads what comes meanwhile and afterwards.
pub async fn exchange(port: u16, bytes: &[u8], last: bool) -> Reply {
    let begun = Instant::now();
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)).await else {
        return Reply {
            status: None,
            head: String::new(),
            body: Value::Null,
            took: begun.elapsed(),
        };
    };
    let (mut from, mut to) = stream.into_split();
    let mut text = Vec::new();
    let talk = async {
        let send = async {
            // The server may close before all is sent.
            let _ = to.write_all(bytes).await;
            if last {
                let _ = to.shutdown().await;
            }
            to
        };
        let (_open, _) = tokio::join!(send, from.read_to_end(&mut text));
    };
    let ended = tokio::time::timeout(ANSWER_WITHIN, talk).await;
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(ended.is_ok(), "it hangs after {} bytes; so far: {text}", bytes.len());
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.into()));
    Reply { status, head: head.into(), body, took: begun.elapsed() }
}
