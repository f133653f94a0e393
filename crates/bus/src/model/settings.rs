//! The settings of sinks and consumers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kernel::Backoff;
use kernel::outbound::Tls;
use kernel::secret::SecretSource;
use serde::{Deserialize, Serialize};

/// The renderer that needs no domain.
pub const CLOUDEVENTS: &str = "cloudevents";

/// Where events go: exactly one of `kafka`, `rabbitmq` and `webhook`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sink {
    pub kafka: Option<KafkaSink>,
    pub rabbitmq: Option<RabbitMqSink>,
    pub webhook: Option<WebhookSink>,
    pub filter: Filter,
    pub mode: Mode,
    /// What makes messages of events: `cloudevents`, the default, or one that a domain brings.
    pub renderer: Option<String>,
    /// Where a sink begins that has no cursor yet.
    pub start: Start,
    /// A larger event is sent without its data, with a `dataref`.
    pub message_bytes_max: Option<usize>,
}

/// Which events a sink gets. Empty: all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Kinds of objects, as `kafka`. Those of sign-in (`account`, `session`, `installation`) only if they
    /// are named: they have hashes of secrets.
    pub kinds: Vec<String>,
    /// Types of events, as `mainstay.kafka.ready`; a `*` at the end stands for the rest.
    pub types: Vec<String>,
    pub orgs: Vec<String>,
    /// Only what a command led to: accepted or rejected, progress, done.
    pub commands: bool,
}

/// How an event is written as a CloudEvent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The whole event is the body.
    #[default]
    Structured,
    /// The body is the data; the attributes are headers.
    Binary,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// With the next event.
    #[default]
    Latest,
    /// With the oldest event that is kept.
    Earliest,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaSink {
    pub brokers: Vec<String>,
    /// Whom to trust, and who we are. Empty: the system's authorities. Left out: no TLS.
    pub tls: Option<Tls>,
    pub sasl: Option<Sasl>,
    /// `{kind}`, `{type}` and `{org}` are replaced.
    pub topic: String,
    /// Every event exactly once for consumers with `isolation.level=read_committed`. Without, at least
    /// once: for brokers that have no transactions.
    pub transactions: bool,
    /// Create topics that are missing.
    pub create_topics: bool,
    /// Of topics that are created; the broker's default if not given.
    pub partitions: Option<i32>,
    pub replication_factor: Option<i16>,
}

impl Default for KafkaSink {
    fn default() -> KafkaSink {
        KafkaSink {
            brokers: Vec::new(),
            tls: None,
            sasl: None,
            topic: "mainstay.{kind}".into(),
            transactions: true,
            create_topics: true,
            partitions: None,
            replication_factor: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sasl {
    pub mechanism: SaslMechanism,
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    pub password: SecretSource,
    /// `oauthbearer`: the token, which another program keeps fresh in a file or in Vault.
    #[serde(default)]
    pub token: SecretSource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SaslMechanism {
    Plain,
    ScramSha256,
    ScramSha512,
    Oauthbearer,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RabbitMqSink {
    /// `amqp://HOST[:PORT][/VHOST]`, or `amqps://` for TLS.
    pub url: String,
    pub username: String,
    pub password: SecretSource,
    pub tls: Tls,
    /// `{kind}`, `{type}` and `{org}` are replaced, here and in the routing key.
    pub exchange: String,
    pub routing_key: String,
    /// Create the exchange (topic, durable) if it is missing.
    pub create_exchange: bool,
    /// What becomes of an event that no queue is bound for.
    pub unroutable: Unroutable,
}

impl Default for RabbitMqSink {
    fn default() -> RabbitMqSink {
        RabbitMqSink {
            url: String::new(),
            username: String::new(),
            password: SecretSource::default(),
            tls: Tls::default(),
            exchange: "mainstay".into(),
            routing_key: "{type}".into(),
            create_exchange: true,
            unroutable: Unroutable::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unroutable {
    /// It is parked: skipped, and sent again on `mainstay bus resume`.
    #[default]
    Park,
    /// Nobody wants it.
    Drop,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookSink {
    pub url: String,
    /// The key of the signature.
    pub secret: SecretSource,
    pub tls: Tls,
}

/// Where commands come from: exactly one of `kafka` and `rabbitmq`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Consumer {
    pub kafka: Option<KafkaConsumer>,
    pub rabbitmq: Option<RabbitMqConsumer>,
    /// A larger message is a dead letter.
    pub message_bytes_max: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaConsumer {
    pub brokers: Vec<String>,
    /// Whom to trust, and who we are. Empty: the system's authorities. Left out: no TLS.
    pub tls: Option<Tls>,
    pub sasl: Option<Sasl>,
    pub topics: BTreeMap<String, KafkaTopic>,
    pub group: String,
    pub dead_letter_topic: String,
    /// Topics that answers may go to: the header `reply-to` names one.
    pub reply_topics: BTreeSet<String>,
    pub create_topics: bool,
}

/// A topic with commands, and the identity in whose name they are carried out unless they have a token:
/// who may write to the topic may do what that identity may. Without a subject each needs a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaTopic {
    pub subject: String,
    pub org: String,
    pub roles: BTreeSet<String>,
    /// The value of each record is the body of this command, not an envelope.
    pub command: Option<String>,
}

impl Default for KafkaConsumer {
    fn default() -> KafkaConsumer {
        KafkaConsumer {
            brokers: Vec::new(),
            tls: None,
            sasl: None,
            topics: BTreeMap::new(),
            group: "mainstay".into(),
            dead_letter_topic: "mainstay.commands.dead".into(),
            reply_topics: BTreeSet::new(),
            create_topics: true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RabbitMqConsumer {
    pub url: String,
    pub username: String,
    pub password: SecretSource,
    pub tls: Tls,
    /// A quorum queue.
    pub queue: String,
    /// A quorum queue.
    pub dead_letter_queue: String,
    pub create_queues: bool,
    /// How many commands are carried out at the same time.
    pub prefetch: u16,
    /// Users of RabbitMQ, and in whose name their commands are carried out. Only for messages whose
    /// `user-id` the broker has checked.
    pub users: BTreeMap<String, Identity>,
    /// Queues that answers may go to, besides `amq.rabbitmq.reply-to`.
    pub reply_queues: BTreeSet<String>,
}

impl Default for RabbitMqConsumer {
    fn default() -> RabbitMqConsumer {
        RabbitMqConsumer {
            url: String::new(),
            username: String::new(),
            password: SecretSource::default(),
            tls: Tls::default(),
            queue: "mainstay.commands".into(),
            dead_letter_queue: "mainstay.commands.dead".into(),
            create_queues: true,
            prefetch: 64,
            users: BTreeMap::new(),
            reply_queues: BTreeSet::new(),
        }
    }
}

/// In whose name commands are carried out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Identity {
    pub subject: String,
    pub org: String,
    pub roles: BTreeSet<String>,
}

/// Limits of the webhooks that users create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Webhooks {
    /// How many an organisation may have; 0 switches users' webhooks off.
    pub per_organisation_max: u32,
    /// Deliveries per second to all webhooks of an organisation.
    pub rate_per_organisation_max: u32,
    /// A webhook that has failed for this long is parked.
    pub park_after_s: u64,
    pub timeout_ms: u64,
    /// The pause after the first failed delivery; doubles with each.
    pub backoff_ms: u64,
    pub backoff_max_ms: u64,
}

impl Webhooks {
    pub fn backoff(&self) -> Backoff {
        Backoff {
            first: Duration::from_millis(self.backoff_ms),
            longest: Duration::from_millis(self.backoff_max_ms),
        }
    }
}

impl Default for Webhooks {
    fn default() -> Webhooks {
        Webhooks {
            per_organisation_max: 10,
            rate_per_organisation_max: 100,
            park_after_s: 24 * 3600,
            timeout_ms: 10_000,
            backoff_ms: 1_000,
            backoff_max_ms: 3_600_000,
        }
    }
}

pub const MESSAGE_BYTES_MAX: usize = 1_000_000;
