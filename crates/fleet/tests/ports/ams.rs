//! Quota, terms and accounts, against a mock service.

use fleet::model::quota::Quota;
use fleet::ports::ams::{Account, Ams, Config, Http, Reservation};
use kernel::{Class, Error};
use serde_json::json;
use testkit::ams::{Mood, Offer, Server, TOKEN};

use crate::{outbound, whole};

const ORG: &str = "13640203";

async fn server() -> Server {
    let offer =
        |product, billing_model, allowed| Offer { org: ORG, product, billing_model, allowed };
    let offers = vec![
        offer("RHOSAK", "standard", 2),
        offer("RHOSAK", "marketplace-aws", 1),
        offer("RHOSAK", "marketplace", 3),
        offer("RHOSAKTrial", "standard", 0),
    ];
    testkit::ams::start(offers).await
}

fn ams(server: &Server) -> Http {
    let config =
        Config { url: server.url.clone(), token: TOKEN.into(), timeout_s: 5, ..Config::default() };
    Http::new(&config, &outbound()).unwrap()
}

fn reservation(instance: &str, units: i64) -> Reservation {
    Reservation {
        account: "alice".into(),
        org: ORG.into(),
        instance: instance.into(),
        product: "RHOSAK".into(),
        resource: "rhosak".into(),
        billing_model: "standard".into(),
        az_type: "multi".into(),
        units,
        display_name: "demo".into(),
        ..Reservation::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_is_that_of_the_product_and_the_billing_model() {
    let server = server().await;
    let ams = ams(&server);
    let quota = |allowed| Some(Quota { allowed, consumed: 0 });
    for (product, billing_model, expected) in [
        ("RHOSAK", "standard", quota(2)),
        ("RHOSAK", "marketplace", quota(4)),
        ("RHOSAK", "marketplace-aws", quota(1)),
        ("RHOSAKTrial", "standard", quota(0)),
        ("RHOSAKTrial", "marketplace", None),
        ("RHOSAKEval", "standard", None),
    ] {
        let found = ams.quota(ORG, product, billing_model).await.unwrap();
        assert_eq!(found, expected, "{product} {billing_model}");
    }
    assert_eq!(ams.quota("999", "RHOSAK", "standard").await.unwrap(), None);
    for nobody in ["no-such-org", "", "x' or 'a'='a", "\\", "a\nb"] {
        assert_eq!(ams.quota(nobody, "RHOSAK", "standard").await.unwrap(), None, "{nobody}");
    }
    ams.quota(ORG, "RHOSAK", "standard").await.unwrap();
    let asked = server.world.lock().asked.clone();
    // Two organisations and a missing one; the others are cached, or are not valid names.
    assert_eq!(asked["organizations"], 3, "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_counts_until_it_is_released() {
    let server = server().await;
    let ams = ams(&server);
    let first = ams.reserve(&reservation("i1", 1)).await.unwrap().unwrap();
    let again = ams.reserve(&reservation("i1", 1)).await.unwrap().unwrap();
    assert_eq!(first, again);
    assert_eq!(ams.reserve(&reservation("i2", 2)).await.unwrap(), None);
    let second = ams.reserve(&reservation("i3", 1)).await.unwrap().unwrap();
    assert_ne!(first, second);
    let full = Some(Quota { allowed: 2, consumed: 2 });
    assert_eq!(ams.quota(ORG, "RHOSAK", "standard").await.unwrap(), full);
    assert_eq!(ams.reserve(&reservation("i4", 1)).await.unwrap(), None);

    ams.release(&first).await.unwrap();
    ams.release(&first).await.unwrap();
    ams.release("").await.unwrap();
    ams.release("never-there").await.unwrap();
    // The old subscription still exists, as deprovisioned: it holds nothing.
    let new = ams.reserve(&reservation("i1", 1)).await.unwrap().unwrap();
    assert_ne!(new, first);
    assert_eq!(server.world.lock().subscriptions.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_everything_that_is_billed() {
    let server = server().await;
    let paid = Reservation {
        billing_model: "marketplace".into(),
        marketplace: "aws".into(),
        billing_account: Some("123456789012".into()),
        ..reservation("i1", 1)
    };
    ams(&server).reserve(&paid).await.unwrap().unwrap();
    let request = server.world.lock().subscriptions[0].request.clone();
    assert_eq!(
        request,
        json!({
            "account_username": "alice",
            "product_id": "RHOSAK",
            "cluster_id": "i1",
            "external_cluster_id": "i1",
            "display_name": "demo",
            "availability_zone": "multi",
            "managed": true,
            "disconnected": false,
            "byoc": false,
            "reserve": true,
            "resources": [{
                "resource_name": "rhosak",
                "billing_model": "marketplace-aws",
                "availability_zone_type": "multi",
                "byoc": false,
                "count": 1,
                "billing_marketplace_account": "123456789012",
            }],
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_response_leaves_one_subscription_and_not_two() {
    let server = server().await;
    let ams = ams(&server);
    server.world.lock().mood = Mood::LosesAnswers;
    let error = ams.reserve(&reservation("i1", 1)).await.unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    assert_eq!(server.world.lock().asked["cluster_authorizations"], 1, "it is not repeated");
    server.world.lock().mood = Mood::Well;
    let found = ams.reserve(&reservation("i1", 1)).await.unwrap().unwrap();
    let world = server.world.lock();
    assert_eq!(world.subscriptions.len(), 1);
    assert_eq!(world.subscriptions[0].id, found);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_distinguished_from_throttling() {
    let server = server().await;
    let ams = ams(&server);
    server.world.lock().mood = Mood::RefusesWith429;
    assert_eq!(ams.reserve(&reservation("i1", 3)).await.unwrap(), None);
    assert_eq!(server.world.lock().asked["cluster_authorizations"], 1);
    server.world.lock().mood = Mood::Busy;
    let error = ams.reserve(&reservation("i1", 1)).await.unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    assert!(whole(&error).contains("slow down"), "{error:?}");
    assert_eq!(server.world.lock().asked["cluster_authorizations"], 4, "throttling is retried");
    server.world.lock().mood = Mood::Well;
    assert!(ams.reserve(&reservation("i1", 1)).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn terms_are_accepted_or_not() {
    let server = server().await;
    let ams = ams(&server);
    let where_open =
        [("alice", None), ("carol", Some("https://terms.example")), ("stranger", Some(""))];
    for (account, open) in where_open {
        let found = ams.open_terms(account, "ocm", "onlineService").await.unwrap();
        assert_eq!(found.as_deref(), open, "{account}");
    }
    let error = ams.open_terms("alice", "elsewhere", "onlineService").await.unwrap_err();
    assert!(whole(&error).contains("unknown site or event"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_found_by_its_name_with_its_organisation() {
    let server = server().await;
    let ams = ams(&server);
    let alice = Account { id: "account-alice".into(), org: ORG.into(), banned: false };
    for terse in [false, true] {
        server.world.lock().terse = terse;
        assert_eq!(ams.account("alice").await.unwrap(), Some(alice.clone()));
        assert!(ams.account("mallory").await.unwrap().unwrap().banned);
        for nobody in ["nobody", "", "alice' or '1'='1", "Alice"] {
            assert_eq!(ams.account(nobody).await.unwrap(), None, "{nobody}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_the_service_and_the_setting_to_check() {
    let server = server().await;
    let config = Config {
        url: server.url.clone(),
        token: "wrong".into(),
        timeout_s: 5,
        ..Config::default()
    };
    let stranger = Http::new(&config, &outbound()).unwrap();
    for error in [
        stranger.quota(ORG, "RHOSAK", "standard").await.unwrap_err(),
        stranger.reserve(&reservation("i1", 1)).await.unwrap_err(),
        stranger.release("s1").await.unwrap_err(),
        stranger.open_terms("alice", "ocm", "onlineService").await.unwrap_err(),
    ] {
        let text = whole(&error);
        assert!(text.starts_with("AMS: ") && text.contains("check fleet.ams.token"), "{text}");
        assert!(!text.contains("wrong"), "{text}");
    }
    let lost = Config {
        url: format!("{}/nowhere", server.url),
        token: TOKEN.into(),
        timeout_s: 5,
        ..Config::default()
    };
    let error = Http::new(&lost, &outbound()).unwrap().account("alice").await.unwrap_err();
    assert!(whole(&error).contains("check fleet.ams.url"), "{error:?}");
    for bad in
        [Config { url: "nonsense".into(), ..config.clone() }, Config { token: "".into(), ..config }]
    {
        assert!(matches!(Http::new(&bad, &outbound()).err().unwrap(), Error::Invalid { .. }));
    }
}
