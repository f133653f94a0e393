//! The wiring of the domain.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernel::driver::Workers;
use kernel::http::Routes;
use kernel::{App, Domain};

use super::api;
use super::ports::Directory;
use super::work::WidgetWorker;

/// The widget domain, with a workshop in a directory.
pub struct WidgetDomain {
    pub workshop: PathBuf,
}

impl Domain for WidgetDomain {
    fn name(&self) -> &'static str {
        "widgets"
    }

    fn routes(&self) -> Routes {
        api::routes()
    }

    fn workers(&self, _: &App) -> Workers {
        let workshop = Arc::new(Directory(self.workshop.clone()));
        vec![Arc::new(WidgetWorker { workshop, recheck: Duration::from_secs(300) })]
    }
}
