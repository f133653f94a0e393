//! Certificates from files, read again when the files change.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::config::Tls;
use crate::{Error, Result};

/// A new connection checks the files if that was not done for this long.
const CHECK_EVERY: Duration = Duration::from_secs(3);

/// When each file was last written, if the file system knows.
type Written = [Option<SystemTime>; 2];

pub(super) struct Certificates {
    files: Tls,
    state: Mutex<State>,
}

struct State {
    config: Arc<ServerConfig>,
    written: Written,
    checked: Instant,
}

impl Certificates {
    pub(super) fn load(files: &Tls) -> Result<Certificates> {
        let written = written(files);
        let state = State { config: read(files)?, written, checked: Instant::now() };
        Ok(Certificates { files: files.clone(), state: Mutex::new(state) })
    }

    /// Returns the acceptor for the next connection, with the newest certificate that could be read.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let mut state = self.state.lock();
        if state.checked.elapsed() >= CHECK_EVERY {
            state.checked = Instant::now();
            self.renew(&mut state);
        }
        state.config.clone().into()
    }

    fn renew(&self, state: &mut State) {
        let written = written(&self.files);
        if written == state.written {
            return;
        }
        // Recorded even if reading fails, so that each broken version is logged once.
        state.written = written;
        let file = self.files.cert_file.display();
        match read(&self.files) {
            Ok(config) => {
                state.config = config;
                tracing::info!(%file, "reloaded the TLS certificate");
            }
            Err(error) => {
                tracing::error!(%file, %error, "reloading the TLS certificate failed; keeping the previous one");
            }
        }
    }
}

fn written(files: &Tls) -> Written {
    let at = |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    [at(&files.cert_file), at(&files.key_file)]
}

fn read(files: &Tls) -> Result<Arc<ServerConfig>> {
    let (cert, key) = (&files.cert_file, &files.key_file);
    let invalid = |field: &str, path: &Path, why: String| {
        Error::invalid(format!("http.tls.{field}"), format!("{}: {why}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| invalid("cert_file", cert, e.to_string()))?;
    if chain.is_empty() {
        return Err(invalid("cert_file", cert, "there is no certificate in it".into()));
    }
    let secret =
        PrivateKeyDer::from_pem_file(key).map_err(|e| invalid("key_file", key, e.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::internal("TLS", e))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|e| invalid("key_file", key, e.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
