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

-- Archives (stores/archive.py): the last commit that each took out of the database, and the
-- positions of the events of `$host` that record it, 0 where there is none.
CREATE TABLE leadhand.archives (
    number    bigint PRIMARY KEY,
    commits   bigint NOT NULL,
    made      bigint NOT NULL,
    rewritten bigint NOT NULL,
    deleted   bigint NOT NULL
);

-- The runs whose entries are in an archive. Their rows in `runs` and `listed` stay.
CREATE TABLE leadhand.archived (
    run_id  bigint PRIMARY KEY,
    archive bigint NOT NULL
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

-- Only what is in an archive may go.
CREATE FUNCTION leadhand.refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'events' THEN
        IF EXISTS (SELECT FROM leadhand.archived WHERE run_id = OLD.run_id) THEN
            RETURN OLD;
        END IF;
    ELSIF TG_TABLE_NAME = 'batches' THEN
        IF OLD.number <= (SELECT max(commits) FROM leadhand.archives) THEN
            RETURN OLD;
        END IF;
    ELSIF current_setting('leadhand.archiving', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'LH003';
END $$;

CREATE TRIGGER events_no_change BEFORE UPDATE ON leadhand.events
FOR EACH ROW EXECUTE FUNCTION leadhand.refuse_change();
CREATE TRIGGER events_no_delete BEFORE DELETE ON leadhand.events
FOR EACH ROW EXECUTE FUNCTION leadhand.refuse_removal();
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON leadhand.events
FOR EACH STATEMENT EXECUTE FUNCTION leadhand.refuse_change();
CREATE TRIGGER batches_no_change BEFORE UPDATE ON leadhand.batches
FOR EACH ROW EXECUTE FUNCTION leadhand.refuse_change();
CREATE TRIGGER batches_no_delete BEFORE DELETE ON leadhand.batches
FOR EACH ROW EXECUTE FUNCTION leadhand.refuse_removal();
CREATE TRIGGER batches_no_truncate BEFORE TRUNCATE ON leadhand.batches
FOR EACH STATEMENT EXECUTE FUNCTION leadhand.refuse_change();
CREATE TRIGGER artifacts_no_change BEFORE UPDATE ON leadhand.artifacts
FOR EACH ROW EXECUTE FUNCTION leadhand.refuse_change();
CREATE TRIGGER artifacts_no_delete BEFORE DELETE ON leadhand.artifacts
FOR EACH ROW EXECUTE FUNCTION leadhand.refuse_removal();
CREATE TRIGGER artifacts_no_truncate BEFORE TRUNCATE ON leadhand.artifacts
FOR EACH STATEMENT EXECUTE FUNCTION leadhand.refuse_change();

-- What lists and totals need, so that they read no log and no summary. All of it follows from the
-- summaries: the triggers below keep it, in the commit that writes a summary; nothing else writes
-- here. `verify` compares both, and rebuilds what differs.

-- One row for each run.
CREATE TABLE leadhand.listed (
    id          bigint PRIMARY KEY,   -- that of the run
    run         text COLLATE "C" NOT NULL,
    created     bigint NOT NULL,
    ended       bigint NOT NULL,      -- 0 while it is open
    duration    bigint NOT NULL,      -- 0 while it is open
    cost        bigint NOT NULL,      -- in millionths
    waiting     bigint NOT NULL,
    status      text   NOT NULL,
    plan        text   NOT NULL,
    actor       text   NOT NULL,
    environment text   NOT NULL,
    library     text   NOT NULL,
    labels      text   NOT NULL,      -- each between two line ends
    goal        text   NOT NULL
);
CREATE INDEX listed_created ON leadhand.listed (created, id);
CREATE INDEX listed_open ON leadhand.listed (created, id) WHERE ended = 0;
CREATE INDEX listed_status ON leadhand.listed (status, created, id);

-- Sums over ended runs by the day of their creation (days since 1970 in UTC). Integers, so that
-- what is added and taken away is exact. For the keys see core/views/totals.py.
CREATE TABLE leadhand.totals (
    day bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    n   bigint NOT NULL,
    PRIMARY KEY (day, key)
);

-- A summary as JSON; what cannot be read as that is empty, and its run counts as open. (Text in
-- PostgreSQL holds no character 0.)
CREATE FUNCTION leadhand.as_doc(summary bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    doc jsonb;
BEGIN
    doc := replace(convert_from(summary, 'UTF8'), '\u0000', '')::jsonb;
    RETURN CASE WHEN jsonb_typeof(doc) = 'object' THEN doc ELSE '{}'::jsonb END;
EXCEPTION WHEN others THEN
    RETURN '{}'::jsonb;
END $$;

-- A number of a summary, or 0.
CREATE FUNCTION leadhand.number_in(doc jsonb, name text) RETURNS numeric
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN jsonb_typeof(doc -> name) = 'number' THEN (doc ->> name)::numeric ELSE 0 END;
$$;

-- What `listed` must hold of a run.
CREATE FUNCTION leadhand.listing(in_id bigint, in_run text, in_created bigint, summary bytea)
RETURNS leadhand.listed LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (in_id, in_run, in_created, t.ended,
            CASE WHEN t.ended > 0 THEN t.ended - in_created ELSE 0 END,
            round(leadhand.number_in(t.doc, 'cost') * 1000000)::bigint,
            leadhand.number_in(t.doc, 'waiting')::bigint,
            coalesce(t.doc ->> 'status', ''), coalesce(t.doc ->> 'plan', ''),
            coalesce(t.doc ->> 'actor', ''), coalesce(t.doc ->> 'environment', ''),
            coalesce(t.doc ->> 'library', ''),
            coalesce((SELECT chr(10) || string_agg(l.value, chr(10) ORDER BY l.place) || chr(10)
                      FROM jsonb_array_elements_text(
                          CASE WHEN jsonb_typeof(t.doc -> 'labels') = 'array'
                               THEN t.doc -> 'labels' ELSE '[]'::jsonb END)
                          WITH ORDINALITY AS l(value, place)), ''),
            coalesce(t.doc ->> 'goal', ''))::leadhand.listed
    FROM (SELECT d.doc, leadhand.number_in(d.doc, 'ended')::bigint AS ended
          FROM (SELECT leadhand.as_doc(summary) AS doc) AS d) AS t;
$$;

-- What a run adds to the totals.
CREATE FUNCTION leadhand.parts(summary bytea) RETURNS TABLE (key text, n bigint)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.key, p.value::text::bigint
    FROM (SELECT leadhand.as_doc(summary) -> 'totals' AS sums) AS t,
         jsonb_each(CASE WHEN jsonb_typeof(t.sums) = 'object' THEN t.sums ELSE '{}'::jsonb END) AS p
    WHERE jsonb_typeof(p.value) = 'number' AND p.value::text ~ '^-?[0-9]{1,18}$';
$$;

-- What `totals` must hold.
CREATE VIEW leadhand.summed AS
SELECT r.created / 86400000000 AS day, p.key COLLATE "C" AS key, sum(p.n)::bigint AS n
FROM leadhand.runs AS r, leadhand.parts(r.summary) AS p
WHERE left(r.run, 1) <> '$'
GROUP BY 1, 2 HAVING sum(p.n) <> 0;

CREATE FUNCTION leadhand.relist() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    on_day bigint := NEW.created / 86400000000;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        DELETE FROM leadhand.listed AS l WHERE l.id = OLD.id;
        -- What it added before: nothing, unless it was reopened.
        UPDATE leadhand.totals AS t SET n = t.n - p.n
        FROM leadhand.parts(OLD.summary) AS p WHERE t.day = on_day AND t.key = p.key;
    END IF;
    INSERT INTO leadhand.listed
    SELECT l.* FROM leadhand.listing(NEW.id, NEW.run, NEW.created, NEW.summary) AS l;
    INSERT INTO leadhand.totals AS t (day, key, n)
    SELECT on_day, p.key, p.n FROM leadhand.parts(NEW.summary) AS p
    ON CONFLICT ON CONSTRAINT totals_pkey DO UPDATE SET n = t.n + excluded.n;
    IF TG_OP = 'UPDATE' THEN
        DELETE FROM leadhand.totals AS t USING leadhand.parts(OLD.summary) AS p
        WHERE t.day = on_day AND t.key = p.key AND t.n = 0;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER runs_listed AFTER INSERT ON leadhand.runs
FOR EACH ROW WHEN (left(NEW.run, 1) <> '$') EXECUTE FUNCTION leadhand.relist();
CREATE TRIGGER runs_relisted AFTER UPDATE OF summary ON leadhand.runs
FOR EACH ROW WHEN (NEW.summary IS DISTINCT FROM OLD.summary AND left(NEW.run, 1) <> '$')
EXECUTE FUNCTION leadhand.relist();

-- Write both anew from the summaries.
CREATE FUNCTION leadhand.rebuild_lists() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT FROM leadhand.tail FOR UPDATE;  -- no append meanwhile
    DELETE FROM leadhand.listed;
    INSERT INTO leadhand.listed
    SELECT l.* FROM leadhand.runs AS r,
         LATERAL leadhand.listing(r.id, r.run, r.created, r.summary) AS l
    WHERE left(r.run, 1) <> '$';
    DELETE FROM leadhand.totals;
    INSERT INTO leadhand.totals SELECT day, key, n FROM leadhand.summed;
$$;

REVOKE ALL ON FUNCTION leadhand.rebuild_lists() FROM PUBLIC;

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
