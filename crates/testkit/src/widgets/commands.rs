//! The commands: each reads what it needs, lets `decide` check the request, and returns the change.
//! No transport: the caller commits.

use kernel::identity::Principal;
use kernel::{Change, Key, Object, Result, Store, Timestamp};

use super::model::{self, QUOTA, Request, Spec};
use super::{decide, store};

pub async fn create(
    store: &dyn Store,
    request: Request,
    now: Timestamp,
) -> Result<(Change, Object)> {
    let dependencies = store.get(&request.depends_on).await?;
    decide::create(request, &dependencies, QUOTA, now)
}

/// Writes what `edit` makes of the spec. Returns the widget as it was, too.
pub async fn edit(
    store: &dyn Store,
    who: &Principal,
    key: &Key,
    edit: impl Fn(Spec) -> Spec,
    now: Timestamp,
) -> Result<(Change, Object)> {
    let before = store::visible(store, who, key).await?;
    let spec = edit(model::spec(&before)?);
    Ok((decide::respec(&before, &who.subject, &spec, now)?, before))
}

pub fn resize(size: u32) -> impl Fn(Spec) -> Spec {
    move |before| Spec { size, ..before }
}

pub fn delete() -> impl Fn(Spec) -> Spec {
    |before| Spec { deleting: true, ..before }
}
