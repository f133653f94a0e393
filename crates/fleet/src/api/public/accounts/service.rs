//! Operations on service accounts, for all APIs that have them: the commands, and the external
//! sign-in system that is updated before the response. The worker completes what a crash leaves
//! unfinished.

use std::sync::Arc;
use std::time::Duration;

use kernel::command::Answer;
use kernel::http::CommandSender;
use kernel::identity::Principal;
use kernel::{Error, Json, Object, Result};
use serde_json::json;

use crate::Fleet;
use crate::commands::account::{AccountCommand, Verb, missing, ready, take_back};
use crate::model::account::{self, Account, Phase};
use crate::model::error_code::ErrorCode;
use crate::model::payload::check_length;
use crate::model::{UUID_PATTERN, is_uuid};
use crate::ports::sso::service_account_client;

const UUID_LENGTH: usize = 36;
/// Timeout of the sign-in system; well below the time after which the worker takes over.
const SSO_TIMEOUT: Duration = Duration::from_secs(20);

/// The service accounts of the caller's organisation.
pub struct AccountService<'a> {
    pub fleet: &'a Arc<Fleet>,
    pub sender: CommandSender,
    pub who: &'a Principal,
}

impl AccountService<'_> {
    /// Returns all service accounts of the organisation.
    pub async fn all(&self) -> Result<Vec<Arc<Account>>> {
        self.fleet.index.catch_up().await?;
        let mut accounts = self.fleet.index.accounts(&self.who.org);
        accounts.retain(|account| account.phase == Phase::Ready);
        Ok(accounts)
    }

    /// Returns a service account of the organisation.
    pub async fn get(&self, id: &str) -> Result<Arc<Account>> {
        check_id(id)?;
        self.fleet.index.catch_up().await?;
        let account = self.fleet.index.account(id);
        let own =
            |account: &Arc<Account>| account.phase == Phase::Ready && account.org == self.who.org;
        account.filter(own).ok_or_else(|| missing(id))
    }

    pub fn secret(&self, account: &Account) -> String {
        self.fleet.secrets.derive(&account.spec.client_id, account.spec.rotation)
    }

    pub async fn create(&self, name: &str, description: &str) -> Result<Account> {
        let body = Json::encode(&json!({ "name": name, "description": description }));
        let object: Object = self.execute(Verb::Create, None, body).await?.reply.body.parse()?;
        if self.fleet.ports.sso_is_external {
            self.create_client(&object).await?;
        }
        Account::from_object(&object)
    }

    /// Creates the client in the sign-in system, then marks the account as ready. If that fails it
    /// is rolled back: its secret was never returned.
    async fn create_client(&self, object: &Object) -> Result<()> {
        let AccountService { fleet, sender, who } = self;
        // A repetition of the request may find it ready, or rolled back.
        let stored = fleet.store.object(&object.key).await?;
        let stored = stored.filter(|object| object.deleted_at.is_none());
        let object = stored.ok_or_else(|| missing(object.key.id()))?;
        let account = Account::from_object(&object)?;
        if account.phase != Phase::Creating {
            return Ok(());
        }
        let made = self.ensure_client(&account).await;
        let now = fleet.ambient.now();
        let mut change = if made.is_ok() { ready(&object, now) } else { take_back(&object, now) };
        let (action, target) = (Verb::Create.label(), object.key.as_str());
        let mut audit = sender.context.audit(who, action, target, &object.org);
        audit.outcome = if made.is_ok() { "ready" } else { "taken back" }.into();
        change.audit = Some(audit);
        made.and(fleet.commit(change, now).await).map_err(|error| {
            tracing::warn!(error = ?error, key = %object.key, "creating a service account failed");
            ErrorCode::AccountCreate.error("failed to create service account")
        })
    }

    pub async fn delete(&self, id: &str) -> Result<()> {
        self.execute(Verb::Delete, Some(id), Json::default()).await.map(drop)
    }

    /// Rotates the secret. The rotation is durable once committed: if the sign-in system cannot be
    /// updated at once, the worker does it later, and another reset rotates again.
    pub async fn reset(&self, id: &str) -> Result<Account> {
        let answer = self.execute(Verb::Reset, Some(id), Json::default()).await?;
        let account = Account::from_object(&answer.reply.body.parse()?)?;
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

    async fn execute(&self, verb: Verb, id: Option<&str>, body: Json) -> Result<Answer> {
        id.map_or(Ok(()), check_id)?;
        let command = AccountCommand { fleet: self.fleet.clone(), verb };
        self.sender.execute(&command, id.map(account::key), body).await
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
}

fn check_id(id: &str) -> Result<()> {
    check_length("id", id, 1, UUID_LENGTH)?;
    if !is_uuid(id) {
        return Err(ErrorCode::AccountId.error(format!("id does not match {UUID_PATTERN}")));
    }
    Ok(())
}
