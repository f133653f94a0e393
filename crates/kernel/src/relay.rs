//! What domains bring to the relay of events: renderers, which make messages of events.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Bytes;
use parking_lot::RwLock;

use crate::log::Event;
use crate::{Error, Result};

/// One message of a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The number of its event.
    pub seq: i64,
    pub to: Destination,
    /// Messages with the same key stay in order: the object's. Empty: they need no order.
    pub key: String,
    pub content_type: &'static str,
    /// CloudEvents attributes without a prefix (`type`, `traceparent`): the sink adds that of its protocol.
    /// In structured mode only those that consumers may want without parsing.
    pub attributes: Vec<(Cow<'static, str>, String)>,
    pub body: Bytes,
    /// To be sent when everything before it is acknowledged.
    pub after_all: bool,
}

/// Where a message goes. Webhooks have their URL, and ignore it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Destination {
    /// A topic of Kafka, or an exchange of RabbitMQ.
    pub name: String,
    /// RabbitMQ only.
    pub routing_key: String,
}

/// Makes messages of a domain's events, for sinks whose `renderer` has its name.
#[async_trait]
pub trait Renderer: Send + Sync {
    fn name(&self) -> &str;

    /// Returns the messages of an event, which may be none. A transient error is repeated; with any
    /// other the event is parked.
    async fn render(&self, event: &Event) -> Result<Vec<Message>>;
}

/// The renderers of all domains.
#[derive(Default)]
pub struct Renderers(RwLock<BTreeMap<String, Arc<dyn Renderer>>>);

impl Renderers {
    /// Adds a renderer. A name that is taken is an error of the program.
    pub fn add(&self, renderer: Arc<dyn Renderer>) -> Result<()> {
        let name = renderer.name().to_owned();
        match self.0.write().insert(name.clone(), renderer) {
            Some(_) => Err(Error::internal(format!("renderer {name}"), "it is registered twice")),
            None => Ok(()),
        }
    }

    pub fn find(&self, name: &str) -> Option<Arc<dyn Renderer>> {
        self.0.read().get(name).cloned()
    }

    pub fn names(&self) -> Vec<String> {
        self.0.read().keys().cloned().collect()
    }
}
