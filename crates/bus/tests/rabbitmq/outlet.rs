//! What the outlet publishes, and what it says about what the broker does not take.

use bus::config::Unroutable;
use bus::ports::out::Outlet;
use lapin::options::BasicQosOptions;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn everything_arrives_in_order_and_once() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let _reader = bind(&vhost).await;
    let mut outlet = outlet(&sink(&vhost));
    open(&mut outlet).await;
    for from in [1, 2_001, 4_001] {
        assert_eq!(send(&mut outlet, &messages(from..from + 2_000)).await.unwrap(), []);
    }
    assert_eq!(send(&mut outlet, &[]).await.unwrap(), []);
    assert_eq!(count(&read_to(&vhost, 6_000).await, 6_000), 0);
    outlet.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_are_headers_and_the_trace_is_one_without_prefix() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let mut consumer = consume(&bind(&vhost).await, "reader").await;
    let mut outlet = outlet(&sink(&vhost));
    open(&mut outlet).await;
    let mut binary = message(1);
    binary.attributes = vec![
        ("specversion".into(), "1.0".into()),
        ("type".into(), "mainstay.widget.ready".into()),
        ("traceparent".into(), TRACE.into()),
    ];
    let mut structured = message(2);
    structured.content_type = "application/cloudevents+json";
    structured.attributes = vec![("traceparent".into(), TRACE.into())];
    send(&mut outlet, &[binary, structured]).await.unwrap();
    let first = next(&mut consumer).await;
    assert_eq!(first.data, b"{\"seq\":1}");
    assert_eq!((first.exchange.as_str(), first.routing_key.as_str()), ("events", "widget.ready"));
    assert_eq!(header(&first, "cloudEvents:specversion").as_deref(), Some("1.0"));
    assert_eq!(header(&first, "cloudEvents:type").as_deref(), Some("mainstay.widget.ready"));
    for delivery in [&first, &next(&mut consumer).await] {
        assert_eq!(header(delivery, "traceparent").as_deref(), Some(TRACE));
        assert_eq!(*delivery.properties.delivery_mode(), Some(2), "persistent");
        let kind = delivery.properties.content_type().as_ref().unwrap().as_str();
        let expected = ["application/json", "application/cloudevents+json"];
        assert_eq!(kind, expected[usize::from(seq(delivery) == 2)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unroutable_message_is_refused_by_name_and_the_rest_is_delivered() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let _reader = bind(&vhost).await;
    let mut config = sink(&vhost);
    let mut batch = messages(1..=500);
    for index in [100, 101, 300] {
        batch[index].to.routing_key = format!("gadget.{index}");
    }
    let mut parking = outlet(&config);
    open(&mut parking).await;
    let refused = send(&mut parking, &batch).await.unwrap();
    let indices: Vec<usize> = refused.iter().map(|refused| refused.index).collect();
    assert_eq!(indices, [100, 101, 300]);
    for refused in &refused {
        let key = format!("exchange events for the routing key gadget.{} ", refused.index);
        assert!(refused.reason.contains(&key), "{}", refused.reason);
    }
    let came = read_to(&vhost, 500).await;
    let expected: Vec<i64> = (1..=500).filter(|seq| ![101, 102, 301].contains(seq)).collect();
    assert_eq!(came, expected);
    parking.close().await;

    config.unroutable = Unroutable::Drop;
    let mut dropping = outlet(&config);
    open(&mut dropping).await;
    assert_eq!(send(&mut dropping, &batch).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_exchange_is_created_or_named() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let mut config = sink(&vhost);
    config.create_exchange = false;
    let error = outlet(&config).open().await.unwrap_err().to_string();
    assert!(error.contains("exchange events") && error.contains("create events"), "{error}");

    // With a template the name is known only when a message comes.
    config.exchange = "events.{kind}".into();
    let mut fixed = outlet(&config);
    open(&mut fixed).await;
    let error = send(&mut fixed, &messages([1])).await.unwrap_err().to_string();
    assert!(error.contains("create events (topic, durable)"), "{error}");
    fixed.close().await;

    config.create_exchange = true;
    config.unroutable = Unroutable::Drop;
    let mut creating = outlet(&config);
    open(&mut creating).await;
    assert_eq!(send(&mut creating, &messages([1])).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_that_is_deleted_under_us_is_made_again() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let channel = bind(&vhost).await;
    let mut outlet = outlet(&sink(&vhost));
    open(&mut outlet).await;
    pump(&mut outlet, &messages(1..=10)).await;
    channel.exchange_delete("events".into(), Default::default()).await.unwrap();
    let error = send(&mut outlet, &messages(11..=20)).await.unwrap_err().to_string();
    assert!(error.contains("no exchange 'events'"), "{error}");
    open(&mut outlet).await;
    let refused = send(&mut outlet, &messages([11])).await.unwrap();
    assert!(refused[0].reason.contains("no queue is bound"), "{refused:?}");
    let _bound = bind(&vhost).await;
    pump(&mut outlet, &messages(11..=20)).await;
    assert_eq!(count(&read_to(&vhost, 20).await, 20), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_never_acknowledges_does_not_stop_the_relay() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let channel = bind(&vhost).await;
    channel.basic_qos(1, BasicQosOptions::default()).await.unwrap();
    let _never = consume(&channel, "reader").await;
    let mut outlet = outlet(&sink(&vhost));
    open(&mut outlet).await;
    for from in [1, 1_001, 2_001] {
        pump(&mut outlet, &messages(from..from + 1_000)).await;
    }
    let waiting = until("the queue fills", async || {
        let depth = depth(&vhost, "reader").await;
        (depth >= 2_999).then_some(depth)
    });
    assert_eq!(waiting.await, 2_999, "all but the one that is not acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_for_after_all_others_is_sent_when_they_are_confirmed() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let _reader = bind(&vhost).await;
    let mut outlet = outlet(&sink(&vhost));
    open(&mut outlet).await;
    let mut batch = messages(1..=100);
    batch[49].after_all = true;
    batch[50].after_all = true;
    assert_eq!(send(&mut outlet, &batch).await.unwrap(), []);
    assert_eq!(count(&read_to(&vhost, 100).await, 100), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_into_the_protocol_is_refused() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let _reader = bind(&vhost).await;
    let mut outlet = outlet(&sink(&vhost));
    open(&mut outlet).await;
    let mut batch = messages(1..=4);
    batch[1].to.routing_key = format!("widget.{}", "x".repeat(255));
    batch[2].attributes = vec![("subject".into(), "x".repeat(200_000))];
    let refused = send(&mut outlet, &batch).await.unwrap();
    assert!(refused[0].index == 1 && refused[0].reason.contains("255"), "{refused:?}");
    assert!(refused[1].index == 2 && refused[1].reason.contains("200007"), "{refused:?}");
    assert_eq!(read_to(&vhost, 4).await, [1, 4]);
}
