//! The caller, as every domain sees them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The roles of the permission table. Other issuers' tokens do not carry them as such: they
/// come from the configuration's names for them.
pub const ADMIN_ROLES: [&str; 3] = ["admin-read", "admin-write", "admin-full"];

/// What the client ids of service accounts begin with: those of organisations, and those with which
/// instances are probed.
const SERVICE_ACCOUNT_CLIENTS: [&str; 2] = ["srvc-acct-", "canary-"];

/// The authenticated caller of a request. One type for all issuers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Principal {
    /// The owner of objects: the user name if there is one, with the issuer's prefix. Issuers without
    /// a prefix speak of the same people.
    pub subject: String,
    pub issuer: String,
    /// Empty: belongs to no organisation and sees only their own.
    pub org: String,
    pub org_admin: bool,
    /// Lower case.
    pub roles: BTreeSet<String>,
    /// The cluster whose agent this is.
    pub agent_of: Option<String>,
    /// The client's id, if this is a program that signed in as itself; empty for people.
    #[serde(default)]
    pub client: String,
    /// The account that the issuer keeps for them, if it says so.
    #[serde(default)]
    pub account: String,
}

/// Which objects a caller may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visibility {
    All,
    Org(String),
    Own(String),
}

impl Principal {
    pub fn is_admin(&self) -> bool {
        ADMIN_ROLES.iter().any(|role| self.roles.contains(*role))
    }

    /// Whether this is a person or a program of an organisation, not an agent.
    pub fn is_org_member(&self) -> bool {
        self.agent_of.is_none() && !self.org.is_empty()
    }

    /// Whether this is a program that an organisation or an instance owns.
    pub fn is_service_account(&self) -> bool {
        SERVICE_ACCOUNT_CLIENTS.iter().any(|prefix| self.client.starts_with(prefix))
    }

    pub fn visibility(&self) -> Visibility {
        if self.is_admin() {
            Visibility::All
        } else if self.org.is_empty() {
            Visibility::Own(self.subject.clone())
        } else {
            Visibility::Org(self.org.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admins_see_all_members_their_organisation_and_others_their_own() {
        let mut principal = Principal { subject: "alice".into(), ..Principal::default() };
        assert_eq!(principal.visibility(), Visibility::Own("alice".into()));
        principal.org = "acme".into();
        assert_eq!(principal.visibility(), Visibility::Org("acme".into()));
        for role in ["admin", "admin-", "admin-console", "administrator", "ADMIN-READ"] {
            principal.roles = BTreeSet::from([role.to_owned()]);
            assert_eq!(principal.visibility(), Visibility::Org("acme".into()), "{role}");
        }
        for role in ADMIN_ROLES {
            principal.roles = BTreeSet::from([role.to_owned()]);
            assert_eq!(principal.visibility(), Visibility::All, "{role}");
        }
    }
}
