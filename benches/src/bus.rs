//! The bus with real brokers: latency, throughput, commands, and memory while a backlog drains.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bus::config::{KafkaSink, RabbitMqSink};
use kernel::outbound::{Config, Outbound};
use kernel::store::sqlite::Sqlite;
use kernel::{Ambient, Store};
use serde_json::json;
use testkit::kafka::Kafka;
use testkit::rabbitmq::{RabbitMq, VHost};

use crate::figures::Figures;
use crate::{bus_backlog, bus_commands, bus_latency, bus_throughput};

/// Of every topic.
pub const PARTITIONS: i32 = 3;
/// The exchange of every virtual host.
pub const EXCHANGE: &str = "events";
/// Nothing takes longer on a busy machine; what does hangs.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub struct Brokers {
    /// With its own defaults: it acknowledges before it syncs, as replicas make safe.
    pub kafka: Kafka,
    /// Syncs every append: a benchmark has durable servers.
    pub synced: Kafka,
    pub rabbitmq: RabbitMq,
}

pub async fn run(figures: &mut Figures, part: &str) -> anyhow::Result<()> {
    let (Some(synced), Some(rabbitmq)) = (testkit::kafka(), testkit::rabbitmq()) else {
        anyhow::bail!("Kafka and RabbitMQ do not run; `cargo xtask bench bus` starts both");
    };
    let kafka = synced.private().await;
    let brokers = Brokers { kafka, synced, rabbitmq };
    let mut known = false;
    let mut wanted = |name: &str| {
        let wanted = part.is_empty() || part == name;
        if wanted {
            known = true;
            show_load(name);
        }
        wanted
    };
    if wanted("latency") {
        bus_latency::run(figures, &brokers).await?;
    }
    if wanted("throughput") {
        bus_throughput::run(figures, &brokers).await?;
    }
    if wanted("commands") {
        bus_commands::run(figures, &brokers).await?;
    }
    if wanted("backlog") {
        bus_backlog::run(figures, &brokers).await?;
    }
    anyhow::ensure!(known, "no part {part}: there are latency, throughput, commands, backlog");
    show_load("end");
    Ok(())
}

/// Prints what else the machine does: figures of a busy one are worth less.
pub fn show_load(what: &str) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
    eprintln!("{what}: load averages {load}");
}

pub fn store(dir: &Path) -> anyhow::Result<Arc<dyn Store>> {
    let file = dir.join("mainstay.db");
    Ok(Arc::new(Sqlite::open(&file, Ambient::system(), kernel::store::uncounted())?))
}

pub fn outbound() -> anyhow::Result<Outbound> {
    Ok(Outbound::new(Config::default(), Ambient::system(), Arc::new(|_| ()))?)
}

pub fn kafka_sink(kafka: &Kafka, topic: &str, transactions: bool) -> KafkaSink {
    KafkaSink {
        brokers: vec![kafka.server.get("").to_owned()],
        topic: topic.into(),
        transactions,
        ..KafkaSink::default()
    }
}

/// The address without the user.
pub fn host(vhost: &VHost) -> &str {
    vhost.url.rsplit_once('@').map_or(vhost.url.as_str(), |(_, host)| host)
}

pub fn rabbitmq_sink(vhost: &VHost) -> anyhow::Result<RabbitMqSink> {
    let url = format!("amqp://{}", host(vhost));
    let (username, password) = (&vhost.name, &vhost.password);
    let sink =
        json!({"url": url, "username": username, "password": password, "exchange": EXCHANGE});
    Ok(serde_json::from_value(sink)?)
}
