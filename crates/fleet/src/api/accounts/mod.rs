//! Service accounts of an organisation: programs that sign in as themselves.
//!
//! The object comes first and is the truth. Where clients are kept in another system, that is told
//! before the answer, and the worker finishes whatever a crash leaves open.

mod shape;

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use kernel::change::{EventDraft, Take, Wake, Write};
use kernel::identity::Principal;
use kernel::{Change, Error, Json, Object, Refusal, Result, Timestamp};

use self::shape::Shown;
use super::payload::{NAME_PATTERN, Payload, check_length, is_name};
use super::router::Call;
use super::{UUID_PATTERN, is_uuid, reply};
use crate::clients;
use crate::decide::account::{PATIENCE, gone, taken_back};
use crate::model::account::{self, Account, Spec};
use crate::model::code::Code;

const NAME_MAX: usize = 50;
const CLIENT_ID_MAX: usize = 47;
const UUID_LENGTH: usize = 36;
const DESCRIPTION_MAX: usize = 255;
const DESCRIPTION_PATTERN: &str = r"^[a-zA-Z0-9.,\-\s]*$";
/// How long the sign-in system may take; well below what the worker waits.
const OUTSIDE_MAX: Duration = Duration::from_secs(20);

pub async fn list(call: &Call, who: &Principal) -> Result<Response> {
    let client = call.query("client_id").filter(|id| !id.is_empty());
    if let Some(client) = &client {
        check_length("client_id", client, 1, CLIENT_ID_MAX)?;
        if !client.strip_prefix(&account::client_id("")).is_some_and(is_uuid) {
            let why = format!("client_id does not match ^srvc-acct-{}", &UUID_PATTERN[1..]);
            return Err(Code::AccountId.error(why));
        }
    }
    call.fleet.index.fresh().await?;
    let mut accounts = call.fleet.index.accounts(&who.org);
    accounts.retain(|a| {
        a.phase == account::READY && client.as_ref().is_none_or(|id| a.spec.client_id == *id)
    });
    Ok(call.json(200, &shape::list(&call.kind, &accounts)))
}

pub async fn create(mut call: Call, who: &Principal) -> Result<Response> {
    let body = Payload(call.object().await?);
    let name = body.text("name")?.unwrap_or_default();
    let description = body.text("description")?.unwrap_or_default();
    check(name, description)?;
    let fleet = &call.fleet;
    let now = fleet.ambient.now();
    let id = uuid(fleet.ambient.random_bytes());
    let phase = if fleet.sso_is_outside { account::CREATING } else { account::READY };
    let key = account::key(&id);
    let mut object = Object::new(key.clone(), &who.org, &who.subject, name, phase, now);
    object.description = description.into();
    let client_id = account::client_id(&id);
    let account = who.account.clone();
    object.spec = Json::of(&Spec { client_id, account, rotation: 0, deleting: false });
    let take = Take {
        counter: account::counter(&who.org),
        holder: key.to_string(),
        amount: 1,
        limit: fleet.config.service_accounts_max,
    };
    let mut audit = call.context.audit(who, "service-account.create", key.as_str(), &who.org);
    audit.after = object.spec.clone();
    let change = Change {
        takes: vec![take],
        wakes: later(&call, &object, now),
        event: Some(EventDraft::of(&object, phase)),
        audit: Some(audit),
        write: Some(Write::Create(object.clone())),
        ..Change::default()
    };
    let made = kernel::store::commit(fleet.store.as_ref(), change, now).await;
    made.map_err(|error| match error {
        Error::Refused(Refusal::Limit { limit, .. }) => full(&who.org, limit),
        error => error,
    })?;
    if fleet.sso_is_outside {
        make_outside(&call, who, &mut object).await?;
    }
    let account = Account::of(&object)?;
    Ok(call.json(202, &Shown::of(&call.kind, &account).with_secret(secret(&call, &account))))
}

/// The limit is the organisation's: whoever sees few of their own must be told so.
fn full(org: &str, limit: i64) -> Error {
    Code::AccountLimit.error(format!(
        "Max allowed number:{limit} of service accounts has reached: the limit counts all service \
         accounts of the whole organisation {org}, whoever created them"
    ))
}

/// Lengths before patterns, the name before the description.
fn check(name: &str, description: &str) -> Result<()> {
    check_length("name", name, 1, NAME_MAX)?;
    check_length("description", description, 0, DESCRIPTION_MAX)?;
    if !is_name(name) {
        return Err(Code::AccountName.error(format!("name does not match {NAME_PATTERN}")));
    }
    let plain = |c: char| {
        c.is_ascii_alphanumeric()
            || ".,-".contains(c)
            || matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c')
    };
    if !description.chars().all(plain) {
        let why = format!("description does not match {DESCRIPTION_PATTERN}");
        return Err(Code::AccountDescription.error(why));
    }
    Ok(())
}

/// Makes the client where it signs in, then says that it is there. What does not get so far is
/// taken back: nobody learns its secret.
async fn make_outside(call: &Call, who: &Principal, object: &mut Object) -> Result<()> {
    let fleet = &call.fleet;
    let client = clients::account(fleet, &Account::of(object)?);
    let made = in_time(fleet.sso.ensure(&client)).await;
    let now = fleet.ambient.now();
    let mut change = match &made {
        Ok(()) => {
            object.phase = account::READY.into();
            object.updated_at = now;
            object.observed = object.generation;
            Change {
                event: Some(EventDraft::of(object, account::READY)),
                write: Some(Write::Transition(object.clone())),
                ..Change::default()
            }
        }
        Err(_) => Change { wakes: vec![Wake::of(object, now)], ..taken_back(object, now) },
    };
    let mut audit =
        call.context.audit(who, "service-account.create", object.key.as_str(), &object.org);
    audit.outcome = if made.is_ok() { "ready" } else { "taken back" }.into();
    change.audit = Some(audit);
    let written = kernel::store::commit(fleet.store.as_ref(), change, now).await.map(drop);
    made.and(written).map_err(|error| {
        tracing::warn!(error = ?error, key = %object.key, "a service account could not be made");
        Code::AccountCreate.error("failed to create service account")
    })
}

async fn in_time(work: impl Future<Output = Result<()>>) -> Result<()> {
    let limit = OUTSIDE_MAX;
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Error::unavailable("the sign-in system", format!("no answer within {limit:?}")))
    })
}

pub async fn get(call: &Call, who: &Principal) -> Result<Response> {
    let account = found(call).await?;
    if account.org != who.org {
        return Err(missing(&account.id));
    }
    Ok(call.json(200, &Shown::of(&call.kind, &account)))
}

pub async fn delete(call: Call, who: &Principal) -> Result<Response> {
    let outside = call.fleet.sso_is_outside;
    edit(&call, who, "delete", |object, account, now| {
        if !outside {
            return gone(object, now);
        }
        object.phase = account::DELETING.into();
        object.spec = Json::of(&Spec { deleting: true, ..account.spec.clone() });
        Change {
            event: Some(EventDraft::of(object, account::DELETING)),
            wakes: vec![Wake::of(object, now)],
            write: Some(Write::Update(object.clone())),
            ..Change::default()
        }
    })
    .await?;
    Ok(reply::empty(&call.context, 204))
}

/// A new secret. It is wanted once it is written down: if the sign-in system cannot be told at
/// once it will be, and asking again gives another one.
pub async fn reset(call: Call, who: &Principal) -> Result<Response> {
    let account = edit(&call, who, "reset_credentials", |object, account, now| {
        let rotation = account.spec.rotation + 1;
        object.spec = Json::of(&Spec { rotation, ..account.spec.clone() });
        Change {
            event: Some(EventDraft::of(object, "reset")),
            wakes: later(&call, object, now),
            write: Some(Write::Update(object.clone())),
            ..Change::default()
        }
    })
    .await?;
    let fleet = &call.fleet;
    if fleet.sso_is_outside {
        let told = in_time(fleet.sso.ensure(&clients::account(fleet, &account))).await;
        told.map_err(|error| {
            tracing::warn!(error = ?error, id = account.id, "a new secret is not yet in force");
            Code::SsoSecret.error(
                "failed to reset the service account's credentials: the old secret ends as soon as \
                 the sign-in system answers; reset them again to get a new one",
            )
        })?;
    }
    Ok(call.json(200, &Shown::of(&call.kind, &account).with_secret(secret(&call, &account))))
}

fn secret(call: &Call, account: &Account) -> String {
    call.fleet.secrets.of(&account.spec.client_id, account.spec.rotation)
}

/// The account of the path, if there is one.
async fn found(call: &Call) -> Result<Arc<Account>> {
    let id = &call.args[0];
    check_length("id", id, 1, UUID_LENGTH)?;
    if !is_uuid(id) {
        return Err(Code::AccountId.error(format!("id does not match {UUID_PATTERN}")));
    }
    call.fleet.index.fresh().await?;
    let found = call.fleet.index.account(id).filter(|account| account.phase == account::READY);
    found.ok_or_else(|| missing(id))
}

fn missing(id: &str) -> Error {
    Code::AccountNotFound.error(format!("service account not found id {id}"))
}

/// Changes the account of the path, as its owner or an admin of its organisation may. The change
/// is made of the object and put on record; who wrote meanwhile is read again.
async fn edit(
    call: &Call,
    who: &Principal,
    action: &str,
    change: impl Fn(&mut Object, &Account, Timestamp) -> Change,
) -> Result<Account> {
    let account = found(call).await?;
    let own = account.org == who.org && (who.org_admin || account.owner == who.subject);
    if !own {
        let why = format!("not allowed to change the service account {}", account.id);
        return Err(Code::Forbidden.error(why));
    }
    let fleet = &call.fleet;
    let key = account::key(&account.id);
    let edited = |there: Option<&Object>, now: Timestamp| {
        let stored = there.filter(|o| o.deleted_at.is_none() && o.phase == account::READY);
        let before = stored.ok_or_else(|| missing(&account.id))?;
        let mut object = before.clone();
        object.generation += 1;
        object.updated_at = now;
        let mut wanted = change(&mut object, &Account::of(before)?, now);
        let action = format!("{}.{action}", account::KIND);
        let mut audit = call.context.audit(who, &action, key.as_str(), &object.org);
        (audit.before, audit.after) = (before.spec.clone(), object.spec.clone());
        wanted.audit = Some(audit);
        Ok((Some(wanted), Account::of(&object)?))
    };
    kernel::store::edit(fleet.store.as_ref(), &fleet.ambient, &key, edited).await
}

/// The worker looks when the request must be over. Without another system there is nothing to see.
fn later(call: &Call, object: &Object, now: Timestamp) -> Vec<Wake> {
    let outside = call.fleet.sso_is_outside;
    outside.then(|| Wake::of(object, now.plus(PATIENCE))).into_iter().collect()
}

/// A random UUID: version 4, variant 1.
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::code::code_of;

    #[test]
    fn names_and_descriptions_are_checked_in_the_order_that_clients_know() {
        let says = |name: &str, description: &str| {
            let error = check(name, description).unwrap_err();
            (code_of(&error).number(), error.to_string())
        };
        let long = "a".repeat(256);
        assert_eq!(says("", "").0, 33);
        assert_eq!(
            says(&"a".repeat(51), &long),
            (34, "name is not valid, maximum length 50 is required".into())
        );
        assert_eq!(
            says("Bad Name", &long),
            (34, "description is not valid, maximum length 255 is required".into())
        );
        assert_eq!(
            says("Bad Name", "<x>"),
            (38, "name does not match ^[a-z]([-a-z0-9]*[a-z0-9])?$".into())
        );
        assert_eq!(
            says("ok", "<x>"),
            (39, r"description does not match ^[a-zA-Z0-9.,\-\s]*$".into())
        );
        check(&"a".repeat(50), "For the shop, v1.2 - all\nof it").unwrap();
    }

    #[test]
    fn ids_are_random_uuids_of_version_four() {
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert!(is_uuid(&uuid([0x5a; 16])));
    }

    #[test]
    fn the_limit_says_that_it_counts_the_whole_organisation() {
        let error = full("acme", 50);
        assert_eq!(code_of(&error), Code::AccountLimit);
        assert!(error.to_string().contains("whole organisation acme"), "{error}");
    }
}
