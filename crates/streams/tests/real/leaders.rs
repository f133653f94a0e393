//! Two replicas: one acts, the other takes over.

use std::time::Duration;

use crate::stage::{Stage, until};

#[tokio::test(flavor = "multi_thread")]
async fn of_two_replicas_one_acts_and_the_other_follows_when_it_leaves() {
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
    assert_eq!(second.counting.asked(), Vec::<String>::new());
    assert_eq!(first.counting.of("create job"), 20, "{:#?}", first.counting.asked());
    assert_eq!(first.counting.of("create request"), 10);
    first.stop().await;
    until("the second acts", async || second.operator.is_leading()).await;
    stage.stream("later", stage.spec("hang", "ok")).await;
    stage.until_phase("later", "Running").await;
    let asked = second.counting.asked();
    // Classes are shared with the other tests.
    let about = |asked: &&String| !asked.contains("later") && !asked.contains("class");
    let others: Vec<_> = asked.iter().filter(about).collect();
    assert!(others.is_empty(), "{others:#?}");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_dies_without_a_word_is_followed_when_its_time_is_over() {
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
async fn one_that_is_cut_off_stops_before_the_other_begins() {
    let Some(stage) = Stage::new().await else { return };
    let server = crate::stage::server().await.unwrap();
    let proxy = testkit::chaos::Proxy::to(server.address()).await;
    let first = stage.operator_as(&stage.access.via(proxy.address())).await;
    first.until_acting().await;
    let second = stage.operator().await;
    until("the second is ready", async || second.operator.is_ready()).await;
    proxy.silence();
    // At no time do both say that they may act.
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
