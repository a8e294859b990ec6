-- What is appended is looked at by the function itself, whoever calls it: each entry belongs to a
-- run that is named, follows the one before it there, and the last is what the run ends in. So a
-- role that may only append can put nothing anywhere else than at the end.
--
-- LH004: entries that do not fit what is said of their runs; nothing was written.
CREATE OR REPLACE FUNCTION leadhand.append(
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
