//! Only one holder of a sink publishes, and a late one cannot disturb its successor.

use bus::ports::out::Outlet;
use testkit::chaos::Proxy;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_second_holder_is_locked_out_until_the_first_closes() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let _reader = bind(&vhost).await;
    let (mut first, mut second) = (outlet(&sink(&vhost)), outlet(&sink(&vhost)));
    open(&mut first).await;
    let error = second.open().await.unwrap_err();
    assert_eq!(error.class(), kernel::Class::Transient);
    let error = error.to_string();
    assert!(error.contains("another holder has the sink"), "{error}");
    assert!(error.contains("mainstay.relay.orders"), "{error}");
    pump(&mut first, &messages(1..=10)).await;
    first.close().await;
    second.open().await.expect("it is free at once");
    let error = send(&mut first, &messages([11])).await.unwrap_err().to_string();
    assert!(error.contains("not open"), "{error}");
    pump(&mut second, &messages(11..=20)).await;
    assert_eq!(count(&read_to(&vhost, 20).await, 20), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_again_takes_the_sink_from_our_own_earlier_connection() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let mut outlet = outlet(&sink(&vhost));
    for _ in 0..5 {
        outlet.open().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_holder_is_replaced_and_its_late_messages_are_lost() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let _reader = bind(&vhost).await;
    let proxy = Proxy::to(&host(&vhost)).await;
    let mut first = outlet(&sink_at(&proxy.address().to_string(), &vhost));
    open(&mut first).await;
    pump(&mut first, &messages(1..=100)).await;

    // It goes on to publish, but nothing gets through any more, in either direction.
    proxy.silence();
    let zombie = tokio::spawn(async move {
        let late: Vec<_> = messages(101..=200)
            .into_iter()
            .map(|mut message| {
                message.body = "late".into();
                message
            })
            .collect();
        let error = send(&mut first, &late).await.expect_err("nobody confirms");
        (first, error.to_string())
    });
    let mut second = outlet(&sink(&vhost));
    let took = open(&mut second).await;
    println!("took over after {took:?}");
    pump(&mut second, &messages(101..=150)).await;

    // What was on its way arrives now, at a connection that the broker has closed.
    proxy.mend();
    let (mut first, _) = zombie.await.unwrap();
    let error = first.open().await.unwrap_err().to_string();
    assert!(error.contains("another holder"), "{error}");
    pump(&mut second, &messages(151..=200)).await;

    let channel = vhost.connect().await.create_channel().await.unwrap();
    let mut reader = consume(&channel, "reader").await;
    let mut seqs = Vec::new();
    while seqs.last() != Some(&200) {
        let delivery = next(&mut reader).await;
        assert_ne!(delivery.data, b"late");
        seqs.push(seq(&delivery));
    }
    assert_eq!(count(&seqs, 200), 0);
}
