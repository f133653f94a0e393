//! What reading costs: one, many, a thousand connections, agents that report nothing new, and rest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{API, On, World, send};
use crate::figures::{Figures, Target, percentile};
use crate::load::{self, Connection};
use crate::server;

pub(super) async fn get_one(
    figures: &mut Figures,
    on: On,
    store: &str,
    share: f64,
) -> anyhow::Result<()> {
    let world = World::new(on, 10, 10_000).await?;
    let request = load::get(&format!("{API}/kafkas/bench{:015}", 4711), &world.user);
    let (status, body) = Connection::open(world.address(0)).await?.send(&request).await?;
    anyhow::ensure!(status == 200, "{status}");
    let bare = server::bare(&body).await?;
    let (ours, theirs) = server::against(&world.servers[0], &request, &bare).await?;
    figures.add(
        &format!("GET of one, 10,000 there, {store}, 32 connections"),
        ours,
        "1/s",
        Some(theirs),
        Target::Share(share),
    );
    Ok(())
}

pub(super) async fn lists(figures: &mut Figures) -> anyhow::Result<()> {
    let world = World::new(On::Postgres { replicas: 1 }, 10, 100_000).await?;
    let paths = |paths: &[&str]| -> Vec<Vec<u8>> {
        paths.iter().map(|path| load::get(&format!("{API}/kafkas{path}"), &world.user)).collect()
    };
    let lists = paths(&["?size=100", "?size=100&page=7", "?size=100&page=900"]);
    let searches = paths(&[
        "?size=100&search=name%20like%20%25777%25",
        "?size=100&search=owner%20%3D%20user42%20and%20status%20%3D%20ready",
        "?size=100&search=name%20%3D%20kafka-004711",
        "?size=100&search=region%20in%20(us-east-1)%20and%20name%20ilike%20%25KAFKA-09%25",
    ]);
    for (what, requests) in [("list of 100", lists), ("search", searches)] {
        let mut samples = load::latencies(world.address(0), &requests, 600).await?;
        figures.add(
            &format!("{what}, 100,000 there, p99"),
            percentile(&mut samples, 0.99),
            "ms",
            None,
            Target::AtMost(20.0),
        );
    }
    Ok(())
}

pub(super) async fn connections(figures: &mut Figures) -> anyhow::Result<()> {
    let world = World::new(On::Postgres { replicas: 1 }, 10, 10_000).await?;
    let request = Arc::new(load::get(&format!("{API}/kafkas/bench{:015}", 1), &world.user));
    let server = world.address(0);
    let mut tasks = JoinSet::new();
    for _ in 0..1_000 {
        let request = request.clone();
        tasks.spawn(async move {
            let mut connection = Connection::open(server).await?;
            for _ in 0..20 {
                let answer =
                    tokio::time::timeout(Duration::from_secs(30), connection.send(&request));
                let (status, _) = answer.await.context("stuck")??;
                anyhow::ensure!(status == 200 || status == 503, "{status}");
                if status == 503 {
                    anyhow::bail!("turned away");
                }
            }
            anyhow::Ok(())
        });
    }
    let served = tasks.join_all().await.into_iter().filter(Result::is_ok).count();
    figures.add(
        "of 1,000 connections at once served to the end",
        served as f64,
        "",
        None,
        Target::AtLeast(1000.0),
    );
    Ok(())
}

/// 100,000 instances on 1,000 clusters, 1,000 agents watching, nothing to do.
pub(super) async fn rest(figures: &mut Figures) -> anyhow::Result<()> {
    const CLUSTERS: usize = 1_000;
    const INSTANCES: usize = 100_000;
    let empty = World::new(On::Sqlite, 1, 0).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let base = server::rss_mib(empty.servers[0].child.id())?;
    drop(empty);
    let world = World::new(On::Sqlite, CLUSTERS, INSTANCES).await?;
    let server = world.address(0);
    let mut watches = Vec::new();
    for (n, token) in world.agents.iter().enumerate() {
        let mut stream = tokio::net::TcpStream::connect(server).await?;
        let path = format!("{API}/agent-clusters/c{n:04}/kafkas?watch=true&after={}", i64::MAX / 2);
        tokio::io::AsyncWriteExt::write_all(&mut stream, &load::get(&path, token)).await?;
        watches.push(stream);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let pid = world.servers[0].child.id();
    let (before, begun) = (server::cpu_s(pid)?, Instant::now());
    tokio::time::sleep(Duration::from_secs(30)).await;
    let share = (server::cpu_s(pid)? - before) / begun.elapsed().as_secs_f64() * 100.0;
    figures.add(
        "processor at rest, 100,000 instances, 1,000 agents watching",
        share,
        "%",
        None,
        Target::AtMost(5.0),
    );
    let per = (server::rss_mib(pid)? - base) * 1024.0 / INSTANCES as f64;
    figures.add("resident memory per instance", per, "KiB", None, Target::AtMost(4.0));
    Ok(())
}

pub(super) async fn report(figures: &mut Figures) -> anyhow::Result<()> {
    let world = World::new(On::Postgres { replicas: 1 }, 1, 1_000).await?;
    let versions = json!({"kafka": "2.8.2", "kafkaIbp": "2.8", "strimzi": "strimzi-cluster-operator.v0.26.0-0"});
    let one = json!({"conditions": [{"type": "Ready", "status": "True"}], "versions": versions});
    let reports: serde_json::Map<String, Value> =
        (0..1_000).map(|n| (format!("bench{n:015}"), one.clone())).collect();
    let body = Value::Object(reports).to_string();
    let path = format!("{API}/agent-clusters/c0000/kafkas/status");
    let request = send("PUT", &path, &world.agents[0], &body);
    let store = world.store.as_ref().context("PostgreSQL")?;
    let mut connection = Connection::open(world.address(0)).await?;
    connection.send(&request).await?;
    let before = store.head().await?.event_seq;
    let mut samples = Vec::new();
    for _ in 0..50 {
        let begun = Instant::now();
        let (status, _) = connection.send(&request).await?;
        anyhow::ensure!(status == 200, "{status}");
        samples.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    let writes = store.head().await?.event_seq - before;
    figures.add(
        "writes of 50 reports of 1,000 unchanged instances",
        writes as f64,
        "",
        None,
        Target::AtMost(0.0),
    );
    figures.add(
        "a report of 1,000 unchanged instances, p99",
        percentile(&mut samples, 0.99),
        "ms",
        None,
        Target::AtMost(50.0),
    );
    Ok(())
}
