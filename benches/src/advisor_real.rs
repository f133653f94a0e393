//! A job over a real Prometheus with 15 days of 1-minute data, compared with a bare client that sends the same
//! queries and throws the answers away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use advisor::decide::split::{Limits, split};
use advisor::model::inventory::Member;
use advisor::ports::prometheus::profile::Profile;
use advisor::ports::prometheus::queries::{Queries, Range};
use anyhow::Context as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::json;
use testkit::prometheus::cluster::{Container, Kind, Load, Namespace, Workload};
use testkit::prometheus::{Cluster, History, Prometheus};

use crate::advisor::{Site, Topics, consume};
use crate::figures::{Figures, Target};
use crate::server::cpu_s;

const CONTAINERS: usize = 500;
const OF_NAMESPACE: usize = 50;
/// Of each container.
const PODS: u32 = 1;
const MIB: f64 = 1024.0 * 1024.0;
/// What the advisor sends at once to a data source at most.
const AT_ONCE: usize = 8;
const RUNS: usize = 2;

pub async fn run(figures: &mut Figures) -> anyhow::Result<()> {
    let shared = testkit::prometheus::prometheus();
    let (Some(shared), Some(synced)) = (shared, testkit::kafka()) else {
        anyhow::bail!("Prometheus and Kafka do not run; `cargo xtask bench advisor` starts both");
    };
    let kafka = synced.private().await;
    let prometheus = shared.private_of_the_past().await;
    let end_s = jiff::Timestamp::now().as_second() / 60 * 60;
    load(&prometheus, end_s).await;
    let pid: u32 = prometheus.server.get("pid").parse()?;
    quiet(pid).await?;

    let mut bare_s = f64::MAX;
    let mut bare_cpu = f64::MAX;
    for _ in 0..RUNS {
        let before = cpu_s(pid)?;
        let begun = Instant::now();
        bare(&prometheus, end_s).await?;
        bare_s = bare_s.min(begun.elapsed().as_secs_f64());
        bare_cpu = bare_cpu.min(cpu_s(pid)? - before);
    }
    let (mut ours_s, mut own_cpu, mut their_cpu) = (f64::MAX, f64::MAX, f64::MAX);
    let mut queries = 0.0;
    for run in 0..RUNS {
        let dir = tempfile::tempdir_in(".")?;
        let topics = Topics::create(&kafka, &format!("real{run}")).await;
        let url = prometheus.server.get("");
        let site = Site::start(dir.path(), url, Some((&kafka, &topics))).await?;
        let (own, theirs) = (cpu_s(site.pid())?, cpu_s(pid)?);
        let asked = queries_of(url).await?;
        let begun = Instant::now();
        let id = site.create(&json!({})).await?;
        let ((), read) = tokio::try_join!(
            site.completed(&id, CONTAINERS),
            consume(&kafka, &topics.recommendations, CONTAINERS),
        )?;
        anyhow::ensure!(read.messages == CONTAINERS, "{} messages", read.messages);
        // Until a consumer has the last recommendation.
        ours_s = ours_s.min((read.last - begun).as_secs_f64());
        queries = queries_of(url).await? - asked;
        own_cpu = own_cpu.min(cpu_s(site.pid())? - own);
        their_cpu = their_cpu.min(cpu_s(pid)? - theirs);
    }
    let per = |seconds: f64| seconds * 1000.0 / CONTAINERS as f64;
    let rate = |seconds: f64| CONTAINERS as f64 / seconds;
    let name =
        format!("containers end to end, {CONTAINERS} of {PODS} pod, published (bare client)");
    figures.add(&name, rate(ours_s), "/s", Some(rate(bare_s)), Target::Share(0.7));
    let name = "own CPU per container, published";
    figures.add(name, per(own_cpu), "ms", None, Target::AtMost(5.0));
    // A fifth of the 240 ms that the existing service costs it at least.
    let name = "Prometheus' CPU per container (baseline: bare client)";
    figures.add(name, per(their_cpu), "ms", Some(per(bare_cpu)), Target::AtMost(48.0));
    let per_container = queries / CONTAINERS as f64;
    figures.add("queries per container at 500", per_container, "", None, Target::AtMost(1.0));
    Ok(())
}

/// How many queries Prometheus has answered, as it counts them.
async fn queries_of(url: &str) -> anyhow::Result<f64> {
    let metrics = reqwest::get(format!("{url}/metrics")).await?.error_for_status()?.text().await?;
    let count = |line: &str| {
        let labels = line.strip_prefix("prometheus_http_requests_total{")?;
        let is_query = labels.contains(r#"handler="/api/v1/query"#);
        is_query.then(|| labels.rsplit(' ').next()?.parse::<f64>().ok()).flatten()
    };
    Ok(metrics.lines().filter_map(count).sum())
}

/// Waits until Prometheus has brought what was loaded into order.
async fn quiet(pid: u32) -> anyhow::Result<()> {
    let mut calm = 0;
    while calm < 5 {
        let before = cpu_s(pid)?;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        calm = if cpu_s(pid)? - before < 0.2 { calm + 1 } else { 0 };
    }
    Ok(())
}

async fn load(prometheus: &Prometheus, end_s: i64) {
    let history = History { end_s, length_s: 15 * 86_400, step_s: 60 };
    let begun = Instant::now();
    let loaded = |until_s: i64| {
        let days = (until_s - (end_s - history.length_s)) as f64 / 86_400.0;
        if days.fract() == 0.0 {
            eprintln!("loaded {days} of 15 days in {:.0} s", begun.elapsed().as_secs_f64());
        }
    };
    prometheus.write_in_order(&cluster(), history, 6 * 3600, loaded).await;
}

fn cluster() -> Cluster {
    let container = |number: usize| {
        let cores = 0.05 + 0.01 * (number % 37) as f64;
        let memory = Load::daily(200.0 * MIB, 64.0 * MIB).with_chance(32.0 * MIB);
        let cpu = Load::daily(cores, cores / 2.0).with_chance(cores / 4.0);
        Container::new(&format!("c{number}"), cpu, memory)
            .requests(cores, 256.0 * MIB)
            .limits(4.0 * cores, 512.0 * MIB)
            .throttled(Load::steady(cores / 10.0))
    };
    let namespace = |n: usize| Namespace {
        name: format!("n{n}"),
        quota: None,
        workloads: (0..OF_NAMESPACE)
            .map(|i| n * OF_NAMESPACE + i)
            .map(|i| Workload::new(Kind::Deployment, &format!("w{i}"), PODS, vec![container(i)]))
            .collect(),
    };
    Cluster { seed: 7, namespaces: (0..CONTAINERS / OF_NAMESPACE).map(namespace).collect() }
}

fn members() -> Vec<Member> {
    let member = |i: usize| Member {
        namespace: format!("n{}", i / OF_NAMESPACE),
        workload: format!("w{i}"),
        workload_type: "deployment".into(),
        container: format!("c{i}"),
        image: String::new(),
        pods: PODS,
        shared_name: false,
    };
    (0..CONTAINERS).map(member).collect()
}

/// Sends the queries of all shards.
async fn bare(prometheus: &Prometheus, end_s: i64) -> anyhow::Result<()> {
    let members = members();
    let profile = Profile::with_recording_rules();
    let queries = Queries { profile: &profile, series: &[], minutes: 15 };
    let mut texts = Vec::new();
    for shard in split(&members, false, Limits::default()) {
        texts.extend(queries.of_selection(&shard.selection(&members))?.into_iter().map(|q| q.text));
    }
    let range = Range::until(jiff::Timestamp::from_second(end_s)?);
    let url = format!("{}/api/v1/query_range", prometheus.server.get(""));
    let (http, bytes) = (reqwest::Client::new(), Arc::new(AtomicU64::new(0)));
    let count = texts.len();
    stream::iter(texts)
        .map(|text| {
            let (http, url, bytes) = (http.clone(), url.clone(), bytes.clone());
            async move {
                let answer = http.post(&url).form(&range.form(&text)).send().await?;
                let mut answer = answer.error_for_status()?;
                while let Some(chunk) = answer.chunk().await? {
                    bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                }
                anyhow::Ok(())
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await
        .context("the bare client")?;
    eprintln!("{count} queries, {} MB", bytes.load(Ordering::Relaxed) >> 20);
    Ok(())
}
