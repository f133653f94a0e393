//! Answers about single instances that were rendered lately: whoever asks again gets the same bytes.
//!
//! A fixed number of places, and a row can be in one only: so it takes as much memory as it takes,
//! whatever is asked for, and finding one is one look. A row that changes is another row, and a kind
//! that is read anew another kind; neither finds what was rendered before.

use std::sync::{Arc, Weak};

use axum::body::Bytes;
use parking_lot::Mutex;

use crate::model::kind::Kind;
use crate::store::index::Row;

/// A few megabytes when all of them are taken.
const PLACES: usize = 2048;

pub struct Rendered(Vec<Mutex<Option<CachedBody>>>);

/// What it was rendered from is not kept alive; that its place in memory is not another's, is.
struct CachedBody {
    row: Weak<Row>,
    kind: Weak<Kind>,
    bytes: Bytes,
}

impl Default for Rendered {
    fn default() -> Rendered {
        Rendered((0..PLACES).map(|_| Mutex::default()).collect())
    }
}

impl Rendered {
    /// The answer about a row, rendered if it is not here.
    pub fn get(&self, kind: &Arc<Kind>, row: &Arc<Row>, render: impl Fn() -> Bytes) -> Bytes {
        let place = &self.0[place(row)];
        let of = |cached: &&CachedBody| {
            std::ptr::eq(cached.row.as_ptr(), Arc::as_ptr(row))
                && std::ptr::eq(cached.kind.as_ptr(), Arc::as_ptr(kind))
        };
        if let Some(cached) = place.lock().as_ref().filter(of) {
            return cached.bytes.clone();
        }
        let bytes = render();
        let (row, kind) = (Arc::downgrade(row), Arc::downgrade(kind));
        *place.lock() = Some(CachedBody { row, kind, bytes: bytes.clone() });
        bytes
    }
}

fn place(row: &Arc<Row>) -> usize {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(Arc::as_ptr(row));
    hash as usize % PLACES
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
    fn an_answer_is_rendered_once_for_a_row_and_a_kind() {
        let (rendered, kind, row) = (Rendered::default(), kafka(), row("a"));
        let get = |kind: &_, row: &_, text: &'static str| rendered.get(kind, row, || text.into());
        assert_eq!(get(&kind, &row, "first"), "first");
        assert_eq!(get(&kind, &row, "second"), "first");
        assert_eq!(
            get(&kafka(), &row, "of a kind that was read anew"),
            "of a kind that was read anew"
        );
        let changed = self::row("b");
        assert_eq!(get(&kind, &changed, "of a row that changed"), "of a row that changed");
    }

    #[test]
    fn rows_that_come_and_go_never_find_what_was_rendered_of_others() {
        let (rendered, kind) = (Rendered::default(), kafka());
        for n in 0..3 * PLACES {
            // Each takes the memory that the one before it gave back, if nothing holds it.
            let (row, text) = (row("x"), n.to_string());
            let got = rendered.get(&kind, &row, || text.clone().into());
            assert_eq!(got, text);
        }
    }
}
