//! One suite for every store: memory, SQLite, PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod allotments;
mod batches;
mod blobs;
mod changes;
mod informer;
mod logs;
mod migrations;
mod purging;
mod queue;
mod reads;
mod replay;

use kernel::change::{AuditDraft, Wake, Write};
use kernel::{Change, Key, Lane, Object, Store, Timestamp};
pub use testkit::on_every_store;

pub const NOW: Timestamp = Timestamp(1_700_000_000_000);

pub fn later(ms: i64) -> Timestamp {
    Timestamp(NOW.0 + ms)
}

pub fn key(id: &str) -> Key {
    Key::new("widget", id)
}

pub fn widget(id: &str, org: &str) -> Object {
    Object::new(key(id), org, "alice", id, "accepted", NOW)
}

/// An object with its event, its audit entry and its place in the queue.
pub fn create(object: Object) -> Change {
    Change {
        wakes: vec![wake(&object.key, &object.org, NOW)],
        audit: Some(audit("create", &object.key)),
        write: Some(Write::create(object, "created")),
        ..Change::default()
    }
}

pub fn wake(key: &Key, org: &str, due: Timestamp) -> Wake {
    Wake { key: key.clone(), org: org.into(), lane: Lane::Normal, due }
}

pub fn audit(action: &str, key: &Key) -> AuditDraft {
    let (actor, action) = ("alice".into(), action.into());
    AuditDraft { actor, action, target: key.to_string(), ..AuditDraft::default() }
}

pub async fn commit(store: &dyn Store, change: Change) -> kernel::change::Verdict {
    store.commit_all(vec![change], NOW).await.expect("the store answers").remove(0)
}
