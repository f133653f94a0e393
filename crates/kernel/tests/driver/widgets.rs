//! The worked example end to end: what depends on something waits for it, and goes before it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kernel::log::EventFilter;
use kernel::{Change, Key, Object};
use testkit::on_every_store;
use testkit::stores::Fresh;
use testkit::widgets::decide;
use testkit::widgets::model::{self, KIND};
use testkit::widgets::{Directory, Request, Spec, WidgetWorker};

use crate::stage::{Stage, config, eventually};

on_every_store!(widgets_become_ready_in_order_and_are_deleted_in_reverse);

/// A diamond with a tail: each with what it depends on.
const GRAPH: [(&str, &[&str]); 5] = [
    ("base", &[]),
    ("left", &["base"]),
    ("right", &["base"]),
    ("top", &["left", "right"]),
    ("tail", &["top", "base"]),
];

fn key(id: &str) -> Key {
    Key::new(KIND, id)
}

async fn widget(stage: &Stage<'_>, id: &str) -> Object {
    stage.store.get(&[key(id)]).await.unwrap().remove(0)
}

/// The place in the log of each widget's event of this kind.
async fn places(stage: &Stage<'_>, what: &str) -> BTreeMap<String, i64> {
    let events = stage.store.events(0, &EventFilter::default(), 1000).await.unwrap();
    let kind = format!("mainstay.widget.{what}");
    let these = events.into_iter().filter(|event| event.kind == kind);
    let places: Vec<_> = these.map(|event| (event.subject.id().to_owned(), event.seq)).collect();
    let map: BTreeMap<_, _> = places.iter().cloned().collect();
    assert_eq!(map.len(), places.len(), "each {what} once: {places:?}");
    map
}

async fn widgets_become_ready_in_order_and_are_deleted_in_reverse(fresh: &Fresh) {
    let stage = Stage::on(fresh).await;
    let dir = tempfile::tempdir().unwrap();
    let workshop = Arc::new(Directory(dir.path().to_owned()));
    // Hours: no lost wake-up heals by itself.
    let worker = Arc::new(WidgetWorker { workshop, recheck: Duration::from_secs(7200) });
    for (id, depends_on) in GRAPH {
        let depends_on: Vec<Key> = depends_on.iter().map(|id| key(id)).collect();
        let request = Request {
            id: id.into(),
            org: "acme".into(),
            owner: "alice".into(),
            name: id.into(),
            depends_on,
            ..Request::default()
        };
        let dependencies = stage.store.get(&request.depends_on).await.unwrap();
        let (change, _) = decide::create(request, &dependencies, 100, stage.now()).unwrap();
        stage.commit(change).await;
    }
    let _driver = stage.driver("d", worker, config(16));
    eventually("all are ready", async || places(&stage, "ready").await.len() == GRAPH.len()).await;
    let ready = places(&stage, "ready").await;
    for (id, depends_on) in GRAPH {
        assert!(depends_on.iter().all(|on| ready[*on] < ready[id]), "{id} in {ready:?}");
        assert!(dir.path().join(id).exists(), "{id} was built");
    }
    // From the bottom up: each has to wait for those above it.
    for (id, _) in GRAPH {
        delete(&stage, id).await;
    }
    eventually("all are gone", async || places(&stage, "deleted").await.len() == GRAPH.len()).await;
    let gone = places(&stage, "deleted").await;
    for (id, depends_on) in GRAPH {
        assert!(depends_on.iter().all(|on| gone[*on] > gone[id]), "{id} in {gone:?}");
        assert!(!dir.path().join(id).exists(), "{id} was demolished");
    }
    assert_eq!(stage.store.counter("widgets/acme").await.unwrap(), None, "all is given back");
    eventually("the queue is empty", async || stage.store.work_counts().await.unwrap().is_empty())
        .await;
}

async fn delete(stage: &Stage<'_>, id: &str) {
    loop {
        let object = widget(stage, id).await;
        let spec = Spec { deleting: true, ..model::spec(&object).unwrap() };
        let change: Change = decide::respec(&object, "alice", &spec, stage.now()).unwrap();
        let verdicts = stage.store.commit_all(vec![change], stage.now()).await.unwrap();
        if verdicts[0].is_ok() {
            return;
        }
    }
}
