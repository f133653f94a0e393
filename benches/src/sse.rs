//! Event streams: what many clients cost a server that commits a lot.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use kernel::change::{Wake, Write};
use kernel::store::sqlite::Sqlite;
use kernel::{Ambient, Change, Key, Object, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::figures::{Figures, Target};
use crate::load::Connection;
use crate::server::{Server, binary, cpu_s, start_with, token_for};

const CLIENTS: usize = 500;
const COMMITS_PER_S: usize = 1000;
const WRITERS: usize = 8;
const TIME: Duration = Duration::from_secs(8);

pub async fn run(figures: &mut Figures) -> anyhow::Result<()> {
    let binary = binary("MAINSTAY_E2E_BIN")?;
    let dir = tempfile::tempdir_in(".")?;
    fill(dir.path()).await?;
    let server = start_with(&binary, dir.path(), &[]).await?;
    let token = token_for(&binary, dir.path(), &["--role", "admin-full"])?;
    let (alone, rate) = cores(&server, &token).await?;
    figures.add("commits over HTTP without streams", rate, "1/s", None, Target::AtLeast(0.0));
    for (what, each) in [("of one object each", true), ("of everything", false)] {
        let mut streams = JoinSet::new();
        for n in 0..CLIENTS {
            let object = if each { format!("&object=widget/{n}") } else { String::new() };
            let path = format!("/api/v1/events?after=latest{object}");
            streams.spawn(stream(server.address, path, token.clone()));
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (with, rate) = cores(&server, &token).await?;
        anyhow::ensure!(streams.len() == CLIENTS, "a stream ended");
        streams.shutdown().await;
        let name = format!("cores of a server, {CLIENTS} streams {what}, {rate:.0} commits/s");
        figures.add(&name, with, "cores", Some(alone), Target::AtMost(1.0 + alone));
    }
    Ok(())
}

async fn fill(data: &Path) -> anyhow::Result<()> {
    let store = Sqlite::open(
        &data.join("mainstay.db"),
        kernel::Ambient::system(),
        kernel::store::uncounted(),
    )?;
    let ambient = Ambient::system();
    let due = ambient.now().plus(Duration::from_secs(24 * 3600));
    let changes = (0..CLIENTS).map(|n| {
        let key = Key::new("widget", &n.to_string());
        let object = Object::new(key, "local", "local", "w", "ready", ambient.now());
        let wakes = vec![Wake::for_object(&object, due)];
        Change { wakes, write: Some(Write::create(object, "created")), ..Change::default() }
    });
    store.commit_all(changes.collect(), ambient.now()).await?;
    Ok(())
}

/// Reads a stream until it is aborted.
async fn stream(address: SocketAddr, path: String, token: String) -> anyhow::Result<()> {
    let mut socket = TcpStream::connect(address).await?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await?;
    let mut buffer = vec![0; 64 << 10];
    while socket.read(&mut buffer).await? > 0 {}
    anyhow::bail!("the stream ended")
}

/// Commits for a while at a steady rate. Returns the cores that the server used, and the rate.
async fn cores(server: &Server, token: &str) -> anyhow::Result<(f64, f64)> {
    let (before, begun) = (cpu_s(server.child.id())?, Instant::now());
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(server.address, token.to_owned(), writer));
    }
    let mut commits = 0;
    while let Some(done) = writers.join_next().await {
        commits += done??;
    }
    let took = begun.elapsed().as_secs_f64();
    Ok(((cpu_s(server.child.id())? - before) / took, commits as f64 / took))
}

async fn write(address: SocketAddr, token: String, writer: usize) -> anyhow::Result<usize> {
    let mut connection = Connection::open(address).await?;
    let begun = tokio::time::Instant::now();
    let pause = Duration::from_secs(1) * u32::try_from(WRITERS)? / u32::try_from(COMMITS_PER_S)?;
    let mut commits = 0;
    while begun.elapsed() < TIME {
        let n = (commits / 2 * WRITERS + writer) % CLIENTS;
        let verb = if commits % 2 == 0 { "pause" } else { "resume" };
        let request = format!(
            "POST /api/v1/work/widget/{n}/{verb} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        let (status, _) = connection.send(request.as_bytes()).await?;
        anyhow::ensure!(status == 202, "{verb} of {n}: {status}");
        commits += 1;
        tokio::time::sleep_until(begun + pause * u32::try_from(commits)?).await;
    }
    Ok(commits)
}
