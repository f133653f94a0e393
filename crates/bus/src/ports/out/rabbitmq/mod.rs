//! RabbitMQ as a sink: persistent messages to an exchange, each confirmed by the broker.
//!
//! The fence is an *exclusive* queue that the publishing connection holds. The broker gives it to a
//! second connection only when the first is gone, and with it everything that was still on its way.

mod publish;

use std::time::Duration;

use async_trait::async_trait;
use kernel::outbound::{Delivery, Outbound};
use kernel::{Error, Result};
use lapin::options::{ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use tokio::sync::watch;

use self::publish::Publisher;
use super::{Outlet, Refused, Sent};
use crate::model::settings::RabbitMqSink;
use crate::model::{Message, Position, Template};
use crate::ports::rabbitmq::{Blocked, Broker, Link, RESOURCE_LOCKED, Settings, reply_code, short};

/// The broker looks once per interval and gives up after two without data: a holder that is silent loses
/// the fence after 2 to 3 s. With 2 s it would be up to 6 s, and a take-over must take less than 5 s.
const HEARTBEAT_S: u16 = 1;

/// For the connection, the fence and the exchange together.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// The way out to one RabbitMQ sink.
pub struct RabbitMqOutlet {
    broker: Broker,
    /// The queue that only one connection can hold.
    fence: String,
    config: RabbitMqSink,
    publisher: Option<Publisher>,
    blocked: Blocked,
    /// The largest message that the broker takes, once it has refused a larger one.
    message_bytes_max: Option<usize>,
}

impl RabbitMqOutlet {
    pub fn new(name: &str, config: &RabbitMqSink, outbound: &Outbound) -> Result<RabbitMqOutlet> {
        let settings = Settings {
            key: &format!("bus.sinks.{name}.rabbitmq"),
            owner: &format!("sink {name}"),
            url: &config.url,
            username: &config.username,
            password: &config.password,
            tls: &config.tls,
        };
        let broker = Broker::new(&settings, outbound)?;
        let fence = format!("mainstay.relay.{name}");
        let config = config.clone();
        Ok(RabbitMqOutlet {
            broker,
            fence,
            config,
            publisher: None,
            blocked: Blocked::default(),
            message_bytes_max: None,
        })
    }

    /// Takes the fence, or tells that another has it.
    async fn hold_fence(&self, link: &Link) -> Result<()> {
        let channel = link.channel().await?;
        let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
        let name = short("the name of the sink", &self.fence)?;
        let declared = channel.queue_declare(name, options, FieldTable::default()).await;
        let Err(error) = declared else { return Ok(()) };
        let attempted = format!("declaring the exclusive queue {}", self.fence);
        if reply_code(&error) == Some(RESOURCE_LOCKED) {
            let why = "another holder has the sink: the queue is free when its connection is closed, \
                       or has been silent for 3 s";
            return Err(link.refused(&attempted, why).with_delivery(Delivery::NotSent));
        }
        Err(link.failed(&attempted, &error).with_delivery(Delivery::NotSent))
    }

    async fn connect(&mut self) -> Result<Publisher> {
        let link = self.broker.connect(HEARTBEAT_S, self.blocked.clone()).await?;
        if let Err(error) = self.hold_fence(&link).await {
            link.close().await;
            return Err(error);
        }
        let channel = link.channel().await?;
        let confirmed = channel.confirm_select(ConfirmSelectOptions::default()).await;
        confirmed.map_err(|error| link.failed("switching on confirmations", &error))?;
        let mut publisher = Publisher::new(link, channel, &self.config);
        let template = Template::parse(&self.config.exchange);
        if let Some(exchange) = template.as_ref().ok().and_then(Template::fixed) {
            publisher.ensure_exchange(exchange).await?;
        }
        Ok(publisher)
    }
}

#[async_trait]
impl Outlet for RabbitMqOutlet {
    async fn open(&mut self) -> Result<Option<Position>> {
        // The broker must have released the fence of our own earlier connection.
        self.close().await;
        let opened = tokio::time::timeout(OPEN_TIMEOUT, self.connect()).await;
        self.publisher = Some(opened.unwrap_or_else(|_| {
            let what = format!("opening {}", self.broker.describe());
            Err(Error::unavailable(what, "the broker does not answer"))
        })?);
        Ok(None)
    }

    async fn send(&mut self, messages: &[Message], _: Position) -> Result<Sent> {
        let what = self.broker.describe();
        if self.broker.is_outdated() {
            // Not replaced here: between two connections another may hold the fence, and the caller
            // must read its cursor again.
            self.close().await;
            let why = "its credentials have changed; it must be opened again";
            return Err(Error::unavailable(what, why).with_delivery(Delivery::NotSent));
        }
        let Some(mut publisher) = self.publisher.take() else {
            return Err(Error::unavailable(what, "it is not open").with_delivery(Delivery::NotSent));
        };
        // After an error it is dropped, which ends the connection: nothing of it is sent any more.
        match publisher.publish(messages, self.message_bytes_max).await {
            Ok(refused) => {
                self.publisher = Some(publisher);
                Ok(refused.into())
            }
            Err(error) => {
                self.message_bytes_max = publisher.limit().or(self.message_bytes_max);
                Err(error)
            }
        }
    }

    /// An alarm for memory or disk.
    fn blocked(&self) -> Option<watch::Receiver<Option<String>>> {
        Some(self.blocked.subscribe())
    }

    async fn close(&mut self) {
        if let Some(publisher) = self.publisher.take() {
            publisher.close().await;
        }
    }
}
