//! A small HTTP client for measuring: it keeps connections open and reads no more than it must,
//! so that the figures are the server's and not its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub async fn open(server: SocketAddr) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![0; 64 * 1024] })
    }

    /// Sends a request and reads its answer: the status and the body.
    pub async fn send(&mut self, request: &[u8]) -> anyhow::Result<(u16, Vec<u8>)> {
        self.stream.write_all(request).await?;
        let mut got = 0;
        loop {
            if got == self.buffer.len() {
                self.buffer.resize(got * 2, 0);
            }
            let read = self.stream.read(&mut self.buffer[got..]).await?;
            if read == 0 {
                bail!("the server closed the connection");
            }
            got += read;
            let Some(end) = self.buffer[..got].windows(4).position(|four| four == b"\r\n\r\n")
            else {
                continue;
            };
            let head = std::str::from_utf8(&self.buffer[..end])?.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.context("an answer without a length")?.trim().parse()?;
            if got >= end + 4 + length {
                let status = head.split(' ').nth(1).unwrap_or("0").parse()?;
                return Ok((status, self.buffer[end + 4..end + 4 + length].to_vec()));
            }
        }
    }
}

pub fn get(path: &str, token: &str) -> Vec<u8> {
    let auth =
        if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
    format!("GET {path} HTTP/1.1\r\nhost: bench\r\n{auth}\r\n").into_bytes()
}

/// Requests per second over so many connections.
pub async fn rate(
    server: SocketAddr,
    request: Vec<u8>,
    connections: usize,
    time: Duration,
) -> anyhow::Result<f64> {
    let (done, request) = (Arc::new(AtomicUsize::new(0)), Arc::new(request));
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let (done, request) = (done.clone(), request.clone());
        tasks.spawn(async move {
            let mut connection = Connection::open(server).await?;
            while begun.elapsed() < time {
                let (status, _) = connection.send(&request).await?;
                anyhow::ensure!(status == 200, "status {status}");
                done.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    for result in tasks.join_all().await {
        result?;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

/// Milliseconds of each request, one after the other.
pub async fn latencies(
    server: SocketAddr,
    requests: &[Vec<u8>],
    count: usize,
) -> anyhow::Result<Vec<f64>> {
    let mut connection = Connection::open(server).await?;
    let mut samples = Vec::with_capacity(count);
    for n in 0..count {
        let begun = Instant::now();
        let (status, body) = connection.send(&requests[n % requests.len()]).await?;
        anyhow::ensure!(status == 200, "status {status}: {}", String::from_utf8_lossy(&body));
        samples.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(samples)
}
