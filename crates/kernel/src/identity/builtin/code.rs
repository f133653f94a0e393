//! Authorization codes (RFC 6749, section 4.1) with PKCE (RFC 7636): a browser brings one from the
//! issuer to the program, which trades it for tokens once.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use url::Url;

use super::clients::Clients;
use super::oauth::{Form, OAuthError};
use super::{Builtin, CLI_CLIENT, once};
use crate::change::AuditDraft;
use crate::identity::Principal;
use crate::{Result, Store, Timestamp};

/// Enough for a redirect.
const CODE_FOR: Duration = Duration::from_secs(60);
/// The command line's own, on any port (RFC 8252, section 7.3).
const CLI_REDIRECTS: [(&str, &str); 2] = [("127.0.0.1", "/callback"), ("[::1]", "/callback")];
const TEXT_CHARS_MAX: usize = 1024;

/// What a program asks for with its link.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuthorizationRequest {
    pub client: String,
    pub redirect_uri: String,
    pub state: Option<String>,
    pub nonce: Option<String>,
    pub scope: String,
    challenge: String,
}

/// Why a request is refused, and where that may be reported.
pub enum Refused {
    /// The client or its address is wrong: nothing may be sent there.
    ToPerson(OAuthError),
    ToClient {
        redirect_uri: String,
        state: Option<String>,
        error: OAuthError,
    },
}

impl AuthorizationRequest {
    pub fn read(form: &Form, clients: &Clients) -> Result<AuthorizationRequest, Refused> {
        let need = |name: &str| form.need(name).map_err(Refused::ToPerson);
        let (client, redirect_uri) = (need("client_id")?, need("redirect_uri")?);
        if !may_redirect(clients, client, redirect_uri) {
            let why =
                "`redirect_uri` is not registered for this client, or there is no such client";
            return Err(Refused::ToPerson(OAuthError::new("invalid_request", why)));
        }
        let state = form.get("state").map(str::to_owned);
        let refused = |error: OAuthError| Refused::ToClient {
            redirect_uri: redirect_uri.to_owned(),
            state: state.clone(),
            error,
        };
        let invalid = |why: &str| refused(OAuthError::new("invalid_request", why));
        match form.get("response_type") {
            Some("code") => {}
            Some(_) => {
                let why = "`response_type` must be code";
                return Err(refused(OAuthError::new("unsupported_response_type", why)));
            }
            None => return Err(invalid("`response_type` is missing; it must be code")),
        }
        if form.get("code_challenge_method") != Some("S256") {
            return Err(invalid("`code_challenge_method` must be S256"));
        }
        let challenge = form.get("code_challenge").unwrap_or_default();
        if URL_SAFE_NO_PAD.decode(challenge).map_or(0, |bytes| bytes.len()) != 32 {
            return Err(invalid("`code_challenge` must be a SHA-256 in base64url, unpadded"));
        }
        let texts = [form.get("state"), form.get("nonce"), form.get("scope")];
        if texts.into_iter().flatten().any(|text| text.len() > TEXT_CHARS_MAX) {
            return Err(invalid("`state`, `nonce` and `scope` may have 1024 characters each"));
        }
        Ok(AuthorizationRequest {
            client: client.to_owned(),
            redirect_uri: redirect_uri.to_owned(),
            nonce: form.get("nonce").map(str::to_owned),
            scope: form.get("scope").unwrap_or_default().to_owned(),
            challenge: challenge.to_owned(),
            state,
        })
    }

    pub fn wants_id_token(&self) -> bool {
        self.scope.split(' ').any(|scope| scope == "openid")
    }
}

/// Registered addresses match exactly; the command line's on any port.
fn may_redirect(clients: &Clients, client: &str, uri: &str) -> bool {
    if client != CLI_CLIENT {
        let registered = clients.find(client).map(|client| client.redirect_uris.as_slice());
        return registered.unwrap_or_default().iter().any(|one| one == uri);
    }
    let Ok(url) = Url::parse(uri) else { return false };
    let plain = url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    let (host, path) = (url.host_str().unwrap_or_default(), url.path());
    plain && url.scheme() == "http" && CLI_REDIRECTS.contains(&(host, path))
}

/// The address to send the browser to, with these pairs.
pub fn redirect(uri: &str, pairs: &[(&str, &str)]) -> Option<String> {
    let mut url = Url::parse(uri).ok()?;
    url.query_pairs_mut().extend_pairs(pairs);
    Some(url.into())
}

#[derive(Serialize, Deserialize)]
struct Code {
    request: AuthorizationRequest,
    who: Principal,
    signed_in_at: Timestamp,
    secret_sha256: String,
    expires_at: Timestamp,
}

/// A code that was traded.
pub struct Redeemed {
    pub id: String,
    pub request: AuthorizationRequest,
    pub who: Principal,
    pub signed_in_at: Timestamp,
}

fn command_id(id: &str) -> String {
    format!("authorization-code/{id}")
}

fn sha256_hex(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

impl Builtin {
    /// A code for a request that the person approved.
    pub(super) async fn issue_code(
        &self,
        store: &dyn Store,
        request: AuthorizationRequest,
        who: &Principal,
    ) -> Result<String> {
        let now = self.ambient.now();
        let random = |bytes: [u8; 32]| URL_SAFE_NO_PAD.encode(bytes);
        let (id, secret) = (self.ambient.id(), random(self.ambient.random_bytes::<32>()));
        let audit = AuditDraft {
            actor: who.subject.clone(),
            action: "authorization-code.approve".into(),
            target: format!("client/{}", request.client),
            org: who.org.clone(),
            outcome: "done".into(),
            ..AuditDraft::default()
        };
        let code = Code {
            request,
            who: who.clone(),
            signed_in_at: now,
            secret_sha256: sha256_hex(&secret),
            expires_at: now.plus(CODE_FOR),
        };
        once::take(store, now, command_id(&id), &code, Some(audit)).await?;
        Ok(format!("{id}.{secret}"))
    }

    /// Trades a code. One that comes twice was copied: the session of its first use ends.
    pub(super) async fn redeem_code(
        &self,
        store: &dyn Store,
        form: &Form,
        client: &str,
    ) -> Result<Redeemed, OAuthError> {
        let refused = |why: &str| OAuthError::new("invalid_grant", why);
        let unknown = || refused("this code is unknown or expired");
        let verifier = form.need("code_verifier")?;
        let (id, secret) = form.need("code")?.split_once('.').ok_or_else(unknown)?;
        let code: Code = once::taken(store, &command_id(id)).await?.ok_or_else(unknown)?;
        let now = self.ambient.now();
        if code.secret_sha256 != sha256_hex(secret) || now >= code.expires_at {
            return Err(unknown());
        }
        if code.request.client != client {
            return Err(refused("this code is for another client"));
        }
        if form.need("redirect_uri")? != code.request.redirect_uri {
            return Err(refused("`redirect_uri` is not the one that the code was sent to"));
        }
        if URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)) != code.request.challenge {
            return Err(refused("`code_verifier` does not fit the `code_challenge`"));
        }
        if !once::take(store, now, format!("{}/redeemed", command_id(id)), &(), None).await? {
            self.end_family(store, &super::session::family_of(id), "code_reuse").await?;
            return Err(refused("this code was used before, so the session was ended"));
        }
        let Code { request, who, signed_in_at, .. } = code;
        Ok(Redeemed { id: id.to_owned(), request, who, signed_in_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Client;

    #[test]
    fn a_registered_address_matches_exactly_and_the_command_lines_on_any_port() {
        let console = Client {
            id: "console".into(),
            redirect_uris: vec!["https://c.example/cb".into()],
            ..Client::default()
        };
        let clients = Clients(vec![(console, None)]);
        let may = |client: &str, uri: &str| may_redirect(&clients, client, uri);
        assert!(may("console", "https://c.example/cb"));
        assert!(may(CLI_CLIENT, "http://127.0.0.1:1234/callback"));
        assert!(may(CLI_CLIENT, "http://127.0.0.1/callback"));
        assert!(may(CLI_CLIENT, "http://[::1]:9/callback"));
        for (client, uri) in [
            ("console", "https://c.example/cb/"),
            ("console", "https://c.example/cb?x=1"),
            ("console", "https://c.example:443/cb"),
            ("console", "http://127.0.0.1:1/callback"),
            ("nobody", "https://c.example/cb"),
            (CLI_CLIENT, "https://127.0.0.1:1/callback"),
            (CLI_CLIENT, "http://localhost:1/callback"),
            (CLI_CLIENT, "http://127.0.0.1.evil.example/callback"),
            (CLI_CLIENT, "http://127.0.0.1:1/callback#x"),
            (CLI_CLIENT, "http://127.0.0.1@evil.example/callback"),
            (CLI_CLIENT, "http://127.0.0.1:1/"),
            (CLI_CLIENT, "callback"),
        ] {
            assert!(!may(client, uri), "{client} {uri}");
        }
    }
}
