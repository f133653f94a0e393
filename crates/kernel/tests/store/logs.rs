//! Events in order and complete; the audit chain whole.

use std::time::Duration;

use kernel::event_tail::EventTail;
use kernel::log::{
    AuditCheck, AuditConfig, AuditFault, AuditFilter, AuditTransitions, EventFilter,
};
use kernel::store::postgres::Postgres;
use kernel::store::sqlite::Sqlite;
use kernel::store::{is_last_page, uncounted};
use kernel::{Ambient, Json};
use testkit::memory::Memory;
use testkit::postgres::Database;
use testkit::stores::{Fresh, Place};

use crate::*;

on_every_store!(
    readers_never_see_a_gap_or_an_event_out_of_order,
    the_newest_event_is_never_older_than_a_commit_that_was_acknowledged,
    events_are_filtered_by_kind_object_and_org,
    a_page_of_large_events_is_short_and_the_next_one_goes_on,
    an_event_holds_the_object_as_it_was_written,
    old_events_are_forgotten_but_never_the_newest,
    a_clock_that_ran_ahead_leaves_no_gap_in_what_is_kept,
    the_audit_chain_is_whole_under_concurrency,
    audit_entries_are_found_by_who_and_what,
);

async fn a_page_of_large_events_is_short_and_the_next_one_goes_on(fresh: &Fresh) {
    let large = "x".repeat(400 * 1024);
    for n in 0..25 {
        let object = Object { spec: Json::encode(&large), ..widget(&n.to_string(), "acme") };
        commit(&*fresh.store, create(object)).await.unwrap();
    }
    let all = EventFilter::default();
    let page = fresh.store.events(0, &all, 100).await.unwrap();
    assert_eq!((page.len(), is_last_page(&page, 100)), (11, false), "4 MiB of 400 KiB each");
    let rest = fresh.store.events(page[10].seq, &all, 100).await.unwrap();
    assert_eq!((rest[0].seq, rest.len()), (12, 11));
    let last = fresh.store.events(rest[10].seq, &all, 100).await.unwrap();
    assert_eq!((last.len(), is_last_page(&last, 100)), (3, true));
    // A reader gets all of them, whether the ring reaches back to it or not.
    for filter in [all, EventFilter { kind: Some("widget".into()), ..EventFilter::default() }] {
        let mut reader = EventTail::new(fresh.store.clone()).subscribe(0, filter);
        let mut seen = Vec::new();
        while seen.len() < 25 {
            let (events, _) = reader.next_events(1000).await.unwrap();
            seen.extend(events.iter().map(|event| event.event.seq));
        }
        assert!(seen.iter().copied().eq(1..=25), "{seen:?}");
    }
}

async fn write_from_everywhere(fresh: &Fresh, writers: usize, each: usize) {
    let mut stores = vec![fresh.store.clone()];
    stores.extend(fresh.replica().await);
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let store = stores[writer % stores.len()].clone();
        tasks.spawn(async move {
            for n in 0..each {
                let object = widget(&format!("{writer}-{n}"), ["acme", "umbrella"][writer % 2]);
                commit(&*store, create(object)).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
}

async fn readers_never_see_a_gap_or_an_event_out_of_order(fresh: &Fresh) {
    let (writers, each) = (8, 25);
    let last = (writers * each) as i64;
    let store = fresh.store.clone();
    let reader = tokio::spawn(async move {
        let wakeups = store.wakeups().events();
        let mut seen = 0;
        while seen < last {
            let events = store.events(seen, &EventFilter::default(), 7).await.unwrap();
            for event in &events {
                assert_eq!(event.seq, seen + 1, "no gap that could be filled later");
                seen = event.seq;
            }
            if events.is_empty() {
                wakeups.above(seen).await;
            }
        }
        seen
    });
    write_from_everywhere(fresh, writers, each).await;
    let seen = tokio::time::timeout(std::time::Duration::from_secs(30), reader).await;
    assert_eq!(seen.expect("the reader gets there").unwrap(), last);
}

/// Some of those who ask leave before they are answered.
async fn the_newest_event_is_never_older_than_a_commit_that_was_acknowledged(fresh: &Fresh) {
    let mut stores = vec![fresh.store.clone()];
    stores.extend(fresh.replica().await);
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let stores = stores.clone();
        tasks.spawn(async move {
            for n in 0..25 {
                let object = widget(&format!("{writer}-{n}"), "acme");
                let store = &stores[writer % stores.len()];
                let written = commit(&**store, create(object)).await.unwrap().event.unwrap();
                let asked = &stores[n % stores.len()];
                let impatient = asked.newest_event();
                let _ = tokio::time::timeout(Duration::from_micros(100), impatient).await;
                let (one, other) = tokio::join!(asked.newest_event(), asked.newest_event());
                assert!(one.unwrap() >= written && other.unwrap() >= written);
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(fresh.store.newest_event().await.unwrap(), 200);
}

async fn events_are_filtered_by_kind_object_and_org(fresh: &Fresh) {
    write_from_everywhere(fresh, 2, 3).await;
    let find = async |filter: EventFilter| fresh.store.events(0, &filter, 100).await.unwrap().len();
    assert_eq!(find(EventFilter::default()).await, 6);
    assert_eq!(find(EventFilter { org: Some("acme".into()), ..Default::default() }).await, 3);
    assert_eq!(find(EventFilter { kind: Some("widget".into()), ..Default::default() }).await, 6);
    assert_eq!(find(EventFilter { kind: Some("wid".into()), ..Default::default() }).await, 0);
    assert_eq!(find(EventFilter { subject: Some(key("1-2")), ..Default::default() }).await, 1);
    assert_eq!(fresh.store.events(5, &EventFilter::default(), 100).await.unwrap().len(), 1);
}

async fn an_event_holds_the_object_as_it_was_written(fresh: &Fresh) {
    commit(&*fresh.store, create(widget("a", "acme"))).await.unwrap();
    let event = fresh.store.events(0, &EventFilter::default(), 1).await.unwrap().remove(0);
    assert_eq!((event.kind.as_str(), event.at), ("mainstay.widget.created", NOW));
    assert_eq!(event.data.parse::<kernel::Object>().unwrap(), widget("a", "acme"));
}

async fn old_events_are_forgotten_but_never_the_newest(fresh: &Fresh) {
    write_from_everywhere(fresh, 1, 5).await;
    assert_eq!(
        fresh.store.purge(&testkit::stores::old(NOW, NOW), 100).await.unwrap(),
        0,
        "not old enough"
    );
    assert_eq!(
        fresh.store.purge(&testkit::stores::old(later(1), NOW), 2).await.unwrap(),
        2,
        "no more than asked"
    );
    assert_eq!(fresh.store.first_event().await.unwrap(), Some(3));
    fresh.store.purge(&testkit::stores::old(later(1), NOW), 100).await.unwrap();
    assert_eq!(fresh.store.first_event().await.unwrap(), Some(5));
    let accepted = commit(&*fresh.store, create(widget("x", "acme"))).await.unwrap();
    assert_eq!(accepted.event, Some(6), "numbers go on");
}

async fn a_clock_that_ran_ahead_leaves_no_gap_in_what_is_kept(fresh: &Fresh) {
    for (n, at) in [0, 1_000_000_000, 1, 2, 1_000_000_000, 5000, 6000].into_iter().enumerate() {
        let change = create(widget(&n.to_string(), "acme"));
        fresh.store.commit_all(vec![change], later(at)).await.unwrap();
    }
    assert_eq!(fresh.store.purge(&testkit::stores::old(later(100), NOW), 100).await.unwrap(), 4);
    let kept = fresh.store.events(0, &EventFilter::default(), 100).await.unwrap();
    let kept: Vec<i64> = kept.iter().map(|event| event.seq).collect();
    assert_eq!(kept, [5, 6, 7], "whatever came before something old is older");
}

async fn verify(fresh: &Fresh) -> Result<i64, AuditFault> {
    let mut check = AuditCheck::default();
    loop {
        let filter = AuditFilter { after: check.head().audit_seq, ..Default::default() };
        let entries = fresh.store.audit(&filter, 50).await.unwrap();
        if entries.is_empty() {
            check.end(&fresh.store.head().await.unwrap())?;
            return Ok(check.head().audit_seq);
        }
        entries.iter().try_for_each(|entry| check.next(entry))?;
    }
}

/// Changes the database behind the store's back.
async fn meddle(fresh: &Fresh, sql: &str) {
    match &fresh.place {
        Place::Database(database) => database.client().await.batch_execute(sql).await.unwrap(),
        Place::Directory(dir) => {
            let file = rusqlite::Connection::open(dir.path().join("mainstay.db")).unwrap();
            file.execute_batch(sql).unwrap();
        }
        Place::Memory => {}
    }
}

async fn the_audit_chain_is_whole_under_concurrency(fresh: &Fresh) {
    write_from_everywhere(fresh, 6, 20).await;
    assert_eq!(verify(fresh).await, Ok(120));
    if matches!(fresh.place, Place::Memory) {
        return;
    }
    meddle(fresh, "UPDATE audit SET actor = 'bob' WHERE seq = 7").await;
    assert_eq!(verify(fresh).await, Err(AuditFault::Hash { seq: 7 }));
    meddle(fresh, "UPDATE audit SET actor = 'alice' WHERE seq = 7").await;
    assert_eq!(verify(fresh).await, Ok(120));
    meddle(fresh, "DELETE FROM audit WHERE seq > 118").await;
    assert_eq!(verify(fresh).await, Err(AuditFault::Truncated { expected: 120, found: 118 }));
    meddle(fresh, "DELETE FROM audit WHERE seq = 50").await;
    assert_eq!(verify(fresh).await, Err(AuditFault::Gap { expected: 50, found: 51 }));
}

async fn audit_entries_are_found_by_who_and_what(fresh: &Fresh) {
    write_from_everywhere(fresh, 1, 5).await;
    let find = async |filter: AuditFilter| {
        let entries = fresh.store.audit(&filter, 2).await.unwrap();
        entries.iter().map(|entry| entry.seq).collect::<Vec<_>>()
    };
    assert_eq!(find(AuditFilter::default()).await, [1, 2]);
    assert_eq!(find(AuditFilter { before: Some(i64::MAX), ..Default::default() }).await, [5, 4]);
    assert_eq!(
        find(AuditFilter { target: Some("widget/0-3".into()), ..Default::default() }).await,
        [4]
    );
    let nobody = AuditFilter { actor: Some("bob".into()), ..Default::default() };
    assert!(find(nobody).await.is_empty());
}

/// SQLite sorts the entries of its logs into an index in runs of many thousands.
#[tokio::test(flavor = "multi_thread")]
async fn what_concerns_an_object_is_found_before_and_after_its_run_is_merged() {
    let fresh = testkit::stores::sqlite().await.expect("SQLite is always there");
    let entry = |n: usize| {
        let subject = key(["a", "b", "c"][n % 3]);
        let audit = audit("note", &subject);
        let event = kernel::change::EventDraft {
            kind: "mainstay.widget.noted".into(),
            subject,
            org: "acme".into(),
            data: Some(kernel::Json::encode(&n)),
        };
        Change { event: Some(event), audit: Some(audit), ..Change::default() }
    };
    let mut written: i64 = 0;
    for run in [900, 16_000, 600] {
        for _ in 0..run / 100 {
            let batch = (written..written + 100).map(|n| entry(n as usize)).collect();
            fresh.store.commit_all(batch, NOW).await.unwrap();
            written += 100;
        }
        for (n, id) in (1..).zip(["a", "b", "c"]) {
            let expected: Vec<i64> = (n..=written).step_by(3).collect();
            let filter = EventFilter { subject: Some(key(id)), ..Default::default() };
            let events = fresh.store.events(0, &filter, 20_000).await.unwrap();
            assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), expected);
            let late = fresh.store.events(written - 4, &filter, 1).await.unwrap();
            assert_eq!(
                late.first().map(|event| event.seq),
                expected.iter().copied().find(|seq| *seq > written - 4)
            );
            let kind = EventFilter { kind: Some("widget".into()), ..Default::default() };
            let all = fresh.store.events(written - 700, &kind, 20_000).await.unwrap();
            assert_eq!((all.len(), all[0].seq), (700, written - 699));
            let filter = AuditFilter { target: Some(key(id).to_string()), ..Default::default() };
            let entries = fresh.store.audit(&filter, 20_000).await.unwrap();
            assert_eq!(entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), expected);
            let newest = AuditFilter { before: Some(i64::MAX), ..filter };
            let newest = fresh.store.audit(&newest, 1).await.unwrap();
            assert_eq!(newest.first().map(|entry| entry.seq), expected.last().copied());
        }
    }
    fresh.store.purge(&testkit::stores::old(later(1), NOW), 16_500).await.unwrap();
    let filter = EventFilter { subject: Some(key("a")), ..Default::default() };
    let left = fresh.store.events(0, &filter, 20_000).await.unwrap();
    assert_eq!(left.first().map(|event| event.seq), Some(16_501));
    let filter = EventFilter { kind: Some("widget".into()), ..Default::default() };
    assert_eq!(fresh.store.events(0, &filter, 20_000).await.unwrap().len(), 1_000);
}

/// The actions in the audit log after a widget took two hops and got there.
async fn audited(store: &dyn Store) -> Vec<String> {
    commit(store, create(widget("a", "acme"))).await.unwrap();
    for (n, (phase, hop)) in
        [("waiting", true), ("building", true), ("ready", false)].into_iter().enumerate()
    {
        let object = Object { phase: phase.into(), revision: n as i64 + 1, ..widget("a", "acme") };
        let audit = Some(audit(phase, &object.key));
        let write = Some(Write::transition(object, phase));
        commit(store, Change { write, audit, hop, ..Change::default() }).await.unwrap();
    }
    let events = store.events(0, &EventFilter::default(), 9).await.unwrap();
    assert_eq!(events.len(), 4, "each has its event");
    let head = store.head().await.unwrap();
    let entries = store.audit(&AuditFilter::default(), 9).await.unwrap();
    let mut check = AuditCheck::default();
    entries.iter().for_each(|entry| check.next(entry).unwrap());
    check.end(&head).unwrap();
    entries.into_iter().map(|entry| entry.entry.action).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hops_are_audited_only_if_configured() {
    let cases = [
        (AuditTransitions::Command, vec!["create", "ready"]),
        (AuditTransitions::All, vec!["create", "waiting", "building", "ready"]),
    ];
    for (transitions, actions) in cases {
        let config = AuditConfig { transitions };
        let mut memory = Memory::default();
        memory.audit = config;
        assert_eq!(audited(&memory).await, actions);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mainstay.db");
        let mut sqlite = Sqlite::open(&file, Ambient::system(), uncounted()).unwrap();
        sqlite.audit = config;
        assert_eq!(audited(&sqlite).await, actions);
        let Some(database) = Database::create().await else { continue };
        let mut postgres = Postgres::open(database.url(), uncounted()).await.unwrap();
        postgres.audit = config;
        assert_eq!(audited(&postgres).await, actions);
    }
}
