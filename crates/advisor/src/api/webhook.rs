//! The secret with which the receiver of a job's webhook verifies it.

use std::sync::Arc;

use axum::http::Method;
use axum::response::Response;
use kernel::Result;
use kernel::http::{Operation, Route};
use kernel::identity::{Action, Principal};
use serde_json::json;

use super::{AdvisorApi, Call, reply};
use crate::ports::webhook::secret;

const PATH: &str = "/api/v1/advisor/webhook-secret";

pub fn routes() -> Vec<Route<AdvisorApi>> {
    vec![Route::new(Method::GET, PATH, Action::OrgMember, get).document(|_| {
        let summary =
            "Returns the secret that webhooks of your organisation's jobs are signed with";
        Operation::new("getBulkWebhookSecret", summary).returns(200, "Object").errors(&[401, 403])
    })]
}

async fn get(call: Call, who: Arc<Principal>) -> Result<Response> {
    let secret = secret(&call.app, &who.org);
    Ok(reply::json(200, &json!({ "secret": secret.expose() })))
}
