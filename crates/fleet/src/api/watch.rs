//! Watches: what changes, as it changes.

use axum::response::Response;
use kernel::Result;
use kernel::identity::Principal;

use super::router::Call;
use crate::model::code::Code;

pub async fn for_user(_: Call, _: &Principal) -> Result<Response> {
    Err(Code::NotFound.plain())
}
pub async fn for_agent(_: Call) -> Result<Response> {
    Err(Code::NotFound.plain())
}
