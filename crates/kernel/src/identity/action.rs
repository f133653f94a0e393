//! The role × action table. Every route of every domain names its action.

use super::Principal;

/// What a route does, for the purpose of permission.
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
    /// What every member of an organisation does: people and service accounts.
    OrgMember,
    /// What only people of an organisation do.
    OrgUser,
}

impl Action {
    pub const ALL: [Action; 9] = [
        Action::Public,
        Action::Read,
        Action::Write,
        Action::AdminRead,
        Action::AdminWrite,
        Action::AdminFull,
        Action::Agent,
        Action::OrgMember,
        Action::OrgUser,
    ];

    pub fn allows(self, principal: &Principal) -> bool {
        let any = |roles: &[&str]| roles.iter().any(|role| principal.roles.contains(*role));
        match self {
            Action::Public | Action::Read | Action::Write => true,
            Action::AdminRead => any(&["admin-read", "admin-write", "admin-full"]),
            Action::AdminWrite => any(&["admin-write", "admin-full"]),
            Action::AdminFull => any(&["admin-full"]),
            Action::Agent => principal.agent_of.is_some(),
            Action::OrgMember => principal.is_org_member(),
            Action::OrgUser => principal.is_org_member() && !principal.is_service_account(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as it should be, written out: a caller per line, an action per column.
    const TABLE: &[(&[&str], bool, &str)] = &[
        // roles, agent, Public Read Write AdminRead AdminWrite AdminFull Agent OrgMember OrgUser
        (&[], false, "xxx......"),
        (&["admin-read"], false, "xxxx....."),
        (&["admin-write"], false, "xxxxx...."),
        (&["admin-full"], false, "xxxxxx..."),
        (&["admin-read", "admin-write"], false, "xxxxx...."),
        (&["admin-read", "admin-full"], false, "xxxxxx..."),
        (&["admin-write", "admin-full"], false, "xxxxxx..."),
        (&["admin-read", "admin-write", "admin-full"], false, "xxxxxx..."),
        (&[], true, "xxx...x.."),
        (&["admin-read"], true, "xxxx..x.."),
        (&["admin-full"], true, "xxxxxxx.."),
        (&["admin"], false, "xxx......"),
        (&["Admin-Full"], false, "xxx......"),
        (&["kas-fleet-manager-admin-full"], false, "xxx......"),
        (&["kas_fleetshard_operator"], false, "xxx......"),
    ];

    fn allowed(principal: &Principal) -> String {
        let mark = |action: &Action| if action.allows(principal) { 'x' } else { '.' };
        Action::ALL.iter().map(mark).collect()
    }

    #[test]
    fn every_role_may_do_exactly_what_the_table_says() {
        for (roles, agent, expected) in TABLE {
            let principal = Principal {
                subject: "someone".into(),
                roles: roles.iter().map(|role| (*role).to_owned()).collect(),
                agent_of: agent.then(|| "cluster".to_owned()),
                ..Principal::default()
            };
            assert_eq!(allowed(&principal), *expected, "{roles:?} {agent}");
        }
    }

    #[test]
    fn what_members_of_an_organisation_may_do_depends_on_what_they_are() {
        let member = |org: &str, client: &str, agent: bool| Principal {
            org: org.into(),
            client: client.into(),
            agent_of: agent.then(|| "cluster".to_owned()),
            ..Principal::default()
        };
        let table = [
            (member("acme", "", false), "xxx....xx"),
            (member("acme", "console", false), "xxx....xx"),
            (member("acme", "srvc-acct-1", false), "xxx....x."),
            (member("acme", "canary-1", false), "xxx....x."),
            (member("", "srvc-acct-1", false), "xxx......"),
            (member("acme", "agent", true), "xxx...x.."),
        ];
        for (principal, expected) in table {
            assert_eq!(allowed(&principal), expected, "{principal:?}");
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
