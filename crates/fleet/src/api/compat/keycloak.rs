//! Service accounts in the API and wire format of Keycloak, which the existing command line uses.

use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use kernel::http::{Body, ErrorMapper, Params, PathId, Routes};
use kernel::identity::Action;
use kernel::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::api::access::{self, User};
use crate::api::public::accounts::service::AccountService;
use crate::api::public::accounts::{DESCRIPTION_MAX, NAME_MAX};
use crate::model::account::Account;
use crate::model::error_code::{ErrorCode, code_of};
use crate::model::is_uuid;
use crate::model::payload::check_length;

const PATH: &str = "/auth/realms/mainstay/apis/service_accounts/v1";
const PAGE: usize = 20;
const PAGE_MAX: usize = 100;

pub fn routes() -> Routes {
    Routes::new()
        .errors(PATH, mapper())
        .route(Action::OrgUser, routes!(list))
        .route(Action::OrgUser, routes!(create))
        .route(Action::OrgUser, routes!(get))
        .route(Action::OrgUser, routes!(delete))
        .route(Action::OrgUser, routes!(reset))
        .deny_with(access::deny)
}

/// Writes errors with the names that clients of this API compare.
fn mapper() -> ErrorMapper {
    Arc::new(|error, _| {
        let (status, name) = named(error);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let said = match error {
            Error::Internal { .. } => ErrorCode::General.reason().into(),
            error => error.public_message(),
        };
        (status, Json(json!({ "error": name, "error_description": said }))).into_response()
    })
}

fn named(error: &Error) -> (u16, &'static str) {
    if let Error::Unavailable { .. } = error {
        return (503, "general_failure");
    }
    match code_of(error) {
        ErrorCode::AccountNotFound => (404, "service_account_not_found"),
        ErrorCode::AccountLimit => (403, "service_account_limit_exceeded"),
        code => match code.http() {
            401 => (401, "invalid_token"),
            403 => (403, "service_account_access_invalid"),
            status @ 400..500 => (status, "invalid_field"),
            status => (status, "general_failure"),
        },
    }
}

/// Rejects an invalid id as an unknown one, as clients of this API expect.
fn check_id(id: &str) -> Result<&str> {
    if is_uuid(id) { Ok(id) } else { Err(ErrorCode::AccountNotFound.default_error()) }
}

impl User {
    fn service(&self) -> AccountService<'_> {
        AccountService { fleet: &self.fleet, sender: self.sender.clone(), who: &self.who }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ServiceAccount {
    id: String,
    client_id: String,
    /// Only when it was just made.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    name: String,
    description: String,
    created_by: String,
    /// Seconds since 1970.
    created_at: i64,
}

impl ServiceAccount {
    fn new(account: &Account, secret: Option<String>) -> ServiceAccount {
        ServiceAccount {
            id: account.id.clone(),
            client_id: account.spec.client_id.clone(),
            secret,
            name: account.name.clone(),
            description: account.description.clone(),
            created_by: account.owner.clone(),
            created_at: account.created_at.millis() / 1000,
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
struct ListParams {
    /// How many are passed over.
    #[serde(default)]
    first: usize,
    /// At most so many: 20, if it is not given, and never more than 100.
    max: Option<usize>,
    client_id: Option<String>,
}

/// Service accounts of the caller's organisation, where the existing sign-in system has them
#[utoipa::path(get, path = "/auth/realms/mainstay/apis/service_accounts/v1", tag = "oauth",
    params(ListParams), responses((status = 200, body = Vec<ServiceAccount>)))]
async fn list(user: User, Params(page): Params<ListParams>) -> Result<Json<Vec<ServiceAccount>>> {
    let mut accounts = user.service().all().await?;
    accounts.retain(|a| page.client_id.as_ref().is_none_or(|id| a.spec.client_id == *id));
    let max = page.max.unwrap_or(PAGE).min(PAGE_MAX);
    let part = accounts.iter().skip(page.first).take(max);
    Ok(Json(part.map(|account| ServiceAccount::new(account, None)).collect()))
}

#[derive(Deserialize, ToSchema)]
struct New {
    name: String,
    #[serde(default)]
    description: String,
}

/// Make a service account; the answer alone holds its secret
#[utoipa::path(post, path = "/auth/realms/mainstay/apis/service_accounts/v1", tag = "oauth",
    request_body = New, responses((status = 200, body = ServiceAccount)))]
async fn create(user: User, body: Body<New>) -> Result<Json<ServiceAccount>> {
    let New { name, description } = &body.value;
    check_length("name", name, 1, NAME_MAX)?;
    check_length("description", description, 0, DESCRIPTION_MAX)?;
    for (field, text) in [("name", name), ("description", description)] {
        if text.chars().any(char::is_control) {
            return Err(Error::invalid(field, "must not contain control characters"));
        }
    }
    let service = user.service();
    let account = service.create(name, description).await?;
    Ok(Json(ServiceAccount::new(&account, Some(service.secret(&account)))))
}

/// One service account
#[utoipa::path(get, path = "/auth/realms/mainstay/apis/service_accounts/v1/{id}", tag = "oauth",
    params(("id" = String, Path)), responses((status = 200, body = ServiceAccount)))]
async fn get(user: User, PathId(id): PathId) -> Result<Json<ServiceAccount>> {
    let account = user.service().get(check_id(&id)?).await?;
    Ok(Json(ServiceAccount::new(&account, None)))
}

/// Remove a service account
#[utoipa::path(delete, path = "/auth/realms/mainstay/apis/service_accounts/v1/{id}", tag = "oauth",
    params(("id" = String, Path)), responses((status = 204)))]
async fn delete(user: User, PathId(id): PathId) -> Result<StatusCode> {
    user.service().delete(check_id(&id)?).await.map(|()| StatusCode::NO_CONTENT)
}

/// Give a service account a new secret
#[utoipa::path(post, path = "/auth/realms/mainstay/apis/service_accounts/v1/{id}/resetSecret",
    tag = "oauth", params(("id" = String, Path)),
    responses((status = 200, body = ServiceAccount)))]
async fn reset(user: User, PathId(id): PathId) -> Result<Json<ServiceAccount>> {
    let service = user.service();
    let account = service.reset(check_id(&id)?).await?;
    Ok(Json(ServiceAccount::new(&account, Some(service.secret(&account)))))
}
