//! The logs say all that was written: replayed into an empty store, they make equal tables.

use kernel::Ambient;
use kernel::blob::Blobs;
use kernel::change::{Cause, CommandRecord, CommandReply, Edge, Release, Take};
use kernel::log::{AuditFilter, EventFilter};
use kernel::{Json, ObjectQuery};
use testkit::replay::replay;
use testkit::stores::{self, Fresh};

use crate::*;

on_every_store!(a_store_can_be_made_again_from_its_logs);

async fn a_store_can_be_made_again_from_its_logs(fresh: &Fresh) {
    let store = &*fresh.store;
    write(store).await;
    let copies = [stores::memory().await, stores::sqlite().await, stores::postgres().await];
    for copy in copies.into_iter().flatten() {
        let copy = &*copy.store;
        replay(store, copy).await.unwrap();
        let all = ObjectQuery { deleted: true, limit: 100, ..ObjectQuery::default() };
        let objects = store.find(&all).await.unwrap().objects;
        assert_eq!(copy.find(&all).await.unwrap().objects, objects);
        assert_eq!(objects.len(), 3);
        for object in &objects {
            let key = &object.key;
            assert_eq!(
                copy.dependencies(key).await.unwrap(),
                store.dependencies(key).await.unwrap()
            );
            assert_eq!(copy.blobs(key).await.unwrap(), store.blobs(key).await.unwrap());
        }
        for counter in ["quota", "name"] {
            assert_eq!(copy.counter(counter).await.unwrap(), store.counter(counter).await.unwrap());
        }
        for id in ["create", "none"] {
            assert_eq!(copy.command(id).await.unwrap(), store.command(id).await.unwrap());
        }
        let events = EventFilter::default();
        assert_eq!(
            copy.events(0, &events, 100).await.unwrap(),
            store.events(0, &events, 100).await.unwrap()
        );
        let audit = AuditFilter::default();
        assert_eq!(copy.audit(&audit, 100).await.unwrap(), store.audit(&audit, 100).await.unwrap());
        assert_eq!(copy.head().await.unwrap(), store.head().await.unwrap());
        let row = kernel::store::WorkFilter { key: Some(key("b")), ..Default::default() };
        let paused = copy.work(&row, 1).await.unwrap().pop().unwrap();
        assert!(paused.paused && paused.reason == "a reason", "{paused:?}");
    }
}

/// Something of everything that a change can write.
async fn write(store: &dyn Store) {
    let cause = |id: &str| Some(Cause { command: Some(id.into()), trace: None });
    let take = |counter: &str, holder: &str| Take {
        counter: counter.into(),
        holder: holder.into(),
        amount: 2,
        limit: 10,
    };
    let command = CommandRecord {
        id: "create".into(),
        digest: "d".into(),
        reply: CommandReply { status: 202, body: Json::encode(&"done") },
        subject: Some(Key::new("widget", "a")),
    };
    let ok = async |change: Change| commit(store, change).await.unwrap();
    let first = create(widget("a", "acme"));
    ok(Change { command: Some(command), cause: cause("create"), ..first }).await;
    let takes = vec![take("quota", "b"), take("name", "b")];
    let depends_on = Some(vec![Edge::new(key("a"), "placed-on")]);
    ok(Change { takes, depends_on, ..create(widget("b", "acme")) }).await;
    ok(create(widget("c", "acme"))).await;
    let blobs = Blobs::new(&[7; 32], Ambient::system());
    for data in ["one", "two"] {
        let blobs = blobs.put(&key("b"), "state", None, data.as_bytes(), true).unwrap();
        ok(Change { blobs, ..Change::default() }).await;
    }
    let lost = blobs.put(&key("c"), "state", None, b"lost", false).unwrap();
    ok(Change { blobs: lost, ..Change::default() }).await;
    let mut b = store.get(&[key("b")]).await.unwrap().remove(0);
    b.phase = "ready".into();
    b.status = Json::encode(&7);
    ok(Change { write: Some(Write::transition(b.clone(), "ready")), ..Change::default() }).await;
    b.revision += 1;
    b.labels.insert("team".into(), "core".into());
    b.generation += 1;
    ok(Change {
        write: Some(Write::update(b.clone(), "updated")),
        cause: cause("relabel"),
        ..Change::default()
    })
    .await;
    // A command that leads to a transition only.
    b.revision += 1;
    b.phase = "reset".into();
    ok(Change {
        write: Some(Write::transition(b, "ready")),
        cause: cause("reset"),
        ..Change::default()
    })
    .await;
    let mut c = store.get(&[key("c")]).await.unwrap().remove(0);
    c.deleted_at = Some(NOW);
    let release = Release { counter: "name".into(), holder: "b".into() };
    ok(Change {
        write: Some(Write::update(c, "updated")),
        releases: vec![release],
        ..Change::default()
    })
    .await;
    let pause = kernel::change::Work::Pause {
        key: key("b"),
        org: "acme".into(),
        reason: "a reason".into(),
    };
    ok(Change { work: Some(pause), audit: Some(audit("pause", &key("b"))), ..Change::default() })
        .await;
}
