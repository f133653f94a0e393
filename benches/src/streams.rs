//! The streams operator on a real API server with played nodes; each figure as the table
//! names it.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use crate::figures::{Figures, Target, percentile};
use crate::server;
use crate::streams_world::{NAMESPACE, TIMEOUT, World, pod, stream};

pub async fn run(figures: &mut Figures, part: &str) -> anyhow::Result<()> {
    let wanted = |name: &str| part.is_empty() || part == name;
    if wanted("one") {
        one_at_a_time(figures).await?;
    }
    for many in [500, 2000] {
        if wanted("many") || part == many.to_string() {
            at_once(figures, many).await?;
        }
    }
    if part == "floor" {
        floor(figures).await?;
    }
    if wanted("resume") {
        resumed(figures).await?;
    }
    for (many, most) in [(2000, 60.0), (10_000, 150.0)] {
        if wanted("rest") || part == format!("rest-{many}") {
            at_rest(figures, many, most).await?;
        }
    }
    Ok(())
}

/// Waits for a condition, and says how long that took.
async fn until(what: &str, mut there: impl FnMut() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !there() {
        anyhow::ensure!(begun.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

async fn one_at_a_time(figures: &mut Figures) -> anyhow::Result<()> {
    let world = World::new().await?;
    let (_operator, _) = world.operator().await?;
    let seen = world.look();
    let mut times = Vec::new();
    for i in 0..100 {
        let name = format!("one-{i}");
        let begun = Instant::now();
        world.make_all(&world.streams(), vec![stream(&name, false)]).await?;
        until("its first Job", || seen.lock().first_job.contains_key(&name)).await?;
        let at = seen.lock().first_job[&name];
        times.push(at.duration_since(begun).as_secs_f64() * 1000.0);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let p50 = percentile(&mut times, 0.50);
    let p99 = percentile(&mut times, 0.99);
    figures.add("streams: created to first Job, p50", p50, "ms", None, Target::AtMost(15.0));
    figures.add("streams: created to first Job, p99", p99, "ms", None, Target::AtMost(50.0));
    Ok(())
}

/// Jobs a second of a bare client, with pods that hang.
async fn bare(many: usize) -> anyhow::Result<f64> {
    let world = World::new().await?;
    let job = |i: usize| {
        json!({
            "metadata": { "name": format!("bare-{i}") },
            "spec": { "backoffLimit": 0, "template": pod("hang") },
        })
    };
    let begun = Instant::now();
    world.make_all(&world.jobs(), (0..many).map(job).collect()).await?;
    Ok(many as f64 / begun.elapsed().as_secs_f64())
}

/// How fast this Kubernetes brings Jobs to their end, with nobody but a bare client: what no
/// operator can go beyond.
async fn floor(figures: &mut Figures) -> anyhow::Result<()> {
    let many = 500;
    let world = World::new().await?;
    let job = |i: usize| {
        json!({
            "metadata": { "name": format!("bare-{i}") },
            "spec": { "backoffLimit": 0, "template": pod("ok") },
        })
    };
    let begun = Instant::now();
    world.make_all(&world.jobs(), (0..many).map(job).collect()).await?;
    let made = many as f64 / begun.elapsed().as_secs_f64();
    while world.count_ended().await? < many {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let ended = many as f64 / begun.elapsed().as_secs_f64();
    figures.add("bare: 500 Jobs made", made, "/s", None, Target::AtLeast(0.0));
    figures.add("bare: 500 Jobs ended", ended, "/s", Some(made), Target::AtLeast(0.0));
    Ok(())
}

async fn at_once(figures: &mut Figures, many: usize) -> anyhow::Result<()> {
    let baseline = bare(many).await?;
    let world = World::new().await?;
    let (operator, _) = world.operator().await?;
    let seen = world.look();
    let before = operator.calls().await?;
    let begun = Instant::now();
    let all = (0..many).map(|i| stream(&format!("s{i}"), false)).collect();
    world.make_all(&world.streams(), all).await?;
    until("all first Jobs", || seen.lock().first_job.len() >= many).await?;
    let first_jobs = many as f64 / begun.elapsed().as_secs_f64();
    until("all running", || seen.lock().running.len() >= many).await?;
    let running = many as f64 / begun.elapsed().as_secs_f64();
    let first = seen.lock().running.values().min().copied().context("one is running")?;
    let (requests, _) = operator.since(&before).await?;
    let name = |what: &str| format!("streams: {many} at once, {what}");
    let baseline = Some(baseline);
    figures.add(&name("first Jobs"), first_jobs, "/s", baseline, Target::Share(0.25));
    figures.add(&name("all running"), running, "/s", baseline, Target::Share(0.05));
    let first = first.duration_since(begun).as_secs_f64();
    figures.add(&name("the first is running after"), first, "s", None, Target::AtMost(5.0));
    let each = requests / many as f64;
    figures.add(&name("requests each"), each, "", None, Target::AtMost(10.0));
    Ok(())
}

async fn resumed(figures: &mut Figures) -> anyhow::Result<()> {
    let many = 300;
    let world = World::new().await?;
    let (_operator, _) = world.operator().await?;
    let seen = world.look();
    let all = (0..many).map(|i| stream(&format!("s{i}"), true)).collect();
    world.make_all(&world.streams(), all).await?;
    until("all suspended", || seen.lock().suspended.len() >= many).await?;
    let resume = json!({ "spec": { "execution": { "suspended": false } } });
    let begun = Instant::now();
    let patches = (0..many).map(|i| (format!("s{i}"), resume.clone(), false)).collect();
    world.patch_all(patches).await?;
    until("all running", || seen.lock().running.len() >= many).await?;
    let rate = many as f64 / begun.elapsed().as_secs_f64();
    // Whatever would be made twice has been by then.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let made = seen.lock().jobs.len() as f64;
    figures.add("streams: 300 resumed, Jobs made", made, "", None, Target::AtMost(300.0));
    figures.add("streams: 300 resumed", rate, "/s", None, Target::AtLeast(0.0));
    Ok(())
}

/// Streams and Jobs as an operator left them that ran before.
async fn at_rest(figures: &mut Figures, many: usize, most_mib: f64) -> anyhow::Result<()> {
    use streams::model::hash::{go_compatible_json, md5_hex};
    let world = World::new().await?;
    let all: Vec<Value> = (0..many).map(|i| stream(&format!("s{i}"), false)).collect();
    let made = world.make_all(&world.streams(), all).await?;
    let (mut jobs, mut patches) = (Vec::new(), Vec::new());
    for object in made {
        let name = object.metadata.name.context("a name")?;
        let spec = &object.data["spec"];
        let hash = md5_hex(go_compatible_json(spec).as_bytes());
        let mut pod = pod("hang");
        pod["spec"]["containers"][0]["env"] = json!([
            { "name": "STREAMCONTEXT__STREAM_ID", "value": name },
            { "name": "STREAMCONTEXT__STREAM_KIND", "value": "BenchStream" },
            { "name": "STREAMCONTEXT__SPEC", "value": go_compatible_json(spec) },
            { "name": "STREAMCONTEXT__BACKFILL", "value": "false" },
        ]);
        jobs.push(json!({
            "metadata": {
                "name": name,
                "labels": {
                    "arcane/stream-id": name, "arcane/stream-kind": "BenchStream",
                    "arcane/backfilling": "false",
                },
                "annotations": { "configuration-hash": hash },
                "ownerReferences": [{
                    "apiVersion": "streaming.sneaksanddata.com/v1", "kind": "BenchStream",
                    "name": name, "uid": object.metadata.uid, "controller": true,
                }],
            },
            // Without pods: the nodes are not what is measured.
            "spec": { "suspend": true, "backoffLimit": 0, "template": pod },
        }));
        patches.push((
            name,
            json!({ "status": {
            "phase": "Running", "configurationHash": hash,
            "conditions": [{
                "type": "Ready", "status": "True", "message": "The stream is currently running.",
            }],
        } }),
            true,
        ));
    }
    world.make_all(&world.jobs(), jobs).await?;
    world.patch_all(patches).await?;
    anyhow::ensure!(world.count_jobs().await? == many, "there are {many} Jobs in {NAMESPACE}");

    // One that ran before has seen the class, and found nothing to do about its streams.
    let (before, _) = world.operator().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    before.stop()?;
    let (operator, ready) = world.operator().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (requests, writes) = operator.since(&Default::default()).await?;
    let name = |what: &str| format!("streams: {many} running, {what}");
    figures.add(&name("restart until ready"), ready.as_secs_f64(), "s", None, Target::AtMost(5.0));
    figures.add(&name("restart, writes"), writes, "", None, Target::AtMost(0.0));
    // Lists come in pages of a few hundred, of two kinds.
    let pages = many as f64 / 100.0 + 50.0;
    figures.add(&name("restart, requests"), requests, "", None, Target::AtMost(pages));
    let rss = server::rss_mib(operator.pid())?;
    figures.add(&name("memory"), rss, "MiB", None, Target::AtMost(most_mib));
    let before = operator.calls().await?;
    let (cpu, begun) = (server::cpu_s(operator.pid())?, Instant::now());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let share = (server::cpu_s(operator.pid())? - cpu) / begun.elapsed().as_secs_f64() * 100.0;
    let (idle, _) = operator.since(&before).await?;
    figures.add(&name("idle, requests in 20 s"), idle, "", None, Target::AtMost(0.0));
    figures.add(&name("idle, of a core"), share, "%", None, Target::AtMost(5.0));
    Ok(())
}
