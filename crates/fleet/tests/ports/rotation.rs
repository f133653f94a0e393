//! Credentials and authorities that are replaced while the ports are in use.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet::ports::ams::{self, Ams as _};
use fleet::ports::dns::{self, Dns as _, Route53};
use kernel::outbound::{Outbound, Tls};
use kernel::secret::SecretSource;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use servers::pki::{Authority, For};
use testkit::ams::TOKEN;
use testkit::route53::strict::Strict;
use testkit::route53::{client, zone};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::{outbound, whole};

/// An outbound side that follows changes until the guard is dropped.
fn kept() -> (Outbound, DropGuard) {
    let (outbound, stop) = (outbound(), CancellationToken::new());
    let (keeper, stopped) = (outbound.clone(), stop.clone());
    tokio::spawn(async move { keeper.keep_secrets(stopped).await });
    (outbound, stop.drop_guard())
}

async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_a_file_is_taken_as_it_is_at_each_request() {
    let server = testkit::ams::start(Vec::new()).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let (outbound, _guard) = kept();
    let token = SecretSource::File(file.clone());
    let config = ams::Config { url: server.url.clone(), token, ..ams::Config::default() };
    let ams = ams::Http::new(&config, &outbound).unwrap();
    assert!(ams.account("alice").await.unwrap().is_some());
    std::fs::write(&file, "hunter2").unwrap();
    eventually("the wrong token", async || match ams.account("alice").await {
        Ok(_) => false,
        Err(error) => {
            let text = whole(&error);
            assert!(text.contains("check fleet.ams.token") && !text.contains("hunter2"), "{text}");
            true
        }
    })
    .await;
    std::fs::write(&file, TOKEN).unwrap();
    eventually("the right token", async || ams.account("alice").await.is_ok()).await;
}

/// TLS in front of a server without.
struct Front {
    address: SocketAddr,
    /// What new connections get, what ends them, and those that there are.
    current: Arc<Mutex<Current>>,
}

type Current = (Arc<ServerConfig>, CancellationToken, TaskTracker);

/// A new authority; the certificate of a server that it signed.
fn new_authority(dir: &Path) -> Arc<ServerConfig> {
    let authority = Authority::create(dir, "ca").unwrap();
    authority.sign("server", "server", For::Server(&["localhost"])).unwrap();
    let chain = CertificateDer::pem_file_iter(dir.join("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.join("server.key")).unwrap();
    let config =
        ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.map(Result::unwrap).collect(), key);
    Arc::new(config.unwrap())
}

impl Front {
    async fn start(behind: &str, config: Arc<ServerConfig>) -> Front {
        let behind: SocketAddr = behind.trim_start_matches("http://").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let current: Current = (config, Default::default(), Default::default());
        let current = Arc::new(Mutex::new(current));
        let accepting = current.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (config, end, connections) = accepting.lock().clone();
                connections.spawn(end.run_until_cancelled_owned(async move {
                    let acceptor = TlsAcceptor::from(config);
                    let Ok(mut front) = acceptor.accept(stream).await else { return };
                    let mut back = TcpStream::connect(behind).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut front, &mut back).await;
                }));
            }
        });
        Front { address, current }
    }

    /// Another certificate, and no connection of before.
    async fn replace(&self, config: Arc<ServerConfig>) {
        let new = (config, Default::default(), Default::default());
        let (_, end, connections) = std::mem::replace(&mut *self.current.lock(), new);
        end.cancel();
        connections.close();
        connections.wait().await;
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_authority_is_trusted_from_the_next_connection_on() {
    let dir = tempfile::tempdir().unwrap();
    let first = new_authority(dir.path());
    let trusted = dir.path().join("trusted.pem");
    std::fs::copy(dir.path().join("ca.crt"), &trusted).unwrap();
    let tls = Tls { ca_file: Some(trusted.clone()), ..Tls::default() };
    let server = testkit::ams::start(Vec::new()).await;
    let strict = Strict::start().await;
    let zone = zone(&client(strict.endpoint())).await;
    let ams_front = Front::start(&server.url, first.clone()).await;
    let dns_front = Front::start(strict.endpoint(), first).await;
    let (outbound, _guard) = kept();
    let ams_config = ams::Config {
        url: ams_front.url(),
        token: TOKEN.into(),
        tls: tls.clone(),
        ..ams::Config::default()
    };
    let dns_config = dns::Config {
        zone_id: zone.id.clone(),
        endpoint: dns_front.url(),
        access_key_id: "test".into(),
        secret_access_key: "test".into(),
        tls: tls.clone(),
        ..dns::Config::default()
    };
    let ams = ams::Http::new(&ams_config, &outbound).unwrap();
    let dns = Route53::new(&dns_config, &outbound).unwrap();
    let names = [format!("demo.{}", zone.name)];
    assert!(ams.account("alice").await.unwrap().is_some());
    assert!(dns.find(&names).await.unwrap().is_empty());
    let distrusting = dns::Config { tls: Tls::default(), ..dns_config.clone() };
    let distrusting = Route53::new(&distrusting, &outbound).unwrap();
    assert!(distrusting.find(&names).await.is_err(), "the system does not trust it");

    let second = new_authority(dir.path());
    ams_front.replace(second.clone()).await;
    dns_front.replace(second).await;
    assert!(ams.account("alice").await.is_err(), "its authority is not trusted yet");
    assert!(dns.find(&names).await.is_err(), "its authority is not trusted yet");
    std::fs::copy(dir.path().join("ca.crt"), &trusted).unwrap();
    eventually("the new authority", async || {
        ams.account("alice").await.is_ok() && dns.find(&names).await.is_ok()
    })
    .await;

    let both = Tls { client_cert_file: Some(trusted), ..tls };
    let both = dns::Config { tls: both, ..dns_config };
    let error = Route53::new(&both, &outbound).err().unwrap().to_string();
    assert!(error.starts_with("fleet.dns.tls.client_cert_file: "), "{error}");
}
