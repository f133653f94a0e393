//! Server-sent events, as a client reads them.

use std::time::Duration;

use axum::body::Bytes;
use axum::response::Response;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub name: String,
    pub id: Option<i64>,
    pub data: Value,
}

pub struct Stream {
    body: BoxStream<'static, Result<Bytes, String>>,
    read: String,
    /// What an EventSource would send as `Last-Event-ID`.
    pub last: Option<i64>,
    pub comments: usize,
}

impl Stream {
    pub fn of(response: Response) -> Stream {
        assert_eq!(response.status(), 200);
        let of = response.headers()["content-type"].to_str().unwrap();
        assert!(of.starts_with("text/event-stream"), "{of}");
        let body = response.into_body().into_data_stream();
        Stream::reading(body.map_err(|error| error.to_string()).boxed())
    }

    /// Over a socket.
    pub fn of_socket(response: reqwest::Response) -> Stream {
        assert_eq!(response.status(), 200);
        Stream::reading(response.bytes_stream().map_err(|error| error.to_string()).boxed())
    }

    fn reading(body: BoxStream<'static, Result<Bytes, String>>) -> Stream {
        Stream { body, read: String::new(), last: None, comments: 0 }
    }

    /// The next event; fails the test if none comes for a while, `None` if the stream ends.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some((block, rest)) = self.read.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.read = rest;
                match parse(&block) {
                    Some(event) => {
                        self.last = event.id.or(self.last);
                        return Some(event);
                    }
                    None => self.comments += 1,
                }
            }
            let wait = tokio::time::timeout(Duration::from_secs(20), self.body.next());
            let bytes = wait.await.expect("something within 20 s")?.expect("a part of the body");
            self.read.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// The next event, which must have this name.
    pub async fn expect(&mut self, name: &str) -> Event {
        let event = self.next().await.expect("the stream goes on");
        assert_eq!(event.name, name, "{event:?}");
        event
    }

    /// The next `changed` of an instance that has this status; others are passed over.
    pub async fn until(&mut self, id: &str, status: &str) -> Event {
        loop {
            let event = self.next().await.expect("the stream goes on");
            if event.name == "changed" && event.data["id"] == id && event.data["status"] == status {
                return event;
            }
        }
    }
}

fn parse(block: &str) -> Option<Event> {
    let field = |name: &str| {
        let lines =
            block.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(':'));
        let lines: Vec<&str> = lines.map(str::trim_start).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    };
    let data = field("data")?;
    Some(Event {
        name: field("event").expect("every event has a name"),
        id: field("id").map(|id| id.parse().expect("an id is a number")),
        data: serde_json::from_str(&data).expect("data is JSON"),
    })
}
