//! A data source that a user has made over the API. It names nothing of the server's machine: its
//! secrets and certificates are values. They are in a sealed blob; the object has the rest.

use kernel::outbound::TlsValues;
use kernel::secret::SecretSource;
use kernel::telemetry::Secret;
use kernel::typed::{Kind, NoStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::datasource::{Authentication, Datasource, address};
use super::fields::{Fields, Invalid, boolean, name, text, whole};
use super::tenant::Phase;

pub const DATASOURCE: &str = "datasource";
/// The sealed blob of a data source: all of it, as it was sent. What is read with it belongs together.
pub const SETTINGS: &str = "settings";

const NAME_CHARS_MAX: usize = 100;
const URL_CHARS_MAX: usize = 2_000;
const TIMEOUT_S_MAX: u64 = 600;
/// A user's data source takes connections of all.
const CONCURRENCY_MAX: u64 = 32;
/// A discovery of 100,000 containers. More than a shard's largest answer, 12 MB, is of no use.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Headers that say how a request is sent, not who sends it.
const NOT_FOR_KEYS: [&str; 9] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What callers are shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceSpec {
    pub provider: String,
    pub url: String,
    /// The type of the authentication.
    pub authentication: String,
    /// Whether it has an authority or a certificate of its own.
    pub tls: bool,
    /// Whether any certificate of it is accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_verify: bool,
    pub query_timeout_s: u64,
    pub concurrency_max: usize,
}

impl Kind for SourceSpec {
    type Phase = Phase;
    type Status = NoStatus;
    const RECONCILED: bool = false;
}

#[derive(Debug, Clone, PartialEq)]
pub struct UserSource {
    pub name: String,
    pub provider: String,
    pub datasource: Datasource,
    pub tls: TlsValues,
}

impl UserSource {
    pub fn spec(&self) -> SourceSpec {
        SourceSpec {
            provider: self.provider.clone(),
            url: self.datasource.url.clone(),
            authentication: self.datasource.authentication.label().to_owned(),
            tls: self.tls != TlsValues::default(),
            insecure_skip_verify: self.tls.insecure_skip_verify,
            query_timeout_s: self.datasource.query_timeout_s,
            concurrency_max: self.datasource.concurrency_max,
        }
    }
}

impl TryFrom<Value> for UserSource {
    type Error = Invalid;

    fn try_from(value: Value) -> Result<Self, Invalid> {
        let mut fields = Fields::new("", value)?;
        let defaults = Datasource::default();
        let name = fields.required("name", source_name)?;
        let provider = fields.read("provider", provider)?;
        let url = fields.required("url", url)?;
        let authentication = fields.read("authentication", authentication)?;
        let tls = fields.read("tls", tls)?;
        let timeout = fields.read("query_timeout_s", whole(1..=TIMEOUT_S_MAX))?;
        let concurrency = fields.read("concurrency_max", whole(1..=CONCURRENCY_MAX))?;
        fields.finish()?;
        let concurrency = concurrency.and_then(|number| usize::try_from(number).ok());
        let datasource = Datasource {
            url,
            authentication: authentication.unwrap_or_default(),
            query_timeout_s: timeout.unwrap_or(defaults.query_timeout_s),
            concurrency_max: concurrency.unwrap_or(defaults.concurrency_max),
            answer_bytes_max: ANSWER_BYTES_MAX,
            ..defaults
        };
        let provider = provider.unwrap_or_else(|| "prometheus".to_owned());
        Ok(Self { name, provider, datasource, tls: tls.unwrap_or_default() })
    }
}

/// A name that needs no escape in addresses and in the names of experiments.
pub fn source_name(path: &str, value: Value) -> Result<String, Invalid> {
    let name = text(path, value)?;
    let legible = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let only_dots = name.chars().all(|c| c == '.');
    if name.len() > NAME_CHARS_MAX || !name.chars().all(legible) || only_dots {
        let problem = format!("expected 1 to {NAME_CHARS_MAX} letters, digits, `-`, `_` or `.`");
        return Err(Invalid::new(path, problem));
    }
    Ok(name)
}

fn provider(path: &str, value: Value) -> Result<String, Invalid> {
    let provider = text(path, value)?;
    if ["prometheus", "thanos"].contains(&provider.as_str()) {
        return Ok(provider);
    }
    Err(Invalid::new(path, "expected prometheus or thanos"))
}

fn url(path: &str, value: Value) -> Result<String, Invalid> {
    let url = text(path, value)?;
    if url.len() > URL_CHARS_MAX {
        let problem = format!("must have at most {URL_CHARS_MAX} characters");
        return Err(Invalid::new(path, problem));
    }
    match address(path, &url) {
        Ok(_) => Ok(url.trim().to_owned()),
        Err(kernel::Error::Invalid { field, message }) => Err(Invalid::new(field, message)),
        Err(other) => Err(Invalid::new(path, other.to_string())),
    }
}

fn authentication(path: &str, value: Value) -> Result<Authentication, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let kind = fields.required("type", text)?;
    let read = match kind.to_ascii_lowercase().as_str() {
        "none" => Authentication::None,
        "basic" => Authentication::Basic {
            username: fields.required("username", text)?,
            password: fields.required("password", secret)?,
        },
        "bearer" => Authentication::Bearer { token: fields.required("token", secret)? },
        "api_key" => Authentication::ApiKey {
            header: fields.read("header", header)?.unwrap_or_else(|| "Authorization".to_owned()),
            key: fields.required("key", secret)?,
        },
        "oauth2" => Authentication::Oauth2 {
            token_url: fields.required("token_url", url)?,
            client_id: fields.required("client_id", text)?,
            client_secret: fields.required("client_secret", secret)?,
            scope: fields.read("scope", text)?.unwrap_or_default(),
        },
        _ => {
            let problem = "expected none, basic, bearer, api_key or oauth2; a client certificate is \
                           given in `tls`";
            return Err(Invalid::new(fields.path("type"), problem));
        }
    };
    fields.finish()?;
    Ok(read)
}

/// A secret itself. What names a place of the server's machine would make it read its own files.
fn secret(path: &str, value: Value) -> Result<SecretSource, Invalid> {
    match value {
        Value::String(text) if text.trim().is_empty() => Err(Invalid::new(path, "is empty")),
        Value::String(text) => Ok(SecretSource::Value(Secret::new(text))),
        Value::Object(_) => {
            let problem = "expected the secret itself; files, variables and Vault are for the \
                           configuration of the server";
            Err(Invalid::new(path, problem))
        }
        other => Err(Invalid::new(path, format!("expected a text, found {}", name(&other)))),
    }
}

fn header(path: &str, value: Value) -> Result<String, Invalid> {
    let header = text(path, value)?;
    if NOT_FOR_KEYS.contains(&header.to_ascii_lowercase().as_str()) {
        return Err(Invalid::new(path, "is not a header that can hold a key"));
    }
    Ok(header)
}

fn tls(path: &str, value: Value) -> Result<TlsValues, Invalid> {
    let mut fields = Fields::new(path, value)?;
    let tls = TlsValues {
        ca: fields.read("ca", text)?,
        client_cert: fields.read("client_cert", text)?,
        client_key: fields.read("client_key", text)?.map(Secret::new),
        insecure_skip_verify: fields.read("insecure_skip_verify", boolean)?.unwrap_or_default(),
    };
    fields.finish()?;
    Ok(tls)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<UserSource, Invalid> {
        UserSource::try_from(value)
    }

    fn with(authentication: Value) -> Result<UserSource, Invalid> {
        read(json!({ "name": "p", "url": "https://p.example", "authentication": authentication }))
    }

    #[test]
    fn every_authentication_is_read_and_no_secret_is_in_what_is_shown() {
        for (authentication, label) in [
            (json!({ "type": "none" }), "none"),
            (json!({ "type": "BASIC", "username": "u", "password": "hunter2" }), "basic"),
            (json!({ "type": "bearer", "token": "hunter2" }), "bearer"),
            (json!({ "type": "api_key", "header": "X-Key", "key": "hunter2" }), "api_key"),
            (
                json!({ "type": "oauth2", "token_url": "https://i.example/t", "client_id": "c",
                    "client_secret": "hunter2" }),
                "oauth2",
            ),
        ] {
            let source = with(authentication).unwrap();
            assert_eq!(source.spec().authentication, label);
            let shown = serde_json::to_string(&source.spec()).unwrap() + &format!("{source:?}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        let minimal = read(json!({ "name": "a.b-c_1", "url": "https://p.example" })).unwrap();
        assert_eq!((minimal.provider.as_str(), minimal.spec().tls), ("prometheus", false));
        let default = Datasource::at("https://p.example");
        let answer_bytes_max = ANSWER_BYTES_MAX;
        assert_eq!(minimal.datasource, Datasource { answer_bytes_max, ..default });
        let tls = json!({ "ca": "A", "client_cert": "B", "client_key": "hunter2" });
        let source = read(json!({ "name": "p", "url": "https://p", "tls": tls })).unwrap();
        assert!(source.spec().tls && !format!("{source:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_wrong_is_named_without_its_value() {
        let secret = |value: Value| with(json!({ "type": "bearer", "token": value })).unwrap_err();
        let file = secret(json!({ "file": "/hunter2" }));
        assert!(file.problem.contains("are for the configuration"), "{file}");
        assert_eq!(secret(json!(["hunter2"])).problem, "expected a text, found a list");
        assert_eq!(secret(json!(" ")).to_string(), "`authentication.token`: is empty");
        let base = |field: &str, value: Value| {
            let mut source = json!({ "name": "p", "url": "https://p.example" });
            source[field] = value;
            read(source).unwrap_err().to_string()
        };
        for (error, part) in [
            (read(json!([])).unwrap_err().to_string(), "expected an object"),
            (read(json!({ "url": "https://p" })).unwrap_err().to_string(), "`name`: is required"),
            (read(json!({ "name": "p" })).unwrap_err().to_string(), "`url`: is required"),
            (base("name", json!("a|b")), "`name`: expected 1 to 100"),
            (base("name", json!("")), "`name`: expected"),
            (base("name", json!("..")), "`name`: expected"),
            (base("url", json!("https://u:hunter2@p")), "`url`: must not contain credentials"),
            (base("url", json!("https://p/?token=hunter2")), "`url`: must end with its path"),
            (base("url", json!(format!("https://{}", "x".repeat(2000)))), "`url`: must have"),
            (base("provider", json!("influx")), "`provider`: expected prometheus or thanos"),
            (base("tls", json!({ "ca_file": "/x" })), "`tls.ca_file`: unknown field"),
            (
                base("tls", json!({ "insecure_skip_verify": "true" })),
                "`tls.insecure_skip_verify`: expected true or false, found a text",
            ),
            (base("query_timeout_s", json!(0)), "`query_timeout_s`: expected a number from 1"),
            (base("concurrency_max", json!(33)), "`concurrency_max`: expected a number from 1"),
            (base("answer_bytes_max", json!(1)), "`answer_bytes_max`: unknown field"),
            (with(json!({ "type": "mtls" })).unwrap_err().to_string(), "is given in `tls`"),
            (
                with(json!({ "type": "none", "password": "hunter2" })).unwrap_err().to_string(),
                "`authentication.password`: unknown field",
            ),
            (
                with(json!({ "type": "api_key", "header": "Host", "key": "hunter2" }))
                    .unwrap_err()
                    .to_string(),
                "`authentication.header`: is not",
            ),
        ] {
            assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
        }
    }
}
