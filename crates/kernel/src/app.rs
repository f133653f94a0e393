//! What a handler and a worker can reach: the parts of one running process.

use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::driver::Workers;
use crate::http::Routes;
use crate::identity::Identity;
use crate::outbound::Outbound;
use crate::telemetry::Metrics;
use crate::{Ambient, Result, Store};

/// The parts of a running Mainstay. Cheap to clone; also the state of every route.
#[derive(Clone)]
pub struct App(Arc<Parts>);

pub struct Parts {
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
    pub identity: Identity,
    pub outbound: Outbound,
    pub metrics: Arc<Metrics>,
    /// Where others reach this server, without a slash at its end.
    pub url: String,
}

impl App {
    pub fn new(parts: Parts) -> App {
        App(Arc::new(parts))
    }
}

impl Deref for App {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// A kind of thing that Mainstay manages: its routes and its workers.
#[async_trait]
pub trait Domain: Send + Sync {
    fn name(&self) -> &'static str;

    /// Called once, before its routes and workers are asked for and before anyone is served. What
    /// it leaves running belongs to `tasks` and ends with `stop`.
    async fn start(
        &self,
        _app: &App,
        _tasks: &TaskTracker,
        _stop: &CancellationToken,
    ) -> Result<()> {
        Ok(())
    }

    fn routes(&self) -> Routes;
    fn workers(&self, app: &App) -> Workers;
}
