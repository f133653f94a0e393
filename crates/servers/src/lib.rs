//! The real servers of the tests: installed if missing, started on free loopback ports, stopped
//! again whatever happens. `cargo xtask` starts one shared set; a test that kills its server
//! starts one of its own (`testkit`). One small file per server in `kinds/`.

mod cache;
mod golang;
mod install;
pub mod kinds;
mod listen;
pub mod pki;
mod place;
mod process;
mod run;
pub mod versions;
pub mod wire;

pub use cache::Cache;
pub use golang::Build;
pub use install::{Install, Need, install};
pub use listen::listeners;
pub use place::{ConnectionInfo, Place, variable};
pub use process::Process;
pub use run::{DISK, Run};

use anyhow::{Context, Result};

/// A kind of server. To add one: a file in `kinds/`, its version in `versions.rs`, and a line in
/// [`kinds::ALL`].
pub struct Server {
    pub name: &'static str,
    /// Pinned in `versions.rs`.
    pub version: &'static str,
    /// What an installation does and how long it takes; said before it begins.
    pub cost: &'static str,
    /// What must be there before an installation can begin.
    pub needs: &'static [Need],
    pub installed: fn(&Cache) -> bool,
    /// Called only if it is not installed.
    pub install: fn(&Install) -> Result<()>,
    /// Starts one and waits until it has answered a real request. Called on a place that has been
    /// started before, it finds its data and its ports there.
    pub start: fn(&Place) -> Result<()>,
    /// How each of its processes is asked to stop, politely first. Empty for a tool, which has none.
    pub stop_signals: &'static [&'static str],
}

pub fn find(name: &str) -> Result<&'static Server> {
    kinds::ALL.iter().copied().find(|server| server.name == name).with_context(|| {
        let names: Vec<&str> = kinds::ALL.iter().map(|server| server.name).collect();
        format!("there is no server {name:?}; there are {}", names.join(", "))
    })
}
