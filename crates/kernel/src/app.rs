//! The state of one running process, for handlers and workers.

use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::blob::Blobs;
use crate::command::Commands;
use crate::driver::Workers;
use crate::event_tail::EventTail;
use crate::health::Checks;
use crate::http::Routes;
use crate::identity::{self, Identity};
use crate::kind::{KindInfo, Kinds, Presenter};
use crate::outbound::Outbound;
use crate::relay::Renderers;
use crate::telemetry::Metrics;
use crate::{Ambient, Result, Store, schedule};

/// The state of a running process. Cheap to clone; also the state of every route.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    state: AppState,
    commands: Commands,
    kinds: Kinds,
    checks: Checks,
    tail: EventTail,
    renderers: Renderers,
}

pub struct AppState {
    pub store: Arc<dyn Store>,
    pub ambient: Ambient,
    pub identity: Identity,
    pub outbound: Outbound,
    pub metrics: Arc<Metrics>,
    pub blobs: Blobs,
    /// The public URL of this server, without a trailing slash.
    pub url: String,
}

impl App {
    pub fn new(state: AppState) -> App {
        let tail = EventTail::new(state.store.clone());
        let (commands, kinds, checks, renderers): (_, Kinds, _, _) = Default::default();
        let command = KindInfo::new("command", "commands", Presenter::Hidden);
        for kind in identity::kinds().into_iter().chain([command, schedule::kind()]) {
            let added = kinds.add(kind);
            debug_assert!(added.is_ok(), "the kernel has a kind twice");
        }
        App(Arc::new(Inner { state, commands, kinds, checks, tail, renderers }))
    }

    /// The commands of all domains.
    pub fn commands(&self) -> &Commands {
        &self.0.commands
    }

    /// The kinds of all domains.
    pub fn kinds(&self) -> &Kinds {
        &self.0.kinds
    }

    /// The health checks of all domains.
    pub fn checks(&self) -> &Checks {
        &self.0.checks
    }

    /// The renderers of all domains.
    pub fn renderers(&self) -> &Renderers {
        &self.0.renderers
    }

    /// The reader of the event log.
    pub fn tail(&self) -> &EventTail {
        &self.0.tail
    }
}

impl Deref for App {
    type Target = AppState;
    fn deref(&self) -> &AppState {
        &self.0.state
    }
}

/// A domain of the server.
#[async_trait]
pub trait Domain: Send + Sync {
    fn name(&self) -> &'static str;

    /// The kinds of its objects. Those that come and go are added to the app at start.
    fn kinds(&self) -> Vec<KindInfo>;

    /// Called once, before the first request. Tasks that it spawns belong to `tasks` and end with
    /// `stop`.
    async fn start(
        &self,
        app: &App,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Running>;
}

/// What a started domain adds to the server.
#[derive(Default)]
pub struct Running {
    pub routes: Routes,
    pub workers: Workers,
}
