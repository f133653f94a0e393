//! The kinds of objects, and what callers are shown of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::http::can_see;
use crate::identity::Principal;
use crate::{Error, Object, Result};

/// A kind of object.
#[derive(Clone)]
pub struct KindInfo {
    pub name: String,
    pub plural: String,
    pub present: Presenter,
}

/// What callers other than admins are shown of an object that is visible to them. Admins see it as
/// it is stored.
#[derive(Clone)]
pub enum Presenter {
    /// The object as it is stored.
    Whole,
    /// Nothing: the kind is for admins.
    Hidden,
    /// A part of it, to those who are allowed it.
    Part(Arc<dyn Part>),
}

/// The part of an object that is shown.
pub trait Part: Send + Sync {
    fn allows(&self, who: &Principal) -> bool;

    /// Returns the part, or nothing. It is the same for all who are allowed it, so that many streams
    /// share it.
    fn of(&self, object: &Object) -> Option<Object>;
}

/// Kinds that a domain computes: they come and go while the server runs.
pub trait KindSource: Send + Sync {
    fn find(&self, name: &str) -> Option<KindInfo>;
}

/// The kinds of all domains. Cheap to clone.
#[derive(Clone, Default)]
pub struct Kinds(Arc<RwLock<Registry>>);

#[derive(Default)]
struct Registry {
    kinds: BTreeMap<String, KindInfo>,
    sources: Vec<Arc<dyn KindSource>>,
}

impl KindInfo {
    pub fn new(name: &str, plural: &str, present: Presenter) -> KindInfo {
        KindInfo { name: name.into(), plural: plural.into(), present }
    }
}

impl Kinds {
    /// Adds a kind. A name that is taken is refused.
    pub fn add(&self, kind: KindInfo) -> Result<()> {
        if self.find(&kind.name).is_some() {
            let name = &kind.name;
            return Err(Error::Conflict(format!("kind `{name}` is taken by another domain")));
        }
        self.0.write().kinds.insert(kind.name.clone(), kind);
        Ok(())
    }

    pub fn add_source(&self, source: Arc<dyn KindSource>) {
        self.0.write().sources.push(source);
    }

    pub fn find(&self, name: &str) -> Option<KindInfo> {
        let registry = self.0.read();
        let computed = || registry.sources.iter().find_map(|source| source.find(name));
        registry.kinds.get(name).cloned().or_else(computed)
    }

    /// Whether a domain has this kind for good. Kinds that come and go may not take its name.
    pub fn is_reserved(&self, name: &str) -> bool {
        self.0.read().kinds.contains_key(name)
    }

    /// Returns what the caller is shown of an object, if anything.
    pub fn present<'o>(&self, object: &'o Object, who: &Principal) -> Option<Cow<'o, Object>> {
        if !can_see(who, object) {
            return None;
        }
        if who.is_admin() {
            return Some(Cow::Borrowed(object));
        }
        match self.find(object.key.kind())?.present {
            Presenter::Whole => Some(Cow::Borrowed(object)),
            Presenter::Hidden => None,
            Presenter::Part(part) if part.allows(who) => part.of(object).map(Cow::Owned),
            Presenter::Part(_) => None,
        }
    }
}
