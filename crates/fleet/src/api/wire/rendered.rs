//! A cache of recently rendered instances.
//!
//! It has a fixed number of slots, and a row can be in only one of them: memory is bounded, and a
//! look-up is one comparison. A changed row is another row, and a reloaded kind another kind, so
//! neither finds what was rendered before.

use std::sync::{Arc, Weak};

use axum::body::Bytes;
use parking_lot::Mutex;

use crate::model::kind::Kind;
use crate::store::index::Row;

/// A few megabytes when all slots are used.
const SLOTS: usize = 2048;

pub struct Rendered(Vec<Mutex<Option<CachedBody>>>);

/// Weak pointers do not keep the row alive, but keep its address from being reused.
struct CachedBody {
    row: Weak<Row>,
    kind: Weak<Kind>,
    bytes: Bytes,
}

impl Default for Rendered {
    fn default() -> Rendered {
        Rendered((0..SLOTS).map(|_| Mutex::default()).collect())
    }
}

impl Rendered {
    /// Returns the rendered row, and renders it if it is not cached.
    pub fn get(&self, kind: &Arc<Kind>, row: &Arc<Row>, render: impl Fn() -> Bytes) -> Bytes {
        let slot = &self.0[slot_of(row)];
        let of = |cached: &&CachedBody| {
            std::ptr::eq(cached.row.as_ptr(), Arc::as_ptr(row))
                && std::ptr::eq(cached.kind.as_ptr(), Arc::as_ptr(kind))
        };
        if let Some(cached) = slot.lock().as_ref().filter(of) {
            return cached.bytes.clone();
        }
        let bytes = render();
        let (row, kind) = (Arc::downgrade(row), Arc::downgrade(kind));
        *slot.lock() = Some(CachedBody { row, kind, bytes: bytes.clone() });
        bytes
    }
}

fn slot_of(row: &Arc<Row>) -> usize {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(Arc::as_ptr(row));
    hash as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::instance::{Instance, Phase, Spec, Status};
    use kernel::Timestamp;

    fn row(name: &str) -> Arc<Row> {
        let instance = Instance {
            id: "k1".into(),
            kind: "kafka".into(),
            org: "acme".into(),
            owner: "alice".into(),
            name: name.into(),
            phase: Phase::Ready,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            revision: 1,
            spec: Spec::default(),
            status: Status::default(),
        };
        Arc::new(Row { instance, seq: 1 })
    }

    fn kafka() -> Arc<Kind> {
        let text = include_str!("../../../../../kinds/kafka.yaml");
        Arc::new(Kind::read("kafka.yaml", text).unwrap())
    }

    #[test]
    fn a_row_is_rendered_once_for_a_kind() {
        let (rendered, kind, row) = (Rendered::default(), kafka(), row("a"));
        let get = |kind: &_, row: &_, text: &'static str| rendered.get(kind, row, || text.into());
        assert_eq!(get(&kind, &row, "first"), "first");
        assert_eq!(get(&kind, &row, "second"), "first");
        assert_eq!(
            get(&kafka(), &row, "of a kind that was reloaded"),
            "of a kind that was reloaded"
        );
        let changed = self::row("b");
        assert_eq!(get(&kind, &changed, "of a row that changed"), "of a row that changed");
    }

    #[test]
    fn a_new_row_never_finds_the_rendering_of_another() {
        let (rendered, kind) = (Rendered::default(), kafka());
        for n in 0..3 * SLOTS {
            // Each row would get the address of the previous one if nothing held it.
            let (row, text) = (row("x"), n.to_string());
            let got = rendered.get(&kind, &row, || text.clone().into());
            assert_eq!(got, text);
        }
    }
}
