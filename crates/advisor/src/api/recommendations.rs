//! Recommendations as the existing service has them: `/generateRecommendations` and
//! `/updateRecommendations` make them, `/listRecommendations` shows them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use futures::stream::{self, Stream, StreamExt as _};
use kernel::http::{Deferred, Operation, Route, can_see};
use kernel::identity::{Action, Principal};
use kernel::{App, Error, Key, Object, Result, wait};
use serde_json::{Value, json};

use super::experiments::{chosen, empty, find, flag, joined, not_found};
use super::listing::{Listed, Listing, Wanted};
use super::stream::{Items, list};
use super::{AdvisorApi, Call, execute, reply};
use crate::model::experiment::Answer;
use crate::model::job::shard_key;
use crate::model::recommend_request::{RecommendRequest, timestamp};
use crate::model::time;
use crate::model::wire::experiment::keep_time;
use crate::store;

pub fn routes() -> Vec<Route<AdvisorApi>> {
    let generate = |call, who| recommend(call, who, Source::Datasource);
    let update = |call, who| recommend(call, who, Source::Results);
    vec![
        Route::new(Method::POST, "/generateRecommendations", Action::Write, generate).document(
            |_| {
                Operation::new("generateRecommendations", "Recommends from a data source, now")
                    .query(&[
                        "experiment_name",
                        "interval_end_time",
                        "interval_start_time",
                        "job_id",
                    ])
                    .returns(201, "Objects")
                    .errors(&[400, 401])
            },
        ),
        Route::new(Method::POST, "/updateRecommendations", Action::Write, update).document(|_| {
            Operation::new("updateRecommendations", "Recommends from uploaded results, now")
                .query(&["experiment_name", "interval_end_time", "interval_start_time"])
                .returns(201, "Objects")
                .errors(&[400, 401])
        }),
        Route::new(Method::GET, "/listRecommendations", Action::Read, list_recommendations)
            .document(|_| {
                Operation::new("listRecommendations", "Returns what is recommended")
                    .query(&["experiment_name", "latest", "monitoring_end_time", "rm", "job_id"])
                    .returns(200, "Objects")
                    .errors(&[400, 401])
            }),
    ]
}

/// Where the measurements of an experiment come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Datasource,
    Results,
}

async fn recommend(call: Call, who: Arc<Principal>, source: Source) -> Result<Response> {
    let (name, request) = parameters(&call, source)?;
    let found = find(&call, &who, &name).await?.ok_or_else(|| not_found(&name))?;
    let is_remote = store::experiment(&found)?.spec.is_remote();
    match source {
        Source::Datasource if is_remote => {
            let problem = "results of this experiment are uploaded; POST /updateRecommendations";
            return Err(Error::invalid("experiment_name", problem));
        }
        Source::Results if !is_remote => {
            let problem = "this experiment has a data source; POST /generateRecommendations";
            return Err(Error::invalid("experiment_name", problem));
        }
        _ => {}
    }
    let key = found.key.clone();
    let (_, requested) =
        execute(&call, "experiment.recommend", Some(key.clone()), &request).await?;
    let number = requested["request"].as_u64().and_then(|number| u32::try_from(number).ok());
    let number =
        number.ok_or_else(|| Error::internal("the reply of a command", "it has no request"))?;
    let timeout = Duration::from_secs(call.config.recommend_timeout_s);
    let (app, closing) = (call.app.clone(), call.context.closing());
    let answer = async move {
        let deadline = async { drop(tokio::time::timeout(timeout, closing.cancelled()).await) };
        let is_answered = |object: &Object| {
            store::experiment(object).is_ok_and(|it| it.status.answered() >= number)
        };
        let object = wait::until(app.tail(), &key, deadline, is_answered).await?;
        let object = object.filter(|object| object.deleted_at.is_none());
        answered(&app, object, &name, number, timeout).await
    };
    Ok(Deferred::new(timeout, answer).into_response())
}

/// The name of the experiment and the body of the command.
fn parameters(call: &Call, source: Source) -> Result<(String, Value)> {
    let given = |name: &str| {
        call.query(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let (name, end) = (given("experiment_name"), given("interval_end_time"));
    // In the words of the existing service, which joins them like this.
    let mut missing = String::new();
    if name.is_none() {
        missing.push_str("experiment_name is mandatory, ");
    }
    if end.is_none() && source == Source::Results {
        missing.push_str("interval_end_time is mandatory");
    }
    let Some(name) = name.filter(|_| missing.is_empty()) else {
        return Err(Error::invalid("", missing));
    };
    let request = json!({
        "interval_end_time": end,
        "interval_start_time": given("interval_start_time"),
        "job_id": given("job_id"),
    });
    RecommendRequest::try_from(request.clone())
        .map_err(|invalid| Error::invalid(invalid.field, invalid.problem))?;
    Ok((name, request))
}

/// The answer to a request, or why there is none.
async fn answered(
    app: &App,
    object: Option<Object>,
    name: &str,
    number: u32,
    timeout: Duration,
) -> Result<Response> {
    let object = object.ok_or_else(|| not_found(name))?;
    let experiment = store::experiment(&object)?;
    let late = || {
        Error::Transient(format!(
            "the recommendation was not made within {} s (advisor.recommend_timeout_s); it will \
             be: see /listRecommendations",
            timeout.as_secs()
        ))
    };
    let mut answers = experiment.status.answers.iter();
    let Answer { result, .. } = answers.find(|it| it.request == number).ok_or_else(late)?;
    let results = store::results(app, &result.of).await?.ok_or_else(late)?;
    let line = results.line(result.line as usize)?.ok_or_else(late)?;
    match (line.recommendation, line.error) {
        (Some(element), _) => Ok(reply::json(201, &[element])),
        (None, why) => {
            let why = why.unwrap_or_default();
            let what = "Exception occurred while fetching metrics from the datasource";
            Err(Error::invalid("", format!("{what}: {why}")))
        }
    }
}

/// Which recommendations are shown.
#[derive(Debug, Clone, Default)]
struct Query {
    /// Only those as of this time.
    time: Option<String>,
    /// Only those that were made last for this job.
    job: Option<String>,
}

async fn list_recommendations(call: Call, who: Arc<Principal>) -> Result<Response> {
    let latest = flag(&call, "latest")?.unwrap_or(true);
    let time = call.query("monitoring_end_time").filter(|text| !text.trim().is_empty());
    let time = time.map(|text| timestamp(&text)).transpose();
    let time = time.map_err(|invalid| Error::invalid(invalid.field, invalid.problem))?;
    let time = time.map(time::format);
    let job = call.query("job_id").filter(|id| !id.is_empty());
    if let Some(id) = &job
        && let Some((object, job)) = store::job(call.app.store.as_ref(), id).await?
        && can_see(&who, &object)
    {
        let name = call.query("experiment_name");
        return Ok(list(of_job(call.app.clone(), id.clone(), job.status.shards as usize, name)));
    }
    let all = !latest || time.is_some();
    let wanted = if all { Wanted::All } else { Wanted::Newest };
    let listing = chosen(&call, &who, wanted).await?;
    let mut chunks = Box::pin(chunks(listing, Query { time: time.clone(), job }));
    let Some(time) = time else { return Ok(list(chunks)) };
    // Whether there is one is known only when one is found.
    let first = loop {
        match chunks.next().await.transpose()? {
            Some(chunk) if chunk.is_empty() => {}
            Some(chunk) => break chunk,
            None => {
                let problem = format!("Recommendation for timestamp - \" {time} \" does not exist");
                return Err(Error::invalid("", problem));
            }
        }
    };
    Ok(list(stream::once(async move { Ok(first) }).chain(chunks)))
}

fn chunks(listing: Listing, query: Query) -> impl Stream<Item = Result<Bytes>> + Send {
    let state = (listing, query, Items::default());
    stream::try_unfold(state, |(mut listing, query, mut items)| async move {
        let Some(some) = listing.next().await? else { return Ok(None) };
        for listed in some {
            write(&mut items, &query, listed)?;
        }
        let chunk = items.take();
        Ok(Some((chunk, (listing, query, items))))
    })
}

fn write(items: &mut Items, query: &Query, listed: Listed) -> Result<()> {
    let Listed { experiment, mut elements } = listed;
    if query.job.is_some() && query.job != experiment.status.job {
        elements.clear();
    }
    match (&elements[..], &query.time) {
        ([newest], None) => {
            items.push_text(newest);
            return Ok(());
        }
        ([], None) => return items.push(&empty(&experiment.spec)?),
        _ => {}
    }
    let Some(mut element) = joined(&elements)? else { return Ok(()) };
    match &query.time {
        Some(time) if !keep_time(&mut element, time) => Ok(()),
        _ => items.push(&element),
    }
}

/// What a job has recommended, shard by shard.
fn of_job(
    app: App,
    job: String,
    shards: usize,
    name: Option<String>,
) -> impl Stream<Item = Result<Bytes>> + Send {
    let state = (0, Items::default());
    stream::try_unfold(
        (app, job, name, state),
        move |(app, job, name, (number, mut items))| async move {
            if number == shards {
                return Ok(None);
            }
            write_shard(&app, &shard_key(&job, number), name.as_deref(), &mut items).await?;
            let chunk = items.take();
            Ok(Some((chunk, (app, job, name, (number + 1, items)))))
        },
    )
}

async fn write_shard(app: &App, shard: &Key, name: Option<&str>, items: &mut Items) -> Result<()> {
    let Some(results) = store::results(app, shard).await? else { return Ok(()) };
    for index in 0..results.len() {
        let Some(line) = results.line(index)? else { continue };
        if name.is_some_and(|name| name.trim() != line.experiment.name) {
            continue;
        }
        match line.recommendation {
            Some(element) => items.push_text(element.get().as_bytes()),
            None => items.push(&empty(&line.experiment)?)?,
        }
    }
    Ok(())
}
