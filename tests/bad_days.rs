//! Bad days: what the server stands on fails, or it is stopped in the middle of something. Each
//! time it says so, and what was acknowledged is there afterwards.

use std::time::{Duration, Instant};

use serde_json::json;
use support::account::Account;
use support::load::{Known, Ledger, Load};
use support::place::Mount;
use support::wire::{exchange, request};
use support::{Client, Plan, wait_for};
use testkit::postgres::Database;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const BINARY: &str = env!("CARGO_BIN_EXE_e2e");

fn plan(dir: &std::path::Path) -> Plan {
    let plan = Plan::new(BINARY, dir);
    plan.set("driver.lease_s", 2).set("http.rate_per_s", 0).set("telemetry.level", "error")
}

/// A database with a widget in it, and nobody at it.
async fn left_behind(plan: &Plan) {
    let server = plan.start().await;
    plan.client().create(&json!({"name": "kept"})).await;
    let (status, _) = server.stop();
    assert_eq!(status.code(), Some(0));
}

async fn readiness(plan: &Plan) -> Option<u16> {
    let ask = request("GET", "/api/v1/self/readiness", "", b"");
    exchange(plan.port, &ask, false).await.status
}

/// Some more requests are acknowledged.
async fn goes_on(load: &Load) {
    let before = load.acknowledged();
    wait_for("acknowledgements", async || load.acknowledged() > before + 100).await;
}

/// Nothing acknowledged is lost, nothing doubled.
async fn settle_accounts(what: &str, plan: &Plan, client: &Client, ledger: &Ledger) {
    let account = Account::take(plan, client, ledger).await;
    println!(
        "{what}: {} acknowledged, {} put off (the longest took {:?}), {} tries without an answer, \
         {} replays; lost {}, doubled {}",
        ledger.acknowledged,
        ledger.put_off,
        ledger.put_off_longest,
        ledger.unanswered,
        ledger.replays,
        account.lost,
        account.doubled
    );
    assert!(account.faults.is_empty(), "{:#?}", account.faults);
    assert!(!plan.log().contains("panicked"), "{}", plan.log());
}

/// Writes are refused with this text while reads go on.
async fn writes_are_refused(client: &Client, said: &str) {
    let body = json!({"name": "refused"});
    let answer = client.post("/api/v1/widgets", &body).await.expect("an answer");
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.retry_after && answer.message().contains(said), "{}", answer.body);
    client.read("/api/v1/self/liveliness").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_writes_are_refused_reads_go_on_and_space_heals_it() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let Some(disk) = Mount::disk(&plan.data(), 96) else { return };
    let _server = plan.start().await;
    let client = plan.client();
    let load = Load::start(std::slice::from_ref(&client), 4);
    goes_on(&load).await;
    let filler = disk.fill();
    wait_for("refusals", async || load.put_off() > 20).await;
    writes_are_refused(&client, "the disk is full").await;
    for _ in 0..20 {
        assert_eq!(readiness(&plan).await, Some(503), "while commits fail");
    }
    client.read("/api/v1/objects?kind=widget").await;
    client.read("/api/v1/events?limit=10").await;
    std::fs::remove_file(filler).unwrap();
    goes_on(&load).await;
    wait_for("readiness", async || readiness(&plan).await == Some(200)).await;
    settle_accounts("a full disk", &plan, &client, &load.end().await).await;
}

#[tokio::test]
async fn readiness_comes_back_with_the_space_though_nobody_writes() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let Some(disk) = Mount::disk(&plan.data(), 96) else { return };
    let _server = plan.start().await;
    let client = plan.client();
    let filler = disk.fill();
    let body = json!({"name": "refused", "description": "x".repeat(500)});
    wait_for("a refusal", async || {
        client.post("/api/v1/widgets", &body).await.expect("an answer").status == 503
    })
    .await;
    assert_eq!(readiness(&plan).await, Some(503));
    std::fs::remove_file(filler).unwrap();
    assert_eq!(readiness(&plan).await, Some(200), "the check itself proved that commits succeed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_fails_while_the_disk_of_postgresql_is_full_and_comes_back() {
    let Some(shared) = testkit::postgres() else { return };
    let Some(own) = shared.private_on_a_small_disk().await else { return };
    let database = own.database().await;
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path()).database(database.url());
    let _server = plan.start().await;
    let client = plan.client();
    let load = Load::start(std::slice::from_ref(&client), 4);
    goes_on(&load).await;
    let full = own.server.fill();
    wait_for("refusals", async || load.put_off() > 20).await;
    for _ in 0..20 {
        assert_eq!(readiness(&plan).await, Some(503), "while commits fail");
    }
    drop(full);
    goes_on(&load).await;
    wait_for("readiness", async || readiness(&plan).await == Some(200)).await;
    settle_accounts("a full disk of PostgreSQL", &plan, &client, &load.end().await).await;
}

#[tokio::test]
async fn after_a_graceful_stop_the_file_alone_has_everything() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    left_behind(&plan).await;
    let copy = dir.path().join("copy.db");
    std::fs::copy(plan.data().join("mainstay.db"), &copy).unwrap();
    let copied = rusqlite::Connection::open(&copy).unwrap();
    let name = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    let widget = "SELECT name FROM objects WHERE kind = 'widget'";
    assert_eq!(copied.query_row(widget, [], name).unwrap(), "kept");
    let log = plan.data().join("mainstay.db-wal").metadata().map_or(0, |log| log.len());
    assert_eq!(log, 0, "the write-ahead log is empty");
}

#[tokio::test]
async fn without_a_home_directory_the_data_directory_must_be_named() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    for home in [None, Some(""), Some("relative")] {
        let mut command = plan.command(&["server", "--listen", "127.0.0.1:0"]);
        command.env_remove("MAINSTAY_DATA_DIR").current_dir(dir.path());
        home.map(|home| command.env("HOME", home));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("HOME") && said.contains("--data-dir"), "{said}");
        assert!(!dir.path().join("~").exists(), "with HOME={home:?}");
    }
}

#[tokio::test]
async fn a_read_only_data_directory_is_refused_by_name_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    left_behind(&plan).await;
    let Some(sealed) = Mount::read_only(&plan.data()) else { return };
    let ran = plan.refused();
    println!("a read-only data directory: exit code {}, {}", ran.code, ran.stderr.trim());
    assert!(ran.code > 0 && !ran.stderr.contains("panicked"), "{ran:?}");
    let path = plan.data().display().to_string();
    assert!(ran.stderr.contains(&path) && ran.stderr.contains("Read-only"), "{ran:?}");
    drop(sealed);
    still_has_its_widget(&plan).await;
}

async fn still_has_its_widget(plan: &Plan) {
    let _server = plan.start().await;
    let found = plan.client().read("/api/v1/objects?kind=widget").await;
    assert_eq!(found["objects"][0]["name"], "kept");
}

#[tokio::test]
async fn a_second_server_on_the_same_data_is_refused_and_the_first_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let _server = plan.start().await;
    let ran = plan.elsewhere().refused();
    assert_eq!(ran.code, 6, "{ran:?}");
    for part in ["in use by another server", "--data-dir", "--database postgres://"] {
        assert!(ran.stderr.contains(part), "{part} is not in {ran:?}");
    }
    plan.client().create(&json!({"name": "after"})).await;
}

#[tokio::test]
async fn a_corrupt_configuration_is_refused_with_its_key_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let table: [(&[u8], &[&str]); 7] = [
        (
            b"listen = \"127.0.0.1:1\"\n[driver]\nslotz = 3\n",
            &["driver.slotz", "driver.slots", "3"],
        ),
        (b"[driver]\nslots = \"many\"\n", &["driver.slots", "2"]),
        (b"[http]\nbody_bytes_max = -1\n", &["http.body_bytes_max", "2"]),
        (b"[htp]\nrate_per_s = 1\n", &["htp", "http"]),
        (b"[driver\nslots = 3\n", &["1"]),
        (b"listen = \"nowhere\"\n", &["listen", "127.0.0.1:8080"]),
        (b"\xff\xfe\x00binary", &["config.toml"]),
    ];
    for (text, parts) in table {
        let path = dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        let ran = plan.run(&["server", "--config", path.to_str().unwrap()]);
        assert_eq!(ran.code, 2, "{ran:?}");
        for part in parts.iter().chain(&["config.toml"]) {
            assert!(ran.stderr.contains(part), "{part:?} is not in {}", ran.stderr);
        }
    }
    println!("a corrupt configuration: {} kinds refused with exit code 2", table.len());
}

#[tokio::test]
async fn a_damaged_database_is_an_error_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    left_behind(&plan).await;
    let file = plan.data().join("mainstay.db");
    // All in the one file, so that no other file can make up for the damage.
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.pragma_update(None, "wal_checkpoint", "truncate").unwrap();
    drop(connection);
    let whole = std::fs::read(&file).unwrap();
    type Damage = fn(&mut Vec<u8>);
    let damage: [(&str, Damage); 4] = [
        ("garbage", |bytes| bytes.fill(0x55)),
        ("a torn header", |bytes| bytes[..100].fill(0)),
        ("cut in half", |bytes| bytes.truncate(bytes.len() / 2)),
        ("a damaged root page", |bytes| bytes[100..4096].fill(0xaa)),
    ];
    for (what, damage) in damage {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        std::fs::write(&file, bytes).unwrap();
        for extra in ["mainstay.db-wal", "mainstay.db-shm"] {
            let _ = std::fs::remove_file(plan.data().join(extra));
        }
        let ran = plan.refused();
        println!("{what}: exit code {}, {}", ran.code, ran.stderr.trim());
        assert_eq!(ran.code, 1, "{what}: {ran:?}");
        assert!(ran.stderr.contains("damaged") && !ran.stderr.contains("panicked"), "{ran:?}");
        assert!(ran.stderr.contains(&file.display().to_string()), "{what}: {ran:?}");
    }
    std::fs::write(&file, whole).unwrap();
    still_has_its_widget(&plan).await;
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_by_an_older_binary() {
    let dir = tempfile::tempdir().unwrap();
    let lite = plan(dir.path());
    left_behind(&lite).await;
    let open = || rusqlite::Connection::open(lite.data().join("mainstay.db")).unwrap();
    let version: i64 = open().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    open().pragma_update(None, "user_version", 999).unwrap();
    refuses_a_newer_version(&lite);
    open().pragma_update(None, "user_version", version).unwrap();
    still_has_its_widget(&lite).await;

    let Some(database) = Database::create().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path()).database(database.url());
    left_behind(&plan).await;
    let client = database.client().await;
    client.batch_execute("UPDATE meta SET version = version + 999").await.unwrap();
    refuses_a_newer_version(&plan);
    client.batch_execute("UPDATE meta SET version = version - 999").await.unwrap();
    still_has_its_widget(&plan).await;
}

fn refuses_a_newer_version(plan: &Plan) {
    let ran = plan.refused();
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("use a newer binary"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_postgres_is_gone_for_a_while_the_server_says_so_and_recovers_by_itself() {
    let Some(shared) = testkit::postgres() else { return };
    let postgres = shared.private().await;
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path()).database(postgres.url());
    let mut server = plan.start().await;
    let client = plan.client();
    let load = Load::start(std::slice::from_ref(&client), 4);
    goes_on(&load).await;
    postgres.server.kill().await;
    let outage = Duration::from_secs(outage_s());
    tokio::time::sleep(outage).await;
    wait_for("refusals", async || load.put_off() > 20).await;
    writes_are_refused(&client, "the store").await;
    for path in ["/api/v1/objects", "/api/v1/self/readiness"] {
        let answer = client.get(path).await.expect("an answer");
        assert_eq!(answer.status, 503, "{path}: {}", answer.body);
    }
    postgres.server.start().await;
    goes_on(&load).await;
    let ledger = load.end().await;
    assert_eq!(ledger.unanswered, 0, "it hung up or hung on some");
    let what = format!("PostgreSQL gone for {} s", outage.as_secs());
    settle_accounts(&what, &plan, &client, &ledger).await;
    server.signal("TERM");
    assert_eq!(server.exits().code(), Some(0), "the same server to the end");
}

/// `E2E_OUTAGE_S=60` for as long as the issue says.
fn outage_s() -> u64 {
    std::env::var("E2E_OUTAGE_S").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_completes_requests_in_flight_and_exits_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let mut server = plan.start().await;
    let (client, token) = (plan.client(), plan.token());
    let load = Load::start(std::slice::from_ref(&client), 4);
    goes_on(&load).await;
    let body = br#"{"name":"in flight","size":5}"#;
    let whole = request("POST", "/api/v1/widgets", &token, body);
    let (begin, rest) = whole.split_at(whole.len() - 9);
    let mut half = TcpStream::connect(("127.0.0.1", plan.port)).await.unwrap();
    half.write_all(begin).await.unwrap();
    let poll = request("GET", "/api/v1/events?after=latest&kind=none&wait_s=60", &token, b"");
    let port = plan.port;
    let poll = tokio::spawn(async move { exchange(port, &poll, false).await });
    // What connects after them and is answered says that both are under way.
    let ask = request("GET", "/api/v1/self/readiness", &token, b"");
    assert_eq!(exchange(plan.port, &ask, false).await.status, Some(200));
    goes_on(&load).await;
    let begun = Instant::now();
    server.signal("TERM");
    wait_for("no more connections", async || {
        TcpStream::connect(("127.0.0.1", plan.port)).await.is_err()
    })
    .await;
    half.write_all(rest).await.unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    assert_eq!(poll.await.unwrap().status, Some(200), "a wait ends with what there is");
    assert_eq!(server.exits().code(), Some(0));
    println!("SIGTERM: drained in {:?}", begun.elapsed());
    let _server = plan.start().await;
    let mut ledger = load.end().await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    ledger.widgets.push(Known::created(&serde_json::from_str(body).unwrap()));
    settle_accounts("SIGTERM under load", &plan, &client, &ledger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_paused_for_longer_than_its_lease_writes_nothing_stale() {
    let Some(database) = Database::create().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let first = plan(dir.path()).database(database.url());
    let second = first.replica("second");
    let _first = first.start().await;
    let paused = second.start().await;
    let client = first.client();
    let load = Load::start(std::slice::from_ref(&client), 6);
    let more = Load::start(&[client.at(&second.url())], 2);
    let queue = database.client().await;
    let (mut rounds, mut held) = (0, 0);
    while rounds < 4 || (held == 0 && rounds < 20) {
        rounds += 1;
        goes_on(&load).await;
        paused.signal("STOP");
        let stopped = Instant::now();
        let running = "SELECT fence FROM queue WHERE state = 2";
        let rows = queue.query(running, &[]).await.unwrap();
        let mut fences: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        wait_for("the other to take over", async || {
            let sql = "SELECT fence FROM queue WHERE state = 2 AND fence = ANY($1)";
            let rows = queue.query(sql, &[&fences]).await.unwrap();
            // Connections that remain after a second belonged to the paused one.
            if stopped.elapsed() > Duration::from_secs(1) {
                held += fences.len() - rows.len();
            }
            fences = rows.iter().map(|row| row.get(0)).collect();
            fences.is_empty() && stopped.elapsed() > Duration::from_secs(2)
        })
        .await;
        goes_on(&load).await;
        paused.signal("CONT");
    }
    let mut ledger = load.end().await;
    ledger.add(more.end().await);
    println!("paused {rounds} times for longer than its lease; {held} looks were held up by it");
    settle_accounts("a paused replica", &first, &client, &ledger).await;
    assert!(held > 0, "it was never paused in the middle of something");
}
