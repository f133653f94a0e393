//! Old rows go; but not events that a reader has yet to read, nor what others depend on.

use kernel::change::{CursorMove, Refusal};
use kernel::log::EventFilter;
use kernel::store::Purge;
use kernel::{Json, ObjectQuery};
use testkit::stores::Fresh;

use crate::*;

on_every_store!(
    events_wait_for_the_slowest_reader_up_to_a_limit,
    a_reader_that_lost_its_lease_cannot_move_its_position,
    deleted_objects_are_purged_with_all_that_is_theirs,
);

fn moved(name: &str, seq: i64, fence: i64) -> Change {
    let (name, detail) = (name.into(), Json::encode(&seq));
    Change { cursor: Some(CursorMove { name, seq, detail, fence }), ..Change::default() }
}

const NOTHING: Purge = Purge {
    events_before: Timestamp(0),
    unread_events_before: Timestamp(0),
    commands_before: Timestamp(0),
    deleted_before: Timestamp(0),
};

async fn events_wait_for_the_slowest_reader_up_to_a_limit(fresh: &Fresh) {
    let store = &*fresh.store;
    for n in 0..6 {
        commit(store, create(widget(&n.to_string(), "acme"))).await.unwrap();
    }
    commit(store, moved("fast", 5, 1)).await.unwrap();
    commit(store, moved("slow", 2, 1)).await.unwrap();
    let read = Purge { events_before: later(1), ..NOTHING };
    store.purge(&read, 100).await.unwrap();
    assert_eq!(store.first_event().await.unwrap(), Some(3), "what the slow one has read is gone");
    commit(store, moved("slow", 4, 1)).await.unwrap();
    store.purge(&read, 100).await.unwrap();
    assert_eq!(store.first_event().await.unwrap(), Some(5));
    let all = Purge { unread_events_before: later(1), ..read };
    store.purge(&all, 100).await.unwrap();
    let left = store.events(0, &EventFilter::default(), 9).await.unwrap();
    assert_eq!(left.iter().map(|event| event.seq).collect::<Vec<_>>(), [6], "the newest stays");
    assert_eq!(store.cursors().await.unwrap().len(), 2);
}

async fn a_reader_that_lost_its_lease_cannot_move_its_position(fresh: &Fresh) {
    let store = &*fresh.store;
    commit(store, moved("relay", 7, 2)).await.unwrap();
    let lost = Err(Refusal::FenceLost("relay".into()));
    assert_eq!(commit(store, moved("relay", 9, 1)).await, lost);
    let there = store.cursor("relay").await.unwrap().unwrap();
    assert_eq!((there.seq, there.fence, there.detail.text()), (7, 2, "7"));
    commit(store, moved("relay", 8, 3)).await.unwrap();
    assert_eq!(store.cursor("relay").await.unwrap().unwrap().seq, 8);
}

async fn deleted_objects_are_purged_with_all_that_is_theirs(fresh: &Fresh) {
    let store = &*fresh.store;
    for (id, to) in [("base", vec![]), ("child", vec![key("base").into()]), ("kept", vec![])] {
        let depends_on = Some(to);
        let change = Change { depends_on, wakes: Vec::new(), ..create(widget(id, "acme")) };
        commit(store, change).await.unwrap();
    }
    let delete = async |id: &str, at: Timestamp| {
        let mut object = store.get(&[key(id)]).await.unwrap().remove(0);
        object.deleted_at = Some(at);
        let write = Some(Write::update(object, "updated"));
        commit(store, Change { write, ..Change::default() }).await.unwrap();
    };
    delete("base", NOW).await;
    let old = Purge { deleted_before: later(10), ..NOTHING };
    store.purge(&old, 100).await.unwrap();
    let names = async || {
        let all = ObjectQuery { deleted: true, limit: 9, ..ObjectQuery::default() };
        let found = store.find(&all).await.unwrap().objects;
        found.into_iter().map(|object| object.name).collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["kept", "child", "base"], "something depends on it");
    delete("child", NOW).await;
    delete("kept", later(20)).await;
    assert!(store.object(&key("child")).await.unwrap().is_some(), "and it may be in a cache");
    store.purge(&old, 100).await.unwrap();
    store.purge(&old, 100).await.unwrap();
    assert_eq!(names().await, ["kept"], "deleted too recently");
    assert!(store.object(&key("child")).await.unwrap().is_none());
    let search = ObjectQuery { deleted: true, ..ObjectQuery::parse("child").unwrap() };
    assert!(store.find(&search).await.unwrap().objects.is_empty());
    commit(store, create(widget("child", "acme"))).await.expect("its name is free again");
}
