//! The trusted issuers, and how their tokens are mapped.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::outbound::Tls;
use crate::secret::SecretSource;
use crate::{Error, Result};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// OIDC issuers whose tokens are accepted.
    pub issuers: Vec<IssuerConfig>,
    /// Whether this server issues tokens itself. Not given: if no other issuer is.
    pub builtin: Option<bool>,
    /// How far another machine's clock may be off.
    pub clock_skew_s: u64,
    pub admin_roles: AdminRoles,
    /// How often the issuers' keys are fetched again, so that withdrawn keys are refused.
    pub keys_refresh_s: u64,
    /// The built-in issuer's key, where replicas share one; else `issuer-key.pem` in the data
    /// directory, created on first start.
    pub signing_key_file: Option<PathBuf>,
    pub access_token_s: u64,
    pub refresh_token_s: u64,
    pub device_code_s: u64,
    /// How many tokens and secrets of one address may be refused per second, on average, before its
    /// next ones are not looked at. 0: any number.
    pub refused_per_s: u32,
    /// How many may be refused at once, after a pause.
    pub refused_burst: u32,
    /// Programs that get tokens from the built-in issuer: with a secret, or by sending people to it.
    pub clients: Vec<Client>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            issuers: Vec::new(),
            builtin: None,
            clock_skew_s: 60,
            admin_roles: AdminRoles::default(),
            keys_refresh_s: 600,
            signing_key_file: None,
            access_token_s: 3_600,
            refresh_token_s: 30 * 24 * 3_600,
            device_code_s: 600,
            refused_per_s: 20,
            refused_burst: 300,
            clients: Vec::new(),
        }
    }
}

impl Config {
    pub fn builtin(&self) -> bool {
        self.builtin.unwrap_or(self.issuers.is_empty())
    }

    /// Whether the parts fit together. Fields are named from the configuration's `identity`.
    pub fn check(&self) -> Result<()> {
        for (i, issuer) in self.issuers.iter().enumerate() {
            issuer.check().map_err(|(field, message)| {
                Error::invalid(format!("identity.issuers[{i}].{field}"), message)
            })?;
        }
        if self.clock_skew_s > 600 {
            let why = "must be at most 600: a wider one keeps expired tokens alive";
            return Err(Error::invalid("identity.clock_skew_s", why));
        }
        for (field, seconds) in [
            ("access_token_s", self.access_token_s),
            ("refresh_token_s", self.refresh_token_s),
            ("device_code_s", self.device_code_s),
        ] {
            if seconds < 60 {
                return Err(Error::invalid(format!("identity.{field}"), "must be at least 60"));
            }
        }
        for (i, client) in self.clients.iter().enumerate() {
            client.check().map_err(|(field, message)| {
                Error::invalid(format!("identity.clients[{i}].{field}"), message)
            })?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// As in the tokens' `iss`.
    pub url: String,
    /// Put before its users' and organisations' names, as in `partner:`. Users of the same name are
    /// the same user here, whichever issuer they come from, and so are organisations: give an
    /// issuer a prefix unless it speaks of the same people as the others.
    #[serde(default)]
    pub prefix: String,
    /// A token must be meant for one of these (`aud`). Required: without it, a token that the issuer
    /// made for any other service would be accepted here.
    #[serde(default)]
    pub audience: Vec<String>,
    /// Where its keys are. Not given: as its discovery document says.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// For fetching its keys.
    #[serde(default)]
    pub tls: Tls,
    #[serde(default)]
    pub claims: ClaimNames,
    #[serde(default = "default_algorithms")]
    pub algorithms: Vec<Algorithm>,
}

fn default_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::RS256, Algorithm::ES256]
}

impl IssuerConfig {
    pub fn new(url: &str, audience: &str) -> IssuerConfig {
        IssuerConfig {
            url: url.into(),
            prefix: String::new(),
            audience: vec![audience.into()],
            jwks_url: None,
            tls: Tls::default(),
            claims: ClaimNames::default(),
            algorithms: default_algorithms(),
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let is_http = |text: &str| {
            Url::parse(text).is_ok_and(|url| ["http", "https"].contains(&url.scheme()))
        };
        if !is_http(&self.url) {
            return Err(("url", "must be the issuer's http(s) URL".into()));
        }
        if self.jwks_url.as_deref().is_some_and(|url| !is_http(url)) {
            return Err(("jwks_url", "must be an http(s) URL".into()));
        }
        if self.audience.is_empty() || self.audience.iter().any(String::is_empty) {
            let why = "must name what the issuer's tokens for this server have in `aud`, such as \
                 [\"mainstay\"]: without it, tokens for other services would be accepted here";
            return Err(("audience", why.into()));
        }
        if self.algorithms.is_empty() {
            return Err(("algorithms", "must name at least one, such as RS256".into()));
        }
        Ok(())
    }
}

/// The signature algorithms that can be allowed. Asymmetric ones only: with a shared secret (HS256)
/// every verifier could sign tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Algorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
}

/// The claims to read. A dotted path leads into objects; an empty name disables the claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClaimNames {
    pub username: String,
    pub username_fallback: String,
    pub org: String,
    pub org_fallback: String,
    pub org_admin: String,
    pub account: String,
    pub roles: String,
    /// Names the cluster whose agent this is; believed only together with `agent_role`.
    pub agent_cluster: String,
    pub agent_role: String,
    /// Names the client, in tokens of programs that sign in as themselves; one that begins with `agent_client_prefix` is the agent of the cluster
    /// that the rest names.
    pub agent_client: String,
    pub agent_client_prefix: String,
}

impl Default for ClaimNames {
    fn default() -> ClaimNames {
        ClaimNames {
            username: "username".into(),
            username_fallback: "preferred_username".into(),
            org: "org_id".into(),
            org_fallback: "rh-org-id".into(),
            org_admin: "is_org_admin".into(),
            account: "account_id".into(),
            roles: "realm_access.roles".into(),
            agent_cluster: "kas-fleetshard-operator-cluster-id".into(),
            agent_role: "kas_fleetshard_operator".into(),
            agent_client: "clientId".into(),
            agent_client_prefix: "kas-fleetshard-agent-".into(),
        }
    }
}

/// The issuers' names for our admin roles, in any case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminRoles {
    pub read: Vec<String>,
    pub write: Vec<String>,
    pub full: Vec<String>,
}

impl Default for AdminRoles {
    fn default() -> AdminRoles {
        let names = |what: &str| {
            vec![format!("mainstay-admin-{what}"), format!("kas-fleet-manager-admin-{what}")]
        };
        AdminRoles { read: names("read"), write: names("write"), full: names("full") }
    }
}

/// A program that signs in with a secret.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Client {
    pub id: String,
    /// The secret itself, or its SHA-256 in `secret_sha256`.
    pub secret: Option<SecretSource>,
    /// 64 hexadecimal digits.
    pub secret_sha256: Option<String>,
    pub org: String,
    pub org_admin: bool,
    pub roles: Vec<String>,
    /// The cluster whose agent it is.
    pub agent_of: Option<String>,
    /// Where it may have people sent after they signed in, compared exactly. With these it needs no
    /// secret: it is a program in a browser, for example.
    pub redirect_uris: Vec<String>,
}

impl Client {
    pub fn has_secret(&self) -> bool {
        self.secret.is_some() || self.secret_sha256.is_some()
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.id.is_empty() || self.id.contains(':') {
            return Err(("id", "must be given, and must not contain a colon".into()));
        }
        let safe = |uri: &String| {
            Url::parse(uri).is_ok_and(|url| {
                let loopback = matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
                let secure = url.scheme() == "https" || url.scheme() == "http" && loopback;
                secure && url.fragment().is_none()
            })
        };
        if let Some(uri) = self.redirect_uris.iter().find(|uri| !safe(uri)) {
            let why = format!("{uri:?} must be an https URL without a fragment");
            return Err(("redirect_uris", why));
        }
        match (&self.secret, &self.secret_sha256) {
            (Some(secret), None) if !secret.is_empty() => Ok(()),
            (None, Some(hash))
                if hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()) =>
            {
                Ok(())
            }
            (None, None) if !self.redirect_uris.is_empty() => Ok(()),
            (None, Some(_)) => Err(("secret_sha256", "must be 64 hexadecimal digits".into())),
            _ => Err(("secret", "give a secret, or its hash in secret_sha256; not both".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_issuer_runs_when_there_is_no_other() {
        let mut config = Config::default();
        assert!(config.builtin());
        config.issuers.push(IssuerConfig::new("https://sso.example/", "mainstay"));
        assert!(!config.builtin());
        config.builtin = Some(true);
        assert!(config.builtin());
    }

    #[test]
    fn a_wrong_part_is_named_with_its_place() {
        let with = |json: serde_json::Value| -> String {
            let config: Config = serde_json::from_value(json).unwrap();
            config.check().unwrap_err().to_string()
        };
        let message = with(serde_json::json!({"issuers": [{"url": "sso"}]}));
        assert!(message.starts_with("identity.issuers[0].url:"), "{message}");
        for issuer in [
            serde_json::json!({"url": "https://sso.example"}),
            serde_json::json!({"url": "https://sso.example", "audience": []}),
            serde_json::json!({"url": "https://sso.example", "audience": [""]}),
        ] {
            let message = with(serde_json::json!({"issuers": [issuer]}));
            assert!(message.starts_with("identity.issuers[0].audience:"), "{message}");
            assert!(message.contains("[\"mainstay\"]"), "{message}");
        }
        let public = serde_json::json!({"id": "a", "redirect_uris": ["http://c.example/cb"]});
        let message = with(serde_json::json!({"clients": [public]}));
        assert!(message.starts_with("identity.clients[0].redirect_uris:"), "{message}");
        let message = with(serde_json::json!({"access_token_s": 0}));
        assert!(message.starts_with("identity.access_token_s:"), "{message}");
        let message = with(serde_json::json!({"clients": [{"id": "a"}]}));
        assert!(message.starts_with("identity.clients[0].secret:"), "{message}");
        let message = with(serde_json::json!({"clients": [{"id": "a", "secret_sha256": "xyz"}]}));
        assert!(message.starts_with("identity.clients[0].secret_sha256:"), "{message}");
    }

    #[test]
    fn unknown_fields_and_algorithms_with_shared_secrets_are_refused() {
        for bad in [
            r#"{"isuers": []}"#,
            r#"{"issuers": [{"url": "https://a", "algorithms": ["HS256"]}]}"#,
            r#"{"issuers": [{"url": "https://a", "algorithms": ["none"]}]}"#,
        ] {
            assert!(serde_json::from_str::<Config>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_printed_configuration_holds_no_client_secret() {
        let client = Client { id: "a".into(), secret: Some("hunter2".into()), ..Client::default() };
        let config = Config { clients: vec![client], ..Config::default() };
        let printed = format!("{config:?} {}", serde_json::to_string(&config).unwrap());
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}
