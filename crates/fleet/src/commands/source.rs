//! The fleet's commands by name. Those of instances come and go with the catalogue.

use std::sync::Arc;

use kernel::command::{AnyCommand, CommandSource};

use super::instance::InstanceCommand;
use crate::Fleet;

pub struct FleetCommands(pub Arc<Fleet>);

impl CommandSource for FleetCommands {
    fn find(&self, name: &str) -> Option<Arc<dyn AnyCommand>> {
        Some(Arc::new(InstanceCommand::find(&self.0, name)?))
    }

    fn names(&self) -> Vec<String> {
        InstanceCommand::names(&self.0)
    }
}
