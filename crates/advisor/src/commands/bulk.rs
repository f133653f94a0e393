//! Creates, cancels and deletes bulk jobs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::change::Wake;
use kernel::command::{AuditFields, Command, CommandContext, Decided, Nothing};
use kernel::identity::Action;
use kernel::{Change, Draft, Error, Json, Object, Result, Typed};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::model::bulk::BulkRequest;
use crate::model::fields::Invalid;
use crate::model::job::{BulkJob, JOB, JobPhase, JobStatus, job_key};
use crate::model::tenant::Tenant;
use crate::ports::prometheus::sources::Sources;
use crate::ports::webhook::Webhooks;

/// Within which a data source that is named must answer `up`.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// Creates a bulk job. With a `requestId` the same request makes one job, however often it is sent.
pub struct CreateBulkJob {
    pub sources: Arc<Sources>,
    pub webhooks: Arc<Webhooks>,
}

/// A request, and whether it named its data source.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub struct NewJob {
    request: BulkRequest,
    names_datasource: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedJob {
    pub job_id: String,
}

impl TryFrom<Value> for NewJob {
    type Error = Invalid;

    fn try_from(value: Value) -> Result<Self, Invalid> {
        let names_datasource = value.get("datasource").is_some_and(|name| !name.is_null());
        Ok(Self { request: BulkRequest::try_from(value)?, names_datasource })
    }
}

#[async_trait]
impl Command for CreateBulkJob {
    const NAME: &'static str = "bulk-job.create";
    const ACTION: Action = Action::Write;
    type Body = NewJob;
    type Reply = CreatedJob;

    async fn decide(&self, cx: &CommandContext<'_>, new: NewJob) -> Result<Decided<CreatedJob>> {
        let NewJob { request, names_datasource } = new;
        let range = request.time_range.as_ref().map(|range| range.window()).transpose();
        range.map_err(|error| Error::invalid("time_range", error.to_string()))?;
        let (org, tenant) = (&cx.principal.org, Tenant::of(cx.principal));
        let id = match &request.request_id {
            Some(request_id) => uuid(&Sha256::digest(tenant.key(JOB, request_id).id())),
            None => uuid(&cx.app.ambient.random_bytes::<16>()),
        };
        let (key, reply) = (job_key(&id), CreatedJob { job_id: id.clone() });
        if let Some(before) = cx.app.store.object(&key).await? {
            return same_job(&before, &request).map(|()| Decided::new(200, reply, None));
        }
        if names_datasource {
            self.handshake(org, &request.datasource).await?;
        }
        if let Some(url) = request.webhook_url() {
            self.webhooks.check(url).await?;
        }
        let name = request.request_id.clone().unwrap_or_else(|| id.clone());
        let labels = [("datasource".to_owned(), request.datasource.clone())].into();
        let spec = BulkJob { request, cancelled: false, deleted: false };
        let status = JobStatus { started_at: Some(cx.now), ..JobStatus::default() };
        let draft = Draft::new(key, org, &cx.principal.subject, &name, cx.now).labels(labels);
        let write = draft.phase(&JobPhase::Queued).spec(&spec).status(&status).create("created");
        let audit =
            AuditFields { after: write.object.spec.clone(), ..AuditFields::of(&write.object) };
        let wakes = vec![Wake::for_object(&write.object, cx.now)];
        Ok(Decided::new(200, reply, audit).change(Change { wakes, ..Change::from(write) }))
    }
}

impl CreateBulkJob {
    async fn handshake(&self, org: &str, name: &str) -> Result<()> {
        let Some(source) = self.sources.find(org, name).await? else {
            let names = self.sources.names(org).await?;
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let why = format!("`{name}` is not known; there are: {known}");
            return Err(Error::invalid("datasource", why));
        };
        let answer = source.client.handshake(HANDSHAKE).await;
        answer.map(drop).map_err(|error| {
            Error::invalid("datasource", format!("`{name}` does not answer: {}", error.why))
        })
    }
}

fn same_job(before: &Object, request: &BulkRequest) -> Result<()> {
    let job = Typed::<BulkJob>::from_object(before)?;
    let id = request.request_id.as_deref().unwrap_or_default();
    if before.deleted_at.is_some() || job.spec.deleted {
        return Err(Error::Conflict(format!(
            "requestId: `{id}` is that of a job that was deleted"
        )));
    }
    if job.spec.request == *request {
        return Ok(());
    }
    Err(Error::Conflict(format!("requestId: `{id}` was used for another request")))
}

/// A version 4 UUID of these bytes.
fn uuid(bytes: &[u8]) -> String {
    let mut bytes: [u8; 16] = bytes[..16].try_into().expect("at least 16 bytes are given");
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Stops a job. What it has recommended stays. A job that has ended is not changed.
pub struct CancelBulkJob;

#[async_trait]
impl Command for CancelBulkJob {
    const NAME: &'static str = "bulk-job.cancel";
    const ACTION: Action = Action::Write;
    type Body = Nothing;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, _: Nothing) -> Result<Decided<Object>> {
        edit(cx, |job| {
            let spec = BulkJob { cancelled: true, ..job.spec.clone() };
            (!job.phase.is_final()).then_some(spec)
        })
    }
}

/// Deletes a job, its shards and its results. One that runs is cancelled first.
pub struct DeleteBulkJob;

#[async_trait]
impl Command for DeleteBulkJob {
    const NAME: &'static str = "bulk-job.delete";
    const ACTION: Action = Action::Write;
    type Body = Nothing;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, _: Nothing) -> Result<Decided<Object>> {
        edit(cx, |job| Some(BulkJob { deleted: true, cancelled: true, ..job.spec.clone() }))
    }
}

fn edit(
    cx: &CommandContext<'_>,
    edit: impl Fn(&Typed<BulkJob>) -> Option<BulkJob>,
) -> Result<Decided<Object>> {
    let before = cx.subject()?;
    if before.key.kind() != JOB {
        return Err(Error::invalid("subject", format!("must be a {JOB}, not {}", before.key)));
    }
    let job = Typed::<BulkJob>::from_object(before)?;
    let Some(spec) = edit(&job).filter(|spec| *spec != job.spec) else {
        return Ok(Decided::new(202, before.clone(), None));
    };
    let write = Draft::of(before).spec(&spec).respec("updated", cx.now);
    let after = write.object.clone();
    let audit = AuditFields {
        before: before.spec.clone(),
        after: Json::encode(&spec),
        ..AuditFields::of(before)
    };
    let wakes = vec![Wake::for_object(before, cx.now)];
    Ok(Decided::new(202, after, audit).change(Change { wakes, ..Change::from(write) }))
}
