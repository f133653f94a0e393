//! The state of one running process, for handlers and workers.

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

/// The state of a running process. Cheap to clone; also the state of every route.
#[derive(Clone)]
pub struct App(Arc<AppState>, Arc<Shared>);

/// State of the domains, one value per type.
type Shared = RwLock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>;

pub struct AppState {
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
    pub identity: Identity,
    pub outbound: Outbound,
    pub metrics: Arc<Metrics>,
    /// The public URL of this server, without a trailing slash.
    pub url: String,
}

impl App {
    pub fn new(parts: AppState) -> App {
        App(Arc::new(parts), Arc::default())
    }

    /// Adds a domain's state.
    pub fn share<T: Send + Sync + 'static>(&self, part: Arc<T>) {
        self.1.write().insert(TypeId::of::<T>(), part);
    }

    /// The state of type `T` that a domain added.
    pub fn shared<T: Send + Sync + 'static>(&self) -> Result<Arc<T>> {
        let part = self.1.read().get(&TypeId::of::<T>()).cloned();
        let part = part.and_then(|part| part.downcast::<T>().ok());
        part.ok_or_else(|| {
            Error::internal(std::any::type_name::<T>(), "no domain added it to the app")
        })
    }
}

impl Deref for App {
    type Target = AppState;
    fn deref(&self) -> &AppState {
        &self.0
    }
}

/// A domain: its routes and its workers.
#[async_trait]
pub trait Domain: Send + Sync {
    fn name(&self) -> &'static str;

    /// Called once, before `routes` and `workers` and before the first request. Tasks that it
    /// spawns belong to `tasks` and end with `stop`.
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
