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
    pub const ALL: [Action; 7] = [
        Action::Public,
        Action::Read,
        Action::Write,
        Action::AdminRead,
        Action::AdminWrite,
        Action::AdminFull,
        Action::Agent,
    ];

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

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as it should be, written out: a caller per line, an action per column.
    const TABLE: &[(&[&str], bool, [bool; 7])] = &[
        // roles, agent, [Public, Read, Write, AdminRead, AdminWrite, AdminFull, Agent]
        (&[], false, [true, true, true, false, false, false, false]),
        (&["admin-read"], false, [true, true, true, true, false, false, false]),
        (&["admin-write"], false, [true, true, true, true, true, false, false]),
        (&["admin-full"], false, [true, true, true, true, true, true, false]),
        (&["admin-read", "admin-write"], false, [true, true, true, true, true, false, false]),
        (&["admin-read", "admin-full"], false, [true, true, true, true, true, true, false]),
        (&["admin-write", "admin-full"], false, [true, true, true, true, true, true, false]),
        (
            &["admin-read", "admin-write", "admin-full"],
            false,
            [true, true, true, true, true, true, false],
        ),
        (&[], true, [true, true, true, false, false, false, true]),
        (&["admin-read"], true, [true, true, true, true, false, false, true]),
        (&["admin-full"], true, [true, true, true, true, true, true, true]),
        (&["admin"], false, [true, true, true, false, false, false, false]),
        (&["Admin-Full"], false, [true, true, true, false, false, false, false]),
        (&["kas-fleet-manager-admin-full"], false, [true, true, true, false, false, false, false]),
        (&["kas_fleetshard_operator"], false, [true, true, true, false, false, false, false]),
    ];

    #[test]
    fn every_role_may_do_exactly_what_the_table_says() {
        for (roles, agent, expected) in TABLE {
            let principal = Principal {
                subject: "someone".into(),
                roles: roles.iter().map(|role| (*role).to_owned()).collect(),
                agent_of: agent.then(|| "cluster".to_owned()),
                ..Principal::default()
            };
            for (action, expected) in Action::ALL.iter().zip(expected) {
                assert_eq!(action.allows(&principal), *expected, "{roles:?} {agent} {action:?}");
            }
        }
    }

    #[test]
    fn an_org_admin_is_not_an_admin_of_the_control_plane() {
        let principal = Principal { org: "acme".into(), org_admin: true, ..Principal::default() };
        for action in [Action::AdminRead, Action::AdminWrite, Action::AdminFull, Action::Agent] {
            assert!(!action.allows(&principal), "{action:?}");
        }
    }
}
