//! Service accounts on the wire.

use std::sync::Arc;

use kernel::Timestamp;
use serde::Serialize;

use crate::model::account::Account;
use crate::model::kind::Kind;

const KIND: &str = "ServiceAccount";

fn href(kind: &Kind, account: &Account) -> String {
    format!("{}/v1/service_accounts/{}", kind.prefix, account.id)
}

/// A single service account; with its secret only after a create or a reset.
#[derive(Serialize)]
pub struct ServiceAccountView<'a> {
    id: &'a str,
    kind: &'static str,
    href: String,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    client_id: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    client_secret: String,
    owner: &'a str,
    created_by: &'a str,
    created_at: Timestamp,
}

impl<'a> ServiceAccountView<'a> {
    pub fn new(kind: &Kind, account: &'a Account) -> ServiceAccountView<'a> {
        ServiceAccountView {
            id: &account.id,
            kind: KIND,
            href: href(kind, account),
            name: &account.name,
            description: &account.description,
            client_id: &account.spec.client_id,
            client_secret: String::new(),
            owner: &account.owner,
            created_by: &account.owner,
            created_at: account.created_at,
        }
    }

    pub fn with_secret(mut self, secret: String) -> ServiceAccountView<'a> {
        self.client_secret = secret;
        self
    }
}

/// An item of a list: its fields have another order, and never a secret.
#[derive(Serialize)]
struct ServiceAccountItem<'a> {
    id: &'a str,
    kind: &'static str,
    href: String,
    client_id: &'a str,
    name: &'a str,
    owner: &'a str,
    created_by: &'a str,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
}

#[derive(Serialize)]
pub struct List<'a> {
    kind: &'static str,
    items: Vec<ServiceAccountItem<'a>>,
}

pub fn list<'a>(kind: &Kind, accounts: &'a [Arc<Account>]) -> List<'a> {
    let item = |account: &'a Arc<Account>| ServiceAccountItem {
        id: &account.id,
        kind: KIND,
        href: href(kind, account),
        client_id: &account.spec.client_id,
        name: &account.name,
        owner: &account.owner,
        created_by: &account.owner,
        created_at: account.created_at,
        description: &account.description,
    };
    List { kind: "ServiceAccountList", items: accounts.iter().map(item).collect() }
}
