//! Profiles and layers, as the existing service has them.

use std::sync::Arc;

use axum::http::Method;
use axum::response::Response;
use kernel::http::{Operation, Route, parse_json};
use kernel::identity::{Action, Principal};
use kernel::{Class, Error, Result};
use serde_json::{Value, json};

use super::{AdvisorApi, Call, execute, reply};
use crate::commands::{Declare, Verb, title, unknown};
use crate::model::declared::{Declared, Sort};
use crate::model::tenant::Tenant;
use crate::ports::prometheus::profile::Profile;
use crate::store;

/// The document of a route that writes, and of one that lists.
macro_rules! operation {
    ($id:literal, $summary:literal, $($query:literal)?) => {
        |_| {
            Operation::new($id, $summary)
                .query(&[$($query)?])
                .body("Object")
                .returns(201, "Object")
                .errors(&[400, 401, 409])
        }
    };
    (list $id:literal, $summary:literal) => {
        |_| {
            Operation::new($id, $summary)
                .query(&["name", "verbose"])
                .returns(200, "Objects")
                .errors(&[400, 401])
        }
    };
}

pub fn routes() -> Vec<Route<AdvisorApi>> {
    use Sort::{Layer, Metadata, Metric, Performance};
    vec![
        creating("/createMetricProfile", Metric)
            .document(operation!("createMetricProfile", "Declares how containers are measured",)),
        creating("/createMetadataProfile", Metadata)
            .document(operation!("createMetadataProfile", "Declares how containers are found",)),
        creating("/createPerformanceProfile", Performance)
            .document(operation!("createPerformanceProfile", "Declares how results are read",)),
        creating("/createLayer", Layer)
            .document(operation!("createLayer", "Declares a language runtime or framework",)),
        listing("/listMetricProfiles", Metric)
            .document(operation!(list "listMetricProfiles", "Returns the metric profiles")),
        listing("/listMetadataProfiles", Metadata)
            .document(operation!(list "listMetadataProfiles", "Returns the metadata profiles")),
        listing("/listPerformanceProfiles", Performance).document(
            operation!(list "listPerformanceProfiles", "Returns the performance profiles"),
        ),
        listing("/listLayers", Layer).document(operation!(list "listLayers", "Returns the layers")),
        updating("/updateMetadataProfile", Metadata).document(operation!(
            "updateMetadataProfile",
            "Replaces a metadata profile",
            "name"
        )),
        updating("/updatePerformanceProfile", Performance)
            .document(operation!("updatePerformanceProfile", "Replaces a performance profile",)),
        deleting("/deleteMetricProfile", Metric).document(operation!(
            "deleteMetricProfile",
            "Deletes a metric profile",
            "name"
        )),
        deleting("/deleteMetadataProfile", Metadata).document(operation!(
            "deleteMetadataProfile",
            "Deletes a metadata profile",
            "name"
        )),
        deleting("/deletePerformanceProfile", Performance).document(operation!(
            "deletePerformanceProfile",
            "Deletes a performance profile",
            "name"
        )),
    ]
}

fn creating(path: &'static str, sort: Sort) -> Route<AdvisorApi> {
    Route::new(Method::POST, path, Action::Write, move |call, _| create(call, sort))
}

fn listing(path: &'static str, sort: Sort) -> Route<AdvisorApi> {
    Route::new(Method::GET, path, Action::Read, move |call, who| list(call, who, sort))
}

fn updating(path: &'static str, sort: Sort) -> Route<AdvisorApi> {
    Route::new(Method::PUT, path, Action::Write, move |call, who| update(call, who, sort))
}

fn deleting(path: &'static str, sort: Sort) -> Route<AdvisorApi> {
    Route::new(Method::DELETE, path, Action::Write, move |call, _| delete(call, sort))
}

/// Carries out a command about a document; returns its name and itself.
async fn declare(call: &Call, sort: Sort, verb: Verb, body: &Value) -> Result<Declared> {
    let (_, object) = execute(call, &Declare::name_of(sort, verb), None, body).await?;
    serde_json::from_value(object["spec"].clone())
        .map_err(|error| Error::internal("the reply of a command", error))
}

async fn create(mut call: Call, sort: Sort) -> Result<Response> {
    let body = call.bytes().await?;
    let created = declare(&call, sort, Verb::Create, &parse_json(&body)?).await?;
    let message =
        format!("{} : {} created successfully. {}", title(sort), created.name, view(sort));
    Ok(reply::success(201, &message))
}

async fn update(mut call: Call, who: Arc<Principal>, sort: Sort) -> Result<Response> {
    let body = call.bytes().await?;
    let document: Value = parse_json(&body)?;
    if sort == Sort::Metadata {
        let wanted = name(&call, sort)?;
        let tenant = Tenant::of(&who);
        let store = call.app.store.as_ref();
        let found = store::named::<Declared>(store, tenant, sort.label(), &wanted).await?;
        let found = found.ok_or_else(|| unknown(sort, &wanted))?;
        if document["metadata"]["name"] != found.name {
            let why = format!("must be `{wanted}`, as in the query");
            return Err(Error::invalid("metadata.name", why));
        }
    }
    let updated = declare(&call, sort, Verb::Update, &document).await?;
    let name = updated.name;
    let message = if sort == Sort::Performance {
        let version = updated.document["profile_version"].as_f64().unwrap_or(1.0);
        let title = title(sort);
        format!("{title} : {name} updated successfully to version {version:.1}. {}", view(sort))
    } else {
        format!("{}: {name} updated successfully. {}", capital(sort), view(sort))
    };
    Ok(reply::success(201, &message))
}

async fn delete(call: Call, sort: Sort) -> Result<Response> {
    let name = name(&call, sort)?;
    declare(&call, sort, Verb::Delete, &json!({ "name": name })).await?;
    let message = format!("{}: {name} deleted successfully. {}", capital(sort), view(sort));
    Ok(reply::success(201, &message))
}

async fn list(call: Call, who: Arc<Principal>, sort: Sort) -> Result<Response> {
    let (store, tenant) = (call.app.store.as_ref(), Tenant::of(&who));
    if let Some(name) = call.query("name") {
        let own = store::named::<Declared>(store, tenant, sort.label(), &name).await?;
        let found = match own {
            Some(own) => Some(own.spec.document),
            None => built_in(sort, &name)?,
        };
        let found = found.ok_or_else(|| unknown(sort, &name))?;
        return Ok(reply::json(200, &[found]));
    }
    let all = store::all::<Declared>(store, tenant, sort.label()).await?;
    if all.is_empty() && sort != Sort::Performance {
        let plural = sort.plural().replace('-', " ");
        return Err(Error::coded(400, Class::Invalid, format!("No {plural} found!")));
    }
    let whole = matches!(sort, Sort::Performance | Sort::Layer)
        || call.query("verbose").is_some_and(|verbose| verbose.eq_ignore_ascii_case("true"));
    let shown: Vec<Value> = if whole {
        all.into_iter().map(|one| one.spec.document).collect()
    } else {
        all.into_iter().map(|one| json!({ "name": one.name })).collect()
    };
    Ok(reply::json(200, &shown))
}

/// A built-in profile, as one that was created is listed.
fn built_in(sort: Sort, name: &str) -> Result<Option<Value>> {
    let Some(document) = Profile::built_in(sort, name) else { return Ok(None) };
    Ok(Some(sort.read(document)?.document))
}

/// The parameter that names one.
fn name(call: &Call, sort: Sort) -> Result<String> {
    let name = call.query("name").filter(|name| !name.is_empty());
    name.ok_or_else(|| {
        let why = format!("Missing {} 'name' parameter", sort.words());
        Error::coded(400, Class::Invalid, why)
    })
}

fn capital(sort: Sort) -> String {
    let words = sort.words();
    let (first, rest) = words.split_at(1);
    first.to_uppercase() + rest
}

/// Where the existing service says that they can be seen.
fn view(sort: Sort) -> &'static str {
    match sort {
        Sort::Metric => "View Metric Profiles at /listMetricProfiles",
        Sort::Metadata => "View Metadata Profiles at /listMetadataProfiles",
        Sort::Performance => "View all performance profiles at /listPerformanceProfiles",
        Sort::Layer => "View Layers at /listLayers",
    }
}
