//! Sessions: families of refresh tokens (RFC 9700, section 4.14). A token is good for one refresh,
//! which answers with its successor. One that is used again was copied, so its family ends.
//!
//! Tokens are signed and say their family and number; the object says which number is current. So the
//! store holds nothing that could be presented, and a client that lost the reply gets the same number
//! when it asks again soon.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::oauth::OAuthError;
use super::{Builtin, CLI_CLIENT, account};
use crate::change::AuditDraft;
use crate::identity::Principal;
use crate::identity::token::{self, Unverified};
use crate::query::{ObjectQuery, PAGE_MAX};
use crate::store::commit;
use crate::typed::Kind;
use crate::{Change, Draft, Error, Json, Key, Object, Refusal, Result, Store, Timestamp};

const KIND: &str = "session";
/// How long the last token may be used again: a client that lost the reply retries within this, and
/// so do two processes of one person that share their tokens.
const GRACE: Duration = Duration::from_secs(30);
/// A refresh that collides with others more often than this fails, and may be tried again.
const TRIES: usize = 5;

#[derive(Serialize, Deserialize)]
struct Spec {
    granted: Principal,
    client: String,
}

#[derive(Clone, Serialize, Deserialize)]
struct Status {
    /// The number of the current token.
    number: i64,
    rotated_at: Timestamp,
    expires_at: Timestamp,
    /// Why no token of the family is good any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
}

crate::labels! { enum Phase { Active = "active", Ended = "ended" } }

impl Kind for Spec {
    type Phase = Phase;
    type Status = Status;
    const RECONCILED: bool = false;
}

/// What a token is to its family.
#[derive(Debug, PartialEq)]
enum TokenUse {
    Current,
    /// It was the current one a moment ago.
    Retried,
    /// It was used before.
    Reused,
    /// The family has ended.
    Ended,
}

impl Status {
    fn classify(&self, number: i64, now: Timestamp) -> TokenUse {
        if self.ended.is_some() || now >= self.expires_at {
            TokenUse::Ended
        } else if number >= self.number {
            // A later number is authentic too: the store was restored from before it was issued.
            TokenUse::Current
        } else if number == self.number - 1 && now < self.rotated_at.plus(GRACE) {
            TokenUse::Retried
        } else {
            TokenUse::Reused
        }
    }
}

/// An authentic refresh token.
pub struct Presented {
    family: String,
    number: i64,
    /// A token that was signed without a server begins its family when it is first used.
    offline: Option<Offline>,
}

struct Offline {
    granted: Principal,
    client: String,
    issued_at: Timestamp,
    expires_at: Timestamp,
}

/// What a refresh returns.
pub struct Refreshed {
    pub who: Principal,
    pub client: String,
    pub refresh_token: String,
}

fn refused(why: impl Into<String>) -> OAuthError {
    OAuthError::new("invalid_grant", why)
}

fn over() -> OAuthError {
    refused("the session has ended; sign in again")
}

fn key(family: &str) -> Key {
    Key::new(KIND, family)
}

/// The id of a family that something else names: an offline token or an authorization code.
pub fn family_of(name: &str) -> String {
    format!("{:x}", Sha256::digest(name))[..32].to_owned()
}

impl Builtin {
    /// Parses a refresh token and checks that it is ours. The store is not asked.
    pub(super) async fn presented(&self, text: &str) -> Result<Presented, OAuthError> {
        let invalid = |error: Error| refused(error.to_string());
        let token = Unverified::parse(text).map_err(invalid)?;
        let claims = &token.claims;
        let now = self.ambient.now();
        let expires_at = token::check_times(claims, now, self.clock_skew_s).map_err(invalid)?;
        if token.issuer().map_err(invalid)?.trim_end_matches('/') != self.issuer.url {
            return Err(refused("the refresh token is from another issuer"));
        }
        if token::text(claims, "typ") != Some("Refresh") {
            return Err(refused("this is not a refresh token"));
        }
        self.issuer.verify(&token).await.map_err(invalid)?;
        if let Some(family) = token::text(claims, "sid") {
            let number = claims.get("num").and_then(Value::as_i64);
            let number = number.ok_or_else(|| refused("the token has no number (`num`)"))?;
            return Ok(Presented { family: family.to_owned(), number, offline: None });
        }
        let id = token::text(claims, "jti").ok_or_else(|| refused("the token has no `jti`"))?;
        let offline = Offline {
            granted: self.issuer.reader.principal(&self.issuer.url, claims).map_err(invalid)?,
            client: token::text(claims, "azp").unwrap_or(CLI_CLIENT).to_owned(),
            issued_at: token::issued_at(claims),
            expires_at,
        };
        Ok(Presented { family: family_of(id), number: 0, offline: Some(offline) })
    }

    /// Begins a family. Returns its first token; `None` if there is one of this name.
    pub(super) async fn begin_session(
        &self,
        store: &dyn Store,
        family: &str,
        who: &Principal,
        client: &str,
        expires_at: Timestamp,
    ) -> Result<Option<String>, OAuthError> {
        let now = self.ambient.now();
        // No organisation and no owner: only admins see sessions.
        let draft = Draft::new(key(family), "", "", &who.subject, now);
        let spec = Spec { granted: who.clone(), client: client.to_owned() };
        let status = Status { number: 1, rotated_at: now, expires_at, ended: None };
        let write = draft.phase(&Phase::Active).spec(&spec).status(&status).create("created");
        let audit = Some(audit(&write.object, who, "begin", client));
        let change = Change { audit, ..Change::from(write) };
        match commit(store, change, now).await {
            Ok(_) => Ok(Some(self.signer.refresh_token(family, 1, who, client, expires_at)?)),
            Err(Error::Refused(Refusal::Exists(_) | Refusal::Stale { .. })) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Trades a refresh token for its successor.
    pub(super) async fn refresh_session(
        &self,
        store: &dyn Store,
        text: &str,
    ) -> Result<Refreshed, OAuthError> {
        let Presented { family, number, offline } = self.presented(text).await?;
        for _ in 0..TRIES {
            let Some(object) = store.object(&key(&family)).await? else {
                let Some(offline) = &offline else { return Err(over()) };
                let (who, issued_at) = (&offline.granted, offline.issued_at);
                account::sign_in(store, &self.ambient, &self.issuer.url, who, issued_at).await?;
                let (client, expires_at) = (&offline.client, offline.expires_at);
                self.begin_session(store, &family, who, client, expires_at).await?;
                let token = self.signer.refresh_token(&family, 1, who, client, expires_at)?;
                return self.refreshed(store, who, client, token).await;
            };
            let (now, spec) = (self.ambient.now(), object.spec.parse::<Spec>()?);
            let status: Status = object.status.parse()?;
            let token = |number| {
                let (Spec { granted, client }, until) = (&spec, status.expires_at);
                self.signer.refresh_token(&family, number, granted, client, until)
            };
            let (next, action) = match status.classify(number, now) {
                _ if object.deleted_at.is_some() => return Err(over()),
                TokenUse::Ended => return Err(over()),
                TokenUse::Retried => {
                    let current = token(status.number)?;
                    return self.refreshed(store, &spec.granted, &spec.client, current).await;
                }
                TokenUse::Current => {
                    (Status { number: number + 1, rotated_at: now, ..status.clone() }, None)
                }
                TokenUse::Reused => {
                    let why = "a refresh token was used twice";
                    (Status { ended: Some(why.into()), ..status.clone() }, Some("reuse"))
                }
            };
            if !self.write(store, &object, &spec, &next, action).await? {
                continue;
            }
            if action.is_some() {
                tracing::warn!(
                    subject = spec.granted.subject,
                    session = family,
                    "a refresh token was used twice; ended the session"
                );
                return Err(refused(
                    "this refresh token was used before, so the session was ended; sign in again",
                ));
            }
            let successor = token(next.number)?;
            return self.refreshed(store, &spec.granted, &spec.client, successor).await;
        }
        Err(Error::Transient("the session is being refreshed; try again".into()).into())
    }

    async fn refreshed(
        &self,
        store: &dyn Store,
        granted: &Principal,
        client: &str,
        refresh_token: String,
    ) -> Result<Refreshed, OAuthError> {
        let who = account::current(store, &self.issuer.url, granted).await?;
        let who = who.ok_or_else(|| refused("the account is disabled"))?;
        Ok(Refreshed { who, client: client.to_owned(), refresh_token })
    }

    /// Ends the family of a token. One that never began is recorded as ended.
    pub(super) async fn end_session(
        &self,
        store: &dyn Store,
        Presented { family, offline, .. }: Presented,
        action: &'static str,
    ) -> Result<(), OAuthError> {
        if let Some(Offline { granted, client, expires_at, .. }) = &offline {
            self.begin_session(store, &family, granted, client, *expires_at).await?;
        }
        self.end_family(store, &family, action).await
    }

    pub(super) async fn end_family(
        &self,
        store: &dyn Store,
        family: &str,
        action: &'static str,
    ) -> Result<(), OAuthError> {
        for _ in 0..TRIES {
            let Some(object) = store.object(&key(family)).await? else { return Ok(()) };
            let (spec, status): (Spec, Status) = (object.spec.parse()?, object.status.parse()?);
            if status.ended.is_some() || object.deleted_at.is_some() {
                return Ok(());
            }
            let next = Status { ended: Some(action.into()), ..status };
            if self.write(store, &object, &spec, &next, Some(action)).await? {
                return Ok(());
            }
        }
        Err(Error::Transient("the session is being refreshed; try again".into()).into())
    }

    /// Returns whether nobody wrote in between.
    async fn write(
        &self,
        store: &dyn Store,
        object: &Object,
        spec: &Spec,
        status: &Status,
        action: Option<&'static str>,
    ) -> Result<bool> {
        let now = self.ambient.now();
        let phase = if status.ended.is_some() { Phase::Ended } else { Phase::Active };
        let draft = Draft::<Spec>::of(object).phase(&phase).status(status);
        let change = Change {
            audit: action.map(|action| audit(object, &spec.granted, action, &spec.client)),
            ..Change::from(draft.transition(action.unwrap_or("refreshed"), now))
        };
        match commit(store, change, now).await {
            Ok(_) => Ok(true),
            Err(Error::Refused(Refusal::Stale { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes sessions that have expired. Returns how many.
    pub async fn remove_expired_sessions(&self, store: &dyn Store) -> Result<usize> {
        let now = self.ambient.now();
        let mut query =
            ObjectQuery { kind: Some(KIND.into()), limit: PAGE_MAX, ..ObjectQuery::default() };
        let mut removed = 0;
        loop {
            let page = store.find(&query).await?;
            let mut changes = Vec::new();
            for object in &page.objects {
                let status: Status = object.status.parse()?;
                if now >= status.expires_at {
                    changes.push(Draft::<Spec>::of(object).delete("deleted", now).into());
                }
            }
            // One that was written in between is removed the next time.
            let verdicts = store.commit_all(changes, now).await?;
            removed += verdicts.iter().filter(|verdict| verdict.is_ok()).count();
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(removed),
            }
        }
    }
}

fn audit(object: &Object, who: &Principal, action: &str, client: &str) -> AuditDraft {
    AuditDraft {
        actor: who.subject.clone(),
        action: format!("{KIND}.{action}"),
        target: object.key.to_string(),
        org: who.org.clone(),
        outcome: "done".into(),
        after: Json::encode(&serde_json::json!({ "client": client })),
        ..AuditDraft::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_once_and_a_moment_longer() {
        let at = |s: i64| Timestamp(1_000_000 + s * 1000);
        let status = Status { number: 5, rotated_at: at(0), expires_at: at(1000), ended: None };
        for (number, s, expected) in [
            (5, 0, TokenUse::Current),
            (5, 999, TokenUse::Current),
            (5, 1000, TokenUse::Ended),
            (4, 29, TokenUse::Retried),
            (4, 30, TokenUse::Reused),
            (3, 0, TokenUse::Reused),
            (0, 0, TokenUse::Reused),
            (7, 0, TokenUse::Current),
        ] {
            assert_eq!(status.classify(number, at(s)), expected, "token {number} after {s} s");
        }
        let ended = Status { ended: Some("logout".into()), ..status };
        assert_eq!(ended.classify(5, at(0)), TokenUse::Ended);
    }
}
