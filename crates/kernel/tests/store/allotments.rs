//! Counters with limits, and names, that no race can exceed.

use kernel::Change;
use kernel::change::{Refusal, Release, Take};
use testkit::stores::Fresh;

use crate::*;

on_every_store!(
    a_counter_never_exceeds_its_limit_and_uses_it_all,
    releasing_twice_releases_once,
    taking_again_replaces_what_was_taken,
    all_takes_of_a_change_must_fit_together,
    a_name_is_free_again_after_its_holder_let_go,
);

fn take(counter: &str, holder: &str, amount: i64, limit: i64) -> Take {
    Take { counter: counter.into(), holder: holder.into(), amount, limit }
}

fn takes(takes: Vec<Take>) -> Change {
    Change { takes, ..Change::default() }
}

fn release(counter: &str, holder: &str) -> Change {
    let release = Release { counter: counter.into(), holder: holder.into() };
    Change { releases: vec![release], ..Change::default() }
}

async fn used(fresh: &Fresh, counter: &str) -> i64 {
    fresh.store.counter(counter).await.unwrap().map_or(0, |counter| counter.used)
}

async fn a_counter_never_exceeds_its_limit_and_uses_it_all(fresh: &Fresh) {
    let mut stores = vec![fresh.store.clone()];
    stores.extend(fresh.replica().await);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..60 {
        let store = stores[n % stores.len()].clone();
        tasks.spawn(async move {
            let change = Change {
                takes: vec![
                    take("quota", &n.to_string(), 1, 10),
                    take("name/x", &n.to_string(), 1, 20),
                ],
                ..Change::default()
            };
            let mine = Change {
                takes: vec![take(&format!("name/{}", n % 30), &n.to_string(), 1, 1)],
                ..Change::default()
            };
            let verdicts = store.commit_all(vec![change, mine], NOW).await.unwrap();
            (verdicts[0].is_ok(), verdicts[1].is_ok())
        });
    }
    let all = tasks.join_all().await;
    assert_eq!(
        all.iter().filter(|(quota, _)| *quota).count(),
        10,
        "never one over, never one too few"
    );
    assert_eq!(all.iter().filter(|(_, name)| *name).count(), 30, "each name once");
    assert_eq!((used(fresh, "quota").await, used(fresh, "name/x").await), (10, 10));
}

async fn releasing_twice_releases_once(fresh: &Fresh) {
    for holder in ["a", "b"] {
        commit(&*fresh.store, takes(vec![take("quota", holder, 2, 4)])).await.unwrap();
    }
    for _ in 0..2 {
        commit(&*fresh.store, release("quota", "a")).await.unwrap();
        assert_eq!(used(fresh, "quota").await, 2);
    }
    let both = fresh
        .store
        .commit_all(vec![release("quota", "b"), release("quota", "b")], NOW)
        .await
        .unwrap();
    assert!(both.iter().all(|verdict| verdict.is_ok()));
    assert_eq!(fresh.store.counter("quota").await.unwrap(), None);
}

async fn taking_again_replaces_what_was_taken(fresh: &Fresh) {
    for amount in [3, 3, 5, 1] {
        commit(&*fresh.store, takes(vec![take("quota", "a", amount, 5)])).await.unwrap();
        assert_eq!(used(fresh, "quota").await, amount);
    }
    let refused = commit(&*fresh.store, takes(vec![take("quota", "a", 6, 5)])).await;
    assert_eq!(
        refused,
        Err(Refusal::Limit { counter: "quota".into(), used: 1, limit: 5, asked: 5 })
    );
    let lower = commit(&*fresh.store, takes(vec![take("quota", "a", 1, 0)])).await;
    assert!(lower.is_ok(), "a limit that sank refuses only more");
}

async fn all_takes_of_a_change_must_fit_together(fresh: &Fresh) {
    let change = takes(vec![take("quota", "a", 3, 5), take("quota", "b", 3, 5)]);
    assert!(commit(&*fresh.store, change).await.is_err());
    assert_eq!(used(fresh, "quota").await, 0);
    let change = takes(vec![take("one", "a", 1, 1), take("two", "a", 1, 0)]);
    assert!(commit(&*fresh.store, change).await.is_err());
    assert_eq!(used(fresh, "one").await, 0, "all or nothing");
    commit(&*fresh.store, takes(vec![take("one", "a", 1, 1)])).await.unwrap();
    let mut swap = takes(vec![take("one", "b", 1, 1)]);
    swap.releases = release("one", "a").releases;
    assert!(commit(&*fresh.store, swap).await.is_ok(), "what one change gives back it can give on");
}

async fn a_name_is_free_again_after_its_holder_let_go(fresh: &Fresh) {
    let name = |holder: &str| takes(vec![take("name/widget/acme/blue", holder, 1, 1)]);
    commit(&*fresh.store, name("a")).await.unwrap();
    assert!(matches!(commit(&*fresh.store, name("b")).await, Err(Refusal::Limit { .. })));
    commit(&*fresh.store, release("name/widget/acme/blue", "a")).await.unwrap();
    commit(&*fresh.store, name("b")).await.unwrap();
}
