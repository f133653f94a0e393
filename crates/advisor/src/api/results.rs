//! Uploaded results, as the existing service takes them: `/updateResults`.

use std::sync::Arc;

use axum::http::Method;
use axum::response::Response;
use kernel::http::{Operation, Route, parse_json};
use kernel::identity::{Action, Principal};
use kernel::{Error, Result};
use serde_json::Value;

use super::{AdvisorApi, Call, execute, reply};
use crate::commands::UploadedResults;
use crate::model::wire::outcome;

/// 100 results of ten containers each.
const BODY_BYTES_MAX: usize = 4 << 20;
const SAVED: &str = "Results added successfully! View saved results at /listExperiments.";

pub fn routes() -> Vec<Route<AdvisorApi>> {
    vec![
        Route::new(Method::POST, "/updateResults", Action::Write, upload)
            .body_bytes_max(BODY_BYTES_MAX)
            .document(|_| {
                Operation::new("updateResults", "Uploads what was measured of experiments")
                    .body("Objects")
                    .returns(201, "Object")
                    .errors(&[400, 401])
            }),
    ]
}

async fn upload(mut call: Call, _: Arc<Principal>) -> Result<Response> {
    let body = call.bytes().await?;
    let records: Value = parse_json(&body)?;
    if !records.is_array() {
        return Err(Error::invalid("body", "must be a list of results"));
    }
    let (status, reply) = execute(&call, "results.upload", None, &records).await?;
    let UploadedResults { records, refused } = serde_json::from_value(reply)
        .map_err(|error| Error::internal("the reply of a command", error))?;
    if refused.is_empty() {
        return Ok(reply::success(status, SAVED));
    }
    let failed = refused.len();
    let message = format!("Out of a total of {records} records, {failed} failed to save");
    let mut answer = outcome(status, &message);
    answer["data"] = refused.into();
    Ok(reply::json(status, &answer))
}
