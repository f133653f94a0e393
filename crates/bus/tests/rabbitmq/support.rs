//! What the tests share: a sink, a pump that tries again, and a reader that counts.

use std::sync::Arc;
use std::time::Duration;

use bus::config::{RabbitMqConsumer, RabbitMqSink};
use bus::model::{Destination, Message, Position};
use bus::ports::inward::{Handler, Incoming, Reply, Settled};
use bus::ports::out::rabbitmq::RabbitMqOutlet;
use bus::ports::out::{Outlet, Refused, Sent};
use futures::StreamExt;
use futures::future::BoxFuture;
use kernel::Ambient;
use kernel::outbound::{Config, Outbound};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions,
    ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Consumer, ExchangeKind};
use parking_lot::Mutex;
use testkit::rabbitmq::VHost;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub const TIMEOUT: Duration = Duration::from_secs(60);
pub const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

pub fn outbound() -> Outbound {
    kernel::outbound::install_tls();
    Outbound::new(Config::default(), Ambient::system(), Arc::new(|_| ())).unwrap()
}

/// HOST:PORT of a virtual host's server.
pub fn host(vhost: &VHost) -> String {
    let (_, host) = vhost.url.rsplit_once('@').unwrap();
    host.split_once('/').unwrap().0.to_owned()
}

/// A sink over this HOST:PORT, which may be a proxy's.
pub fn sink_at(host: &str, vhost: &VHost) -> RabbitMqSink {
    RabbitMqSink {
        url: format!("amqp://{host}/{}", vhost.name),
        username: vhost.name.clone(),
        password: vhost.password.as_str().into(),
        exchange: "events".into(),
        ..RabbitMqSink::default()
    }
}

pub fn sink(vhost: &VHost) -> RabbitMqSink {
    sink_at(&host(vhost), vhost)
}

pub fn outlet(config: &RabbitMqSink) -> RabbitMqOutlet {
    RabbitMqOutlet::new("orders", config, &outbound()).unwrap()
}

/// Waits for a condition.
pub async fn until<T>(what: &str, mut ready: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ready().await {
            return found;
        }
        assert!(begun.elapsed() < TIMEOUT, "{what} does not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Opens as the pump would: again and again until the sink is ours. Returns how long it took.
pub async fn open(outlet: &mut RabbitMqOutlet) -> Duration {
    let begun = Instant::now();
    let mut last = String::new();
    while let Err(error) = outlet.open().await {
        last = error.to_string();
        assert!(begun.elapsed() < TIMEOUT, "it cannot be opened: {last}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(last);
    begun.elapsed()
}

pub fn message(seq: i64) -> Message {
    Message {
        seq,
        to: Destination { name: "events".into(), routing_key: "widget.ready".into() },
        key: format!("widget/{}", seq % 7),
        content_type: "application/json",
        attributes: vec![("id".into(), seq.to_string())],
        body: format!("{{\"seq\":{seq}}}").into(),
        after_all: false,
    }
}

pub fn messages(seqs: impl IntoIterator<Item = i64>) -> Vec<Message> {
    seqs.into_iter().map(message).collect()
}

pub async fn send(
    outlet: &mut RabbitMqOutlet,
    messages: &[Message],
) -> kernel::Result<Vec<Refused>> {
    Ok(match outlet.send(messages, Position::default()).await? {
        Sent::All => Vec::new(),
        Sent::AllBut(refused) | Sent::None(refused) => refused,
    })
}

/// Sends as the pump would: after an error it opens again and repeats. Returns how often.
pub async fn pump(outlet: &mut RabbitMqOutlet, batch: &[Message]) -> usize {
    let begun = Instant::now();
    let mut repeated = 0;
    loop {
        match send(outlet, batch).await {
            Ok(refused) => {
                assert_eq!(refused, []);
                return repeated;
            }
            Err(error) => assert!(begun.elapsed() < TIMEOUT, "it cannot be sent: {error}"),
        }
        repeated += 1;
        open(outlet).await;
    }
}

pub async fn quorum_queue(channel: &Channel, name: &str) {
    declare_quorum(channel, name, FieldTable::default()).await;
}

async fn declare_quorum(channel: &Channel, name: &str, mut arguments: FieldTable) {
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.into(), options, arguments).await.unwrap();
}

/// A queue that is bound for everything of the exchange `events`, by someone who is not the outlet.
pub async fn bind(vhost: &VHost) -> Channel {
    let channel = vhost.connect().await.create_channel().await.unwrap();
    quorum_queue(&channel, "reader").await;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let (topic, none) = (ExchangeKind::Topic, FieldTable::default());
    channel.exchange_declare("events".into(), topic, durable, none.clone()).await.unwrap();
    let (queue, key) = ("reader".into(), "widget.#".into());
    channel
        .queue_bind(queue, "events".into(), key, QueueBindOptions::default(), none)
        .await
        .unwrap();
    channel
}

pub async fn consume(channel: &Channel, queue: &str) -> Consumer {
    let options = BasicConsumeOptions::default();
    let consuming = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
    consuming.await.unwrap()
}

pub async fn next(consumer: &mut Consumer) -> Delivery {
    let next = tokio::time::timeout(TIMEOUT, consumer.next()).await;
    let delivery = next.expect("a message comes").unwrap().unwrap();
    delivery.ack(BasicAckOptions::default()).await.unwrap();
    delivery
}

pub fn seq(delivery: &Delivery) -> i64 {
    delivery.properties.message_id().as_ref().unwrap().as_str().parse().unwrap()
}

/// Reads until this sequence number has come; returns all in order of arrival.
pub async fn read_to(vhost: &VHost, last: i64) -> Vec<i64> {
    let channel = vhost.connect().await.create_channel().await.unwrap();
    let mut consumer = consume(&channel, "reader").await;
    let mut seqs = Vec::new();
    while seqs.last() != Some(&last) {
        seqs.push(seq(&next(&mut consumer).await));
    }
    seqs
}

/// Each of 1..=last came, for the first time in order; returns how many came twice.
pub fn count(seqs: &[i64], last: i64) -> usize {
    let mut expected = 1;
    for seq in seqs {
        assert!(*seq <= expected, "{expected} is missing before {seq}");
        expected += i64::from(*seq == expected);
    }
    assert_eq!(expected, last + 1, "the last one came");
    seqs.len() - usize::try_from(last).unwrap()
}

pub fn header(delivery: &Delivery, name: &str) -> Option<String> {
    match delivery.properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::LongString(text) => Some(text.to_string()),
        other => panic!("{name} is {other:?}"),
    }
}

pub fn consumer_at(host: &str, vhost: &VHost) -> RabbitMqConsumer {
    RabbitMqConsumer {
        url: format!("amqp://{host}/{}", vhost.name),
        username: vhost.name.clone(),
        password: vhost.password.as_str().into(),
        queue: "commands".into(),
        dead_letter_queue: "dead".into(),
        ..RabbitMqConsumer::default()
    }
}

pub type Answer = BoxFuture<'static, Settled>;

/// Tells the test what came, and does what the test says.
pub struct Script<F> {
    pub seen: mpsc::Sender<Incoming>,
    pub answer: F,
}

#[async_trait::async_trait]
impl<F> Handler for Script<F>
where
    F: Fn(Incoming, mpsc::Sender<Reply>) -> Answer + Send + Sync + 'static,
{
    /// By the first byte.
    fn lane(&self, incoming: &Incoming) -> u64 {
        incoming.body.first().copied().unwrap_or_default().into()
    }

    async fn handle(&self, incoming: Incoming, replies: &mpsc::Sender<Reply>) -> Settled {
        let _ = self.seen.send(incoming.clone()).await;
        (self.answer)(incoming, replies.clone()).await
    }
}

/// An inlet that runs, again after an error, until it is stopped.
pub struct Running {
    pub seen: mpsc::Receiver<Incoming>,
    pub stop: CancellationToken,
    /// Those that it ended with and began again after.
    errors: Arc<Mutex<Vec<String>>>,
    pub task: JoinHandle<()>,
}

impl Running {
    pub async fn next(&mut self) -> Incoming {
        let next = tokio::time::timeout(TIMEOUT, self.seen.recv()).await;
        next.expect("a command comes").expect("it runs")
    }

    /// Waits until it has ended with an error.
    pub async fn fails(&self) {
        until("it fails", async || (!self.errors.lock().is_empty()).then_some(())).await;
    }

    /// Waits for what is in work, and returns the errors that it ended with.
    pub async fn stop(self) -> Vec<String> {
        self.stop.cancel();
        tokio::time::timeout(TIMEOUT, self.task).await.expect("it stops").unwrap();
        self.errors.lock().clone()
    }
}

pub fn run(
    config: RabbitMqConsumer,
    bytes_max: usize,
    answer: impl Fn(Incoming, mpsc::Sender<Reply>) -> Answer + Send + Sync + 'static,
) -> Running {
    let (sender, seen) = mpsc::channel(1_000);
    let handler: Arc<dyn Handler> = Arc::new(Script { seen: sender, answer });
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let errors = Arc::<Mutex<Vec<String>>>::default();
    let ended = errors.clone();
    let task = tokio::spawn(async move {
        let outbound = outbound();
        while let Err(error) = bus::ports::inward::rabbitmq::run(
            "inbox",
            &config,
            &outbound,
            bytes_max,
            handler.clone(),
            stopping.clone(),
        )
        .await
        {
            ended.lock().push(error.to_string());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    Running { seen, stop, errors, task }
}

/// A requester: a channel whose publishing is confirmed, and the queue `commands`, as the inlet
/// declares it: either of them may be first.
pub async fn requester(vhost: &VHost) -> Channel {
    let channel = vhost.connect().await.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let mut single = FieldTable::default();
    single.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
    declare_quorum(&channel, "commands", single).await;
    channel
}

pub async fn command(channel: &Channel, body: &str, properties: BasicProperties) {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    // A quorum queue that is just being made may refuse a message.
    until("the broker takes the command", async || {
        let (queue, properties) = ("commands".into(), properties.clone());
        let sent = channel.basic_publish("".into(), queue, options, body.as_bytes(), properties);
        let confirmed = sent.await.unwrap().await.unwrap();
        (confirmed == Confirmation::Ack(None)).then_some(())
    })
    .await;
}

/// How many messages a queue has that nobody is working on.
pub async fn depth(vhost: &VHost, queue: &str) -> u32 {
    let channel = vhost.connect().await.create_channel().await.unwrap();
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let declared = channel.queue_declare(queue.into(), passive, FieldTable::default()).await;
    declared.unwrap().message_count()
}

pub fn done() -> Answer {
    Box::pin(async { Settled::Done })
}
