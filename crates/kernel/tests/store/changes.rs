//! A change is carried out whole or refused whole, each on its own.

use kernel::change::{CommandRecord, CommandReply, Refusal, Write};
use kernel::{Change, Class, Json, Object};
use testkit::stores::Fresh;

use crate::*;

on_every_store!(
    an_object_reads_back_as_it_was_written,
    each_change_of_a_batch_is_decided_on_its_own,
    a_stale_write_is_refused_and_leaves_nothing_behind,
    later_changes_of_a_batch_see_earlier_ones,
    a_change_that_read_something_stale_is_refused,
    edits_at_the_same_time_are_all_made,
    a_command_is_carried_out_once_and_answers_the_same,
    a_transition_keeps_what_it_does_not_name,
    names_keep_every_character,
    what_a_store_cannot_hold_fails_alone_and_for_good,
);

async fn an_object_reads_back_as_it_was_written(fresh: &Fresh) {
    let mut object = widget("a", "acme");
    object.description = "a blue one".into();
    object.labels.insert("team".into(), "core".into());
    object.spec = Json::encode(&serde_json::json!({"size": 3, "nested": {"x": [1, 2.5, null]}}));
    commit(&*fresh.store, create(object.clone())).await.unwrap();
    assert_eq!(fresh.store.get(&[object.key.clone()]).await.unwrap(), [object]);
    assert_eq!(fresh.store.get(&[key("nobody")]).await.unwrap(), []);
}

async fn each_change_of_a_batch_is_decided_on_its_own(fresh: &Fresh) {
    commit(&*fresh.store, create(widget("a", "acme"))).await.unwrap();
    let batch =
        vec![create(widget("b", "acme")), create(widget("a", "acme")), create(widget("c", "acme"))];
    let verdicts = fresh.store.commit_all(batch, NOW).await.unwrap();
    assert!(verdicts[0].is_ok() && verdicts[2].is_ok());
    assert_eq!(verdicts[1], Err(Refusal::Exists(key("a"))));
    let head = fresh.store.head().await.unwrap();
    assert_eq!((head.event_seq, head.audit_seq), (3, 3), "a refused change takes no number");
}

async fn a_stale_write_is_refused_and_leaves_nothing_behind(fresh: &Fresh) {
    let store = &*fresh.store;
    commit(store, create(widget("a", "acme"))).await.unwrap();
    let object = store.get(&[key("a")]).await.unwrap().remove(0);
    let write = |phase: &str| {
        let object = Object { phase: phase.into(), ..object.clone() };
        Change {
            write: Some(Write::update(object, "updated")),
            wakes: vec![wake(&key("x"), "acme", NOW)],
            ..Change::default()
        }
    };
    let accepted = commit(store, Change { wakes: vec![], ..write("ready") }).await.unwrap();
    assert_eq!(accepted.revision, Some(2));
    let refused = commit(store, write("failed")).await;
    assert_eq!(refused, Err(Refusal::Stale { key: key("a"), expected: 1, found: 2 }));
    assert_eq!(store.get(&[key("a")]).await.unwrap()[0].phase, "ready");
    let filter = kernel::store::WorkFilter { key: Some(key("x")), ..Default::default() };
    assert_eq!(store.work(&filter, 10).await.unwrap(), [], "its wake-up went with it");
    let nobody = Change {
        write: Some(Write::update(widget("nobody", "acme"), "updated")),
        ..Change::default()
    };
    assert_eq!(commit(store, nobody).await, Err(Refusal::Missing(key("nobody"))));
}

async fn later_changes_of_a_batch_see_earlier_ones(fresh: &Fresh) {
    let object = widget("a", "acme");
    let update = |revision, phase: &str| {
        let object = Object { revision, phase: phase.into(), ..object.clone() };
        Change { write: Some(Write::transition(object, "ready")), ..Change::default() }
    };
    let batch = vec![create(object.clone()), update(1, "one"), update(1, "lost"), update(2, "two")];
    let verdicts = fresh.store.commit_all(batch, NOW).await.unwrap();
    let accepted: Vec<bool> = verdicts.iter().map(|verdict| verdict.is_ok()).collect();
    assert_eq!(accepted, [true, true, false, true]);
    let stored = fresh.store.get(&[key("a")]).await.unwrap().remove(0);
    assert_eq!((stored.phase.as_str(), stored.revision), ("two", 3));
}

async fn a_change_that_read_something_stale_is_refused(fresh: &Fresh) {
    let store = &*fresh.store;
    commit(store, create(widget("a", "acme"))).await.unwrap();
    let read = |revision| Change {
        expects: vec![(key("a"), revision)],
        wakes: vec![wake(&key("b"), "acme", NOW)],
        ..Change::default()
    };
    assert!(commit(store, read(1)).await.is_ok());
    assert_eq!(
        commit(store, read(2)).await,
        Err(Refusal::Stale { key: key("a"), expected: 2, found: 1 })
    );
}

/// The first of them makes it; each of the others adds to what it finds.
async fn edits_at_the_same_time_are_all_made(fresh: &Fresh) {
    let ambient = kernel::Ambient::system();
    let edit = async || {
        kernel::store::edit(&*fresh.store, &ambient, &key("a"), |there, _| {
            let mut object = there.cloned().unwrap_or_else(|| widget("a", "acme"));
            let size = object.spec.parse::<i64>().unwrap_or(0) + 1;
            object.spec = Json::encode(&size);
            let change = match there {
                Some(_) => {
                    Change { write: Some(Write::update(object, "updated")), ..Change::default() }
                }
                None => create(object),
            };
            Ok((Some(change), size))
        })
        .await
        .unwrap()
    };
    let mut sizes = futures::future::join_all((0..10).map(|_| edit())).await;
    sizes.sort_unstable();
    assert_eq!(sizes, (1..=10).collect::<Vec<i64>>());
    let nothing = |there: Option<&Object>, _| Ok((None, there.map(|object| object.revision)));
    let found = kernel::store::edit(&*fresh.store, &ambient, &key("a"), nothing).await.unwrap();
    assert_eq!(found, Some(10), "and nothing was written");
    let found = kernel::store::edit(&*fresh.store, &ambient, &key("a"), nothing).await.unwrap();
    assert_eq!(found, Some(10));
}

async fn a_command_is_carried_out_once_and_answers_the_same(fresh: &Fresh) {
    let store = &*fresh.store;
    let with = |id: &str, digest: &str, body: &str| {
        let answer = CommandReply { status: 202, body: Json::encode(body) };
        let command = CommandRecord {
            id: "alice/1".into(),
            digest: digest.into(),
            reply: answer,
            subject: Some(Key::new("widget", id)),
        };
        Change { command: Some(command), ..create(widget(id, "acme")) }
    };
    let batch = vec![with("a", "d1", "first"), with("b", "d1", "second")];
    let verdicts = store.commit_all(batch, NOW).await.unwrap();
    assert!(verdicts[0].is_ok());
    let answer = CommandReply { status: 202, body: Json::encode("first") };
    let repeated = Err(Refusal::Repeated { id: "alice/1".into(), reply: answer.clone() });
    assert_eq!(verdicts[1], repeated);
    assert_eq!(
        commit(store, with("a", "d1", "third")).await,
        repeated,
        "also later, and before `exists`"
    );
    assert_eq!(
        commit(store, with("c", "d2", "other")).await,
        Err(Refusal::Mismatch { id: "alice/1".into() })
    );
    assert_eq!(store.command("alice/1").await.unwrap().unwrap().reply, answer);
    store.purge(&testkit::stores::old(NOW, later(1)), 100).await.unwrap();
    assert_eq!(store.command("alice/1").await.unwrap(), None, "forgotten after its time");
}

async fn a_transition_keeps_what_it_does_not_name(fresh: &Fresh) {
    let store = &*fresh.store;
    commit(store, create(widget("a", "acme"))).await.unwrap();
    let mut object = store.get(&[key("a")]).await.unwrap().remove(0);
    object.phase = "ready".into();
    object.observed = 1;
    object.status = Json::encode(&serde_json::json!({"ok": true}));
    commit(
        store,
        Change { write: Some(Write::transition(object.clone(), "ready")), ..Change::default() },
    )
    .await
    .unwrap();
    object.revision = 2;
    assert_eq!(store.get(&[key("a")]).await.unwrap(), [object]);
}

async fn names_keep_every_character(fresh: &Fresh) {
    for (n, name) in
        ["🚀 rocket", "\u{202e}right to left", "quote ' \" \\ ; --", "%_*?", "naïve Ünïcode 名前"]
            .iter()
            .enumerate()
    {
        let mut object = widget(&format!("n{n}"), "acme");
        object.name = (*name).into();
        object.labels.insert("k'\"".into(), (*name).into());
        commit(&*fresh.store, create(object.clone())).await.unwrap();
        assert_eq!(fresh.store.get(&[object.key.clone()]).await.unwrap(), [object]);
    }
}

/// PostgreSQL has no NUL in text. A change with one must not fail the others of its batch.
async fn what_a_store_cannot_hold_fails_alone_and_for_good(fresh: &Fresh) {
    let mut commits = tokio::task::JoinSet::new();
    for n in 0..40 {
        let store = fresh.store.clone();
        let mut object = widget(&n.to_string(), "acme");
        if n % 8 == 0 {
            object.description = "a\0b".into();
        }
        commits.spawn(async move { (n, store.commit_all(vec![create(object)], NOW).await) });
    }
    for (n, done) in commits.join_all().await {
        match done {
            Ok(verdicts) => assert!(verdicts[0].is_ok(), "{n}: {verdicts:?}"),
            Err(error) if n % 8 == 0 => assert_eq!(error.class(), Class::Terminal, "{error}"),
            Err(error) => panic!("{n} was taken along: {error}"),
        }
    }
}
