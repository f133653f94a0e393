//! Service accounts where clients of the existing sign-in system look for them, in its shapes. The
//! existing command line knows no others.

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

use super::desk::Desk;
use super::{DESCRIPTION_MAX, NAME_MAX};
use crate::api::guard::User;
use crate::api::is_uuid;
use crate::api::payload::check_length;
use crate::model::account::Account;
use crate::model::code::{Code, code_of};

const PATH: &str = "/auth/realms/mainstay/apis/service_accounts/v1";
const PAGE: usize = 20;
const PAGE_MAX: usize = 100;

pub fn routes() -> Routes {
    Routes::new()
        .errors(PATH, mapper())
        .route(Action::Read, routes!(list))
        .route(Action::Write, routes!(create))
        .route(Action::Read, routes!(get))
        .route(Action::Write, routes!(delete))
        .route(Action::Write, routes!(reset))
}

/// What its clients switch on is the name.
fn mapper() -> ErrorMapper {
    Arc::new(|error, _| {
        let (status, name) = named(error);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let said = match error {
            Error::Internal { .. } => Code::General.reason().into(),
            error => error.to_string(),
        };
        (status, Json(json!({ "error": name, "error_description": said }))).into_response()
    })
}

fn named(error: &Error) -> (u16, &'static str) {
    if let Error::Unavailable { .. } = error {
        return (503, "general_failure");
    }
    match code_of(error) {
        Code::AccountNotFound => (404, "service_account_not_found"),
        Code::AccountLimit => (403, "service_account_limit_exceeded"),
        code => match code.http() {
            401 => (401, "invalid_token"),
            403 => (403, "service_account_access_invalid"),
            status @ 400..500 => (status, "invalid_field"),
            status => (status, "general_failure"),
        },
    }
}

/// What can be no id is nobody's: clients of this API know no other answer.
fn known(id: &str) -> Result<&str> {
    if is_uuid(id) { Ok(id) } else { Err(Code::AccountNotFound.plain()) }
}

impl User {
    fn desk(&self) -> Desk<'_> {
        Desk { fleet: &self.fleet, context: &self.context, who: &self.who }
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
    fn of(account: &Account) -> ServiceAccount {
        ServiceAccount {
            id: account.id.clone(),
            client_id: account.spec.client_id.clone(),
            secret: None,
            name: account.name.clone(),
            description: account.description.clone(),
            created_by: account.owner.clone(),
            created_at: account.created_at.millis() / 1000,
        }
    }

    fn with_secret(desk: &Desk<'_>, account: &Account) -> Json<ServiceAccount> {
        Json(ServiceAccount { secret: Some(desk.secret(account)), ..ServiceAccount::of(account) })
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
struct Page {
    /// How many are passed over.
    #[serde(default)]
    first: usize,
    /// At most so many: 20, if it is not given, and never more than 100.
    max: Option<usize>,
    client_id: Option<String>,
}

/// Service accounts of the caller's organisation, where the existing sign-in system has them
#[utoipa::path(get, path = "/auth/realms/mainstay/apis/service_accounts/v1", tag = "oauth",
    params(Page), responses((status = 200, body = Vec<ServiceAccount>)))]
async fn list(user: User, Params(page): Params<Page>) -> Result<Json<Vec<ServiceAccount>>> {
    let mut accounts = user.desk().all().await?;
    accounts.retain(|a| page.client_id.as_ref().is_none_or(|id| a.spec.client_id == *id));
    let max = page.max.unwrap_or(PAGE).min(PAGE_MAX);
    let part = accounts.iter().skip(page.first).take(max);
    Ok(Json(part.map(|account| ServiceAccount::of(account)).collect()))
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
    let desk = user.desk();
    let account = desk.create(name, description).await?;
    Ok(ServiceAccount::with_secret(&desk, &account))
}

/// One service account
#[utoipa::path(get, path = "/auth/realms/mainstay/apis/service_accounts/v1/{id}", tag = "oauth",
    params(("id" = String, Path)), responses((status = 200, body = ServiceAccount)))]
async fn get(user: User, PathId(id): PathId) -> Result<Json<ServiceAccount>> {
    user.desk().get(known(&id)?).await.map(|account| Json(ServiceAccount::of(&account)))
}

/// Remove a service account
#[utoipa::path(delete, path = "/auth/realms/mainstay/apis/service_accounts/v1/{id}", tag = "oauth",
    params(("id" = String, Path)), responses((status = 204)))]
async fn delete(user: User, PathId(id): PathId) -> Result<StatusCode> {
    user.desk().delete(known(&id)?).await.map(|()| StatusCode::NO_CONTENT)
}

/// Give a service account a new secret
#[utoipa::path(post, path = "/auth/realms/mainstay/apis/service_accounts/v1/{id}/resetSecret",
    tag = "oauth", params(("id" = String, Path)),
    responses((status = 200, body = ServiceAccount)))]
async fn reset(user: User, PathId(id): PathId) -> Result<Json<ServiceAccount>> {
    let desk = user.desk();
    let account = desk.reset(known(&id)?).await?;
    Ok(ServiceAccount::with_secret(&desk, &account))
}
