//! The advisor: its formulas, jobs over a real Prometheus, and jobs larger than one machine's
//! Prometheus could hold.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Value, json};
use testkit::kafka::{Kafka, Listener};

use crate::figures::Figures;
use crate::server::{Server, binary, start_with, token_for};
use crate::{advisor_large, advisor_maths, advisor_real};

/// No job takes longer, on a machine that is busy with other things, too.
const DEADLINE: Duration = Duration::from_secs(3600);
const PARTITIONS: i32 = 3;

pub async fn run(figures: &mut Figures, part: &str) -> anyhow::Result<()> {
    kernel::outbound::install_tls();
    let parts = ["maths", "real", "large"];
    anyhow::ensure!(
        part.is_empty() || parts.contains(&part),
        "no part {part}: there are maths, real, large"
    );
    let is_asked_for = |name: &str| {
        let asked = part.is_empty() || part == name;
        if asked {
            crate::bus::show_load(name);
        }
        asked
    };
    if is_asked_for("maths") {
        advisor_maths::run(figures)?;
    }
    if is_asked_for("real") {
        advisor_real::run(figures).await?;
    }
    if is_asked_for("large") {
        advisor_large::run(figures).await?;
    }
    crate::bus::show_load("end");
    Ok(())
}

/// Names of topics that nobody else uses.
pub struct Topics {
    /// Of one installation: another one's is refused.
    sink: String,
    pub recommendations: String,
    error: String,
    summary: String,
}

impl Topics {
    pub async fn create(kafka: &Kafka, name: &str) -> Topics {
        Topics {
            sink: kafka.name(name),
            recommendations: kafka.topic(&format!("{name}-recommendations"), PARTITIONS).await,
            error: kafka.topic(&format!("{name}-error"), PARTITIONS).await,
            summary: kafka.topic(&format!("{name}-summary"), 1).await,
        }
    }
}

/// A server with one data source, and with a sink for its topics if they are given.
pub struct Site {
    pub server: Server,
    http: reqwest::Client,
    token: String,
}

impl Site {
    pub async fn start(
        dir: &Path,
        datasource: &str,
        sink: Option<(&Kafka, &Topics)>,
    ) -> anyhow::Result<Site> {
        let mut config = format!("[advisor.datasources.prometheus-1]\nurl = \"{datasource}\"\n");
        if let Some((kafka, topics)) = sink {
            let Topics { sink, recommendations, error, summary } = topics;
            config += &format!(
                "[advisor.topics]\nrecommendations = \"{recommendations}\"\nerror = \"{error}\"\n\
                 summary = \"{summary}\"\n[bus.sinks.{sink}]\nrenderer = \"kruize\"\n\
                 start = \"earliest\"\n[bus.sinks.{sink}.kafka]\nbrokers = [\"{}\"]\n",
                kafka.server.get("")
            );
        }
        let file = dir.join("config.toml");
        std::fs::write(&file, config)?;
        let binary = binary("MAINSTAY_BIN")?;
        let data = dir.join("data");
        let settings = [("MAINSTAY_CONFIG", file.display().to_string())];
        let server = start_with(&binary, &data, &settings).await?;
        let token = token_for(&binary, &data, &[])?;
        Ok(Site { server, http: reqwest::Client::new(), token })
    }

    pub fn pid(&self) -> u32 {
        self.server.child.id()
    }

    pub fn summary_request(&self, id: &str) -> Vec<u8> {
        crate::load::get(&format!("/bulk?job_id={id}&include=summary"), &self.token)
    }

    /// Starts a job; returns its id.
    pub async fn create(&self, request: &Value) -> anyhow::Result<String> {
        let url = format!("http://{}/bulk", self.server.address);
        let request = self.http.post(url).bearer_auth(&self.token).json(request);
        let answer: Value = request.send().await?.error_for_status()?.json().await?;
        Ok(answer["job_id"].as_str().context("no job_id")?.to_owned())
    }

    /// The job's summary, once it has ended.
    pub async fn ended(&self, id: &str) -> anyhow::Result<Value> {
        let url = format!("http://{}/bulk?job_id={id}", self.server.address);
        let begun = Instant::now();
        loop {
            let request = self.http.get(&url).bearer_auth(&self.token);
            let answer: Value = request.send().await?.error_for_status()?.json().await?;
            if !answer["summary"]["job_end_time"].is_null() {
                return Ok(answer["summary"].clone());
            }
            anyhow::ensure!(begun.elapsed() < DEADLINE, "job {id} does not end: {answer}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn completed(&self, id: &str, containers: usize) -> anyhow::Result<()> {
        let summary = self.ended(id).await?;
        let right =
            summary["status"] == "COMPLETED" && summary["processed_experiments"] == containers;
        anyhow::ensure!(right, "{summary}");
        Ok(())
    }

    /// The names of the experiments of a job.
    pub async fn experiments(&self, id: &str) -> anyhow::Result<BTreeSet<String>> {
        let include = "experiments%7Cstatus";
        let url = format!("http://{}/bulk?job_id={id}&include={include}", self.server.address);
        let request = self.http.get(url).bearer_auth(&self.token);
        let answer: Value = request.send().await?.error_for_status()?.json().await?;
        let experiments = answer["experiments"].as_object().context("no experiments")?;
        Ok(experiments.keys().cloned().collect())
    }
}

/// What a consumer of committed records has read of a topic.
pub struct Consumed {
    pub messages: usize,
    pub distinct: usize,
    pub bytes: u64,
    /// From the first message to the last.
    pub took: Duration,
    pub last: Instant,
}

/// Reads messages with different keys until so many have come, and then until nothing more comes.
pub async fn consume(kafka: &Kafka, topic: &str, count: usize) -> anyhow::Result<Consumed> {
    let mut config = kafka.config(Listener::Plain);
    config.set("group.id", "none").set("isolation.level", "read_committed");
    config.set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create()?;
    let mut assigned = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        assigned.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&assigned)?;
    let read = tokio::task::spawn_blocking(move || {
        let (mut keys, mut messages, mut bytes) = (BTreeSet::new(), 0, 0);
        let waiting = Instant::now();
        let (mut first, mut last) = (None, Instant::now());
        loop {
            let message = consumer.poll(Duration::from_millis(100));
            if let Some(message) = message.transpose()? {
                last = Instant::now();
                first.get_or_insert(last);
                messages += 1;
                bytes += message.payload_len() as u64;
                keys.insert(message.key().unwrap_or_default().to_vec());
            }
            let done = keys.len() >= count && last.elapsed() > Duration::from_secs(2);
            if done {
                let took = last - first.unwrap_or(last);
                return Ok(Consumed { messages, distinct: keys.len(), bytes, took, last });
            }
            anyhow::ensure!(waiting.elapsed() < DEADLINE, "only {} of {count} came", keys.len());
        }
    });
    read.await?
}

/// A job about some namespaces.
pub fn about(namespaces: &[String]) -> Value {
    json!({ "filter": { "include": { "namespace": namespaces } } })
}
