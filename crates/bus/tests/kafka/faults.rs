//! Bad days: brokers that die, and networks that fail. Every number is counted.

use std::time::Duration;

use testkit::chaos::Proxy;
use testkit::kafka::Kafka;
use tokio::sync::watch;

use bus::config::KafkaSink;
use bus::ports::out::{Outlet as _, Sent};

use crate::counting::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_or_stopped_loses_and_doubles_nothing() {
    let Some(shared) = testkit::kafka() else { return };
    let kafka = shared.private().await;
    let topic = kafka.name("killed");
    let (progress, mut now) = watch::channel(Progress::default());
    let outlet = outlet(&topic, &sink(&kafka));
    let pumping = tokio::spawn(pump(outlet, topic.clone(), 20_000, 50, progress));
    reached(&mut now, 1000).await;
    kafka.server.kill().await;
    kafka.server.start().await;
    let before = now.borrow().next;
    reached(&mut now, before + 1000).await;
    kafka.server.stop().await;
    kafka.server.start().await;
    let before = now.borrow().next;
    reached(&mut now, before + 1000).await;
    kafka.server.kill().await;
    kafka.server.start().await;
    pumping.await.unwrap();
    assert_exactly_once(&kafka, &topic, 20_000).await;
    both_die(&kafka).await;
}

/// The relay and the broker die at once, within a transaction; a successor finds the position.
async fn both_die(kafka: &Kafka) {
    let topic = kafka.name("both");
    for round in 1..=3 {
        let (progress, mut now) = watch::channel(Progress::default());
        let outlet = outlet(&topic, &sink(kafka));
        let pumping = tokio::spawn(pump(outlet, topic.clone(), 10_000, 50, progress));
        reached(&mut now, round * 1000).await;
        pumping.abort();
        assert!(pumping.await.is_err_and(|ended| ended.is_cancelled()));
        kafka.server.kill().await;
        kafka.server.start().await;
    }
    let (progress, _now) = watch::channel(Progress::default());
    pump(outlet(&topic, &sink(kafka)), topic.clone(), 10_000, 50, progress).await;
    assert_exactly_once(kafka, &topic, 10_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_cuts_delays_and_falls_silent_loses_and_doubles_nothing() {
    let Some(shared) = testkit::kafka() else { return };
    let proxy = Proxy::new().await;
    let kafka = shared.private_behind(proxy.address().port()).await;
    proxy.lead_to(kafka.server.get(""));
    for transactions in [true, false] {
        let topic = kafka.name(if transactions { "network" } else { "network-idempotent" });
        let config =
            KafkaSink { brokers: vec![proxy.address().to_string()], transactions, ..sink(&kafka) };
        let (progress, mut now) = watch::channel(Progress::default());
        let outlet = outlet(&topic, &config);
        let total = 6_000;
        let pumping = tokio::spawn(pump(outlet, topic.clone(), total, 20, progress));
        reached(&mut now, 500).await;
        proxy.cut();
        fails(&mut now).await;
        proxy.mend();
        reached(&mut now, 1000).await;
        proxy.reset();
        reached(&mut now, 1500).await;
        proxy.delay(Duration::from_millis(100));
        reached(&mut now, 1600).await;
        proxy.mend();
        reached(&mut now, 2000).await;
        // Half open: what is on its way stays there until it is given up.
        proxy.silence();
        fails(&mut now).await;
        proxy.mend();
        let errors = pumping.await.unwrap();
        let (lost, doubled) = count(&read(&kafka, &topic).await, total);
        assert_eq!(lost, Vec::<i64>::new(), "after {errors} errors");
        if transactions {
            assert_eq!(doubled, Vec::<i64>::new(), "after {errors} errors");
        } else {
            // What was in flight when the outlet was opened again.
            assert!(doubled.len() <= errors as usize * 20, "{errors}: {doubled:?}");
        }
    }
}

/// As when the lease is lost while messages are on their way.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_sent_when_it_was_given_up_is_never_sent() {
    let Some(shared) = testkit::kafka() else { return };
    let proxy = Proxy::new().await;
    let kafka = shared.private_behind(proxy.address().port()).await;
    proxy.lead_to(kafka.server.get(""));
    let topic = kafka.name("given-up");
    let brokers = vec![proxy.address().to_string()];
    let config = KafkaSink { brokers, transactions: false, ..sink(&kafka) };
    let mut first = outlet(&topic, &config);
    first.open().await.unwrap();
    assert_eq!(first.send(&batch(&topic, 0..1), at(0)).await.unwrap(), Sent::All);
    proxy.cut();
    let messages = batch(&topic, 1..100);
    let sending = first.send(&messages, at(99));
    let given_up = tokio::time::timeout(Duration::from_millis(500), sending).await;
    assert!(given_up.is_err(), "{given_up:?}");
    first.close().await;
    proxy.mend();
    let mut second = outlet(&topic, &config);
    second.open().await.unwrap();
    assert_eq!(second.send(&batch(&topic, 100..101), at(100)).await.unwrap(), Sent::All);
    second.close().await;
    let mut there: Vec<i64> = read(&kafka, &topic).await.iter().map(Received::seq).collect();
    there.sort_unstable();
    assert_eq!(there, [0, 100]);
}
