//! `kill -9` a hundred times under load, on both stores, and with two replicas: what was
//! acknowledged is there exactly once. `E2E_KILLS=1000` kills more often.

use std::path::Path;
use std::time::{Duration, Instant};

use rand::Rng;
use serde_json::json;
use support::account::Account;
use support::load::{Ledger, Load};
use support::{Client, Plan, wait_for};
use testkit::postgres::Database;

const CLIENTS: usize = 6;

fn kills() -> u64 {
    let asked = std::env::var("E2E_KILLS").ok();
    asked.map_or(100, |text| text.parse().expect("E2E_KILLS is a number"))
}

fn plan(dir: &Path) -> Plan {
    // A lease is what the work of a killed server waits for on PostgreSQL.
    let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir);
    plan.set("driver.lease_s", 2).set("http.rate_per_s", 0).set("telemetry.level", "error")
}

/// Pace: some requests are acknowledged since the last start, then a random moment passes.
async fn some_moment(load: &Load) {
    let before = load.acknowledged();
    wait_for("an acknowledgement", async || load.acknowledged() > before).await;
    let ms = rand::rng().random_range(0..300);
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Kills each server in turn, starts it again at once, and takes account at the end.
async fn kill_under_load(name: &str, plans: &[Plan]) {
    let begun = Instant::now();
    let mut servers = Vec::new();
    for plan in plans {
        servers.push(Some(plan.start().await));
    }
    let client = plans[0].client();
    let places: Vec<_> = plans.iter().map(|plan| client.at(&plan.url())).collect();
    let load = Load::start(&places, CLIENTS);
    let kills = kills();
    for kill in 0..kills as usize {
        some_moment(&load).await;
        let turn = kill % plans.len();
        servers[turn].take().expect("it runs").kill();
        servers[turn] = Some(plans[turn].start().await);
    }
    let ledger = load.end().await;
    let account = Account::take(&plans[0], &client, &ledger).await;
    report(name, kills, &ledger, &account, begun.elapsed());
    for plan in plans {
        assert!(!plan.log().contains("panicked"), "a server panicked:\n{}", plan.log());
    }
    assert_eq!((account.lost, account.doubled), (0, 0), "{:#?}", account.faults);
    assert!(account.faults.is_empty(), "{:#?}", account.faults);
    assert!(ledger.acknowledged > kills, "there was hardly any load");
    assert!(ledger.unanswered > 0, "no kill met a request under way");
    names_are_held_and_released(&client, &ledger).await;
}

/// The name of what is there is taken, the name of what is gone is free.
async fn names_are_held_and_released(client: &Client, ledger: &Ledger) {
    for (deleted, status) in [(false, 409), (true, 202)] {
        let some = ledger.widgets.iter().filter(|known| known.deleted == deleted).take(20);
        for known in some {
            let again = client.post("/api/v1/widgets", &json!({"name": known.name})).await;
            let again = again.expect("an answer");
            assert_eq!(again.status, status, "{known:?}: {}", again.body);
        }
    }
}

fn report(name: &str, kills: u64, ledger: &Ledger, account: &Account, took: Duration) {
    let Ledger { acknowledged, replays, unanswered, .. } = ledger;
    let Account { widgets, deleted, events, audit_entries, lost, doubled, .. } = account;
    println!(
        "{name}: {kills} kills in {} s; {acknowledged} acknowledged, {unanswered} tries without \
         an answer, {replays} replays; {widgets} widgets ({deleted} deleted), {events} events, \
         {audit_entries} audit entries; lost {lost}, doubled {doubled}",
        took.as_secs()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_on_sqlite_is_lost_or_doubled_when_the_server_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    kill_under_load("SQLite", &[plan(dir.path())]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_on_postgres_is_lost_or_doubled_when_the_server_is_killed() {
    let Some(database) = Database::create().await else { return };
    let dir = tempfile::tempdir().unwrap();
    kill_under_load("PostgreSQL", &[plan(dir.path()).database(database.url())]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_by_two_replicas_is_lost_or_doubled_when_each_is_killed_in_turn() {
    let Some(database) = Database::create().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let first = plan(dir.path()).database(database.url());
    let second = first.replica("second");
    kill_under_load("two replicas on PostgreSQL", &[first, second]).await;
}
