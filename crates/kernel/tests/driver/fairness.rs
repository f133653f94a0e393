//! Who comes first: everyone in turn, the urgent before the rest, and no slot idle while work waits.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kernel::change::Write;
use kernel::driver::{Config, Requeue};
use kernel::store::WorkFilter;
use kernel::{Change, Key, Lane};
use testkit::on_every_store;
use testkit::stores::Fresh;
use tokio::sync::Semaphore;

use crate::handover::with_time;
use crate::stage::*;

on_every_store!(
    one_tenants_thousands_do_not_delay_anothers_one,
    urgent_work_finds_a_free_slot_however_much_normal_work_there_is,
    a_slot_that_becomes_free_is_used_at_once,
    very_many_dependents_are_woken_in_pages_also_over_a_crash,
);

const MANY: usize = 5000;

async fn one_tenants_thousands_do_not_delay_anothers_one(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    let thing = |org: &str, id: &str| stage.creation(stage.object(KIND, id, org), Lane::Normal);
    for batch in 0..10 {
        let ids = (0..MANY / 10).map(|n| format!("big-{batch}-{n}"));
        let changes: Vec<Change> = ids.map(|id| thing("big", &id)).collect();
        let verdicts = stage.store.commit_all(changes, stage.now()).await.unwrap();
        assert!(verdicts.iter().all(Result::is_ok));
    }
    // Due after all of theirs.
    stage.pass(Duration::from_millis(1)).await;
    stage.create_in("small", "first", Lane::Normal).await;
    let (seen, gate): (Arc<Seen>, _) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let open = gate.clone();
    let worker = player(&seen, move |_| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok((Change::default(), Requeue::Never))
        }
        .boxed()
    });
    let slots = 8;
    let _driver = stage.driver("d", worker, config(slots));
    seen.delivery(slots).await;
    assert!(seen.begun().contains(&key("first")), "among the first: {:?}", seen.begun());
    // No attempt proceeds until the gate opens, so the next one was claimed after this.
    stage.create_in("small", "second", Lane::Normal).await;
    open.add_permits(3 * slots);
    seen.delivery(3 * slots).await;
    let begun = seen.begun();
    let place = begun.iter().position(|seen| *seen == key("second"));
    assert!(place.is_some_and(|place| place < 3 * slots), "{place:?} of {}", begun.len());
    let theirs = |seen: &&Key| seen.id().starts_with("big");
    assert!(
        begun.iter().filter(theirs).count() >= 2 * slots,
        "the remaining slots go to the others"
    );
}

async fn urgent_work_finds_a_free_slot_however_much_normal_work_there_is(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    for n in 0..10 {
        stage.create(&n.to_string()).await;
    }
    let (seen, gate): (Arc<Seen>, _) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let open = gate.clone();
    let worker = player(&seen, move |attempt| {
        let (gate, urgent) = (gate.clone(), attempt.object.key.id().starts_with("urgent"));
        async move {
            if !urgent {
                gate.acquire().await.unwrap().forget();
            }
            Ok((Change::default(), Requeue::Never))
        }
        .boxed()
    });
    let config = Config { slots: 4, slots_urgent: 2, ..config(4) };
    let _driver = stage.driver("d", worker, config);
    seen.delivery(2).await;
    for n in 0..5 {
        let id = format!("urgent-{n}");
        stage.create_in("acme", &id, Lane::Urgent).await;
        stage.gone(&key(&id)).await;
        assert_eq!((seen.count(), seen.running_count()), (3 + n, 2), "no normal one took its slot");
    }
    open.add_permits(100);
    seen.delivery(15).await;
}

async fn a_slot_that_becomes_free_is_used_at_once(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    for n in 0..60 {
        stage.create(&n.to_string()).await;
    }
    let seen: Arc<Seen> = Arc::default();
    let worker = player(&seen, |_| async { Ok((Change::default(), Requeue::Never)) }.boxed());
    let config = Config { slots: 4, slots_urgent: 2, ..config(4) };
    let _driver = stage.driver("d", worker, config);
    seen.delivery(60).await;
}

async fn very_many_dependents_are_woken_in_pages_also_over_a_crash(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    stage.create("base").await;
    let dependents = 1200;
    for batch in 0..3 {
        let ids = (0..dependents / 3).map(|n| format!("d-{batch}-{n}"));
        let changes = ids.map(|id| Change {
            depends_on: Some(vec![key("base").into()]),
            wakes: Vec::new(),
            ..stage.creation(stage.object(KIND, &id, "acme"), Lane::Normal)
        });
        let verdicts = stage.store.commit_all(changes.collect(), stage.now()).await.unwrap();
        assert!(verdicts.iter().all(Result::is_ok));
    }
    let seen: Arc<Seen> = Arc::default();
    let worker = player(&seen, |_| async { Ok((Change::default(), Requeue::Never)) }.boxed());
    let base = stage.get("base").await;
    let write = Some(Write::transition(base, "ready"));
    stage.commit(Change { write, wake_dependents: true, ..Change::default() }).await;
    let rows = stage.store.work(&WorkFilter::default(), 10).await.unwrap();
    let keys: Vec<String> = rows.iter().map(|row| row.key.to_string()).collect();
    assert_eq!(keys.len(), 2, "the commit writes no row per dependent: {keys:?}");
    assert!(keys.contains(&"dependents/thing:base".to_owned()), "{keys:?}");
    let first = stage.driver("first life", worker.clone(), config(4));
    seen.delivery(10).await;
    drop(first);
    eventually("it is dead", async || Arc::strong_count(&worker) == 1).await;
    stage.pass(Duration::from_secs(15)).await;
    let _second = stage.driver("second life", worker, config(16));
    let all = async || {
        let begun: std::collections::BTreeSet<Key> = seen.begun().into_iter().collect();
        begun.len() == dependents + 1
    };
    with_time(&stage, &seen, "all were woken", all).await;
    eventually("nothing is left", async || stage.store.work_counts().await.unwrap().is_empty())
        .await;
}

#[test]
fn a_configuration_that_would_do_no_work_is_refused() {
    let check = |slots, slots_urgent, lease_s| {
        let config = Config { slots, slots_urgent, lease_s, ..Config::default() };
        config.check().map_err(|error| error.to_string())
    };
    assert_eq!(check(4, 3, 1), Ok(()));
    assert!(check(4, 4, 1).unwrap_err().starts_with("driver.slots_urgent: must be less"));
    assert!(check(0, 0, 1).is_err());
    assert!(check(4, 3, 0).unwrap_err().starts_with("driver.lease_s: must be"));
}
