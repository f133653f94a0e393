//! All instances, by kind and id. The set hashes the id inside the row instead of storing it twice.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::Row;

#[derive(Default)]
pub(super) struct Rows(HashMap<String, HashSet<ById>>);

struct ById(Arc<Row>);

impl ById {
    fn id(&self) -> &str {
        &self.0.instance.id
    }
}

impl Borrow<str> for ById {
    fn borrow(&self) -> &str {
        self.id()
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &ById) -> bool {
        self.id() == other.id()
    }
}

impl Eq for ById {}

impl Rows {
    pub fn get(&self, kind: &str, id: &str) -> Option<&Arc<Row>> {
        self.0.get(kind)?.get(id).map(|row| &row.0)
    }

    /// Inserts a row, or replaces the one of the same id.
    pub fn insert(&mut self, row: Arc<Row>) {
        if let Some(rows) = self.0.get_mut(&row.instance.kind) {
            rows.replace(ById(row));
        } else {
            self.0.insert(row.instance.kind.clone(), HashSet::from([ById(row)]));
        }
    }

    pub fn remove(&mut self, kind: &str, id: &str) -> Option<Arc<Row>> {
        self.0.get_mut(kind)?.take(id).map(|row| row.0)
    }

    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Arc<Row>> {
        self.0.get(kind).into_iter().flatten().map(|row| &row.0)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Row>> {
        self.0.values().flatten().map(|row| &row.0)
    }
}
