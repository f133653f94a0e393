//! Reads of widgets.

use kernel::http::can_see;
use kernel::identity::Principal;
use kernel::{Error, Key, Object, Result, Store};

/// The widget, if it exists and `who` may see it.
pub async fn visible(store: &dyn Store, who: &Principal, key: &Key) -> Result<Object> {
    let found = store.get(std::slice::from_ref(key)).await?.pop();
    let found = found.filter(|object| object.deleted_at.is_none() && can_see(who, object));
    found.ok_or_else(|| Error::NotFound(key.to_string()))
}

pub async fn dependencies(store: &dyn Store, key: &Key) -> Result<Vec<Object>> {
    store.get(&store.dependencies(key).await?).await
}

/// The existing widgets that depend on this one.
pub async fn dependents(store: &dyn Store, key: &Key) -> Result<Vec<Key>> {
    let dependents = store.get(&store.dependents(key).await?).await?;
    let existing = dependents.into_iter().filter(|object| object.deleted_at.is_none());
    Ok(existing.map(|object| object.key).collect())
}
