//! What a server's memory does while it sends what has waited for a broker that was away.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::bus::{Brokers, EXCHANGE, PARTITIONS, host, show_load, store};
use crate::bus_events::fill;
use crate::bus_readers::queue;
use crate::figures::{Figures, Target};
use crate::load::{self, Connection};
use crate::server::{Server, binary, rss_mib, start_with};

/// How many events wait, of how many bytes, and how they are called.
const BACKLOGS: [(usize, usize, &str); 2] =
    [(1_000_000, 1024, "1,000,000 of 1 KiB"), (1_000, 500 << 10, "1,000 of 500 KiB")];
/// The most that RSS may grow.
const GROWTH_MIB: f64 = 64.0;
/// The broker is away for so long after the start.
const OUTAGE: Duration = Duration::from_secs(8);
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(600);
/// The queue drops older messages, so that the broker does not fill the disk.
const QUEUE_LENGTH_MAX: i64 = 1000;

pub async fn run(figures: &mut Figures, brokers: &Brokers) -> anyhow::Result<()> {
    for (count, bytes, what) in BACKLOGS {
        let dir = tempfile::tempdir_in(".")?;
        let begun = Instant::now();
        fill(&*store(dir.path())?, count, bytes).await?;
        show_load(&format!("filled with {what} in {:.0} s", begun.elapsed().as_secs_f64()));
        let drained = to_kafka(brokers, dir.path(), count, bytes).await?;
        add(figures, &format!("{what} to Kafka"), &drained);
        let drained = to_rabbitmq(brokers, dir.path(), count).await?;
        add(figures, &format!("{what} to RabbitMQ"), &drained);
    }
    Ok(())
}

/// How a backlog was drained.
struct Drained {
    rate: f64,
    before_mib: f64,
    peak_mib: f64,
    anon_mib: f64,
}

fn add(figures: &mut Figures, what: &str, drained: &Drained) {
    let Drained { rate, before_mib, peak_mib, anon_mib } = *drained;
    show_load(&format!(
        "{what}: RSS {before_mib:.1} MiB before, {peak_mib:.1} at its peak; \
         anonymous memory grew by {anon_mib:.1} MiB"
    ));
    figures.add(&format!("drain, {what}"), rate, "1/s", None, Target::AtLeast(0.0));
    let name = format!("growth of RSS, {what}");
    figures.add(&name, peak_mib - before_mib, "MiB", None, Target::AtMost(GROWTH_MIB));
}

async fn to_kafka(
    brokers: &Brokers,
    data: &Path,
    count: usize,
    bytes: usize,
) -> anyhow::Result<Drained> {
    let topic = brokers.kafka.topic(&format!("backlog-{bytes}"), PARTITIONS).await;
    let sink = brokers.kafka.name(&format!("backlog-{bytes}"));
    // Only for the first contact: then the broker says where it is.
    let gate = Gate::to(brokers.kafka.server.get("")).await?;
    let settings = [("KAFKA__BROKERS", format!("[\"{}\"]", gate.address)), ("KAFKA__TOPIC", topic)];
    drain(data, &sink, &settings, &gate, count).await
}

async fn to_rabbitmq(brokers: &Brokers, data: &Path, count: usize) -> anyhow::Result<Drained> {
    let vhost = brokers.rabbitmq.vhost().await;
    let _declared = queue(&vhost, Some(QUEUE_LENGTH_MAX)).await?;
    let (address, path) = host(&vhost).split_once('/').context("no virtual host")?;
    let gate = Gate::to(address).await?;
    let settings = [
        ("RABBITMQ__URL", format!("amqp://{}/{path}", gate.address)),
        ("RABBITMQ__USERNAME", vhost.name.clone()),
        ("RABBITMQ__PASSWORD", vhost.password.clone()),
        ("RABBITMQ__EXCHANGE", EXCHANGE.into()),
    ];
    drain(data, "backlog", &settings, &gate, count).await
}

/// Starts a server while the broker is away, lets it reach the broker, and watches its memory until
/// nothing waits.
async fn drain(
    data: &Path,
    sink: &str,
    settings: &[(&str, String)],
    gate: &Gate,
    count: usize,
) -> anyhow::Result<Drained> {
    let key = |name: &str| format!("MAINSTAY_BUS__SINKS__{}__{name}", sink.to_uppercase());
    let own = [("START", "earliest".to_owned()), ("FILTER__KINDS", "[\"widget\"]".into())];
    let settings: Vec<(String, String)> =
        settings.iter().chain(&own).map(|(name, value)| (key(name), value.clone())).collect();
    let settings: Vec<(&str, String)> =
        settings.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let server = start_with(&binary("MAINSTAY_BIN")?, data, &settings).await?;
    tokio::time::sleep(OUTAGE).await;
    let pid = server.child.id();
    let before_mib = rss_mib(pid)?;
    let anon_before = field_mib(pid, "RssAnon:")?;
    // From here on the peak counts.
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
    gate.is_open.store(true, Ordering::Relaxed);
    let mut watch = Watch::open(&server, sink).await?;
    let (begun, first) = watch.until(1).await?;
    let (ended, all) = watch.until(count as u64).await?;
    Ok(Drained {
        rate: (all - first) as f64 / (ended - begun).as_secs_f64(),
        before_mib,
        peak_mib: watch.peak_mib.max(field_mib(pid, "VmHWM:")?),
        anon_mib: watch.anon_mib - anon_before,
    })
}

/// A port in front of a broker. Closes every connection at once until it is open.
struct Gate {
    address: SocketAddr,
    is_open: Arc<AtomicBool>,
    _accepting: JoinSet<()>,
}

impl Gate {
    async fn to(broker: &str) -> anyhow::Result<Gate> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, is_open) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let (broker, allowed) = (broker.to_owned(), is_open.clone());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                if allowed.load(Ordering::Relaxed) {
                    connections.spawn(carry(client, broker.clone()));
                }
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Gate { address, is_open, _accepting: accepting })
    }
}

/// An error ends the connection, which both sides notice.
async fn carry(mut client: TcpStream, broker: String) -> std::io::Result<()> {
    let mut server = TcpStream::connect(broker).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}

fn field_mib(pid: u32, name: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("no {name} in the status of the process"))?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? / 1024.0)
}

/// Samples a server's memory and what it has delivered.
struct Watch {
    pid: u32,
    connection: Connection,
    delivered: String,
    peak_mib: f64,
    anon_mib: f64,
}

impl Watch {
    async fn open(server: &Server, sink: &str) -> anyhow::Result<Watch> {
        let connection = Connection::open(server.address).await?;
        let delivered = format!("mainstay_bus_delivered_total{{sink=\"{sink}\"}} ");
        let pid = server.child.id();
        Ok(Watch { pid, connection, delivered, peak_mib: 0.0, anon_mib: 0.0 })
    }

    /// Waits until so many messages are delivered; returns when and how many.
    async fn until(&mut self, count: u64) -> anyhow::Result<(Instant, u64)> {
        let (begun, mut delivered) = (Instant::now(), 0);
        while begun.elapsed() < TIMEOUT {
            self.peak_mib = self.peak_mib.max(rss_mib(self.pid)?);
            self.anon_mib = self.anon_mib.max(field_mib(self.pid, "RssAnon:")?);
            let (_, metrics) = self.connection.send(&load::get("/metrics", "")).await?;
            let metrics = String::from_utf8(metrics)?;
            let line = metrics.lines().find_map(|line| line.strip_prefix(&self.delivered));
            delivered = line.map(str::parse).transpose()?.unwrap_or(0);
            if delivered >= count {
                return Ok((Instant::now(), delivered));
            }
            tokio::time::sleep(SAMPLE_EVERY).await;
        }
        anyhow::bail!("only {delivered} of {count} messages were delivered in {TIMEOUT:?}")
    }
}
