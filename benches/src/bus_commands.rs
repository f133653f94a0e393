//! From sending a command to its durable acceptance: over RabbitMQ, and over REST.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kernel::Ambient;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, Consumer};
use serde_json::{Value, json};
use testkit::rabbitmq::VHost;

use crate::bus::{Brokers, DEADLINE, host};
use crate::figures::{Figures, Target, percentile};
use crate::load;
use crate::server::{binary, start_with, token_for};

const QUEUE: &str = "mainstay.commands";
const REPLIES: &str = "amq.rabbitmq.reply-to";
const SAMPLES: usize = 400;
const WARM_UP: usize = 20;
/// Between two commands of one kind: 25 per second of each.
const PAUSE: Duration = Duration::from_millis(40);

pub async fn run(figures: &mut Figures, brokers: &Brokers) -> anyhow::Result<()> {
    let binary = binary("MAINSTAY_E2E_BIN")?;
    let dir = tempfile::tempdir_in(".")?;
    let vhost = brokers.rabbitmq.vhost().await;
    let set = |key: &str| format!("MAINSTAY_BUS__CONSUMERS__ORDERS__RABBITMQ__{key}");
    let user = set(&format!("USERS__{}", vhost.name.to_uppercase()));
    let settings = [
        (set("URL"), format!("amqp://{}", host(&vhost))),
        (set("USERNAME"), vhost.name.clone()),
        (set("PASSWORD"), vhost.password.clone()),
        (format!("{user}__SUBJECT"), "orders".into()),
        (format!("{user}__ORG"), "acme".into()),
    ];
    let settings: Vec<(&str, String)> =
        settings.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let server = start_with(&binary, dir.path(), &settings).await?;
    let token = token_for(&binary, dir.path(), &["--role", "admin-full"])?;
    let mut requester = Requester::open(&vhost).await?;
    let mut rest = Rest { connection: load::Connection::open(server.address).await?, token };
    let (mut over_bus, mut over_rest) = (Vec::new(), Vec::new());
    for n in 0..WARM_UP + SAMPLES {
        let begun = tokio::time::Instant::now();
        let bus = requester.create(n).await?;
        tokio::time::sleep_until(begun + PAUSE / 2).await;
        let rest = rest.create(n, server.address).await?;
        if n >= WARM_UP {
            over_bus.push(bus);
            over_rest.push(rest);
        }
        tokio::time::sleep_until(begun + PAUSE).await;
    }
    for (name, part, target) in
        [("p50", 0.5, Target::AtLeast(0.0)), ("p99", 0.99, Target::AtMost(20.0))]
    {
        let (bus, rest) = (percentile(&mut over_bus, part), percentile(&mut over_rest, part));
        let name = format!("command over RabbitMQ to accepted (baseline: REST), {name}");
        figures.add(&name, bus, "ms", Some(rest), target);
    }
    Ok(())
}

/// Sends commands as a user whom the broker knows, and waits for the answers.
struct Requester {
    _connection: Connection,
    channel: Channel,
    answers: Consumer,
    user: String,
}

impl Requester {
    async fn open(vhost: &VHost) -> anyhow::Result<Requester> {
        let connection = vhost.connect().await;
        has_consumer(&connection).await?;
        let channel = connection.create_channel().await?;
        let no_ack = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let answers = channel.basic_consume(REPLIES.into(), "".into(), no_ack, table()).await?;
        Ok(Requester { _connection: connection, channel, answers, user: vhost.name.clone() })
    }

    /// Milliseconds until the command is accepted.
    async fn create(&mut self, n: usize) -> anyhow::Result<f64> {
        let id = format!("bus-{n}");
        let command = json!({
            "id": id, "type": "widget.create", "issued_at": Ambient::system().now(),
            "body": {"name": id},
        });
        let command = command.to_string();
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_user_id(self.user.as_str().into())
            .with_reply_to(REPLIES.into());
        let (options, body) = (BasicPublishOptions::default(), command.as_bytes());
        let begun = Instant::now();
        self.channel.basic_publish("".into(), QUEUE.into(), options, body, properties).await?;
        loop {
            let next = tokio::time::timeout(DEADLINE, self.answers.next()).await?;
            let took = begun.elapsed();
            let answer = next.ok_or_else(|| anyhow::anyhow!("the connection is closed"))??;
            let answer: Value = serde_json::from_slice(&answer.data)?;
            // Progress of an earlier one.
            if answer["id"] != id.as_str() {
                continue;
            }
            anyhow::ensure!(answer["state"] == "accepted", "{answer}");
            return Ok(took.as_secs_f64() * 1000.0);
        }
    }
}

/// Waits until the server consumes its queue.
async fn has_consumer(connection: &Connection) -> anyhow::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < DEADLINE {
        // A channel of its own: the broker closes it if there is no queue.
        let channel = connection.create_channel().await?;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        if let Ok(queue) = channel.queue_declare(QUEUE.into(), passive, table()).await
            && queue.consumer_count() > 0
        {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("the server does not consume {QUEUE}")
}

fn table() -> FieldTable {
    FieldTable::default()
}

/// Sends the same commands over one connection that stays open.
struct Rest {
    connection: load::Connection,
    token: String,
}

impl Rest {
    /// Milliseconds until the command is accepted.
    async fn create(&mut self, n: usize, address: SocketAddr) -> anyhow::Result<f64> {
        let id = format!("rest-{n}");
        let body = json!({ "name": id }).to_string();
        let request = format!(
            "POST /api/v1/widgets HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
             idempotency-key: {id}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        let begun = Instant::now();
        let (status, answer) = self.connection.send(request.as_bytes()).await?;
        let took = begun.elapsed();
        anyhow::ensure!(status == 202, "{status}: {}", String::from_utf8_lossy(&answer));
        Ok(took.as_secs_f64() * 1000.0)
    }
}
