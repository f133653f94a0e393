//! The OpenAPI document of a kind's API, around the paths that the kernel writes from the routes.

mod schemas;

use serde_json::{Map, Value, json};

use crate::model::kind::{Extra, Kind};
pub use schemas::instance_name;

/// The tag of the routes of an organisation's own clusters.
pub const CLUSTERS: &str = "enterprise-dataplane-clusters";

/// Returns the document of a kind with these paths.
pub fn document(kind: &Kind, paths: Map<String, Value>) -> Value {
    let title = &kind.file.title;
    let shared = schemas::shared(kind);
    let tags = [
        (true, "errors", "Errors returned by the API"),
        (kind.has(Extra::ServiceAccounts), "security", "Service accounts, and who signs in"),
        (kind.has(Extra::Clusters), CLUSTERS, "An organisation's own clusters"),
    ];
    let tags = tags.into_iter().filter(|(has, _, _)| *has);
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": format!("{title} Management API"),
            "description": format!("{title} Management API is a REST API to manage {title} instances"),
            "version": kernel::telemetry::build::VERSION,
        },
        "servers": [{ "url": "/", "description": "current domain" }],
        "tags": tags.map(|(_, name, about)| json!({ "name": name, "description": about })).collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "schemas": schemas::all(kind, &shared),
            "parameters": shared["parameters"],
            "securitySchemes": shared["securitySchemes"],
        },
    })
}

/// Returns the description of a parameter; most are shared by all routes.
pub fn parameter(name: &str, in_path: bool) -> Value {
    match name {
        "async" => json!({
            "name": "async", "in": "query", "required": true, "schema": { "type": "boolean" },
            "description": "Must be true: the answer comes before the deed",
        }),
        "client_id" => json!({
            "name": "client_id", "in": "query", "required": false, "schema": { "type": "string" },
            "description": "Only the one with this client id",
        }),
        name if in_path && name != "id" => {
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
        }
        name => json!({ "$ref": format!("#/components/parameters/{name}") }),
    }
}
