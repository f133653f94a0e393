//! Creates, replaces and deletes data sources of organisations. Their secrets are in a sealed blob;
//! the object, its events and the audit log have none.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::blob::BlobWrite;
use kernel::change::{Refusal, Write};
use kernel::command::{AnyCommand, AuditFields, Command, CommandContext, Decided};
use kernel::http::parse_json;
use kernel::identity::Action;
use kernel::typed::Typed;
use kernel::{Change, Draft, Error, Json, Labels, Object, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::model::datasource::Authentication;
use crate::model::metadata::{DATASOURCE_METADATA, MetadataSpec};
use crate::model::tenant::{Phase, Tenant};
use crate::model::user_source::{DATASOURCE, SETTINGS, SourceSpec, UserSource};
use crate::ports::prometheus::Prometheus;
use crate::ports::prometheus::sources::{Sources, user_source_key};

/// Within which a data source must answer `up` before it is accepted.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Of an organisation.
const SOURCES_MAX: i64 = 100;

/// Creates a data source, or replaces all of it. A new address never gets the old secrets.
pub struct PutDatasource {
    pub sources: Arc<Sources>,
}

impl PutDatasource {
    pub const NAME: &'static str = "datasource.put";

    /// Whether its addresses may be called, it accepts us, and it is a Prometheus.
    async fn check(&self, cx: &CommandContext<'_>, source: &UserSource) -> Result<()> {
        let outbound = &cx.app.outbound;
        let guarded = self.sources.is_guarded();
        if guarded {
            outbound.user_url("url", &source.datasource.url).await?;
            if let Authentication::Oauth2 { token_url, .. } = &source.datasource.authentication {
                outbound.user_url("authentication.token_url", token_url).await?;
            }
        }
        let client = Prometheus::of_user(source, outbound, guarded).await?;
        client.handshake(HANDSHAKE).await.map(drop).map_err(|error| {
            Error::invalid("url", format!("`{}` does not answer: {}", source.name, error.why))
        })
    }
}

#[async_trait]
impl AnyCommand for PutDatasource {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn action(&self) -> Action {
        Action::Write
    }

    async fn decide(&self, cx: &CommandContext<'_>, body: &Json) -> Result<Decided<Json>> {
        let org = organisation(cx)?;
        let value: Value = parse_json(body.text().as_bytes())?;
        let settings = value.to_string();
        let source = UserSource::try_from(value)?;
        let name = &source.name;
        not_configured(&self.sources, name)?;
        self.check(cx, &source).await?;
        let key = user_source_key(org, name);
        let before = cx.app.store.object(&key).await?;
        let existing = before.as_ref().filter(|object| object.deleted_at.is_none());
        let draft = match &before {
            Some(object) => Draft::of(object),
            None => Draft::new(key.clone(), org, &cx.principal.subject, name, cx.now),
        };
        let labels = Labels::from([("datasource".to_owned(), name.clone())]);
        let draft = draft.labels(labels).phase(&Phase::Ready).spec(&source.spec());
        let event = if existing.is_some() { "updated" } else { "created" };
        let write = draft.respec(event, cx.now);
        let blobs = cx.app.blobs.put(&key, SETTINGS, None, settings.as_bytes(), true)?;
        let typed = Typed::<SourceSpec>::from_object(&write.object)?;
        let takes = match existing {
            Some(_) => Vec::new(),
            None => vec![typed.take(counter(org), 1, SOURCES_MAX)],
        };
        let audit = AuditFields {
            before: existing.map(|object| object.spec.clone()).unwrap_or_default(),
            after: write.object.spec.clone(),
            ..AuditFields::of(&write.object)
        };
        let status = if existing.is_some() { 200 } else { 201 };
        let decided = Decided::new(status, Json::encode(&write.object), audit);
        let change = Change { blobs, takes, ..Change::from(write) };
        Ok(decided.change(change).on_refused(|refusal| match refusal {
            // Created at the same time.
            Refusal::Exists(_) => Ok(()),
            Refusal::Limit { limit, .. } => Err(Error::Conflict(format!(
                "your organisation has {limit} data sources, and may not have more"
            ))),
            other => Err(other.into()),
        }))
    }
}

/// Deletes a data source with its secrets and its metadata. What is being read of it ends; the next
/// job does not find it.
pub struct DeleteDatasource {
    pub sources: Arc<Sources>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    pub name: String,
}

#[async_trait]
impl Command for DeleteDatasource {
    const NAME: &'static str = "datasource.delete";
    const ACTION: Action = Action::Write;
    type Body = Named;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, body: Named) -> Result<Decided<Object>> {
        let org = organisation(cx)?;
        let name = &body.name;
        not_configured(&self.sources, name)?;
        let store = &cx.app.store;
        let found = store.object(&user_source_key(org, name)).await?;
        let found = found.filter(|object| object.deleted_at.is_none());
        let object = found.ok_or_else(|| Error::NotFound(format!("the data source `{name}`")))?;
        let typed = Typed::<SourceSpec>::from_object(&object)?;
        let write = Draft::<SourceSpec>::of(&object).delete("deleted", cx.now);
        let gone = write.object.clone();
        let releases = typed.releases([counter(org)]);
        let change = Change { releases, ..without_blobs(write) };
        let audit = AuditFields { before: object.spec.clone(), ..AuditFields::of(&object) };
        let decided = Decided::new(200, gone, audit).change(change);
        let metadata =
            store.object(&Tenant { org, owner: "" }.key(DATASOURCE_METADATA, name)).await?;
        Ok(match metadata.filter(|metadata| metadata.deleted_at.is_none()) {
            Some(metadata) => {
                let write = Draft::<MetadataSpec>::of(&metadata).delete("deleted", cx.now);
                decided.change(without_blobs(write))
            }
            None => decided,
        })
    }
}

/// The change that writes this and removes the object's blobs.
pub(super) fn without_blobs(write: Write) -> Change {
    let blobs = vec![BlobWrite::Remove { key: write.object.key.clone(), name: None }];
    Change { blobs, ..Change::from(write) }
}

fn counter(org: &str) -> String {
    Tenant { org, owner: "" }.counter(DATASOURCE)
}

/// The organisation of the caller.
fn organisation<'a>(cx: &'a CommandContext<'_>) -> Result<&'a str> {
    if cx.principal.is_org_member() {
        return Ok(&cx.principal.org);
    }
    Err(Error::Forbidden(format!(
        "data sources belong to an organisation, and {} is of none; use a token of one, or set \
         advisor.open_as.org",
        cx.principal.subject
    )))
}

fn not_configured(sources: &Sources, name: &str) -> Result<()> {
    if !sources.is_configured(name) {
        return Ok(());
    }
    let why = format!("name: `{name}` is in the configuration of the server (advisor.datasources)");
    Err(Error::Conflict(why))
}
