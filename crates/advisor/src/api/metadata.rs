//! What runs in the cluster of a data source: imports, shows and deletes it.

use std::sync::Arc;

use axum::http::Method;
use axum::response::Response;
use kernel::http::{Operation, Route, parse_json};
use kernel::identity::{Action, Principal};
use kernel::{Class, Error, Result};
use serde_json::{Map, Value};

use super::{AdvisorApi, Call, execute, reply};
use crate::commands::Import;
use crate::model::inventory::CLUSTER;
use crate::model::metadata::{NotThere, Part};
use crate::model::tenant::Tenant;
use crate::store;

const PATH: &str = "/dsmetadata";

pub fn routes() -> Vec<Route<AdvisorApi>> {
    vec![
        Route::new(Method::POST, PATH, Action::Write, import).document(|_| {
            Operation::new("importMetadata", "Imports what runs in the cluster of a data source")
                .body("Object")
                .returns(201, "Object")
                .errors(&[400, 401])
        }),
        Route::new(Method::GET, PATH, Action::Read, get).document(|_| {
            Operation::new("listMetadata", "Returns what was imported")
                .query(&["datasource", "cluster_name", "namespace", "verbose"])
                .returns(200, "Object")
                .errors(&[400, 401])
        }),
        Route::new(Method::DELETE, PATH, Action::Write, delete).document(|_| {
            Operation::new("deleteMetadata", "Deletes what was imported")
                .body("Object")
                .returns(201, "Object")
                .errors(&[400, 401])
        }),
    ]
}

async fn import(mut call: Call, _: Arc<Principal>) -> Result<Response> {
    let body = call.bytes().await?;
    let request: Value = parse_json(&body)?;
    // The command checks it again; here the words are those of the existing service.
    Import::try_from(request.clone())?;
    let (status, object) = execute(&call, "metadata.import", None, &request).await?;
    let datasource = object["spec"]["datasource"].as_str().unwrap_or_default();
    let shown = Part::default().of(datasource, Map::new());
    let shown = shown.map_err(|_| Error::internal("metadata", "it has no cluster"))?;
    Ok(reply::json(status, &shown))
}

async fn get(call: Call, who: Arc<Principal>) -> Result<Response> {
    let given = |name: &str| call.query(name).filter(|value| !value.is_empty());
    let datasource =
        given("datasource").ok_or_else(|| refused("datasource is mandatory".to_owned()))?;
    let part = Part {
        cluster: given("cluster_name"),
        namespace: given("namespace"),
        verbose: given("verbose").is_some_and(|verbose| verbose.eq_ignore_ascii_case("true")),
    };
    let found = store::imported(&call.app, Tenant::of(&who), &datasource).await?;
    let invalid = "either does not exist or is not valid";
    let found = found.ok_or_else(|| {
        refused(format!("Metadata for a given datasource name - {datasource} {invalid}"))
    })?;
    let shown = part.of(&datasource, found).map_err(|missing| {
        let cluster = part.cluster.as_deref().unwrap_or(CLUSTER);
        let namespace = part.namespace.as_deref().unwrap_or_default();
        refused(match missing {
            NotThere::Cluster => format!(
                "Metadata for a given datasource name - {datasource}, cluster_name - {cluster} {invalid}"
            ),
            NotThere::Namespace => format!(
                "Metadata for a given datasource - {datasource}, cluster name - {cluster}, \
                 namespace - {namespace} {invalid}"
            ),
        })
    })?;
    Ok(reply::json(200, &shown))
}

async fn delete(mut call: Call, _: Arc<Principal>) -> Result<Response> {
    let body = call.bytes().await?;
    let (status, _) = execute(&call, "metadata.delete", None, &parse_json(&body)?).await?;
    let message =
        "Datasource metadata deleted successfully. View imported metadata at GET /dsmetadata";
    Ok(reply::success(status, message))
}

/// An error in the words of the existing service.
fn refused(why: String) -> Error {
    Error::coded(400, Class::Invalid, why)
}
