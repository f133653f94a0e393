//! An instance's own metrics.

use axum::response::Response;
use kernel::Result;
use kernel::identity::Principal;

use super::router::Call;
use crate::model::code::Code;

pub async fn query(_: &Call, _: &Principal) -> Result<Response> {
    Err(Code::NotFound.plain())
}
pub async fn query_range(_: &Call, _: &Principal) -> Result<Response> {
    Err(Code::NotFound.plain())
}
pub async fn federate(_: &Call, _: &Principal) -> Result<Response> {
    Err(Code::NotFound.plain())
}
