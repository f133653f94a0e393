-- The eight tables, and one row of bookkeeping. Times are milliseconds since 1970.

CREATE TABLE objects (
    num         bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key         text     NOT NULL UNIQUE,
    kind        text     NOT NULL,
    org         text     NOT NULL,
    owner       text     NOT NULL,
    name        text     NOT NULL,
    description text     NOT NULL,
    phase       text     NOT NULL,
    labels      jsonb    NOT NULL,
    spec        json     NOT NULL,
    status      json     NOT NULL,
    words       tsvector NOT NULL,
    generation  bigint   NOT NULL,
    observed    bigint   NOT NULL,
    revision    bigint   NOT NULL,
    created_at  bigint   NOT NULL,
    updated_at  bigint   NOT NULL,
    deleted_at  bigint
) WITH (fillfactor = 80);
CREATE INDEX objects_kind   ON objects (kind, num) WHERE deleted_at IS NULL;
CREATE INDEX objects_org    ON objects (org, kind, num) WHERE deleted_at IS NULL;
CREATE INDEX objects_owner  ON objects (owner, num) WHERE deleted_at IS NULL;
CREATE INDEX objects_phase  ON objects (phase, num);
CREATE INDEX objects_name   ON objects (name, num);
CREATE INDEX objects_labels ON objects USING gin (labels jsonb_path_ops);
CREATE INDEX objects_words  ON objects USING gin (words);

CREATE TABLE edges (
    dependent  text NOT NULL,
    dependency text NOT NULL,
    PRIMARY KEY (dependent, dependency)
);
CREATE INDEX edges_dependency ON edges (dependency, dependent);

CREATE TABLE queue (
    key     text     PRIMARY KEY,
    org     text     NOT NULL,
    lane    smallint NOT NULL,
    state   smallint NOT NULL,
    paused  boolean  NOT NULL,
    due     bigint   NOT NULL,
    attempt integer  NOT NULL,
    fence   bigint   NOT NULL,
    worker  text     NOT NULL,
    woken   bigint,
    reason  text     NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX queue_ready ON queue (lane, org, due) WHERE state = 0 AND NOT paused;
CREATE INDEX queue_due   ON queue (due) WHERE state IN (1, 2);
-- Fencing numbers: never given twice, also when a claim is rolled back.
CREATE SEQUENCE queue_fence;

CREATE TABLE events (
    seq     bigint PRIMARY KEY,
    type    text   NOT NULL,
    subject text   NOT NULL,
    org     text   NOT NULL,
    at      bigint NOT NULL,
    data    text   NOT NULL
);
CREATE INDEX events_subject ON events (subject, seq);

CREATE TABLE audit (
    seq        bigint PRIMARY KEY,
    at         bigint NOT NULL,
    actor      text   NOT NULL,
    action     text   NOT NULL,
    target     text   NOT NULL,
    org        text   NOT NULL,
    origin     text   NOT NULL,
    outcome    text   NOT NULL,
    request_id text   NOT NULL,
    before     text   NOT NULL,
    after      text   NOT NULL,
    hash       text   NOT NULL
);
CREATE INDEX audit_target ON audit (target, seq);

-- A counter is the row with an empty holder: how much is used, of how much.
CREATE TABLE allotments (
    counter text   NOT NULL,
    holder  text   NOT NULL,
    amount  bigint NOT NULL,
    cap     bigint NOT NULL,
    PRIMARY KEY (counter, holder)
);

CREATE TABLE leases (
    name   text   PRIMARY KEY,
    holder text   NOT NULL,
    fence  bigint NOT NULL,
    until  bigint NOT NULL
);

CREATE TABLE commands (
    id     text    PRIMARY KEY,
    digest text    NOT NULL,
    status integer NOT NULL,
    body   text    NOT NULL,
    at     bigint  NOT NULL
);
CREATE INDEX commands_at ON commands (at);
