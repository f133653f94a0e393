//! Commands in: acknowledged when they are settled, in order where that matters, and none blocks the
//! next.

use std::sync::Arc;
use std::time::Duration;

use bus::ports::inward::Settled;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use testkit::chaos::Proxy;
use tokio::sync::Semaphore;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_acknowledged_after_it_is_settled_and_comes_again_otherwise() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let requester = requester(&vhost).await;
    let proxy = Proxy::to(&host(&vhost)).await;
    let settle = Arc::new(Semaphore::new(0));
    let settling = settle.clone();
    let config = consumer_at(&proxy.address().to_string(), &vhost);
    let mut running = run(config, 1_000, move |_, _| {
        let settling = settling.clone();
        Box::pin(async move {
            settling.acquire().await.unwrap().forget();
            Settled::Done
        })
    });
    command(&requester, "once", BasicProperties::default()).await;
    assert_eq!(running.next().await.body, "once");
    // In work, so the broker has it: it comes again when the connection is gone.
    proxy.cut();
    let noticed = async || (proxy.connections() == 0).then_some(());
    until("the connections are gone", noticed).await;
    proxy.mend();
    assert_eq!(running.next().await.body, "once");
    settle.add_permits(1);
    let errors = running.stop().await;
    assert!(!errors.is_empty(), "it ended when the connection was lost");
    assert_eq!(depth(&vhost, "commands").await, 0, "nothing came back");
    assert_eq!(depth(&vhost, "dead").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_noticed_and_the_command_comes_again() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let requester = requester(&vhost).await;
    let proxy = Proxy::to(&host(&vhost)).await;
    let config = consumer_at(&proxy.address().to_string(), &vhost);
    let mut silent = run(config, 1_000, |_, _| Box::pin(std::future::pending()));
    command(&requester, "lost", BasicProperties::default()).await;
    assert_eq!(silent.next().await.body, "lost");
    proxy.silence();
    let mut other = run(consumer_at(&host(&vhost), &vhost), 1_000, |_, _| done());
    assert_eq!(other.next().await.body, "lost");
    proxy.cut();
    silent.fails().await;
    silent.stop().await;
    other.stop().await;
    assert_eq!(depth(&vhost, "commands").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_one_lane_stay_in_order_and_one_that_hangs_blocks_no_other() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let requester = requester(&vhost).await;
    let mut config = consumer_at(&host(&vhost), &vhost);
    config.prefetch = 32;
    let finished = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let recorded = finished.clone();
    let running = run(config, 1_000, move |incoming, _| {
        let recorded = recorded.clone();
        Box::pin(async move {
            if incoming.body == "hangs" {
                std::future::pending::<()>().await;
            }
            // Some are slow, so that they would overtake each other.
            let body = String::from_utf8(incoming.body.to_vec()).unwrap();
            let number: u64 = body[1..].parse().unwrap();
            tokio::time::sleep(Duration::from_millis(number % 5)).await;
            recorded.lock().push(body);
            Settled::Done
        })
    });
    command(&requester, "hangs", BasicProperties::default()).await;
    for number in 0..100 {
        for lane in ["a", "b", "c", "d"] {
            let body = format!("{lane}{number}");
            command(&requester, &body, BasicProperties::default()).await;
        }
    }
    let all = async || (finished.lock().len() == 400).then_some(());
    until("all but the one that hangs are settled", all).await;
    for lane in ["a", "b", "c", "d"] {
        let finished = finished.lock();
        let order: Vec<&String> = finished.iter().filter(|body| body.starts_with(lane)).collect();
        let expected: Vec<String> = (0..100).map(|number| format!("{lane}{number}")).collect();
        assert_eq!(order, expected.iter().collect::<Vec<_>>());
    }
    running.task.abort();
    let again = async || (depth(&vhost, "commands").await == 1).then_some(());
    until("what was not settled is there again", again).await;
}

/// Two replicas: each would keep its own lanes in order.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_consumers_of_a_queue_one_gets_the_commands_until_it_stops() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let channel = vhost.connect().await.create_channel().await.unwrap();
    channel.confirm_select(lapin::options::ConfirmSelectOptions::default()).await.unwrap();
    let settle = Arc::new(Semaphore::new(0));
    let of_first = settle.clone();
    let config = consumer_at(&host(&vhost), &vhost);
    let mut first = run(config.clone(), 1_000, move |_, _| {
        let settling = of_first.clone();
        Box::pin(async move {
            settling.acquire().await.unwrap().forget();
            Settled::Done
        })
    });
    command(&channel, "a1", BasicProperties::default()).await;
    assert_eq!(first.next().await.body, "a1");
    let mut second = run(config, 1_000, |_, _| done());
    for body in ["a2", "b1"] {
        command(&channel, body, BasicProperties::default()).await;
    }
    assert_eq!(first.next().await.body, "b1", "another lane, and the same replica");
    // It stops with two in work, and one that waits for its turn.
    first.stop.cancel();
    settle.add_permits(2);
    assert_eq!(second.next().await.body, "a2", "after what comes before it is settled");
    assert!(first.seen.try_recv().is_err());
    first.stop().await;
    second.stop().await;
    assert_eq!(depth(&vhost, "commands").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_settles_what_is_in_work_and_takes_nothing_new() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let requester = requester(&vhost).await;
    let mut config = consumer_at(&host(&vhost), &vhost);
    config.prefetch = 1;
    let settle = Arc::new(Semaphore::new(0));
    let settling = settle.clone();
    let mut running = run(config.clone(), 1_000, move |_, _| {
        let settling = settling.clone();
        Box::pin(async move {
            settling.acquire().await.unwrap().forget();
            Settled::Done
        })
    });
    for body in ["first", "second"] {
        command(&requester, body, BasicProperties::default()).await;
    }
    assert_eq!(running.next().await.body, "first");
    running.stop.cancel();
    settle.add_permits(10);
    assert_eq!(running.stop().await, [""; 0], "it ends without an error");
    assert_eq!(depth(&vhost, "commands").await, 1, "the second waits for another");

    // One that is abandoned because the server stops is not acknowledged.
    let mut running = run(config, 1_000, |_, _| Box::pin(async { Settled::Abandoned }));
    assert_eq!(running.next().await.body, "second");
    running.stop().await;
    assert_eq!(depth(&vhost, "commands").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_author_that_the_broker_has_checked_and_the_trace_are_passed_on() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let requester = requester(&vhost).await;
    let mut running = run(consumer_at(&host(&vhost), &vhost), 1_000, |_, _| done());
    let mut headers = FieldTable::default();
    headers.insert("traceparent".into(), AMQPValue::LongString(TRACE.into()));
    let properties =
        BasicProperties::default().with_user_id(vhost.name.as_str().into()).with_headers(headers);
    command(&requester, "mine", properties).await;
    command(&requester, "anonymous", BasicProperties::default()).await;
    let mut both = [running.next().await, running.next().await];
    both.sort_by_key(|incoming| incoming.author.is_none());
    assert_eq!(both[0].author.as_deref(), Some(&*vhost.name));
    assert_eq!(both[0].traceparent.as_deref(), Some(TRACE));
    assert_eq!((&both[1].author, &both[1].traceparent), (&None, &None));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_queue_is_created_or_named() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let mut config = consumer_at(&host(&vhost), &vhost);
    config.create_queues = false;
    let handler = Arc::new(Script { seen: tokio::sync::mpsc::channel(1).0, answer: |_, _| done() });
    let stop = tokio_util::sync::CancellationToken::new();
    let outbound = outbound();
    let ran = bus::ports::inward::rabbitmq::run("inbox", &config, &outbound, 1_000, handler, stop);
    let error = ran.await.unwrap_err().to_string();
    assert!(error.contains("create commands as a quorum queue"), "{error}");

    config.create_queues = true;
    let running = run(config, 1_000, |_, _| done());
    for queue in ["commands", "dead"] {
        let path = format!("queues/{}/{queue}", vhost.name);
        let kind = until("the queue is created", async || {
            let response = rabbitmq.management(reqwest::Method::GET, &path).send().await.unwrap();
            let queue = response.json::<serde_json::Value>().await.ok()?;
            queue["type"].as_str().map(str::to_owned)
        });
        assert_eq!(kind.await, "quorum");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_deleted_under_us_ends_the_inlet_with_an_error() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let requester = requester(&vhost).await;
    let mut running = run(consumer_at(&host(&vhost), &vhost), 1_000, |_, _| done());
    command(&requester, "before", BasicProperties::default()).await;
    running.next().await;
    requester.queue_delete("commands".into(), Default::default()).await.unwrap();
    let again = async || {
        let channel = vhost.connect().await.create_channel().await.unwrap();
        let passive = lapin::options::QueueDeclareOptions { passive: true, ..Default::default() };
        let declared = channel.queue_declare("commands".into(), passive, FieldTable::default());
        declared.await.ok().map(drop)
    };
    until("the queue is made again", again).await;
    command(&requester, "after", BasicProperties::default()).await;
    assert_eq!(running.next().await.body, "after");
    let errors = running.stop().await;
    assert!(errors[0].contains("queue was deleted"), "{errors:?}");
}
