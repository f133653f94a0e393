//! Where users' webhooks may not go.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use kernel::outbound::Lookup;
use serde_json::json;

use crate::receiver::Receiver;
use crate::server::Setup;

const PUBLIC: &str = "93.184.216.34";

fn lookup(answer: impl Fn(&str) -> Vec<&'static str> + Send + Sync + 'static) -> Lookup {
    Arc::new(move |host| {
        let addresses: Vec<IpAddr> =
            answer(&host).into_iter().map(|address| address.parse().unwrap()).collect();
        std::future::ready(Ok(addresses)).boxed()
    })
}

fn guarded(lookup: Lookup) -> Setup {
    let mut setup = Setup { allow: Vec::new(), lookup: Some(lookup), ..Setup::default() };
    // The first refusal parks it, with the reason.
    setup.bus.webhooks.park_after_s = 0;
    setup
}

#[tokio::test]
async fn an_address_that_only_we_can_reach_is_refused_at_creation() {
    let names = lookup(|host| match host {
        "inner.example" => vec!["10.0.0.7"],
        "metadata.example" => vec!["169.254.169.254"],
        "mixed.example" => vec![PUBLIC, "127.0.0.1"],
        "six.example" => vec!["fd00::7"],
        "mapped.example" => vec!["::ffff:127.0.0.1"],
        _ => vec![PUBLIC],
    });
    let server = guarded(names).start().await;
    let create = async |url: &str| {
        server.post("alice", "/api/v1/sinks", json!({"name": "orders", "url": url})).await
    };
    for bad in [
        "http://127.0.0.1:8080/",
        "http://127.1/",
        "http://2130706433/",
        "http://0.0.0.0/",
        "http://10.1.2.3/",
        "http://192.168.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[fe80::1]/",
        "http://[fd00:ec2::254]/",
        "http://inner.example/",
        "http://metadata.example/",
        "http://mixed.example/",
        "http://six.example/",
        "http://mapped.example/",
        "ftp://hooks.example/",
        "https://user:hunter2@hooks.example/",
        "nonsense",
    ] {
        let (status, body) = create(bad).await;
        assert_eq!((status, body["error"]["field"].as_str()), (400, Some("url")), "{bad}: {body}");
        assert!(!body.to_string().contains("hunter2"), "{body}");
    }
    let (status, body) = create("https://hooks.example/orders").await;
    assert_eq!(status, 201, "{body}");
}

/// The name leads to a public address when it is checked, and to ours when it is connected to.
#[tokio::test]
async fn a_name_that_changes_between_check_and_connection_is_refused() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let names = lookup(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => vec![PUBLIC],
        _ => vec!["127.0.0.1"],
    });
    let (server, receiver) = (guarded(names).start().await, Receiver::start().await);
    let url = format!("http://hooks.example:{}/", receiver.address.port());
    let hook = server.webhook("alice", "orders", &url, json!({})).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    server.happen("acme", "a").await;
    let sink = server.until_phase(&hook.id, "parked").await;
    assert_eq!(calls.load(Ordering::SeqCst), 3, "checked, and resolved again for the connection");
    let reason = sink["reason"].as_str().unwrap();
    assert!(reason.contains("127.0.0.1, a loopback address"), "{reason}");
    assert_eq!(receiver.count(), 0);
}

/// It was allowed once.
#[tokio::test]
async fn what_the_configuration_no_longer_allows_is_refused_at_delivery() {
    let receiver = Receiver::start().await;
    let setup = Setup::default();
    let server = setup.start().await;
    let hook = server.webhook("alice", "orders", &receiver.url(), json!({})).await;
    let first = server.happen("acme", "a").await;
    receiver.wait_for(&[first]).await;
    server.stop().await;
    let mut strict = Setup { allow: Vec::new(), ..setup.clone() };
    strict.bus.webhooks.park_after_s = 0;
    let again = strict.start().await;
    let second = again.happen("acme", "b").await;
    let sink = again.until_phase(&hook.id, "parked").await;
    let reason = sink["reason"].as_str().unwrap();
    assert!(reason.contains("outbound.allow_targets"), "{reason}");
    assert_eq!(receiver.accepted(), [first]);
    again.stop().await;
    let allowed = setup.start().await;
    allowed.resume(&hook.id).await;
    receiver.wait_for(&[first, second]).await;
}
