//! Claims, fences, wake-ups, fairness, leases.

use std::collections::BTreeSet;
use std::time::Duration;

use kernel::change::{Edge, Outcome, Refusal, Work, Write};
use kernel::queue::{Claim, ClaimRequest, State};
use kernel::store::WorkFilter;
use kernel::{Change, Lane};
use testkit::stores::Fresh;

use crate::*;

on_every_store!(
    due_work_is_claimed_once,
    a_wake_up_during_work_is_not_lost,
    a_row_that_is_completed_and_woken_in_one_change_is_of_who_woke_it,
    a_worker_that_lost_its_lease_can_write_nothing,
    work_that_is_not_due_waits_and_the_store_says_until_when,
    one_tenants_ten_thousand_do_not_delay_anothers_one,
    work_of_those_without_an_organisation_has_its_turn_too,
    urgent_work_takes_slots_from_everyone_in_turn,
    urgent_work_goes_first_and_normal_work_leaves_room,
    paused_work_is_not_claimed_and_resumes,
    what_depends_on_a_change_is_woken_with_it,
    a_lease_has_one_holder_and_its_fence_rises,
    concurrent_claims_never_share_a_key,
    callers_whose_clocks_differ_agree_on_leases_and_due_times,
);

pub fn ask(slots: usize) -> ClaimRequest {
    let ttl = Duration::from_secs(10);
    ClaimRequest { worker: "w".into(), slots, slots_normal: slots, ttl }
}

async fn claim(store: &dyn Store, slots: usize) -> Vec<Claim> {
    store.claim(ask(slots)).await.unwrap().claims
}

fn complete(claim: &Claim, outcome: Outcome) -> Change {
    let work = Work::Complete { key: claim.key.clone(), fence: claim.fence, outcome };
    Change { work: Some(work), ..Change::default() }
}

async fn due_work_is_claimed_once(fresh: &Fresh) {
    let store = &*fresh.store;
    store
        .commit_all((0..5).map(|n| create(widget(&n.to_string(), "acme"))).collect(), NOW)
        .await
        .unwrap();
    let first = claim(store, 3).await;
    let second = claim(store, 10).await;
    assert_eq!((first.len(), second.len()), (3, 2));
    let all: BTreeSet<_> = first.iter().chain(&second).map(|claim| claim.key.clone()).collect();
    assert_eq!(all.len(), 5);
    assert!(claim(store, 10).await.is_empty());
    for one in first.iter().chain(&second) {
        commit(store, complete(one, Outcome::Done)).await.unwrap();
    }
    assert_eq!(store.work(&WorkFilter::default(), 10).await.unwrap(), []);
}

async fn a_wake_up_during_work_is_not_lost(fresh: &Fresh) {
    let store = &*fresh.store;
    commit(store, create(widget("a", "acme"))).await.unwrap();
    let mine = claim(store, 1).await.remove(0);
    commit(store, Change { wakes: vec![wake(&key("a"), "acme", NOW)], ..Change::default() })
        .await
        .unwrap();
    assert!(claim(store, 1).await.is_empty(), "not twice at once");
    commit(store, complete(&mine, Outcome::Done)).await.unwrap();
    let again = claim(store, 1).await;
    assert_eq!(again.len(), 1);
    assert!(again[0].fence > mine.fence);
}

async fn a_row_that_is_completed_and_woken_in_one_change_is_of_who_woke_it(fresh: &Fresh) {
    let store = &*fresh.store;
    commit(store, create(widget("a", "umbrella"))).await.unwrap();
    let done = complete(&claim(store, 1).await[0], Outcome::Done);
    let wakes = vec![wake(&key("a"), "acme", NOW)];
    commit(store, Change { wakes, ..done }).await.unwrap();
    assert_eq!(claim(store, 1).await[0].org, "acme");
}

async fn a_worker_that_lost_its_lease_can_write_nothing(fresh: &Fresh) {
    let store = &*fresh.store;
    fresh.set_clock(NOW).await;
    commit(store, create(widget("a", "acme"))).await.unwrap();
    let slow = claim(store, 1).await.remove(0);
    let held = Change {
        work: Some(Work::RenewLease {
            key: key("a"),
            fence: slow.fence,
            ttl: Duration::from_secs(20),
            note: None,
        }),
        ..Change::default()
    };
    commit(store, held.clone()).await.unwrap();
    fresh.set_clock(later(10_001)).await;
    assert!(claim(store, 1).await.is_empty(), "it was held longer");
    fresh.set_clock(later(20_001)).await;
    let quick = claim(store, 1).await.remove(0);
    assert_eq!(quick.attempt, 1, "silence counts as a failure");
    let lost = Err(Refusal::FenceLost("widget/a".into()));
    assert_eq!(commit(store, held).await, lost);
    let mut write = complete(&slow, Outcome::Done);
    write.write = Some(Write::transition(widget("a", "acme"), "ready"));
    assert_eq!(commit(store, write.clone()).await, lost);
    commit(store, complete(&quick, Outcome::Done)).await.unwrap();
    assert_eq!(commit(store, write.clone()).await, lost, "also when nobody is at it any more");
    commit(store, Change { wakes: vec![wake(&key("a"), "acme", NOW)], ..Change::default() })
        .await
        .unwrap();
    claim(store, 1).await.remove(0);
    assert_eq!(commit(store, write).await, lost, "no number is given twice, though the row is new");
    assert_eq!(store.get(&[key("a")]).await.unwrap()[0].revision, 1);
}

async fn work_that_is_not_due_waits_and_the_store_says_until_when(fresh: &Fresh) {
    let store = &*fresh.store;
    fresh.set_clock(NOW).await;
    commit(store, create(widget("a", "acme"))).await.unwrap();
    let mine = claim(store, 1).await.remove(0);
    let retry = Outcome::Retry { at: later(500), reason: "no answer".into() };
    commit(store, complete(&mine, retry)).await.unwrap();
    let claimed = store.claim(ask(1)).await.unwrap();
    assert_eq!((claimed.claims.len(), claimed.next_due), (0, Some(later(500))));
    let row =
        store.work(&WorkFilter { failing: true, ..Default::default() }, 1).await.unwrap().remove(0);
    assert_eq!((row.state, row.attempt, row.reason.as_str()), (State::Waiting, 1, "no answer"));
    fresh.set_clock(later(500)).await;
    let again = claim(store, 1).await.remove(0);
    assert_eq!(again.attempt, 1);
    commit(store, complete(&again, Outcome::Stopped { reason: "hopeless".into() })).await.unwrap();
    fresh.set_clock(later(1_000_000_000)).await;
    let claimed = store.claim(ask(1)).await.unwrap();
    assert_eq!((claimed.claims.len(), claimed.next_due), (0, None));
    let counts = store.work_counts().await.unwrap();
    assert_eq!((counts.len(), counts[0].state, counts[0].rows), (1, State::Stopped, 1));
}

async fn one_tenants_ten_thousand_do_not_delay_anothers_one(fresh: &Fresh) {
    let store = &*fresh.store;
    fresh.set_clock(NOW).await;
    for batch in 0..20 {
        let wakes = (0..500).map(|n| wake(&key(&format!("big{batch}-{n}")), "big", NOW)).collect();
        commit(store, Change { wakes, ..Change::default() }).await.unwrap();
    }
    fresh.set_clock(later(1)).await;
    let wakes =
        vec![wake(&key("small"), "small", later(1)), wake(&key("tiny"), "a-tiny-one", later(1))];
    store.commit_all(vec![Change { wakes, ..Change::default() }], later(1)).await.unwrap();
    let first = claim(store, 8).await;
    let orgs: BTreeSet<&str> = first.iter().map(|claim| claim.org.as_str()).collect();
    assert_eq!((first.len(), orgs.len()), (8, 3), "all three in the first eight: {orgs:?}");
    let second = claim(store, 8).await;
    assert_eq!(second.len(), 8, "a single organisation gets everything");
}

async fn work_of_those_without_an_organisation_has_its_turn_too(fresh: &Fresh) {
    let store = &*fresh.store;
    let orgs = ["", "acme", "umbrella"];
    let wakes = (0..30).map(|n| wake(&key(&n.to_string()), orgs[n % 3], NOW)).collect();
    commit(store, Change { wakes, ..Change::default() }).await.unwrap();
    for slots in [1, 1, 1, 2, 1, 3, 3, 4, 2] {
        let mut all = claim(store, slots).await;
        assert_eq!(all.len(), slots);
        all.dedup_by_key(|claim| claim.org.clone());
        assert!(all.len() >= slots.min(3), "{slots} slots went to {all:?}");
    }
    let rest = claim(store, 100).await;
    assert_eq!(rest.len(), 12);
    let left = orgs.map(|org| rest.iter().filter(|claim| claim.org == org).count());
    assert!(left.iter().all(|left| (3..=5).contains(left)), "all had as many turns: {left:?}");
}

async fn urgent_work_takes_slots_from_everyone_in_turn(fresh: &Fresh) {
    let store = &*fresh.store;
    let orgs = ["acme", "initech", "umbrella"];
    let wakes = (0..15).map(|n| wake(&key(&n.to_string()), orgs[n % 3], NOW)).collect();
    commit(store, Change { wakes, ..Change::default() }).await.unwrap();
    let mut served = BTreeSet::new();
    for round in 0..3 {
        let urgent = (0..3).map(|n| Wake {
            lane: Lane::Urgent,
            ..wake(&key(&format!("urgent-{round}-{n}")), "acme", NOW)
        });
        commit(store, Change { wakes: urgent.collect(), ..Change::default() }).await.unwrap();
        let claims = claim(store, 4).await;
        let normal = claims.into_iter().filter(|claim| claim.lane == Lane::Normal);
        served.extend(normal.map(|claim| claim.org));
    }
    assert_eq!(served.len(), 3, "one slot was left each time, for another each time: {served:?}");
}

async fn urgent_work_goes_first_and_normal_work_leaves_room(fresh: &Fresh) {
    let store = &*fresh.store;
    let mut wakes: Vec<_> = (0..6).map(|n| wake(&key(&n.to_string()), "acme", NOW)).collect();
    wakes[5].lane = Lane::Urgent;
    commit(store, Change { wakes, ..Change::default() }).await.unwrap();
    let claims = store.claim(ClaimRequest { slots_normal: 2, ..ask(4) }).await.unwrap().claims;
    assert_eq!(claims.len(), 3, "one urgent, and two normal at the most");
    assert_eq!((claims[0].lane, claims[0].key.clone()), (Lane::Urgent, key("5")));
}

async fn paused_work_is_not_claimed_and_resumes(fresh: &Fresh) {
    let store = &*fresh.store;
    commit(store, create(widget("a", "acme"))).await.unwrap();
    let work = |work| Change { work: Some(work), ..Change::default() };
    commit(
        store,
        work(Work::Pause { key: key("a"), org: "acme".into(), reason: "by hand".into() }),
    )
    .await
    .unwrap();
    assert!(claim(store, 1).await.is_empty());
    commit(store, Change { wakes: vec![wake(&key("a"), "acme", NOW)], ..Change::default() })
        .await
        .unwrap();
    assert!(claim(store, 1).await.is_empty());
    commit(store, work(Work::Resume { key: key("a") })).await.unwrap();
    assert_eq!(claim(store, 1).await.len(), 1);
    let nobody = work(Work::Resume { key: key("nobody") });
    assert_eq!(commit(store, nobody).await, Err(Refusal::Missing(key("nobody"))));
}

async fn what_depends_on_a_change_is_woken_with_it(fresh: &Fresh) {
    let store = &*fresh.store;
    fresh.set_clock(NOW).await;
    let child = Change {
        depends_on: Some(vec![Edge::new(key("other"), "secret-of"), key("base").into()]),
        wakes: vec![],
        ..create(widget("child", "acme"))
    };
    let base = Change { wakes: vec![], ..create(widget("base", "umbrella")) };
    store.commit_all(vec![base, child], NOW).await.unwrap();
    let to = [Edge::from(key("base")), Edge::new(key("other"), "secret-of")];
    assert_eq!(store.dependencies(&key("child")).await.unwrap(), to);
    assert_eq!(store.dependents(&key("base")).await.unwrap(), [key("child").into()]);
    let secret = [Edge::new(key("child"), "secret-of")];
    assert_eq!(store.dependents(&key("other")).await.unwrap(), secret);
    assert!(claim(store, 9).await.is_empty());
    let ready = Change {
        write: Some(Write::transition(widget("base", "umbrella"), "ready")),
        wake_dependents: true,
        ..Change::default()
    };
    commit(store, ready).await.unwrap();
    let woken = claim(store, 9).await;
    assert_eq!(
        (woken.len(), woken[0].key.clone(), woken[0].org.as_str()),
        (1, key("child"), "acme")
    );
    let gone = Change {
        write: Some(Write::update(widget("child", "acme"), "updated")),
        wake_dependencies: true,
        ..Change::default()
    };
    commit(store, gone).await.unwrap();
    let woken: Vec<_> =
        claim(store, 9).await.into_iter().map(|claim| (claim.key, claim.org)).collect();
    assert!(woken.contains(&(key("base"), "umbrella".into())), "{woken:?}");
    let mut child = widget("child", "acme");
    child.revision = 2;
    let alone = Change {
        write: Some(Write::update(child, "updated")),
        depends_on: Some(vec![]),
        wake_dependencies: true,
        ..Change::default()
    };
    commit(store, alone).await.unwrap();
    let filter = WorkFilter { key: Some(key("other")), ..Default::default() };
    let row = store.work(&filter, 1).await.unwrap().remove(0);
    assert_eq!(row.woken, Some(NOW), "also those that it lets go of");
    assert_eq!(store.dependents(&key("base")).await.unwrap(), []);
}

async fn a_lease_has_one_holder_and_its_fence_rises(fresh: &Fresh) {
    let store = &*fresh.store;
    fresh.set_clock(NOW).await;
    let lease = async |holder, ttl_ms| {
        store.lease("relay", holder, Duration::from_millis(ttl_ms)).await.unwrap()
    };
    let mine = lease("a", 100).await.expect("nobody has it");
    fresh.set_clock(later(50)).await;
    assert_eq!(lease("b", 100).await, None);
    let kept = lease("a", 150).await.expect("its own");
    assert_eq!(kept.until, later(200));
    assert_eq!(kept.fence, mine.fence);
    let needs = |fence| {
        let fence = kernel::change::LeaseFence { name: "relay".into(), fence };
        Change { leases: vec![fence], ..Change::default() }
    };
    assert!(commit(store, needs(mine.fence)).await.is_ok());
    fresh.set_clock(later(201)).await;
    let taken = lease("b", 99).await.expect("it ran out");
    assert!(taken.fence > kept.fence);
    assert_eq!(commit(store, needs(kept.fence)).await, Err(Refusal::FenceLost("relay".into())));
    store.unlease("relay", taken.fence).await.unwrap();
    assert!(lease("a", 99).await.is_some());
}

async fn concurrent_claims_never_share_a_key(fresh: &Fresh) {
    let wakes = (0..400).map(|n| wake(&key(&n.to_string()), ["a", "b", "c"][n % 3], NOW)).collect();
    commit(&*fresh.store, Change { wakes, ..Change::default() }).await.unwrap();
    let mut stores = vec![fresh.store.clone()];
    stores.extend(fresh.replica().await);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8 {
        let store = stores[n % stores.len()].clone();
        tasks.spawn(async move {
            let mut mine = Vec::new();
            loop {
                let claims = store.claim(ask(7)).await.unwrap().claims;
                // Rows that another claim holds at this moment are skipped: look again.
                if claims.is_empty()
                    && store
                        .work(&WorkFilter { state: Some(State::Ready), ..Default::default() }, 1)
                        .await
                        .unwrap()
                        .is_empty()
                {
                    return mine;
                }
                mine.extend(claims);
            }
        });
    }
    let all: Vec<Claim> = tasks.join_all().await.into_iter().flatten().collect();
    let keys: BTreeSet<_> = all.iter().map(|claim| claim.key.clone()).collect();
    let fences: BTreeSet<_> = all.iter().map(|claim| claim.fence).collect();
    assert_eq!((all.len(), keys.len(), fences.len()), (400, 400, 400));
}

/// Replicas whose clocks are minutes ahead of the store's, or behind it.
async fn callers_whose_clocks_differ_agree_on_leases_and_due_times(fresh: &Fresh) {
    let other = fresh.replica().await.unwrap_or_else(|| fresh.store.clone());
    let (one, other) = (&*fresh.store, &*other);
    let now = kernel::Ambient::system().now();
    let (ahead, behind) = (now.plus(Duration::from_secs(600)), Timestamp(now.0 - 600_000));
    for (id, caller) in [("ahead", ahead), ("behind", behind)] {
        let due = |id: &str, at: Timestamp| {
            let wakes = vec![wake(&key(id), "acme", at)];
            Change { wakes, ..Change::default() }
        };
        let later = format!("{id}-later");
        let changes = vec![due(id, caller), due(&later, caller.plus(Duration::from_secs(300)))];
        one.commit_all(changes, caller).await.unwrap();
        let claimed = other.claim(ask(9)).await.unwrap();
        let keys: Vec<_> = claimed.claims.iter().map(|claim| claim.key.clone()).collect();
        assert_eq!(keys, [key(id)], "what is due now, and only that");
        let next = claimed.now.until(claimed.next_due.unwrap());
        assert!(next <= Duration::from_secs(10), "the lease that was just given: {next:?}");
        let claim = &claimed.claims[0];
        let (fence, ttl) = (claim.fence, Duration::from_secs(60));
        let renew = Work::RenewLease { key: key(id), fence, ttl, note: None };
        let renew = Change { work: Some(renew), ..Change::default() };
        one.commit_all(vec![renew], caller).await.unwrap().remove(0).unwrap();
        assert_eq!(one.claim(ask(9)).await.unwrap().claims, [], "it is held");
        let row = one.work(&WorkFilter { key: Some(key(id)), ..Default::default() }, 1).await;
        let held = claimed.now.until(row.unwrap()[0].due);
        assert!((60..70).contains(&held.as_secs()), "by the store's clock: {held:?}");
        let retry = Outcome::Retry { at: caller.plus(ttl), reason: "no answer".into() };
        one.commit_all(vec![complete(claim, retry)], caller).await.unwrap().remove(0).unwrap();
        let row = one.work(&WorkFilter { key: Some(key(id)), ..Default::default() }, 1).await;
        let waits = claimed.now.until(row.unwrap()[0].due);
        assert!((60..70).contains(&waits.as_secs()), "by the store's clock: {waits:?}");
    }
    let lease = one.lease("relay", "one", Duration::from_secs(60)).await.unwrap().unwrap();
    assert_eq!(other.lease("relay", "other", Duration::from_secs(60)).await.unwrap(), None);
    assert!((now.0..now.0 + 120_000).contains(&lease.until.0), "by the store's clock");
}
