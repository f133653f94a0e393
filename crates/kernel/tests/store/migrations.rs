//! Concurrent starts create a database once; an older one is migrated and keeps what
//! it holds; a newer one is left alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kernel::log::{AuditCheck, AuditConfig, AuditFilter, EventFilter};
use kernel::queue::State;
use kernel::store::postgres::{self, Postgres};
use kernel::store::sqlite::{self, Sqlite};
use kernel::store::{WorkFilter, uncounted};
use kernel::{Ambient, Error};
use testkit::postgres::Database;

use crate::queue::ask;
use crate::*;

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_start_at_once_make_one_database() {
    let Some(database) = Database::create().await else { return };
    let opening = (0..10).map(|_| Postgres::open(database.url(), uncounted()));
    let replicas = futures::future::join_all(opening).await;
    let replicas: Vec<Postgres> = replicas.into_iter().map(|store| store.unwrap()).collect();
    let client = database.client().await;
    let count = async |sql: &str| client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()";
    assert_eq!(count(tables).await, 11, "the ten tables and meta");
    assert_eq!(count("SELECT version FROM meta").await, postgres::VERSION);
    for (n, replica) in replicas.iter().enumerate() {
        commit(replica, create(widget(&n.to_string(), "acme"))).await.unwrap();
    }
    for replica in &replicas {
        let head = replica.head().await.unwrap();
        assert_eq!((head.event_seq, head.audit_seq), (10, 10), "all of them see one log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_database_of_a_newer_version_is_refused_and_left_alone() {
    let Some(database) = Database::create().await else { return };
    drop(Postgres::open(database.url(), uncounted()).await.unwrap());
    let client = database.client().await;
    client.batch_execute("UPDATE meta SET version = 1000").await.unwrap();
    let refused = Postgres::open(database.url(), uncounted()).await;
    let message = refused.err().expect("refused").to_string();
    assert!(message.contains("version 1000") && message.contains("newer binary"), "{message}");
    let version: i64 = client.query_one("SELECT version FROM meta", &[]).await.unwrap().get(0);
    assert_eq!(version, 1000);
}

#[tokio::test]
async fn a_sqlite_file_of_a_newer_version_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mainstay.db");
    drop(open(&path).await);
    let file = rusqlite::Connection::open(&path).unwrap();
    file.pragma_update(None, "user_version", 1000).unwrap();
    let message = loop {
        match Sqlite::open(&path, Ambient::system(), uncounted()).err().expect("refused") {
            // The one before is still closing.
            Error::Conflict(why) if why.contains("in use") => tokio::task::yield_now().await,
            error => break error.to_string(),
        }
    };
    assert!(message.contains("version 1000") && message.contains("newer binary"), "{message}");
    let version: i64 = file.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 1000);
}

#[tokio::test]
async fn a_second_server_on_the_same_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mainstay.db");
    let _first = open(&path).await;
    let message =
        Sqlite::open(&path, Ambient::system(), uncounted()).err().expect("refused").to_string();
    assert!(message.contains("in use by another server"), "{message}");
}

#[tokio::test]
async fn a_server_waits_for_the_lock_of_one_that_is_just_ending() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(&dir.path().join("mainstay.db")).await;
    let (audit, clock) = (AuditConfig::default(), Ambient::system());
    let mut second =
        std::pin::pin!(kernel::store::open(None, dir.path(), audit, clock, uncounted()));
    assert!(futures::poll!(second.as_mut()).is_pending(), "the first one has it");
    drop(first);
    second.await.unwrap();
}

/// Opens a file, once its previous owner has closed it.
async fn open(path: &Path) -> Arc<dyn Store> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        match Sqlite::open(path, Ambient::system(), uncounted()) {
            Ok(store) => return Arc::new(store),
            Err(Error::Conflict(why)) if why.contains("in use") => {
                assert!(tokio::time::Instant::now() < deadline, "{why}");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_sqlite_file_keeps_everything_when_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mainstay.db");
    let store = open(&path).await;
    for id in ["a", "b"] {
        commit(&*store, create(widget(id, "acme"))).await.unwrap();
    }
    let claim = store.claim(ask(1)).await.unwrap().claims.remove(0);
    let (objects, head) = (store.get(&[key("a"), key("b")]).await.unwrap(), store.head().await);
    drop(store);
    let store = open(&path).await;
    assert_eq!(store.get(&[key("a"), key("b")]).await.unwrap(), objects);
    assert_eq!(store.head().await.unwrap(), head.unwrap());
    assert_eq!(store.events(0, &EventFilter::default(), 9).await.unwrap().len(), 2);
    let rows = store.work(&WorkFilter::default(), 9).await.unwrap();
    assert!(rows.iter().all(|row| row.state == State::Ready), "nobody is at it: {rows:?}");
    let again = store.claim(ask(9)).await.unwrap().claims;
    assert!(again.iter().all(|again| again.fence > claim.fence), "no fence is given twice");
    commit(&*store, create(widget("c", "acme"))).await.unwrap();
    let mut check = AuditCheck::default();
    for entry in store.audit(&AuditFilter::default(), 9).await.unwrap() {
        check.next(&entry).unwrap();
    }
    check.end(&store.head().await.unwrap()).unwrap();
}

/// Written with the tables of version 1 as they were shipped, whatever the present version is.
#[tokio::test]
async fn a_sqlite_file_of_version_1_is_brought_up_to_date_and_keeps_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mainstay.db");
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch(include_str!("../../src/store/sqlite/0001.sql")).unwrap();
    file.execute_batch(
        "PRAGMA user_version = 1;
         INSERT INTO objects VALUES (1, 'widget/old', 'widget', 'acme', 'alice', 'Old one', '', 'ready',
             '{\"team\":\"core\"}', '{\"size\":3}', '{}', 1, 1, 4, 1000, 2000, NULL);
         INSERT INTO edges VALUES ('widget/old', 'widget/base');
         INSERT INTO objects_text (rowid, words, tags) VALUES (1, 'old one team core', '');
         INSERT INTO queue VALUES ('widget/old', 'acme', 1, 2, 0, 5000, 0, 7, 'w', NULL, '');
         INSERT INTO allotments VALUES ('quota', '', 2, 5), ('quota', 'widget/old', 2, 0);
         INSERT INTO events VALUES (1, 'mainstay.widget.ready', 'widget/old', 'acme', 2000, '{}');
         UPDATE meta SET fence = 7, event_seq = 1;",
    )
    .unwrap();
    drop(file);
    let store = open(&path).await;
    let object = store.get(&[key("old")]).await.unwrap().remove(0);
    assert_eq!((object.name.as_str(), object.revision), ("Old one", 4));
    assert_eq!((object.labels["team"].as_str(), object.spec.text()), ("core", "{\"size\":3}"));
    let found = store.find(&kernel::ObjectQuery::parse("old").unwrap()).await.unwrap();
    assert_eq!(found.objects, [object]);
    assert_eq!(store.dependencies(&key("old")).await.unwrap(), [key("base").into()]);
    assert_eq!(store.counter("quota").await.unwrap().map(|counter| counter.used), Some(2));
    let widgets = EventFilter { kind: Some("widget".into()), ..EventFilter::default() };
    assert_eq!(store.events(0, &widgets, 9).await.unwrap().len(), 1, "found by its kind");
    let claim = store.claim(ask(1)).await.unwrap().claims.remove(0);
    assert_eq!((claim.key, claim.attempt, claim.fence > 7), (key("old"), 1, true));
    let file = rusqlite::Connection::open(&path).unwrap();
    let version: i64 = file.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, sqlite::VERSION);
}

/// Written with the tables of version 1 as they were shipped, whatever the present version is.
#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_database_of_version_1_is_brought_up_to_date_and_keeps_its_data() {
    let Some(database) = Database::create().await else { return };
    let client = database.client().await;
    client
        .batch_execute(
            "CREATE TABLE meta (id integer PRIMARY KEY CHECK (id = 1), version bigint NOT NULL,
                 event_seq bigint NOT NULL, audit_seq bigint NOT NULL, audit_hash text NOT NULL);
             INSERT INTO meta VALUES (1, 1, 2, 0, repeat('0', 64));",
        )
        .await
        .unwrap();
    client.batch_execute(include_str!("../../src/store/postgres/0001.sql")).await.unwrap();
    client
        .batch_execute(
            "INSERT INTO objects (key, kind, org, owner, name, description, phase, labels, spec, status,
                 words, generation, observed, revision, created_at, updated_at)
             VALUES ('widget/old', 'widget', 'acme', 'alice', 'Old one', '', 'ready', '{}', '{}', '{}',
                 '', 1, 1, 4, 1000, 2000);
             INSERT INTO edges VALUES ('widget/old', 'widget/base');
             INSERT INTO events VALUES (1, 'mainstay.widget.ready', 'widget/old', 'acme', 2000, '{}'),
                 (2, 'mainstay.gadget.ready', 'gadget/x', 'acme', 2000, '{}');",
        )
        .await
        .unwrap();
    let store = Postgres::open(database.url(), uncounted()).await.unwrap();
    let object = store.get(&[key("old")]).await.unwrap().remove(0);
    assert_eq!((object.name.as_str(), object.revision), ("Old one", 4));
    let widgets = EventFilter { kind: Some("widget".into()), ..EventFilter::default() };
    assert_eq!(store.events(0, &widgets, 9).await.unwrap().len(), 1, "found by its kind");
    assert_eq!(store.dependencies(&key("old")).await.unwrap(), [key("base").into()]);
    let kinds: String = client.query_one("SELECT kinds::text FROM meta", &[]).await.unwrap().get(0);
    assert_eq!(kinds, "{\"gadget\": 2, \"widget\": 1}");
    commit(&store, create(widget("new", "acme"))).await.unwrap();
    assert_eq!(store.head().await.unwrap().event_seq, 3);
}
