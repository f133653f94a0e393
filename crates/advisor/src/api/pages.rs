//! What the pages of the existing service ask for: what runs in the Kubernetes around it, and whether
//! it is there.
//!
//! The cluster around this server belongs to no organisation, so only admins see it. Others are
//! answered as where there is none.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Method;
use axum::response::Response;
use kernel::http::{Operation, Route};
use kernel::identity::{Action, Principal};
use kernel::{Class, Error, Result};
use serde_json::{Map, Value, json};

use super::{AdvisorApi, Call, reply};

/// The workloads of `/query/listK8sObjects`.
const WORKLOADS: [&str; 3] = ["deployments", "statefulsets", "daemonsets"];

pub fn routes() -> Vec<Route<AdvisorApi>> {
    vec![
        Route::new(Method::GET, "/query/listNamespaces", Action::Read, namespaces).document(|_| {
            Operation::new(
                "listNamespaces",
                "Returns the namespaces of the cluster around this server",
            )
            .returns(200, "Object")
            .errors(&[401])
        }),
        Route::new(Method::GET, "/query/listDeployments", Action::Read, deployments).document(
            |_| {
                Operation::new("listDeployments", "Returns the deployments of a namespace")
                    .query(&["namespace"])
                    .returns(200, "Object")
                    .errors(&[401])
            },
        ),
        Route::new(Method::GET, "/query/listK8sObjects", Action::Read, objects).document(|_| {
            Operation::new("listK8sObjects", "Returns the workloads of a namespace by their kinds")
                .query(&["namespace"])
                .returns(200, "Object")
                .errors(&[401])
        }),
        Route::public(Method::GET, "/health", up),
        Route::new(Method::GET, "/listExperimentTrial", Action::Read, async |call, _| {
            up(call).await
        }),
        Route::new(Method::GET, "/listTrialStatus", Action::Read, async |_, _| {
            Ok(reply::json(201, &json!({})))
        }),
        Route::new(Method::POST, "/createExperimentTrial", Action::Write, async |_, _| {
            let why =
                "experiment trials are not run here: recommendations come from what was measured";
            Err(Error::coded(400, Class::Invalid, why))
        }),
    ]
}

async fn up(_: Call) -> Result<Response> {
    Ok(Response::new(Body::from("UP\n")))
}

async fn namespaces(call: Call, who: Arc<Principal>) -> Result<Response> {
    let found = if who.is_admin() { call.cluster.namespaces().await? } else { None };
    let found = found.map(|names| json!({ "data": { "namespaces": names } }));
    Ok(found.map_or_else(|| Response::new(Body::empty()), |found| reply::json(200, &found)))
}

async fn deployments(call: Call, who: Arc<Principal>) -> Result<Response> {
    workloads(&call, &who, &WORKLOADS[..1]).await
}

async fn objects(call: Call, who: Arc<Principal>) -> Result<Response> {
    workloads(&call, &who, &WORKLOADS).await
}

/// The names of workloads by their kinds; nothing without a namespace.
async fn workloads(call: &Call, who: &Principal, plurals: &[&str]) -> Result<Response> {
    let namespace = call.query("namespace").filter(|name| !name.is_empty() && who.is_admin());
    let Some(namespace) = namespace else { return Ok(reply::text(200, Body::empty())) };
    let mut found = Map::new();
    for plural in plurals {
        let Some(names) = call.cluster.workloads(plural, &namespace).await? else {
            return Ok(reply::text(200, Body::empty()));
        };
        found.insert((*plural).to_owned(), names.into());
    }
    Ok(reply::json(200, &json!({ "data": Value::from(found) })))
}
