//! Bulk jobs: `/bulk` as the existing service has it, and what it lacks: to list, cancel and delete.

use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::Method;
use axum::response::Response;
use futures::stream::{self, Stream, StreamExt as _};
use kernel::http::{Operation, Route, can_see, parse_json, restrict};
use kernel::identity::{Action, Principal};
use kernel::query::PAGE_MAX;
use kernel::typed::Typed;
use kernel::{App, Class, Error, Object, ObjectQuery, Result};
use serde_json::{Value, json};

use super::{AdvisorApi, ApiState, Call, execute, reply};
use crate::model::bulk::BulkRequest;
use crate::model::include::{Include, Members};
use crate::model::job::{BulkJob, JOB, ResultLine, job_key, shard_key};
use crate::model::tenant::Tenant;
use crate::model::wire::webhook::webhook;
use crate::model::wire::{ExperimentView, NoNotices, summary};
use crate::store;

pub fn routes() -> Vec<Route<AdvisorApi>> {
    vec![
        Route::new(Method::POST, "/bulk", Action::Write, create).document(|_| {
            Operation::new("createBulkJob", "Recommends for every container of a data source")
                .body("Object")
                .returns(200, "Object")
                .errors(&[400, 401, 409])
        }),
        Route::new(Method::GET, "/bulk", Action::Read, get).document(|_| {
            Operation::new("getBulkJob", "Returns how far a job is, and what came out")
                .query(&["job_id", "include", "exclude", "experiment_name"])
                .returns(200, "Object")
                .errors(&[400, 401, 404])
        }),
        Route::new(Method::GET, "/api/v1/advisor/jobs", Action::Read, list).document(|_| {
            Operation::new("listBulkJobs", "Returns the jobs, newest first")
                .query(&["limit", "after"])
                .returns(200, "Object")
                .errors(&[400, 401])
        }),
        Route::new(Method::GET, "/api/v1/advisor/jobs/{id}", Action::Read, one).document(|_| {
            Operation::new("getJob", "Returns how far a job is")
                .returns(200, "Object")
                .errors(&[401, 404])
        }),
        Route::new(
            Method::POST,
            "/api/v1/advisor/jobs/{id}/cancel",
            Action::Write,
            async |call: Call, who| change(&call, &who, "bulk-job.cancel").await,
        )
        .document(|_| {
            Operation::new("cancelBulkJob", "Stops a job; what it has recommended stays")
                .returns(202, "Object")
                .errors(&[401, 404])
        }),
        Route::new(
            Method::DELETE,
            "/api/v1/advisor/jobs/{id}",
            Action::Write,
            async |call: Call, who| change(&call, &who, "bulk-job.delete").await,
        )
        .document(|_| {
            Operation::new("deleteBulkJob", "Deletes a job and its results")
                .returns(202, "Object")
                .errors(&[401, 404])
        }),
    ]
}

async fn create(mut call: Call, _: Arc<Principal>) -> Result<Response> {
    let body = call.bytes().await?;
    let request: Value = parse_json(&body)?;
    // The command checks it again; here the words are those of the existing service.
    BulkRequest::try_from(request.clone())
        .map_err(|error| Error::invalid("", error.to_string()))?;
    let done = execute(&call, "bulk-job.create", None, &request).await;
    let (status, created) = done.map_err(|error| match error {
        Error::Invalid { field, message } if field == "time_range" => Error::invalid("", message),
        other => other,
    })?;
    Ok(reply::json(status, &created))
}

async fn change(call: &Call, who: &Principal, command: &str) -> Result<Response> {
    let id = call.param("id");
    find(call, who, id).await?;
    let (status, object) = execute(call, command, Some(job_key(id)), &json!({})).await?;
    let object: Object = serde_json::from_value(object)
        .map_err(|error| Error::internal("the reply of a command", error))?;
    Ok(reply::json(status, &shown(&Typed::from_object(&object)?)))
}

/// The job of this id, if the caller may see it.
async fn find(call: &Call, who: &Principal, id: &str) -> Result<Typed<BulkJob>> {
    let found = store::job(call.app.store.as_ref(), id).await?;
    let found = found.filter(|(object, _)| can_see(who, object)).map(|(_, job)| job);
    found.ok_or_else(|| Error::coded(404, Class::NotFound, "Job not found"))
}

async fn get(call: Call, who: Arc<Principal>) -> Result<Response> {
    let id = call.query("job_id").ok_or_else(|| Error::invalid("job_id", "is required"))?;
    let job = find(&call, &who, &id).await?;
    let include = call.query("include").unwrap_or_default();
    let include: Include = include.parse().unwrap_or_default();
    let Some(members) = include.part("experiments").cloned() else {
        return Ok(reply::json(200, &include.filter(parts(&call.app, &job, &include).await?)));
    };
    let parts = include.filter(parts(&call.app, &job, &include).await?);
    let name = call.query("experiment_name").unwrap_or_default();
    let experiments =
        Experiments { api: call.0.clone(), app: call.app.clone(), job, members, name };
    Ok(reply::text(200, Body::from_stream(document(parts, experiments.chunks()))))
}

/// The parts of a job that are not experiments.
async fn parts(app: &App, job: &Typed<BulkJob>, include: &Include) -> Result<Value> {
    let mut parts = json!({ "summary": summary(job, NoNotices::Empty) });
    if include.part("metadata").is_some() {
        parts["metadata"] = store::metadata(app, &job.id).await?.unwrap_or(json!({}));
    }
    if let (Some(_), Some(notification)) = (include.part("webhook"), &job.status.webhook) {
        parts["webhook"] = webhook(notification);
    }
    Ok(parts)
}

/// A JSON object of these parts, and of experiments that are written as they are read.
fn document(
    parts: Value,
    experiments: impl Stream<Item = Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
    let text = parts.to_string();
    let head = text.strip_suffix('}').unwrap_or(&text).to_owned();
    let comma = if head.len() > 1 { "," } else { "" };
    let one = |text: String| stream::once(async move { Ok(Bytes::from(text)) });
    one(format!("{head}{comma}\"experiments\":{{")).chain(experiments).chain(one("}}".into()))
}

/// The experiments of a job.
struct Experiments {
    api: Arc<ApiState>,
    app: App,
    job: Typed<BulkJob>,
    members: Members,
    /// Only those whose name contains this.
    name: String,
}

impl Experiments {
    /// The members of a JSON object, shard by shard.
    fn chunks(self) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
        let shards = self.job.status.shards as usize;
        stream::unfold((self, 0, true), move |(experiments, number, first)| async move {
            if number == shards {
                return None;
            }
            let chunk = experiments.chunk(number, first).await;
            let first = first && chunk.as_ref().is_ok_and(Bytes::is_empty);
            Some((chunk, (experiments, number + 1, first)))
        })
    }

    async fn chunk(&self, number: usize, mut first: bool) -> Result<Bytes> {
        let key = shard_key(&self.job.id, number);
        let mut out = Vec::new();
        if let Some(results) = store::results(&self.app, &key).await? {
            for index in 0..results.len() {
                let Some(line) = results.line(index)? else { continue };
                let name = line.experiment.name.clone();
                self.write(&mut out, &mut first, &name, Some(&line))?;
            }
            return Ok(out.into());
        }
        let request = &self.job.spec.request;
        let labels = request.filter.clone().unwrap_or_default().included_labels();
        for member in store::members(&self.app, &key).await?.unwrap_or_default() {
            let name = self.api.names.name(&request.datasource, &member, &labels);
            self.write(&mut out, &mut first, &name, None)?;
        }
        Ok(out.into())
    }

    fn write(
        &self,
        out: &mut Vec<u8>,
        first: &mut bool,
        name: &str,
        line: Option<&ResultLine<'_>>,
    ) -> Result<()> {
        if !name.contains(&self.name) {
            return Ok(());
        }
        if !std::mem::take(first) {
            out.push(b',');
        }
        let job = &self.job;
        let view = ExperimentView {
            name,
            line,
            started: job.status.started_at.unwrap_or(job.created_at),
            tenant: Tenant::of_object(job),
            shown: &self.members,
        };
        let encoding = |error| Error::internal("encoding an experiment", error);
        serde_json::to_writer(&mut *out, name).map_err(encoding)?;
        out.push(b':');
        serde_json::to_writer(&mut *out, &view).map_err(encoding)
    }
}

async fn list(call: Call, who: Arc<Principal>) -> Result<Response> {
    let limit = number(&call, "limit", 1..=PAGE_MAX as i64)?.unwrap_or(100);
    let query = ObjectQuery {
        kind: Some(JOB.into()),
        limit: usize::try_from(limit).unwrap_or(PAGE_MAX),
        after: number(&call, "after", 0..=i64::MAX)?,
        ..ObjectQuery::default()
    };
    let Some(query) = restrict(&who, query) else {
        return Ok(reply::json(200, &json!({ "jobs": [] })));
    };
    let page = call.app.store.find(&query).await?;
    let jobs =
        page.objects.iter().map(Typed::<BulkJob>::from_object).collect::<Result<Vec<_>>>()?;
    let jobs: Vec<Value> = jobs.iter().map(shown).collect();
    Ok(reply::json(200, &json!({ "jobs": jobs, "next": page.next })))
}

async fn one(call: Call, who: Arc<Principal>) -> Result<Response> {
    let job = find(&call, &who, call.param("id")).await?;
    Ok(reply::json(200, &shown(&job)))
}

fn number(call: &Call, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>> {
    let Some(text) = call.query(name) else { return Ok(None) };
    let number = text.parse().ok().filter(|number| range.contains(number));
    let wrong = || format!("must be a number from {} to {}", range.start(), range.end());
    number.map(Some).ok_or_else(|| Error::invalid(name, wrong()))
}

/// A job among others: its summary, and how many experiments failed or existed before.
fn shown(job: &Typed<BulkJob>) -> Value {
    let mut shown = summary(job, NoNotices::Empty);
    let status = &job.status;
    shown["phase"] = job.phase.label().into();
    shown["failed_experiments"] = status.failed.into();
    shown["existing_experiments"] = status.existing.into();
    shown["shards"] = status.shards.into();
    shown
}
