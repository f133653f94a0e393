//! Metrics of the bus.

use std::collections::BTreeMap;
use std::fmt::Error as Unwritable;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kernel::health::Check;
use kernel::{Ambient, Store};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric as _, MetricEncoder,
    NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;

use crate::model::Phase;
use crate::work::state::{SinkState, States};

/// From a command of a fast store to one that waited for it.
const COMMAND_BOUNDS_S: [f64; 8] = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.25, 2.5];

/// What consumers do, by name.
#[derive(Debug, Default)]
pub struct ConsumerStats(Mutex<BTreeMap<String, Consumer>>);

#[derive(Debug, Clone)]
struct Consumer {
    /// Whether it receives commands; none before the first attempt has ended.
    up: Option<bool>,
    outcomes: BTreeMap<&'static str, u64>,
    seconds: Histogram,
}

impl ConsumerStats {
    pub fn set_up(&self, consumer: &str, up: bool) {
        self.of(consumer, |stats| stats.up = Some(up));
    }

    pub fn count(&self, consumer: &str, outcome: &'static str) {
        self.of(consumer, |stats| *stats.outcomes.entry(outcome).or_default() += 1);
    }

    pub fn took(&self, consumer: &str, took: Duration) {
        self.of(consumer, |stats| stats.seconds.observe(took.as_secs_f64()));
    }

    fn of(&self, consumer: &str, change: impl FnOnce(&mut Consumer)) {
        let mut all = self.0.lock();
        change(all.entry(consumer.to_owned()).or_insert_with(|| Consumer {
            up: None,
            outcomes: BTreeMap::new(),
            seconds: Histogram::new(COMMAND_BOUNDS_S),
        }));
    }

    /// The health of each.
    pub fn checks(&self) -> Vec<Check> {
        let all = self.0.lock();
        let check = |(name, stats): (&String, &Consumer)| Check {
            name: format!("consumer {name}"),
            result: match stats.up {
                Some(false) => Err("it receives no commands; the log says why".into()),
                None => Ok("it is being connected".into()),
                Some(true) => Ok("commands are received".into()),
            },
        };
        all.iter().map(check).collect()
    }
}

/// Reads the states of sinks when it is scraped.
pub struct Scrape {
    pub states: States,
    pub consumers: Arc<ConsumerStats>,
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
}

impl std::fmt::Debug for Scrape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Unwritable> {
        let sinks = self.states.all();
        let (newest, now) = (self.store.wakeups().newest_event(), self.ambient.now());
        let lag_events = |state: &SinkState| state.lag_events(newest);
        gauge(&mut encoder, "mainstay_bus_lag_events", "Events that wait", &sinks, lag_events)?;
        gauge(
            &mut encoder,
            "mainstay_bus_lag_seconds",
            "How long the oldest waits",
            &sinks,
            |state| state.lag_ms(now) as f64 / 1000.0,
        )?;
        gauge(
            &mut encoder,
            "mainstay_bus_parked_events",
            "Events that were skipped",
            &sinks,
            |state| i64::try_from(state.parked.load(Ordering::Relaxed)).unwrap_or(i64::MAX),
        )?;
        gauge(&mut encoder, "mainstay_bus_up", "Whether the sink takes events", &sinks, |state| {
            i64::from(state.condition().0 == Phase::Running)
        })?;
        counter(&mut encoder, "mainstay_bus_delivered", "Messages delivered", &sinks, |state| {
            state.delivered.load(Ordering::Relaxed)
        })?;
        counter(&mut encoder, "mainstay_bus_failures", "Failed deliveries", &sinks, |state| {
            state.failures.load(Ordering::Relaxed)
        })?;
        self.encode_consumers(&mut encoder)
    }
}

impl Scrape {
    fn encode_consumers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Unwritable> {
        let consumers = self.consumers.0.lock();
        let (name, help) = ("mainstay_bus_consumer_up", "Whether the consumer receives commands");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (consumer, stats) in consumers.iter() {
            let labels = [("consumer", consumer.as_str())];
            family.encode_family(&labels)?.encode_gauge(&i64::from(stats.up == Some(true)))?;
        }
        let (name, help) = ("mainstay_bus_commands", "Commands that came in");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (consumer, stats) in consumers.iter() {
            for (outcome, count) in &stats.outcomes {
                let labels = [("consumer", consumer.as_str()), ("outcome", outcome)];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        let (name, help) = ("mainstay_bus_command_seconds", "Time to carry out a command");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (consumer, stats) in consumers.iter() {
            let labels = [("consumer", consumer.as_str())];
            stats.seconds.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

type Sinks = [(String, Arc<SinkState>)];

fn gauge<V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    sinks: &Sinks,
    value: impl Fn(&SinkState) -> V,
) -> Result<(), Unwritable> {
    let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    each(family, sinks, |mut metric, state| metric.encode_gauge(&value(state)))
}

fn counter<V: EncodeCounterValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    sinks: &Sinks,
    value: impl Fn(&SinkState) -> V,
) -> Result<(), Unwritable> {
    let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    each(family, sinks, |mut metric, state| {
        metric.encode_counter::<NoLabelSet, _, u64>(&value(state), None)
    })
}

/// Writes one metric per sink.
fn each(
    mut family: MetricEncoder<'_>,
    sinks: &Sinks,
    write: impl Fn(MetricEncoder<'_>, &SinkState) -> Result<(), Unwritable>,
) -> Result<(), Unwritable> {
    for (sink, state) in sinks {
        write(family.encode_family(&[("sink", sink.as_str())])?, state)?;
    }
    Ok(())
}
