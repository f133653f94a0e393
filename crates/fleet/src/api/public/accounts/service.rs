//! Operations on service accounts, for all APIs that have them.
//!
//! The object is written first and is authoritative. An external sign-in system is updated before
//! the response, and the worker completes what a crash leaves unfinished.

use std::sync::Arc;
use std::time::Duration;

use kernel::change::{EventDraft, Take, Wake, Write};
use kernel::http::RequestContext;
use kernel::identity::Principal;
use kernel::{Change, Error, Json, Object, Refusal, Result, Timestamp};

use crate::Fleet;
use crate::decide::account::{CREATE_TIMEOUT, deleted, roll_back};
use crate::model::account::{self, Account, Spec};
use crate::model::error_code::ErrorCode;
use crate::model::payload::check_length;
use crate::model::{UUID_PATTERN, is_uuid};
use crate::ports::sso::service_account_client;

const UUID_LENGTH: usize = 36;
/// Timeout of the sign-in system; well below the time after which the worker takes over.
const SSO_TIMEOUT: Duration = Duration::from_secs(20);

/// The service accounts of the caller's organisation.
pub struct AccountService<'a> {
    pub fleet: &'a Fleet,
    pub context: &'a RequestContext,
    pub who: &'a Principal,
}

impl AccountService<'_> {
    /// Returns all service accounts of the organisation.
    pub async fn all(&self) -> Result<Vec<Arc<Account>>> {
        self.fleet.index.catch_up().await?;
        let mut accounts = self.fleet.index.accounts(&self.who.org);
        accounts.retain(|account| account.phase == account::READY);
        Ok(accounts)
    }

    /// Returns a service account of the organisation.
    pub async fn get(&self, id: &str) -> Result<Arc<Account>> {
        let account = self.load_ready(id).await?;
        if account.org != self.who.org {
            return Err(missing(id));
        }
        Ok(account)
    }

    pub fn secret(&self, account: &Account) -> String {
        self.fleet.secrets.derive(&account.spec.client_id, account.spec.rotation)
    }

    pub async fn create(&self, name: &str, description: &str) -> Result<Account> {
        let AccountService { fleet, context, who } = self;
        let now = fleet.ambient.now();
        let id = uuid(fleet.ambient.random_bytes());
        let phase = if fleet.ports.sso_is_external { account::CREATING } else { account::READY };
        let key = account::key(&id);
        let mut object = Object::new(key.clone(), &who.org, &who.subject, name, phase, now);
        object.description = description.into();
        let client_id = account::client_id(&id);
        let account = who.account.clone();
        object.spec = Json::encode(&Spec { client_id, account, rotation: 0, deleting: false });
        let take = Take {
            counter: account::counter(&who.org),
            holder: key.to_string(),
            amount: 1,
            limit: fleet.config.service_accounts_max,
        };
        let mut audit = context.audit(who, "service-account.create", key.as_str(), &who.org);
        audit.after = object.spec.clone();
        let change = Change {
            takes: vec![take],
            wakes: self.deferred_wake(&object, now),
            event: Some(EventDraft::for_object(&object, phase)),
            audit: Some(audit),
            write: Some(Write::Create(object.clone())),
            ..Change::default()
        };
        fleet.commit(change, now).await.map_err(|error| match error {
            Error::Refused(Refusal::Limit { limit, .. }) => full(&who.org, limit),
            error => error,
        })?;
        if fleet.ports.sso_is_external {
            self.create_client(&mut object).await?;
        }
        Account::from_object(&object)
    }

    /// Creates the client in the sign-in system, then marks the account as ready. If that fails it
    /// is rolled back: its secret was never returned.
    async fn create_client(&self, object: &mut Object) -> Result<()> {
        let AccountService { fleet, context, who } = self;
        let made = self.ensure_client(&Account::from_object(object)?).await;
        let now = fleet.ambient.now();
        let mut change = match &made {
            Ok(()) => {
                object.phase = account::READY.into();
                object.updated_at = now;
                object.observed = object.generation;
                Change {
                    event: Some(EventDraft::for_object(object, account::READY)),
                    write: Some(Write::Transition(object.clone())),
                    ..Change::default()
                }
            }
            Err(_) => {
                Change { wakes: vec![Wake::for_object(object, now)], ..roll_back(object, now) }
            }
        };
        let mut audit =
            context.audit(who, "service-account.create", object.key.as_str(), &object.org);
        audit.outcome = if made.is_ok() { "ready" } else { "taken back" }.into();
        change.audit = Some(audit);
        made.and(fleet.commit(change, now).await).map_err(|error| {
            tracing::warn!(error = ?error, key = %object.key, "creating a service account failed");
            ErrorCode::AccountCreate.error("failed to create service account")
        })
    }

    pub async fn delete(&self, id: &str) -> Result<()> {
        let outside = self.fleet.ports.sso_is_external;
        self.edit(id, "delete", |object, account, now| {
            if !outside {
                return deleted(object, now);
            }
            object.phase = account::DELETING.into();
            object.spec = Json::encode(&Spec { deleting: true, ..account.spec.clone() });
            Change {
                event: Some(EventDraft::for_object(object, account::DELETING)),
                wakes: vec![Wake::for_object(object, now)],
                write: Some(Write::Update(object.clone())),
                ..Change::default()
            }
        })
        .await
        .map(drop)
    }

    /// Rotates the secret. The rotation is durable once committed: if the sign-in system cannot be
    /// updated at once, the worker does it later, and another reset rotates again.
    pub async fn reset(&self, id: &str) -> Result<Account> {
        let account = self
            .edit(id, "reset_credentials", |object, account, now| {
                let rotation = account.spec.rotation + 1;
                object.spec = Json::encode(&Spec { rotation, ..account.spec.clone() });
                Change {
                    event: Some(EventDraft::for_object(object, "reset")),
                    wakes: self.deferred_wake(object, now),
                    write: Some(Write::Update(object.clone())),
                    ..Change::default()
                }
            })
            .await?;
        if self.fleet.ports.sso_is_external {
            self.ensure_client(&account).await.map_err(|error| {
                tracing::warn!(
                    ?error,
                    id = account.id,
                    "updating the secret in the sign-in system failed"
                );
                ErrorCode::SsoSecret.error(
                    "failed to reset the service account's credentials: the old secret ends as \
                     soon as the sign-in system answers; reset them again to get a new one",
                )
            })?;
        }
        Ok(account)
    }

    /// Creates or updates the client in the sign-in system.
    async fn ensure_client(&self, account: &Account) -> Result<()> {
        let client = service_account_client(&self.fleet.secrets, account);
        let ensured = self.fleet.ports.sso.ensure(&client);
        tokio::time::timeout(SSO_TIMEOUT, ensured).await.unwrap_or_else(|_| {
            let why = format!("no answer within {SSO_TIMEOUT:?}");
            Err(Error::unavailable("the sign-in system", why))
        })
    }

    async fn load_ready(&self, id: &str) -> Result<Arc<Account>> {
        check_length("id", id, 1, UUID_LENGTH)?;
        if !is_uuid(id) {
            return Err(ErrorCode::AccountId.error(format!("id does not match {UUID_PATTERN}")));
        }
        self.fleet.index.catch_up().await?;
        let account = self.fleet.index.account(id);
        account.filter(|account| account.phase == account::READY).ok_or_else(|| missing(id))
    }

    /// Changes an account on behalf of its owner or an admin of its organisation, with an audit
    /// entry. Reads it again after a concurrent write.
    async fn edit(
        &self,
        id: &str,
        action: &str,
        change: impl Fn(&mut Object, &Account, Timestamp) -> Change,
    ) -> Result<Account> {
        let AccountService { fleet, context, who } = self;
        let account = self.load_ready(id).await?;
        let own = account.org == who.org && (who.org_admin || account.owner == who.subject);
        if !own {
            let why = format!("not allowed to change the service account {id}");
            return Err(ErrorCode::Forbidden.error(why));
        }
        let key = account::key(id);
        let edited = |there: Option<&Object>, now: Timestamp| {
            let stored = there.filter(|o| o.deleted_at.is_none() && o.phase == account::READY);
            let before = stored.ok_or_else(|| missing(id))?;
            let mut object = before.clone();
            object.generation += 1;
            object.updated_at = now;
            let mut wanted = change(&mut object, &Account::from_object(before)?, now);
            let action = format!("{}.{action}", account::KIND);
            let mut audit = context.audit(who, &action, key.as_str(), &object.org);
            (audit.before, audit.after) = (before.spec.clone(), object.spec.clone());
            wanted.audit = Some(audit);
            Ok((Some(wanted), Account::from_object(&object)?))
        };
        fleet.edit(&key, edited).await
    }

    /// Schedules the worker for when the request must be over. Without an external system it has
    /// nothing to do.
    fn deferred_wake(&self, object: &Object, now: Timestamp) -> Vec<Wake> {
        let outside = self.fleet.ports.sso_is_external;
        outside.then(|| Wake::for_object(object, now.plus(CREATE_TIMEOUT))).into_iter().collect()
    }
}

/// Returns the error for a reached limit. It says that the limit counts the whole organisation.
fn full(org: &str, limit: i64) -> Error {
    ErrorCode::AccountLimit.error(format!(
        "Max allowed number:{limit} of service accounts has reached: the limit counts all service \
         accounts of the whole organisation {org}, regardless of who created them"
    ))
}

fn missing(id: &str) -> Error {
    ErrorCode::AccountNotFound.error(format!("service account not found id {id}"))
}

/// Returns a random UUID: version 4, variant 1.
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error_code::code_of;

    #[test]
    fn ids_are_random_uuids_of_version_four() {
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert!(is_uuid(&uuid([0x5a; 16])));
    }

    #[test]
    fn the_limit_says_that_it_counts_the_whole_organisation() {
        let error = full("acme", 50);
        assert_eq!(code_of(&error), ErrorCode::AccountLimit);
        assert!(error.to_string().contains("whole organisation acme"), "{error}");
    }
}
