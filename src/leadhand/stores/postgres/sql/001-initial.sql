-- The first schema. Needs nothing newer than PostgreSQL 14.
-- The same tables as in SQLite, and what several machines need besides.

-- Facts about the database: its schema version, and its name for life.
CREATE TABLE leadhand.meta (
    key   text PRIMARY KEY,
    value text NOT NULL
);

INSERT INTO leadhand.meta (key, value) VALUES
    ('schema', '0'),
    ('database', replace(gen_random_uuid()::text, '-', ''));

-- Where the log ends, and who owns it. Its only row is locked by every append until it is
-- committed: so positions become visible in their order, and a follower misses none.
CREATE TABLE leadhand.tail (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch    bigint  NOT NULL,
    position bigint  NOT NULL,
    runs     bigint  NOT NULL,
    number   bigint  NOT NULL,
    hash     bytea   NOT NULL
) WITH (fillfactor = 10);

INSERT INTO leadhand.tail (epoch, position, runs, number, hash)
VALUES (0, 0, 0, 0, decode(repeat('00', 32), 'hex'));

-- One row for each run: where its log ends, and the summary its host last wrote.
CREATE TABLE leadhand.runs (
    id      bigint PRIMARY KEY,
    run     text COLLATE "C" NOT NULL UNIQUE,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    seq     bigint NOT NULL,
    hash    bytea  NOT NULL,
    summary bytea             -- null until one was written
) WITH (fillfactor = 70);

-- The log. `position` is the order of commits over all runs, `seq` the order within a run.
CREATE TABLE leadhand.events (
    position bigint PRIMARY KEY,
    run_id   bigint NOT NULL,
    seq      bigint NOT NULL,
    at       bigint NOT NULL,
    version  bigint NOT NULL,
    body     bytea  NOT NULL,
    hash     bytea  NOT NULL,
    UNIQUE (run_id, seq)
);

-- The second chain, with a link for each commit; see audit/chain.py.
CREATE TABLE leadhand.batches (
    number bigint PRIMARY KEY,
    first  bigint NOT NULL,
    last   bigint NOT NULL,
    hash   bytea  NOT NULL
);

-- Results, by the SHA-256 of their bytes.
CREATE TABLE leadhand.artifacts (
    digest bytea PRIMARY KEY,
    data   bytea NOT NULL
);

-- What other processes say to the host, and its answers. Nothing in it outlives its reader,
-- so it is not worth a write-ahead log.
CREATE UNLOGGED TABLE leadhand.words (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    said   timestamptz NOT NULL DEFAULT clock_timestamp(),
    word   bytea   NOT NULL,
    taken  boolean NOT NULL DEFAULT false,
    answer bytea
);

-- Who the host is, as it says itself; true only while the lock is held.
CREATE TABLE leadhand.host (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    backend integer NOT NULL,
    pid     integer NOT NULL,
    machine text    NOT NULL,
    started bigint  NOT NULL
);

-- What happened stays. These hold for the owner of the tables too; other roles are never
-- given the right in the first place (schema.py), and the hash chains show the rest.
CREATE FUNCTION leadhand.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'LH003';
END $$;

CREATE TRIGGER events_no_change BEFORE UPDATE OR DELETE ON leadhand.events
FOR EACH ROW EXECUTE FUNCTION leadhand.refuse_change();
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON leadhand.events
FOR EACH STATEMENT EXECUTE FUNCTION leadhand.refuse_change();
CREATE TRIGGER batches_no_change BEFORE UPDATE OR DELETE ON leadhand.batches
FOR EACH ROW EXECUTE FUNCTION leadhand.refuse_change();
CREATE TRIGGER batches_no_truncate BEFORE TRUNCATE ON leadhand.batches
FOR EACH STATEMENT EXECUTE FUNCTION leadhand.refuse_change();
CREATE TRIGGER artifacts_no_change BEFORE UPDATE OR DELETE ON leadhand.artifacts
FOR EACH ROW EXECUTE FUNCTION leadhand.refuse_change();
CREATE TRIGGER artifacts_no_truncate BEFORE TRUNCATE ON leadhand.artifacts
FOR EACH STATEMENT EXECUTE FUNCTION leadhand.refuse_change();

-- A role that is not the owner may call the two functions below, and nothing else changes the log.
-- They run with the owner's rights, so that whoever appends needs none on the tables beyond
-- reading: nobody but the owner can put an entry anywhere else than at the end, linked to what
-- is there. Who may call them: schema.py.

-- One whole group of appends, in one round trip, commit included. Each entry must belong to a run
-- that is named, follow the one before it there, and the last is what the run ends in.
--
-- LH001: the owner is another. LH002: a run does not end where the caller thinks it does.
-- LH004: entries that do not fit what is said of their runs.
-- In each case nothing was written. `in_owner` null: no owner is asked for.
--
-- The settings keep a plan that was made while the tables were empty from reading all of
-- them later.
CREATE FUNCTION leadhand.append(
    in_owner     bigint,
    in_names     text[],    -- for each run touched: its name,
    in_befores   bigint[],  -- where its log ended so far,
    in_created   bigint[],
    in_updated   bigint[],
    in_seqs      bigint[],  -- where it ends now,
    in_heads     bytea[],
    in_summaries bytea[],   -- null leaves the old one;
    ev_runs      text[],    -- and for each entry
    ev_seqs      bigint[],
    ev_ats       bigint[],
    ev_versions  bigint[],
    ev_bodies    bytea[],
    ev_hashes    bytea[]
) RETURNS TABLE (out_number bigint, out_first bigint, out_last bigint, out_hash bytea)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off AS $$
DECLARE
    ends    leadhand.tail%ROWTYPE;
    made    bigint;
    changed bigint;
BEGIN
    SELECT * INTO STRICT ends FROM leadhand.tail FOR UPDATE;
    IF in_owner <> ends.epoch THEN
        RAISE EXCEPTION 'fenced' USING ERRCODE = 'LH001';
    END IF;

    IF EXISTS (
        SELECT FROM (
            SELECT t.run, t.seq, t.hash,
                   row_number() OVER (PARTITION BY t.run ORDER BY t.place) AS nth,
                   count(*) OVER (PARTITION BY t.run) AS many
            FROM unnest(ev_runs, ev_seqs, ev_hashes)
                 WITH ORDINALITY AS t(run, seq, hash, place)
        ) AS e
        FULL JOIN unnest(in_names, in_befores, in_seqs, in_heads) AS g(run, before, seq, head)
            ON g.run = e.run
        WHERE NOT coalesce(e.seq = g.before + e.nth AND g.seq = g.before + e.many
                           AND (e.nth < e.many OR e.hash = g.head), false)
    ) THEN
        RAISE EXCEPTION 'entries that do not follow their run' USING ERRCODE = 'LH004';
    END IF;

    INSERT INTO leadhand.runs (id, run, created, updated, seq, hash, summary)
    SELECT ends.runs + row_number() OVER (ORDER BY t.place),
           t.run, t.created, t.updated, t.seq, t.hash, t.summary
    FROM unnest(in_names, in_befores, in_created, in_updated, in_seqs, in_heads, in_summaries)
         WITH ORDINALITY AS t(run, before, created, updated, seq, hash, summary, place)
    WHERE t.before = 0
    ON CONFLICT (run) DO NOTHING;
    GET DIAGNOSTICS made = ROW_COUNT;

    UPDATE leadhand.runs AS r
    SET updated = t.updated, seq = t.seq, hash = t.hash, summary = coalesce(t.summary, r.summary)
    FROM unnest(in_names, in_befores, in_updated, in_seqs, in_heads, in_summaries)
         AS t(run, before, updated, seq, hash, summary)
    WHERE r.run = t.run AND r.seq = t.before AND t.before > 0;
    GET DIAGNOSTICS changed = ROW_COUNT;

    IF made + changed <> cardinality(in_names) THEN
        RAISE EXCEPTION 'moved' USING ERRCODE = 'LH002';
    END IF;

    INSERT INTO leadhand.events (position, run_id, seq, at, version, body, hash)
    SELECT ends.position + t.place, r.id, t.seq, t.at, t.version, t.body, t.hash
    FROM unnest(ev_runs, ev_seqs, ev_ats, ev_versions, ev_bodies, ev_hashes)
         WITH ORDINALITY AS t(run, seq, at, version, body, hash, place)
    JOIN leadhand.runs AS r ON r.run = t.run;

    out_number := ends.number + 1;
    out_first := ends.position + 1;
    out_last := ends.position + cardinality(ev_hashes);
    SELECT sha256(ends.hash || int8send(out_first) || int8send(out_last)
                  || string_agg(t.hash, ''::bytea ORDER BY t.place))
    INTO out_hash FROM unnest(ev_hashes) WITH ORDINALITY AS t(hash, place);

    INSERT INTO leadhand.batches (number, first, last, hash)
    VALUES (out_number, out_first, out_last, out_hash);
    UPDATE leadhand.tail
    SET position = out_last, runs = ends.runs + made, number = out_number, hash = out_hash;
    PERFORM pg_notify('leadhand', out_last::text);
    RETURN NEXT;
END $$;

REVOKE ALL ON FUNCTION leadhand.append(
    bigint, text[], bigint[], bigint[], bigint[], bigint[], bytea[], bytea[],
    text[], bigint[], bigint[], bigint[], bytea[], bytea[]
) FROM PUBLIC;

-- A new owner: every append of an older one is refused from here on.
CREATE FUNCTION leadhand.claim()
RETURNS TABLE (out_epoch bigint, out_position bigint, out_runs bigint, out_number bigint,
               out_hash bytea)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE leadhand.tail SET epoch = epoch + 1 RETURNING epoch, position, runs, number, hash;
$$;

REVOKE ALL ON FUNCTION leadhand.claim() FROM PUBLIC;
