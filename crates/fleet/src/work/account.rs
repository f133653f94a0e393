//! Reconciles service accounts with the clients in the SSO system.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::driver::{Attempt, Decision, Effect, Requeue, Worker};
use kernel::{Object, Result, Timestamp};

use crate::Fleet;
use crate::decide::account::{Observation, Step, decide};
use crate::model::account::{self, Account};
use crate::ports::sso::service_account_client;

pub struct AccountWorker(pub Arc<Fleet>);

#[async_trait]
impl Worker for AccountWorker {
    type Observed = Observation;
    type Step = Step;

    fn kind(&self) -> &str {
        account::KIND
    }

    async fn observe(&self, attempt: &Attempt) -> Result<Observation> {
        let fleet = &self.0;
        let account = Account::from_object(&attempt.object)?;
        let compare = fleet.ports.sso_is_external && account.phase == account::Phase::Ready;
        let client_matches = if compare {
            fleet.ports.sso.matches(&service_account_client(&fleet.secrets, &account)).await?
        } else {
            true
        };
        let recheck = Duration::from_secs(fleet.config.timeouts.recheck_s);
        Ok(Observation { external: fleet.ports.sso_is_external, client_matches, recheck })
    }

    fn decide(&self, object: &Object, observed: &Observation, now: Timestamp) -> Decision<Step> {
        match Account::from_object(object) {
            Ok(_) if object.deleted_at.is_some() => Decision::idle(Requeue::Never),
            Ok(account) => decide(object, &account, observed, now),
            Err(error) => Decision::idle(Requeue::Halted(error.to_string())),
        }
    }

    async fn execute(&self, attempt: &Attempt, step: &Step) -> Result<Effect> {
        let fleet = &self.0;
        let account = Account::from_object(&attempt.object)?;
        match step {
            Step::Ensure => {
                fleet.ports.sso.ensure(&service_account_client(&fleet.secrets, &account)).await
            }
            Step::Remove => fleet.ports.sso.remove(&account.spec.client_id).await,
        }
        .map(|()| Effect::Done)
    }
}
