//! Accounts: what a person who signed in may do now. Kept as objects, so that a role that was taken
//! away ends at the next refresh and not when the refresh token expires.

use std::collections::BTreeSet;

use async_trait::async_trait;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::oauth::OAuthError;
use crate::command::{AuditFields, Command, CommandContext, Decided};
use crate::http::{CommandRequest, PathId, Routes};
use crate::identity::{Action, Principal};
use crate::store::edit;
use crate::typed::{Kind, NoStatus};
use crate::{Ambient, Change, Draft, Json, Key, Object, Result, Store, Timestamp};

const KIND: &str = "account";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
struct Account {
    subject: String,
    /// Empty for the built-in issuer, whose name may change.
    issuer: String,
    org: String,
    org_admin: bool,
    roles: BTreeSet<String>,
    /// Nobody signs in to it, and its sessions end at their next refresh.
    disabled: bool,
    /// When an admin last changed it. Tokens from before widen nothing.
    changed_at: Timestamp,
}

crate::labels! { enum Phase { Active = "active", Disabled = "disabled" } }

impl Kind for Account {
    type Phase = Phase;
    type Status = NoStatus;
    const RECONCILED: bool = false;
}

fn key(issuer: &str, subject: &str) -> Key {
    let hash = format!("{:x}", Sha256::digest(format!("{issuer}\n{subject}")));
    Key::new(KIND, &hash[..32])
}

/// An issuer, as accounts name it.
fn issuer_name<'a>(who: &'a Principal, ours: &str) -> &'a str {
    if who.issuer == ours { "" } else { &who.issuer }
}

fn live(object: Option<&Object>) -> Result<Option<Account>> {
    object.filter(|object| object.deleted_at.is_none()).map(|o| o.spec.parse()).transpose()
}

fn write(there: Option<&Object>, key: &Key, account: &Account, now: Timestamp) -> Change {
    let (draft, event) = match there {
        Some(there) => (Draft::of(there), "changed"),
        // No organisation and no owner: only admins see accounts.
        None => (Draft::new(key.clone(), "", "", &account.subject, now), "created"),
    };
    let phase = if account.disabled { Phase::Disabled } else { Phase::Active };
    draft.phase(&phase).spec(account).respec(event, now).into()
}

/// Notes what the token of a person who signs in allows. `issued_at` is the token's.
pub async fn sign_in(
    store: &dyn Store,
    ambient: &Ambient,
    ours: &str,
    who: &Principal,
    issued_at: Timestamp,
) -> Result<(), OAuthError> {
    let issuer = issuer_name(who, ours);
    let key = key(issuer, &who.subject);
    let disabled = edit(store, ambient, &key, |there, now| {
        let before = live(there)?;
        if before.as_ref().is_some_and(|account| account.disabled) {
            return Ok((None, true));
        }
        let mut account = before.clone().unwrap_or_else(|| Account {
            subject: who.subject.clone(),
            issuer: issuer.to_owned(),
            org: who.org.clone(),
            org_admin: false,
            roles: BTreeSet::new(),
            disabled: false,
            changed_at: Timestamp::default(),
        });
        if issued_at >= account.changed_at {
            if issuer.is_empty() {
                // The holder of the signing key chooses the roles of each token: one with fewer
                // must not take any from the person's other sessions.
                account.roles.extend(who.roles.iter().cloned());
                account.org_admin |= who.org_admin;
            } else {
                account.roles = who.roles.clone();
                account.org_admin = who.org_admin;
            }
            account.org = who.org.clone();
        }
        let changed = before.as_ref() != Some(&account);
        Ok((changed.then(|| write(there, &key, &account, now)), false))
    });
    if disabled.await? {
        return Err(OAuthError::new("access_denied", "the account is disabled"));
    }
    Ok(())
}

/// What `granted` is worth now; `None` if the account is disabled or gone.
pub async fn current(
    store: &dyn Store,
    ours: &str,
    granted: &Principal,
) -> Result<Option<Principal>> {
    let object = store.object(&key(issuer_name(granted, ours), &granted.subject)).await?;
    let account = live(object.as_deref())?.filter(|account| !account.disabled);
    Ok(account.map(|account| Principal {
        roles: granted.roles.intersection(&account.roles).cloned().collect(),
        org_admin: granted.org_admin && account.org_admin,
        ..granted.clone()
    }))
}

pub fn routes() -> Routes {
    Routes::new().command(ChangeAccount, routes!(change_account))
}

/// Changes what an account may do.
struct ChangeAccount;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AccountPatch {
    /// All roles that its sessions may have.
    roles: Option<BTreeSet<String>>,
    org_admin: Option<bool>,
    disabled: Option<bool>,
}

#[async_trait]
impl Command for ChangeAccount {
    const NAME: &'static str = "account.change";
    const ACTION: Action = Action::AdminFull;
    type Body = AccountPatch;
    type Reply = Account;

    async fn decide(
        &self,
        cx: &CommandContext<'_>,
        patch: AccountPatch,
    ) -> Result<Decided<Account>> {
        let object = cx.subject()?;
        let before: Account = object.spec.parse()?;
        let lower = |roles: BTreeSet<String>| roles.iter().map(|r| r.to_lowercase()).collect();
        let after = Account {
            roles: patch.roles.map_or_else(|| before.roles.clone(), lower),
            org_admin: patch.org_admin.unwrap_or(before.org_admin),
            disabled: patch.disabled.unwrap_or(before.disabled),
            changed_at: cx.now,
            ..before.clone()
        };
        let change = write(Some(object), &object.key, &after, cx.now);
        let audit = AuditFields {
            before: Json::encode(&before),
            after: Json::encode(&after),
            ..AuditFields::of(object)
        };
        Ok(Decided::new(200, after, audit).change(change))
    }
}

/// Change what an account may do
///
/// Its sessions have it from their next refresh on; access tokens that were issued before keep their
/// roles until they expire. `GET /api/v1/objects?kind=account` lists the accounts.
#[utoipa::path(patch, path = "/api/v1/accounts/{id}", tag = "oauth", params(("id" = String, Path)),
    request_body = AccountPatch, responses((status = 200, body = Account)))]
async fn change_account(PathId(id): PathId, command: CommandRequest) -> Result<Response> {
    command.execute(ChangeAccount::NAME, Some(Key::parse(&format!("{KIND}/{id}"))?)).await
}
