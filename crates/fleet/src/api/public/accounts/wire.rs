//! Service accounts on the wire.

use serde_json::{Value, json};

use crate::model::account::Account;
use crate::model::kind::Kind;

fn href(kind: &Kind, account: &Account) -> String {
    format!("{}/v1/service_accounts/{}", kind.prefix, account.id)
}

/// Returns a single service account; with its secret only after a create or a reset.
pub fn one(kind: &Kind, account: &Account, secret: Option<&str>) -> Value {
    let mut shown = json!({
        "id": account.id,
        "kind": "ServiceAccount",
        "href": href(kind, account),
        "name": account.name,
    });
    if !account.description.is_empty() {
        shown["description"] = json!(account.description);
    }
    shown["client_id"] = json!(account.spec.client_id);
    if let Some(secret) = secret {
        shown["client_secret"] = json!(secret);
    }
    shown["owner"] = json!(account.owner);
    shown["created_by"] = json!(account.owner);
    shown["created_at"] = json!(account.created_at);
    shown
}

/// Returns an item of a list: its fields have another order, and never a secret.
pub fn item(kind: &Kind, account: &Account) -> Value {
    let mut shown = json!({
        "id": account.id,
        "kind": "ServiceAccount",
        "href": href(kind, account),
        "client_id": account.spec.client_id,
        "name": account.name,
        "owner": account.owner,
        "created_by": account.owner,
        "created_at": account.created_at,
    });
    if !account.description.is_empty() {
        shown["description"] = json!(account.description);
    }
    shown
}
