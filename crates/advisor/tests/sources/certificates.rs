//! A data source that asks for a certificate, which is given as a value, and one whose own certificate
//! nobody vouches for.

use std::sync::Arc;
use std::time::Duration;

use advisor::model::datasource::Datasource;
use advisor::ports::prometheus::{Problem, Prometheus};
use kernel::Ambient;
use kernel::outbound::{Config, Outbound, Tls};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use servers::pki::{Authority, For};
use testkit::stores;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{message, open_config, put};
use crate::support::server::Server;

/// Answers `up`; if it is strict, to those who show a certificate of the authority.
async fn prometheus(
    authority: &Authority,
    dir: &std::path::Path,
    strict: bool,
) -> (String, DropGuard) {
    authority.sign("server", "server", For::Server(&["localhost"])).unwrap();
    let certificates = |path: &std::path::Path| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap).collect()
    };
    let mut roots = RootCertStore::empty();
    roots.add(certificates(authority.certificate().as_ref()).remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let key = PrivateKeyDer::from_pem_file(dir.join("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = if strict {
        config.with_client_cert_verifier(clients.build().unwrap())
    } else {
        config.with_no_client_auth()
    };
    let config = config.with_single_cert(certificates(&dir.join("server.crt")), key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let stop = CancellationToken::new();
    let serving = stop.clone();
    let serve = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let body = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: ";
            let _ = stream.read(&mut [0; 4096]).await;
            let _ =
                stream.write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    };
    tokio::spawn(async move { serving.run_until_cancelled(serve).await });
    (url, stop.drop_guard())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_a_value_and_its_key_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path(), "own").unwrap();
    authority.sign("client", "client", For::Client { organisation: "" }).unwrap();
    let (url, _serving) = prometheus(&authority, dir.path(), true).await;
    let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let ca = std::fs::read_to_string(authority.certificate()).unwrap();
    let (certificate, key) = (text("client.crt"), text("client.key"));
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &open_config()).await;
    let with = async |tls: Value| put(&server, "own", &json!({ "url": url, "tls": tls })).await;
    for tls in [json!({ "client_cert": certificate, "client_key": key }), json!({ "ca": ca })] {
        let answer = with(tls).await;
        assert!(answer.status == 400 && message(&answer).contains("does not answer"), "{answer:?}");
    }
    let answer = with(json!({ "ca": ca, "client_cert": certificate, "client_key": key })).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let secret = key.lines().nth(1).unwrap();
    let objects = format!("{:?}", server.objects("datasource").await);
    let events = format!("{:?}", server.events("datasource").await);
    for shown in [&answer.text, &objects, &events] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(objects.contains("\"tls\":true") || objects.contains("\\\"tls\\\":true"), "{objects}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_certificate_is_accepted_only_where_the_settings_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path(), "own").unwrap();
    let (url, _serving) = prometheus(&authority, dir.path(), false).await;
    let outbound = Outbound::new(Config::default(), Ambient::system(), Arc::new(|_| ())).unwrap();
    let configured = |insecure_skip_verify: bool, ca_file: Option<std::path::PathBuf>| {
        let tls = Tls { insecure_skip_verify, ca_file, ..Tls::default() };
        Prometheus::new("paris", &Datasource { tls, ..Datasource::at(&url) }, &outbound)
    };
    let ask = async |client: Prometheus| client.handshake(Duration::from_secs(30)).await;
    let error = ask(configured(false, None).unwrap()).await.unwrap_err();
    assert!(error.problem == Problem::Unreachable && error.why.contains("certificate"), "{error}");
    ask(configured(true, None).unwrap()).await.unwrap();
    let both = configured(true, Some(authority.certificate())).err().unwrap().to_string();
    assert!(both.starts_with("paris.tls.insecure_skip_verify: must not be set"), "{both}");

    // A user's, as well.
    let fresh = stores::sqlite().await.unwrap();
    let server = Server::start(&fresh, &open_config()).await;
    let answer = put(&server, "own", &json!({ "url": url })).await;
    assert!(message(&answer).contains("does not answer"), "{answer:?}");
    let tls = json!({ "insecure_skip_verify": true });
    let answer = put(&server, "own", &json!({ "url": url, "tls": tls })).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let objects = format!("{:?}", server.objects("datasource").await);
    assert!(objects.contains("insecure_skip_verify"), "it is shown: {objects}");
}
