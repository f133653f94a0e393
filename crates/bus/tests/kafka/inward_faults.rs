//! Commands from Kafka over a bad network, and from a broker that dies: none is missed, and those of a
//! partition are first handled in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::config::KafkaConsumer;
use bus::ports::inward::{Handler, Incoming, Reply, Settled, kafka};
use parking_lot::Mutex;
use rdkafka::producer::{FutureProducer, FutureRecord};
use testkit::chaos::Proxy;
use testkit::kafka::{Kafka, Listener};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::counting::*;
use crate::inward::{committed, consumer};

const COMMANDS: i64 = 1200;
const PARTITIONS: i32 = 3;

/// Counts how often each command is handled.
struct Counting {
    handled: Mutex<BTreeMap<i64, u32>>,
    progress: watch::Sender<Progress>,
}

#[async_trait]
impl Handler for Counting {
    async fn handle(&self, incoming: Incoming, _: &mpsc::Sender<Reply>) -> Settled {
        // So that the faults come while commands are in work.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let number: i64 = std::str::from_utf8(&incoming.body).unwrap().parse().unwrap();
        let mut handled = self.handled.lock();
        if !handled.contains_key(&number) {
            let of_partition = |seen: &&i64| **seen % i64::from(PARTITIONS) == number % 3;
            let newest = handled.keys().filter(of_partition).max();
            assert!(newest < Some(&number), "{number} came after {newest:?}");
        }
        *handled.entry(number).or_default() += 1;
        let there = i64::try_from(handled.len()).unwrap();
        self.progress.send_modify(|progress| progress.next = there);
        Settled::Done
    }
}

async fn produce(kafka: &Kafka, topic: &str) {
    let producer: FutureProducer = kafka.config(Listener::Plain).create().unwrap();
    let mut sending = Vec::new();
    for number in 0..COMMANDS {
        let partition = i32::try_from(number % i64::from(PARTITIONS)).unwrap();
        let (producer, topic, body) = (producer.clone(), topic.to_owned(), number.to_string());
        sending.push(async move {
            let record = FutureRecord::<str, str>::to(&topic).payload(&body).partition(partition);
            producer.send(record, TIMEOUT).await.map_err(|(error, _)| error).unwrap();
        });
    }
    futures::future::join_all(sending).await;
}

/// Receives as the server does: after an error it begins again.
async fn receive(config: KafkaConsumer, handler: Arc<Counting>, stop: CancellationToken) -> u32 {
    let mut errors = 0;
    while !stop.is_cancelled() {
        let ended =
            kafka::run("test", &config, &outbound(), 10_000, handler.clone(), stop.clone()).await;
        if let Err(error) = ended {
            eprintln!("{error}");
            errors += 1;
            handler.progress.send_modify(|progress| progress.errors = errors);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    errors
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_is_missed_when_the_network_fails_or_the_broker_dies() {
    let Some(shared) = testkit::kafka() else { return };
    let proxy = Proxy::new().await;
    let kafka = shared.private_behind(proxy.address().port()).await;
    proxy.lead_to(kafka.server.get(""));
    let topic = kafka.topic("commands", PARTITIONS).await;
    produce(&kafka, &topic).await;
    let config =
        KafkaConsumer { brokers: vec![proxy.address().to_string()], ..consumer(&kafka, &topic) };
    let (progress, mut now) = watch::channel(Progress::default());
    let handler = Arc::new(Counting { handled: Mutex::default(), progress });
    let stop = CancellationToken::new();
    let receiving = tokio::spawn(receive(config.clone(), handler.clone(), stop.clone()));
    reached(&mut now, 100).await;
    proxy.cut();
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.mend();
    reached(&mut now, 300).await;
    // Half open, until it is given up.
    proxy.silence();
    fails(&mut now).await;
    proxy.mend();
    reached(&mut now, 600).await;
    kafka.server.kill().await;
    kafka.server.start().await;
    reached(&mut now, COMMANDS).await;
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while committed(&kafka, &config.group, &topic, PARTITIONS).await < COMMANDS {
        assert!(tokio::time::Instant::now() < deadline, "the offsets are not committed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.cancel();
    let errors = receiving.await.unwrap();
    let again: u32 = handler.handled.lock().values().map(|times| times - 1).sum();
    // What each partition had in work and not committed at a fault.
    assert!(again <= (errors + 3) * 300, "{again} were handled again after {errors} errors");
}
