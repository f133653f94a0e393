//! The route table of every kind's API: one row for each route, with its action, its handler and
//! its document. Rows without a document are not part of the published contract.

use axum::http::Method;
use kernel::http::{Operation, REPORT_BYTES_MAX, Route};
use kernel::identity::Action;
use serde_json::json;

use super::kind_api::KindApi;
use super::openapi::{CLUSTERS, instance_name};
use super::public::{accounts, catalogue, clusters, errors, instances, metrics, watch};
use super::{admin, agent};
use crate::model::kind::Extra;

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

/// Statuses of the documented errors.
const READ: &[u16] = &[401, 500];
const FOUND: &[u16] = &[401, 403, 404, 500];
const LISTED: &[u16] = &[400, 401, 403, 500];
const WRITTEN: &[u16] = &[400, 401, 403, 404, 500];
const CREATED: &[u16] = &[400, 401, 403, 404, 409, 500];

type Rows = Vec<Route<KindApi>>;

pub fn routes() -> Vec<Route<KindApi>> {
    let groups: [Rows; 7] = [
        service_routes(),
        instance_routes(),
        catalogue_routes(),
        account_routes(),
        cluster_routes(),
        agent_routes(),
        admin_routes(),
    ];
    groups.into_iter().flatten().collect()
}

fn service_routes() -> Rows {
    vec![
        Route::public(GET, "", catalogue::root),
        Route::public(GET, "/v1", catalogue::version).document(|_| {
            Operation::new("getVersionMetadata", "Returns the version of the API")
                .returns(200, "VersionMetadata")
        }),
        Route::public(GET, "/v1/openapi", catalogue::openapi),
        Route::public(GET, "/v1/errors", errors::list).document(|_| {
            Operation::new("getErrors", "Returns the list of errors")
                .returns(200, "ErrorList")
                .tag("errors")
        }),
        Route::public(GET, "/v1/errors/{id}", errors::get).document(|_| {
            let operation =
                Operation::new("getErrorById", "Returns an error").returns(200, "Error");
            operation.errors(&[404]).tag("errors")
        }),
        Route::public(GET, "/v1/sso_providers", catalogue::sso_providers)
            .only_if(|api| api.kind.has(Extra::SsoProviders))
            .document(|_| {
                Operation::new("getSsoProviders", "Returns the sign-in provider")
                    .returns(200, "SsoProvider")
                    .errors(READ)
                    .tag("security")
            }),
        Route::new(GET, "/v1/status", Action::Read, catalogue::status)
            .only_if(|api| api.kind.has(Extra::Status))
            .document(|_| {
                Operation::new("getServiceStatus", "Returns whether the capacity is exhausted")
                    .returns(200, "ServiceStatus")
                    .errors(READ)
            }),
    ]
}

fn instance_routes() -> Rows {
    vec![
        Route::new(GET, "/v1/{plural}", Action::OrgUser, watch::list_or_watch).document(|api| {
            let (plural, title) = (capitalised(&api.kind.file.plural), &api.kind.file.title);
            Operation::new(format!("get{plural}"), format!("Returns a list of {title} instances"))
                .query(&["page", "size", "orderBy", "search", "watch", "wait", "after"])
                .returns(200, &api.kind.file.list)
                .errors(LISTED)
        }),
        Route::new(POST, "/v1/{plural}", Action::OrgUser, instances::create).document(|api| {
            let title = &api.kind.file.title;
            Operation::new(format!("create{title}"), format!("Creates a {title}"))
                .query(&["async"])
                .body(format!("{title}RequestPayload"))
                .returns(202, instance_name(&api.kind))
                .errors(CREATED)
        }),
        Route::new(GET, "/v1/{plural}/{id}", Action::OrgUser, instances::get).document(|api| {
            let title = &api.kind.file.title;
            Operation::new(format!("get{title}ById"), format!("Returns a {title}"))
                .returns(200, instance_name(&api.kind))
                .errors(FOUND)
        }),
        Route::new(PATCH, "/v1/{plural}/{id}", Action::OrgUser, instances::patch).document(|api| {
            let title = &api.kind.file.title;
            Operation::new(format!("update{title}ById"), format!("Updates a {title}"))
                .body(format!("{title}UpdateRequest"))
                .returns(200, instance_name(&api.kind))
                .errors(WRITTEN)
        }),
        Route::new(DELETE, "/v1/{plural}/{id}", Action::OrgUser, instances::delete).document(
            |api| {
                let title = &api.kind.file.title;
                Operation::new(format!("delete{title}ById"), format!("Deletes a {title}"))
                    .query(&["async"])
                    .returns(202, "Error")
                    .errors(WRITTEN)
            },
        ),
        Route::new(POST, "/v1/{plural}/{id}/promote", Action::OrgUser, instances::promote)
            .only_if(|api| api.kind.has(Extra::Promote))
            .document(|api| {
                let title = &api.kind.file.title;
                Operation::new(format!("promote{title}"), "Changes the billing model")
                    .query(&["async"])
                    .body(format!("{title}PromoteRequest"))
                    .returns_value(202, None)
                    .errors(CREATED)
            }),
        Route::new(GET, "/v1/{plural}/{id}/metrics/query", Action::OrgUser, metrics::query)
            .document(|_| {
                Operation::new("getMetricsByInstantQuery", "Returns current metrics")
                    .query(&["filters"])
                    .returns(200, "MetricsInstantQueryList")
                    .errors(FOUND)
            }),
        Route::new(
            GET,
            "/v1/{plural}/{id}/metrics/query_range",
            Action::OrgUser,
            metrics::query_range,
        )
        .document(|_| {
            Operation::new("getMetricsByRangeQuery", "Returns metrics over a time range")
                .query(&["duration", "interval", "filters"])
                .returns(200, "MetricsRangeQueryList")
                .errors(WRITTEN)
        }),
        Route::new(GET, "/v1/{plural}/{id}/metrics/federate", Action::OrgMember, metrics::federate)
            .document(|_| {
                Operation::new("federateMetrics", "Returns metrics for Prometheus")
                    .returns_value(200, Some(json!({ "type": "string" })))
                    .errors(WRITTEN)
            }),
    ]
}

fn catalogue_routes() -> Rows {
    vec![
        Route::new(GET, "/v1/cloud_providers", Action::Read, catalogue::providers).document(|_| {
            Operation::new("getCloudProviders", "Returns the cloud providers")
                .query(&["page", "size"])
                .returns(200, "CloudProviderList")
                .errors(READ)
        }),
        Route::new(GET, "/v1/cloud_providers/{id}/regions", Action::Read, catalogue::regions)
            .document(|api| {
                let operation =
                    Operation::new("getCloudProviderRegions", "Returns the regions of a cloud")
                        .returns(200, "CloudRegionList")
                        .errors(READ);
                if api.kind.has(Extra::InstanceTypes) {
                    operation.query(&["page", "size"])
                } else {
                    operation.query(&["page", "size", "instance_type"])
                }
            }),
        Route::new(
            GET,
            "/v1/instance_types/{cloud_provider}/{cloud_region}",
            Action::OrgUser,
            catalogue::instance_types,
        )
        .only_if(|api| api.kind.has(Extra::InstanceTypes))
        .document(|api| {
            let (id, title) = ("getInstanceTypesByCloudProviderAndRegion", &api.kind.file.title);
            Operation::new(id, "Returns the instance types and sizes of a region")
                .returns(200, &format!("Supported{title}InstanceTypesList"))
                .errors(LISTED)
        }),
    ]
}

fn account_routes() -> Rows {
    let rows = vec![
        Route::new(GET, "/v1/service_accounts", Action::OrgUser, accounts::list).document(|_| {
            Operation::new("getServiceAccounts", "Returns the service accounts")
                .query(&["client_id"])
                .returns(200, "ServiceAccountList")
                .errors(LISTED)
                .tag("security")
        }),
        Route::new(POST, "/v1/service_accounts", Action::OrgUser, accounts::create).document(
            |_| {
                Operation::new("createServiceAccount", "Creates a service account")
                    .body("ServiceAccountRequest")
                    .returns(202, "ServiceAccount")
                    .errors(LISTED)
                    .tag("security")
            },
        ),
        Route::new(GET, "/v1/service_accounts/{id}", Action::OrgUser, accounts::get).document(
            |_| {
                Operation::new("getServiceAccountById", "Returns a service account")
                    .returns(200, "ServiceAccount")
                    .errors(WRITTEN)
                    .tag("security")
            },
        ),
        Route::new(DELETE, "/v1/service_accounts/{id}", Action::OrgUser, accounts::delete)
            .document(|_| {
                Operation::new("deleteServiceAccountById", "Deletes a service account")
                    .returns_value(204, None)
                    .errors(WRITTEN)
                    .tag("security")
            }),
        Route::new(
            POST,
            "/v1/service_accounts/{id}/reset_credentials",
            Action::OrgUser,
            accounts::reset,
        )
        .document(|_| {
            Operation::new("resetServiceAccountCreds", "Resets the secret of a service account")
                .returns(200, "ServiceAccount")
                .errors(WRITTEN)
                .tag("security")
        }),
    ];
    rows.into_iter().map(|row| row.only_if(|api| api.kind.has(Extra::ServiceAccounts))).collect()
}

fn cluster_routes() -> Rows {
    let rows = vec![
        Route::new(GET, "/v1/clusters", Action::OrgUser, clusters::list).document(|_| {
            Operation::new("getEnterpriseOsdClusters", "Returns the clusters of the organisation")
                .returns(200, "EnterpriseClusterList")
                .errors(LISTED)
                .tag(CLUSTERS)
        }),
        Route::new(POST, "/v1/clusters", Action::OrgUser, clusters::create).document(|_| {
            Operation::new("registerEnterpriseOsdCluster", "Registers a cluster")
                .body("EnterpriseOsdClusterPayload")
                .returns(200, "EnterpriseClusterRegistrationResponse")
                .errors(&[400, 401, 403, 409, 500])
                .tag(CLUSTERS)
        }),
        Route::new(GET, "/v1/clusters/{id}", Action::OrgUser, clusters::get).document(|_| {
            Operation::new("getEnterpriseClusterById", "Returns a cluster")
                .returns(200, "EnterpriseCluster")
                .errors(FOUND)
                .tag(CLUSTERS)
        }),
        Route::new(DELETE, "/v1/clusters/{id}", Action::OrgUser, clusters::delete).document(|_| {
            Operation::new("deleteEnterpriseClusterById", "Deregisters a cluster")
                .query(&["async"])
                .returns(202, "Error")
                .errors(WRITTEN)
                .tag(CLUSTERS)
        }),
        Route::new(
            GET,
            "/v1/clusters/{id}/addon_parameters",
            Action::OrgUser,
            clusters::addon_parameters,
        )
        .document(|_| {
            let id = "getEnterpriseClusterAddonParameters";
            Operation::new(id, "Returns the parameters of a cluster's agent")
                .returns(200, "EnterpriseClusterAddonParameters")
                .errors(FOUND)
                .tag(CLUSTERS)
        }),
    ];
    rows.into_iter().map(|row| row.only_if(|api| api.kind.has(Extra::Clusters))).collect()
}

fn agent_routes() -> Rows {
    vec![
        Route::new(GET, "/v1/agent-clusters/{cluster}", Action::Agent, agent::config),
        Route::new(PUT, "/v1/agent-clusters/{cluster}/status", Action::Agent, agent::status),
        Route::new(
            GET,
            "/v1/agent-clusters/{cluster}/{plural}",
            Action::Agent,
            watch::agent_list_or_watch,
        ),
        Route::new(
            PUT,
            "/v1/agent-clusters/{cluster}/{plural}/status",
            Action::Agent,
            agent::report,
        )
        .body_bytes_max(REPORT_BYTES_MAX),
        Route::new(POST, "/v1/obs-proxy-verification/{id}", Action::Agent, agent::verify)
            .only_if(|api| api.kind.has(Extra::ObsProxy)),
    ]
}

fn admin_routes() -> Rows {
    vec![
        Route::new(GET, "/v1/admin/{plural}", Action::AdminRead, admin::list),
        Route::new(GET, "/v1/admin/{plural}/{id}", Action::AdminRead, admin::get),
        Route::new(PATCH, "/v1/admin/{plural}/{id}", Action::AdminWrite, admin::patch),
        Route::new(DELETE, "/v1/admin/{plural}/{id}", Action::AdminFull, admin::delete),
        Route::new(
            POST,
            "/v1/admin/{plural}/{id}/revoke_tls_certificate",
            Action::AdminFull,
            admin::revoke,
        )
        .only_if(|api| api.kind.has(Extra::RevokeCertificate)),
    ]
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}
