//! The caller, as every domain sees them.

use std::collections::BTreeSet;

/// Whoever a request speaks for. One type, whichever issuer the token came from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Principal {
    /// Unique within the issuer, and what owns objects: the user name if there is one.
    pub subject: String,
    pub issuer: String,
    /// Empty: belongs to no organisation and sees only their own.
    pub org: String,
    pub org_admin: bool,
    /// Lower case.
    pub roles: BTreeSet<String>,
    /// The cluster whose agent this is.
    pub agent_of: Option<String>,
}

/// How far a caller can see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visibility {
    All,
    Org(String),
    Own(String),
}

impl Principal {
    pub fn visibility(&self) -> Visibility {
        if self.roles.iter().any(|role| role.starts_with("admin-")) {
            Visibility::All
        } else if self.org.is_empty() {
            Visibility::Own(self.subject.clone())
        } else {
            Visibility::Org(self.org.clone())
        }
    }
}
