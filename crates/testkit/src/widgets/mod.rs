//! The worked example of a domain: widgets that are built in an outside workshop. They may depend
//! on other widgets, count against their organisation's quota, have unique names, and fail on
//! demand. For tests only.
//!
//! The rooms are those of every domain: [`model`] (types), [`decide`] (pure), [`work`] (observe
//! and execute), [`api`] (routes), [`workshop`] (the outside system).

pub mod api;
pub mod decide;
pub mod model;
pub mod work;
pub mod workshop;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernel::driver::Workers;
use kernel::http::Routes;
use kernel::{App, Domain};

pub use model::{Request, Spec};
pub use work::Widgets;
pub use workshop::{Directory, Workshop};

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
        vec![Arc::new(Widgets { workshop, look_again: Duration::from_secs(300) })]
    }
}
