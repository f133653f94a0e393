//! How fast the relay sends a backlog, and a bare producer with the same guarantees the same messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::config::Start;
use bus::model::Message;
use bus::ports::out::Outlet;
use bus::ports::out::kafka::KafkaOutlet;
use bus::ports::out::rabbitmq::RabbitMqOutlet;
use kernel::Store;
use testkit::kafka::Kafka;
use testkit::rabbitmq::RabbitMq;

use crate::bus::{
    Brokers, EXCHANGE, PARTITIONS, kafka_sink, outbound, rabbitmq_sink, show_load, store,
};
use crate::bus_bare::Bare;
use crate::bus_events::{fill, messages};
use crate::bus_pump::Pump;
use crate::bus_readers::{purge, queue, queue_length};
use crate::figures::{Figures, Target, percentile};

const EVENTS: usize = 100_000;
const BYTES: usize = 1024;
/// Relay and bare producer in turns, so that both see the same machine.
const ROUNDS: usize = 5;
/// What the relay sends at a time.
const BATCH: usize = 1000;
/// Connections are open and topics are known after these; the clock starts.
const WARM_UP: usize = 5 * BATCH;
const TIMEOUT: Duration = Duration::from_secs(180);

pub async fn run(figures: &mut Figures, brokers: &Brokers) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let store = store(dir.path())?;
    fill(&*store, EVENTS, BYTES).await?;
    let target = Target::AtLeastAndShare(20_000.0, 0.7);
    to_kafka(figures, &brokers.kafka, &store, "Kafka", target).await?;
    // How fast its disk is does not matter; what the relay adds does.
    to_kafka(figures, &brokers.synced, &store, "synced Kafka", Target::Share(0.7)).await?;
    to_rabbitmq(figures, &brokers.rabbitmq, &store).await
}

async fn to_kafka(
    figures: &mut Figures,
    kafka: &Kafka,
    store: &Arc<dyn Store>,
    what: &str,
    target: Target,
) -> anyhow::Result<()> {
    let (mut relayed, mut bare) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        relayed.push(kafka_relay(kafka, store, round).await?);
        bare.push(kafka_bare(kafka, store, round).await?);
        show(what, round, &relayed, &bare);
    }
    add(figures, &format!("relay to {what}, transactions, 1 KiB"), relayed, bare, target);
    Ok(())
}

async fn to_rabbitmq(
    figures: &mut Figures,
    rabbitmq: &RabbitMq,
    store: &Arc<dyn Store>,
) -> anyhow::Result<()> {
    let (mut relayed, mut bare) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let vhost = rabbitmq.vhost().await;
        let connection = queue(&vhost, None).await?;
        let sink = rabbitmq_sink(&vhost)?;
        let name = format!("round-{round}");
        let outlet = Box::new(RabbitMqOutlet::new(&name, &sink, &outbound()?)?);
        relayed.push(relay(store, &name, outlet, EXCHANGE).await?);
        let length = queue_length(&connection).await? as usize;
        anyhow::ensure!(length >= EVENTS, "the queue has only {length} messages");
        purge(&connection).await?;
        let all = messages(&**store, EXCHANGE, EVENTS).await?;
        let producer = Bare::confirms(&vhost).await?;
        bare.push(producer_rate(producer, &all, EVENTS).await?);
        purge(&connection).await?;
        show("RabbitMQ", round, &relayed, &bare);
    }
    add(figures, "relay to RabbitMQ, confirms, 1 KiB", relayed, bare, Target::Share(0.7));
    Ok(())
}

fn show(what: &str, round: usize, relayed: &[f64], bare: &[f64]) {
    let (relayed, bare) = (relayed[round], bare[round]);
    show_load(&format!("{what}, round {round}: relay {relayed:.0}/s, bare {bare:.0}/s"));
}

fn add(
    figures: &mut Figures,
    what: &str,
    mut relayed: Vec<f64>,
    mut bare: Vec<f64>,
    target: Target,
) {
    let (value, baseline) = (percentile(&mut relayed, 0.5), percentile(&mut bare, 0.5));
    figures.add(what, value, "1/s", Some(baseline), target);
}

async fn kafka_relay(kafka: &Kafka, store: &Arc<dyn Store>, round: usize) -> anyhow::Result<f64> {
    let topic = kafka.topic(&format!("relay-{round}"), PARTITIONS).await;
    let sink = kafka.name(&format!("relay-{round}"));
    let outlet = KafkaOutlet::new(&sink, &kafka_sink(kafka, &topic, true), &outbound()?)?;
    let rate = relay(store, &sink, Box::new(outlet), &topic).await?;
    let mut there = 0;
    for partition in 0..PARTITIONS {
        there += kafka.end(&topic, partition).await;
    }
    anyhow::ensure!(there >= i64::try_from(EVENTS)?, "the topic has only {there} records");
    Ok(rate)
}

async fn kafka_bare(kafka: &Kafka, store: &Arc<dyn Store>, round: usize) -> anyhow::Result<f64> {
    let topic = kafka.topic(&format!("bare-{round}"), PARTITIONS).await;
    let all = messages(&**store, &topic, EVENTS).await?;
    let producer = Bare::transactions(kafka, &format!("bare-{round}")).await?;
    producer_rate(producer, &all, BATCH).await
}

/// Messages per second of the relay, from the store to the broker's acknowledgement.
async fn relay(
    store: &Arc<dyn Store>,
    sink: &str,
    outlet: Box<dyn Outlet>,
    name: &str,
) -> anyhow::Result<f64> {
    let pump = Pump::start(store, sink, outlet, name, Start::Earliest);
    let begun = pump.reaches(WARM_UP as u64, TIMEOUT).await?;
    let before = pump.delivered();
    let ended = pump.reaches(EVENTS as u64, TIMEOUT).await?;
    let sent = pump.delivered() - before;
    pump.stop().await?;
    Ok(sent as f64 / (ended - begun).as_secs_f64())
}

/// Messages per second of a bare producer that gets so many at a time.
async fn producer_rate(bare: Bare, messages: &[Message], chunk: usize) -> anyhow::Result<f64> {
    let (first, rest) = messages.split_at(WARM_UP);
    for chunk in first.chunks(BATCH) {
        bare.publish(chunk).await?;
    }
    let begun = Instant::now();
    let all = async {
        for chunk in rest.chunks(chunk) {
            bare.publish(chunk).await?;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(TIMEOUT, all).await??;
    let rate = rest.len() as f64 / begun.elapsed().as_secs_f64();
    bare.close().await?;
    Ok(rate)
}
