//! The OpenAPI document of the API, around the paths that the kernel writes from the routes.

use axum::http::Method;
use axum::response::Response;
use kernel::Result;
use kernel::http::Route;
use serde_json::{Map, Value, json};

use super::{AdvisorApi, Call, reply};

pub const PATH: &str = "/api/v1/advisor/openapi";

pub fn routes() -> Vec<Route<AdvisorApi>> {
    vec![Route::public(Method::GET, PATH, openapi)]
}

async fn openapi(call: Call) -> Result<Response> {
    Ok(reply::text(200, call.openapi()))
}

/// Returns the description of a parameter.
pub fn parameter(name: &str, in_path: bool) -> Value {
    let (place, description) = match name {
        _ if in_path => ("path", "The id"),
        "job_id" => ("query", "The id of a job"),
        "include" => (
            "query",
            "Parts that are shown, as in `summary|status|job_id,experiments`: summary, experiments, \
             metadata, webhook; after a `|` the members of a part",
        ),
        "exclude" => ("query", "Has no effect, as in the existing service"),
        "experiment_name" => ("query", "The name of an experiment"),
        "name" => ("query", "Only the one of this name"),
        "verbose" => ("query", "Whether all is shown, not only names"),
        "datasource" => ("query", "The name of a data source"),
        "latest" => ("query", "`false`: with earlier ones. Only the newest otherwise"),
        "recommendations" => ("query", "`true`: with what is recommended"),
        "results" => ("query", "`true`: with the results that were uploaded"),
        "rm" => ("query", "`true`: the experiments whose results are uploaded"),
        "monitoring_end_time" => ("query", "Only what is recommended as of this time"),
        "interval_end_time" => ("query", "The end of the 15 days that are read"),
        "interval_start_time" => ("query", "Is checked, and has no other effect"),
        _ => ("query", "See docs/advisor.md"),
    };
    json!({
        "name": name, "in": place, "required": in_path, "description": description,
        "schema": { "type": "string" },
    })
}

/// Returns the document with these paths.
pub fn document(paths: Map<String, Value>) -> Value {
    let text = json!({ "type": "string" });
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Right-sizing",
            "description": "Recommends CPU, memory and GPU of containers. Compatible with Kruize 0.10.",
            "version": kernel::telemetry::build::VERSION,
        },
        "servers": [{ "url": "/", "description": "This server" }],
        "paths": paths,
        "components": {
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["message", "httpcode", "documentationLink", "status"],
                    "properties": {
                        "message": text, "httpcode": { "type": "integer" },
                        "documentationLink": text, "status": text,
                    },
                },
                "Object": { "type": "object" },
                "Objects": { "type": "array", "items": { "type": "object" } },
            },
            "securitySchemes": { "Bearer": { "type": "http", "scheme": "bearer" } },
        },
    })
}
