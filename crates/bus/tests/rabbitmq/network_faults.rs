//! A bad network between the outlet and the broker: nothing is lost, and only what was in flight comes
//! twice.

use std::time::Duration;

use testkit::chaos::Proxy;

use crate::support::*;

const BATCH: i64 = 100;

/// Sends 2,000 messages, while `disturb` does something to the network before the fifth batch is sent
/// and `calm` ends it when that has failed once.
async fn through(disturb: impl Fn(&Proxy), expect_error: bool) -> Option<usize> {
    let rabbitmq = testkit::rabbitmq()?;
    let vhost = rabbitmq.vhost().await;
    let _reader = bind(&vhost).await;
    let proxy = Proxy::to(&host(&vhost)).await;
    let mut outlet = outlet(&sink_at(&proxy.address().to_string(), &vhost));
    open(&mut outlet).await;
    for batch in 0..20 {
        let batch = messages(batch * BATCH + 1..=(batch + 1) * BATCH);
        if batch[0].seq == 4 * BATCH + 1 {
            disturb(&proxy);
            let sent = send(&mut outlet, &batch).await;
            assert_eq!(sent.is_err(), expect_error, "{sent:?}");
            proxy.mend();
            if sent.is_ok() {
                continue;
            }
        }
        pump(&mut outlet, &batch).await;
    }
    Some(count(&read_to(&vhost, 2_000).await, 2_000))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_loses_nothing() {
    let Some(twice) = through(Proxy::cut, true).await else { return };
    assert!(twice <= 100, "{twice} came twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_connection_loses_nothing() {
    let Some(twice) = through(Proxy::reset, true).await else { return };
    assert!(twice <= 100, "{twice} came twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_connection_is_kept() {
    let slow = |proxy: &Proxy| proxy.delay(Duration::from_millis(300));
    let Some(twice) = through(slow, false).await else { return };
    assert_eq!(twice, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_noticed_and_loses_nothing() {
    let Some(twice) = through(Proxy::silence, true).await else { return };
    assert!(twice <= 100, "{twice} came twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_does_not_answer_the_connection_is_given_up() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let proxy = Proxy::to(&host(&vhost)).await;
    proxy.silence();
    let mut outlet = outlet(&sink_at(&proxy.address().to_string(), &vhost));
    let opening = bus::ports::out::Outlet::open(&mut outlet);
    let opened = tokio::time::timeout(Duration::from_secs(20), opening).await;
    let error = opened.expect("it does not wait without end").unwrap_err().to_string();
    assert!(error.contains("timed out") && error.contains("sink orders"), "{error}");
    proxy.mend();
    let closed = async || (proxy.connections() == 0).then_some(());
    until("the connection that was given up is closed", closed).await;
    open(&mut outlet).await;
}
