//! Service accounts of an organisation.

use axum::response::Response;
use kernel::Result;
use kernel::identity::Principal;

use super::router::Call;
use crate::model::code::Code;

pub async fn list(_: &Call, _: &Principal) -> Result<Response> {
    Err(Code::NotFound.plain())
}
pub async fn create(_: Call, _: &Principal) -> Result<Response> {
    Err(Code::NotFound.plain())
}
pub async fn get(_: &Call, _: &Principal) -> Result<Response> {
    Err(Code::NotFound.plain())
}
pub async fn delete(_: Call, _: &Principal) -> Result<Response> {
    Err(Code::NotFound.plain())
}
pub async fn reset(_: Call, _: &Principal) -> Result<Response> {
    Err(Code::NotFound.plain())
}
