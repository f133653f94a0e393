//! The fleet's commands by name. Those of instances come and go with the catalogue.

use std::sync::Arc;

use kernel::command::{AnyCommand, CommandSource};

use super::account::{AccountCommand, Verb};
use super::instance::InstanceCommand;
use crate::Fleet;

pub struct FleetCommands(pub Arc<Fleet>);

impl CommandSource for FleetCommands {
    fn find(&self, name: &str) -> Option<Arc<dyn AnyCommand>> {
        if let Some(verb) = Verb::ALL.into_iter().find(|verb| verb.name() == name) {
            return Some(Arc::new(AccountCommand { fleet: self.0.clone(), verb }));
        }
        Some(Arc::new(InstanceCommand::find(&self.0, name)?))
    }

    fn names(&self) -> Vec<String> {
        let accounts = Verb::ALL.into_iter().map(|verb| verb.name().to_owned());
        InstanceCommand::names(&self.0).into_iter().chain(accounts).collect()
    }
}
