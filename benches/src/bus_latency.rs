//! From the commit of an event to its arrival at a consumer, at a light load.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::config::Start;
use bus::model::Message;
use bus::ports::out::Outlet;
use bus::ports::out::kafka::KafkaOutlet;
use bus::ports::out::rabbitmq::RabbitMqOutlet;
use kernel::store::commit;
use kernel::{Ambient, Store};
use testkit::kafka::Kafka;
use testkit::rabbitmq::RabbitMq;

use crate::bus::{
    Brokers, DEADLINE, EXCHANGE, PARTITIONS, kafka_sink, outbound, rabbitmq_sink, store,
};
use crate::bus_bare::Bare;
use crate::bus_events::{Noise, messages};
use crate::bus_pump::Pump;
use crate::bus_readers::{Reader, queue};
use crate::figures::{Figures, Target, percentile};

const SAMPLES: usize = 400;
/// Connections are open and topics exist after these.
const WARM_UP: usize = 20;
/// Between two events: 50 per second.
const PAUSE: Duration = Duration::from_millis(20);
const BYTES: usize = 1024;

pub async fn run(figures: &mut Figures, brokers: &Brokers) -> anyhow::Result<()> {
    kafka(figures, &brokers.kafka, "Kafka, transactions", true, Target::AtMost(50.0)).await?;
    kafka(figures, &brokers.kafka, "Kafka, no transactions", false, Target::AtMost(20.0)).await?;
    // What its disk takes is not the relay's.
    let any = Target::AtLeast(0.0);
    kafka(figures, &brokers.synced, "synced Kafka, transactions", true, any).await?;
    rabbitmq(figures, &brokers.rabbitmq).await
}

async fn kafka(
    figures: &mut Figures,
    kafka: &Kafka,
    what: &str,
    transactions: bool,
    target: Target,
) -> anyhow::Result<()> {
    let topic = kafka.topic(&format!("latency-{transactions}"), PARTITIONS).await;
    let sink = kafka.name(&format!("latency-{transactions}"));
    let config = kafka_sink(kafka, &topic, transactions);
    let outlet = Box::new(KafkaOutlet::new(&sink, &config, &outbound()?)?);
    let mut reader = Reader::kafka(kafka, &topic)?;
    let bare_topic = kafka.topic(&format!("bare-latency-{transactions}"), PARTITIONS).await;
    let mut bare_reader = Reader::kafka(kafka, &bare_topic)?;
    let bare = if transactions {
        Bare::transactions(kafka, "bare-latency").await?
    } else {
        Bare::idempotent(kafka).await?
    };
    let relayed = relayed(outlet, &sink, &topic, &mut reader, &bare_topic).await?;
    let bare = published(bare, &relayed.messages, &mut bare_reader).await?;
    add(figures, what, relayed.samples, bare, target);
    Ok(())
}

async fn rabbitmq(figures: &mut Figures, rabbitmq: &RabbitMq) -> anyhow::Result<()> {
    let (vhost, bare_vhost) = (rabbitmq.vhost().await, rabbitmq.vhost().await);
    let _queues = (queue(&vhost, None).await?, queue(&bare_vhost, None).await?);
    let outlet = Box::new(RabbitMqOutlet::new("latency", &rabbitmq_sink(&vhost)?, &outbound()?)?);
    let mut reader = Reader::rabbitmq(&vhost).await?;
    let mut bare_reader = Reader::rabbitmq(&bare_vhost).await?;
    let relayed = relayed(outlet, "latency", EXCHANGE, &mut reader, EXCHANGE).await?;
    let bare = Bare::confirms(&bare_vhost).await?;
    let bare = published(bare, &relayed.messages, &mut bare_reader).await?;
    add(figures, "RabbitMQ", relayed.samples, bare, Target::AtMost(20.0));
    Ok(())
}

fn add(figures: &mut Figures, what: &str, mut relayed: Vec<f64>, mut bare: Vec<f64>, p99: Target) {
    for (name, part, target) in [("p50", 0.5, Target::AtLeast(0.0)), ("p99", 0.99, p99)] {
        let (value, baseline) = (percentile(&mut relayed, part), percentile(&mut bare, part));
        let name = format!("commit to consumer, {what}, {name}");
        figures.add(&name, value, "ms", Some(baseline), target);
    }
}

struct Relayed {
    /// Milliseconds from the return of the commit to the arrival.
    samples: Vec<f64>,
    /// The same events for a bare producer.
    messages: Vec<Message>,
}

async fn relayed(
    outlet: Box<dyn Outlet>,
    sink: &str,
    name: &str,
    reader: &mut Reader,
    bare_name: &str,
) -> anyhow::Result<Relayed> {
    let dir = tempfile::tempdir_in(".")?;
    let store = store(dir.path())?;
    let pump = Pump::start(&store, sink, outlet, name, Start::Earliest);
    let noise = Noise::new();
    for n in 0..WARM_UP {
        commit_event(&store, &noise, n).await?;
    }
    for _ in 0..WARM_UP {
        reader.next().await?;
    }
    let mut samples = Vec::with_capacity(SAMPLES);
    let mut committed = HashMap::new();
    let (begun, mut sent) = (tokio::time::Instant::now(), 0);
    while samples.len() < SAMPLES {
        let due = begun + PAUSE * u32::try_from(sent)?;
        tokio::select! {
            () = tokio::time::sleep_until(due), if sent < SAMPLES => {
                let (seq, at) = commit_event(&store, &noise, WARM_UP + sent).await?;
                committed.insert(seq, at);
                sent += 1;
            }
            arrived = reader.next() => {
                let (seq, at) = arrived?;
                let committed = committed.remove(&seq);
                let committed = committed.ok_or_else(|| anyhow::anyhow!("{seq} is not ours"))?;
                samples.push(at.saturating_duration_since(committed).as_secs_f64() * 1000.0);
            }
        }
    }
    pump.stop().await?;
    let all = messages(&*store, bare_name, SAMPLES).await?;
    Ok(Relayed { samples, messages: all })
}

/// Returns the number of the event, and when its commit returned.
async fn commit_event(
    store: &Arc<dyn Store>,
    noise: &Noise,
    n: usize,
) -> anyhow::Result<(i64, Instant)> {
    let accepted = commit(&**store, noise.event(n, BYTES), Ambient::system().now()).await?;
    let seq = accepted.event.ok_or_else(|| anyhow::anyhow!("the change has no event"))?;
    Ok((seq, Instant::now()))
}

/// Milliseconds from the call of a bare producer to the arrival, one message at a time.
async fn published(
    bare: Bare,
    messages: &[Message],
    reader: &mut Reader,
) -> anyhow::Result<Vec<f64>> {
    let mut samples = Vec::with_capacity(messages.len());
    for (n, message) in messages.iter().enumerate() {
        let begun = Instant::now();
        tokio::time::timeout(DEADLINE, bare.publish(std::slice::from_ref(message))).await??;
        let (_, at) = reader.next().await?;
        if n >= WARM_UP {
            samples.push(at.saturating_duration_since(begun).as_secs_f64() * 1000.0);
        }
        tokio::time::sleep(PAUSE.saturating_sub(begun.elapsed())).await;
    }
    bare.close().await?;
    Ok(samples)
}
