//! Service accounts of an organisation.

pub mod service;
mod wire;

use std::sync::Arc;

use axum::response::Response;
use kernel::Result;
use kernel::identity::Principal;
use serde_json::json;

use self::service::AccountService;
use crate::api::kind_api::Call;
use crate::api::wire::reply;
use crate::api::wire::request::read_payload;
use crate::model::account::{self, Account};
use crate::model::error_code::ErrorCode;
use crate::model::payload::{NAME_PATTERN, check_length, is_name};
use crate::model::{UUID_PATTERN, is_uuid};

pub const NAME_MAX: usize = 50;
const CLIENT_ID_MAX: usize = 47;
pub const DESCRIPTION_MAX: usize = 255;
const DESCRIPTION_PATTERN: &str = r"^[a-zA-Z0-9.,\-\s]*$";

fn service<'a>(call: &'a Call, who: &'a Principal) -> Result<AccountService<'a>> {
    Ok(AccountService { fleet: &call.fleet, sender: call.sender()?, who })
}

pub async fn list(call: Call, who: Arc<Principal>) -> Result<Response> {
    let client = call.query("client_id").filter(|id| !id.is_empty());
    if let Some(client) = &client {
        check_length("client_id", client, 1, CLIENT_ID_MAX)?;
        if !client.strip_prefix(&account::client_id("")).is_some_and(is_uuid) {
            let why = format!("client_id does not match ^srvc-acct-{}", &UUID_PATTERN[1..]);
            return Err(ErrorCode::AccountId.error(why));
        }
    }
    let mut accounts = service(&call, &who)?.all().await?;
    accounts.retain(|a| client.as_ref().is_none_or(|id| a.spec.client_id == *id));
    let items: Vec<_> = accounts.iter().map(|account| wire::item(&call.kind, account)).collect();
    Ok(reply::json(200, &json!({ "kind": "ServiceAccountList", "items": items })))
}

pub async fn create(mut call: Call, who: Arc<Principal>) -> Result<Response> {
    let body = read_payload(&mut call).await?;
    let name = body.text("name")?.unwrap_or_default();
    let description = body.text("description")?.unwrap_or_default();
    check(name, description)?;
    let account = service(&call, &who)?.create(name, description).await?;
    with_secret(&call, &who, 202, &account)
}

fn with_secret(call: &Call, who: &Principal, status: u16, account: &Account) -> Result<Response> {
    let secret = service(call, who)?.secret(account);
    Ok(reply::json(status, &wire::one(&call.kind, account, Some(&secret))))
}

/// Checks lengths before patterns, and the name before the description.
fn check(name: &str, description: &str) -> Result<()> {
    check_length("name", name, 1, NAME_MAX)?;
    check_length("description", description, 0, DESCRIPTION_MAX)?;
    if !is_name(name) {
        return Err(ErrorCode::AccountName.error(format!("name does not match {NAME_PATTERN}")));
    }
    let plain = |c: char| {
        c.is_ascii_alphanumeric()
            || ".,-".contains(c)
            || matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c')
    };
    if !description.chars().all(plain) {
        let why = format!("description does not match {DESCRIPTION_PATTERN}");
        return Err(ErrorCode::AccountDescription.error(why));
    }
    Ok(())
}

pub async fn get(call: Call, who: Arc<Principal>) -> Result<Response> {
    let account = service(&call, &who)?.get(call.param("id")).await?;
    Ok(reply::json(200, &wire::one(&call.kind, &account, None)))
}

pub async fn delete(call: Call, who: Arc<Principal>) -> Result<Response> {
    service(&call, &who)?.delete(call.param("id")).await?;
    Ok(reply::empty(204))
}

pub async fn reset(call: Call, who: Arc<Principal>) -> Result<Response> {
    let account = service(&call, &who)?.reset(call.param("id")).await?;
    with_secret(&call, &who, 200, &account)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error_code::code_of;

    #[test]
    fn names_and_descriptions_are_checked_in_the_order_that_clients_know() {
        let says = |name: &str, description: &str| {
            let error = check(name, description).unwrap_err();
            (code_of(&error).number(), error.to_string())
        };
        let long = "a".repeat(256);
        assert_eq!(says("", "").0, 33);
        assert_eq!(
            says(&"a".repeat(51), &long),
            (34, "name is not valid, maximum length 50 is required".into())
        );
        assert_eq!(
            says("Bad Name", &long),
            (34, "description is not valid, maximum length 255 is required".into())
        );
        assert_eq!(
            says("Bad Name", "<x>"),
            (38, "name does not match ^[a-z]([-a-z0-9]*[a-z0-9])?$".into())
        );
        assert_eq!(
            says("ok", "<x>"),
            (39, r"description does not match ^[a-zA-Z0-9.,\-\s]*$".into())
        );
        check(&"a".repeat(50), "For the shop, v1.2 - all\nof it").unwrap();
    }
}
