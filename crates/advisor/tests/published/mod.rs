//! What jobs publish: messages for topics, and calls of webhooks.

mod failing;
mod receiver;
mod shapes;
mod topics;
mod webhook;

use kernel::Result;
use kernel::log::{Event, EventFilter};
use kernel::relay::Message;
use serde_json::Value;

use crate::support::server::Server;

/// A message as a consumer gets it.
#[derive(Debug, Clone)]
pub struct Published {
    pub topic: String,
    pub key: String,
    pub after_all: bool,
    pub body: Value,
}

impl Published {
    fn of(event: &Event, message: Message) -> Published {
        assert_eq!((message.seq, message.content_type), (event.seq, "application/json"));
        Published {
            topic: message.to.name,
            key: message.key,
            after_all: message.after_all,
            body: serde_json::from_slice(&message.body).unwrap(),
        }
    }

    /// The names of its experiments.
    pub fn experiments(&self) -> Vec<&str> {
        let experiments = self.body["experiments"].as_object();
        experiments.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }
}

pub async fn events(server: &Server) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    loop {
        let after = all.last().map_or(0, |event| event.seq);
        let page = server.app.store.events(after, &EventFilter::default(), 1000).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

pub async fn render(server: &Server, event: &Event) -> Result<Vec<Published>> {
    let renderer = server.app.renderers().find("kruize").unwrap();
    let messages = renderer.render(event).await?;
    Ok(messages.into_iter().map(|message| Published::of(event, message)).collect())
}

/// What a sink would send of everything that has happened, in order.
pub async fn published(server: &Server) -> Vec<Published> {
    let mut all = Vec::new();
    for event in events(server).await {
        let messages = render(server, &event).await.unwrap();
        assert!(messages.len() <= 1, "an event is one message at most: {messages:?}");
        all.extend(messages);
    }
    all
}
