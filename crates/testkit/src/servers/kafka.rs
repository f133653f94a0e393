//! Kafka: topics and groups under a prefix of the test's own.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{FutureProducer, Producer};

use super::{Instance, unique};

pub struct Kafka {
    pub server: Instance,
    prefix: String,
}

/// A way in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// Anyone may do anything.
    Plain,
    Sasl(Mechanism),
    Tls,
    SaslTls(Mechanism),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    ScramSha256,
    ScramSha512,
    /// With a token that has no signature.
    Oauthbearer,
}

impl Mechanism {
    pub const WITH_PASSWORD: [Mechanism; 3] =
        [Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512];
    pub const ALL: [Mechanism; 4] =
        [Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512, Mechanism::Oauthbearer];
}

/// The shared one; `None` skips the test.
pub fn kafka() -> Option<Kafka> {
    Instance::shared("kafka").map(Kafka::of)
}

impl Kafka {
    fn of(server: Instance) -> Kafka {
        Kafka { server, prefix: unique() }
    }

    pub async fn private(&self) -> Kafka {
        Kafka::of(self.server.private(&[]).await)
    }

    /// One whose clients over [`Listener::Plain`] are sent to this port of ours, where a proxy
    /// stands between them and the address that `server.get("")` tells.
    pub async fn private_behind(&self, port: u16) -> Kafka {
        Kafka::of(self.server.private(&[("advertised", &port.to_string())]).await)
    }

    /// A name that no other test uses: of a topic, a group, a transaction.
    pub fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Creates a topic; answers its full name.
    pub async fn topic(&self, name: &str, partitions: i32) -> String {
        let name = self.name(name);
        let config = self.config(Listener::Plain);
        let admin: AdminClient<DefaultClientContext> = config.create().expect("a client");
        let topic = NewTopic::new(&name, partitions, TopicReplication::Fixed(1));
        let timeout = Some(Duration::from_secs(60));
        let options = AdminOptions::new().request_timeout(timeout).operation_timeout(timeout);
        let done = admin.create_topics([&topic], &options).await.expect("the test Kafka answers");
        done.into_iter().for_each(|one| drop(one.expect("a new topic")));
        name
    }

    /// What a client needs for a listener, as a user who may do everything.
    pub fn config(&self, listener: Listener) -> ClientConfig {
        let mut config = ClientConfig::new();
        let (protocol, address, mechanism) = match listener {
            Listener::Plain => ("plaintext", "", None),
            Listener::Sasl(mechanism) => ("sasl_plaintext", "sasl", Some(mechanism)),
            Listener::Tls => ("ssl", "tls", None),
            Listener::SaslTls(mechanism) => ("sasl_ssl", "sasl_tls", Some(mechanism)),
        };
        config.set("bootstrap.servers", self.server.get(address));
        config.set("security.protocol", protocol);
        if matches!(listener, Listener::Tls | Listener::SaslTls(_)) {
            config.set("ssl.ca.location", self.server.get("ca"));
        }
        if let Some(mechanism) = mechanism {
            let mechanism = match mechanism {
                Mechanism::Plain => "PLAIN",
                Mechanism::ScramSha256 => "SCRAM-SHA-256",
                Mechanism::ScramSha512 => "SCRAM-SHA-512",
                Mechanism::Oauthbearer => {
                    let principal = format!("principal={}", self.server.get("user"));
                    config.set("sasl.mechanism", "OAUTHBEARER");
                    config.set("enable.sasl.oauthbearer.unsecure.jwt", "true");
                    config.set("sasl.oauthbearer.config", principal);
                    return config;
                }
            };
            config.set("sasl.mechanism", mechanism);
            config.set("sasl.username", self.server.get("user"));
            config.set("sasl.password", self.server.get("password"));
        }
        config
    }

    /// As [`Kafka::config`], as a user who is known and may do nothing. Only where there is SASL.
    pub fn config_of_limited(&self, listener: Listener) -> ClientConfig {
        let mut config = self.config(listener);
        config.set("sasl.username", self.server.get("limited_user"));
        config.set("sasl.password", self.server.get("limited_password"));
        config
    }

    /// How many messages a partition has had.
    pub async fn end(&self, topic: &str, partition: i32) -> i64 {
        let config = self.config(Listener::Plain);
        let topic = topic.to_owned();
        let ask = move || {
            let producer: FutureProducer = config.create()?;
            producer.client().fetch_watermarks(&topic, partition, Duration::from_secs(60))
        };
        let asked = tokio::task::spawn_blocking(ask).await.expect("no panic");
        asked.expect("the test Kafka answers").1
    }
}
