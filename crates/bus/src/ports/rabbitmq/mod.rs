//! What the outlet and the inlet of RabbitMQ share: where the broker is, who we are there, and one
//! connection to it.

mod link;
mod names;

pub(super) use link::{Blocked, Link};
pub(super) use names::{ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED, reply_code, short};

use std::time::Duration;

use kernel::outbound::{Delivery, Outbound, Tls, TlsFiles};
use kernel::secret::{SecretSource, SecretValue};
use kernel::telemetry::Secret;
use kernel::{Error, Result};
use lapin::auth::AuthProvider;
use lapin::tcp::{RustlsConnector, RustlsConnectorConfig};
use lapin::types::{LongString, ShortString};
use lapin::uri::{AMQPScheme, AMQPUri};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use url::Url;

/// From the first packet to an open connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A broker that confirms nothing for this long is reported.
pub(super) const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);

/// The delivery mode of a message that survives a restart of the broker.
pub(super) const PERSISTENT: u8 = 2;

/// The settings of a broker.
pub(super) struct Settings<'a> {
    /// Their place in the configuration, such as `bus.sinks.orders.rabbitmq`.
    pub key: &'a str,
    /// Whose they are, such as `sink orders`, for errors and for the broker's list of connections.
    pub owner: &'a str,
    pub url: &'a str,
    pub username: &'a str,
    pub password: &'a SecretSource,
    pub tls: &'a Tls,
}

/// A broker, and who we are there.
pub(super) struct Broker {
    owner: String,
    /// Has no password, so that nothing that prints it shows one.
    uri: AMQPUri,
    password: SecretValue,
    files: Option<TlsFiles>,
    /// Those of the last connection.
    used: Option<Credentials>,
}

#[derive(PartialEq)]
struct Credentials {
    password: Secret,
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Broker {
    pub fn new(settings: &Settings, outbound: &Outbound) -> Result<Broker> {
        let key = settings.key;
        let mut uri = parse(settings.url).map_err(|why| {
            Error::invalid(
                format!("{key}.url"),
                format!("{why}; it must be amqp://HOST[:PORT][/VHOST], or amqps://"),
            )
        })?;
        uri.authority.userinfo.username = settings.username.into();
        uri.authority.userinfo.password = String::new();
        Ok(Broker {
            owner: settings.owner.into(),
            uri,
            password: outbound.secret(&format!("{key}.password"), settings.password)?,
            files: outbound.verified_tls(&format!("{key}.tls"), settings.tls)?,
            used: None,
        })
    }

    /// Names the broker and its user in errors.
    pub fn describe(&self) -> String {
        let AMQPUri { authority, vhost, .. } = &self.uri;
        let (host, port) = (&authority.host, authority.port);
        format!("RabbitMQ of {} at {host}:{port}, virtual host {vhost}", self.owner)
    }

    fn credentials(&self) -> Result<Credentials> {
        Ok(Credentials {
            password: self.password.current()?,
            ca: self.files.as_ref().and_then(TlsFiles::ca),
            identity: self.files.as_ref().and_then(TlsFiles::identity),
        })
    }

    /// Whether the password or the certificates are others than those of the last connection.
    pub fn is_outdated(&self) -> bool {
        // Those that cannot be read now are no reason to give up a connection.
        let now = self.credentials().ok();
        now.is_some_and(|now| self.used.as_ref().is_some_and(|used| *used != now))
    }

    /// Waits until the password or the certificates are others than those of the last connection.
    pub async fn outdated(&mut self) {
        while !self.is_outdated() {
            let files = async {
                match &mut self.files {
                    Some(files) => files.changed().await,
                    None => std::future::pending().await,
                }
            };
            // Also when a value is read again and is the same.
            tokio::select! {
                () = self.password.changed() => {}
                () = files => {}
            }
        }
    }

    /// Opens a connection with the current password and certificates.
    pub async fn connect(&mut self, heartbeat_s: u16, blocked: Blocked) -> Result<Link> {
        let credentials = self.credentials()?;
        let username = self.uri.authority.userinfo.username.clone();
        let tls = match self.uri.scheme {
            AMQPScheme::AMQP => None,
            AMQPScheme::AMQPS => Some(self.tls_connector(&credentials)?),
        };
        let mut uri = self.uri.clone();
        uri.query.heartbeat = Some(heartbeat_s);
        let login = Login(format!("\0{username}\0{}", credentials.password.expose()).into());
        self.used = Some(credentials);
        let connecting = Link::connect(self.describe(), &self.owner, uri, login, tls, blocked);
        connecting.await.map_err(|error| {
            let why = if reply_code(&error) == Some(ACCESS_REFUSED) {
                format!("user {username} was refused ({error}); check the username and password")
            } else {
                error.to_string()
            };
            Error::unavailable(format!("connecting to {}", self.describe()), why)
                .with_delivery(Delivery::NotSent)
        })
    }

    /// Trusts the configured authorities alone, or else the system's.
    fn tls_connector(&self, credentials: &Credentials) -> Result<RustlsConnector> {
        let unusable = |why: String| {
            Error::unavailable(format!("TLS for {}", self.describe()), why)
                .with_delivery(Delivery::NotSent)
        };
        let roots = match &credentials.ca {
            Some(pem) => RustlsConnectorConfig::default()
                .with_parsable_certificates(certificates(pem).map_err(unusable)?),
            None => RustlsConnectorConfig::new_with_platform_verifier(),
        };
        let connector = match &credentials.identity {
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| unusable("the client key is not PEM".into()))?;
                roots.connector_with_single_cert(certificates(chain).map_err(unusable)?, key)
            }
            None => roots.connector_with_no_client_auth(),
        };
        connector.map_err(|error| unusable(error.to_string()))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    read.map_err(|error| format!("the certificates are not PEM: {error}"))
}

/// Our own reading of the URL: that of the library takes `guest` for a missing user.
fn parse(url: &str) -> Result<AMQPUri, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let scheme: AMQPScheme = url.scheme().parse()?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or("it has no host")?;
    // An IPv6 address is in brackets only in URLs.
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let vhost = match url.path() {
        "" | "/" => "/".to_owned(),
        path => decode(&path[1..])?,
    };
    let mut uri = AMQPUri { vhost, ..AMQPUri::default() };
    uri.authority.port = url.port().unwrap_or_else(|| scheme.default_port());
    uri.authority.host = host;
    uri.scheme = scheme;
    Ok(uri)
}

/// Undoes percent-encoding, as in `%2f`.
fn decode(text: &str) -> Result<String, String> {
    // A query decodes like this, except for `+`.
    let query = format!("v={}", text.replace('+', "%2B"));
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.next().map(|(_, value)| value.into_owned()).ok_or_else(|| "its path is not text".into())
}

/// Proves who we are. Not part of the address, which the library may print.
struct Login(LongString);

impl AuthProvider for Login {
    fn mechanism(&self) -> ShortString {
        "PLAIN".into()
    }

    fn auth_starter(&self) -> std::result::Result<LongString, String> {
        Ok(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_its_defaults() {
        let read = |url| parse(url).map(|uri| (uri.authority.host, uri.authority.port, uri.vhost));
        assert_eq!(read("amqp://rabbit"), Ok(("rabbit".into(), 5672, "/".into())));
        assert_eq!(read("amqps://rabbit/"), Ok(("rabbit".into(), 5671, "/".into())));
        assert_eq!(read("amqp://[::1]:7/%2fa+b"), Ok(("::1".into(), 7, "/a+b".into())));
        assert!(read("http://rabbit").is_err());
        assert!(read("amqp:///vhost").is_err());
    }
}
