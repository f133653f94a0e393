//! What a handler and a worker can reach: the parts of one running process.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::driver::Workers;
use crate::http::Routes;
use crate::identity::Identity;
use crate::outbound::Outbound;
use crate::telemetry::Metrics;
use crate::{Ambient, Error, Result, Store};

/// The parts of a running Mainstay. Cheap to clone; also the state of every route.
#[derive(Clone)]
pub struct App(Arc<AppState>, Arc<Shared>);

/// What domains share with their routes and with each other, one of each type.
type Shared = RwLock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>;

pub struct AppState {
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
    pub identity: Identity,
    pub outbound: Outbound,
    pub metrics: Arc<Metrics>,
    /// Where others reach this server, without a slash at its end.
    pub url: String,
}

impl App {
    pub fn new(parts: AppState) -> App {
        App(Arc::new(parts), Arc::default())
    }

    /// Lets everyone who has the app have this too.
    pub fn share<T: Send + Sync + 'static>(&self, part: Arc<T>) {
        self.1.write().insert(TypeId::of::<T>(), part);
    }

    /// What some domain shares.
    pub fn shared<T: Send + Sync + 'static>(&self) -> Result<Arc<T>> {
        let part = self.1.read().get(&TypeId::of::<T>()).cloned();
        let part = part.and_then(|part| part.downcast::<T>().ok());
        part.ok_or_else(|| Error::internal(std::any::type_name::<T>(), "nobody shares it"))
    }
}

impl Deref for App {
    type Target = AppState;
    fn deref(&self) -> &AppState {
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
