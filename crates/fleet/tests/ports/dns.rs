//! Route 53: moto, and a strict mock, which refuses what the real one refuses.

use aws_sdk_route53::types::{
    Change, ChangeAction, ChangeBatch, ResourceRecord, ResourceRecordSet, RrType,
};
use fleet::model::dns::Record;
use fleet::ports::dns::{Config, Dns, Route53};
use kernel::{Class, Error};
use testkit::route53::strict::Strict;
use testkit::route53::{Zone, client, zone};

use crate::{outbound, whole};

fn config(endpoint: &str, zone: &Zone) -> Config {
    Config {
        zone_id: zone.id.clone(),
        endpoint: endpoint.into(),
        access_key_id: "test".into(),
        secret_access_key: "test".into(),
        ..Config::default()
    }
}

fn dns(endpoint: &str, zone: &Zone) -> Route53 {
    Route53::new(&config(endpoint, zone), &outbound()).unwrap()
}

fn record(name: &str, zone: &Zone, target: &str) -> Record {
    let zone = zone.name.trim_end_matches('.');
    Record { name: format!("{name}.{zone}"), target: target.into() }
}

fn names(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| record.name.clone()).collect()
}

/// What any Route 53 must do.
async fn records_are_created_updated_and_removed(endpoint: &str) {
    let zone = zone(&client(endpoint)).await;
    let dns = dns(endpoint, &zone);
    let first = [
        record("demo", &zone, "router.cluster-1.example"),
        record("admin-server-demo", &zone, "router.cluster-1.example"),
        record("*.demo", &zone, "router.cluster-1.example"),
    ];
    let all = names(&first);
    assert!(dns.find(&all).await.unwrap().is_empty());
    let change = dns.upsert(&first).await.unwrap();
    assert!(!change.is_empty());
    assert_eq!(dns.find(&all).await.unwrap(), first);
    dns.upsert(&first).await.unwrap();
    assert_eq!(dns.find(&all).await.unwrap(), first);

    // The instance moved: the same names, another cluster.
    let second =
        first.clone().map(|one| Record { target: "router.cluster-2.example".into(), ..one });
    dns.upsert(&second).await.unwrap();
    assert_eq!(dns.find(&all).await.unwrap(), second);

    // Another instance's record, which stays.
    let other = [record("demo2", &zone, "router.cluster-1.example")];
    dns.upsert(&other).await.unwrap();
    dns.remove(&first).await.unwrap();
    assert!(dns.find(&all).await.unwrap().is_empty());
    dns.remove(&first).await.unwrap();
    assert_eq!(dns.find(&names(&other)).await.unwrap(), other);
    // Some exist and some do not.
    dns.upsert(&first[..1]).await.unwrap();
    dns.remove(&first).await.unwrap();
    assert!(dns.find(&all).await.unwrap().is_empty());

    let nothing = dns.upsert(&[]).await.unwrap();
    assert!(dns.in_sync(&nothing).await.unwrap());
    dns.remove(&[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_created_updated_and_removed_in_moto() {
    let Some(moto) = testkit::route53() else { return };
    records_are_created_updated_and_removed(moto.endpoint()).await;
    let zone = moto.zone().await;
    let dns = dns(moto.endpoint(), &zone);
    let change = dns.upsert(&[record("demo", &zone, "router.example")]).await.unwrap();
    assert!(dns.in_sync(&change).await.unwrap(), "moto has no delay");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_created_updated_and_removed_in_the_strict_mock() {
    let strict = Strict::start().await;
    records_are_created_updated_and_removed(strict.endpoint()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_in_sync_once_it_is_everywhere() {
    let strict = Strict::start().await;
    let zone = zone(&client(strict.endpoint())).await;
    let dns = dns(strict.endpoint(), &zone);
    let change = dns.upsert(&[record("demo", &zone, "router.example")]).await.unwrap();
    assert!(!dns.in_sync(&change).await.unwrap());
    strict.settle();
    assert!(dns.in_sync(&change).await.unwrap());
    let later = dns.upsert(&[record("demo", &zone, "other.example")]).await.unwrap();
    assert!(!dns.in_sync(&format!("{change},{later}")).await.unwrap());
    assert!(dns.in_sync("C999").await.unwrap(), "an unknown change is long done");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_records_for_a_batch_are_split() {
    let strict = Strict::start().await;
    let zone = zone(&client(strict.endpoint())).await;
    let dns = dns(strict.endpoint(), &zone);
    let many: Vec<Record> =
        (0..1201).map(|i| record(&format!("n{i}"), &zone, "router.example")).collect();
    let change = dns.upsert(&many).await.unwrap();
    assert_eq!(change.split(',').count(), 3);
    assert_eq!(strict.records().len(), many.len());
    assert!(!dns.in_sync(&change).await.unwrap());
    strict.settle();
    assert!(dns.in_sync(&change).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_is_retried_until_it_persists() {
    let strict = Strict::start().await;
    let zone = zone(&client(strict.endpoint())).await;
    let dns = dns(strict.endpoint(), &zone);
    let records = [record("demo", &zone, "router.example")];
    strict.throttle(2);
    dns.upsert(&records).await.unwrap();
    strict.throttle(2);
    assert_eq!(dns.find(&names(&records)).await.unwrap(), records);
    strict.throttle(100);
    let error = dns.remove(&records).await.unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    assert!(whole(&error).contains("Route 53: throttled: Throttling"), "{error:?}");
    strict.throttle(0);
    // Throttling does not open the circuit breaker.
    dns.remove(&records).await.unwrap();
    assert!(strict.records().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_compared_regardless_of_spelling() {
    let strict = Strict::start().await;
    let zone = zone(&client(strict.endpoint())).await;
    let dns = dns(strict.endpoint(), &zone);
    let plain = record("demo", &zone, "router.example");
    let odd = Record {
        name: format!("{}.", plain.name.to_uppercase()),
        target: "ROUTER.example.".into(),
    };
    // The same record twice in one call is one.
    dns.upsert(&[plain.clone(), odd.clone()]).await.unwrap();
    assert_eq!(strict.records().len(), 1);
    let found = dns.find(std::slice::from_ref(&plain.name)).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&plain));
    assert_eq!(
        dns.find(std::slice::from_ref(&odd.name)).await.unwrap(),
        [Record { name: odd.name.clone(), ..plain.clone() }]
    );
    let conflicting = Record { target: "elsewhere.example".into(), ..odd.clone() };
    let error = dns.upsert(&[plain, conflicting]).await.unwrap_err();
    assert!(whole(&error).contains("cannot have the targets"), "{error:?}");
    dns.remove(&[odd]).await.unwrap();
    assert!(strict.records().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_was_edited_by_hand_is_removed_as_well() {
    let strict = Strict::start().await;
    let hand = client(strict.endpoint());
    let zone = zone(&hand).await;
    let dns = dns(strict.endpoint(), &zone);
    let ours = record("demo", &zone, "router.example");
    let value = ResourceRecord::builder().value("by.hand.example").build().unwrap();
    let set = ResourceRecordSet::builder().name(&ours.name).r#type(RrType::Cname).ttl(7);
    let set = set.resource_records(value).build().unwrap();
    let change = Change::builder().action(ChangeAction::Create).resource_record_set(set);
    let batch = ChangeBatch::builder().changes(change.build().unwrap()).build().unwrap();
    hand.change_resource_record_sets()
        .hosted_zone_id(&zone.id)
        .change_batch(batch)
        .send()
        .await
        .unwrap();
    let found = dns.find(std::slice::from_ref(&ours.name)).await.unwrap();
    assert_eq!(found[0].target, "by.hand.example");
    dns.remove(&[ours]).await.unwrap();
    assert!(strict.records().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_removals_of_the_same_records_all_succeed() {
    let strict = Strict::start().await;
    let zone = zone(&client(strict.endpoint())).await;
    let dns = dns(strict.endpoint(), &zone);
    let records: Vec<Record> =
        (0..5).map(|i| record(&format!("n{i}"), &zone, "router.example")).collect();
    for _ in 0..10 {
        dns.upsert(&records).await.unwrap();
        let both = futures::future::join(dns.remove(&records), dns.remove(&records)).await;
        both.0.unwrap();
        both.1.unwrap();
        assert!(strict.records().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_the_system_and_the_setting_to_check() {
    let strict = Strict::start().await;
    let zone = zone(&client(strict.endpoint())).await;
    let wrong = Zone { id: "Z404".into(), name: zone.name.clone() };
    let records = [record("demo", &zone, "router.example")];
    let error = dns(strict.endpoint(), &wrong).upsert(&records).await.unwrap_err();
    let text = whole(&error);
    assert!(text.contains("Route 53") && text.contains("Z404"), "{text}");
    assert!(text.contains("dns.zone_id"), "{text}");

    let elsewhere = [Record { name: "demo.elsewhere.example".into(), target: "a.example".into() }];
    let error = dns(strict.endpoint(), &zone).upsert(&elsewhere).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
    assert!(error.to_string().contains("demo.elsewhere.example"), "{error}");

    let away = dns("http://127.0.0.1:9", &zone).find(&["a.example".into()]).await.unwrap_err();
    assert_eq!(away.class(), Class::Transient);
    assert!(whole(&away).contains("Route 53: "), "{away:?}");

    for bad in [
        Config { zone_id: String::new(), ..config("", &zone) },
        Config { access_key_id: "".into(), ..config("", &zone) },
        Config { secret_access_key: "".into(), ..config("", &zone) },
    ] {
        let error = Route53::new(&bad, &outbound()).err().unwrap();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    }
}
