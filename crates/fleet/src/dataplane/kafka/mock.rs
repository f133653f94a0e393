//! librdkafka's mock cluster: speaks the protocol, keeps everything in memory.

use std::path::Path;

use kernel::{Error, Result};
use rdkafka::mocking::MockCluster;
use rdkafka::util::get_rdkafka_version;

use super::super::local::write_facts;
use super::super::until_sigterm;
use super::{READY_LINE, problem};

pub async fn run(dir: &Path, missing: &str) -> Result<()> {
    println!("mainstay: {missing}: this is librdkafka's mock cluster, which keeps nothing");
    let port = start()?;
    let facts = [
        ("flavour", "librdkafka mock cluster"),
        ("version", &get_rdkafka_version().1),
        ("note", "keeps nothing; for development"),
        ("missing", missing),
        // It ignores the requested port and takes any free one.
        ("port", &port),
    ];
    write_facts(dir, &facts).map_err(problem("the facts"))?;
    println!("{READY_LINE}");
    until_sigterm().await.map_err(problem("the signals"))
}

fn start() -> Result<String> {
    let failed = |error| Error::internal("librdkafka's mock cluster does not start", error);
    let cluster = MockCluster::new(1).map_err(failed)?;
    let servers = cluster.bootstrap_servers();
    // It serves until the process exits.
    std::mem::forget(cluster);
    let port = servers.rsplit_once(':').map(|(_, port)| port.to_owned());
    port.ok_or_else(|| Error::Internal {
        what: format!("librdkafka's mock cluster has no port in its address `{servers}`"),
        source: None,
    })
}
