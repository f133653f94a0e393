//! TLS towards one outside system: whom we trust there, and who we are. Both are in files that are
//! read again when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, Identity};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{Outbound, Target, http};
use crate::error::chain;
use crate::file_watch::Content;
use crate::telemetry::Secret;
use crate::{Error, Result};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// Certificates (PEM) of the authorities to trust, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The certificate (PEM, with its chain) that we show, and its key.
    pub client_cert_file: Option<PathBuf>,
    pub client_key_file: Option<PathBuf>,
    /// Accepts any certificate of the other side, so that anybody in between can read and change what
    /// is sent. Only for systems that are called over HTTP.
    pub insecure_skip_verify: bool,
}

/// The same as values (PEM), of users: they have no files here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TlsValues {
    pub ca: Option<String>,
    pub client_cert: Option<String>,
    pub client_key: Option<Secret>,
    pub insecure_skip_verify: bool,
}

/// The newest content of the files of a [`Tls`] that could be used.
#[derive(Clone)]
pub struct TlsFiles(watch::Receiver<Arc<Loaded>>);

struct Loaded {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    client: Client,
    /// Whether the client refuses private addresses.
    guarded: bool,
}

impl TlsFiles {
    pub(super) fn client(&self) -> Client {
        self.0.borrow().client.clone()
    }

    pub(super) fn is_guarded(&self) -> bool {
        self.0.borrow().guarded
    }

    /// The authorities to trust, for clients that are not ours. PEM.
    pub fn ca(&self) -> Option<Vec<u8>> {
        self.0.borrow().ca.clone()
    }

    /// Our certificate and its key, for clients that are not ours. PEM.
    pub fn identity(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.0.borrow().identity.clone()
    }

    /// Waits until the files have other content, for those who keep a connection.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Outbound {
    /// The TLS of an outside system; `None` if nothing of it is configured. `key` is its setting, for
    /// errors. Reads files, so it is for start-up.
    pub fn tls(&self, key: &str, tls: &Tls) -> Result<Option<TlsFiles>> {
        let (paths, shown) = (tls.paths(key)?, (key.to_owned(), tls.clone()));
        if tls.insecure_skip_verify {
            tracing::warn!(setting = key, "the certificates of a target are not verified");
        } else if paths.is_empty() {
            return Ok(None);
        }
        let connect_timeout = Duration::from_millis(self.0.config.connect_timeout_ms);
        let parse = move |contents: &[Content]| {
            let (key, tls) = &shown;
            load(key, tls, contents, connect_timeout).map(Arc::new)
        };
        self.secrets().files.add(key, paths, parse).map(|files| Some(TlsFiles(files)))
    }

    /// The TLS of a system whose client is not ours and always verifies certificates.
    pub fn verified_tls(&self, key: &str, tls: &Tls) -> Result<Option<TlsFiles>> {
        if tls.insecure_skip_verify {
            let why = "certificates are always verified here; set ca_file to trust an authority";
            return Err(Error::invalid(format!("{key}.insecure_skip_verify"), why));
        }
        self.tls(key, tls)
    }

    /// The TLS of a system that a user named; `None` if nothing of it is given. With `guarded`, for a
    /// target with [`Target::guard_ssrf`]. `key` is the field, for errors.
    pub fn user_tls(
        &self,
        key: &str,
        values: &TlsValues,
        guarded: bool,
    ) -> Result<Option<TlsFiles>> {
        if *values == TlsValues::default() {
            return Ok(None);
        }
        let invalid = |name: &str, why: &str| Error::invalid(format!("{key}.{name}"), why);
        let identity = match (&values.client_cert, &values.client_key) {
            (Some(_), None) => return Err(invalid("client_key", PAIR)),
            (None, Some(_)) => return Err(invalid("client_cert", PAIR)),
            (cert, key) => cert.as_deref().zip(key.as_ref().map(Secret::expose)),
        };
        if values.ca.is_some() && values.insecure_skip_verify {
            return Err(invalid("insecure_skip_verify", CONTRADICTION));
        }
        let ca = values.ca.as_deref().map(str::as_bytes);
        let identity = identity.map(|(cert, key)| (cert.as_bytes(), key.as_bytes()));
        let timeout = Duration::from_millis(self.0.config.connect_timeout_ms);
        let mut builder = http::client_builder(timeout)
            .tls_danger_accept_invalid_certs(values.insecure_skip_verify);
        if guarded {
            builder = builder.dns_resolver(self.0.egress.clone());
        }
        let client = build(builder, ca, identity).map_err(|(name, why)| invalid(name, &why))?;
        let identity = identity.map(|(cert, key)| (cert.to_vec(), key.to_vec()));
        let loaded = Loaded { ca: ca.map(<[u8]>::to_vec), identity, client, guarded };
        Ok(Some(TlsFiles(watch::channel(Arc::new(loaded)).1)))
    }
}

const PAIR: &str = "must be given: a client certificate needs its key, and a key its certificate";

const CONTRADICTION: &str = "must not be set together with an authority to trust";

impl Target {
    /// Uses these certificates.
    pub fn with_tls(mut self, tls: Option<TlsFiles>) -> Target {
        self.tls = tls;
        self
    }
}

impl Tls {
    /// The files that are read, in the order in which [`load`] takes them.
    fn paths(&self, key: &str) -> Result<Vec<PathBuf>> {
        let missing = match (&self.client_cert_file, &self.client_key_file) {
            (Some(_), None) => Some("client_key_file"),
            (None, Some(_)) => Some("client_cert_file"),
            _ => None,
        };
        if let Some(name) = missing {
            return Err(Error::invalid(format!("{key}.{name}"), PAIR));
        }
        if self.ca_file.is_some() && self.insecure_skip_verify {
            return Err(Error::invalid(format!("{key}.insecure_skip_verify"), CONTRADICTION));
        }
        let all = [&self.ca_file, &self.client_cert_file, &self.client_key_file];
        Ok(all.into_iter().flatten().cloned().collect())
    }
}

fn load(key: &str, tls: &Tls, contents: &[Content], connect_timeout: Duration) -> Result<Loaded> {
    let mut contents = contents.iter();
    let mut next = |name: &str, path: &Option<PathBuf>| -> Result<Option<&[u8]>> {
        let Some(path) = path else { return Ok(None) };
        match contents.next() {
            Some(Ok(bytes)) => Ok(Some(bytes)),
            Some(Err(error)) => Err(invalid(key, name, path, error)),
            None => Err(Error::internal("TLS files", "one was not read")),
        }
    };
    let ca = next("ca_file", &tls.ca_file)?;
    let cert = next("client_cert_file", &tls.client_cert_file)?;
    let private = next("client_key_file", &tls.client_key_file)?;
    let identity = cert.zip(private);
    let builder = http::client_builder(connect_timeout)
        .tls_danger_accept_invalid_certs(tls.insecure_skip_verify);
    let client = build(builder, ca, identity).map_err(|(name, why)| {
        let (setting, path) = match name {
            "ca" => ("ca_file", &tls.ca_file),
            "client_cert" => ("client_cert_file", &tls.client_cert_file),
            _ => ("client_key_file", &tls.client_key_file),
        };
        invalid(key, setting, path.as_deref().unwrap_or(Path::new("")), &why)
    })?;
    let identity = identity.map(|(cert, key)| (cert.to_vec(), key.to_vec()));
    Ok(Loaded { ca: ca.map(<[u8]>::to_vec), identity, client, guarded: false })
}

/// A client that trusts `ca` and shows a certificate with its key; or which of `ca`, `client_cert`
/// and `client_key` is wrong, and why.
fn build(
    mut builder: ClientBuilder,
    ca: Option<&[u8]>,
    identity: Option<(&[u8], &[u8])>,
) -> Result<Client, (&'static str, String)> {
    let mut last = "ca";
    if let Some(pem) = ca {
        builder = trust(builder, pem).map_err(|why| (last, why))?;
    }
    if let Some((cert, private)) = identity {
        certificates(cert).map_err(|why| ("client_cert", why))?;
        last = "client_key";
        PrivateKeyDer::from_pem_slice(private)
            .map_err(|_| (last, "there is no private key (PEM, not encrypted) in it".to_owned()))?;
        let identity = Identity::from_pem(&[cert, b"\n", private].concat());
        builder = builder.identity(identity.map_err(|error| (last, chain(&error)))?);
    }
    builder.build().map_err(|error| (last, format!("it cannot be used: {}", chain(&error))))
}

fn trust(builder: ClientBuilder, pem: &[u8]) -> Result<ClientBuilder, String> {
    let trusted = certificates(pem)?;
    let trusted = trusted.iter().map(|one| Certificate::from_der(one));
    let trusted = trusted.collect::<Result<Vec<_>, _>>().map_err(|error| chain(&error))?;
    Ok(builder.tls_certs_only(trusted))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match read {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err("there is no certificate (PEM) in it".into()),
        Err(error) => Err(format!("it is not PEM: {error}")),
    }
}

fn invalid(key: &str, name: &str, path: &Path, why: &str) -> Error {
    Error::invalid(format!("{key}.{name}"), format!("{}: {why}", path.display()))
}
