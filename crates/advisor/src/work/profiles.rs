//! By which expressions a job reads: those of the built-in profiles, or of profiles that its tenant
//! has declared, also in their place.

use std::borrow::Cow;

use kernel::{Error, Result, Store};
use serde_json::Value;

use crate::model::declared::{Declared, Sort};
use crate::model::experiment::PERFORMANCE_PROFILE;
use crate::model::tenant::Tenant;
use crate::ports::prometheus::profile::Profile;
use crate::store;

/// How containers are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metrics {
    /// With recording rules where the data source has them, or without.
    BuiltIn,
    Own(Box<Profile>),
}

impl Metrics {
    pub fn profile(&self, with_recording_rules: bool) -> Cow<'_, Profile> {
        match self {
            Metrics::Own(profile) => Cow::Borrowed(profile),
            Metrics::BuiltIn if with_recording_rules => Cow::Owned(Profile::with_recording_rules()),
            Metrics::BuiltIn => Cow::Owned(Profile::without_recording_rules()),
        }
    }
}

/// The metric profile of this name.
pub async fn metrics(store: &dyn Store, tenant: Tenant<'_>, name: &str) -> Result<Option<Metrics>> {
    Ok(match declared(store, tenant, Sort::Metric, name).await? {
        // Installation scripts create the built-in one.
        Some(own) if own == Profile::with_recording_rules() => Some(Metrics::BuiltIn),
        Some(own) => Some(Metrics::Own(Box::new(own))),
        None if name == PERFORMANCE_PROFILE => Some(Metrics::BuiltIn),
        None => None,
    })
}

/// The metadata profile of this name.
pub async fn metadata(
    store: &dyn Store,
    tenant: Tenant<'_>,
    name: &str,
) -> Result<Option<Profile>> {
    if let Some(own) = declared(store, tenant, Sort::Metadata, name).await? {
        return Ok(Some(own));
    }
    Profile::built_in(Sort::Metadata, name).map(|document| parse(&document)).transpose()
}

async fn declared(
    store: &dyn Store,
    tenant: Tenant<'_>,
    sort: Sort,
    name: &str,
) -> Result<Option<Profile>> {
    let own = store::named::<Declared>(store, tenant, sort.label(), name).await?;
    own.map(|own| parse(&own.spec.document)).transpose()
}

/// It was checked when it was declared.
fn parse(document: &Value) -> Result<Profile> {
    Profile::of(document).map_err(|error| Error::internal("a stored profile", error))
}
