//! What a handler and a worker can reach: the parts of one running process.

use std::ops::Deref;
use std::sync::Arc;

use crate::driver::Workers;
use crate::http::Routes;
use crate::identity::Identity;
use crate::outbound::Outbound;
use crate::telemetry::Metrics;
use crate::{Ambient, Store};

/// The parts of a running Mainstay. Cheap to clone; also the state of every route.
#[derive(Clone)]
pub struct App(Arc<Parts>);

pub struct Parts {
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
    pub identity: Identity,
    pub outbound: Outbound,
    pub metrics: Arc<Metrics>,
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
pub trait Domain: Send + Sync {
    fn name(&self) -> &'static str;
    fn routes(&self) -> Routes;
    fn workers(&self, app: &App) -> Workers;
}
