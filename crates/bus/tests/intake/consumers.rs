//! What people are shown of a consumer.

use std::time::{Duration, Instant};

use bus::BusDomain;
use bus::config::{Config, Consumer, RabbitMqConsumer};
use kernel::Domain as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::stage::Stage;

#[tokio::test]
async fn a_consumer_that_cannot_connect_is_shown() {
    let stage = Stage::new();
    // Nobody listens there.
    let rabbitmq =
        RabbitMqConsumer { url: "amqp://127.0.0.1:1".into(), ..RabbitMqConsumer::default() };
    let consumer = Consumer { rabbitmq: Some(rabbitmq), ..Consumer::default() };
    let config = Config { consumers: [("inbox".to_owned(), consumer)].into(), ..Config::default() };
    let domain = BusDomain { config, embedded: true, commands_days: 7 };
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    domain.start(&stage.app, &tasks, &stop).await.unwrap();
    stage.app.commands().set_complete();
    let begun = Instant::now();
    let is_down = || {
        let checks = stage.app.checks().run();
        checks.iter().any(|check| check.name == "consumer inbox" && check.result.is_err())
    };
    while !is_down() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", stage.app.checks().run());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let metrics = stage.app.metrics.encode();
    assert!(metrics.contains("mainstay_bus_consumer_up{consumer=\"inbox\"} 0"), "{metrics}");
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}
