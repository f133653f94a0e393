//! Lists and searches: what fits, newest first, page by page, at once after the write.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use kernel::change::{Edge, Write};
use kernel::{Change, Object, ObjectQuery};
use testkit::stores::Fresh;
use tokio::runtime::Handle;

use crate::*;

on_every_store!(
    every_filter_finds_what_the_model_says,
    pages_come_newest_first_and_hold_everything_once,
    a_word_of_any_length_is_written_and_found,
    a_write_is_found_by_the_very_next_search,
    an_object_is_never_read_older_than_it_was_read_or_written_before,
    the_store_answers_a_ping,
);

const QUERIES: &[&str] = &[
    "",
    "blue",
    "BLU",
    "lue",
    "blue widget",
    "kind:widget",
    "kind:gadget",
    "phase:ready",
    "owner:bob",
    "label:team=core",
    "label:team=cor",
    "label:team=core blue phase:ready",
    "depends-on:widget/3",
    "depends-on:widget/4",
    "depends-on:widget/4 kind:widget blue",
    "depends-on:widget/30",
    "depends-on:widget/none",
    "used-by:widget/22",
    "used-by:widget/30 phase:accepted",
    "used-by:widget/22 depends-on:widget/3",
    "name:blue-3",
    "core",
    "naïve",
    "名前",
    "x'y\"z",
    "हिन्दी",
    "हि",
    "ภาษาไทย",
    "ﬁ²",
    "İstanbul",
    "i̇s",
    "ΌΔΟΣ",
];

fn population() -> Vec<(Object, Vec<Key>)> {
    (0..40)
        .map(|n| {
            let mut object = Object::new(
                Key::new(["widget", "gadget"][n % 2], &n.to_string()),
                ["acme", "umbrella", "initech"][n % 3],
                ["alice", "bob"][n / 3 % 2],
                &format!(
                    "{}-{n}",
                    ["blue", "red", "naïve", "名前 one", "हिन्दी ภาษาไทย", "ﬁ² İstanbul ὈΔΟΣ"]
                        [n % 6]
                ),
                ["accepted", "ready"][n % 2],
                NOW,
            );
            if n % 5 == 0 {
                object.labels.insert("team".into(), ["core", "edge"][n / 5 % 2].into());
                object.description = "a Blue one, x'y\"z".into();
            }
            object.deleted_at = (n % 11 == 10).then_some(NOW);
            let depends_on = match n {
                _ if n % 7 == 4 => vec![key("3"), key("5")],
                20 => vec![key("4"), key("6")],
                22 => vec![key("20")],
                // A cycle.
                28 => vec![key("30")],
                30 => vec![key("34")],
                34 => vec![key("30"), key("36")],
                _ => vec![],
            };
            (object, depends_on)
        })
        .collect()
}

async fn populate(fresh: &Fresh) -> Vec<(Object, Vec<Key>)> {
    let population = population();
    let changes = population.iter().map(|(object, depends_on)| Change {
        write: Some(Write::create(object.clone(), "created")),
        depends_on: Some(depends_on.iter().cloned().map(Edge::from).collect()),
        ..Change::default()
    });
    for change in changes {
        commit(&*fresh.store, change).await.unwrap();
    }
    population
}

/// What an object depends on, directly or not.
fn walk(population: &[(Object, Vec<Key>)], from: &Key, found: &mut Vec<Key>) -> Vec<Key> {
    let edges = population.iter().filter(|(object, _)| object.key == *from);
    for to in edges.flat_map(|(_, to)| to) {
        if !found.contains(to) {
            found.push(to.clone());
            walk(population, to, found);
        }
    }
    found.clone()
}

#[test]
fn the_model_walks_through_others_and_around_a_cycle() {
    let population = population();
    let walked = |id: &str| {
        let mut found = walk(&population, &key(id), &mut Vec::new());
        found.sort();
        found
    };
    assert_eq!(walked("22"), ["20", "3", "4", "5", "6"].map(key));
    assert_eq!(walked("28"), ["30", "34", "36"].map(key));
    assert_eq!(walked("30"), ["30", "34", "36"].map(key));
}

async fn every_filter_finds_what_the_model_says(fresh: &Fresh) {
    let population = populate(fresh).await;
    let depends = |from: &Key, to: &Key| walk(&population, from, &mut Vec::new()).contains(to);
    for query in QUERIES {
        for org in [None, Some("acme".to_owned())] {
            for deleted in [false, true] {
                let find = ObjectQuery {
                    org: org.clone(),
                    deleted,
                    limit: 100,
                    ..ObjectQuery::parse(query).unwrap()
                };
                let found = fresh.store.find(&find).await.unwrap().objects;
                let expected =
                    population.iter().rev().filter(|(object, _)| find.matches(object, depends));
                let expected: Vec<Object> = expected.map(|(object, _)| object.clone()).collect();
                assert_eq!(found, expected, "for {query:?} in {org:?}, deleted {deleted}");
            }
        }
    }
}

async fn pages_come_newest_first_and_hold_everything_once(fresh: &Fresh) {
    let population = populate(fresh).await;
    let depends = |from: &Key, to: &Key| walk(&population, from, &mut Vec::new()).contains(to);
    for query in ["", "blue", "kind:widget", "label:team=core"] {
        let mut find =
            ObjectQuery { limit: 3, deleted: true, ..ObjectQuery::parse(query).unwrap() };
        let mut found = Vec::new();
        loop {
            let page = fresh.store.find(&find).await.unwrap();
            assert!(page.objects.len() <= 3);
            found.extend(page.objects);
            find.after = page.next;
            if find.after.is_none() {
                break;
            }
        }
        let expected = population.iter().rev().filter(|(object, _)| find.matches(object, depends));
        let expected: Vec<Object> = expected.map(|(object, _)| object.clone()).collect();
        assert_eq!(found, expected, "for {query:?}");
    }
}

async fn a_word_of_any_length_is_written_and_found(fresh: &Fresh) {
    let store = &*fresh.store;
    for (id, letter) in [("latin", "x"), ("greek", "ω"), ("emoji", "𝒳")] {
        let mut object = widget(id, "acme");
        object.description = letter.repeat(5000);
        object.labels.insert("k".into(), letter.repeat(5000));
        commit(store, create(object.clone())).await.unwrap();
        for length in [1, 100, 1000] {
            let find = ObjectQuery::parse(&letter.repeat(length)).unwrap();
            let found = store.find(&find).await.unwrap().objects;
            assert_eq!(found, [object.clone()], "{length} of {letter}");
        }
    }
}

async fn a_write_is_found_by_the_very_next_search(fresh: &Fresh) {
    let store = &*fresh.store;
    let find = async |query: &str| {
        store.find(&ObjectQuery::parse(query).unwrap()).await.unwrap().objects.len()
    };
    commit(store, create(widget("first", "acme"))).await.unwrap();
    assert_eq!(find("first").await, 1);
    let mut object = widget("first", "acme");
    object.name = "second".into();
    object.labels.insert("team".into(), "core".into());
    commit(store, Change { write: Some(Write::update(object, "updated")), ..Change::default() })
        .await
        .unwrap();
    assert_eq!(
        (find("first").await, find("second").await, find("label:team=core").await),
        (0, 1, 1)
    );
}

async fn the_store_answers_a_ping(fresh: &Fresh) {
    fresh.store.ping().await.unwrap();
    assert!(!fresh.store.describe().is_empty());
}

/// One writer and four readers, each reader on a thread of its own.
async fn an_object_is_never_read_older_than_it_was_read_or_written_before(fresh: &Fresh) {
    commit(&*fresh.store, create(widget("1", "acme"))).await.unwrap();
    assert_eq!(fresh.store.object(&key("nobody")).await.unwrap(), None);
    let newest = Arc::new(AtomicI64::new(1));
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (store, newest) = (fresh.store.clone(), newest.clone());
            let reading = read_until(store, newest, WRITES);
            tokio::task::spawn_blocking(|| Handle::current().block_on(reading))
        })
        .collect();
    for revision in 2..=WRITES {
        let object = fresh.store.object(&key("1")).await.unwrap().unwrap();
        let object = Object { name: revision.to_string(), ..Object::clone(&object) };
        let change = Change { write: Some(Write::update(object, "updated")), ..Change::default() };
        let accepted = commit(&*fresh.store, change).await.expect("it was read as it is");
        assert_eq!(accepted.revision, Some(revision));
        newest.fetch_max(revision, Ordering::SeqCst);
    }
    for reader in readers {
        reader.await.unwrap();
    }
}

const WRITES: i64 = 300;

/// Reads in both ways, and whatever anyone has read or written is the least to be read from then.
async fn read_until(store: Arc<dyn Store>, newest: Arc<AtomicI64>, last: i64) {
    let least = || newest.load(Ordering::SeqCst);
    while least() < last {
        let before = least();
        let again = store.object(&key("1")).await.unwrap().unwrap();
        assert!(again.revision >= before, "{} was read after {before}", again.revision);
        assert_eq!(again.name, again.revision.to_string(), "it is read whole");
        newest.fetch_max(again.revision, Ordering::SeqCst);
        let stored = store.get(&[key("1")]).await.unwrap().remove(0);
        newest.fetch_max(stored.revision, Ordering::SeqCst);
    }
}
