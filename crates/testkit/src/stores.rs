//! A fresh store of each kind for a test, gone when the test is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use kernel::store::Purge;
use kernel::store::postgres::Postgres;
use kernel::store::sqlite::Sqlite;
use kernel::{Ambient, Store, Timestamp};

use crate::Memory;
use crate::postgres::Database;

/// A store and what it lives in.
pub struct Fresh {
    pub store: Arc<dyn Store>,
    pub place: Place,
    clock: Clock,
}

pub enum Place {
    Memory,
    Directory(tempfile::TempDir),
    Database(Database),
}

/// The clock of a process: the system's, until it is set.
#[derive(Clone, Default)]
pub struct Clock(Arc<AtomicI64>);

impl Clock {
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.millis(), Ordering::SeqCst);
    }

    pub fn ambient(&self) -> Ambient {
        let (set, system) = (self.0.clone(), Ambient::system());
        let now = move || match set.load(Ordering::SeqCst) {
            0 => system.now(),
            now => Timestamp(now),
        };
        Ambient::seeded(now, 7)
    }
}

pub async fn memory() -> Option<Fresh> {
    let clock = Clock::default();
    let store = Arc::new(Memory::new(clock.ambient(), None));
    Some(Fresh { store, place: Place::Memory, clock })
}

pub async fn sqlite() -> Option<Fresh> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = Clock::default();
    let file = dir.path().join("mainstay.db");
    let store = Sqlite::open(&file, clock.ambient(), kernel::store::uncounted())
        .expect("a fresh SQLite store");
    Some(Fresh { store: Arc::new(store), place: Place::Directory(dir), clock })
}

/// `None` without a PostgreSQL server.
pub async fn postgres() -> Option<Fresh> {
    let database = Database::create().await?;
    let store = Postgres::open(database.url(), kernel::store::uncounted())
        .await
        .expect("a fresh PostgreSQL store");
    Some(Fresh::new(Arc::new(store), Place::Database(database)))
}

impl Fresh {
    /// One whose clock is not set.
    pub fn new(store: Arc<dyn Store>, place: Place) -> Fresh {
        Fresh { store, place, clock: Clock::default() }
    }

    /// Stops the store's clock, and sets it.
    pub async fn set_clock(&self, now: Timestamp) {
        self.clock.set(now);
        if let Place::Database(database) = &self.place {
            let sql = format!(
                "CREATE TABLE IF NOT EXISTS clock AS SELECT 0::bigint AS ms;
                 CREATE OR REPLACE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql VOLATILE
                     AS 'SELECT ms FROM clock';
                 UPDATE clock SET ms = {}",
                now.millis()
            );
            database.client().await.batch_execute(&sql).await.expect("its clock is set");
        }
    }

    /// Another process's view of the same store, where there can be one.
    pub async fn replica(&self) -> Option<Arc<dyn Store>> {
        match &self.place {
            Place::Database(database) => {
                let store = Postgres::open(database.url(), kernel::store::uncounted())
                    .await
                    .expect("a second connection");
                Some(Arc::new(store))
            }
            Place::Memory | Place::Directory(_) => None,
        }
    }
}

/// The same tests on every store.
#[macro_export]
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread")] async fn $name() {
                if let Some(fresh) = $crate::stores::memory().await { super::$name(&fresh).await }
            })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")] async fn $name() {
                if let Some(fresh) = $crate::stores::sqlite().await { super::$name(&fresh).await }
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")] async fn $name() {
                if let Some(fresh) = $crate::stores::postgres().await { super::$name(&fresh).await }
            })*
        }
    };
}

/// What is old for a purge of events and commands alone.
pub fn old(events: Timestamp, commands: Timestamp) -> Purge {
    Purge {
        events_before: events,
        unread_events_before: Timestamp(0),
        commands_before: commands,
        deleted_before: Timestamp(0),
    }
}
