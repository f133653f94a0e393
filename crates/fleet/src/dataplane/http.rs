//! The program of a small HTTP service on the local data plane, to demonstrate the life cycle of an
//! instance.

use std::net::Ipv4Addr;
use std::path::Path;

use axum::Router;
use axum::routing::get;
use kernel::{Error, Result};
use tokio::net::TcpListener;

use super::local::write_facts;
use super::until_sigterm;

/// Serves on the loopback address until SIGTERM.
pub async fn run(dir: impl AsRef<Path>, port: u16, name: &str) -> Result<()> {
    let address = (Ipv4Addr::LOCALHOST, port);
    let problem = |error| Error::unavailable(format!("the service on 127.0.0.1:{port}"), error);
    // Before a client can connect and take it for ready.
    let facts = [("flavour", "small HTTP service"), ("version", env!("CARGO_PKG_VERSION"))];
    write_facts(dir.as_ref(), &facts).map_err(problem)?;
    let listener = TcpListener::bind(address).await.map_err(problem)?;
    let greeting = format!("This is {name}.\n");
    let router = Router::new()
        .route("/", get(|| async { greeting }))
        .route("/healthz", get(|| async { "ok\n" }));
    tokio::select! {
        served = axum::serve(listener, router) => served.map_err(problem),
        signal = until_sigterm() => signal.map_err(problem),
    }
}
