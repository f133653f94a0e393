//! Data planes, which run instances.

pub mod agent;
pub mod http;
pub mod kafka;
pub mod local;

/// For the programs that a data plane runs: waits for SIGTERM.
async fn until_sigterm() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::terminate())?.recv().await;
    Ok(())
}
