//! The list of error codes.

use axum::response::Response;
use kernel::Result;
use serde_json::json;

use crate::api::kind_api::Call;
use crate::api::wire::reply::{self, ErrorBody};
use crate::model::error_code::ErrorCode;

fn all(call: &Call) -> Vec<ErrorBody<'static>> {
    let kind = &call.kind;
    let has = |code: &&ErrorCode| !kind.file.errors_without.contains(&code.number());
    ErrorCode::ALL
        .iter()
        .filter(has)
        .map(|code| ErrorBody::new(kind, *code, code.reason()))
        .collect()
}

/// Returns a page of the list; a page outside of it returns all.
pub async fn list(call: Call) -> Result<Response> {
    let all = all(&call);
    let total = all.len();
    let number = |name: &str, default: usize| {
        call.query(name).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (page, size) = (number("page", 1), number("size", total));
    let begin = page.saturating_sub(1).saturating_mul(size);
    let inside = page > 0 && size > 0 && begin < total;
    let (page, size, items) = if inside {
        (page, size.min(total), &all[begin..(begin + size).min(total)])
    } else {
        (1, total, &all[..])
    };
    let list = json!({
        "kind": "ErrorList", "page": page, "size": size, "total": total, "items": items,
    });
    Ok(reply::json(200, &list))
}

pub async fn get(call: Call) -> Result<Response> {
    let id = call.param("id");
    let found = all(&call).into_iter().find(|error| error.id == id);
    let found =
        found.ok_or_else(|| ErrorCode::NotFound.error(format!("no error with id {id} exists")))?;
    Ok(reply::json(200, &found))
}
