//! Imports what runs in the cluster of a data source, and deletes it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::change::Refusal;
use kernel::command::{AuditFields, Command, CommandContext, Decided};
use kernel::identity::Action;
use kernel::typed::Typed;
use kernel::{Change, Class, Draft, Error, Object, Result};
use serde::Deserialize;
use serde_json::Value;

use super::datasource::without_blobs;
use crate::model::bulk::BulkRequest;
use crate::model::declared::{Declared, Sort};
use crate::model::fields::Invalid;
use crate::model::filter::Filter;
use crate::model::inventory::Inventory;
use crate::model::metadata::{DATASOURCE_METADATA, FOUND, MetadataSpec, namespaces};
use crate::model::tenant::{Phase, Tenant};
use crate::ports::prometheus::profile::Profile;
use crate::ports::prometheus::sources::{Source, Sources};
use crate::ports::prometheus::{QueryError, When, discover};
use crate::store;

/// The caller waits for it.
const IMPORT: Duration = Duration::from_secs(25);

/// Imports the metadata of a data source. What was imported before is replaced.
pub struct ImportMetadata {
    pub sources: Arc<Sources>,
}

/// The request, as the existing service has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub struct Import {
    datasource: String,
    profile: String,
    minutes: u32,
}

impl TryFrom<Value> for Import {
    type Error = Invalid;

    fn try_from(value: Value) -> Result<Self, Invalid> {
        let Value::Object(mut fields) = value else {
            return Err(Invalid::new("", "expected an object"));
        };
        let mut text = |field: &str| match fields.remove(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Invalid::new(field, "expected a text")),
        };
        let (datasource, profile) = (text("datasource_name")?, text("metadata_profile")?);
        let duration = text("measurement_duration")?;
        let missing =
            [("datasourceName", datasource.is_none()), ("metadataProfile", profile.is_none())];
        let missing: Vec<&str> =
            missing.iter().filter(|(_, missing)| *missing).map(|(name, _)| *name).collect();
        let (Some(datasource), Some(profile)) = (datasource, profile) else {
            let why = format!("Mandatory parameters missing [{}] ", missing.join(", "));
            return Err(Invalid::new("", why));
        };
        let bulk = match duration {
            Some(text) => {
                BulkRequest::try_from(serde_json::json!({ "measurement_duration": text }))?
            }
            None => BulkRequest::default(),
        };
        Ok(Self { datasource, profile, minutes: bulk.measurement_duration.minutes() })
    }
}

#[async_trait]
impl Command for ImportMetadata {
    const NAME: &'static str = "metadata.import";
    const ACTION: Action = Action::Write;
    type Body = Import;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, import: Import) -> Result<Decided<Object>> {
        let tenant = Tenant::of(cx.principal);
        let name = &import.datasource;
        let source = self.sources.find(tenant.org, name).await?.ok_or_else(|| {
            refused(format!(
                "Metadata cannot be imported for datasource - {name}, either does not exist or is not valid"
            ))
        })?;
        let profile = profile(cx, tenant, &import.profile).await?;
        let read = read(&source, &profile, import.minutes);
        let inventory = tokio::time::timeout(IMPORT, read).await.unwrap_or_else(|_| {
            Err(refused(format!(
                "Metadata cannot be imported, datasource connection refused or timed out \
                 (no answer within {} s)",
                IMPORT.as_secs()
            )))
        })?;
        let spec = MetadataSpec {
            datasource: name.clone(),
            metadata_profile: import.profile,
            measurement_min: import.minutes,
        };
        let key = tenant.key(DATASOURCE_METADATA, name);
        let found = serde_json::to_vec(&namespaces(&inventory, name))
            .map_err(|error| Error::internal("encoding metadata", error))?;
        let blobs = cx.app.blobs.put(&key, FOUND, None, &found, false)?;
        let before = cx.app.store.object(&key).await?;
        let draft = match &before {
            Some(object) => Draft::of(object),
            None => Draft::new(key, tenant.org, tenant.owner, name, cx.now),
        };
        let write = draft.phase(&Phase::Ready).spec(&spec).respec("imported", cx.now);
        let reply = write.object.clone();
        let audit = AuditFields { after: reply.spec.clone(), ..AuditFields::of(&reply) };
        let change = Change { blobs, ..Change::from(write) };
        Ok(Decided::new(201, reply, audit).change(change).on_refused(|refusal| match refusal {
            // Imported at the same time.
            Refusal::Exists(_) => Ok(()),
            other => Err(other.into()),
        }))
    }
}

async fn profile(cx: &CommandContext<'_>, tenant: Tenant<'_>, name: &str) -> Result<Profile> {
    let sort = Sort::Metadata;
    let own = store::named::<Declared>(cx.app.store.as_ref(), tenant, sort.label(), name).await?;
    let document = own.map(|own| own.spec.document).or_else(|| Profile::built_in(sort, name));
    let document = document.ok_or_else(|| {
        refused(format!("MetadataProfile - {name} either does not exist or is not valid"))
    })?;
    Profile::of(&document).map_err(|error| Error::invalid("metadata_profile", error.to_string()))
}

/// The three queries of discovery, for now.
async fn read(source: &Source, profile: &Profile, minutes: u32) -> Result<Inventory> {
    let matchers = Filter::default().matchers(&BTreeSet::new());
    let queries = discover::queries(profile, &matchers, minutes)
        .map_err(|error| Error::invalid("metadata_profile", error.to_string()))?;
    let ask = |text: String| async move {
        let _slot = source.gate.enter().await;
        source.client.query(&text, When::Now).await
    };
    let all =
        tokio::try_join!(ask(queries.namespaces), ask(queries.workloads), ask(queries.containers));
    let failed = |error: QueryError| {
        refused(format!(
            "Metadata cannot be imported, datasource connection refused or timed out ({})",
            error.why
        ))
    };
    let (namespaces, workloads, containers) = all.map_err(failed)?;
    Ok(discover::inventory(&namespaces, &workloads, &containers))
}

/// Deletes what was imported of a data source.
pub struct DeleteMetadata;

/// The request, as the existing service has it.
#[derive(Debug, Deserialize)]
pub struct OfDatasource {
    datasource_name: String,
}

#[async_trait]
impl Command for DeleteMetadata {
    const NAME: &'static str = "metadata.delete";
    const ACTION: Action = Action::Write;
    type Body = OfDatasource;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, of: OfDatasource) -> Result<Decided<Object>> {
        let key = Tenant::of(cx.principal).key(DATASOURCE_METADATA, &of.datasource_name);
        let found = cx.app.store.object(&key).await?;
        let found = found.filter(|object| object.deleted_at.is_none());
        let object = found.ok_or_else(|| {
            refused(format!(
                "Metadata cannot be deleted for datasource - {}, either does not exist or is not valid",
                of.datasource_name
            ))
        })?;
        Typed::<MetadataSpec>::from_object(&object)?;
        let write = Draft::<MetadataSpec>::of(&object).delete("deleted", cx.now);
        let gone = write.object.clone();
        let audit = AuditFields { before: object.spec.clone(), ..AuditFields::of(&object) };
        Ok(Decided::new(201, gone, audit).change(without_blobs(write)))
    }
}

/// An error in the words of the existing service.
fn refused(why: String) -> Error {
    Error::coded(400, Class::Invalid, why)
}
