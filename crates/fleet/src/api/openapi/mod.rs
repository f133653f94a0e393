//! The OpenAPI document of a kind's public API, made from the table of routes and the kind's file.

mod schemas;

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

use super::guard::Guard;
use super::router::{Route, TABLE};
use crate::Fleet;
use crate::model::kind::{Extra, Kind};
use schemas::{instance_name, reference};

static SHARED: LazyLock<Value> = LazyLock::new(|| {
    serde_yaml_ng::from_str(include_str!("shared.yaml")).expect("a test reads it, too")
});

/// The documents of all kinds: name, and where each is served.
pub fn documents(fleet: &Fleet) -> Vec<(String, String)> {
    let catalogue = fleet.catalogue();
    let of = |kind: &Arc<Kind>| (kind.file.title.clone(), format!("{}/v1/openapi", kind.prefix));
    catalogue.kinds.values().map(of).collect()
}

pub fn document(kind: &Kind) -> Value {
    let title = &kind.file.title;
    let mut paths = Map::new();
    for (method, path, guard, route, extra) in TABLE {
        if extra.is_some_and(|extra| !kind.has(extra)) {
            continue;
        }
        let Some(operation) = operation(kind, *route) else { continue };
        let (path, named) = documented(kind, path, *route);
        let item = paths.entry(path).or_insert_with(|| json!({}));
        item[method.to_lowercase()] = operation.written(&named, *guard);
    }
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
            "schemas": schemas::all(kind, &SHARED),
            "parameters": SHARED["parameters"],
            "securitySchemes": SHARED["securitySchemes"],
        },
    })
}

const CLUSTERS: &str = "enterprise-dataplane-clusters";

/// A path with the names of what stands for something, and those names.
fn documented(kind: &Kind, path: &[&str], route: Route) -> (String, Vec<&'static str>) {
    let mut names = match route {
        Route::InstanceTypes => vec!["cloud_provider", "cloud_region"],
        _ => vec!["id"],
    }
    .into_iter();
    let mut used = Vec::new();
    let mut text = kind.prefix.clone();
    for segment in path {
        text.push('/');
        match *segment {
            "@" => text.push_str(&kind.file.plural),
            "-" => {
                let name = names.next().unwrap_or("id");
                used.push(name);
                text.push_str(&format!("{{{name}}}"));
            }
            plain => text.push_str(plain),
        }
    }
    (text, used)
}

struct Operation {
    id: String,
    about: String,
    tag: Option<&'static str>,
    /// Names of parameters of the query.
    query: Vec<&'static str>,
    body: Option<String>,
    /// The status of success, and what comes with it.
    answer: (u16, Option<Value>),
    errors: &'static [u16],
}

const READ: &[u16] = &[401, 500];
const FOUND: &[u16] = &[401, 403, 404, 500];
const LISTED: &[u16] = &[400, 401, 403, 500];
const WRITTEN: &[u16] = &[400, 401, 403, 404, 500];
const CREATED: &[u16] = &[400, 401, 403, 404, 409, 500];

/// What is documented of a route; nothing of what is not for the public.
fn operation(kind: &Kind, route: Route) -> Option<Operation> {
    let title = &kind.file.title;
    let plural = capitalised(&kind.file.plural);
    let instance = || Some(reference(instance_name(kind)));
    let error = || Some(reference("Error"));
    let of = |name: &str| Some(reference(name));
    let op = |id: &str, about: &str, answer: (u16, Option<Value>), errors| Operation {
        id: id.into(),
        about: about.into(),
        tag: None,
        query: Vec::new(),
        body: None,
        answer,
        errors,
    };
    Some(match route {
        Route::Version => {
            op("getVersionMetadata", "The version of the API", (200, of("VersionMetadata")), &[])
        }
        Route::Errors => {
            op("getErrors", "All errors that there are", (200, of("ErrorList")), &[]).tag("errors")
        }
        Route::OneError => op("getErrorById", "An error", (200, error()), &[404]).tag("errors"),
        Route::SsoProviders => {
            op("getSsoProviders", "Where to sign in", (200, of("SsoProvider")), READ)
                .tag("security")
        }
        Route::Status => op(
            "getServiceStatus",
            "Whether there is room for more",
            (200, of("ServiceStatus")),
            READ,
        ),
        Route::List => op(
            &format!("get{plural}"),
            &format!("A list of {title} instances"),
            (200, of(&kind.file.list)),
            LISTED,
        )
        .query(&["page", "size", "orderBy", "search", "watch", "wait", "after"]),
        Route::Create => {
            op(&format!("create{title}"), &format!("Creates a {title}"), (202, instance()), CREATED)
                .query(&["async"])
                .body(format!("{title}RequestPayload"))
        }
        Route::Get => {
            op(&format!("get{title}ById"), &format!("A {title}"), (200, instance()), FOUND)
        }
        Route::Patch => op(
            &format!("update{title}ById"),
            &format!("Changes a {title}"),
            (200, instance()),
            WRITTEN,
        )
        .body(format!("{title}UpdateRequest")),
        Route::Delete => op(
            &format!("delete{title}ById"),
            &format!("Deletes a {title}"),
            (202, error()),
            WRITTEN,
        )
        .query(&["async"]),
        Route::Promote => {
            op(&format!("promote{title}"), "Changes its billing model", (202, None), CREATED)
                .query(&["async"])
                .body(format!("{title}PromoteRequest"))
        }
        Route::Query => {
            let list = of("MetricsInstantQueryList");
            op("getMetricsByInstantQuery", "Its metrics", (200, list), FOUND).query(&["filters"])
        }
        Route::QueryRange => {
            let list = of("MetricsRangeQueryList");
            op("getMetricsByRangeQuery", "Its metrics over a while", (200, list), WRITTEN)
                .query(&["duration", "interval", "filters"])
        }
        Route::Federate => op(
            "federateMetrics",
            "Its metrics, for a Prometheus",
            (200, Some(json!({ "type": "string" }))),
            WRITTEN,
        ),
        Route::Providers => op("getCloudProviders", "Clouds", (200, of("CloudProviderList")), READ)
            .query(&["page", "size"]),
        Route::Regions => {
            let regions = op(
                "getCloudProviderRegions",
                "Regions of a cloud",
                (200, of("CloudRegionList")),
                READ,
            );
            if kind.has(Extra::InstanceTypes) {
                regions.query(&["page", "size"])
            } else {
                regions.query(&["page", "size", "instance_type"])
            }
        }
        Route::InstanceTypes => op(
            "getInstanceTypesByCloudProviderAndRegion",
            "What can be had in a region",
            (200, of(&format!("Supported{title}InstanceTypesList"))),
            LISTED,
        ),
        Route::Accounts => {
            op("getServiceAccounts", "Service accounts", (200, of("ServiceAccountList")), LISTED)
                .query(&["client_id"])
                .tag("security")
        }
        Route::AccountCreate => {
            let about = "Creates a service account";
            op("createServiceAccount", about, (202, of("ServiceAccount")), LISTED)
                .body("ServiceAccountRequest".into())
                .tag("security")
        }
        Route::AccountGet => {
            op("getServiceAccountById", "A service account", (200, of("ServiceAccount")), WRITTEN)
                .tag("security")
        }
        Route::AccountDelete => {
            op("deleteServiceAccountById", "Deletes a service account", (204, None), WRITTEN)
                .tag("security")
        }
        Route::AccountReset => {
            let about = "A new secret for a service account";
            op("resetServiceAccountCreds", about, (200, of("ServiceAccount")), WRITTEN)
                .tag("security")
        }
        Route::Clusters => {
            let list = of("EnterpriseClusterList");
            op("getEnterpriseOsdClusters", "Own clusters", (200, list), LISTED).tag(CLUSTERS)
        }
        Route::ClusterCreate => {
            let answer = of("EnterpriseClusterRegistrationResponse");
            op(
                "registerEnterpriseOsdCluster",
                "Registers a cluster",
                (200, answer),
                &[400, 401, 403, 409, 500],
            )
            .body("EnterpriseOsdClusterPayload".into())
            .tag(CLUSTERS)
        }
        Route::ClusterGet => {
            let answer = of("EnterpriseCluster");
            op("getEnterpriseClusterById", "A cluster", (200, answer), FOUND).tag(CLUSTERS)
        }
        Route::ClusterDelete => {
            op("deleteEnterpriseClusterById", "Gives a cluster up", (202, error()), WRITTEN)
                .query(&["async"])
                .tag(CLUSTERS)
        }
        Route::AddonParameters => {
            let answer = of("EnterpriseClusterAddonParameters");
            let about = "What the agent of a cluster is given";
            op("getEnterpriseClusterAddonParameters", about, (200, answer), FOUND).tag(CLUSTERS)
        }
        Route::Root
        | Route::Openapi
        | Route::AgentConfig
        | Route::AgentStatus
        | Route::AgentList
        | Route::AgentReport
        | Route::ObsProxy
        | Route::AdminList
        | Route::AdminGet
        | Route::AdminPatch
        | Route::AdminDelete
        | Route::AdminRevoke => return None,
    })
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

impl Operation {
    fn tag(mut self, tag: &'static str) -> Operation {
        self.tag = Some(tag);
        self
    }

    fn query(mut self, names: &[&'static str]) -> Operation {
        self.query = names.to_vec();
        self
    }

    fn body(mut self, schema: String) -> Operation {
        self.body = Some(schema);
        self
    }

    fn written(self, path: &[&str], guard: Guard) -> Value {
        let in_path = path.iter().map(|name| match *name {
            "id" => json!({ "$ref": "#/components/parameters/id" }),
            name => {
                json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
            }
        });
        let in_query = self.query.iter().map(|name| match *name {
            "async" => json!({
                "name": "async", "in": "query", "required": true, "schema": { "type": "boolean" },
                "description": "Must be true: the answer comes before the deed",
            }),
            "client_id" => json!({
                "name": "client_id", "in": "query", "required": false, "schema": { "type": "string" },
                "description": "Only the one with this client id",
            }),
            name => json!({ "$ref": format!("#/components/parameters/{name}") }),
        });
        let parameters: Vec<Value> = in_path.chain(in_query).collect();
        let content = |schema: &Value| {
            let of = if schema["type"] == "string" { "text/plain" } else { "application/json" };
            json!({ of: { "schema": schema } })
        };
        let mut responses = Map::new();
        let (status, schema) = &self.answer;
        let mut answer = json!({ "description": self.about });
        if let Some(schema) = schema {
            answer["content"] = content(schema);
        }
        responses.insert(status.to_string(), answer);
        for status in self.errors {
            let error = json!({
                "description": meaning(*status), "content": content(&reference("Error")),
            });
            responses.insert(status.to_string(), error);
        }
        let mut operation = json!({ "operationId": self.id, "summary": self.about });
        if let Some(tag) = self.tag {
            operation["tags"] = json!([tag]);
        }
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        if let Some(body) = &self.body {
            operation["requestBody"] =
                json!({ "required": true, "content": content(&reference(body)) });
        }
        operation["responses"] = responses.into();
        if guard != Guard::Anyone {
            operation["security"] = json!([{ "Bearer": [] }]);
        }
        operation
    }
}

fn meaning(status: u16) -> &'static str {
    match status {
        400 => "What was sent is wrong",
        401 => "The token is missing or wrong",
        403 => "Not allowed",
        404 => "There is no such thing",
        409 => "There is one already",
        _ => "An error of the server",
    }
}
