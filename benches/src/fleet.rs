//! The fleet: creates, reads, agents, rest; each figure as the issue's table names it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use kernel::Store;
use kernel::store::postgres::Postgres;
use kernel::store::sqlite::Sqlite;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::figures::{Figures, Target};
use crate::fleet_data::{ORG, fill, quota_file};
use crate::load::{self, Connection};
use crate::server::{self, Server};

#[path = "fleet_reads.rs"]
mod reads;
#[path = "fleet_ready.rs"]
mod ready;

const API: &str = "/api/kafkas_mgmt/v1";
/// Instances that an agent reports at once.
const REPORTS_MAX: usize = 1_000;

/// A fleet of servers over one store, with what it takes to speak to them.
struct World {
    servers: Vec<Server>,
    user: String,
    agents: Vec<String>,
    binary: PathBuf,
    dir: tempfile::TempDir,
    settings: Vec<(&'static str, String)>,
    store: Option<Arc<dyn Store>>,
    _database: Option<testkit::postgres::Database>,
}

enum On {
    Sqlite,
    Postgres { replicas: usize },
}

impl World {
    async fn new(on: On, clusters: usize, instances: usize) -> anyhow::Result<World> {
        let binary = server::binary("MAINSTAY_BIN")?;
        let dir = tempfile::tempdir_in(".")?;
        let mut settings = vec![
            ("MAINSTAY_FLEET__QUOTA_FILE", quota_file(dir.path())?),
            ("MAINSTAY_FLEET__LOCAL__ENABLED", "false".into()),
            ("MAINSTAY_FLEET__AGENT__LOST_AFTER_S", "86400".into()),
            ("MAINSTAY_HTTP__CONNECTIONS_MAX", "4096".into()),
        ];
        let (store, database, replicas): (Arc<dyn Store>, _, _) = match on {
            On::Sqlite => {
                let file = dir.path().join("mainstay.db");
                (
                    Arc::new(Sqlite::open(
                        &file,
                        kernel::Ambient::system(),
                        kernel::store::uncounted(),
                    )?),
                    None,
                    1,
                )
            }
            On::Postgres { replicas } => {
                let database = testkit::postgres::Database::create().await;
                let database = database.context("no PostgreSQL; run `cargo xtask bench fleet`")?;
                let store = Postgres::open(database.url(), kernel::store::uncounted()).await?;
                settings.push(("MAINSTAY_DATABASE", database.url().to_owned()));
                (Arc::new(store), Some(database), replicas)
            }
        };
        fill(store.as_ref(), clusters, 0..instances).await?;
        // SQLite's file is one process's at a time.
        let store = database.is_some().then_some(store);
        let mut world = World {
            servers: Vec::new(),
            user: String::new(),
            agents: Vec::new(),
            binary,
            dir,
            settings,
            store,
            _database: database,
        };
        for _ in 0..replicas {
            let server =
                server::start_with(&world.binary, world.dir.path(), &world.settings).await?;
            // Every replica signs in the name of the first.
            if world.servers.is_empty() {
                let url = format!("http://{}", server.address);
                world.settings.push(("MAINSTAY_HTTP__PUBLIC_URL", url));
            }
            world.servers.push(server);
        }
        let url = format!("http.public_url=http://{}", world.servers[0].address);
        let token = |words: &[&str]| {
            let words = [&["--set", &url, "--for", "4h"], words].concat();
            server::token_for(&world.binary, world.dir.path(), &words)
        };
        world.user = token(&["--org", ORG, "--subject", "user1"])?;
        let agent = |n: usize| token(&["--agent-of", &format!("c{n:04}"), "--subject", "agent"]);
        world.agents = (0..clusters).map(agent).collect::<Result<_, _>>()?;
        Ok(world)
    }

    /// Starts an agent for each cluster; they end soon after `stop` is set. Returns when each has
    /// received all existing instances, and has reported their state.
    async fn agents(&self, stop: &Arc<AtomicBool>) -> JoinSet<anyhow::Result<()>> {
        let mut agents = JoinSet::new();
        let up = Arc::new(Semaphore::new(0));
        for (cluster, token) in self.agents.iter().enumerate() {
            let (server, token, up) = (self.address(cluster), token.clone(), up.clone());
            let agent = instant_agent(server, cluster, token, up.clone(), stop.clone());
            agents.spawn(async move {
                let ended = agent.await;
                // One that fails early is noticed at the end.
                up.add_permits(1);
                ended
            });
        }
        let all = u32::try_from(self.agents.len()).unwrap_or(u32::MAX);
        up.acquire_many(all).await.expect("it is never closed").forget();
        agents
    }

    fn address(&self, n: usize) -> SocketAddr {
        self.servers[n % self.servers.len()].address
    }
}

fn send(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// An agent that does everything at once: it waits for what is new and says that it is ready.
async fn instant_agent(
    server: SocketAddr,
    cluster: usize,
    token: String,
    up: Arc<Semaphore>,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let base = format!("{API}/agent-clusters/c{cluster:04}/kafkas");
    let (mut poll, mut put) = (Connection::open(server).await?, Connection::open(server).await?);
    let (mut after, mut up): (i64, _) = (0, Some(up));
    while !stop.load(Ordering::Relaxed) {
        let path = format!("{base}?wait=5&after={after}");
        let (status, body) = poll.send(&load::get(&path, &token)).await?;
        anyhow::ensure!(
            status == 200,
            "an agent's poll: {status} {}",
            String::from_utf8_lossy(&body)
        );
        let list: Value = serde_json::from_slice(&body)?;
        after = list["revision"].as_i64().context("no revision")?;
        let items: Vec<Value> = list["items"].as_array().cloned().unwrap_or_default();
        // Not more at once than a request may hold.
        for some in items.chunks(REPORTS_MAX) {
            let body = Value::Object(some.iter().map(instant_report).collect()).to_string();
            let request = send("PUT", &format!("{base}/status"), &token, &body);
            let (status, answer) = put.send(&request).await?;
            anyhow::ensure!(status == 200, "{status} {}", String::from_utf8_lossy(&answer));
        }
        up.take().iter().for_each(|up| up.add_permits(1));
    }
    Ok(())
}

/// The report of such an agent about a desired instance.
fn instant_report(item: &Value) -> (String, Value) {
    let id = item["id"].as_str().unwrap_or_default().to_owned();
    let gone = item["spec"]["deleted"] == true;
    let (status, reason) = if gone { ("False", "Deleted") } else { ("True", "") };
    let ready = json!({"type": "Ready", "status": status, "reason": reason});
    (id, json!({"conditions": [ready], "versions": item["spec"]["versions"]}))
}

pub async fn run(figures: &mut Figures, part: &str) -> anyhow::Result<()> {
    kernel::outbound::install_tls();
    let wanted = |name: &str| part.is_empty() || part == name;
    if wanted("ready") {
        ready::ready(figures, On::Sqlite, "SQLite").await?;
        ready::ready(figures, On::Postgres { replicas: 1 }, "PostgreSQL").await?;
    }
    if wanted("creates") {
        creates(figures).await?;
    }
    if wanted("get") {
        reads::get_one(figures, On::Sqlite, "SQLite", 0.5).await?;
        reads::get_one(figures, On::Postgres { replicas: 1 }, "PostgreSQL", 0.3).await?;
    }
    if wanted("lists") {
        reads::lists(figures).await?;
    }
    if wanted("connections") {
        reads::connections(figures).await?;
    }
    if wanted("rest") {
        reads::rest(figures).await?;
    }
    if wanted("report") {
        reads::report(figures).await?;
    }
    Ok(())
}

async fn create(connection: &mut Connection, user: &str, name: &str) -> anyhow::Result<String> {
    let body = format!(r#"{{"name":"{name}","cloud_provider":"aws","region":"us-east-1"}}"#);
    let request = send("POST", &format!("{API}/kafkas?async=true"), user, &body);
    let (status, answer) = connection.send(&request).await?;
    anyhow::ensure!(status == 202, "{status} {}", String::from_utf8_lossy(&answer));
    let answer: Value = serde_json::from_slice(&answer)?;
    Ok(answer["id"].as_str().context("no id")?.to_owned())
}

/// Creates per second, with few and with many instances there.
async fn creates(figures: &mut Figures) -> anyhow::Result<()> {
    const CLUSTERS: usize = 10;
    let mut rates = Vec::new();
    for there in [10_000, 100_000] {
        let world = World::new(On::Postgres { replicas: 2 }, CLUSTERS, there).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut agents = world.agents(&stop).await;
        let done = Arc::new(AtomicUsize::new(0));
        let time = Duration::from_secs(20);
        let begun = Instant::now();
        let mut clients = JoinSet::new();
        for client in 0..64 {
            let (server, user, done) = (world.address(client), world.user.clone(), done.clone());
            clients.spawn(async move {
                let mut connection = Connection::open(server).await?;
                let mut n = 0;
                while begun.elapsed() < time {
                    create(&mut connection, &user, &format!("new-{client}-{n}")).await?;
                    n += 1;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            });
        }
        for done in clients.join_all().await {
            done?;
        }
        let rate = done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
        figures.add(
            &format!("creates per second, {there} there, PostgreSQL, two replicas"),
            rate,
            "1/s",
            None,
            Target::AtLeast(1000.0),
        );
        rates.push(rate);
        let caught = Instant::now();
        let path = format!("{API}/kafkas?size=1&search=status%20%3C%3E%20ready");
        let mut connection = Connection::open(world.address(0)).await?;
        loop {
            let (_, body) = connection.send(&load::get(&path, &world.user)).await?;
            if serde_json::from_slice::<Value>(&body)?["total"] == 0 {
                break;
            }
            while let Some(ended) = agents.try_join_next() {
                ended?.context("an agent")?;
            }
            anyhow::ensure!(caught.elapsed() < Duration::from_secs(180), "not all became ready");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        figures.add(
            &format!("time until the last of them is ready, {there} there"),
            caught.elapsed().as_secs_f64(),
            "s",
            None,
            Target::AtMost(60.0),
        );
        stop.store(true, Ordering::Relaxed);
        for done in agents.join_all().await {
            done?;
        }
    }
    figures.add(
        "creates per second, 100,000 there against 10,000",
        rates[1] / rates[0],
        "",
        None,
        Target::AtLeast(0.8),
    );
    Ok(())
}
