//! What all instances hold, from the store itself, compared with every counter.

use std::collections::{BTreeMap, BTreeSet};

use fleet::model::instance::{Instance, Phase, counters};
use kernel::{Key, ObjectQuery, Store};
use serde_json::Value;

use crate::stage::{KAFKA, Stage};

/// A Kafka as it is stored.
pub async fn instance(stage: &Stage, id: &str) -> Instance {
    let object = stage.store.object(&Key::new("kafka", id)).await.unwrap().unwrap();
    Instance::from_object(&object).unwrap()
}

pub async fn delete(stage: &Stage, id: &str) {
    let path = KAFKA.path(&format!("/{id}?async=true"));
    let response = stage.call("alice", "DELETE", &path, &Value::Null).await;
    assert_eq!(response.status, 202, "{}", response.text);
}

/// Every instance of a kind, and whether it is deleted.
pub async fn instances(store: &dyn Store, kind: &str) -> Vec<(Instance, bool)> {
    let mut query = ObjectQuery {
        kind: Some(kind.into()),
        deleted: true,
        limit: 500,
        ..ObjectQuery::default()
    };
    let mut all = Vec::new();
    loop {
        let page = store.find(&query).await.unwrap();
        let read = |object: &kernel::Object| {
            (Instance::from_object(object).unwrap(), object.deleted_at.is_some())
        };
        all.extend(page.objects.iter().map(read));
        query.after = page.next;
        if query.after.is_none() {
            return all;
        }
    }
}

pub async fn live(store: &dyn Store, kind: &str) -> Vec<Instance> {
    let all = instances(store, kind).await.into_iter();
    all.filter(|(_, gone)| !gone).map(|(instance, _)| instance).collect()
}

/// Checks that every counter that an instance ever held is at what live instances hold, and that no two
/// of them share a name or a host.
pub async fn check(store: &dyn Store, kinds: &[&str]) {
    let mut held = BTreeMap::<String, i64>::new();
    let (mut names, mut hosts, mut with_host) = (BTreeSet::new(), BTreeSet::new(), 0);
    for kind in kinds {
        for (instance, gone) in instances(store, kind).await {
            for counter in counters(&instance) {
                let amount = amount(&instance, &counter);
                *held.entry(counter).or_default() += if gone { 0 } else { amount };
            }
            if gone {
                continue;
            }
            let Instance { kind, org, name, .. } = &instance;
            let new = names.insert((kind.clone(), org.clone(), name.clone()));
            assert!(new, "two live instances are called {name}");
            if !instance.status.host.is_empty() {
                with_host += 1;
                hosts.insert(instance.status.host.clone());
            }
        }
    }
    assert_eq!(hosts.len(), with_host, "two live instances have one host");
    for (counter, held) in held {
        let stored = store.counter(&counter).await.unwrap();
        // A region without a limit is not counted.
        if stored.is_none() && counter.starts_with("fleet/region/") {
            continue;
        }
        let used = stored.map_or(0, |counter| counter.used);
        assert_eq!(used, held, "{counter}: {used} are used, and live instances hold {held}");
    }
}

fn amount(instance: &Instance, counter: &str) -> i64 {
    match counter.split('/').nth(1) {
        Some("name" | "trial") => 1,
        Some("capacity") if instance.phase == Phase::Deleting => 0,
        _ => instance.spec.units,
    }
}
