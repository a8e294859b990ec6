-- The first schema. Needs nothing newer than SQLite 3.24.

-- Facts about the file: its schema version, its name for life, and the epoch of its owner.
-- `schema` is set by whoever runs the migration, in the same transaction.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES
    ('schema', 0),
    ('database', lower(hex(randomblob(16)))),
    ('epoch', 0);

-- One row for each run: where its log ends, and the summary its host last wrote.
CREATE TABLE runs (
    id      INTEGER PRIMARY KEY,
    run     TEXT    NOT NULL UNIQUE,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    hash    BLOB    NOT NULL,
    last    INTEGER NOT NULL, -- the position of its last entry
    summary BLOB              -- null until one was written
);

-- The log. `position` is the order of commits over all runs, `seq` the order within a run.
-- Appends go to the end of the file whichever run they belong to. The entries of a run are found
-- from its last one backwards, so that no index has to be kept. `body` is in the form of
-- body_form.py. (docs/decisions/0031-fewer-bytes-a-step.md)
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    run_id   INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    back     INTEGER NOT NULL, -- how many positions before it the run's entry before it is, or 0
    body     BLOB    NOT NULL,
    hash     BLOB    NOT NULL
);

-- The second chain, with a link for each commit; see audit/chain.py.
CREATE TABLE batches (
    number INTEGER PRIMARY KEY,
    first  INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    hash   BLOB    NOT NULL
);

-- Archives (stores/archive.py): the last commit that each took out of the database, and the
-- positions of the events of `$host` that record it, 0 where there is none.
CREATE TABLE archives (
    number    INTEGER PRIMARY KEY,
    commits   INTEGER NOT NULL,
    made      INTEGER NOT NULL,
    rewritten INTEGER NOT NULL,
    deleted   INTEGER NOT NULL
);

-- The runs whose entries are in an archive. Their rows in `runs` and `listed` stay.
CREATE TABLE archived (
    run_id  INTEGER PRIMARY KEY,
    archive INTEGER NOT NULL
);

-- What happened stays. These guard against accidents; the hash chains show the rest. Only what is
-- in an archive may go.
CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN
    SELECT RAISE(ABORT, 'events are append-only');
END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
WHEN NOT EXISTS (SELECT 1 FROM archived WHERE run_id = OLD.run_id) BEGIN
    SELECT RAISE(ABORT, 'events are append-only');
END;
CREATE TRIGGER batches_no_update BEFORE UPDATE ON batches BEGIN
    SELECT RAISE(ABORT, 'batches are append-only');
END;
CREATE TRIGGER batches_no_delete BEFORE DELETE ON batches
WHEN OLD.number > (SELECT coalesce(max(commits), 0) FROM archives) BEGIN
    SELECT RAISE(ABORT, 'batches are append-only');
END;

-- What lists and totals need, so that they read no log and no summary. All of it follows from the
-- summaries: the writer's triggers keep it, in the commit that writes a summary (lists.sql), and
-- `verify` compares both.

-- One row for each run.
CREATE TABLE listed (
    id          INTEGER PRIMARY KEY,  -- that of the run
    run         TEXT    NOT NULL,
    created     INTEGER NOT NULL,
    ended       INTEGER NOT NULL,     -- 0 while it is open
    duration    INTEGER NOT NULL,     -- 0 while it is open
    cost        INTEGER NOT NULL,     -- in millionths
    waiting     INTEGER NOT NULL,
    status      TEXT    NOT NULL,
    plan        TEXT    NOT NULL,
    actor       TEXT    NOT NULL,
    environment TEXT    NOT NULL,
    library     TEXT    NOT NULL,
    labels      TEXT    NOT NULL,     -- each between two line ends
    goal        TEXT    NOT NULL
);
CREATE INDEX listed_created ON listed (created, id);
CREATE INDEX listed_open ON listed (created, id) WHERE ended = 0;
CREATE INDEX listed_status ON listed (status, created, id);

-- Sums over ended runs by the day of their creation (days since 1970 in UTC). Integers, so that
-- what is added and taken away is exact. For the keys see core/views/totals.py.
CREATE TABLE totals (
    day INTEGER NOT NULL,
    key TEXT    NOT NULL,
    n   INTEGER NOT NULL,
    PRIMARY KEY (day, key)
) WITHOUT ROWID;
