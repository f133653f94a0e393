//! Seeds: a data source that is slow and lies, servers that are killed, jobs that are cancelled.
//! `SIM_SEEDS=500 cargo test -p advisor seeds` tries more; `SIM_SEED=7` repeats one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use advisor::model::job::JobPhase;
use kernel::queue::State;
use serde_json::json;
use testkit::stores;

use crate::support::server::{Server, config, until};
use crate::support::small::Small;
use crate::support::stand_in::{Reply, StandIn};

/// Numbers that follow from a seed.
struct Dice(AtomicU64);

impl Dice {
    fn below(&self, sides: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

/// What a data source answers that is overloaded, or behind a bad network, or wrong.
fn lie(dice: &Dice, truth: Reply) -> Reply {
    let Reply::Json(value) = &truth else { return truth };
    match dice.below(100) {
        0 => Reply::Hang,
        1..=4 => Reply::status(503),
        5..=7 => Reply::status(429),
        8..=9 => Reply::error(422, "execution", "query processing would load too many samples"),
        10..=12 => {
            let text = value.to_string();
            Reply::Text(200, Vec::new(), text[..text.len() / 2].to_owned())
        }
        13 => Reply::Json(json!({ "status": "success", "warnings": ["a part is missing"],
                                  "data": value["data"] })),
        14 => Reply::Text(200, Vec::new(), value.to_string().replace("0.25", "NaN")),
        15 => Reply::Text(200, Vec::new(), value.to_string().replace("0.25", "-0.25")),
        _ => truth,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_data_source_says_each_experiment_comes_once_and_the_end_last() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(12),
    };
    for seed in seeds {
        println!("SIM_SEED={seed}");
        run(seed).await;
    }
}

async fn run(seed: u64) {
    let dice = Arc::new(Dice(AtomicU64::new(seed)));
    let small = Small::of(1 + dice.below(600) as usize);
    let expected = small.containers.len();
    let answers = dice.clone();
    let source = StandIn::new(move |seen| lie(&answers, small.reply(seen))).await;
    let mut config = config(&[("p", &source.url), ("prometheus-1", &source.url)]);
    config.datasources.values_mut().for_each(|one| one.query_timeout_s = 1);
    config.source_retries_max = 9;
    let fresh = stores::memory().await.unwrap();
    let mut servers = Vec::new();
    for _ in 0..2 {
        servers.push(Server::start(&fresh, &config).await);
    }
    let id = servers[0].create(json!({})).await.unwrap();
    let cancelled = dice.below(4) == 0;
    for _ in 0..dice.below(5) {
        let before = fresh.store.newest_event().await.unwrap();
        let commits = 1 + dice.below(300) as i64;
        until("it goes on", async || {
            let newest = fresh.store.newest_event().await.unwrap();
            newest >= before + commits || servers[1].job(&id).await.phase.is_final()
        })
        .await;
        // Killed: nothing that it does goes on.
        drop(servers.remove(0));
        servers.push(Server::start(&fresh, &config).await);
    }
    let server = &servers[0];
    if cancelled {
        server.cancel(&id).await;
    }
    let job = server.ended(&id).await;
    until("nothing is left to do", async || {
        let counts = fresh.store.work_counts().await.unwrap();
        counts.iter().all(|count| count.state != State::Running)
    })
    .await;
    let ends: Vec<_> = server.events("bulk-job").await;
    let ended = |what: &str| ["completed", "failed", "cancelled"].contains(&what);
    let [(_, end)] = &ends.iter().filter(|(what, _)| ended(what)).collect::<Vec<_>>()[..] else {
        panic!("seed {seed}: a job ends once: {ends:?}");
    };
    let mut processed = 0;
    for (what, event) in &ends {
        let object: serde_json::Value = event.data.parse().unwrap();
        let now = object["status"]["processed"].as_u64().unwrap_or(0);
        assert!(processed <= now, "seed {seed}: {what}: {processed} to {now}");
        processed = now;
    }
    let mut events: BTreeMap<String, usize> = BTreeMap::new();
    for (what, event) in server.events("experiment").await {
        assert!(["recommended", "failed"].contains(&what.as_str()), "seed {seed}: {what}");
        assert!(event.seq < end.seq, "seed {seed}: after the end: {what}");
        *events.entry(event.subject.to_string()).or_default() += 1;
    }
    assert!(events.values().all(|count| *count == 1), "seed {seed}: one was published twice");
    for counter in ["advisor/jobs/acme", "advisor/reads//prometheus-1"] {
        let used = fresh.store.counter(counter).await.unwrap().map_or(0, |found| found.used);
        assert_eq!(used, 0, "seed {seed}: {counter}");
    }
    if job.phase == JobPhase::Completed {
        assert_eq!((processed as usize, events.len()), (expected, expected), "seed {seed}");
        let mut names = server.results(&job).await;
        names.sort();
        names.dedup();
        assert_eq!(names.len(), expected, "seed {seed}");
    } else {
        assert!(cancelled || !job.status.notices.is_empty(), "seed {seed}: no reason");
    }
}
