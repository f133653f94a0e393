//! Blobs: what is written is read back, whole, by those who have the key, and goes with its owner.

use kernel::Ambient;
use kernel::blob::{BLOB_BYTES_MAX, Blobs};
use kernel::change::Refusal;

use testkit::stores::Fresh;

use crate::*;

on_every_store!(
    a_blob_is_read_back_as_it_was_written,
    a_blob_that_was_written_meanwhile_is_not_overwritten,
    blobs_go_with_their_owner,
    a_blob_that_becomes_smaller_leaves_no_parts_behind,
    a_sealed_blob_needs_its_key_and_its_place,
    an_object_that_is_too_large_is_refused,
    a_call_with_very_many_changes_is_written_in_parts,
);

fn blobs() -> Blobs {
    Blobs::new(&[7; 32], Ambient::system())
}

/// Bytes that do not compress.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = std::iter::repeat_with(|| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    next.take(bytes).collect()
}

async fn put(
    store: &dyn Store,
    expected: Option<i64>,
    data: &[u8],
    sealed: bool,
) -> kernel::change::Verdict {
    let blobs = blobs().put(&key("a"), "state", expected, data, sealed).unwrap();
    commit(store, Change { blobs, ..Change::default() }).await
}

async fn a_blob_is_read_back_as_it_was_written(fresh: &Fresh) {
    let store = &*fresh.store;
    commit(store, create(widget("a", "acme"))).await.unwrap();
    let large = noise(9 * 1024 * 1024);
    let text = vec![b'x'; 100_000];
    let mut version = 0;
    for sealed in [false, true] {
        for data in [&b""[..], b"{}", &text, &large] {
            put(store, Some(version), data, sealed).await.unwrap();
            version += 1;
            let read = blobs().get(store, &key("a"), "state").await.unwrap().unwrap();
            assert_eq!(read.version, version);
            assert!(read.data == data, "{} bytes", data.len());
            let (info, stored) = store.blob(&key("a"), "state").await.unwrap().unwrap();
            assert_eq!((info.size, info.sealed), (data.len() as i64, sealed));
            if data.len() == text.len() {
                assert!(stored.len() < 1000, "compressed");
            }
            if sealed && data.len() > 10 {
                assert!(!stored.windows(8).any(|part| data.starts_with(part)), "encrypted");
            }
        }
    }
    assert!(blobs().get(store, &key("a"), "other").await.unwrap().is_none());
}

async fn a_blob_that_was_written_meanwhile_is_not_overwritten(fresh: &Fresh) {
    let store = &*fresh.store;
    put(store, Some(0), b"one", false).await.unwrap();
    let stale = Refusal::Stale { key: key("a"), expected: 0, found: 1 };
    assert_eq!(put(store, Some(0), b"two", false).await, Err(stale));
    put(store, Some(1), b"two", false).await.unwrap();
    put(store, None, b"three", false).await.unwrap();
    let read = blobs().get(store, &key("a"), "state").await.unwrap().unwrap();
    assert_eq!((read.version, read.data.as_slice()), (3, &b"three"[..]));
}

async fn blobs_go_with_their_owner(fresh: &Fresh) {
    let store = &*fresh.store;
    for id in ["a", "b"] {
        commit(store, create(widget(id, "acme"))).await.unwrap();
        let blobs = blobs().put(&key(id), "state", None, b"x", true).unwrap();
        commit(store, Change { blobs, ..Change::default() }).await.unwrap();
    }
    let mut gone = store.get(&[key("a")]).await.unwrap().remove(0);
    gone.deleted_at = Some(NOW);
    commit(store, Change { write: Some(Write::update(gone, "deleted")), ..Change::default() })
        .await
        .unwrap();
    assert!(store.blobs(&key("a")).await.unwrap().is_empty());
    assert_eq!(store.blobs(&key("b")).await.unwrap().len(), 1);
}

async fn a_blob_that_becomes_smaller_leaves_no_parts_behind(fresh: &Fresh) {
    let store = &*fresh.store;
    commit(store, create(widget("a", "acme"))).await.unwrap();
    let large = noise(17 * 1024 * 1024);
    let names = async || -> Vec<String> {
        let blobs = store.blobs(&key("a")).await.unwrap();
        blobs.into_iter().map(|blob| blob.name).collect()
    };
    let other = blobs().put(&key("a"), "state2", None, &large, false).unwrap();
    commit(store, Change { blobs: other, ..Change::default() }).await.unwrap();
    put(store, None, &large, true).await.unwrap();
    let others = ["state2", "state2#1", "state2#2"];
    let with = |ours: &[&'static str]| [ours, &others].concat();
    assert_eq!(names().await, with(&["state", "state#1", "state#2"]));
    put(store, None, &large[..9 * 1024 * 1024], true).await.unwrap();
    assert_eq!(names().await, with(&["state", "state#1"]));
    // Large and small again in one batch, and the other way round.
    let change = |data: &[u8]| {
        let blobs = blobs().put(&key("a"), "state", None, data, false).unwrap();
        Change { blobs, ..Change::default() }
    };
    let batch = vec![change(b"small"), change(&large), change(b"small")];
    store.commit_all(batch, NOW).await.unwrap();
    assert_eq!(names().await, with(&["state"]));
    store.commit_all(vec![change(b"small"), change(&large[..9 << 20])], NOW).await.unwrap();
    assert_eq!(names().await, with(&["state", "state#1"]));
    let read = blobs().get(store, &key("a"), "state").await.unwrap().unwrap();
    assert!(read.data == large[..9 << 20]);
    put(store, None, b"small", false).await.unwrap();
    let copy = testkit::stores::memory().await.unwrap();
    testkit::replay::replay(store, &*copy.store).await.unwrap();
    let copied = copy.store.blobs(&key("a")).await.unwrap();
    assert_eq!(copied.len(), 4, "a copy has no more: {copied:?}");
}

async fn a_sealed_blob_needs_its_key_and_its_place(fresh: &Fresh) {
    let store = &*fresh.store;
    put(store, None, b"a secret", true).await.unwrap();
    let other = Blobs::new(&[8; 32], Ambient::system());
    let message = other.get(store, &key("a"), "state").await.unwrap_err().to_string();
    assert!(message.contains("widget/a state cannot be opened"), "{message}");
    // A part that was copied to another name is not taken for it.
    let (_, data) = store.blob(&key("a"), "state").await.unwrap().unwrap();
    let mut copied = blobs().put(&key("a"), "copy", None, b"a secret", true).unwrap();
    if let kernel::blob::BlobWrite::Put { data: stored, .. } = &mut copied[0] {
        stored.data = data;
    }
    commit(store, Change { blobs: copied, ..Change::default() }).await.unwrap();
    assert!(blobs().get(store, &key("a"), "copy").await.is_err());
}

#[test]
fn a_blob_that_is_too_large_is_refused_by_its_name() {
    let message = blobs().put(&key("a"), "state", None, &vec![0; BLOB_BYTES_MAX + 1], false);
    let message = message.unwrap_err().to_string();
    assert!(message.starts_with("widget/a state: has ") && message.contains("limit"), "{message}");
}

async fn an_object_that_is_too_large_is_refused(fresh: &Fresh) {
    let store = &*fresh.store;
    let mut object = widget("a", "acme");
    object.spec = kernel::Json::encode(&"x".repeat(300 * 1024));
    object.status = kernel::Json::encode(&"x".repeat(250 * 1024));
    let refused = commit(store, create(object.clone())).await.unwrap_err();
    assert!(matches!(refused, Refusal::TooLarge { .. }), "{refused}");
    object.status = kernel::Json::default();
    commit(store, create(object)).await.unwrap();
}

async fn a_call_with_very_many_changes_is_written_in_parts(fresh: &Fresh) {
    let store = &*fresh.store;
    let mut changes: Vec<Change> =
        (0..1100).map(|n| create(widget(&n.to_string(), "acme"))).collect();
    // The last two belong together, and the second of them is refused.
    changes.push(create(widget("first", "acme")));
    changes.push(Change { follows: true, ..create(widget("0", "acme")) });
    let verdicts = store.commit_all(changes, NOW).await.unwrap();
    assert_eq!(verdicts.len(), 1102);
    assert!(verdicts[..1100].iter().all(Result::is_ok));
    let exists = Err(Refusal::Exists(key("0")));
    assert_eq!(verdicts[1100..], [exists.clone(), exists]);
    assert!(store.get(&[key("first")]).await.unwrap().is_empty());
    assert_eq!(store.head().await.unwrap().event_seq, 1100);
}
