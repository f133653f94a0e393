//! The one table of who may do what. Every route names its action.

use super::Principal;

/// What a route does, as far as permission is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Needs no token.
    Public,
    /// Reads objects, events and searches, within the caller's visibility.
    Read,
    /// Creates and changes objects of the caller's own.
    Write,
    /// Reads the queue and the audit log across organisations.
    AdminRead,
    /// Retries, pauses and resumes work.
    AdminWrite,
    /// Everything else an admin does.
    AdminFull,
    /// What a data-plane agent does for its own cluster.
    Agent,
}

impl Action {
    pub fn allows(self, principal: &Principal) -> bool {
        let any = |roles: &[&str]| roles.iter().any(|role| principal.roles.contains(*role));
        match self {
            Action::Public | Action::Read | Action::Write => true,
            Action::AdminRead => any(&["admin-read", "admin-write", "admin-full"]),
            Action::AdminWrite => any(&["admin-write", "admin-full"]),
            Action::AdminFull => any(&["admin-full"]),
            Action::Agent => principal.agent_of.is_some(),
        }
    }
}
