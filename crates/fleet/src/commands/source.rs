//! The fleet's commands by name. Those of instances come and go with the catalogue.

use std::sync::Arc;

use kernel::command::{AnyCommand, CommandSource};

use super::account::{self, AccountCommand};
use super::catalogue_reload::{RELOAD, ReloadCommand};
use super::cluster::{self, ClusterCommand};
use super::instance::InstanceCommand;
use crate::Fleet;

pub struct FleetCommands(pub Arc<Fleet>);

impl CommandSource for FleetCommands {
    fn find(&self, name: &str) -> Option<Arc<dyn AnyCommand>> {
        let fleet = self.0.clone();
        if let Some(verb) = account::Verb::parse(name) {
            return Some(Arc::new(AccountCommand { fleet, verb }));
        }
        if name == RELOAD {
            return Some(Arc::new(ReloadCommand(fleet)));
        }
        if let Some(verb) = cluster::Verb::parse(name) {
            return Some(Arc::new(ClusterCommand { fleet, verb }));
        }
        Some(Arc::new(InstanceCommand::find(&self.0, name)?))
    }

    fn names(&self) -> Vec<String> {
        let accounts = account::Verb::ALL.into_iter().map(|verb| verb.label().to_owned());
        let clusters = cluster::Verb::ALL.into_iter().map(|verb| verb.label().to_owned());
        let others = accounts.chain(clusters).chain([RELOAD.to_owned()]);
        InstanceCommand::names(&self.0).into_iter().chain(others).collect()
    }
}
