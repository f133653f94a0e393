//! A real TLS server that asks for a client certificate, and files that change.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernel::outbound::{Target, Tls, TlsValues, body};
use parking_lot::Mutex;
use reqwest::Method;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use servers::pki::{Authority, For};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use url::Url;

use crate::{Kept, eventually, log, outbound};

/// Answers with the common name of the client.
struct Server {
    address: SocketAddr,
    config: Arc<Mutex<Arc<ServerConfig>>>,
}

/// `server.crt`, signed by the authority in `dir`, and clients of the same authority.
fn server_config(dir: &Path, authority: &str) -> Arc<ServerConfig> {
    let certificates = |name: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_file_iter(dir.join(name)).unwrap().map(Result::unwrap).collect()
    };
    let mut roots = RootCertStore::empty();
    roots.add(certificates(&format!("{authority}.crt")).remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let key = PrivateKeyDer::from_pem_file(dir.join("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(certificates("server.crt"), key);
    Arc::new(config.unwrap())
}

impl Server {
    async fn start(config: Arc<ServerConfig>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = Arc::new(Mutex::new(config));
        let current = config.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = TlsAcceptor::from(current.lock().clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
                    let shown = |name: &&str| {
                        certificate.windows(name.len()).any(|part| part == name.as_bytes())
                    };
                    let name = ["client-one", "client-two"].into_iter().find(shown).unwrap();
                    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: ";
                    let text = format!("{head}{}\r\n\r\n{name}", name.len());
                    let _ = stream.read(&mut [0; 4096]).await;
                    let _ = stream.write_all(text.as_bytes()).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        Server { address, config }
    }

    async fn ask(&self, target: &Target) -> kernel::Result<String> {
        let url = Url::parse(&format!("https://localhost:{}/", self.address.port())).unwrap();
        let request = target.request(Method::GET, url);
        let answer = body(target.http("ask", request).await?, 1000).await?;
        Ok(String::from_utf8(answer.to_vec()).unwrap())
    }
}

/// An authority with a server's certificate.
fn authority(dir: &Path, name: &str) -> Authority {
    let authority = Authority::create(dir, name).unwrap();
    authority.sign("server", "server", For::Server(&["localhost"])).unwrap();
    authority
}

fn client(authority: &Authority, file: &str, name: &str) {
    authority.sign(file, name, For::Client { organisation: "" }).unwrap();
}

fn files(dir: &Path) -> Tls {
    let file = |name: &str| -> Option<PathBuf> { Some(dir.join(name)) };
    Tls {
        ca_file: file("trusted.pem"),
        client_cert_file: file("client.crt"),
        client_key_file: file("client.key"),
        ..Tls::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authority_and_the_client_certificate_are_replaced_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let first = authority(dir.path(), "first");
    client(&first, "client", "client-one");
    std::fs::copy(first.certificate(), place("trusted.pem")).unwrap();
    let server = Server::start(server_config(dir.path(), "first")).await;
    let kept = Kept::new().start();
    let with_tls = kept.outbound.tls("a.tls", &files(dir.path())).unwrap();
    let target = kept.outbound.target("a").with_tls(with_tls);
    assert_eq!(server.ask(&target).await.unwrap(), "client-one");

    let plain = outbound().target("plain");
    let error = server.ask(&plain).await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "the system does not trust it: {error}");
    let only_ca = Tls { ca_file: Some(place("trusted.pem")), ..Tls::default() };
    let anonymous = outbound();
    let anonymous = anonymous.target("b").with_tls(anonymous.tls("b.tls", &only_ca).unwrap());
    assert!(server.ask(&anonymous).await.is_err(), "a client certificate is required");

    // A new certificate of the same authority, one file after the other.
    client(&first, "next", "client-two");
    std::fs::rename(place("next.crt"), place("client.crt")).unwrap();
    let said = "a.tls.client_key_file: ";
    eventually("half a pair is refused", async || log().contains(said)).await;
    assert_eq!(server.ask(&target).await.unwrap(), "client-one", "the last pair is kept");
    std::fs::rename(place("next.key"), place("client.key")).unwrap();
    eventually("the new certificate", async || {
        server.ask(&target).await.is_ok_and(|name| name == "client-two")
    })
    .await;

    // Another authority on both sides.
    let second = authority(dir.path(), "second");
    client(&second, "client", "client-one");
    *server.config.lock() = server_config(dir.path(), "second");
    let error = server.ask(&target).await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "the old one is trusted alone: {error}");
    std::fs::copy(second.certificate(), place("trusted.pem")).unwrap();
    eventually("the new authority", async || {
        server.ask(&target).await.is_ok_and(|name| name == "client-one")
    })
    .await;
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_names_the_setting_and_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let own = authority(dir.path(), "own");
    client(&own, "client", "client-one");
    client(&own, "other", "client-two");
    std::fs::copy(own.certificate(), place("trusted.pem")).unwrap();
    std::fs::write(place("text"), "hunter2").unwrap();
    let outbound = outbound();
    let good = files(dir.path());
    assert!(outbound.tls("x.tls", &Tls::default()).unwrap().is_none());
    outbound.tls("x.tls", &good).unwrap().unwrap();
    let some = |name: &str| Some(place(name));
    for (tls, starts, part) in [
        (Tls { ca_file: some("none"), ..good.clone() }, "x.tls.ca_file: ", "/none: No such file"),
        (Tls { ca_file: some("text"), ..good.clone() }, "x.tls.ca_file: ", "no certificate"),
        (
            Tls { client_cert_file: some("client.key"), ..good.clone() },
            "x.tls.client_cert_file: ",
            "no certificate",
        ),
        (
            Tls { client_key_file: some("text"), ..good.clone() },
            "x.tls.client_key_file: ",
            "no private key",
        ),
        (
            Tls { client_key_file: some("other.key"), ..good.clone() },
            "x.tls.client_key_file: ",
            "/other.key: it cannot be used",
        ),
        (Tls { client_key_file: None, ..good.clone() }, "x.tls.client_key_file: ", "must be given"),
        (Tls { client_cert_file: None, ..good }, "x.tls.client_cert_file: ", "must be given"),
    ] {
        let error = outbound.tls("x.tls", &tls).err().unwrap().to_string();
        assert!(error.starts_with(starts) && error.contains(part), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_users_are_values_and_lead_to_no_private_address() {
    let dir = tempfile::tempdir().unwrap();
    let own = authority(dir.path(), "own");
    client(&own, "client", "client-one");
    client(&own, "other", "client-two");
    let server = Server::start(server_config(dir.path(), "own")).await;
    let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let good = TlsValues {
        ca: Some(std::fs::read_to_string(own.certificate()).unwrap()),
        client_cert: Some(text("client.crt")),
        client_key: Some(text("client.key").as_str().into()),
        insecure_skip_verify: false,
    };
    let outbound = outbound();
    assert!(outbound.user_tls("tls", &TlsValues::default(), true).unwrap().is_none());
    let target = outbound.target("a").with_tls(outbound.user_tls("tls", &good, false).unwrap());
    assert_eq!(server.ask(&target).await.unwrap(), "client-one");

    // The address of `localhost` is refused when it is dialled, also if nobody checks the URL before.
    let guarded = outbound.user_tls("tls", &good, true).unwrap();
    let target = outbound.target("a").with_tls(guarded).guard_ssrf();
    let url = format!("https://localhost:{}/", server.address.port());
    let error = target.request(Method::GET, Url::parse(&url).unwrap()).send().await.unwrap_err();
    assert!(format!("{error:?}").contains("a loopback address"), "{error:?}");

    let key = |key: &str| Some(key.into());
    for (values, starts) in [
        (TlsValues { ca: Some("hunter2".into()), ..good.clone() }, "tls.ca: there is no"),
        (TlsValues { client_cert: Some("hunter2".into()), ..good.clone() }, "tls.client_cert: "),
        (TlsValues { client_key: key("hunter2"), ..good.clone() }, "tls.client_key: there is no"),
        (TlsValues { client_key: key(&text("other.key")), ..good.clone() }, "tls.client_key: it"),
        (
            TlsValues { insecure_skip_verify: true, ..good.clone() },
            "tls.insecure_skip_verify: must not",
        ),
        (TlsValues { client_key: None, ..good.clone() }, "tls.client_key: must be given"),
        (TlsValues { client_cert: None, ..good }, "tls.client_cert: must be given"),
    ] {
        let error = outbound.user_tls("tls", &values, true).err().unwrap().to_string();
        assert!(error.starts_with(starts) && !error.contains("hunter2"), "{error}");
    }
}
