//! Reads of what tenants have under names: data sources, profiles, layers and metadata.

use kernel::typed::{Kind, Typed};
use kernel::{App, Result, Store};
use serde_json::{Map, Value};

use super::read;
use crate::model::metadata::{DATASOURCE_METADATA, FOUND};
use crate::model::tenant::Tenant;

/// All objects of a kind that a tenant has, by name.
pub async fn all<K: Kind>(
    store: &dyn Store,
    tenant: Tenant<'_>,
    kind: &str,
) -> Result<Vec<Typed<K>>> {
    let mut query = tenant.query(kind);
    let mut found = Vec::new();
    loop {
        let page = store.find(&query).await?;
        for object in &page.objects {
            found.push(Typed::from_object(object)?);
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    found.sort_by(|a: &Typed<K>, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The object of this name that a tenant has.
pub async fn named<K: Kind>(
    store: &dyn Store,
    tenant: Tenant<'_>,
    kind: &str,
    name: &str,
) -> Result<Option<Typed<K>>> {
    let found = store.object(&tenant.key(kind, name)).await?;
    let found = found.filter(|object| object.deleted_at.is_none());
    found.map(|object| Typed::from_object(&object)).transpose()
}

/// The namespaces that were imported of a data source, with what ran there.
pub async fn imported(
    app: &App,
    tenant: Tenant<'_>,
    datasource: &str,
) -> Result<Option<Map<String, Value>>> {
    let key = tenant.key(DATASOURCE_METADATA, datasource);
    let there = app.store.object(&key).await?.is_some_and(|object| object.deleted_at.is_none());
    if there { read(app, &key, FOUND).await } else { Ok(None) }
}
