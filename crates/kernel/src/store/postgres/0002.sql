-- Causes and effects of events, blobs, and positions of readers.

ALTER TABLE objects ADD COLUMN cause text NOT NULL DEFAULT '{}';

ALTER TABLE events ADD COLUMN kind    text NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN command text;
ALTER TABLE events ADD COLUMN trace   text;
ALTER TABLE events ADD COLUMN effects text;
UPDATE events SET kind = split_part(subject, '/', 1);
CREATE INDEX events_kind ON events (kind, seq);

CREATE INDEX objects_deleted ON objects (deleted_at) WHERE deleted_at IS NOT NULL;

-- The number of the newest event of each kind.
ALTER TABLE meta ADD COLUMN kinds jsonb NOT NULL DEFAULT '{}';
UPDATE meta SET kinds = (SELECT coalesce(jsonb_object_agg(kind, seq), '{}')
    FROM (SELECT kind, max(seq) AS seq FROM events GROUP BY kind) AS newest);

CREATE TABLE blobs (
    key     text    NOT NULL,
    name    text    NOT NULL,
    version bigint  NOT NULL,
    digest  text    NOT NULL,
    size    bigint  NOT NULL,
    sealed  boolean NOT NULL,
    parts   integer NOT NULL,
    at      bigint  NOT NULL,
    data    bytea   NOT NULL,
    PRIMARY KEY (key, name)
);
-- The data is compressed or encrypted.
ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE cursors (
    name   text   PRIMARY KEY,
    seq    bigint NOT NULL,
    detail text   NOT NULL,
    fence  bigint NOT NULL
);

-- The one clock by which leases and due times are kept and judged, in milliseconds since 1970.
-- Called as (SELECT clock_ms()), so that a statement reads it once and can use an index.
CREATE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql VOLATILE
    AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint';

-- How far an attempt is, or what goes on outside until the next one.
ALTER TABLE queue ADD COLUMN note text NOT NULL DEFAULT '';

-- What a dependency is for.
ALTER TABLE edges ADD COLUMN role text NOT NULL DEFAULT '';

-- The last audit entry that is in an archive.
ALTER TABLE meta ADD COLUMN archived_seq  bigint NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN archived_hash text NOT NULL DEFAULT repeat('0', 64);
