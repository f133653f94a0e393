//! Data sources: `/datasources` as the existing service has it, and what it lacks: to create, replace
//! and delete them. Their secrets are never shown.

use std::sync::Arc;

use axum::http::Method;
use axum::response::Response;
use kernel::http::{Operation, Route, parse_json};
use kernel::identity::{Action, Principal};
use kernel::typed::Typed;
use kernel::{Class, Error, Object, Result};
use serde_json::{Value, json};

use super::{AdvisorApi, Call, execute, reply};
use crate::model::tenant::Tenant;
use crate::model::user_source::{DATASOURCE, SourceSpec};
use crate::store;

const PATH: &str = "/api/v1/advisor/datasources/{name}";

pub fn routes() -> Vec<Route<AdvisorApi>> {
    vec![
        Route::new(Method::GET, "/datasources", Action::Read, list).document(|_| {
            Operation::new("listDatasources", "Returns the data sources, without their secrets")
                .query(&["name"])
                .returns(200, "Object")
                .errors(&[400, 401])
        }),
        Route::new(Method::PUT, PATH, Action::Write, put).document(|_| {
            Operation::new("putDatasource", "Creates a data source, or replaces all of it")
                .body("Object")
                .returns(200, "Object")
                .errors(&[400, 401, 403, 409])
        }),
        Route::new(Method::DELETE, PATH, Action::Write, delete).document(|_| {
            Operation::new("deleteDatasource", "Deletes a data source with its secrets")
                .returns(200, "Object")
                .errors(&[401, 403, 404, 409])
        }),
    ]
}

async fn list(call: Call, who: Arc<Principal>) -> Result<Response> {
    let mut found: Vec<(String, Value)> = Vec::new();
    for (name, configured) in &call.config.datasources {
        let authentication = configured.authentication.label();
        found.push((name.clone(), shown(name, "prometheus", &configured.url, authentication)));
    }
    if !who.org.is_empty() {
        let tenant = Tenant { org: &who.org, owner: "" };
        for made in store::all::<SourceSpec>(call.app.store.as_ref(), tenant, DATASOURCE).await? {
            // The configuration may have taken the name since.
            if !call.config.datasources.contains_key(&made.name) {
                found.push((made.name.clone(), of(&made)));
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    if let Some(wanted) = call.query("name") {
        found.retain(|(name, _)| *name == wanted);
        if found.is_empty() {
            let why =
                format!("Given datasource name - {wanted} either does not exist or is not valid");
            return Err(Error::coded(400, Class::Invalid, why));
        }
    }
    let found: Vec<Value> = found.into_iter().map(|(_, shown)| shown).collect();
    Ok(reply::json(200, &json!({ "version": "v1.0", "datasources": found })))
}

/// As the existing service shows it.
fn shown(name: &str, provider: &str, url: &str, authentication: &str) -> Value {
    json!({
        "name": name,
        "provider": provider,
        "url": url,
        "authenticationConfig": { "type": authentication.to_uppercase() },
    })
}

fn of(made: &Typed<SourceSpec>) -> Value {
    let SourceSpec { provider, url, authentication, .. } = &made.spec;
    shown(&made.name, provider, url, authentication)
}

async fn put(mut call: Call, _: Arc<Principal>) -> Result<Response> {
    let body = call.bytes().await?;
    let mut source: Value = parse_json(&body)?;
    let name = call.param("name");
    if let Some(fields) = source.as_object_mut() {
        let given = fields.entry("name").or_insert_with(|| name.into());
        if given != name {
            let why = format!("must be `{name}`, as in the path, or be left out");
            return Err(Error::invalid("name", why));
        }
    }
    let (status, object) = execute(&call, "datasource.put", None, &source).await?;
    let object: Object = serde_json::from_value(object)
        .map_err(|error| Error::internal("the reply of a command", error))?;
    Ok(reply::json(status, &of(&Typed::from_object(&object)?)))
}

async fn delete(call: Call, _: Arc<Principal>) -> Result<Response> {
    let name = call.param("name");
    execute(&call, "datasource.delete", None, &json!({ "name": name })).await?;
    let message =
        format!("Datasource : {name} deleted successfully. View datasources at /datasources");
    Ok(reply::success(200, &message))
}
