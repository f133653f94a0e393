//! Who we are, and whom we trust.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bus::config::RabbitMqSink;
use bus::ports::inward::rabbitmq::RabbitMqInlet;
use bus::ports::out::Outlet;
use bus::ports::out::rabbitmq::RabbitMqOutlet;
use kernel::outbound::Tls;
use kernel::secret::SecretSource;
use lapin::BasicProperties;
use reqwest::Method;
use serde_json::json;
use servers::pki::Authority;
use testkit::rabbitmq::VHost;
use tokio_util::sync::CancellationToken;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_reported_without_the_password() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let mut config = sink(&vhost);
    config.password = "hunter2-is-wrong".into();
    let error = outlet(&config).open().await.unwrap_err();
    for text in [error.to_string(), error.with_causes(), format!("{error:?}")] {
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("check the username and password"), "{text}");
        assert!(text.contains(&vhost.name), "{text}");
    }
    assert_eq!(error.class(), kernel::Class::Transient, "the password may be set right");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_host_that_is_not_ours_is_named() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let (vhost, other) = (rabbitmq.vhost().await, rabbitmq.vhost().await);
    let mut config = sink(&vhost);
    config.url = format!("amqp://{}/{}", host(&vhost), other.name);
    let error = outlet(&config).open().await.unwrap_err().to_string();
    assert!(error.contains("NOT_ALLOWED") && error.contains(&other.name), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_changes_in_its_file_is_used_for_the_next_messages() {
    let Some(rabbitmq) = testkit::rabbitmq() else { return };
    let vhost = rabbitmq.vhost().await;
    let _reader = bind(&vhost).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, &vhost.password).unwrap();
    let mut config = sink(&vhost);
    config.password = SecretSource::File(file.clone());
    let outbound = outbound();
    let stop = CancellationToken::new();
    let (keeping, until_then) = (outbound.clone(), stop.clone());
    let keeper = tokio::spawn(async move { keeping.keep_secrets(until_then).await });
    let mut outlet = RabbitMqOutlet::new("orders", &config, &outbound).unwrap();
    open(&mut outlet).await;
    pump(&mut outlet, &messages([1])).await;
    let requester = requester(&vhost).await;
    let mut receiving = consumer_at(&host(&vhost), &vhost);
    receiving.password = SecretSource::File(file.clone());
    let mut inlet = RabbitMqInlet::new("inbox", &receiving, &outbound).unwrap();
    let (sender, mut seen) = tokio::sync::mpsc::channel(10);
    let handler = Arc::new(Script { seen: sender, answer: |_, _| done() });
    let until_then = stop.clone();
    let running = tokio::spawn(async move { inlet.run(1_000, handler, until_then).await });
    let connections = async || {
        let path = format!("vhosts/{}/connections", vhost.name);
        let listed = rabbitmq.management(Method::GET, &path).send().await.unwrap();
        let listed: Vec<serde_json::Value> = listed.json().await.unwrap();
        let named = |one: &&serde_json::Value| {
            one["client_properties"]["connection_name"] == "mainstay consumer inbox"
        };
        let names = listed.iter().filter(named).map(|one| one["name"].to_string());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let before = until("both connections of the inlet are listed", async || {
        let names = connections().await;
        (names.len() == 2).then_some(names)
    })
    .await;

    let path = format!("users/{}", vhost.name);
    let changed = json!({"password": "another", "tags": ""});
    let response = rabbitmq.management(Method::PUT, &path).json(&changed).send().await.unwrap();
    assert!(response.status().is_success());
    std::fs::write(&file, "another\n").unwrap();
    let error = until("the change is noticed", async || {
        send(&mut outlet, &messages([2])).await.err().map(|error| error.to_string())
    });
    let error = error.await;
    assert!(error.contains("credentials have changed"), "{error}");
    open(&mut outlet).await;
    pump(&mut outlet, &messages([3])).await;
    until("the inlet has other connections", async || {
        let names = connections().await;
        (names.len() == 2 && names.is_disjoint(&before)).then_some(())
    })
    .await;
    command(&requester, "with another password", BasicProperties::default()).await;
    let incoming = tokio::time::timeout(TIMEOUT, seen.recv()).await.unwrap().unwrap();
    assert_eq!(incoming.body, "with another password");
    stop.cancel();
    running.await.unwrap().expect("it ends without an error");
    keeper.await.unwrap();
}

fn tls(address: &str, vhost: &VHost, files: Tls) -> RabbitMqSink {
    RabbitMqSink {
        url: format!("amqps://{address}/{}", vhost.name),
        username: vhost.name.clone(),
        password: vhost.password.as_str().into(),
        tls: files,
        exchange: "events".into(),
        ..RabbitMqSink::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_with_tls_is_trusted_by_its_authority_alone() {
    let Some(shared) = testkit::rabbitmq() else { return };
    let own = shared.private().await;
    let vhost = own.vhost().await;
    let _reader = bind(&vhost).await;
    let path = |name: &str| Some(PathBuf::from(own.server.get(name)));
    let address = own.server.get("tls");

    let ours = Tls { ca_file: path("ca"), ..Tls::default() };
    let known = Tls {
        client_cert_file: path("client_cert"),
        client_key_file: path("client_key"),
        ..ours.clone()
    };
    let mut last = 0;
    for files in [ours.clone(), known.clone()] {
        let mut outlet = outlet(&tls(address, &vhost, files));
        open(&mut outlet).await;
        pump(&mut outlet, &messages(last + 1..=last + 100)).await;
        last += 100;
        outlet.close().await;
    }
    assert_eq!(count(&read_to(&vhost, last).await, last), 0);

    let dir = tempfile::tempdir().unwrap();
    let other = Authority::create(dir.path(), "other").unwrap().certificate();
    for (files, why) in [
        (Tls { ca_file: Some(other), ..Tls::default() }, "UnknownIssuer"),
        // The system's authorities do not know a test's.
        (Tls::default(), "UnknownIssuer"),
    ] {
        let error = outlet(&tls(address, &vhost, files)).open().await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // A certificate that the broker's authority has not signed.
    let stranger = stranger(dir.path(), &ours);
    let error = outlet(&tls(address, &vhost, stranger)).open().await.unwrap_err().to_string();
    assert!(error.contains("connecting to RabbitMQ of sink orders"), "{error}");

    // Commands come in by the same way.
    let mut config = consumer_at(address, &vhost);
    (config.url, config.tls) = (format!("amqps://{address}/{}", vhost.name), known);
    let mut running = run(config, 1_000, |_, _| done());
    command(&requester(&vhost).await, "over TLS", BasicProperties::default()).await;
    assert_eq!(running.next().await.body, "over TLS");
    assert_eq!(running.stop().await, [""; 0]);
}

fn stranger(dir: &Path, trusting: &Tls) -> Tls {
    let authority = Authority::create(dir, "stranger-ca").unwrap();
    let client = servers::pki::For::Client { organisation: "" };
    authority.sign("stranger", "stranger", client).unwrap();
    Tls {
        client_cert_file: Some(dir.join("stranger.crt")),
        client_key_file: Some(dir.join("stranger.key")),
        ..trusting.clone()
    }
}
