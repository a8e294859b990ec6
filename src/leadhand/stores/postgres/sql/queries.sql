-- name: whose
-- Whether the database holds one of ours at all, or something of others under our name.
-- (By the catalog, which a role without rights may read too.)
SELECT CASE
    WHEN NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('leadhand'))
    THEN 'empty'
    WHEN (SELECT count(*) FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
          WHERE c.relnamespace = to_regnamespace('leadhand') AND c.relname = 'meta'
            AND c.relkind = 'r' AND a.attname IN ('key', 'value')
            AND a.atttypid = 'text'::regtype) = 2
    THEN 'ours' ELSE 'others' END;

-- name: meta
-- One fact about the database.
SELECT value FROM leadhand.meta WHERE key = %s;

-- name: set_meta
-- (The value, then the key.)
UPDATE leadhand.meta SET value = %s WHERE key = %s;

-- name: claim
-- A new owner: every append of an older one is refused from here on.
SELECT out_epoch, out_position, out_runs, out_number, out_hash FROM leadhand.claim();

-- name: epoch
SELECT epoch FROM leadhand.tail;

-- name: tail
-- Where the log ends, as every append leaves it.
SELECT position, runs, number, hash FROM leadhand.tail;

-- name: ends
-- Where the tables end: the same, unless somebody changed one of them by hand.
SELECT coalesce((SELECT max(position) FROM leadhand.events), 0),
       coalesce((SELECT max(id) FROM leadhand.runs), 0),
       coalesce((SELECT max(number) FROM leadhand.batches), 0),
       coalesce((SELECT hash FROM leadhand.batches ORDER BY number DESC LIMIT 1),
                decode(repeat('00', 32), 'hex'));

-- name: append
-- One whole group of appends. See 001-initial.sql.
SELECT out_number, out_first, out_last, out_hash FROM leadhand.append(
    %b::bigint, %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[],
    %b::bytea[], %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[], %b::bytea[]);

-- name: find_heads
-- Where some runs end.
SELECT run, id, seq, hash FROM leadhand.runs WHERE run = ANY (%b::text[]);

-- name: landed
-- Which of some entries are there, by their place in the lists.
SELECT t.place FROM unnest(%b::text[], %b::bigint[], %b::bytea[])
    WITH ORDINALITY AS t(run, seq, hash, place)
JOIN leadhand.runs AS r ON r.run = t.run
JOIN leadhand.events AS e ON e.run_id = r.id AND e.seq = t.seq AND e.hash = t.hash;

-- name: batch
-- The link of one commit.
SELECT hash FROM leadhand.batches WHERE number = %s;

-- name: read
-- A run's entries above a seq, in order. (The caller knows the run, and gets it back.)
SELECT %s::text, seq, at, version, body, hash FROM leadhand.events
WHERE run_id = (SELECT id FROM leadhand.runs WHERE run = %s::text) AND seq > %s::bigint
ORDER BY seq;

-- name: runs
-- All runs, oldest first.
SELECT run, created, updated, seq, hash, coalesce(summary, ''::bytea)
FROM leadhand.runs ORDER BY id;

-- name: numbered_runs
-- A page of all runs, with their numbers.
SELECT id, run, created, updated, seq, hash, coalesce(summary, ''::bytea)
FROM leadhand.runs WHERE id > %s ORDER BY id LIMIT %s;

-- name: count_runs
SELECT count(*) FROM leadhand.runs;

-- name: runs_since
-- The runs that have entries above a position.
SELECT run FROM leadhand.runs
WHERE id IN (SELECT run_id FROM leadhand.events WHERE position > %s) ORDER BY id;

-- name: header
-- One run.
SELECT run, created, updated, seq, hash, coalesce(summary, ''::bytea)
FROM leadhand.runs WHERE run = %s::text;

-- name: find_runs
-- A page of the runs that fit. What stands in braces is filled in by the reader (run_list.py), from
-- fixed words: conditions for which there is an index must stand here as in the index.
SELECT place.value, place.id, run, created, updated, seq, hash, coalesce(summary, ''::bytea)
FROM (
    SELECT id, {sort} AS value FROM leadhand.listed
    WHERE {open} created >= %(since)s::bigint AND created < %(until)s::bigint
      AND (%(after)s::bigint IS NULL OR ({sort}, id) {beyond} (%(after)s::bigint, %(id)s::bigint))
      AND {status}
      AND (%(plan)s::text = '' OR plan = %(plan)s::text
           OR (%(plan_start)s::text <> '' AND starts_with(plan, %(plan_start)s::text)))
      AND (%(actor)s::text = '' OR actor = %(actor)s::text)
      AND (%(environment)s::text = '' OR environment = %(environment)s::text)
      AND (NOT %(waiting)s::boolean OR waiting > 0)
      AND (%(label)s::text = '' OR strpos(labels, chr(10) || %(label)s::text || chr(10)) > 0
                                OR strpos(labels, chr(10) || %(label)s::text || '=') > 0)
      AND (%(library)s::text = '' OR library = %(library)s::text
                                  OR (%(library)s::text = '*' AND library <> '')
                                  OR starts_with(library, %(library)s::text || '@'))
      AND {text}
    ORDER BY {sort} {falls}, id {falls} LIMIT %(limit)s::bigint
) AS place JOIN leadhand.runs USING (id)
ORDER BY place.value {falls}, place.id {falls};

-- name: runs_by_prefix
-- The ids that begin with a text.
SELECT run FROM leadhand.runs
WHERE run >= %(prefix)s::text AND run < %(prefix)s::text || chr(1114111) AND left(run, 1) <> '$'
ORDER BY run LIMIT %(limit)s::bigint;

-- name: last_change
-- When the last entries were written; those of runs that are driven elsewhere may overtake each
-- other by a little.
SELECT coalesce(max(at), 0)
FROM (SELECT at FROM leadhand.events ORDER BY position DESC LIMIT 1000) AS last;

-- name: totals
-- The sums over some days, without those of single plans, of which there may be very many.
SELECT key, sum(n)::bigint FROM leadhand.totals
WHERE day BETWEEN %s::bigint AND %s::bigint AND left(key, 5) <> 'plan:' GROUP BY key;

-- name: totals_with_plans
-- The sums over some days.
SELECT key, sum(n)::bigint FROM leadhand.totals
WHERE day BETWEEN %s::bigint AND %s::bigint GROUP BY key;

-- name: daily_totals
-- The sums of each day, without those of single plans, workers and such.
SELECT day, key, n FROM leadhand.totals
WHERE day BETWEEN %s::bigint AND %s::bigint AND strpos(key, ':') = 0;

-- name: wrong_lists
-- Runs that lists do not show as their summaries say.
SELECT coalesce(l.run, r.run)
FROM (SELECT t.* FROM leadhand.runs AS s,
           LATERAL leadhand.listing(s.id, s.run, s.created, s.summary) AS t
      WHERE left(s.run, 1) <> '$') AS r
FULL JOIN leadhand.listed AS l ON l.id = r.id
WHERE l IS DISTINCT FROM r
ORDER BY 1 LIMIT 100;

-- name: wrong_totals
-- Totals that are not the sums of the summaries: the day, the key, what there should be, what is.
SELECT day, key, coalesce(s.n, 0), coalesce(t.n, 0)
FROM leadhand.summed AS s FULL JOIN leadhand.totals AS t USING (day, key)
WHERE coalesce(s.n, 0) <> coalesce(t.n, 0)
ORDER BY 1, 2 LIMIT 100;

-- name: rebuild_lists
SELECT leadhand.rebuild_lists();

-- name: page
-- The entries of all runs above a position, in commit order.
SELECT position, run, e.seq, at, version, body, e.hash
FROM leadhand.events AS e JOIN leadhand.runs AS r ON r.id = e.run_id
WHERE position > %s::bigint ORDER BY position LIMIT %s;

-- name: batches
-- The batch chain.
SELECT number, first, last, hash FROM leadhand.batches
WHERE number > %s ORDER BY number LIMIT %s;

-- name: batches_from
-- The commits that hold some positions, and the commit before them.
SELECT number, first, last, hash FROM leadhand.batches
WHERE number >= (SELECT coalesce(max(number), 0) FROM leadhand.batches WHERE first <= %s) - 1
  AND first <= %s
ORDER BY number;

-- name: positions
-- What the batch chain is over.
SELECT position, hash FROM leadhand.events WHERE position > %s ORDER BY position LIMIT %s;

-- name: places
-- Where a run's entries are in the order of commits.
SELECT position FROM leadhand.events
WHERE run_id = (SELECT id FROM leadhand.runs WHERE run = %s::text) ORDER BY seq;

-- name: hashes
-- The hashes of the entries between two positions.
SELECT hash FROM leadhand.events WHERE position BETWEEN %s::bigint AND %s::bigint ORDER BY position;

-- name: odd_summaries
-- Runs beside which stands something that nobody writes there.
SELECT run FROM leadhand.runs WHERE (summary IS NULL) <> (left(run, 1) = '$');

-- name: strays
-- Entries whose run is not there.
SELECT position FROM leadhand.events AS e
WHERE NOT EXISTS (SELECT 1 FROM leadhand.runs AS r WHERE r.id = e.run_id)
ORDER BY position LIMIT 100;

-- name: put_artifact
INSERT INTO leadhand.artifacts (digest, data) VALUES (%b::bytea, %b::bytea)
ON CONFLICT (digest) DO NOTHING;

-- name: get_artifact
SELECT data FROM leadhand.artifacts WHERE digest = %b::bytea;

-- name: artifacts
-- The names of all artifacts in the database.
SELECT digest FROM leadhand.artifacts ORDER BY digest;

-- name: archives
-- The archives, and where in the log the events are that record each.
SELECT number, made, rewritten, deleted FROM leadhand.archives ORDER BY number;

-- name: archive_of
-- The archive that holds a run.
SELECT archive FROM leadhand.archived
WHERE run_id = (SELECT id FROM leadhand.runs WHERE run = %s::text);

-- name: archived_heads
-- Where the logs of the runs in an archive end.
SELECT run, seq, hash FROM leadhand.archived JOIN leadhand.runs ON id = run_id
WHERE archive = %s::bigint ORDER BY run;

-- name: archive_rows
SELECT number, commits, made, rewritten, deleted FROM leadhand.archives ORDER BY number;

-- name: copy_archive
INSERT INTO leadhand.archives (number, commits, made, rewritten, deleted)
VALUES (%s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint) ON CONFLICT DO NOTHING;

-- name: copy_archived
-- (The archive, then the run.)
INSERT INTO leadhand.archived (run_id, archive)
SELECT id, %s::bigint FROM leadhand.runs WHERE run = %s::text ON CONFLICT DO NOTHING;

-- name: copy_run
INSERT INTO leadhand.runs (id, run, created, updated, seq, hash, summary)
VALUES (%s::bigint, %s::text, %s::bigint, %s::bigint, %s::bigint, %b::bytea, %b::bytea)
ON CONFLICT DO NOTHING;

-- name: copy_entry
-- (Position and entry, then the run.)
INSERT INTO leadhand.events (position, run_id, seq, at, version, body, hash)
SELECT %s::bigint, id, %s::bigint, %s::bigint, %s::bigint, %b::bytea, %b::bytea
FROM leadhand.runs WHERE run = %s::text ON CONFLICT DO NOTHING;

-- name: copy_tail
UPDATE leadhand.tail SET position = %s::bigint, runs = %s::bigint, number = %s::bigint,
    hash = %b::bytea;

-- name: add_archive
INSERT INTO leadhand.archives (number, commits, made, rewritten, deleted)
VALUES (%s::bigint, %s::bigint, %s::bigint, 0, 0);

-- name: add_archived
-- (The archive, then the runs.)
INSERT INTO leadhand.archived (run_id, archive)
SELECT id, %s::bigint FROM leadhand.runs WHERE run = ANY (%s::text[]);

-- name: remove_entries
-- What is in an archive now: its last position, and its number.
DELETE FROM leadhand.events WHERE position <= %s::bigint
    AND run_id IN (SELECT run_id FROM leadhand.archived WHERE archive = %s::bigint);

-- name: remove_commits
DELETE FROM leadhand.batches WHERE number <= %s::bigint;

-- name: archive_rewritten
-- (The position of the event, then the number of the archive.)
UPDATE leadhand.archives SET rewritten = %s::bigint WHERE number = %s::bigint;

-- name: archive_deleted
UPDATE leadhand.archives SET deleted = %s::bigint WHERE number = %s::bigint;

-- name: allow_removal
-- In this transaction: artifacts that an archive holds may go.
SELECT set_config('leadhand.archiving', 'on', true);

-- name: remove_artifacts
DELETE FROM leadhand.artifacts WHERE digest = ANY (%b::bytea[]);

-- name: size
SELECT pg_database_size(current_database());

-- name: give_back
-- Writes the tables anew without what was removed.
VACUUM (FULL, ANALYZE) leadhand.events, leadhand.batches, leadhand.artifacts;

-- name: adopt
-- A log that is being copied here, by its name; nobody may host it until it is whole.
INSERT INTO leadhand.meta (key, value) VALUES ('copying', %s)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: settle
DELETE FROM leadhand.meta WHERE key = 'copying';

-- name: set_epoch
UPDATE leadhand.tail SET epoch = %s::bigint;

-- name: try_lock
-- Become the host, until this connection ends.
SELECT pg_try_advisory_lock(%s::bigint);

-- name: unlock
SELECT pg_advisory_unlock(%s::bigint);

-- name: try_lock_shared
-- Serve runs that Temporal hosts, beside others who do.
SELECT pg_try_advisory_lock_shared(%s::bigint);

-- name: unlock_shared
SELECT pg_advisory_unlock_shared(%s::bigint);

-- name: lock_holder
-- The connection that is the host's, or those that share the lock; and which of the two it is.
SELECT pid, mode = 'ExclusiveLock' FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((classid::bigint << 32) | objid::bigint) = %s::bigint;

-- name: set_host
INSERT INTO leadhand.host (backend, pid, machine, started)
VALUES (pg_backend_pid(), %s, %s, %s)
ON CONFLICT (one) DO UPDATE SET backend = excluded.backend, pid = excluded.pid,
    machine = excluded.machine, started = excluded.started;

-- name: host
SELECT backend, pid, machine, started FROM leadhand.host;

-- name: end_session
-- Our own older connection, which the server has not yet seen to be gone.
SELECT pg_terminate_backend(%s::integer, 2000);

-- name: say
INSERT INTO leadhand.words (word) VALUES (%b::bytea) RETURNING id;

-- name: call_host
SELECT pg_notify('leadhand_words', '');

-- name: take_words
-- The messages that no host has taken yet.
UPDATE leadhand.words SET taken = true WHERE NOT taken RETURNING id, word;

-- name: answer
UPDATE leadhand.words SET answer = %b::bytea WHERE id = %s::bigint;

-- name: call_asker
SELECT pg_notify('leadhand_answers', %s::text);

-- name: answer_of
SELECT answer FROM leadhand.words WHERE id = %s::bigint;

-- name: withdraw
-- Whether a host has taken the message already.
DELETE FROM leadhand.words WHERE id = %s::bigint RETURNING taken;

-- name: forget_words
-- Left behind by an asker that died.
DELETE FROM leadhand.words WHERE said < clock_timestamp() - interval '1 hour';
