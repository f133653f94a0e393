//! Reads of widgets.

use kernel::change::Edge;
use kernel::{Key, Object, Result, Store};

pub async fn dependencies(store: &dyn Store, key: &Key) -> Result<Vec<Object>> {
    store.get(&keys(store.dependencies(key).await?)).await
}

/// The existing widgets that depend on this one.
pub async fn dependents(store: &dyn Store, key: &Key) -> Result<Vec<Key>> {
    let dependents = store.get(&keys(store.dependents(key).await?)).await?;
    let existing = dependents.into_iter().filter(|object| object.deleted_at.is_none());
    Ok(existing.map(|object| object.key).collect())
}

fn keys(edges: Vec<Edge>) -> Vec<Key> {
    edges.into_iter().map(Key::from).collect()
}
