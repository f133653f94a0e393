//! A data source: the address of a Prometheus, and as whom it is asked. It is a part of the
//! configuration, because its secrets may name files of this machine.

use kernel::outbound::Tls;
use kernel::secret::SecretSource;
use kernel::{Error, Result};
use serde::{Deserialize, Serialize};
use url::Url;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Datasource {
    /// Up to, not including, `/api/v1`.
    pub url: String,
    pub authentication: Authentication,
    /// Whom to trust there, and the certificate that we show, if any.
    pub tls: Tls,
    /// For one query, from the first byte sent to the last received.
    pub query_timeout_s: u64,
    /// Queries at once. Fewer are sent while the data source is slow or asks for fewer.
    pub concurrency_max: usize,
    /// Of one answer. A shard with a larger one is split.
    pub answer_bytes_max: u64,
}

/// How requests say who we are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "type", rename_all = "snake_case")]
pub enum Authentication {
    #[default]
    None,
    Basic {
        username: String,
        password: SecretSource,
    },
    Bearer {
        token: SecretSource,
    },
    ApiKey {
        /// In `Authorization` the key follows the word `Api-Key`; in any other header it is alone.
        #[serde(default = "authorization")]
        header: String,
        key: SecretSource,
    },
    /// The client credentials grant.
    Oauth2 {
        token_url: String,
        client_id: String,
        client_secret: SecretSource,
        #[serde(default)]
        scope: String,
    },
}

impl Authentication {
    /// Its type.
    pub fn label(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic { .. } => "basic",
            Self::Bearer { .. } => "bearer",
            Self::ApiKey { .. } => "api_key",
            Self::Oauth2 { .. } => "oauth2",
        }
    }
}

fn authorization() -> String {
    "Authorization".to_owned()
}

impl Default for Datasource {
    fn default() -> Self {
        Self {
            url: String::new(),
            authentication: Authentication::None,
            tls: Tls::default(),
            query_timeout_s: 60,
            concurrency_max: 8,
            // A shard's largest answer has 12 MB: 250 containers and 1441 samples of 33 bytes.
            answer_bytes_max: 256 << 20,
        }
    }
}

impl Datasource {
    /// A data source that asks for no authentication.
    pub fn at(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }

    /// The address. `key` is the setting of the data source, for errors.
    pub fn base_url(&self, key: &str) -> Result<Url> {
        address(&format!("{key}.url"), &self.url)
    }

    /// Checks the settings that have bounds.
    pub fn check(&self, key: &str) -> Result<()> {
        let at_least_one = [
            ("query_timeout_s", self.query_timeout_s),
            ("concurrency_max", self.concurrency_max as u64),
            ("answer_bytes_max", self.answer_bytes_max),
        ];
        match at_least_one.iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(Error::invalid(format!("{key}.{name}"), "must be at least 1")),
            None => Ok(()),
        }
    }
}

/// A URL with neither credentials nor a query. The text is not part of the error: it may have a
/// password in it.
pub fn address(field: &str, text: &str) -> Result<Url> {
    let invalid = |why: String| Error::invalid(field, why);
    let url = Url::parse(text.trim())
        .map_err(|error| invalid(format!("is not a URL ({error}); give https://host:9090")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(invalid("must begin with https:// or http:// and a host".to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("must not contain credentials; set `authentication`".to_owned()));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("must end with its path, without `?` or `#`".to_owned()));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: serde_json::Value) -> Result<Datasource, serde_json::Error> {
        serde_json::from_value(value)
    }

    #[test]
    fn every_authentication_is_read_and_no_secret_is_shown() {
        let forms = [
            json!({ "type": "none" }),
            json!({ "type": "basic", "username": "u", "password": "hunter2" }),
            json!({ "type": "bearer", "token": { "file": "/token" } }),
            json!({ "type": "api_key", "key": "hunter2" }),
            json!({ "type": "api_key", "header": "X-Key", "key": { "env": "KEY" } }),
            json!({ "type": "oauth2", "token_url": "https://i/t", "client_id": "c", "client_secret": "hunter2" }),
        ];
        for form in forms {
            let source = read(json!({ "url": "https://p", "authentication": form })).unwrap();
            let shown = serde_json::to_string(&source).unwrap() + &format!("{source:?}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        let key = read(json!({ "authentication": { "type": "api_key", "key": "k" } })).unwrap();
        assert!(
            matches!(&key.authentication, Authentication::ApiKey { header, .. } if header == "Authorization")
        );
        assert!(read(json!({ "authentication": { "type": "basic", "user": "u" } })).is_err());
        assert!(read(json!({ "uri": "https://p" })).is_err());
        assert_eq!(read(json!({})).unwrap(), Datasource::default());
    }

    #[test]
    fn an_address_that_cannot_be_used_is_an_error_without_its_password() {
        assert_eq!(
            Datasource::at(" http://h:9090/prometheus ").base_url("d").unwrap().path(),
            "/prometheus"
        );
        for (text, part) in [
            ("", "is not a URL"),
            ("h:9090", "must begin with"),
            ("ftp://h", "must begin with"),
            ("http://u:hunter2@h", "must not contain credentials"),
            ("http://h/?token=hunter2", "must end with its path"),
        ] {
            let error = Datasource::at(text).base_url("d").unwrap_err().to_string();
            assert!(error.starts_with("d.url: ") && error.contains(part), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = Datasource { concurrency_max: 0, ..Datasource::default() }.check("d");
        assert_eq!(error.unwrap_err().to_string(), "d.concurrency_max: must be at least 1");
    }
}
