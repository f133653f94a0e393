//! Whether an instance can be used, asked as its clients would ask, and what it tells of itself.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::output::Output;

/// What shows that an instance can be used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readiness {
    /// Its port takes connections.
    #[default]
    Tcp,
    /// A GET of this path is answered with 2xx.
    Http { path: String },
    /// A line that it prints holds this text.
    Line { text: String },
}

/// Where the process writes what it tells of itself.
pub const FACTS: &str = "facts.json";

/// A process that takes longer for an answer on the loopback is not ready.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq)]
pub struct ReadinessFile {
    pub port: u16,
    pub facts: BTreeMap<String, String>,
}

impl Readiness {
    /// What there is to use, or why not yet.
    pub async fn check(&self, dir: &Path, port: u16, from: u64) -> Result<ReadinessFile, String> {
        let found = ReadinessFile::read(dir, port)?;
        let asked = async {
            match self {
                Readiness::Tcp => connect(found.port).await.map(drop),
                Readiness::Http { path } => get(found.port, path).await,
                Readiness::Line { text } => {
                    if Output::in_dir(dir).says(text, from) {
                        Ok(())
                    } else {
                        Err(format!("it has not printed \"{text}\""))
                    }
                }
            }
        };
        let answer = tokio::time::timeout(PROBE_TIMEOUT, asked).await;
        answer.unwrap_or_else(|_| Err(format!("port {} does not answer", found.port)))?;
        Ok(found)
    }
}

impl ReadinessFile {
    /// What the process has written of itself, which need not be anything. Its own word about the
    /// port wins.
    pub fn read(dir: &Path, port: u16) -> Result<ReadinessFile, String> {
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
        Ok(ReadinessFile { port, facts })
    }
}

/// For the process itself: tells what it is. Replaced as a whole, since someone may be reading.
pub fn write_facts(dir: &Path, facts: &[(&str, &str)]) -> std::io::Result<()> {
    let facts: BTreeMap<_, _> = facts.iter().copied().collect();
    let next = dir.join("facts.json.next");
    std::fs::write(&next, serde_json::to_vec_pretty(&facts)?)?;
    std::fs::rename(next, dir.join(FACTS))
}

async fn connect(port: u16) -> Result<TcpStream, String> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
    stream.map_err(|error| format!("port {port}: {error}"))
}

async fn get(port: u16, path: &str) -> Result<(), String> {
    let mut stream = connect(port).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let asked = async {
        stream.write_all(request.as_bytes()).await?;
        // "HTTP/1.1 200" is all that matters.
        stream.take(12).read_to_end(&mut answer).await
    };
    asked.await.map_err(|error| format!("GET {path}: {error}"))?;
    match answer.get(9..12) {
        Some([b'2', ..]) => Ok(()),
        Some(status) => Err(format!("GET {path} answers {}", String::from_utf8_lossy(status))),
        None => Err(format!("GET {path} has no answer")),
    }
}
