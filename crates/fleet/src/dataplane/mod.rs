//! Data planes: where instances really run.

pub mod agent;
pub mod http;
pub mod kafka;
pub mod local;

/// For the programs that a data plane runs: until SIGTERM.
async fn until_sigterm() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::terminate())?.recv().await;
    Ok(())
}
