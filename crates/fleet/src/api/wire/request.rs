//! What handlers of the existing service's wire format read from a request.

use kernel::Result;

use crate::api::kind_api::Call;
use crate::model::error_code::ErrorCode;
use crate::model::payload::{Payload, parse_object};

/// Reads the body as a JSON object.
pub async fn read_payload(call: &mut Call) -> Result<Payload> {
    let bytes = call.bytes().await?;
    parse_object(&bytes).map(Payload)
}

/// Rejects a request that does not have `async=true`.
pub fn require_async(call: &Call) -> Result<()> {
    let is_async =
        matches!(call.query("async").as_deref(), Some("true" | "1" | "t" | "T" | "TRUE" | "True"));
    let reason = "Synchronous action is not supported, use async=true parameter";
    if is_async { Ok(()) } else { Err(ErrorCode::Sync.error(reason)) }
}
