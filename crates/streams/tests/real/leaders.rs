//! Two replicas: one leads, the other takes over.

use std::time::Duration;

use crate::stage::{Stage, until};

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_replicas_leads_and_the_other_takes_over_when_it_stops() {
    let Some(stage) = Stage::new().await else { return };
    let first = stage.operator().await;
    first.until_acting().await;
    let second = stage.operator().await;
    until("the second is ready", async || second.operator.is_ready()).await;
    for i in 0..10 {
        stage.stream(&format!("s{i}"), stage.spec("hang", "ok")).await;
    }
    for i in 0..10 {
        stage.until_phase(&format!("s{i}"), "Running").await;
    }
    assert!(!second.operator.is_leading());
    assert_eq!(second.counting.requests(), Vec::<String>::new());
    assert_eq!(first.counting.of("create job"), 20, "{:#?}", first.counting.requests());
    assert_eq!(first.counting.of("create request"), 10);
    first.stop().await;
    until("the second acts", async || second.operator.is_leading()).await;
    stage.stream("later", stage.spec("hang", "ok")).await;
    stage.until_phase("later", "Running").await;
    let requests = second.counting.requests();
    // Classes are shared with the other tests.
    let about = |requests: &&String| !requests.contains("later") && !requests.contains("class");
    let others: Vec<_> = requests.iter().filter(about).collect();
    assert!(others.is_empty(), "{others:#?}");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_replaced_after_its_lease_expires() {
    let Some(stage) = Stage::new().await else { return };
    let first = stage.operator().await;
    first.until_acting().await;
    let second = stage.operator().await;
    first.kill();
    until("the second acts", async || second.operator.is_leading()).await;
    stage.stream("s1", stage.spec("hang", "ok")).await;
    stage.until_phase("s1", "Running").await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_leader_stops_before_the_other_starts() {
    let Some(stage) = Stage::new().await else { return };
    let server = crate::stage::server().await.unwrap();
    let proxy = testkit::chaos::Proxy::to(server.address()).await;
    let first = stage.operator_as(&stage.access.via(proxy.address())).await;
    first.until_acting().await;
    let second = stage.operator().await;
    until("the second is ready", async || second.operator.is_ready()).await;
    proxy.silence();
    // There are never two leaders.
    let both = async || first.operator.is_leading() && second.operator.is_leading();
    until("the second acts", async || {
        assert!(!both().await, "both act");
        second.operator.is_leading()
    })
    .await;
    assert!(!first.operator.is_leading());
    proxy.mend();
    stage.stream("s1", stage.spec("hang", "ok")).await;
    stage.until_phase("s1", "Running").await;
    tokio::time::timeout(Duration::from_secs(60), first.stop()).await.unwrap();
    second.stop().await;
}
