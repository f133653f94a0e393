//! Device grants (RFC 8628): a program without a browser shows a short code, a person approves
//! it elsewhere. Kept in the store, so that any replica can answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::oauth::Refused;
use crate::change::{AuditDraft, Write};
use crate::identity::Principal;
use crate::store::commit;
use crate::{Ambient, Change, Error, Json, Key, Object, Refusal, Result, Store, Timestamp};

pub const KIND: &str = "device-grant";
/// No vowels, so no words; nothing that looks like something else.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const CODE_LETTERS: usize = 8;

mod phase {
    pub const PENDING: &str = "pending";
    pub const APPROVED: &str = "approved";
    pub const DENIED: &str = "denied";
    pub const USED: &str = "used";
}

#[derive(Serialize, Deserialize)]
struct Spec {
    client: String,
    device_code_sha256: String,
    expires_at: Timestamp,
}

#[derive(Serialize, Deserialize, Default)]
struct Status {
    approved_by: Option<Principal>,
}

/// The two codes of a new grant.
pub struct Started {
    /// For the device alone: whoever has it gets the token.
    pub device_code: String,
    /// For the person: `BCDF-GHJK`.
    pub user_code: String,
}

fn sha256_hex(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

/// Both codes lead to the grant without a search: its id is a hash of the person's code, and
/// begins the device's.
fn key_of(user_code: &str) -> Key {
    Key::new(KIND, &sha256_hex(user_code)[..32])
}

pub async fn start(
    store: &dyn Store,
    ambient: &Ambient,
    client: &str,
    lifetime: Duration,
) -> Result<Started> {
    // A code that is taken is one in ten thousand million; being unlucky thrice is a fault.
    for _ in 0..3 {
        let code = user_code(ambient);
        let secret: String =
            ambient.random_bytes::<32>().iter().map(|byte| format!("{byte:02x}")).collect();
        let (key, now) = (key_of(&code), ambient.now());
        let mut grant = Object::new(key.clone(), "", "", "device sign-in", phase::PENDING, now);
        grant.spec = Json::of(&Spec {
            client: client.to_owned(),
            device_code_sha256: sha256_hex(&secret),
            expires_at: now.plus(lifetime),
        });
        grant.status = Json::of(&Status::default());
        let change = Change { write: Some(Write::Create(grant)), ..Change::default() };
        match commit(store, change, now).await {
            Ok(_) => {
                return Ok(Started {
                    device_code: format!("{}.{secret}", key.id()),
                    user_code: format!("{}-{}", &code[..4], &code[4..]),
                });
            }
            Err(Error::Refused(Refusal::Exists(_))) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::internal("a device grant", "no free code was found"))
}

fn user_code(ambient: &Ambient) -> String {
    let mut code = String::with_capacity(CODE_LETTERS);
    while code.len() < CODE_LETTERS {
        let [byte] = ambient.random_bytes::<1>();
        // 240 is a multiple of twenty: every letter is as likely.
        if byte < 240 {
            code.push(char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
        }
    }
    code
}

/// A code as a person typed it; `None` if it cannot be one.
pub fn read_user_code(typed: &str) -> Option<String> {
    let letters = typed.chars().filter(|c| !c.is_whitespace() && *c != '-');
    let code: String = letters.take(CODE_LETTERS + 1).map(|c| c.to_ascii_uppercase()).collect();
    let valid = code.len() == CODE_LETTERS && code.bytes().all(|b| LETTERS.contains(&b));
    valid.then_some(code)
}

async fn load(store: &dyn Store, key: &Key) -> Result<Option<(Object, Spec)>> {
    let Some(grant) = store.get(std::slice::from_ref(key)).await?.pop() else { return Ok(None) };
    let spec = grant.spec.parse()?;
    Ok(Some((grant, spec)))
}

/// What a person decides about a code. Returns the client that it is for.
pub async fn decide(
    store: &dyn Store,
    now: Timestamp,
    user_code: &str,
    who: &Principal,
    approve: bool,
) -> Result<String, Refused> {
    let unknown = || Refused::new("invalid_grant", "no device is waiting with this code");
    let loaded = load(store, &key_of(user_code)).await?;
    let (mut grant, spec) = loaded
        .filter(|(grant, spec)| grant.phase == phase::PENDING && now < spec.expires_at)
        .ok_or_else(unknown)?;
    grant.phase = if approve { phase::APPROVED } else { phase::DENIED }.to_owned();
    grant.status = Json::of(&Status { approved_by: approve.then(|| who.clone()) });
    let change = update(grant, who, if approve { "approve" } else { "deny" });
    match commit(store, change, now).await {
        Ok(_) => Ok(spec.client),
        Err(Error::Refused(Refusal::Stale { .. })) => Err(unknown()),
        Err(error) => Err(error.into()),
    }
}

/// The grant that a device asks about, if the code is one of ours and for this client.
pub struct Asked {
    grant: Object,
    spec: Spec,
}

impl Asked {
    pub async fn find(
        store: &dyn Store,
        device_code: &str,
        client: &str,
    ) -> Result<Asked, Refused> {
        let unknown = || Refused::new("invalid_grant", "this device code is unknown, or was used");
        let (id, secret) = device_code.split_once('.').ok_or_else(unknown)?;
        let key = Key::parse(&format!("{KIND}/{id}")).map_err(|_| unknown())?;
        let (grant, spec) = load(store, &key).await?.ok_or_else(unknown)?;
        if spec.device_code_sha256 != sha256_hex(secret) || spec.client != client {
            return Err(unknown());
        }
        Ok(Asked { grant, spec })
    }

    pub fn id(&self) -> &str {
        self.grant.key.id()
    }

    /// Whom the device may act for: once, if someone approved.
    pub async fn redeem(self, store: &dyn Store, now: Timestamp) -> Result<Principal, Refused> {
        let Asked { mut grant, spec } = self;
        let used = || Refused::new("invalid_grant", "this device code was used");
        match grant.phase.as_str() {
            phase::USED => return Err(used()),
            phase::DENIED => return Err(Refused::new("access_denied", "the request was denied")),
            _ if now >= spec.expires_at => {
                return Err(Refused::new("expired_token", "nobody approved in time; begin again"));
            }
            phase::APPROVED => {}
            _ => return Err(Refused::new("authorization_pending", "nobody has approved yet")),
        }
        let status: Status = grant.status.parse()?;
        let who = status
            .approved_by
            .ok_or_else(|| Error::internal("a device grant", "is approved by nobody"))?;
        grant.phase = phase::USED.to_owned();
        grant.deleted_at = Some(now);
        match commit(store, update(grant, &who, "redeem"), now).await {
            Ok(_) => Ok(who),
            Err(Error::Refused(Refusal::Stale { .. })) => Err(used()),
            Err(error) => Err(error.into()),
        }
    }
}

fn update(grant: Object, who: &Principal, action: &str) -> Change {
    let audit = AuditDraft {
        actor: who.subject.clone(),
        action: format!("{KIND}.{action}"),
        target: grant.key.to_string(),
        org: who.org.clone(),
        outcome: "ok".to_owned(),
        ..AuditDraft::default()
    };
    Change { write: Some(Write::Update(grant)), audit: Some(audit), ..Change::default() }
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
