//! The account services behind the existing fleet manager's gateway, as far as its command line
//! calls them before a create: the caller's account, the terms to accept, and the quota.

use axum::Json;
use kernel::http::{PathId, Routes};
use kernel::identity::Action;
use kernel::{Error, Result};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::api::access::{self, User};
use crate::commands::instance_create as create;
use crate::model::kind::Billing;
use crate::model::quota::Quota;

pub fn routes() -> Routes {
    Routes::new()
        .route(Action::OrgUser, routes!(terms))
        .route(Action::OrgUser, routes!(account))
        .route(Action::OrgUser, routes!(quota))
        .deny_with(access::deny)
}

#[derive(Serialize, ToSchema)]
struct Review {
    account_id: String,
    organization_id: String,
    terms_available: bool,
    terms_required: bool,
    /// Where they are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    redirect_url: Option<String>,
}

/// Whether the caller has terms to accept first, which are the server's to choose
#[utoipa::path(post, path = "/api/authorizations/v1/self_terms_review", tag = "accounts",
    responses((status = 200, body = Review)))]
async fn terms(user: User) -> Result<Json<Review>> {
    let open = create::open_terms(&user.fleet, &user.who).await?;
    Ok(Json(Review {
        account_id: user.who.subject.clone(),
        organization_id: user.who.org.clone(),
        terms_available: open.is_some(),
        terms_required: open.is_some(),
        redirect_url: open.filter(|url| !url.is_empty()),
    }))
}

#[derive(Serialize, ToSchema)]
struct Organization {
    kind: &'static str,
    id: String,
    external_id: String,
    name: String,
}

#[derive(Serialize, ToSchema)]
struct Account {
    kind: &'static str,
    id: String,
    username: String,
    organization: Organization,
}

/// Who the caller is
#[utoipa::path(get, path = "/api/accounts_mgmt/v1/current_account", tag = "accounts",
    responses((status = 200, body = Account)))]
async fn account(user: User) -> Json<Account> {
    let (subject, org) = (&user.who.subject, &user.who.org);
    Json(Account {
        kind: "Account",
        id: subject.clone(),
        username: subject.clone(),
        organization: Organization {
            kind: "Organization",
            id: org.clone(),
            external_id: org.clone(),
            name: org.clone(),
        },
    })
}

#[derive(Serialize, ToSchema)]
struct Resource {
    kind: &'static str,
    availability_zone_type: &'static str,
    billing_model: String,
    byoc: &'static str,
    cloud_provider: &'static str,
    cost: i32,
    product: String,
    resource_name: String,
    resource_type: &'static str,
}

#[derive(Serialize, ToSchema)]
struct Cost {
    kind: &'static str,
    organization_id: String,
    quota_id: String,
    allowed: i32,
    consumed: i32,
    #[schema(value_type = Vec<Object>)]
    cloud_accounts: [(); 0],
    related_resources: Vec<Resource>,
}

#[derive(Serialize, ToSchema)]
struct Costs {
    kind: &'static str,
    page: usize,
    size: usize,
    total: usize,
    items: Vec<Cost>,
}

/// What quota the caller has, by their organisation or themselves
#[utoipa::path(get, path = "/api/accounts_mgmt/v1/organizations/{id}/quota_cost",
    tag = "accounts", params(("id" = String, Path)), responses((status = 200, body = Costs)))]
async fn quota(user: User, PathId(id): PathId) -> Result<Json<Costs>> {
    if id != user.who.org {
        return Err(Error::NotFound(format!("organization {id}")));
    }
    let mut items = Vec::new();
    for kind in user.catalogue.kinds.values() {
        for (of, billing) in kind.billings() {
            let scope = (&**kind, of, billing);
            let quota = create::quota(&user.fleet, &user.catalogue, &user.who, scope).await?;
            if let Some(quota) = quota {
                items.push(cost(&id, billing, quota));
            }
        }
    }
    let size = items.len();
    Ok(Json(Costs { kind: "QuotaCostList", page: 1, size, total: size, items }))
}

fn cost(org: &str, billing: &Billing, quota: Quota) -> Cost {
    let small = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
    let resource = |model: &String| Resource {
        kind: "RelatedResource",
        availability_zone_type: "any",
        billing_model: model.clone(),
        byoc: "any",
        cloud_provider: "any",
        cost: 1,
        product: billing.product.clone(),
        resource_name: billing.resource.clone(),
        resource_type: "cluster.any",
    };
    Cost {
        kind: "QuotaCost",
        organization_id: org.into(),
        quota_id: format!("cluster|{}|{}", billing.product.to_lowercase(), billing.id),
        allowed: small(quota.allowed),
        consumed: small(quota.consumed),
        cloud_accounts: [],
        related_resources: billing.models.iter().map(resource).collect(),
    }
}
