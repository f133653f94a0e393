//! Jobs of 10,000 containers, from a data source that is played: memory, polling, publishing, and ten
//! jobs at once.

use anyhow::Context as _;
use serde_json::json;

use crate::advisor::{Site, Topics, about, consume};
use crate::advisor_played::Played;
use crate::figures::{Figures, Target, percentile};
use crate::load;
use crate::server::cpu_s;

const CONTAINERS: usize = 10_000;
const POLLS: usize = 2_000;
const JOBS: usize = 10;

pub async fn run(figures: &mut Figures) -> anyhow::Result<()> {
    let synced =
        testkit::kafka().context("Kafka does not run; `cargo xtask bench advisor` starts it")?;
    // With its own defaults: it acknowledges before it syncs, as replicas make safe.
    let kafka = synced.private().await;
    let played = Played::start(CONTAINERS).await?;
    let dir = tempfile::tempdir_in(".")?;
    let site = Site::start(dir.path(), &played.url, None).await?;
    let begun = std::time::Instant::now();
    let id = site.create(&json!({})).await?;
    site.completed(&id, CONTAINERS).await?;
    let took_s = begun.elapsed().as_secs_f64();
    let name = "job of 10,000 containers, a played data source";
    figures.add(name, CONTAINERS as f64 / took_s, "/s", None, Target::AtLeast(0.0));
    let cpu_ms = cpu_s(site.pid())? * 1000.0 / CONTAINERS as f64;
    let name = "own CPU per container, a played data source";
    figures.add(name, cpu_ms, "ms", None, Target::AtMost(5.0));
    let queries = played.queries() as f64 / CONTAINERS as f64;
    figures.add("queries per container at 10,000", queries, "", None, Target::AtMost(1.0));
    let peak = peak_mib(site.pid())?;
    figures.add("peak memory of a job of 10,000", peak, "MiB", None, Target::AtMost(512.0));

    let mut connection = load::Connection::open(site.server.address).await?;
    let request = site.summary_request(&id);
    let mut took_ms = Vec::with_capacity(POLLS);
    for _ in 0..POLLS {
        let begun = std::time::Instant::now();
        let (status, _) = connection.send(&request).await?;
        anyhow::ensure!(status == 200, "GET /bulk answered {status}");
        took_ms.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    let p99 = percentile(&mut took_ms, 0.99);
    figures.add("GET /bulk summary of a job of 10,000, p99", p99, "ms", None, Target::AtMost(5.0));

    let right = ten_at_once(&site).await?;
    let name = "of ten jobs at once, those with their own containers";
    figures.add(name, right as f64, "", None, Target::AtLeast(JOBS as f64));
    drop(site);

    // Everything was recommended while there was no sink: what is measured is the publishing.
    let topics = Topics::create(&kafka, "large").await;
    let site = Site::start(dir.path(), &played.url, Some((&kafka, &topics))).await?;
    let before_s = cpu_s(site.pid())?;
    let read = consume(&kafka, &topics.recommendations, CONTAINERS).await?;
    let rate = read.messages as f64 / read.took.as_secs_f64().max(1e-3);
    figures.add("recommendations published to Kafka", rate, "/s", None, Target::AtLeast(5000.0));
    let cpu_ms = (cpu_s(site.pid())? - before_s) * 1000.0 / read.messages as f64;
    figures.add("own CPU per published recommendation", cpu_ms, "ms", None, Target::AtMost(1.0));
    // The ten jobs recommended for some of them once more.
    let expected = CONTAINERS + JOBS * PER_JOB;
    let doubled = (read.messages - expected) as f64;
    figures.add("published twice or not at all", doubled.abs(), "", None, Target::AtMost(0.0));
    eprintln!(
        "{} messages, {} distinct keys, {} MB",
        read.messages,
        read.distinct,
        read.bytes >> 20
    );
    Ok(())
}

const PER_JOB: usize = 300;

/// Ten jobs over different namespaces. Returns how many have exactly their own containers.
async fn ten_at_once(site: &Site) -> anyhow::Result<usize> {
    let mut jobs = Vec::new();
    for job in 0..JOBS {
        let namespaces: Vec<String> = (0..3).map(|n| format!("n{}", job * 3 + n)).collect();
        jobs.push((site.create(&about(&namespaces)).await?, namespaces));
    }
    let mut right = 0;
    for (id, namespaces) in jobs {
        site.completed(&id, PER_JOB).await?;
        let found = site.experiments(&id).await?;
        let own = |name: &String| namespaces.iter().any(|of| name.contains(&format!("|{of}|")));
        right += usize::from(found.len() == PER_JOB && found.iter().all(own));
    }
    Ok(right)
}

/// The most memory that a process has had.
fn peak_mib(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? / 1024.0)
}
