//! The secret with which the receiver of a job's webhook verifies it.

use std::sync::Arc;

use axum::http::Method;
use axum::response::Response;
use kernel::http::{Operation, Route};
use kernel::identity::{Action, Principal};
use kernel::{Error, Result};
use serde_json::json;

use super::{AdvisorApi, Call, reply};
use crate::config::OpenAs;
use crate::ports::webhook::secret;

const PATH: &str = "/api/v1/advisor/webhook-secret";

pub fn routes() -> Vec<Route<AdvisorApi>> {
    vec![Route::new(Method::GET, PATH, Action::OrgMember, get).document(|_| {
        let summary =
            "Returns the secret that webhooks of your organisation's jobs are signed with";
        Operation::new("getBulkWebhookSecret", summary).returns(200, "Object").errors(&[401, 403])
    })]
}

/// Only to callers with a token, also where the API is open: who knows it can pretend to be this server.
async fn get(call: Call, who: Arc<Principal>) -> Result<Response> {
    if who.issuer == OpenAs::ISSUER {
        return Err(Error::Forbidden("sign in: secrets are not shown without a token".into()));
    }
    let secret = secret(&call.app, &who.org);
    Ok(reply::json(200, &json!({ "secret": secret.expose() })))
}
