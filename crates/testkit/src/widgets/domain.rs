//! The wiring of the domain.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::kind::{KindInfo, Presenter};
use kernel::{App, Domain, Result, Running};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::api;
use super::model::KIND;
use super::ports::Directory;
use super::work::WidgetWorker;

/// The widget domain, with a workshop in a directory.
pub struct WidgetDomain {
    pub workshop: PathBuf,
}

#[async_trait]
impl Domain for WidgetDomain {
    fn name(&self) -> &'static str {
        "widgets"
    }

    fn kinds(&self) -> Vec<KindInfo> {
        vec![KindInfo::new(KIND, "widgets", Presenter::Whole)]
    }

    async fn start(&self, _: &App, _: &TaskTracker, _: &CancellationToken) -> Result<Running> {
        let workshop = Arc::new(Directory(self.workshop.clone()));
        let worker = WidgetWorker { workshop, recheck: Duration::from_secs(300) };
        Ok(Running { routes: api::routes(), workers: vec![Arc::new(worker)] })
    }
}
