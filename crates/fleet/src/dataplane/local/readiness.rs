//! Probes whether an instance is ready, and reads what it reports about itself.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::State;
use super::output::Output;

/// What shows that an instance is ready.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readiness {
    /// Its port accepts connections.
    #[default]
    Tcp,
    /// A GET of this path returns 2xx.
    Http { path: String },
    /// Its output has a line with this text.
    Line { text: String },
}

/// The file in which the process reports about itself.
pub const FACTS: &str = "facts.json";

/// A process that takes longer to respond on the loopback is not ready.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

impl Readiness {
    /// Returns the state of a ready instance, or why it is not ready.
    pub async fn check(&self, dir: &Path, port: u16, from: u64) -> Result<State, String> {
        let (port, facts) = read_facts(dir, port)?;
        let probe = async {
            match self {
                Readiness::Tcp => connect(port).await.map(drop),
                Readiness::Http { path } => get(port, path).await,
                Readiness::Line { text } => {
                    if Output::in_dir(dir).contains(text, from) {
                        Ok(())
                    } else {
                        Err(format!("it has not printed \"{text}\""))
                    }
                }
            }
        };
        let result = tokio::time::timeout(PROBE_TIMEOUT, probe).await;
        result.unwrap_or_else(|_| Err(format!("port {port} does not respond")))?;
        Ok(State::Ready { port, facts })
    }
}

/// Reads what the process reports, if anything. The port that it names wins.
pub fn read_facts(dir: &Path, port: u16) -> Result<(u16, BTreeMap<String, String>), String> {
    let facts: BTreeMap<String, String> = match std::fs::read(dir.join(FACTS)) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|error| format!("{FACTS} is not a flat map of strings: {error}"))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(format!("{FACTS} cannot be read: {error}")),
    };
    let port = match facts.get("port") {
        Some(own) => own.parse().map_err(|_| format!("{FACTS}: port: {own} is not a port"))?,
        None => port,
    };
    Ok((port, facts))
}

/// For the process itself: reports about it. A reader finds the old or the new facts.
pub fn write_facts(dir: &Path, facts: &[(&str, &str)]) -> std::io::Result<()> {
    let facts: BTreeMap<_, _> = facts.iter().copied().collect();
    kernel::files::replace(&dir.join(FACTS), &serde_json::to_vec_pretty(&facts)?, 0o644)
}

async fn connect(port: u16) -> Result<TcpStream, String> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
    stream.map_err(|error| format!("port {port}: {error}"))
}

async fn get(port: u16, path: &str) -> Result<(), String> {
    let mut stream = connect(port).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    let mut response = Vec::new();
    let exchange = async {
        stream.write_all(request.as_bytes()).await?;
        // "HTTP/1.1 200" is all that matters.
        stream.take(12).read_to_end(&mut response).await
    };
    exchange.await.map_err(|error| format!("GET {path}: {error}"))?;
    match response.get(9..12) {
        Some([b'2', ..]) => Ok(()),
        Some(status) => Err(format!("GET {path} returned {}", String::from_utf8_lossy(status))),
        None => Err(format!("GET {path} had no response")),
    }
}
