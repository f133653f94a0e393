//! Data planes, which run instances.

pub mod agent;
pub mod http;
pub mod kafka;
pub mod local;

/// The condition `Ready` of an instance or a cluster, as agents report it.
fn ready_condition(status: &str, reason: &str, message: &str) -> serde_json::Value {
    let ready = serde_json::json!({
        "type": "Ready", "status": status, "reason": reason, "message": message,
    });
    serde_json::json!({ "conditions": [ready] })
}

/// For the programs that a data plane runs: waits for SIGTERM.
async fn until_sigterm() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::terminate())?.recv().await;
    Ok(())
}
