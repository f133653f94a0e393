//! The statements of a commit, prepared once for each connection.

use deadpool_postgres::Object as Pooled;
use tokio_postgres::{Error, Statement};

macro_rules! statements {
    ($($name:ident: $sql:expr,)*) => {
        /// Prepared statements of one connection.
        pub struct Statements { $(pub $name: Statement,)* }

        impl Statements {
            /// Takes them from the connection's cache, or prepares them.
            pub async fn of(client: &Pooled) -> Result<Statements, Error> {
                Ok(Statements { $($name: client.prepare_cached($sql).await?,)* })
            }
        }
    };
}

statements! {
    clock: "SELECT clock_ms()",
    objects_lock: "SELECT key, revision FROM objects WHERE key = ANY($1) ORDER BY key FOR NO KEY UPDATE",
    dependents: "SELECT dependency, dependent, coalesce(org, '')
        FROM unnest($1::text[]) AS woken (dependency) CROSS JOIN LATERAL (
            SELECT dependent FROM edges WHERE edges.dependency = woken.dependency
            ORDER BY dependent LIMIT $2) AS first
        LEFT JOIN objects ON key = dependent",
    dependencies: "SELECT dependent, dependency, coalesce(org, '') FROM edges
        LEFT JOIN objects ON key = dependency WHERE dependent = ANY($1)",
    queue_lock: "SELECT key, org, lane, state, paused, due, attempt, fence, worker, woken, reason, note
        FROM queue WHERE key = ANY($1) ORDER BY key FOR UPDATE",
    allotments_lock: "SELECT counter, holder, amount, cap FROM allotments
        WHERE (counter, holder) IN (SELECT * FROM unnest($1::text[], $2::text[]))
        ORDER BY counter, holder FOR UPDATE",
    leases_lock: "SELECT holder, fence, until, name FROM leases WHERE name = ANY($1) ORDER BY name FOR SHARE",
    blobs_lock: "SELECT key, name, version, parts FROM blobs
        WHERE (key, name) IN (SELECT * FROM unnest($1::text[], $2::text[]))
        ORDER BY key, name FOR UPDATE",
    cursors_lock: "SELECT name, seq, detail, fence FROM cursors WHERE name = ANY($1) ORDER BY name FOR UPDATE",
    commands_load: "SELECT id, digest, status, body, subject FROM commands WHERE id = ANY($1)",
    head_lock: "SELECT event_seq, audit_seq, audit_hash, archived_seq, archived_hash FROM meta FOR UPDATE",
    head_update: "UPDATE meta SET event_seq = $1, audit_seq = $2, audit_hash = $3, kinds = kinds || $4::text::jsonb,
        archived_seq = $5, archived_hash = $6",
    create: "INSERT INTO objects (key, kind, org, owner, name, description, phase, labels, spec, status,
            words, generation, observed, revision, created_at, updated_at, deleted_at, cause)
        SELECT key, kind, org, owner, name, description, phase, labels::jsonb, spec::json, status::json,
            array_to_tsvector(array_remove(string_to_array(words, ' '), '')), generation, observed, revision, created_at,
            updated_at, deleted_at, cause
        FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[],
            $15::bigint[], $16::bigint[], $17::bigint[], $18::text[])
        AS new (key, kind, org, owner, name, description, phase, labels, spec, status, words, generation,
            observed, revision, created_at, updated_at, deleted_at, cause)",
    update: "UPDATE objects SET kind = new.kind, org = new.org, owner = new.owner, name = new.name,
            description = new.description, phase = new.phase, labels = new.labels::jsonb,
            spec = new.spec::json, status = new.status::json,
            words = array_to_tsvector(array_remove(string_to_array(new.words, ' '), '')), generation = new.generation,
            observed = new.observed, revision = new.revision, created_at = new.created_at,
            updated_at = new.updated_at, deleted_at = new.deleted_at, cause = new.cause
        FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[],
            $15::bigint[], $16::bigint[], $17::bigint[], $18::text[])
        AS new (key, kind, org, owner, name, description, phase, labels, spec, status, words, generation,
            observed, revision, created_at, updated_at, deleted_at, cause)
        WHERE objects.key = new.key",
    transition: "UPDATE objects SET phase = new.phase, status = new.status::json, observed = new.observed,
            revision = new.revision, updated_at = new.updated_at
        FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
        AS new (key, phase, status, observed, revision, updated_at)
        WHERE objects.key = new.key",
    edges_delete: "DELETE FROM edges WHERE dependent = ANY($1)",
    edges_insert: "INSERT INTO edges SELECT * FROM unnest($1::text[], $2::text[], $3::text[])",
    queue_insert: "INSERT INTO queue (key, org, lane, state, paused, due, attempt, fence, worker, woken, reason, note)
        SELECT * FROM unnest($1::text[], $2::text[], $3::smallint[], $4::smallint[], $5::boolean[],
            $6::bigint[], $7::integer[], $8::bigint[], $9::text[], $10::bigint[], $11::text[],
            $12::text[])",
    queue_update: "UPDATE queue SET org = new.org, lane = new.lane, state = new.state, paused = new.paused,
            due = new.due, attempt = new.attempt, fence = new.fence, worker = new.worker,
            woken = new.woken, reason = new.reason, note = new.note
        FROM unnest($1::text[], $2::text[], $3::smallint[], $4::smallint[], $5::boolean[],
            $6::bigint[], $7::integer[], $8::bigint[], $9::text[], $10::bigint[], $11::text[],
            $12::text[])
        AS new (key, org, lane, state, paused, due, attempt, fence, worker, woken, reason, note)
        WHERE queue.key = new.key",
    queue_delete: "DELETE FROM queue WHERE key = ANY($1)",
    allotments_insert: "INSERT INTO allotments
        SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])",
    allotments_update: "UPDATE allotments a SET amount = new.amount, cap = new.cap
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS new (counter, holder, amount, cap)
        WHERE a.counter = new.counter AND a.holder = new.holder",
    allotments_delete: "DELETE FROM allotments
        WHERE (counter, holder) IN (SELECT * FROM unnest($1::text[], $2::text[]))",
    commands_insert: "INSERT INTO commands
        SELECT id, digest, status, body, $5, subject
        FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[], $6::text[])
        AS new (id, digest, status, body, subject)",
    events_insert: "INSERT INTO events (seq, type, subject, org, at, data, kind, command, trace, effects)
        SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[],
            $7::text[], $8::text[], $9::text[], $10::text[])",
    blobs_remove: "DELETE FROM blobs USING unnest($1::text[], $2::text[]) AS gone (key, name)
        WHERE blobs.key = gone.key AND (gone.name IS NULL OR blobs.name = gone.name)",
    blobs_put: "INSERT INTO blobs
        SELECT key, name, version, digest, size, sealed, parts, $9, data
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::boolean[],
            $7::integer[], $8::bytea[]) AS new (key, name, version, digest, size, sealed, parts, data)
        ON CONFLICT (key, name) DO UPDATE SET version = excluded.version, digest = excluded.digest,
            size = excluded.size, sealed = excluded.sealed, parts = excluded.parts, at = excluded.at,
            data = excluded.data",
    cursors_put: "INSERT INTO cursors
        SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[])
        ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, detail = excluded.detail, fence = excluded.fence",
    audit_insert: "INSERT INTO audit
        SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[],
            $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])",
}
