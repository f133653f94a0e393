//! The binary as a whole: start-up, rest, memory, reads over HTTP.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use kernel::change::{Wake, Write};
use kernel::store::sqlite::Sqlite;
use kernel::{Ambient, Change, Json, Key, Lane, Object, Store};

use crate::figures::{Figures, Target, percentile};
use crate::load::{self, Connection};

const OBJECTS: usize = 100_000;

/// A server process that ends with this value.
pub struct Server {
    pub child: Child,
    pub address: SocketAddr,
    /// From the start of the process until it was ready.
    pub started_ms: f64,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn binary(variable: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os(variable)
        .with_context(|| format!("{variable} is not set; run `cargo xtask bench kernel`"))?;
    Ok(path.into())
}

pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

async fn start(binary: &Path, data: &Path) -> anyhow::Result<Server> {
    start_with(binary, data, &[]).await
}

/// Starts a server with further settings, as in `("MAINSTAY_DATABASE", "postgres://…")`.
pub async fn start_with(
    binary: &Path,
    data: &Path,
    settings: &[(&str, String)],
) -> anyhow::Result<Server> {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let begun = Instant::now();
    let mut command = Command::new(binary);
    // The benchmark's own variables are not configuration of the server.
    let ours = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("MAINSTAY_"));
    for name in ours {
        command.env_remove(name);
    }
    let child = command
        .args(["server", "--listen", &address.to_string(), "--data-dir"])
        .arg(data)
        // The limiter counts every request and refuses none.
        .env("MAINSTAY_HTTP__RATE_PER_S", u32::MAX.to_string())
        .env("MAINSTAY_HTTP__RATE_BURST", u32::MAX.to_string())
        .env("WIDGET_WORKSHOP", data.join("workshop"))
        .envs(settings.iter().map(|(name, value)| (*name, value.as_str())))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut server = Server { child, address, started_ms: 0.0 };
    let ready = load::get("/api/v1/self/readiness", "");
    while begun.elapsed() < Duration::from_secs(30) {
        if let Ok(mut connection) = Connection::open(address).await
            && let Ok((200, _)) = connection.send(&ready).await
        {
            server.started_ms = begun.elapsed().as_secs_f64() * 1000.0;
            return Ok(server);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    anyhow::bail!("the server did not become ready")
}

fn token(binary: &Path, data: &Path) -> anyhow::Result<String> {
    token_for(binary, data, &[])
}

pub fn token_for(binary: &Path, data: &Path, words: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(binary);
    let output =
        command.env_clear().args(["token", "--data-dir"]).arg(data).args(words).output()?;
    anyhow::ensure!(
        output.status.success(),
        "no token: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?.trim().into())
}

/// Resident memory in MiB.
pub fn rss_mib(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? / 1024.0)
}

/// Processor time so far in seconds.
pub fn cpu_s(pid: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit_once(") ").context("odd stat")?.1.split(' ').collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
}

pub async fn empty(figures: &mut Figures) -> anyhow::Result<()> {
    let binary = binary("MAINSTAY_BIN")?;
    let dir = tempfile::tempdir_in(".")?;
    let first = start(&binary, dir.path()).await?;
    figures.add(
        "first start to ready, empty directory",
        first.started_ms,
        "ms",
        None,
        Target::AtMost(300.0),
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    figures.add(
        "resident memory, idle and empty",
        rss_mib(first.child.id())?,
        "MiB",
        None,
        Target::AtMost(50.0),
    );
    let size = std::fs::metadata(&binary)?.len() as f64 / 1e6;
    figures.add("size of the binary", size, "MB", None, Target::AtMost(50.0));
    Ok(())
}

fn object(n: usize, ambient: &Ambient) -> Object {
    const WORDS: [&str; 8] = ["blue", "red", "quick", "lazy", "north", "south", "iron", "glass"];
    let (first, second) = (WORDS[n % 8], WORDS[n / 8 % 8]);
    let key = Key::new("widget", &format!("rest-{n:06}"));
    let phase = if n % 1000 == 7 { "waiting" } else { "ready" };
    let mut object =
        Object::new(key, "local", "local", &format!("{first} {second} {n}"), phase, ambient.now());
    object.observed = 1;
    object.labels.insert("team".into(), format!("team-{}", n % 100));
    object.spec = Json::encode(&serde_json::json!({"size": n, "text": "x".repeat(150)}));
    object
}

async fn fill(data: &Path) -> anyhow::Result<()> {
    let store = Sqlite::open(
        &data.join("mainstay.db"),
        kernel::Ambient::system(),
        kernel::store::uncounted(),
    )?;
    let ambient = Ambient::system();
    let due = ambient.now().plus(Duration::from_secs(24 * 3600));
    for chunk in (0..OBJECTS).collect::<Vec<_>>().chunks(500) {
        let changes = chunk.iter().map(|n| {
            let object = object(*n, &ambient);
            let wake =
                Wake { key: object.key.clone(), org: "local".into(), lane: Lane::Normal, due };
            Change {
                wakes: vec![wake],
                write: Some(Write::create(object, "created")),
                ..Change::default()
            }
        });
        store.commit_all(changes.collect(), ambient.now()).await?;
    }
    Ok(())
}

pub async fn rest(figures: &mut Figures) -> anyhow::Result<()> {
    let binary = binary("MAINSTAY_E2E_BIN")?;
    let dir = tempfile::tempdir_in(".")?;
    fill(dir.path()).await?;
    let server = start(&binary, dir.path()).await?;
    let with = |what: &str| format!("{what}, {OBJECTS} objects at rest");
    figures.add(&with("start to ready"), server.started_ms, "ms", None, Target::AtMost(500.0));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, begun) = (cpu_s(server.child.id())?, Instant::now());
    tokio::time::sleep(Duration::from_secs(15)).await;
    let share = (cpu_s(server.child.id())? - before) / begun.elapsed().as_secs_f64() * 100.0;
    figures.add(&with("processor"), share, "%", None, Target::AtMost(2.0));
    let token = token(&binary, dir.path())?;
    let paths = |paths: &[&str]| -> Vec<Vec<u8>> {
        paths.iter().map(|path| load::get(path, &token)).collect()
    };
    let gets: Vec<String> =
        (0..997).map(|n| format!("/api/v1/objects/widget/rest-{:06}", n * 97 % OBJECTS)).collect();
    let gets: Vec<Vec<u8>> = gets.iter().map(|path| load::get(path, &token)).collect();
    let lists = paths(&[
        "/api/v1/objects?kind=widget&limit=50",
        "/api/v1/objects?kind=widget&phase=waiting&limit=50",
        "/api/v1/objects?label=team=team-42&limit=50",
    ]);
    let searches = paths(&[
        "/api/v1/search?q=blue",
        "/api/v1/search?q=iron%20glass",
        "/api/v1/search?q=rest%20kind:widget",
        "/api/v1/search?q=77777",
        "/api/v1/search?q=label:team=team-7%20lazy",
        "/api/v1/search?q=phase:waiting%20kind:widget",
    ]);
    for (what, requests, count, most) in [
        ("get p99", gets, 3000, 2.0),
        ("list of a page p99", lists, 600, 10.0),
        ("search p99", searches, 600, 10.0),
    ] {
        let mut samples = load::latencies(server.address, &requests, count).await?;
        figures.add(&with(what), percentile(&mut samples, 0.99), "ms", None, Target::AtMost(most));
    }
    Ok(())
}

/// Answers every request with the same bytes: what axum can do at best.
pub async fn echo(body: String, port: u16) -> anyhow::Result<()> {
    let body = axum::body::Bytes::from(body);
    let answer = move || {
        let body = body.clone();
        async move { ([("content-type", "application/json")], body) }
    };
    let router = axum::Router::new().route("/echo", axum::routing::get(answer));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    Ok(axum::serve(listener, router).await?)
}

pub async fn get_one(figures: &mut Figures) -> anyhow::Result<()> {
    let binary = binary("MAINSTAY_E2E_BIN")?;
    let dir = tempfile::tempdir_in(".")?;
    {
        let store = Sqlite::open(
            &dir.path().join("mainstay.db"),
            kernel::Ambient::system(),
            kernel::store::uncounted(),
        )?;
        let object = object(1, &Ambient::system());
        let change = Change { write: Some(Write::create(object, "created")), ..Change::default() };
        store.commit_all(vec![change], Ambient::system().now()).await?;
    }
    let server = start(&binary, dir.path()).await?;
    let request = load::get("/api/v1/objects/widget/rest-000001", &token(&binary, dir.path())?);
    let (_, body) = Connection::open(server.address).await?.send(&request).await?;
    let bare = bare(&body).await?;
    let (ours, theirs) = against(&server, &request, &bare).await?;
    figures.add(
        "GET of one object over HTTP, SQLite, 32 connections",
        ours,
        "1/s",
        Some(theirs),
        Target::Share(0.5),
    );
    Ok(())
}

/// A bare server that answers `/echo` with these bytes.
pub async fn bare(body: &[u8]) -> anyhow::Result<Server> {
    let port = free_port()?;
    let child = Command::new(std::env::current_exe()?)
        .args(["echo", std::str::from_utf8(body)?.trim_end(), &port.to_string()])
        .spawn()?;
    let bare = Server { child, address: SocketAddr::from(([127, 0, 0, 1], port)), started_ms: 0.0 };
    while Connection::open(bare.address).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(bare)
}

/// Requests per second of a server and of a bare one, turn by turn, so that a noisy neighbour
/// meets both.
pub async fn against(server: &Server, request: &[u8], bare: &Server) -> anyhow::Result<(f64, f64)> {
    let (mut ours, mut theirs) = (0.0, 0.0);
    const ROUNDS: usize = 4;
    for _ in 0..ROUNDS {
        let time = Duration::from_secs(2);
        ours += load::rate(server.address, request.to_vec(), 32, time).await? / ROUNDS as f64;
        theirs += load::rate(bare.address, load::get("/echo", ""), 32, time).await? / ROUNDS as f64;
    }
    Ok((ours, theirs))
}
