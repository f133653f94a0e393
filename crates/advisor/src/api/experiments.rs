//! Experiments as the existing service has them: `/createExperiment` and `/listExperiments`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::Method;
use axum::response::Response;
use futures::stream;
use kernel::http::{Operation, Route, can_see, parse_json};
use kernel::identity::{Action, Principal};
use kernel::{App, Error, Key, Object, Result};
use serde_json::{Value, json};

use super::listing::{Listed, Listing, Wanted};
use super::stream::{Items, list};
use super::{AdvisorApi, Call, execute, reply};
use crate::model::experiment::{Experiment, experiment_key};
use crate::model::experiment_filter::ExperimentFilter;
use crate::model::new_experiment::{NewExperiment, experiment_name};
use crate::model::tenant::Tenant;
use crate::model::wire::experiment::{add_history, add_results, element, listed};
use crate::store;

const REGISTERED: &str = "Experiment registered successfully with Kruize. View registered \
                          experiments at /listExperiments";
const DELETED: &str =
    "Experiment deleted successfully. View registered experiments at /listExperiments";
/// The parameters of `listExperiments`.
const PARAMETERS: [&str; 5] = ["results", "recommendations", "latest", "experiment_name", "rm"];

pub fn routes() -> Vec<Route<AdvisorApi>> {
    vec![
        Route::new(Method::POST, "/createExperiment", Action::Write, create).document(|_| {
            Operation::new("createExperiment", "Creates an experiment: a list of one")
                .body("Objects")
                .returns(201, "Object")
                .errors(&[400, 401, 409])
        }),
        Route::new(Method::DELETE, "/createExperiment", Action::Write, delete).document(|_| {
            Operation::new("deleteExperiment", "Deletes an experiment: a list of one with its name")
                .query(&["rm"])
                .body("Objects")
                .returns(201, "Object")
                .errors(&[400, 401])
        }),
        Route::new(Method::GET, "/listExperiments", Action::Read, list_experiments).document(
            |_| {
                Operation::new("listExperiments", "Returns the experiments")
                    .query(&PARAMETERS)
                    .returns(200, "Objects")
                    .errors(&[400, 401])
            },
        ),
    ]
}

/// The only item of the list that is the body.
async fn only_item(call: &mut Call) -> Result<Value> {
    let body = call.bytes().await?;
    let Value::Array(mut items) = parse_json::<Value>(&body)? else {
        return Err(Error::invalid("body", "must be a list of one experiment"));
    };
    match items.len() {
        0 => Err(Error::invalid("body", "must be a list of one experiment, it is empty")),
        1 => Ok(items.swap_remove(0)),
        _ => Err(Error::invalid("", "At present, the system does not support bulk entries!")),
    }
}

async fn create(mut call: Call, _: Arc<Principal>) -> Result<Response> {
    let request = only_item(&mut call).await?;
    // The command checks it again; here the field has no path around it.
    NewExperiment::try_from(request.clone())
        .map_err(|invalid| Error::invalid(invalid.field, invalid.problem))?;
    execute(&call, "experiment.create", None, &request).await?;
    Ok(reply::success(201, REGISTERED))
}

async fn delete(mut call: Call, who: Arc<Principal>) -> Result<Response> {
    let remote_only = flag(&call, "rm")?.unwrap_or(false);
    let request = only_item(&mut call).await?;
    let name = experiment_name(&request)
        .map_err(|invalid| Error::invalid(invalid.field, invalid.problem))?;
    let found = find(&call, &who, &name).await?;
    let found = found.map(|object| store::experiment(&object)).transpose()?;
    let found = found.filter(|experiment| !remote_only || experiment.spec.is_remote());
    found.ok_or_else(|| not_found(&name))?;
    let key = experiment_key(Tenant::of(&who), &name);
    match execute(&call, "experiment.delete", Some(key), &json!({})).await {
        // Somebody else was first.
        Err(Error::NotFound(_)) => Err(not_found(&name)),
        done => done.map(|_| reply::success(201, DELETED)),
    }
}

/// The experiment of this name, if the caller may see it.
pub async fn find(call: &Call, who: &Principal, name: &str) -> Result<Option<Arc<Object>>> {
    let found = store::experiment_named(call.app.store.as_ref(), Tenant::of(who), name).await?;
    Ok(found.filter(|object| can_see(who, object)))
}

/// The answer to a request about an experiment that does not exist.
pub fn not_found(name: &str) -> Error {
    Error::invalid("", format!("Not Found: experiment_name does not exist: {}", short(name)))
}

/// The answer to a query about an experiment that does not exist.
pub fn not_valid(name: &str) -> Error {
    Error::invalid("", format!("Given experiment name - \" {} \" is not valid", short(name)))
}

/// A text that was sent, for a message.
fn short(text: &str) -> String {
    text.chars().take(600).collect()
}

/// A parameter that is true or false.
pub fn flag(call: &Call, name: &str) -> Result<Option<bool>> {
    let Some(text) = call.query(name) else { return Ok(None) };
    match text.trim().to_ascii_lowercase().as_str() {
        "" => Ok(None),
        "true" => Ok(Some(true)),
        "false" => Ok(Some(false)),
        _ => Err(Error::invalid(name, "must be true or false")),
    }
}

/// The experiments that a query is about: the one that it names, or all; with `rm` those whose
/// results are uploaded, and otherwise, unless it is named, those that have a data source.
pub async fn chosen(call: &Call, who: &Principal, wanted: Wanted) -> Result<Listing> {
    let remote = flag(call, "rm")?.unwrap_or(false);
    let Some(name) = call.query("experiment_name") else {
        return Ok(Listing::all(&call.app, who, remote, wanted));
    };
    let name = name.trim();
    let found = find(call, who, name).await?.ok_or_else(|| not_valid(name))?;
    if remote && !store::experiment(&found)?.spec.is_remote() {
        return Err(not_valid(name));
    }
    Listing::one(&call.app, &found, wanted)
}

/// How experiments are shown.
struct View {
    listing: Listing,
    app: App,
    recommendations: bool,
    results: bool,
    latest: bool,
    items: Items,
}

async fn list_experiments(mut call: Call, who: Arc<Principal>) -> Result<Response> {
    known_parameters(&call)?;
    let results = flag(&call, "results")?.unwrap_or(false);
    let recommendations = flag(&call, "recommendations")?.unwrap_or(false);
    let latest = flag(&call, "latest")?.unwrap_or(true);
    let wanted = match (recommendations, latest) {
        (false, _) => Wanted::None,
        (true, true) => Wanted::Newest,
        (true, false) => Wanted::All,
    };
    let filter = filter(&call.bytes().await?)?;
    let listing = chosen(&call, &who, wanted).await?.filter(filter);
    let (app, items) = (call.app.clone(), Items::default());
    let view = View { listing, app, recommendations, results, latest, items };
    let chunks = stream::try_unfold(view, |mut view| async move {
        let chunk = view.chunk().await?;
        Ok::<_, Error>(chunk.map(|chunk| (chunk, view)))
    });
    Ok(list(chunks))
}

fn known_parameters(call: &Call) -> Result<()> {
    let query = call.parts.uri.query().unwrap_or_default();
    let unknown = url::form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| !PARAMETERS.contains(&name.as_ref()));
    match unknown {
        None => Ok(()),
        Some((name, _)) => {
            let known = PARAMETERS.join(", ");
            Err(Error::invalid(short(&name), format!("is not a parameter here; there are {known}")))
        }
    }
}

fn filter(body: &[u8]) -> Result<ExperimentFilter> {
    if body.trim_ascii().is_empty() {
        return Ok(ExperimentFilter::default());
    }
    ExperimentFilter::try_from(parse_json::<Value>(body)?)
        .map_err(|invalid| Error::invalid(invalid.field, invalid.problem))
}

impl View {
    /// The next part of the list; none after the last.
    async fn chunk(&mut self) -> Result<Option<Bytes>> {
        let Some(some) = self.listing.next().await? else { return Ok(None) };
        for Listed { experiment, elements } in some {
            let element = if self.recommendations {
                Some(joined(&elements)?.map_or_else(|| empty(&experiment.spec), Ok)?)
            } else {
                None
            };
            let mut shown = listed(&experiment, element);
            if self.results && experiment.spec.is_remote() {
                self.add_results(&experiment.key(), &mut shown).await?;
            }
            self.items.push(&shown)?;
        }
        Ok(Some(self.items.take()))
    }

    async fn add_results(&self, key: &Key, shown: &mut Value) -> Result<()> {
        let days = store::days(&self.app, key).await?;
        let skipped = if self.latest { days.len().saturating_sub(1) } else { 0 };
        for day in days.into_keys().skip(skipped) {
            let mut buckets = store::day(&self.app, key, &day).await?.buckets;
            if self.latest {
                buckets.drain(..buckets.len().saturating_sub(1));
            }
            add_results(shown, &buckets);
        }
        Ok(())
    }
}

/// One element of all that was recommended for an experiment, newest first.
pub fn joined(elements: &[Vec<u8>]) -> Result<Option<Value>> {
    let parse = |element: &Vec<u8>| {
        serde_json::from_slice(element).map_err(|e| Error::internal("a result is damaged", e))
    };
    let Some((newest, earlier)) = elements.split_first() else { return Ok(None) };
    let mut newest = parse(newest)?;
    for element in earlier {
        add_history(&mut newest, parse(element)?);
    }
    Ok(Some(newest))
}

/// The element of an experiment without recommendations.
pub fn empty(experiment: &Experiment) -> Result<Value> {
    let element = element(experiment, &[]).and_then(|raw| serde_json::from_str(raw.get()));
    element.map_err(|error| Error::internal("encoding an answer", error))
}
