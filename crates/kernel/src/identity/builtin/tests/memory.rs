//! A store of commands in memory: all that the issuer asks of one.

use std::collections::HashMap;

use async_trait::async_trait;
use axum::body::Bytes;
use parking_lot::Mutex;

use crate::admission::{Counter, Lease};
use crate::blob::BlobInfo;
use crate::change::{Accepted, Change, CommandRecord, CursorMove, Verdict};
use crate::log::{AuditEntry, AuditFilter, Event, EventFilter, LogHeads};
use crate::query::{ObjectQuery, QueryPage};
use crate::queue::{ClaimBatch, ClaimRequest, QueueRow};
use crate::store::{Purge, Store, Wakeups, WorkCount, WorkFilter};
use crate::{Error, Key, Object, Refusal, Result, Timestamp};

/// Commands by id, and who did what.
#[derive(Default)]
pub struct Memory {
    pub commands: Mutex<HashMap<String, CommandRecord>>,
    pub audit: Mutex<Vec<String>>,
    wakeups: Wakeups,
}

impl Memory {
    fn commit_one(&self, change: Change) -> Verdict {
        assert!(change.write.is_none(), "a grant leaves no object behind");
        if let Some(command) = change.command {
            let mut commands = self.commands.lock();
            if let Some(CommandRecord { id, reply, .. }) = commands.get(&command.id).cloned() {
                return Err(Refusal::Repeated { id, reply });
            }
            commands.insert(command.id.clone(), command);
        }
        let audit = change.audit.map(|entry| format!("{} {}", entry.actor, entry.action));
        self.audit.lock().extend(audit);
        Ok(Accepted::default())
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
    async fn claim(&self, _: ClaimRequest) -> Result<ClaimBatch> {
        absent()
    }
    async fn lease(&self, _: &str, _: &str, _: Timestamp, _: Timestamp) -> Result<Option<Lease>> {
        absent()
    }
    async fn unlease(&self, _: &str, _: i64) -> Result<()> {
        absent()
    }
    async fn get(&self, _: &[Key]) -> Result<Vec<Object>> {
        absent()
    }
    async fn find(&self, _: &ObjectQuery) -> Result<QueryPage> {
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
    async fn command(&self, id: &str) -> Result<Option<CommandRecord>> {
        Ok(self.commands.lock().get(id).cloned())
    }
    async fn blob(&self, _: &Key, _: &str) -> Result<Option<(BlobInfo, Bytes)>> {
        absent()
    }
    async fn blobs(&self, _: &Key) -> Result<Vec<BlobInfo>> {
        absent()
    }
    async fn cursor(&self, _: &str) -> Result<Option<CursorMove>> {
        absent()
    }
    async fn cursors(&self) -> Result<Vec<CursorMove>> {
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
    async fn head(&self) -> Result<LogHeads> {
        absent()
    }
    async fn work(&self, _: &WorkFilter, _: usize) -> Result<Vec<QueueRow>> {
        absent()
    }
    async fn work_counts(&self) -> Result<Vec<WorkCount>> {
        absent()
    }
    async fn purge(&self, _: &Purge, _: usize) -> Result<usize> {
        absent()
    }
    async fn ping(&self) -> Result<()> {
        Ok(())
    }
    fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }
    fn describe(&self) -> String {
        "memory".into()
    }
}
