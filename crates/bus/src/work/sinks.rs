//! Which sinks this process relays to: those of the configuration, each under a lease of its own, and
//! all webhooks of users under one, so that thousands of them cost one renewal.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use kernel::change::LeaseFence;
use kernel::event_presenter::EventPresenter;
use kernel::event_tail::{EventReader, Page};
use kernel::identity::Principal;
use kernel::log::EventFilter;
use kernel::outbound::webhook;
use kernel::secret::SecretValue;
use kernel::{App, Error, Result};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::leadership::{Held, Terms, lead};
use super::relay::Relay;
use super::source::{Render, Selection, Source};
use super::state::States;
use crate::commands::secret_purpose;
use crate::config::{self, Config, MESSAGE_BYTES_MAX, Start};
use crate::decide::pace;
use crate::model::{Cursor, KIND, Phase, Sink, Spec, Template, Transport, cursor_name};
use crate::ports::out::Outlet;
use crate::ports::out::cloudevents::CloudEvents;
use crate::ports::out::webhook::{RateLimit, WebhookOutlet};
use crate::store;

/// The lease of who relays to users' webhooks and cleans up after sinks.
const WEBHOOKS: &str = "sinks";

/// What all pumps of this process share.
pub struct Sinks {
    pub app: App,
    pub config: Config,
    pub terms: Terms,
    pub states: States,
    /// What people ask of each sink that is relayed to here.
    pub specs: Specs,
}

/// Tells pumps what people ask of their sinks.
#[derive(Clone, Default)]
pub struct Specs(Arc<Mutex<HashMap<String, watch::Sender<Spec>>>>);

impl Specs {
    fn watch(&self, id: &str, spec: Spec) -> watch::Receiver<Spec> {
        let mut all = self.0.lock();
        let sender = all.entry(id.to_owned()).or_insert_with(|| watch::channel(spec.clone()).0);
        sender.send_if_modified(|there| std::mem::replace(there, spec.clone()) != spec);
        sender.subscribe()
    }

    fn tell(&self, id: &str, spec: &Spec) {
        if let Some(sender) = self.0.lock().get(id) {
            sender.send_if_modified(|there| {
                let new = there != spec;
                there.clone_from(spec);
                new
            });
        }
    }

    fn forget(&self, id: &str) {
        self.0.lock().remove(id);
    }
}

impl Sinks {
    /// Relays to a sink of the configuration whenever this process holds its lease.
    pub async fn relay_configured(
        self: Arc<Self>,
        id: String,
        sink: config::Sink,
        outlet: Box<dyn Outlet>,
        stop: CancellationToken,
    ) {
        let app = &self.app;
        let spec = declared(&sink);
        let relay = Relay {
            id: id.clone(),
            store: app.store.clone(),
            ambient: app.ambient.clone(),
            source: Source::new(app.tail(), self.selection(&sink)),
            outlet,
            start: sink.start,
            backoff: if sink.webhook.is_some() {
                self.config.webhooks.backoff()
            } else {
                pace::BROKER
            },
            park_after: sink.webhook.is_some().then(|| self.park_after()),
            spec: self.specs.watch(&id, spec.clone()),
            state: Arc::default(),
        };
        let relay = Arc::new(tokio::sync::Mutex::new(relay));
        lead(&app.store, &cursor_name(&id), &self.terms, &stop, |held| {
            let (sinks, relay, id, spec) = (self.clone(), relay.clone(), id.clone(), spec.clone());
            async move {
                let Some(current) = sinks.declare(&id, &held, &spec).await else { return };
                sinks.specs.tell(&id, &current);
                let entered = sinks.states.enter(&id);
                let mut relay = relay.lock().await;
                relay.state = entered.state.clone();
                relay.run(&held).await;
            }
        })
        .await;
    }

    /// Writes the sink as an object. Repeats until the store answers.
    async fn declare(&self, id: &str, held: &Held, spec: &Spec) -> Option<Spec> {
        let (store, ambient) = (self.app.store.as_ref(), &self.app.ambient);
        while !held.is_over() {
            match store::declare(store, ambient, id, held.fence(), spec).await {
                Ok(spec) => return Some(spec),
                Err(error) => tracing::warn!(sink = id, %error, "declaring the sink failed"),
            }
            held.pause().await;
        }
        None
    }

    fn park_after(&self) -> Duration {
        Duration::from_secs(self.config.webhooks.park_after_s)
    }

    fn selection(&self, sink: &config::Sink) -> Selection {
        let renderer = sink.renderer.as_deref().and_then(|name| self.app.renderers().find(name));
        let parse = |text: &String| Template::parse(text).ok();
        let (kafka, rabbitmq) = (sink.kafka.as_ref(), sink.rabbitmq.as_ref());
        let name = kafka.map(|kafka| &kafka.topic).or(rabbitmq.map(|rabbitmq| &rabbitmq.exchange));
        let render = match renderer {
            Some(renderer) => Render::Domain(renderer),
            None => Render::CloudEvents(CloudEvents {
                mode: sink.mode,
                name: name.and_then(parse),
                routing_key: rabbitmq.and_then(|rabbitmq| parse(&rabbitmq.routing_key)),
                url: self.app.url.clone(),
                bytes_max: sink.message_bytes_max.unwrap_or(MESSAGE_BYTES_MAX),
            }),
        };
        Selection { filter: sink.filter.clone(), org: None, render, presenter: None }
    }

    /// Relays to all webhooks of users whenever this process holds their lease.
    pub async fn relay_webhooks(self: Arc<Self>, stop: CancellationToken) {
        lead(&self.app.store, WEBHOOKS, &self.terms, &stop, |held| {
            let sinks = self.clone();
            async move { sinks.run_webhooks(held).await }
        })
        .await;
    }

    async fn run_webhooks(self: Arc<Self>, held: Held) {
        let mut pumps = Pumps {
            sinks: self.clone(),
            running: HashMap::new(),
            tasks: JoinSet::new(),
            rates: HashMap::new(),
        };
        while !held.is_over() {
            match pumps.follow(&held).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(%error, "reading the webhooks failed; will retry");
                    held.pause().await;
                }
            }
        }
        pumps.running.values().for_each(|pump| pump.stop.cancel());
        while pumps.tasks.join_next().await.is_some() {}
    }

    /// Lets go of the events that were kept for a webhook.
    async fn retire(&self, id: &str, fence: LeaseFence) -> Result<()> {
        let (app, seq) = (&self.app, store::RETIRED);
        let now = app.ambient.now();
        match store::save(app.store.as_ref(), id, fence, seq, &Cursor::default(), now).await {
            // It was moved under another lease, later than ours began: the next holder does it.
            Err(Error::Refused(refusal)) => {
                tracing::debug!(sink = id, %refusal, "the cursor stays for now");
                Ok(())
            }
            done => done,
        }
    }

    /// Lets go of the events that were kept for a sink that was configured. Under the lease of the sink:
    /// the cursor remembers the fence, and who relays to a sink of this name later has that lease.
    async fn retire_configured(&self, id: &str) -> Result<()> {
        if self.config.sinks.contains_key(id) {
            return Ok(());
        }
        let (store, name, terms) = (&self.app.store, cursor_name(id), &self.terms);
        let lease = store.lease(&name, &terms.holder, terms.ttl).await?;
        // Another replica relays to it.
        let Some(lease) = lease else { return Ok(()) };
        let fence = LeaseFence { name: name.clone(), fence: lease.fence };
        let retired = self.retire(id, fence).await;
        store.unlease(&name, lease.fence).await?;
        retired
    }

    /// Passes on what people ask of sinks, until `stop`.
    pub async fn watch_specs(self: Arc<Self>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            match self.follow_specs(&stop).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, "reading changes of sinks failed; will retry");
                    let pause = tokio::time::sleep(Duration::from_secs(1));
                    stop.run_until_cancelled(pause).await;
                }
            }
        }
    }

    async fn follow_specs(&self, stop: &CancellationToken) -> Result<()> {
        let filter = EventFilter { kind: Some(KIND.into()), ..EventFilter::default() };
        let store = self.app.store.as_ref();
        // Before the list, so that nothing is missed in between.
        let mut reader = self.app.tail().subscribe(store.newest_event().await?, filter);
        let mut sinks = store::sinks(store).await?;
        loop {
            sinks.iter().for_each(|sink| self.specs.tell(&sink.id, &sink.spec));
            if stop.is_cancelled() {
                return Ok(());
            }
            sinks = changed(&mut reader, stop).await?;
        }
    }
}

/// What the configuration says of a sink.
fn declared(sink: &config::Sink) -> Spec {
    let (transport, target) = match (&sink.kafka, &sink.rabbitmq, &sink.webhook) {
        (Some(kafka), ..) => {
            (Transport::Kafka, format!("{} topic {}", kafka.brokers.join(","), kafka.topic))
        }
        (None, Some(rabbitmq), _) => {
            (Transport::RabbitMq, format!("{} exchange {}", rabbitmq.url, rabbitmq.exchange))
        }
        (None, None, webhook) => {
            let url = webhook.as_ref().and_then(|webhook| url::Url::parse(&webhook.url).ok());
            // The rest of it may be secret.
            let shown =
                |url: url::Url| format!("{}{}", url.origin().ascii_serialization(), url.path());
            (Transport::Webhook, url.map(shown).unwrap_or_default())
        }
    };
    Spec { transport, target, filter: sink.filter.clone(), mode: sink.mode, ..Spec::default() }
}

/// Waits for sinks that were written, and returns them as they are now.
async fn changed(reader: &mut EventReader, stop: &CancellationToken) -> Result<Vec<Sink>> {
    loop {
        match reader.next(100).await? {
            Page::Events { events, more } => {
                let objects = events.iter().filter_map(|event| event.event.data.parse().ok());
                let sinks: Vec<Sink> =
                    objects.filter_map(|object| Sink::from_object(&object).ok()).collect();
                if !sinks.is_empty() || stop.is_cancelled() {
                    return Ok(sinks);
                }
                if !more {
                    stop.run_until_cancelled(reader.wait()).await;
                }
            }
            Page::Expired { oldest } => {
                let why = "changes of sinks were purged before they were read";
                return Err(Error::Gone { what: why.into(), oldest });
            }
        }
    }
}

/// The running pumps of webhooks.
struct Pumps {
    sinks: Arc<Sinks>,
    running: HashMap<String, Pump>,
    tasks: JoinSet<()>,
    /// By organisation.
    rates: HashMap<String, Arc<RateLimit>>,
}

/// The pump of a webhook.
struct Pump {
    stop: CancellationToken,
    /// Cancelled before `stop` when the webhook is deleted.
    deleted: CancellationToken,
}

impl Pump {
    /// For good: its webhook is deleted.
    fn end(&self) {
        self.deleted.cancel();
        self.stop.cancel();
    }
}

impl Pumps {
    /// Starts and stops pumps as webhooks come and go, until the lease is over.
    async fn follow(&mut self, held: &Held) -> Result<()> {
        let app = self.sinks.app.clone();
        let filter = EventFilter { kind: Some(KIND.into()), ..EventFilter::default() };
        // Before the list, so that nothing is missed in between.
        let mut reader = app.tail().subscribe(app.store.newest_event().await?, filter);
        let sinks = store::sinks(app.store.as_ref()).await?;
        self.clean_up(held, &sinks).await?;
        // Deleted while this did not look: after a failure to read.
        self.running.retain(|id, pump| {
            let there = sinks.iter().any(|sink| sink.id == *id);
            if !there {
                pump.end();
            }
            there
        });
        for sink in &sinks {
            self.apply(held, sink).await?;
        }
        while !held.is_over() {
            let changed = tokio::select! {
                biased;
                changed = changed(&mut reader, &held.stop) => changed?,
                () = held.over() => return Ok(()),
            };
            for sink in &changed {
                self.apply(held, sink).await?;
            }
            while self.tasks.try_join_next().is_some() {}
        }
        Ok(())
    }

    /// Marks sinks that are no longer configured, and lets go of events that nobody will read.
    async fn clean_up(&self, held: &Held, sinks: &[Sink]) -> Result<()> {
        let Sinks { app, config, .. } = &*self.sinks;
        for sink in sinks.iter().filter(|sink| sink.org.is_empty()) {
            if !config.sinks.contains_key(&sink.id) {
                let (store, why) = (app.store.as_ref(), "it is no longer configured");
                let fence = held.fence();
                store::report(store, &app.ambient, &sink.id, fence, Phase::Off, why).await?;
            }
        }
        for (id, (position, _)) in store::cursors(app.store.as_ref()).await? {
            let gone = !sinks.iter().any(|sink| sink.id == id) && !config.sinks.contains_key(&id);
            if gone && position.seq != store::RETIRED {
                let object = app.store.object(&store::key(&id)).await?;
                if object.is_none_or(|object| object.org.is_empty()) {
                    self.sinks.retire_configured(&id).await?;
                } else {
                    self.sinks.retire(&id, held.fence()).await?;
                }
            }
        }
        Ok(())
    }

    async fn apply(&mut self, held: &Held, sink: &Sink) -> Result<()> {
        if sink.phase == Phase::Deleted {
            self.sinks.specs.forget(&sink.id);
            return match self.running.remove(&sink.id) {
                Some(pump) => {
                    pump.end();
                    Ok(())
                }
                None if sink.org.is_empty() => self.sinks.retire_configured(&sink.id).await,
                None => self.sinks.retire(&sink.id, held.fence()).await,
            };
        }
        let Some(url) = &sink.spec.url else { return Ok(()) };
        if self.running.contains_key(&sink.id) {
            self.sinks.specs.tell(&sink.id, &sink.spec);
            return Ok(());
        }
        let Ok(url) = url.parse() else { return Ok(()) };
        let stop = held.stop.child_token();
        let held = Held { stop: stop.clone(), ..held.clone() };
        let mut relay = self.webhook(sink, url);
        let pump = Pump { stop, deleted: CancellationToken::new() };
        let (sinks, id, deleted) = (self.sinks.clone(), sink.id.clone(), pump.deleted.clone());
        self.tasks.spawn(async move {
            let entered = sinks.states.enter(&id);
            relay.state = entered.state.clone();
            relay.run(&held).await;
            // After the pump's last write of the cursor.
            if deleted.is_cancelled()
                && let Err(error) = sinks.retire(&id, held.fence()).await
            {
                tracing::warn!(sink = id, %error, "retiring the cursor failed");
            }
        });
        self.running.insert(sink.id.clone(), pump);
        Ok(())
    }

    fn webhook(&mut self, sink: &Sink, url: url::Url) -> Relay {
        let Sinks { app, config, specs, .. } = &*self.sinks;
        let limit = NonZeroU32::new(config.webhooks.rate_per_organisation_max);
        let rate = limit.map(|limit| {
            let of_org = self.rates.entry(sink.org.clone());
            of_org.or_insert_with(|| Arc::new(RateLimit::per_second(limit))).clone()
        });
        let secret = webhook::secret_text(&app.blobs.derive(&secret_purpose(&sink.id)));
        let timeout = Duration::from_millis(config.webhooks.timeout_ms);
        let target = webhook::target(&app.outbound, "webhooks", timeout).guard_ssrf();
        let member = Principal {
            subject: sink.owner.clone(),
            org: sink.org.clone(),
            ..Principal::default()
        };
        let cloudevents = CloudEvents {
            mode: sink.spec.mode,
            name: None,
            routing_key: None,
            url: app.url.clone(),
            bytes_max: MESSAGE_BYTES_MAX,
        };
        let selection = Selection {
            filter: sink.spec.filter.clone(),
            org: Some(sink.org.clone()),
            render: Render::CloudEvents(cloudevents),
            presenter: Some(EventPresenter::new(app.kinds(), Arc::new(member))),
        };
        Relay {
            id: sink.id.clone(),
            store: app.store.clone(),
            ambient: app.ambient.clone(),
            source: Source::new(app.tail(), selection),
            outlet: Box::new(WebhookOutlet {
                sink: sink.id.clone(),
                target,
                url,
                secret: SecretValue::fixed("webhook", secret),
                ambient: app.ambient.clone(),
                rate,
            }),
            start: Start::Latest,
            backoff: config.webhooks.backoff(),
            park_after: Some(self.sinks.park_after()),
            spec: specs.watch(&sink.id, sink.spec.clone()),
            state: Arc::default(),
        }
    }
}
