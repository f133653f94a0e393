//! A fresh store of each kind for a test, gone when the test is over.

use std::sync::Arc;

use kernel::store::Purge;
use kernel::store::postgres::Postgres;
use kernel::store::sqlite::Sqlite;
use kernel::{Store, Timestamp};

use crate::Memory;
use crate::postgres::Database;

/// A store and what it lives in.
pub struct Fresh {
    pub store: Arc<dyn Store>,
    pub place: Place,
}

pub enum Place {
    Memory,
    Directory(tempfile::TempDir),
    Database(Database),
}

pub async fn memory() -> Option<Fresh> {
    Some(Fresh { store: Arc::new(Memory::default()), place: Place::Memory })
}

pub async fn sqlite() -> Option<Fresh> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Sqlite::open(&dir.path().join("mainstay.db"), kernel::store::uncounted())
        .expect("a fresh SQLite store");
    Some(Fresh { store: Arc::new(store), place: Place::Directory(dir) })
}

/// `None` without a PostgreSQL server.
pub async fn postgres() -> Option<Fresh> {
    let database = Database::create().await?;
    let store = Postgres::open(database.url(), kernel::store::uncounted())
        .await
        .expect("a fresh PostgreSQL store");
    Some(Fresh { store: Arc::new(store), place: Place::Database(database) })
}

impl Fresh {
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
