-- The eight tables, and one row of bookkeeping. Times are milliseconds since 1970.

CREATE TABLE meta (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    event_seq  INTEGER NOT NULL,
    audit_seq  INTEGER NOT NULL,
    audit_hash TEXT    NOT NULL,
    fence      INTEGER NOT NULL,
    -- How far events_subject and audit_target reach.
    events_indexed INTEGER NOT NULL,
    audit_indexed  INTEGER NOT NULL
);

CREATE TABLE objects (
    num         INTEGER PRIMARY KEY AUTOINCREMENT,
    key         TEXT    NOT NULL UNIQUE,
    kind        TEXT    NOT NULL,
    org         TEXT    NOT NULL,
    owner       TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    description TEXT    NOT NULL,
    phase       TEXT    NOT NULL,
    labels      TEXT    NOT NULL,
    spec        TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    generation  INTEGER NOT NULL,
    observed    INTEGER NOT NULL,
    revision    INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    deleted_at  INTEGER
);
CREATE INDEX objects_kind  ON objects (kind, num) WHERE deleted_at IS NULL;
CREATE INDEX objects_org   ON objects (org, kind, num) WHERE deleted_at IS NULL;
CREATE INDEX objects_owner ON objects (owner, num);
CREATE INDEX objects_phase ON objects (phase, num);
CREATE INDEX objects_name  ON objects (name, num);

-- The words of name, description and labels, and a tag for each label. Holds no copy of the text.
CREATE VIRTUAL TABLE objects_text USING fts5 (
    words, tags, content = '', contentless_delete = 1, detail = column, prefix = '2 3',
    tokenize = 'unicode61 remove_diacritics 0'
);

CREATE TABLE edges (
    dependent  TEXT NOT NULL,
    dependency TEXT NOT NULL,
    PRIMARY KEY (dependent, dependency)
) WITHOUT ROWID;
CREATE INDEX edges_dependency ON edges (dependency, dependent);

CREATE TABLE queue (
    key     TEXT    PRIMARY KEY,
    org     TEXT    NOT NULL,
    lane    INTEGER NOT NULL,
    state   INTEGER NOT NULL,
    paused  INTEGER NOT NULL,
    due     INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    fence   INTEGER NOT NULL,
    worker  TEXT    NOT NULL,
    woken   INTEGER,
    reason  TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX queue_ready ON queue (lane, org, due) WHERE state = 0 AND paused = 0;
CREATE INDEX queue_due   ON queue (due) WHERE state IN (1, 2);

CREATE TABLE events (
    seq     INTEGER PRIMARY KEY,
    type    TEXT    NOT NULL,
    subject TEXT    NOT NULL,
    org     TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    data    TEXT    NOT NULL
);
CREATE TABLE events_subject (
    subject TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (subject, seq)
) WITHOUT ROWID;

CREATE TABLE audit (
    seq        INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    actor      TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    target     TEXT    NOT NULL,
    org        TEXT    NOT NULL,
    origin     TEXT    NOT NULL,
    outcome    TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    before     TEXT    NOT NULL,
    after      TEXT    NOT NULL,
    hash       TEXT    NOT NULL
);
CREATE TABLE audit_target (
    target TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (target, seq)
) WITHOUT ROWID;

-- A counter is the row with an empty holder: how much is used, of how much.
CREATE TABLE allotments (
    counter TEXT    NOT NULL,
    holder  TEXT    NOT NULL,
    amount  INTEGER NOT NULL,
    cap     INTEGER NOT NULL,
    PRIMARY KEY (counter, holder)
) WITHOUT ROWID;

CREATE TABLE leases (
    name   TEXT    PRIMARY KEY,
    holder TEXT    NOT NULL,
    fence  INTEGER NOT NULL,
    until  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE commands (
    id     TEXT    PRIMARY KEY,
    digest TEXT    NOT NULL,
    status INTEGER NOT NULL,
    body   TEXT    NOT NULL,
    at     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX commands_at ON commands (at);

INSERT INTO meta VALUES (1, 0, 0, '0000000000000000000000000000000000000000000000000000000000000000', 0, 0, 0);
