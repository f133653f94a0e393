//! The section `bus` of the configuration.

use std::collections::BTreeMap;

use kernel::{Error, Result};
use serde::{Deserialize, Serialize};

pub use crate::model::settings::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where events go, by name.
    pub sinks: BTreeMap<String, Sink>,
    /// Where commands come from, by name.
    pub consumers: BTreeMap<String, Consumer>,
    pub webhooks: Webhooks,
    /// A sink that is this far behind counts as degraded in the detailed health.
    pub lag_s_max: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            sinks: BTreeMap::new(),
            consumers: BTreeMap::new(),
            webhooks: Webhooks::default(),
            lag_s_max: 60,
        }
    }
}

impl Config {
    /// Finds what cannot be right without asking anybody.
    pub fn check(&self) -> Result<()> {
        for (name, sink) in &self.sinks {
            let key = format!("bus.sinks.{name}");
            valid_name(&key, name)?;
            let set = [sink.kafka.is_some(), sink.rabbitmq.is_some(), sink.webhook.is_some()];
            if set.iter().filter(|there| **there).count() != 1 {
                let why = "must have exactly one of kafka, rabbitmq and webhook";
                return Err(Error::invalid(key, why));
            }
            if let Some(kafka) = &sink.kafka {
                check_kafka(&format!("{key}.kafka"), &kafka.brokers, kafka.sasl.as_ref())?;
                check_template(&format!("{key}.kafka.topic"), &kafka.topic)?;
            }
            if let Some(rabbitmq) = &sink.rabbitmq {
                let key = format!("{key}.rabbitmq");
                check_amqp(&key, &rabbitmq.url)?;
                check_template(&format!("{key}.exchange"), &rabbitmq.exchange)?;
                check_template(&format!("{key}.routing_key"), &rabbitmq.routing_key)?;
            }
            if let Some(webhook) = &sink.webhook {
                check_webhook(&format!("{key}.webhook"), webhook)?;
            }
        }
        for (name, consumer) in &self.consumers {
            let key = format!("bus.consumers.{name}");
            valid_name(&key, name)?;
            match (&consumer.kafka, &consumer.rabbitmq) {
                (Some(kafka), None) => {
                    let key = format!("{key}.kafka");
                    check_kafka(&key, &kafka.brokers, kafka.sasl.as_ref())?;
                    if kafka.topics.is_empty() {
                        return Err(Error::invalid(format!("{key}.topics"), "must name a topic"));
                    }
                    let consumed = |topic: &String| kafka.topics.contains_key(topic);
                    let (dead, replies) = (&kafka.dead_letter_topic, &kafka.reply_topics);
                    check_loops(&key, "topic", dead, replies, consumed)?;
                    check_topics(&key, kafka)?;
                }
                (None, Some(rabbitmq)) => {
                    let key = format!("{key}.rabbitmq");
                    check_amqp(&key, &rabbitmq.url)?;
                    let consumed = |queue: &String| *queue == rabbitmq.queue;
                    let (dead, replies) = (&rabbitmq.dead_letter_queue, &rabbitmq.reply_queues);
                    check_loops(&key, "queue", dead, replies, consumed)?;
                    for (user, identity) in &rabbitmq.users {
                        let Identity { subject, org, .. } = identity;
                        check_identity(&format!("{key}.users.{user}"), subject, org)?;
                    }
                }
                _ => {
                    let why = "must have exactly one of kafka and rabbitmq";
                    return Err(Error::invalid(key, why));
                }
            }
        }
        Ok(())
    }
}

/// Names are in keys of objects, transactional ids and names of queues.
fn valid_name(key: &str, name: &str) -> Result<()> {
    let legible = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || name.len() > 63 || !name.bytes().all(legible) {
        let why = "must have a name of 1 to 63 lower-case letters, digits and dashes";
        return Err(Error::invalid(key, why));
    }
    Ok(())
}

fn check_kafka(key: &str, brokers: &[String], sasl: Option<&Sasl>) -> Result<()> {
    if brokers.is_empty() {
        return Err(Error::invalid(format!("{key}.brokers"), "must name a broker, as HOST:PORT"));
    }
    let Some(sasl) = sasl else { return Ok(()) };
    let missing = match sasl.mechanism {
        SaslMechanism::Oauthbearer if sasl.token.is_empty() => "token",
        SaslMechanism::Oauthbearer => return Ok(()),
        _ if sasl.username.is_empty() => "username",
        _ if sasl.password.is_empty() => "password",
        _ => return Ok(()),
    };
    Err(Error::invalid(format!("{key}.sasl.{missing}"), "must be given for this mechanism"))
}

/// A topic without an identity is one whose commands have tokens; a record without an envelope has none.
fn check_topics(key: &str, kafka: &KafkaConsumer) -> Result<()> {
    for (name, topic) in &kafka.topics {
        let KafkaTopic { subject, org, roles, command } = topic;
        let key = format!("{key}.topics.{name}");
        if command.is_some() && subject.is_empty() {
            let why =
                "must be given: with `command`, records have no token that says who sent them";
            return Err(Error::invalid(format!("{key}.subject"), why));
        }
        if !(subject.is_empty() && org.is_empty() && roles.is_empty()) {
            check_identity(&key, subject, org)?;
        }
    }
    Ok(())
}

/// Commands of nobody, or of no organisation, must not pass for somebody's.
fn check_identity(key: &str, subject: &str, org: &str) -> Result<()> {
    for (field, value) in [("subject", subject), ("org", org)] {
        if value.is_empty() {
            let why = "must be given: commands are carried out in this name";
            return Err(Error::invalid(format!("{key}.{field}"), why));
        }
    }
    Ok(())
}

/// What a consumer writes must not come back to it.
fn check_loops<'a>(
    key: &str,
    what: &str,
    dead_letters: &'a String,
    replies: impl IntoIterator<Item = &'a String>,
    consumed: impl Fn(&String) -> bool,
) -> Result<()> {
    let why = || format!("must be another {what} than those with commands");
    if consumed(dead_letters) {
        return Err(Error::invalid(format!("{key}.dead_letter_{what}"), why()));
    }
    if replies.into_iter().any(consumed) {
        return Err(Error::invalid(format!("{key}.reply_{what}s"), why()));
    }
    Ok(())
}

fn check_amqp(key: &str, url: &str) -> Result<()> {
    let key = format!("{key}.url");
    let parsed = url::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "amqp" | "amqps"));
    let Some(parsed) = parsed else {
        return Err(Error::invalid(key, "must be amqp://HOST[:PORT][/VHOST], or amqps://"));
    };
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(Error::invalid(key, "must have no credentials; use username and password"));
    }
    Ok(())
}

fn check_webhook(key: &str, webhook: &WebhookSink) -> Result<()> {
    let parsed = url::Url::parse(&webhook.url).ok();
    if parsed.is_none_or(|url| !matches!(url.scheme(), "http" | "https")) {
        return Err(Error::invalid(format!("{key}.url"), "must be http(s)://HOST[:PORT][/PATH]"));
    }
    if webhook.secret.is_empty() {
        let why = "must be given: receivers verify signatures with it";
        return Err(Error::invalid(format!("{key}.secret"), why));
    }
    Ok(())
}

fn check_template(key: &str, template: &str) -> Result<()> {
    crate::model::Template::parse(template).map(drop).map_err(|why| Error::invalid(key, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let config: Config = toml::from_str(text).unwrap();
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn what_a_consumer_writes_may_not_come_back_to_it() {
        let kafka = |more: &str| {
            refusal(&format!(
                "[consumers.a.kafka]\nbrokers = [\"a:1\"]\n{more}\n[consumers.a.kafka.topics.in]\n\
                 subject = \"a\"\norg = \"a\""
            ))
        };
        let error = kafka("dead_letter_topic = \"in\"");
        assert!(error.starts_with("bus.consumers.a.kafka.dead_letter_topic: must be"), "{error}");
        let error = kafka("reply_topics = [\"in\"]");
        assert!(error.starts_with("bus.consumers.a.kafka.reply_topics: must be"), "{error}");
        let error = refusal(
            "[consumers.a.rabbitmq]\nurl = \"amqp://a\"\nqueue = \"q\"\nreply_queues = [\"q\"]",
        );
        assert!(error.starts_with("bus.consumers.a.rabbitmq.reply_queues: must be"), "{error}");
    }

    #[test]
    fn an_identity_is_whole_or_not_there() {
        let topic = |more: &str| {
            let text = "[consumers.a.kafka]\nbrokers = [\"a:1\"]\n[consumers.a.kafka.topics.in]\n";
            toml::from_str::<Config>(&format!("{text}{more}")).unwrap().check()
        };
        assert!(topic("").is_ok(), "each of its commands needs a token");
        for (more, field) in
            [("subject = \"a\"", "org"), ("org = \"a\"", "subject"), ("roles = [\"a\"]", "subject")]
        {
            let error = topic(more).unwrap_err().to_string();
            let expected = format!("bus.consumers.a.kafka.topics.in.{field}: must be given");
            assert!(error.starts_with(&expected), "{error}");
        }
        let error = refusal(
            "[consumers.a.rabbitmq]\nurl = \"amqp://a\"\n[consumers.a.rabbitmq.users.shop]\norg = \"a\"",
        );
        assert!(error.starts_with("bus.consumers.a.rabbitmq.users.shop.subject: must"), "{error}");
    }

    #[test]
    fn records_without_an_envelope_need_an_identity() {
        let error = refusal(
            "[consumers.a.kafka]\nbrokers = [\"a:1\"]\n[consumers.a.kafka.topics.in]\n\
             command = \"widget.create\"",
        );
        assert!(error.starts_with("bus.consumers.a.kafka.topics.in.subject: must be"), "{error}");
    }
}
