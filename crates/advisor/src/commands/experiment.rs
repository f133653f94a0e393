//! Creates and deletes experiments, and requests recommendations for one.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::blob::BlobWrite;
use kernel::change::{Refusal, Wake};
use kernel::command::{AuditFields, Command, CommandContext, Decided, Nothing};
use kernel::identity::Action;
use kernel::typed::Typed;
use kernel::{Change, Draft, Error, Json, Object, Result, Timestamp};
use serde::{Deserialize, Serialize};

use crate::model::bucket::blob_name;
use crate::model::experiment::{
    EXPERIMENT, Experiment, ExperimentPhase, ExperimentStatus, REQUESTS_MAX, Request,
    experiment_key,
};
use crate::model::new_experiment::NewExperiment;
use crate::model::recommend_request::RecommendRequest;
use crate::model::tenant::Tenant;
use crate::model::wire::wire_time;
use crate::ports::prometheus::sources::Sources;
use crate::store;

/// When to try again if too many recommendations of an experiment wait.
const BUSY_S: u64 = 5;

/// Creates an experiment, whose name nothing else may have.
pub struct CreateExperiment {
    pub sources: Arc<Sources>,
}

#[async_trait]
impl Command for CreateExperiment {
    const NAME: &'static str = "experiment.create";
    const ACTION: Action = Action::Write;
    type Body = NewExperiment;
    type Reply = Object;

    async fn decide(
        &self,
        cx: &CommandContext<'_>,
        NewExperiment(spec): NewExperiment,
    ) -> Result<Decided<Object>> {
        let (org, name) = (&cx.principal.org, &spec.name);
        if let Some(datasource) = &spec.datasource
            && self.sources.find(org, datasource).await?.is_none()
        {
            let why = format!(
                "Given datasource name - {datasource} either does not exist or is not valid"
            );
            return Err(Error::invalid("", why));
        }
        let key = experiment_key(Tenant::of(cx.principal), name);
        let before = cx.app.store.object(&key).await?;
        if before.as_ref().is_some_and(|object| object.deleted_at.is_none()) {
            return Err(Error::Conflict(format!("Experiment name already exists: {name}")));
        }
        let owner = &cx.principal.subject;
        let draft = match &before {
            // It exists again.
            Some(object) => Draft::of(object).owner(owner).mirror(object.generation + 1),
            None => Draft::new(key, org, owner, name, cx.now),
        };
        let draft = draft.labels(spec.labels()).phase(&ExperimentPhase::New).spec(&spec);
        let write = draft.status(&ExperimentStatus::default()).transition("created", cx.now);
        let audit =
            AuditFields { after: write.object.spec.clone(), ..AuditFields::of(&write.object) };
        let decided = Decided::new(201, write.object.clone(), audit).change(Change::from(write));
        Ok(decided.on_refused(|refusal| match refusal {
            // Somebody else was first, which is now found.
            Refusal::Exists(_) => Ok(()),
            refusal => Err(refusal.into()),
        }))
    }
}

/// Deletes an experiment with its own results. Those of jobs belong to the jobs.
pub struct DeleteExperiment;

#[async_trait]
impl Command for DeleteExperiment {
    const NAME: &'static str = "experiment.delete";
    const ACTION: Action = Action::Write;
    type Body = Nothing;
    type Reply = Object;

    async fn decide(&self, cx: &CommandContext<'_>, _: Nothing) -> Result<Decided<Object>> {
        let (before, _) = subject(cx)?;
        let write = Draft::<Experiment>::of(before).delete("deleted", cx.now);
        let audit = AuditFields { before: before.spec.clone(), ..AuditFields::of(before) };
        let blobs = vec![BlobWrite::Remove { key: before.key.clone(), name: None }];
        let after = write.object.clone();
        Ok(Decided::new(200, after, audit).change(Change { blobs, ..Change::from(write) }))
    }
}

/// Requests a recommendation for an experiment: from its data source, or from its uploaded results if
/// it is a remote one. A worker makes it; the reply says which request it is.
pub struct RecommendExperiment;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedRecommendation {
    /// The number of the request among those of the experiment.
    pub request: u32,
}

#[async_trait]
impl Command for RecommendExperiment {
    const NAME: &'static str = "experiment.recommend";
    const ACTION: Action = Action::Write;
    type Body = RecommendRequest;
    type Reply = RequestedRecommendation;

    async fn decide(
        &self,
        cx: &CommandContext<'_>,
        RecommendRequest { end_ms, job }: RecommendRequest,
    ) -> Result<Decided<RequestedRecommendation>> {
        let (before, experiment) = subject(cx)?;
        if experiment.spec.is_remote() {
            uploaded_until(cx, before, end_ms).await?;
        }
        let mut requests = experiment.spec.pending(&experiment.status).to_vec();
        if requests.len() >= REQUESTS_MAX {
            return Err(Error::Busy { retry_after_s: BUSY_S });
        }
        let last = requests.last().map_or(experiment.status.answered(), |last| last.number);
        let request = last.saturating_add(1);
        requests.push(Request { number: request, end_ms, job });
        let spec = Experiment { requests, ..experiment.spec.clone() };
        let write = Draft::of(before).spec(&spec).respec("requested", cx.now);
        let audit =
            AuditFields { after: Json::encode(&spec.requests.last()), ..AuditFields::of(before) };
        let wakes = vec![Wake::for_object(before, cx.now)];
        let decided = Decided::new(202, RequestedRecommendation { request }, audit);
        Ok(decided.change(Change { wakes, ..Change::from(write) }))
    }
}

/// Fails unless there is an interval that ends then.
async fn uploaded_until(
    cx: &CommandContext<'_>,
    experiment: &Object,
    end_ms: Option<i64>,
) -> Result<()> {
    let missing = || Error::invalid("", "interval_end_time is mandatory");
    let end_ms = end_ms.ok_or_else(missing)?;
    let day = store::day(cx.app, &experiment.key, &blob_name(end_ms)).await?;
    if day.buckets.iter().any(|bucket| bucket.end_ms == end_ms) {
        return Ok(());
    }
    let end = wire_time(Timestamp(end_ms));
    Err(Error::invalid("", format!("Not Found: interval_end_time does not exist: {end}")))
}

fn subject<'a>(cx: &'a CommandContext<'_>) -> Result<(&'a Object, Typed<Experiment>)> {
    let object = cx.subject()?;
    if object.key.kind() != EXPERIMENT {
        let why = format!("must be an {EXPERIMENT}, not {}", object.key);
        return Err(Error::invalid("subject", why));
    }
    Ok((object, store::experiment(object)?))
}
