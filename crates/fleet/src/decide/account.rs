//! Decides what to do about a service account, from its spec and what was observed. Pure.

use std::time::Duration;

use kernel::change::{Release, Write};
use kernel::driver::{Decision, Requeue};
use kernel::{Change, Draft, Object, Timestamp};

use super::audit;
use crate::model::account::{self, Account, Phase, Spec};

/// How long the request that creates an account may take. A request that was not acknowledged by
/// then never is, and none of its calls to the SSO system is still in flight.
pub const CREATE_TIMEOUT: Duration = Duration::from_secs(60);

/// What was observed around an account.
#[derive(Debug, Clone)]
pub struct Observation {
    /// Whether an external system keeps its client, and whether that client matches.
    pub external: bool,
    pub client_matches: bool,
    /// How often the client is compared.
    pub recheck: Duration,
}

/// One idempotent effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Ensure,
    Remove,
}

pub fn decide(
    object: &Object,
    account: &Account,
    observed: &Observation,
    now: Timestamp,
) -> Decision<Step> {
    let end = account.created_at.plus(CREATE_TIMEOUT);
    let wait = Requeue::After(now.until(end));
    match account.phase {
        Phase::Creating if now < end => Decision::idle(wait),
        Phase::Creating => {
            let change = roll_back(object, now);
            Decision { steps: Vec::new(), change, requeue: Requeue::After(Duration::ZERO) }
        }
        Phase::Ready if !observed.external => Decision::idle(Requeue::Never),
        Phase::Ready => {
            let steps = if observed.client_matches { Vec::new() } else { vec![Step::Ensure] };
            Decision { steps, ..Decision::idle(Requeue::After(observed.recheck)) }
        }
        // A call of the failed request may still be carried out: the client is removed once more.
        Phase::Deleting if !account.spec.deleting && now < end => {
            Decision { steps: vec![Step::Remove], ..Decision::idle(wait) }
        }
        Phase::Deleting => {
            let change = deleted(object, now);
            Decision { steps: vec![Step::Remove], change, requeue: Requeue::Never }
        }
    }
}

/// Deletes an account that was never acknowledged: nobody has its secret, and it counts no more.
pub fn roll_back(object: &Object, now: Timestamp) -> Change {
    removal(going(object).report(Phase::Deleting.label(), now), "taken-back")
}

/// Marks the object as deleted, once nothing of it is left.
pub fn deleted(object: &Object, now: Timestamp) -> Change {
    removal(going(object).delete("deleted", now), "deleted")
}

fn going(object: &Object) -> Draft<'_, Spec> {
    Draft::of(object).phase(&Phase::Deleting)
}

/// Writes the object, which no longer counts.
fn removal(write: Write, action: &str) -> Change {
    let Object { key, org, .. } = &write.object;
    let release = Release { counter: account::counter(org), holder: key.to_string() };
    Change {
        releases: vec![release],
        audit: Some(audit(&write.object, action)),
        ..Change::from(write)
    }
}

#[cfg(test)]
mod tests {
    use kernel::Json;

    use super::*;

    const CREATED: Timestamp = Timestamp(1_000_000);

    fn after(phase: Phase, deleting: bool, seconds: u64, client_matches: bool) -> Decision<Step> {
        let id = "6f1f5b9e-0000-4000-8000-000000000001";
        let mut object =
            Object::new(account::key(id), "acme", "alice", "robot", phase.label(), CREATED);
        let client_id = account::client_id(id);
        object.spec = Json::encode(&Spec { client_id, deleting, ..Spec::default() });
        let account = Account::from_object(&object).unwrap();
        let observed =
            Observation { external: true, client_matches, recheck: Duration::from_secs(3_600) };
        decide(&object, &account, &observed, CREATED.plus(Duration::from_secs(seconds)))
    }

    fn phase(decision: &Decision<Step>) -> Option<(&str, bool)> {
        let object = decision.change.write.as_ref().map(|write| &write.object)?;
        Some((&object.phase, object.deleted_at.is_some()))
    }

    #[test]
    fn an_account_that_was_never_acknowledged_is_rolled_back_after_a_minute() {
        let early = after(Phase::Creating, false, 59, false);
        assert_eq!((early.steps.len(), phase(&early)), (0, None));
        assert_eq!(early.requeue, Requeue::After(Duration::from_secs(1)));
        let late = after(Phase::Creating, false, 60, false);
        assert_eq!(phase(&late), Some((Phase::Deleting.label(), false)));
        assert_eq!(late.change.releases.len(), 1, "it counts no more");
    }

    #[test]
    fn a_client_that_drifted_is_repaired() {
        assert_eq!(after(Phase::Ready, false, 5, false).steps, [Step::Ensure]);
        let converged = after(Phase::Ready, false, 5, true);
        assert_eq!(
            (converged.steps.len(), phase(&converged)),
            (0, None),
            "nothing to do once converged"
        );
        assert_eq!(converged.requeue, Requeue::After(Duration::from_secs(3_600)));
    }

    #[test]
    fn a_deleted_account_loses_its_client_before_its_object_is_marked() {
        let asked = after(Phase::Deleting, true, 5, true);
        assert_eq!(asked.steps, [Step::Remove]);
        assert_eq!(phase(&asked), Some((Phase::Deleting.label(), true)));
        assert_eq!(asked.change.releases[0].counter, account::counter("acme"));
        let failed = after(Phase::Deleting, false, 5, true);
        assert_eq!(
            (failed.steps, failed.requeue),
            (vec![Step::Remove], Requeue::After(Duration::from_secs(55)))
        );
        assert!(failed.change.write.is_none(), "its request may still be in flight");
        let late = after(Phase::Deleting, false, 60, true);
        assert_eq!(
            (late.steps.clone(), phase(&late)),
            (vec![Step::Remove], Some((Phase::Deleting.label(), true)))
        );
    }
}
