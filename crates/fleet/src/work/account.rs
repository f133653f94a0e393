//! Service accounts: their clients are where they sign in, as they should be, and nowhere else.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::driver::{Attempt, Decision, Requeue, Worker};
use kernel::{Object, Result, Timestamp};

use crate::Fleet;
use crate::clients;
use crate::decide::account::{Step, World, decide};
use crate::model::account::{self, Account};

pub struct Accounts(pub Arc<Fleet>);

#[async_trait]
impl Worker for Accounts {
    type Observed = World;
    type Step = Step;

    fn kind(&self) -> &str {
        account::KIND
    }

    async fn observe(&self, attempt: &Attempt) -> Result<World> {
        let fleet = &self.0;
        let account = Account::of(&attempt.object)?;
        let asks = fleet.sso_is_outside && account.phase == account::READY;
        let client_is_so = match asks {
            true => fleet.sso.is_so(&clients::account(fleet, &account)).await?,
            false => true,
        };
        let recheck = Duration::from_secs(fleet.config.timeouts.recheck_s);
        Ok(World { outside: fleet.sso_is_outside, client_is_so, recheck })
    }

    fn decide(&self, object: &Object, world: &World, now: Timestamp) -> Decision<Step> {
        match Account::of(object) {
            Ok(_) if object.deleted_at.is_some() => Decision::idle(Requeue::Never),
            Ok(account) => decide(object, &account, world, now),
            Err(error) => Decision::idle(Requeue::Halted(error.to_string())),
        }
    }

    async fn execute(&self, attempt: &Attempt, step: &Step) -> Result<()> {
        let fleet = &self.0;
        let account = Account::of(&attempt.object)?;
        match step {
            Step::Ensure => fleet.sso.ensure(&clients::account(fleet, &account)).await,
            Step::Remove => fleet.sso.remove(&account.spec.client_id).await,
        }
    }
}
