//! Who has data sources, profiles and metadata of their own: an organisation, or a caller who is of
//! none. Each of their names is taken once.

use kernel::identity::Principal;
use kernel::query::PAGE_MAX;
use kernel::typed::{Kind, Typed};
use kernel::{Key, ObjectQuery, labels};
use sha2::{Digest as _, Sha256};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenant<'a> {
    pub org: &'a str,
    /// Counts only without an organisation.
    pub owner: &'a str,
}

labels! {
    /// The phase of objects that nobody reconciles.
    pub enum Phase {
        Ready = "ready",
    }
}

impl<'a> Tenant<'a> {
    pub fn of(who: &'a Principal) -> Self {
        Self { org: &who.org, owner: &who.subject }
    }

    /// Whose an object is.
    pub fn of_object<K: Kind>(object: &'a Typed<K>) -> Self {
        Self { org: &object.org, owner: &object.owner }
    }

    fn parts(&self) -> [&str; 2] {
        if self.org.is_empty() { ["", self.owner] } else { [self.org, ""] }
    }

    /// The key of what has this name. It follows from the name, so that two cannot be made.
    pub fn key(&self, kind: &str, name: &str) -> Key {
        let [org, owner] = self.parts();
        let mut digest = Sha256::new();
        for part in [org, owner, name] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Key::new(kind, &format!("{:x}", digest.finalize()))
    }

    /// Counts the objects of a kind.
    pub fn counter(&self, kind: &str) -> String {
        let [org, owner] = self.parts();
        format!("advisor/{kind}/{org}/{owner}")
    }

    /// All objects of a kind.
    pub fn query(&self, kind: &str) -> ObjectQuery {
        let [org, owner] = self.parts();
        ObjectQuery {
            kind: Some(kind.to_owned()),
            org: Some(org.to_owned()),
            owner: (!owner.is_empty()).then(|| owner.to_owned()),
            limit: PAGE_MAX,
            ..ObjectQuery::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_organisations_or_else_the_callers() {
        let key = |org, owner, name| Tenant { org, owner }.key("layer", name);
        assert_eq!(key("acme", "alice", "x"), key("acme", "bob", "x"));
        let others = [
            key("acme", "alice", "y"),
            key("other", "alice", "x"),
            key("", "alice", "x"),
            key("", "bob", "x"),
            key("", "acme", "x"),
            key("acm", "", "ex"),
        ];
        for (n, other) in others.iter().enumerate() {
            assert_ne!(*other, key("acme", "alice", "x"));
            assert!(!others[n + 1..].contains(other));
        }
        let who = Principal { subject: "alice".into(), ..Principal::default() };
        let query = Tenant::of(&who).query("layer");
        assert_eq!((query.org.as_deref(), query.owner.as_deref()), (Some(""), Some("alice")));
        let query = Tenant { org: "acme", owner: "alice" }.query("layer");
        assert_eq!((query.org.as_deref(), query.owner.as_deref()), (Some("acme"), None));
    }
}
