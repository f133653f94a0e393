//! Connections to Kafka: credentials, topics, and what an error of the client means for an operator.

use std::time::Duration;

use kernel::outbound::{Outbound, Tls, TlsFiles};
use kernel::secret::SecretValue;
use kernel::telemetry::Secret;
use kernel::{Error, Result};
use krafka::admin::{CreateTopicsOptions, DescribeTopicsOptions, NewTopic};
use krafka::auth::{AuthConfig, OAuthBearerToken, TlsConfig};
use krafka::error::{ErrorCode, KrafkaError};
use krafka::{Compression, Kafka};

use crate::model::settings::{Sasl, SaslMechanism};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A half-open connection is given up after this long.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// The bound of every call, retries included.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(12);
/// Of what a producer has not sent yet.
const BUFFER_BYTES: usize = 8 << 20;
/// Below the smallest `message.max.bytes` that brokers usually have, 1 MiB: batches fit always.
const BATCH_BYTES: usize = 256 << 10;

/// How to reach the brokers of one sink or consumer.
pub(super) struct Access {
    brokers: String,
    /// Without files: the system's authorities.
    tls: Option<Option<TlsFiles>>,
    sasl: Option<(SaslMechanism, String, SecretValue)>,
}

/// What a connection was opened with.
#[derive(PartialEq)]
struct Credentials {
    password: Option<Secret>,
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

pub(super) struct Connection {
    pub kafka: Kafka,
    credentials: Credentials,
}

impl Access {
    /// `key` is the setting of the sink or consumer, as `bus.sinks.NAME.kafka`.
    pub fn new(
        key: &str,
        brokers: &[String],
        tls: Option<&Tls>,
        sasl: Option<&Sasl>,
        outbound: &Outbound,
    ) -> Result<Access> {
        let tls = tls.map(|tls| outbound.verified_tls(&format!("{key}.tls"), tls)).transpose()?;
        let sasl = sasl.map(|sasl| {
            let (name, source) = match sasl.mechanism {
                SaslMechanism::Oauthbearer => ("token", &sasl.token),
                _ => ("password", &sasl.password),
            };
            let secret = outbound.secret(&format!("{key}.sasl.{name}"), source)?;
            Ok::<_, Error>((sasl.mechanism, sasl.username.clone(), secret))
        });
        Ok(Access { brokers: brokers.join(","), tls, sasl: sasl.transpose()? })
    }

    pub async fn connect(&self, client_id: &str) -> Result<Connection> {
        let credentials = self.credentials()?;
        let builder = Kafka::builder(&self.brokers)
            .client_id(client_id)
            .security(self.security(&credentials))
            .connect_timeout(CONNECT_TIMEOUT)
            .request_timeout(REQUEST_TIMEOUT);
        let attempt = || format!("connecting to Kafka at {}", self.brokers);
        let connected = tokio::time::timeout(CALL_TIMEOUT, builder.connect()).await;
        let connected = connected.unwrap_or_else(|_| Err(timeout("connecting")));
        let kafka = connected.map_err(|error| match &error {
            KrafkaError::Auth { .. } => {
                Error::unavailable(attempt(), format!("{error}; check sasl and tls"))
            }
            _ => failed(attempt(), &error, ""),
        })?;
        Ok(Connection { kafka, credentials })
    }

    /// Whether there are other credentials than the ones that a connection was opened with. One that
    /// cannot be read now is not another.
    pub fn changed(&self, connection: &Connection) -> bool {
        self.credentials().is_ok_and(|current| current != connection.credentials)
    }

    fn credentials(&self) -> Result<Credentials> {
        let password = match &self.sasl {
            // The client asks for a token at each connection, and again before its session ends.
            Some((SaslMechanism::Oauthbearer, ..)) | None => None,
            Some((_, _, password)) => Some(password.current()?),
        };
        let files = self.tls.as_ref().and_then(Option::as_ref);
        let (ca, identity) = (files.and_then(TlsFiles::ca), files.and_then(TlsFiles::identity));
        Ok(Credentials { password, ca, identity })
    }

    fn security(&self, credentials: &Credentials) -> AuthConfig {
        let password = credentials.password.as_ref().map_or("", |password| password.expose());
        let security = match &self.sasl {
            None => AuthConfig::plaintext(),
            Some((SaslMechanism::Plain, user, _)) => AuthConfig::sasl_plain(user, password),
            Some((SaslMechanism::ScramSha256, user, _)) => {
                AuthConfig::sasl_scram_sha256(user, password)
            }
            Some((SaslMechanism::ScramSha512, user, _)) => {
                AuthConfig::sasl_scram_sha512(user, password)
            }
            Some((SaslMechanism::Oauthbearer, _, token)) => {
                let token = token.clone();
                AuthConfig::sasl_oauthbearer_provider(move || {
                    let current = token.current();
                    let current = current.map(|token| OAuthBearerToken::new(token.expose()));
                    std::future::ready(
                        current.map_err(|error| KrafkaError::auth(error.to_string())),
                    )
                })
            }
        };
        let Some(files) = &self.tls else { return security };
        let mut tls = TlsConfig::new();
        match &credentials.ca {
            Some(ca) => tls = tls.with_ca_cert_pem(ca.clone()),
            None => tls = tls.with_native_roots(),
        }
        if let (Some(_), Some((certificate, key))) = (files, &credentials.identity) {
            tls = tls.with_client_cert_pem(certificate.clone(), key.clone());
        }
        security.with_tls(tls)
    }
}

/// The settings that all producers share.
pub(super) fn producer(kafka: &Kafka) -> krafka::producer::ProducerBuilder {
    kafka
        .producer()
        .compression(Compression::Lz4)
        .buffer_memory(BUFFER_BYTES)
        .batch_size(BATCH_BYTES)
        .linger(Duration::from_millis(2))
        .delivery_timeout(CALL_TIMEOUT)
        .max_block(CALL_TIMEOUT)
        .metrics_push(false)
}

/// How topics that are missing are created, if they are.
pub(super) struct Topics {
    pub create: bool,
    pub partitions: Option<i32>,
    pub replication_factor: Option<i16>,
}

impl Topics {
    /// Creates a topic if it is missing. `acl` is what is needed to use it.
    pub async fn ensure(&self, kafka: &Kafka, topic: &str, acl: &str) -> Result<()> {
        self.ensure_with(kafka, topic, acl, |topic| topic).await
    }

    /// One partition, which keeps the newest record of each key for good.
    pub async fn ensure_compacted(&self, kafka: &Kafka, topic: &str, acl: &str) -> Result<()> {
        let compact = |mut topic: NewTopic| {
            topic.num_partitions = 1;
            topic.with_config("cleanup.policy", "compact")
        };
        self.ensure_with(kafka, topic, acl, compact).await
    }

    async fn ensure_with(
        &self,
        kafka: &Kafka,
        topic: &str,
        acl: &str,
        shape: impl FnOnce(NewTopic) -> NewTopic,
    ) -> Result<()> {
        let admin = kafka.admin();
        let options = DescribeTopicsOptions::default().timeout(CALL_TIMEOUT);
        let described = admin.describe_topics([topic], options).await;
        let described = described.and_then(|mut all| only(all.remove(topic)));
        match described {
            Ok(_) => return Ok(()),
            Err(error) if has_code(&error, ErrorCode::UnknownTopicOrPartition) => {}
            Err(error) => {
                return Err(failed(format!("looking up Kafka topic {topic}"), &error, acl));
            }
        }
        let attempt = format!("using Kafka topic {topic}");
        if !self.create {
            let why = "it does not exist; create it, or set create_topics = true";
            return Err(Error::unavailable(attempt, why));
        }
        let (partitions, factor) =
            (self.partitions.unwrap_or(-1), self.replication_factor.unwrap_or(-1));
        let attempt = format!("creating Kafka topic {topic}");
        let acl = format!("CREATE on topic {topic}");
        let new = NewTopic::new(topic, partitions, factor);
        let new = new.map_err(|error| failed(attempt.clone(), &error, &acl))?;
        let options = CreateTopicsOptions::default().timeout(CALL_TIMEOUT);
        let created = admin.create_topics([shape(new)], options).await;
        match created.and_then(|mut all| only(all.remove(topic))) {
            Ok(()) => {
                tracing::info!(topic, "created Kafka topic");
                Ok(())
            }
            Err(error) if has_code(&error, ErrorCode::TopicAlreadyExists) => Ok(()),
            Err(error) => Err(failed(attempt, &error, &acl)),
        }
    }
}

fn only<T>(answer: Option<krafka::Result<T>>) -> krafka::Result<T> {
    answer.unwrap_or_else(|| Err(timeout("an answer for the topic")))
}

fn timeout(what: &str) -> KrafkaError {
    KrafkaError::timeout(what)
}

/// The error of an attempt. `acl` is what the broker must allow for it, as `WRITE on topic events`.
pub(super) fn failed(attempt: impl Into<String>, error: &KrafkaError, acl: &str) -> Error {
    let denied = [
        ErrorCode::TopicAuthorizationFailed,
        ErrorCode::GroupAuthorizationFailed,
        ErrorCode::ClusterAuthorizationFailed,
        ErrorCode::TransactionalIdAuthorizationFailed,
    ];
    if !acl.is_empty() && denied.iter().any(|code| has_code(error, *code)) {
        return Error::unavailable(attempt, format!("{error}; grant {acl}"));
    }
    let fenced = [ErrorCode::ProducerFenced, ErrorCode::InvalidProducerEpoch];
    if matches!(error, KrafkaError::Fenced { .. })
        || fenced.iter().any(|code| has_code(error, *code))
    {
        return Error::unavailable(attempt, "another holder of the sink has taken over");
    }
    Error::unavailable(attempt, error.to_string())
}

/// Whether an error has a code. Within a transaction the client has it only in the text.
pub(super) fn has_code(error: &KrafkaError, code: ErrorCode) -> bool {
    match error {
        KrafkaError::Broker { code: found, .. } => *found == code,
        KrafkaError::TransactionAbortable { message } | KrafkaError::Auth { message, .. } => {
            message.contains(&format!("{code:?}"))
        }
        _ => false,
    }
}

/// Whether the broker takes no record of this size.
pub(super) fn is_too_large(error: &KrafkaError) -> bool {
    has_code(error, ErrorCode::MessageTooLarge)
        || has_code(error, ErrorCode::RecordListTooLarge)
        || is_too_large_for_us(error)
}

/// A record that does not fit in our buffer: larger than brokers take.
pub(super) fn is_too_large_for_us(error: &KrafkaError) -> bool {
    matches!(error, KrafkaError::Config { message } if message.contains("record size"))
}
