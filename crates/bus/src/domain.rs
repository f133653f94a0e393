//! The bus as a domain of the server: its pumps, its consumers, and what they share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::health::Check;
use kernel::identity::Principal;
use kernel::kind::{KindInfo, Presenter};
use kernel::outbound::{Outbound, webhook};
use kernel::{App, Backoff, Domain, Error, Result, Running};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api;
use crate::config::{self, CLOUDEVENTS, Config, Identity, KafkaTopic, MESSAGE_BYTES_MAX};
use crate::metrics::{ConsumerStats, Scrape};
use crate::model::{KIND, Phase};
use crate::ports::inward::{self, Handler};
use crate::ports::out::Outlet;
use crate::ports::out::kafka::KafkaOutlet;
use crate::ports::out::rabbitmq::RabbitMqOutlet;
use crate::ports::out::webhook::WebhookOutlet;
use crate::work::follow::Followers;
use crate::work::intake::{ISSUER, Intake};
use crate::work::leadership::Terms;
use crate::work::sinks::Sinks;
use crate::work::state::States;

/// Between two tries to connect a consumer.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };

pub struct BusDomain {
    pub config: Config,
    /// Whether this is the only process of its store.
    pub embedded: bool,
    /// How long command ids are remembered.
    pub commands_days: u64,
}

#[async_trait]
impl Domain for BusDomain {
    fn name(&self) -> &'static str {
        "bus"
    }

    fn kinds(&self) -> Vec<KindInfo> {
        vec![KindInfo::new(KIND, "sinks", Presenter::Whole)]
    }

    /// Connects to nothing: a broker that is away does not stop the server.
    async fn start(
        &self,
        app: &App,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Running> {
        self.config.check()?;
        let terms =
            if self.embedded { Terms::embedded() } else { Terms::replica(app.ambient.id()) };
        let (states, stats) = (States::default(), Arc::new(ConsumerStats::default()));
        self.observe(app, &states, &stats);
        let sinks = Arc::new(Sinks {
            app: app.clone(),
            config: self.config.clone(),
            terms,
            states,
            specs: Default::default(),
        });
        for (name, sink) in &self.config.sinks {
            self.check_renderer(app, name, sink)?;
            let outlet = outlet(app, name, sink, &self.config)?;
            let relay =
                sinks.clone().relay_configured(name.clone(), sink.clone(), outlet, stop.clone());
            tasks.spawn(relay);
        }
        tasks.spawn(sinks.clone().watch_specs(stop.clone()));
        tasks.spawn(sinks.relay_webhooks(stop.clone()));
        self.start_consumers(app, &stats, tasks, stop);
        Ok(Running { routes: api::routes(&self.config), ..Running::default() })
    }
}

impl BusDomain {
    fn check_renderer(&self, app: &App, name: &str, sink: &config::Sink) -> Result<()> {
        let renderer = sink.renderer.as_deref().unwrap_or(CLOUDEVENTS);
        if renderer == CLOUDEVENTS || app.renderers().find(renderer).is_some() {
            return Ok(());
        }
        let names = [CLOUDEVENTS.to_owned()].into_iter().chain(app.renderers().names());
        let names: Vec<String> = names.collect();
        let why = format!("`{renderer}` is not known; there are: {}", names.join(", "));
        Err(Error::invalid(format!("bus.sinks.{name}.renderer"), why))
    }

    /// Metrics, and the health of sinks and consumers. No probe fails because a sink lags.
    fn observe(&self, app: &App, states: &States, stats: &Arc<ConsumerStats>) {
        let scrape = Scrape {
            states: states.clone(),
            consumers: stats.clone(),
            store: app.store.clone(),
            ambient: app.ambient.clone(),
        };
        app.metrics.register(|registry| registry.register_collector(Box::new(scrape)));
        let of_consumers = stats.clone();
        app.checks().add_source(Arc::new(move || of_consumers.checks()));
        let (states, ambient) = (states.clone(), app.ambient.clone());
        // A user's webhook is not the operators' concern.
        let configured: BTreeSet<String> = self.config.sinks.keys().cloned().collect();
        let lag_ms_max =
            i64::try_from(self.config.lag_s_max.saturating_mul(1000)).unwrap_or(i64::MAX);
        app.checks().add_source(Arc::new(move || {
            let now = ambient.now();
            let check = |(name, state): (String, Arc<crate::work::state::SinkState>)| {
                let lag_ms = state.lag_ms(now);
                let result = match state.condition() {
                    (Phase::Parked, _) => Err("parked: it waits for a person".to_owned()),
                    (Phase::Failing, _) => Err("it cannot be reached; see `bus status`".into()),
                    _ if lag_ms > lag_ms_max => Err(format!("it lags by {} s", lag_ms / 1000)),
                    _ => Ok("events are delivered".to_owned()),
                };
                Check { name: format!("sink {name}"), result }
            };
            let all = states.all().into_iter();
            all.filter(|(name, _)| configured.contains(name)).map(check).collect()
        }));
    }

    fn start_consumers(
        &self,
        app: &App,
        stats: &Arc<ConsumerStats>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) {
        if self.config.consumers.is_empty() {
            return;
        }
        let followers = Followers::default();
        let (of_followers, of_app, of_stop) = (followers.clone(), app.clone(), stop.clone());
        tasks.spawn(async move { of_followers.run(&of_app, &of_stop).await });
        for (name, consumer) in &self.config.consumers {
            let intake = Arc::new(Intake {
                app: app.clone(),
                consumer: name.clone(),
                identities: identities(consumer),
                commands_days: self.commands_days,
                followers: followers.clone(),
                stats: stats.clone(),
                stop: stop.clone(),
            });
            let consuming = consume(
                app.outbound.clone(),
                name.clone(),
                consumer.clone(),
                intake,
                stats.clone(),
                stop.clone(),
            );
            let (commands, stop) = (app.commands().clone(), stop.clone());
            tasks.spawn(async move {
                // A command that is not registered yet would be rejected for good.
                if stop.run_until_cancelled(commands.complete()).await.is_some() {
                    consuming.await;
                }
            });
        }
    }
}

/// Makes the way out of a sink, without connecting.
fn outlet(app: &App, name: &str, sink: &config::Sink, config: &Config) -> Result<Box<dyn Outlet>> {
    let outbound = &app.outbound;
    if let Some(kafka) = &sink.kafka {
        let outlet = KafkaOutlet::new(name, kafka, outbound)?;
        return Ok(Box::new(outlet.of_installation(installation(app))));
    }
    if let Some(rabbitmq) = &sink.rabbitmq {
        return Ok(Box::new(RabbitMqOutlet::new(name, rabbitmq, outbound)?));
    }
    let Some(to) = &sink.webhook else {
        return Err(Error::invalid(format!("bus.sinks.{name}"), "has no way out"));
    };
    let key = format!("bus.sinks.{name}.webhook");
    let url = to.url.parse();
    let url = url.map_err(|_| Error::invalid(format!("{key}.url"), "must be a URL"))?;
    let timeout = Duration::from_millis(config.webhooks.timeout_ms);
    let target = webhook::target(outbound, &format!("sink {name}"), timeout)
        .with_tls(outbound.tls(&format!("{key}.tls"), &to.tls)?);
    Ok(Box::new(WebhookOutlet {
        sink: name.to_owned(),
        target,
        url,
        secret: outbound.secret(&format!("{key}.secret"), &to.secret)?,
        ambient: app.ambient.clone(),
        rate: None,
    }))
}

/// A name of this installation that others do not have, and that a restored backup keeps.
fn installation(app: &App) -> String {
    let derived = app.blobs.derive("the name of the installation");
    derived[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The identities of a consumer's authors.
fn identities(consumer: &config::Consumer) -> BTreeMap<String, Principal> {
    let principal = |subject: &str, org: &str, roles: &BTreeSet<String>| Principal {
        subject: subject.into(),
        issuer: ISSUER.into(),
        org: org.into(),
        roles: roles.clone(),
        ..Principal::default()
    };
    let users = consumer.rabbitmq.iter().flat_map(|rabbitmq| &rabbitmq.users);
    let users = users.map(|(user, identity)| {
        let Identity { subject, org, roles } = identity;
        (user.clone(), principal(subject, org, roles))
    });
    let topics = consumer.kafka.iter().flat_map(|kafka| &kafka.topics);
    let topics = topics.filter(|(_, topic)| !topic.subject.is_empty()).map(|(name, topic)| {
        let KafkaTopic { subject, org, roles, .. } = topic;
        (name.clone(), principal(subject, org, roles))
    });
    users.chain(topics).collect()
}

/// Consumes until `stop`, and connects again after each failure.
async fn consume(
    outbound: Outbound,
    name: String,
    consumer: config::Consumer,
    intake: Arc<dyn Handler>,
    stats: Arc<ConsumerStats>,
    stop: CancellationToken,
) {
    let bytes_max = consumer.message_bytes_max.unwrap_or(MESSAGE_BYTES_MAX);
    let mut failures = 0;
    while !stop.is_cancelled() {
        let begun = tokio::time::Instant::now();
        let (handler, token) = (intake.clone(), stop.clone());
        let ended = match (&consumer.kafka, &consumer.rabbitmq) {
            (Some(kafka), _) => {
                inward::kafka::run(&name, kafka, &outbound, bytes_max, handler, token).await
            }
            (None, Some(rabbitmq)) => {
                inward::rabbitmq::run(&name, rabbitmq, &outbound, bytes_max, handler, token).await
            }
            (None, None) => return,
        };
        let Err(error) = ended else { continue };
        stats.set_up(&name, false);
        if begun.elapsed() > BACKOFF.longest {
            failures = 0;
        }
        let wait = BACKOFF.delay(failures, outbound.ambient().fraction());
        failures += 1;
        tracing::warn!(
            consumer = name,
            error = error.with_causes(),
            ?wait,
            "consuming failed; will retry"
        );
        stop.run_until_cancelled(tokio::time::sleep(wait)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_without_a_subject_has_no_identity() {
        let topics = [("in".to_owned(), KafkaTopic::default())].into();
        let kafka = Some(config::KafkaConsumer { topics, ..config::KafkaConsumer::default() });
        let consumer = config::Consumer { kafka, ..config::Consumer::default() };
        assert_eq!(identities(&consumer), BTreeMap::new());
    }
}
