//! Every listener and mechanism; credentials that are wrong, and those that change.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use bus::config::{KafkaSink, Sasl, SaslMechanism};
use bus::ports::out::Outlet;
use bus::ports::out::kafka::KafkaOutlet;
use kernel::outbound::Tls;
use kernel::secret::SecretSource;
use krafka::admin::{
    AclBinding, AclOperation, AclPatternType, AclPermissionType, AclResourceType, CreateAclsOptions,
};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use testkit::kafka::{Kafka, Listener, Mechanism};

use crate::counting::*;

fn mechanism(name: &str) -> SaslMechanism {
    serde_json::from_value(name.into()).unwrap()
}

/// A token without a signature.
fn token(subject: &str) -> String {
    let encode = |text: String| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let claims = format!(r#"{{"sub":"{subject}","iat":{now},"exp":{}}}"#, now + 3600);
    format!("{}.{}.", encode(r#"{"alg":"none"}"#.into()), encode(claims))
}

pub fn sasl_sink(kafka: &Kafka, listener: &str, name: &str) -> KafkaSink {
    let ca_file = Some(kafka.server.get("ca").into());
    KafkaSink {
        brokers: vec![kafka.server.get(listener).to_owned()],
        tls: listener.contains("tls").then(|| Tls { ca_file, ..Tls::default() }),
        sasl: listener.contains("sasl").then(|| Sasl {
            mechanism: mechanism(name),
            username: kafka.server.get("user").into(),
            password: SecretSource::Value(kafka.server.get("password").into()),
            token: SecretSource::Value(token(kafka.server.get("user")).as_str().into()),
        }),
        ..sink(kafka)
    }
}

pub async fn allow(
    kafka: &Kafka,
    user: &str,
    resource: AclResourceType,
    name: &str,
    operation: AclOperation,
) {
    let client = krafka::Kafka::builder(kafka.server.get("")).connect().await.unwrap();
    let binding = AclBinding {
        resource_type: resource,
        resource_name: name.into(),
        // Literal: krafka 0.28 numbers these one too low.
        pattern_type: AclPatternType::Prefixed,
        principal: format!("User:{user}"),
        host: "*".into(),
        operation,
        permission_type: AclPermissionType::Allow,
    };
    let created = client.admin().create_acls(vec![binding], CreateAclsOptions::default()).await;
    created.unwrap().into_iter().for_each(|(_, result)| result.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_listener_and_mechanism_carries_messages_and_refuses_wrong_credentials() {
    let Some(shared) = testkit::kafka() else { return };
    let kafka = shared.private().await;
    let mut listeners = vec![("", ""), ("tls", "")];
    for name in ["plain", "scram-sha256", "scram-sha512", "oauthbearer"] {
        listeners.extend([("sasl", name), ("sasl_tls", name)]);
    }
    for (listener, name) in listeners {
        let topic = kafka.name(&format!("{listener}-{name}"));
        let mut config = sasl_sink(&kafka, listener, name);
        let mut good = outlet(&topic, &config);
        good.open().await.unwrap_or_else(|error| panic!("{listener} {name}: {error}"));
        good.send(&batch(&topic, 0..10), at(9)).await.unwrap();
        good.close().await;
        assert_exactly_once(&kafka, &topic, 10).await;
        let Some(sasl) = &mut config.sasl else { continue };
        if sasl.mechanism == SaslMechanism::Oauthbearer {
            independent_client(&kafka, listener == "sasl_tls").await;
        }
        sasl.password = SecretSource::Value("not-the-password".into());
        sasl.token = SecretSource::Value("not.a-token.".into());
        let error = outlet(&topic, &config).open().await.unwrap_err();
        let shown = format!("{error} {error:?} {}", error.with_causes());
        assert!(shown.contains("uthentication"), "{listener} {name}: {shown}");
        assert!(!shown.contains("not-the-password") && !shown.contains("a-token"), "{shown}");
    }
    let error = {
        let mut config = sasl_sink(&kafka, "tls", "");
        config.tls = Some(Tls::default());
        outlet("system-roots", &config).open().await.unwrap_err().to_string()
    };
    assert!(error.contains("ertificate") || error.contains("UnknownIssuer"), "{error}");
}

/// That the broker takes a token is not a matter of our client.
async fn independent_client(kafka: &Kafka, tls: bool) {
    let mechanism = Mechanism::Oauthbearer;
    let listener = if tls { Listener::SaslTls(mechanism) } else { Listener::Sasl(mechanism) };
    let config = kafka.config(listener);
    let ask = move || {
        let consumer: BaseConsumer = config.create().unwrap();
        // The token is made by a callback that polling serves.
        consumer.poll(Duration::ZERO);
        consumer.fetch_metadata(None, TIMEOUT).unwrap().topics().len()
    };
    assert!(tokio::task::spawn_blocking(ask).await.unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_changes_in_its_file_is_used() {
    let Some(kafka) = testkit::kafka() else { return };
    let topic = kafka.name("changed");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
    write(&file, "outdated");
    let mut config = sasl_sink(&kafka, "sasl_tls", "scram-sha512");
    config.sasl.as_mut().unwrap().password = SecretSource::File(file.clone());
    let (outbound, stop) = (outbound(), tokio_util::sync::CancellationToken::new());
    let (keeper, stopped) = (outbound.clone(), stop.clone());
    let keeping = tokio::spawn(async move { keeper.keep_secrets(stopped).await });
    let mut outlet = KafkaOutlet::new(&topic, &config, &outbound).unwrap();
    assert!(outlet.open().await.is_err());
    write(&file, kafka.server.get("password"));
    let opened = async {
        while outlet.open().await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, opened).await.expect("the new password is used");
    outlet.send(&batch(&topic, 0..10), at(9)).await.unwrap();
    // An open connection is given up, too.
    write(&file, "another");
    let refused = async {
        loop {
            match outlet.send(&[], at(9)).await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(error) => return error.to_string(),
            }
        }
    };
    let error = tokio::time::timeout(TIMEOUT, refused).await.expect("it is noticed");
    assert!(error.contains("credentials or certificates have changed"), "{error}");
    assert!(outlet.open().await.is_err());
    stop.cancel();
    keeping.await.unwrap();
}
