//! Route 53 through Amazon's client, on moto and on the strict one.

use aws_sdk_route53::Client;
use aws_sdk_route53::error::ProvideErrorMetadata as _;
use aws_sdk_route53::types::{
    Change, ChangeAction, ChangeBatch, ChangeStatus, ResourceRecord, ResourceRecordSet, RrType,
};
use testkit::route53::strict::Strict;
use testkit::route53::{Zone, client, zone};

fn change(action: ChangeAction, name: &str, address: &str) -> Change {
    let record = ResourceRecord::builder().value(address).build().unwrap();
    let set = ResourceRecordSet::builder().name(name).r#type(RrType::A).ttl(60);
    let set = set.resource_records(record).build().unwrap();
    Change::builder().action(action).resource_record_set(set).build().unwrap()
}

/// The change's id, or what it is refused with.
async fn send(client: &Client, zone: &Zone, changes: Vec<Change>) -> Result<String, String> {
    let batch = ChangeBatch::builder().set_changes(Some(changes)).build().unwrap();
    let sent = client.change_resource_record_sets().hosted_zone_id(&zone.id).change_batch(batch);
    match sent.send().await {
        Ok(done) => Ok(done.change_info().unwrap().id().to_owned()),
        Err(error) => Err(error.code().unwrap_or("no code").to_owned()),
    }
}

/// Names and values of the zone's addresses.
async fn addresses(client: &Client, zone: &Zone) -> Vec<(String, String)> {
    let mut pages = client.list_resource_record_sets().hosted_zone_id(&zone.id).max_items(2);
    let mut found = Vec::new();
    loop {
        let page = pages.clone().send().await.unwrap();
        for set in page.resource_record_sets().iter().filter(|set| set.r#type() == &RrType::A) {
            found.push((set.name().to_owned(), set.resource_records()[0].value().to_owned()));
        }
        match page.next_record_name() {
            Some(name) if page.is_truncated() => {
                pages = pages.start_record_name(name);
                pages = pages.set_start_record_type(page.next_record_type().cloned());
            }
            _ => return found,
        }
    }
}

async fn writes_and_reads_back(client: &Client) -> Zone {
    let zone = zone(client).await;
    let names: Vec<String> = (0..5).map(|n| format!("n{n}.{}", zone.name)).collect();
    let create = names.iter().map(|name| change(ChangeAction::Create, name, "10.0.0.1"));
    send(client, &zone, create.collect()).await.unwrap();
    let upsert = change(ChangeAction::Upsert, &names[1], "10.0.0.2");
    let delete = change(ChangeAction::Delete, &names[0], "10.0.0.1");
    send(client, &zone, vec![upsert, delete]).await.unwrap();
    let found = addresses(client, &zone).await;
    let expected = [(1, "10.0.0.2"), (2, "10.0.0.1"), (3, "10.0.0.1"), (4, "10.0.0.1")]
        .map(|(n, address)| (names[n].clone(), address.to_owned()));
    assert_eq!(found, expected);
    zone
}

#[tokio::test(flavor = "multi_thread")]
async fn moto_takes_records_and_forgets_them_when_it_is_killed() {
    let Some(shared) = testkit::route53() else { return };
    writes_and_reads_back(&shared.client()).await;
    let own = shared.private().await;
    let zone = writes_and_reads_back(&own.client()).await;
    own.server.kill().await;
    let gone = own.client().get_hosted_zone().id(&zone.id).send().await;
    assert!(gone.unwrap_err().code().is_none(), "nobody answers");
    own.server.start().await;
    let error = own.client().get_hosted_zone().id(&zone.id).send().await.unwrap_err();
    assert_eq!(error.code(), Some("NoSuchHostedZone"), "it keeps everything in memory");
    writes_and_reads_back(&own.client()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_strict_one_refuses_what_the_real_one_refuses() {
    let strict = Strict::start().await;
    let client = client(strict.endpoint());
    let zone = writes_and_reads_back(&client).await;
    let name = format!("x.{}", zone.name);
    let create = || change(ChangeAction::Create, &name, "10.0.0.1");
    send(&client, &zone, vec![create()]).await.unwrap();
    let other = change(ChangeAction::Create, &format!("y.{}", zone.name), "10.0.0.1");
    let refused = [
        vec![other, create()],
        vec![change(ChangeAction::Delete, &name, "10.0.0.9")],
        vec![change(ChangeAction::Delete, &format!("z.{}", zone.name), "10.0.0.1")],
    ];
    let before = addresses(&client, &zone).await;
    for batch in refused {
        assert_eq!(send(&client, &zone, batch).await, Err("InvalidChangeBatch".into()));
    }
    assert_eq!(addresses(&client, &zone).await, before, "a refused batch changes nothing");
    let error = client.delete_hosted_zone().id(&zone.id).send().await.unwrap_err();
    assert_eq!(error.code(), Some("HostedZoneNotEmpty"));
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_strict_one_a_change_is_pending_until_it_settles() {
    let strict = Strict::start().await;
    let client = client(strict.endpoint());
    let zone = zone(&client).await;
    let name = format!("x.{}", zone.name);
    let id = send(&client, &zone, vec![change(ChangeAction::Create, &name, "10.0.0.1")]).await;
    let id = id.unwrap();
    let status = async || {
        let change = client.get_change().id(&id).send().await.unwrap();
        change.change_info().unwrap().status().clone()
    };
    assert_eq!(status().await, ChangeStatus::Pending);
    strict.settle();
    assert_eq!(status().await, ChangeStatus::Insync);
    let (before, throttled) = (strict.requests(), 2);
    strict.throttle(throttled);
    assert_eq!(status().await, ChangeStatus::Insync, "the client tries again by itself");
    assert_eq!(strict.requests(), before + throttled + 1);
    assert_eq!(strict.records(), [(name, "A".into(), vec!["10.0.0.1".into()])]);
}
