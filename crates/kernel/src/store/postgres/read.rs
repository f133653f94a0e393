//! Reads: objects, lists and searches.

use tokio_postgres::types::ToSql;

use crate::Key;
use crate::log::EventFilter;
use crate::query::ObjectQuery;
use crate::store::EVENTS_BYTES_MAX;
use crate::store::sql::{self, Select, Value, Where, related};

const COLUMNS: &str = "num, key, org, owner, name, description, phase, labels::text, spec::text, status::text, generation, observed, revision, created_at, updated_at, deleted_at, cause";

/// A value of a query.
pub struct Param(pub Box<dyn ToSql + Sync + Send>);

impl<T: ToSql + Sync + Send + 'static> From<T> for Param {
    fn from(value: T) -> Param {
        Param(Box::new(value))
    }
}

impl Value for Param {
    const PLACEHOLDER: char = '$';

    fn kind_of(column: &str) -> String {
        format!("split_part({column}, '/', 1)")
    }
}

pub fn objects(keys: &[Key]) -> Select<Param> {
    let sql = format!(
        "SELECT {COLUMNS} FROM unnest($1::text[]) WITH ORDINALITY AS wanted (key, place)
         JOIN objects USING (key) ORDER BY place"
    );
    let keys: Vec<String> = keys.iter().map(|key| key.as_str().to_owned()).collect();
    Select { sql, values: vec![keys.into()] }
}

/// Selects a page of events. The sizes are those of the stored values: nothing is read for them.
pub fn events(after: i64, filter: &EventFilter, limit: usize) -> Select<Param> {
    let Select { sql, values } = sql::events("events", after, filter, limit);
    let sql = format!(
        "SELECT * FROM (
             SELECT *, coalesce(sum(octet_length(data)) OVER (
                 ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
             FROM ({sql}) AS page) AS sized
         WHERE bytes_before < {EVENTS_BYTES_MAX} ORDER BY seq"
    );
    Select { sql, values }
}

/// Selects one object more than the page has.
pub fn find(find: &ObjectQuery) -> Select<Param> {
    let mut filter = Where::new();
    if !find.words.is_empty() {
        let query: Vec<String> = find.words.iter().map(|word| format!("'{word}':*")).collect();
        filter.and("words @@ ?::text::tsquery", query.join(" & "));
    }
    if !find.labels.is_empty() {
        let labels: std::collections::BTreeMap<_, _> = find.labels.iter().cloned().collect();
        filter.and("labels @> ?::text::jsonb", serde_json::to_string(&labels).unwrap_or_default());
    }
    related(&mut filter, find);
    filter.maybe("org = ?", find.org.clone());
    filter.maybe("owner = ?", find.owner.clone());
    filter.maybe("kind = ?", find.kind.clone());
    filter.maybe("phase = ?", find.phase.clone());
    filter.maybe("name = ?", find.name.clone());
    filter.maybe("num < ?", find.after);
    if !find.deleted {
        filter.plain("deleted_at IS NULL");
    }
    filter.order_by(&format!("SELECT {COLUMNS} FROM objects"), "num DESC", find.limit + 1)
}
