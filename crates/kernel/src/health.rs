//! Checks that domains add to the detailed health of the process. They inform: no probe fails because
//! another system is away.

use std::sync::Arc;

use parking_lot::RwLock;

/// The result of a check. Everybody can read it: it has no addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: String,
    /// What is good, or what is wrong.
    pub result: std::result::Result<String, String>,
}

/// Returns the results of a domain's checks, without calls to other systems or to the store.
pub type CheckSource = Arc<dyn Fn() -> Vec<Check> + Send + Sync>;

/// The checks of all domains.
#[derive(Default)]
pub struct Checks(RwLock<Vec<CheckSource>>);

impl Checks {
    pub fn add_source(&self, source: CheckSource) {
        self.0.write().push(source);
    }

    pub fn run(&self) -> Vec<Check> {
        let sources = self.0.read().clone();
        sources.iter().flat_map(|source| source()).collect()
    }
}
