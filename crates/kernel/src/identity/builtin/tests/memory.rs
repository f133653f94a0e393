//! A store of objects in memory: all that the issuer asks of one.

use std::collections::HashMap;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::admit::{Counter, Lease};
use crate::change::{Accepted, Change, Command, Verdict, Write};
use crate::find::{Find, Page};
use crate::log::{AuditEntry, AuditFilter, Event, EventFilter, Head};
use crate::queue::{Ask, Claimed, QueueRow};
use crate::store::{Hints, Store, WorkCount, WorkFilter};
use crate::{Error, Key, Object, Refusal, Result, Timestamp};

/// Objects by key, and who did what.
#[derive(Default)]
pub struct Memory {
    pub objects: Mutex<HashMap<Key, Object>>,
    pub audit: Mutex<Vec<String>>,
    hints: Hints,
}

impl Memory {
    fn commit_one(&self, change: Change) -> Verdict {
        let mut objects = self.objects.lock();
        let mut accepted = Accepted::default();
        if let Some(write) = change.write {
            let key = write.object().key.clone();
            let object = match (objects.get(&key), write) {
                (Some(_), Write::Create(_)) => return Err(Refusal::Exists(key)),
                (None, Write::Create(object)) => object,
                (Some(stored), Write::Update(object)) if stored.revision == object.revision => {
                    Object { revision: object.revision + 1, ..object }
                }
                (Some(stored), Write::Update(object) | Write::Transition(object)) => {
                    let (expected, found) = (object.revision, stored.revision);
                    return Err(Refusal::Stale { key, expected, found });
                }
                (None, _) => return Err(Refusal::Missing(key)),
            };
            accepted.revision = Some(object.revision);
            objects.insert(key, object);
        }
        let audit = change.audit.map(|entry| format!("{} {}", entry.actor, entry.action));
        self.audit.lock().extend(audit);
        Ok(accepted)
    }
}

fn absent<T>() -> Result<T> {
    Err(Error::internal("the store of this test", "does not do this"))
}

#[async_trait]
impl Store for Memory {
    async fn commit_all(&self, changes: Vec<Change>, _: Timestamp) -> Result<Vec<Verdict>> {
        Ok(changes.into_iter().map(|change| self.commit_one(change)).collect())
    }
    async fn claim(&self, _: Ask) -> Result<Claimed> {
        absent()
    }
    async fn lease(&self, _: &str, _: &str, _: Timestamp, _: Timestamp) -> Result<Option<Lease>> {
        absent()
    }
    async fn unlease(&self, _: &str, _: i64) -> Result<()> {
        absent()
    }
    async fn get(&self, keys: &[Key]) -> Result<Vec<Object>> {
        let objects = self.objects.lock();
        Ok(keys.iter().filter_map(|key| objects.get(key).cloned()).collect())
    }
    async fn find(&self, _: &Find) -> Result<Page> {
        absent()
    }
    async fn dependencies(&self, _: &Key) -> Result<Vec<Key>> {
        absent()
    }
    async fn dependents(&self, _: &Key) -> Result<Vec<Key>> {
        absent()
    }
    async fn counter(&self, _: &str) -> Result<Option<Counter>> {
        absent()
    }
    async fn command(&self, _: &str) -> Result<Option<Command>> {
        absent()
    }
    async fn events(&self, _: i64, _: &EventFilter, _: usize) -> Result<Vec<Event>> {
        absent()
    }
    async fn first_event(&self) -> Result<Option<i64>> {
        absent()
    }
    async fn audit(&self, _: &AuditFilter, _: usize) -> Result<Vec<AuditEntry>> {
        absent()
    }
    async fn head(&self) -> Result<Head> {
        absent()
    }
    async fn work(&self, _: &WorkFilter, _: usize) -> Result<Vec<QueueRow>> {
        absent()
    }
    async fn work_counts(&self) -> Result<Vec<WorkCount>> {
        absent()
    }
    async fn forget(&self, _: Timestamp, _: Timestamp, _: usize) -> Result<usize> {
        absent()
    }
    async fn ping(&self) -> Result<()> {
        Ok(())
    }
    fn hints(&self) -> &Hints {
        &self.hints
    }
    fn describe(&self) -> String {
        "memory".into()
    }
}
