-- Causes and effects of events, blobs, and positions of readers.

ALTER TABLE objects ADD COLUMN cause TEXT NOT NULL DEFAULT '{}';

ALTER TABLE events ADD COLUMN kind    TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN command TEXT;
ALTER TABLE events ADD COLUMN trace   TEXT;
ALTER TABLE events ADD COLUMN effects TEXT;
UPDATE events SET kind = substr(subject, 1, instr(subject, '/') - 1);
-- Filled like events_subject: up to meta.events_indexed.
CREATE TABLE events_kind (
    kind TEXT    NOT NULL,
    seq  INTEGER NOT NULL,
    PRIMARY KEY (kind, seq)
) WITHOUT ROWID;
INSERT INTO events_kind
    SELECT kind, seq FROM events WHERE seq <= (SELECT events_indexed FROM meta) ORDER BY kind, seq;

CREATE INDEX objects_deleted ON objects (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE blobs (
    key     TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    digest  TEXT    NOT NULL,
    size    INTEGER NOT NULL,
    sealed  INTEGER NOT NULL,
    parts   INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    data    BLOB    NOT NULL,
    PRIMARY KEY (key, name)
);

CREATE TABLE cursors (
    name   TEXT    PRIMARY KEY,
    seq    INTEGER NOT NULL,
    detail TEXT    NOT NULL,
    fence  INTEGER NOT NULL
) WITHOUT ROWID;

-- How far an attempt is, or what goes on outside until the next one.
ALTER TABLE queue ADD COLUMN note TEXT NOT NULL DEFAULT '';

-- What a dependency is for.
ALTER TABLE edges ADD COLUMN role TEXT NOT NULL DEFAULT '';

-- The last audit entry that is in an archive.
ALTER TABLE meta ADD COLUMN archived_seq  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN archived_hash TEXT NOT NULL DEFAULT '0000000000000000000000000000000000000000000000000000000000000000';
