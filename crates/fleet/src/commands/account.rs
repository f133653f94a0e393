//! The commands of service accounts: create, delete, reset the credentials.
//!
//! The object is written first and is authoritative. An external sign-in system is updated after
//! that, by the API before it responds or else by the worker.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::change::{CommandReply, Take, Wake};
use kernel::command::{AnyCommand, AuditFields, CommandContext, Decided};
use kernel::identity::{Action, Principal};
use kernel::{App, Change, Draft, Error, Json, Key, Object, Refusal, Result, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use crate::Fleet;
use crate::decide::account::{CREATE_TIMEOUT, deleted, roll_back};
use crate::model::account::{self, Account, Phase, Spec};
use crate::model::error_code::ErrorCode;
use crate::store::access;

kernel::labels! {
    /// What is done to a service account: the name of the command.
    pub enum Verb {
        Create = "service-account.create",
        Delete = "service-account.delete",
        Reset = "service-account.reset_credentials",
    }
}

pub struct AccountCommand {
    pub fleet: Arc<Fleet>,
    pub verb: Verb,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    name: String,
    #[serde(default)]
    description: String,
}

impl AccountCommand {
    fn create(&self, cx: &CommandContext<'_>, new: New) -> Result<Decided<Json>> {
        let (fleet, who) = (&self.fleet, cx.principal);
        let id = uuid(fleet.ambient.random_bytes());
        let phase = if fleet.ports.sso_is_external { Phase::Creating } else { Phase::Ready };
        let key = account::key(&id);
        let (client_id, account) = (account::client_id(&id), who.account.clone());
        let draft = Draft::new(key.clone(), &who.org, &who.subject, &new.name, cx.now)
            .description(new.description)
            .phase(&phase)
            .spec(&Spec { client_id, account, rotation: 0, deleting: false });
        let write = draft.create(phase.label());
        let object = write.object.clone();
        let take = Take {
            counter: account::counter(&who.org),
            holder: key.to_string(),
            amount: 1,
            limit: fleet.config.service_accounts_max,
        };
        let audit = AuditFields { after: object.spec.clone(), ..AuditFields::of(&object) };
        let change = Change {
            takes: vec![take],
            wakes: self.deferred_wake(&object, cx.now),
            ..Change::from(write)
        };
        let org = who.org.clone();
        let decided = Decided::new(202, Json::encode(&object), audit).change(change);
        Ok(decided.on_refused(move |refusal| match refusal {
            Refusal::Limit { limit, .. } => Err(full(&org, limit)),
            refusal => Err(refusal.into()),
        }))
    }

    fn edit(&self, cx: &CommandContext<'_>) -> Result<Decided<Json>> {
        let before = cx.subject()?;
        let account = Account::from_object(before)?;
        let (draft, now) = (Draft::of(before), cx.now);
        let (status, change) = match self.verb {
            Verb::Delete if !self.fleet.ports.sso_is_external => (204, deleted(before, now)),
            Verb::Delete => {
                let spec = Spec { deleting: true, ..account.spec };
                let draft = draft.phase(&Phase::Deleting).spec(&spec);
                let wakes = vec![Wake::for_object(before, now)];
                (204, Change { wakes, ..draft.respec(Phase::Deleting.label(), now).into() })
            }
            Verb::Create | Verb::Reset => {
                let spec = Spec { rotation: account.spec.rotation + 1, ..account.spec };
                let wakes = self.deferred_wake(before, now);
                (200, Change { wakes, ..draft.spec(&spec).respec("reset", now).into() })
            }
        };
        let after = change.write.as_ref().map_or(before, |write| &write.object);
        let audit = AuditFields {
            before: before.spec.clone(),
            after: after.spec.clone(),
            ..AuditFields::of(before)
        };
        Ok(Decided::new(status, Json::encode(after), audit).change(change))
    }

    /// Schedules the worker for when the request must be over. Without an external system it has
    /// nothing to do.
    fn deferred_wake(&self, object: &Object, now: Timestamp) -> Vec<Wake> {
        let outside = self.fleet.ports.sso_is_external;
        outside.then(|| Wake::for_object(object, now.plus(CREATE_TIMEOUT))).into_iter().collect()
    }
}

#[async_trait]
impl AnyCommand for AccountCommand {
    fn name(&self) -> &str {
        self.verb.label()
    }

    fn action(&self) -> Action {
        Action::OrgUser
    }

    async fn subject(&self, app: &App, who: &Principal, key: &Key) -> Result<Option<Arc<Object>>> {
        let id = key.id();
        let found = app.store.object(key).await?;
        let ready =
            |object: &Object| object.deleted_at.is_none() && object.phase == Phase::Ready.label();
        let object = found.filter(|object| ready(object)).ok_or_else(|| missing(id))?;
        let own = object.org == who.org && (who.org_admin || object.owner == who.subject);
        if !own {
            let why = format!("not allowed to change the service account {id}");
            return Err(ErrorCode::Forbidden.error(why));
        }
        Ok(Some(object))
    }

    async fn decide(&self, cx: &CommandContext<'_>, body: &Json) -> Result<Decided<Json>> {
        access::check(&self.fleet.catalogue(), cx.principal)?;
        match self.verb {
            Verb::Create => {
                let new = body.parse::<New>();
                let invalid = |error: Error| Error::invalid("body", error.to_string());
                self.create(cx, new.map_err(invalid)?)
            }
            Verb::Delete | Verb::Reset => self.edit(cx),
        }
    }

    /// Adds the secret, which is derived from a key and never stored.
    fn complete(&self, _: &App, mut reply: CommandReply) -> Result<CommandReply> {
        if self.verb != Verb::Delete {
            let object: Object = reply.body.parse()?;
            let spec: Spec = object.spec.parse()?;
            let mut body: Value = reply.body.parse()?;
            body["client_secret"] =
                self.fleet.secrets.derive(&spec.client_id, spec.rotation).into();
            reply.body = Json::encode(&body);
        }
        Ok(reply)
    }
}

/// Marks an account as ready, once the sign-in system has its client.
pub fn ready(object: &Object, now: Timestamp) -> Change {
    let ready = Draft::<Spec>::of(object).phase(&Phase::Ready);
    ready.transition(Phase::Ready.label(), now).into()
}

/// Rolls back an account whose client could not be made: its secret was never returned.
pub fn take_back(object: &Object, now: Timestamp) -> Change {
    Change { wakes: vec![Wake::for_object(object, now)], ..roll_back(object, now) }
}

/// Returns the error for a reached limit. It says that the limit counts the whole organisation.
fn full(org: &str, limit: i64) -> Error {
    ErrorCode::AccountLimit.error(format!(
        "Max allowed number:{limit} of service accounts has reached: the limit counts all service \
         accounts of the whole organisation {org}, regardless of who created them"
    ))
}

pub fn missing(id: &str) -> Error {
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
    use crate::model::is_uuid;

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
