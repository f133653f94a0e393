//! The audit log is archived: entries move into a file, and the chain of hashes continues.

use std::path::Path;

use kernel::audit_archive::{ArchiveWriter, Header, read};
use kernel::log::{AuditCheck, AuditEntry, AuditFilter, AuditPosition, LogHeads};
use kernel::store::Purge;
use kernel::{Error, Timestamp};
use serde_json::json;
use testkit::on_every_store;
use testkit::replay::replay;
use testkit::stores::{self, Fresh};

use crate::server::{TestResponse, TestServer};

on_every_store!(
    the_log_is_archived_and_a_crash_between_any_two_steps_loses_nothing,
    what_is_archived_must_be_the_end_of_a_copy,
);

const NOTHING: Purge = Purge {
    events_before: Timestamp(0),
    unread_events_before: Timestamp(0),
    commands_before: Timestamp(0),
    deleted_before: Timestamp(0),
};

/// A server with `entries` entries in its audit log.
async fn audited(fresh: &Fresh, entries: usize) -> TestServer {
    let server = TestServer::on(fresh);
    server.create("a", "acme", "alice", "new").await;
    while server.audit().await.len() < entries {
        assert_eq!(server.post("admin", "/api/v1/work/widget/a/retry", "").await.status, 202);
    }
    server
}

async fn entries(server: &TestServer, after: i64) -> Vec<AuditEntry> {
    let filter = AuditFilter { after, ..AuditFilter::default() };
    server.store.audit(&filter, 100).await.unwrap()
}

fn position(entry: &AuditEntry) -> AuditPosition {
    AuditPosition { seq: entry.seq, hash: entry.hash.clone() }
}

fn header(entries: &[AuditEntry], before: AuditPosition) -> Header {
    let last = position(entries.last().unwrap());
    Header::new("this one".into(), Timestamp(0), before, last)
}

fn write(path: &Path, entries: &[AuditEntry]) -> kernel::Result<Header> {
    let mut writer = ArchiveWriter::create(path, &header(entries, AuditPosition::default()))?;
    writer.add(entries)?;
    writer.finish()
}

async fn close(server: &TestServer, last: &AuditPosition) -> TestResponse {
    server.post("admin", "/api/v1/audit/archive", &json!(last).to_string()).await
}

/// All that the store says it has, from the first entry that is not archived.
async fn verified(server: &TestServer) -> LogHeads {
    let head = server.store.head().await.unwrap();
    let mut check = AuditCheck::after(&head.archived);
    let rest = entries(server, head.archived.seq).await;
    rest.iter().for_each(|entry| check.next(entry).unwrap());
    check.end(&head).unwrap();
    head
}

async fn the_log_is_archived_and_a_crash_between_any_two_steps_loses_nothing(fresh: &Fresh) {
    let server = audited(fresh, 7).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let old = entries(&server, 0).await[..5].to_vec();
    let last = position(&old[4]);
    // Crash while the file is written: there is none, and all is in the store.
    let mut writer = ArchiveWriter::create(&path, &header(&old, AuditPosition::default())).unwrap();
    writer.add(&old[..2]).unwrap();
    drop(writer);
    assert!(!path.exists());
    // Crash after it was written, before the server knows.
    let written = write(&path, &old).unwrap();
    assert_eq!((written.first, written.last, written.after()), (1, 5, last.clone()));
    let mut archived = Vec::new();
    assert_eq!(read(&path, |entry| archived.push(entry.clone())).unwrap(), written);
    assert_eq!(archived, old);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no part is left");
    assert_eq!(verified(&server).await.archived, AuditPosition::default());
    // Crash before the file has lost its first name, and it is moved: another leaves it alone.
    let (moved, part) = (dir.path().join("moved"), dir.path().join("audit.jsonl.mainstay-part"));
    std::fs::hard_link(&path, &part).unwrap();
    std::fs::rename(&path, &moved).unwrap();
    write(&path, &old).unwrap();
    assert_eq!(read(&moved, |_| {}).unwrap(), written);
    assert!(!part.exists());
    // The file is never overwritten.
    let again = write(&path, &old[..3]).unwrap_err();
    assert!(matches!(again, Error::Conflict(_)), "{again}");
    assert_eq!(read(&path, |_| {}).unwrap(), written);
    // The log is closed, and what closed it is the next entry.
    let closed = close(&server, &last).await;
    assert_eq!(closed.status, 200, "{}", closed.text);
    let head = verified(&server).await;
    assert_eq!((&head.archived, head.audit_seq), (&last, 8));
    assert_eq!(server.audit().await.last().unwrap().entry.action, "audit.archive");
    // Crash before the entries are deleted: nobody sees them any more.
    let get = async |query: &str| server.get("reader", &format!("/api/v1/audit{query}")).await;
    for _ in 0..2 {
        let page = get("").await.body;
        assert_eq!((page["entries"].as_array().unwrap().len(), &page["archived"]), (3, &5.into()));
        assert_eq!(get("?after=5").await.body["entries"].as_array().unwrap().len(), 3);
        for below in ["?after=0", "?after=4", "?before=6", "?before=2"] {
            let gone = get(below).await;
            assert_eq!(gone.status, 410, "{below}: {}", gone.text);
            assert!(gone.error("message").contains("up to entry 5 was archived"), "{}", gone.text);
        }
        while server.store.purge(&NOTHING, 2).await.unwrap() > 0 {}
    }
    assert_eq!(entries(&server, 0).await[0].seq, 6);
    let of_target = AuditFilter { target: Some("widget/a".into()), ..AuditFilter::default() };
    assert_eq!(server.store.audit(&of_target, 100).await.unwrap()[0].seq, 6);
    // Again: it is done, and nothing is written.
    assert_eq!(close(&server, &last).await.status, 200);
    assert_eq!(verified(&server).await, head);
    // A store that is made from the logs continues the same chain.
    for copy in [stores::memory().await, stores::sqlite().await].into_iter().flatten() {
        replay(&*server.store, &*copy.store).await.unwrap();
        assert_eq!(copy.store.head().await.unwrap(), head);
        let all = AuditFilter::default();
        let copied = copy.store.audit(&all, 100).await.unwrap();
        assert_eq!(copied, entries(&server, 0).await);
    }
}

async fn what_is_archived_must_be_the_end_of_a_copy(fresh: &Fresh) {
    let server = audited(fresh, 4).await;
    let all = entries(&server, 0).await;
    let at = |seq: i64, hash: &str| AuditPosition { seq, hash: hash.into() };
    for (last, field) in
        [(at(2, &all[0].hash), "hash"), (at(9, &all[3].hash), "seq"), (at(0, &all[0].hash), "seq")]
    {
        let refused = close(&server, &last).await;
        assert_eq!((refused.status, refused.error("field")), (400, field), "{}", refused.text);
    }
    assert_eq!(close(&server, &position(&all[2])).await.status, 200);
    let behind = close(&server, &position(&all[1])).await;
    assert_eq!((behind.status, behind.error("field")), (400, "seq"), "{}", behind.text);
    let body = json!(position(&all[3])).to_string();
    assert_eq!(server.post("reader", "/api/v1/audit/archive", &body).await.status, 403);
    assert_eq!(verified(&server).await.archived, position(&all[2]));
}

#[tokio::test]
async fn an_archive_that_was_changed_is_found_and_the_entry_is_named() {
    let fresh = stores::memory().await.unwrap();
    let server = audited(&fresh, 5).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    write(&path, &entries(&server, 0).await).unwrap();
    let good = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = good.lines().collect();
    let without = |line: usize| {
        let mut lines = lines.clone();
        lines.remove(line);
        lines.join("\n")
    };
    let cases = [
        (good.replacen("widget/a", "widget/b", 1), "entry 1 was edited"),
        (without(3), "entry 3 is missing"),
        (without(5), "entries after 4 were removed"),
        (good.replacen("\"first\":1", "\"first\":2", 1), "entry 2 is missing"),
        (good.replacen("\"hash_before\":\"0", "\"hash_before\":\"1", 1), "entry 1 was edited"),
        (good[..good.len() - 9].to_owned(), "the line of entry 5 cannot be read"),
        (without(0), "its first line"),
        (String::new(), "its first line"),
    ];
    for (text, fault) in cases {
        std::fs::write(&path, &text).unwrap();
        let error = read(&path, |_| {}).unwrap_err().with_causes();
        assert!(error.contains(fault), "{fault}: {error}");
    }
}
