//! TLS by files, and again when they change.

use std::path::Path;
use std::sync::Arc;

use kernel::http::{Config, Tls};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::listener::{Served, read_until, served};
use crate::server::eventually;

/// Writes a new self-signed certificate; returns it as a client must trust it.
fn write(dir: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(dir.join("cert.pem"), made.cert.pem()).unwrap();
    made.cert.der().clone()
}

fn config(dir: &Path) -> Config {
    let tls = Tls { cert_file: dir.join("cert.pem"), key_file: dir.join("key.pem") };
    Config { tls: Some(tls), ..Config::default() }
}

/// Asks over TLS, trusting only this certificate.
async fn ping(served: &Served, trusted: &CertificateDer<'static>, alpn: &[u8]) -> Option<String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![alpn.to_vec()];
    let stream = TcpStream::connect(served.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await.ok()?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn));
    let ask = "GET /api/v1/self/ping HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(ask.as_bytes()).await.unwrap();
    Some(read_until(&mut stream, "Pong").await)
}

#[tokio::test]
async fn a_changed_certificate_is_used_and_a_broken_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let first = write(dir.path());
    let served = served(config(dir.path())).await;
    let response = ping(&served, &first, b"http/1.1").await.expect("trusted");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    std::fs::write(dir.path().join("cert.pem"), "broken").unwrap();
    assert!(ping(&served, &first, b"http/1.1").await.is_some());
    let second = write(dir.path());
    eventually("the new certificate is used", async || {
        ping(&served, &second, b"http/1.1").await.is_some()
    })
    .await;
    assert!(ping(&served, &first, b"http/1.1").await.is_none(), "the old one is gone");
}

#[tokio::test]
async fn files_without_a_certificate_are_rejected_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let refused = async || {
        let task = served(config(dir.path())).await.task;
        task.await.unwrap().expect_err("refused").to_string()
    };
    assert!(refused().await.starts_with("http.tls.cert_file: "), "a missing file");
    write(dir.path());
    std::fs::write(dir.path().join("key.pem"), "no key").unwrap();
    assert!(refused().await.starts_with("http.tls.key_file: "), "a broken key");
}
