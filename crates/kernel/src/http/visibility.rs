//! A caller's visibility, applied to objects and queries.

use crate::identity::{Principal, Visibility};
use crate::{Object, ObjectQuery};

/// Whether the object is visible to the caller.
pub fn can_see(who: &Principal, object: &Object) -> bool {
    match who.visibility() {
        Visibility::All => true,
        Visibility::Org(org) => object.org == org,
        Visibility::Own(subject) => object.org.is_empty() && object.owner == subject,
    }
}

/// Restricts a query to what is visible to the caller. `None` if nothing of it can be.
pub fn restrict(who: &Principal, mut find: ObjectQuery) -> Option<ObjectQuery> {
    fn only(filter: &mut Option<String>, allowed: String) -> bool {
        let fits = filter.as_ref().is_none_or(|filter| *filter == allowed);
        *filter = Some(allowed);
        fits
    }
    let fits = match who.visibility() {
        Visibility::All => true,
        Visibility::Org(org) => only(&mut find.org, org),
        Visibility::Own(subject) => {
            only(&mut find.org, String::new()) && only(&mut find.owner, subject)
        }
    };
    fits.then_some(find)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Timestamp};

    fn who(org: &str, subject: &str, roles: &[&str]) -> Principal {
        Principal {
            subject: subject.into(),
            org: org.into(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            ..Principal::default()
        }
    }

    #[test]
    fn a_restricted_query_finds_exactly_what_the_caller_can_see() {
        let callers = [
            who("acme", "alice", &[]),
            who("other", "alice", &[]),
            who("", "alice", &[]),
            who("", "bob", &[]),
            who("", "root", &["admin-read"]),
        ];
        let wanted = [None, Some("alice".to_owned()), Some("bob".to_owned())];
        for caller in &callers {
            for (org, owner) in [("acme", "alice"), ("acme", "bob"), ("", "alice"), ("", "bob")] {
                let key = Key::new("widget", "a");
                let object = Object::new(key, org, owner, "n", "ready", Timestamp(0));
                for owner_wanted in &wanted {
                    let find =
                        ObjectQuery { owner: owner_wanted.clone(), ..ObjectQuery::default() };
                    let matches = find.matches(&object, |_, _| false);
                    let found =
                        restrict(caller, find).is_some_and(|f| f.matches(&object, |_, _| false));
                    assert_eq!(found, matches && can_see(caller, &object), "{caller:?} {object:?}");
                }
            }
        }
    }
}
