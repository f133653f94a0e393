//! Device grants (RFC 8628): a program without a browser shows a short code, a person approves
//! it elsewhere.
//!
//! A grant is begun, decided and redeemed, each at most once (`once`).

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::oauth::OAuthError;
use super::once;
use crate::change::AuditDraft;
use crate::identity::Principal;
use crate::{Ambient, Error, Result, Store, Timestamp};

const KIND: &str = "device-grant";
/// No vowels, so no words; no characters that look alike.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const CODE_LETTERS: usize = 8;

#[derive(Serialize, Deserialize)]
struct Grant {
    client: String,
    device_code_sha256: String,
    expires_at: Timestamp,
}

/// A person's decision: on whose behalf the device may act, if approved.
#[derive(Serialize, Deserialize)]
struct Decision {
    approved_by: Option<Principal>,
}

/// The two codes of a new grant.
pub struct Started {
    /// Secret of the device: redeems the token.
    pub device_code: String,
    /// For the person: `BCDF-GHJK`.
    pub user_code: String,
}

fn sha256_hex(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

/// Both codes identify the grant without a search: its id is a hash of the person's code, and
/// the prefix of the device's.
fn id_of(user_code: &str) -> String {
    sha256_hex(user_code)[..32].to_owned()
}

/// The transitions of a grant, each at most once.
#[derive(Clone, Copy)]
enum Step {
    Begun,
    Decided,
    Redeemed,
}

impl Step {
    fn command_id(self, id: &str) -> String {
        match self {
            Step::Begun => format!("{KIND}/{id}"),
            Step::Decided => format!("{KIND}/{id}/decided"),
            Step::Redeemed => format!("{KIND}/{id}/redeemed"),
        }
    }

    /// Makes the transition; `false` if it was made before.
    async fn take(
        self,
        store: &dyn Store,
        now: Timestamp,
        id: &str,
        what: &impl Serialize,
        audit: Option<AuditDraft>,
    ) -> Result<bool> {
        once::take(store, now, self.command_id(id), what, audit).await
    }

    /// The record of the transition.
    async fn taken<T: DeserializeOwned>(self, store: &dyn Store, id: &str) -> Result<Option<T>> {
        once::taken(store, &self.command_id(id)).await
    }
}

pub async fn start(
    store: &dyn Store,
    ambient: &Ambient,
    client: &str,
    lifetime: Duration,
) -> Result<Started> {
    // The chance of a collision is one in 10^10; three in a row are a bug.
    for _ in 0..3 {
        let code = user_code(ambient);
        let secret: String =
            ambient.random_bytes::<32>().iter().map(|byte| format!("{byte:02x}")).collect();
        let (id, now) = (id_of(&code), ambient.now());
        let grant = Grant {
            client: client.to_owned(),
            device_code_sha256: sha256_hex(&secret),
            expires_at: now.plus(lifetime),
        };
        if Step::Begun.take(store, now, &id, &grant, None).await? {
            return Ok(Started {
                device_code: format!("{id}.{secret}"),
                user_code: format!("{}-{}", &code[..4], &code[4..]),
            });
        }
    }
    Err(Error::internal("a device grant", "no free code was found"))
}

fn user_code(ambient: &Ambient) -> String {
    let mut code = String::with_capacity(CODE_LETTERS);
    while code.len() < CODE_LETTERS {
        let [byte] = ambient.random_bytes::<1>();
        // 240 is a multiple of 20, so letters are uniform.
        if byte < 240 {
            code.push(char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
        }
    }
    code
}

/// Normalises a typed code; `None` if it cannot be one.
pub fn read_user_code(typed: &str) -> Option<String> {
    let letters = typed.chars().filter(|c| !c.is_whitespace() && *c != '-');
    let code: String = letters.take(CODE_LETTERS + 1).map(|c| c.to_ascii_uppercase()).collect();
    let valid = code.len() == CODE_LETTERS && code.bytes().all(|b| LETTERS.contains(&b));
    valid.then_some(code)
}

/// Records a person's decision about a code. Returns the client that it is for.
pub async fn decide(
    store: &dyn Store,
    now: Timestamp,
    user_code: &str,
    who: &Principal,
    approve: bool,
) -> Result<String, OAuthError> {
    let unknown = || OAuthError::new("invalid_grant", "no device is waiting with this code");
    let id = id_of(user_code);
    let grant: Option<Grant> = Step::Begun.taken(store, &id).await?;
    let grant = grant.filter(|grant| now < grant.expires_at).ok_or_else(unknown)?;
    let decision = Decision { approved_by: approve.then(|| who.clone()) };
    let audit = audit(&id, who, if approve { "approve" } else { "deny" });
    if Step::Decided.take(store, now, &id, &decision, Some(audit)).await? {
        Ok(grant.client)
    } else {
        Err(unknown())
    }
}

/// The grant of a device code, if it is valid for this client.
pub struct PendingGrant {
    id: String,
    expires_at: Timestamp,
}

impl PendingGrant {
    pub async fn find(
        store: &dyn Store,
        device_code: &str,
        client: &str,
    ) -> Result<PendingGrant, OAuthError> {
        let unknown =
            || OAuthError::new("invalid_grant", "this device code is unknown, or was used");
        let (id, secret) = device_code.split_once('.').ok_or_else(unknown)?;
        if id.len() != 32 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        let grant: Option<Grant> = Step::Begun.taken(store, id).await?;
        let grant = grant.ok_or_else(unknown)?;
        if grant.device_code_sha256 != sha256_hex(secret) || grant.client != client {
            return Err(unknown());
        }
        Ok(PendingGrant { id: id.to_owned(), expires_at: grant.expires_at })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Redeems an approved grant, once.
    pub async fn redeem(self, store: &dyn Store, now: Timestamp) -> Result<Principal, OAuthError> {
        let PendingGrant { id, expires_at } = self;
        let decision: Option<Decision> = Step::Decided.taken(store, &id).await?;
        let refused = |code, why| Err(OAuthError::new(code, why));
        let who = match decision {
            Some(Decision { approved_by: None }) => {
                return refused("access_denied", "the request was denied");
            }
            _ if now >= expires_at => {
                return refused("expired_token", "nobody approved in time; begin again");
            }
            None => return refused("authorization_pending", "nobody has approved yet"),
            Some(Decision { approved_by: Some(who) }) => who,
        };
        let audit = audit(&id, &who, "redeem");
        if Step::Redeemed.take(store, now, &id, &(), Some(audit)).await? {
            Ok(who)
        } else {
            Err(OAuthError::new("invalid_grant", "this device code was used"))
        }
    }
}

fn audit(id: &str, who: &Principal, action: &str) -> AuditDraft {
    AuditDraft {
        actor: who.subject.clone(),
        action: format!("{KIND}.{action}"),
        target: format!("{KIND}/{id}"),
        org: who.org.clone(),
        outcome: "ok".to_owned(),
        ..AuditDraft::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_eight_plain_letters_and_reads_back_however_it_is_typed() {
        let ambient = Ambient::system();
        for _ in 0..200 {
            let code = user_code(&ambient);
            assert_eq!(code.len(), 8);
            assert!(
                code.chars().all(|c| c.is_ascii_uppercase() && !"AEIOUY".contains(c)),
                "{code}"
            );
            let typed = format!(" {}-{} ", &code[..4].to_lowercase(), &code[4..]);
            assert_eq!(read_user_code(&typed), Some(code));
        }
        for bad in ["", "BCDF", "BCDF-GHJKL", "BCDF-GHJ1", "AEIO-UAEI", "BCDF_GHJK", "ＢCDF-GHJK"]
        {
            assert_eq!(read_user_code(bad), None, "{bad}");
        }
    }
}
