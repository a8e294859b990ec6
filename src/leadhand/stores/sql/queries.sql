-- name: schema_objects
-- How many tables and such the file has; none in a new one.
SELECT count(*) FROM sqlite_master;

-- name: has_meta
-- Whether the file is one of ours at all.
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'meta';

-- name: has_lists
-- Whether the file has what the schema got last, before the first release.
SELECT count(*) = 3 AND (SELECT count(*) FROM pragma_table_info('runs') WHERE name = 'last')
FROM sqlite_master WHERE type = 'table' AND name IN ('listed', 'totals', 'archived');

-- name: meta
-- One fact about the file.
SELECT value FROM meta WHERE key = ?;

-- name: set_meta
-- (The value, then the key.)
UPDATE meta SET value = ? WHERE key = ?;

-- name: adopt
-- A log that is being copied here, by its name; nobody may host it until it is whole.
INSERT OR REPLACE INTO meta (key, value) VALUES ('copying', ?);

-- name: settle
DELETE FROM meta WHERE key = 'copying';

-- name: raise_epoch
-- A new owner: every append of an older one is refused from here on.
UPDATE meta SET value = value + 1 WHERE key = 'epoch';

-- name: ends
-- Where the tables end, for a new owner to go on from.
SELECT coalesce((SELECT max(position) FROM events), 0),
       coalesce((SELECT max(id) FROM runs), 0),
       coalesce((SELECT max(number) FROM batches), 0),
       (SELECT hash FROM batches ORDER BY number DESC LIMIT 1);

-- name: commit
-- One whole group of appends, in one step. See writer.sql.
INSERT INTO intake (epoch, number, batch_hash, first, count, numbers, hashes, runs, heads, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: checkpoint
-- Moves what the write-ahead log holds into the file, and has it begin again where no reader needs
-- it. Where one does, it says busy, and what could be moved is moved.
PRAGMA wal_checkpoint(RESTART);

-- name: checkpoint_far
-- The same, and the room on the disk is given back.
PRAGMA wal_checkpoint(TRUNCATE);

-- name: wait_for_readers
-- As long as that a checkpoint waits for readers that need the log.
PRAGMA busy_timeout = 250;

-- name: read
-- A run's entries above a seq, the last one first. (The caller knows the run, and gets it back.)
-- With each comes where the run ends.
WITH RECURSIVE own (position, run_id, seq, at, version, back, body, hash, ends) AS (
    SELECT position, run_id, e.seq, at, version, back, body, e.hash, runs.seq
    FROM runs CROSS JOIN events AS e ON e.position = runs.last AND e.run_id = runs.id
    WHERE runs.run = :run AND e.seq > :after
    UNION ALL
    SELECT e.position, e.run_id, e.seq, e.at, e.version, e.back, e.body, e.hash, ends
    FROM own CROSS JOIN events AS e
        ON e.position = own.position - own.back AND e.run_id = own.run_id
    WHERE e.position < own.position AND e.seq > :after  -- whatever `back` is
)
SELECT :run, seq, at, version, body, hash, ends FROM own;

-- name: has_more
-- Whether a run has entries above a seq.
SELECT count(*) FROM runs WHERE run = :run AND seq > :after;

-- name: scan
-- A run's entries above a seq, in order, where some cannot be found from its last one: all entries
-- are looked through.
SELECT :run, seq, at, version, body, hash FROM events
WHERE run_id = (SELECT id FROM runs WHERE run = :run) AND seq > :after
ORDER BY seq;

-- name: runs
-- All runs, oldest first.
SELECT run, created, updated, seq, hash, coalesce(summary, x'') FROM runs ORDER BY id;

-- name: numbered_runs
-- A page of all runs, with their numbers.
SELECT id, run, created, updated, seq, hash, coalesce(summary, x'') FROM runs
WHERE id > ? ORDER BY id LIMIT ?;

-- name: count_runs
SELECT count(*) FROM runs;

-- name: runs_since
-- The runs that have entries above a position.
SELECT run FROM runs WHERE id IN (SELECT run_id FROM events WHERE position > ?) ORDER BY id;

-- name: header
-- One run.
SELECT run, created, updated, seq, hash, coalesce(summary, x'') FROM runs WHERE run = ?;

-- name: find_runs
-- A page of the runs that fit. What stands in braces is filled in by the reader (run_list.py), from
-- fixed words: conditions for which there is an index must stand here as in the index.
SELECT place.value, place.id, run, created, updated, seq, hash, coalesce(summary, x'')
FROM (
    SELECT id, {sort} AS value FROM listed
    WHERE {open} created >= :since AND created < :until
      AND (:after IS NULL OR ({sort}, id) {beyond} (:after, :id))
      AND {status}
      AND (:plan = '' OR plan = :plan
           OR (:plan_start <> '' AND substr(plan, 1, length(:plan_start)) = :plan_start))
      AND (:actor = '' OR actor = :actor)
      AND (:environment = '' OR environment = :environment)
      AND (:waiting = 0 OR waiting > 0)
      AND (:label = '' OR instr(labels, char(10) || :label || char(10))
                       OR instr(labels, char(10) || :label || '='))
      AND (:library = '' OR library = :library OR (:library = '*' AND library <> '')
                         OR substr(library, 1, length(:library) + 1) = :library || '@')
      AND {text}
    ORDER BY {sort} {falls}, id {falls} LIMIT :limit
) AS place JOIN runs USING (id)
ORDER BY place.value {falls}, place.id {falls};

-- name: runs_by_prefix
-- The ids that begin with a text.
SELECT run FROM runs
WHERE run >= :prefix AND run < :prefix || char(1114111) AND substr(run, 1, 1) <> '$'
ORDER BY run LIMIT :limit;

-- name: last_change
-- When the last entries were written; those of runs that are driven elsewhere may overtake each
-- other by a little.
SELECT max(at) FROM (SELECT at FROM events ORDER BY position DESC LIMIT 1000);

-- name: totals
-- The sums over some days, without those of single plans, of which there may be very many.
SELECT key, sum(n) FROM totals WHERE day BETWEEN ? AND ? AND substr(key, 1, 5) <> 'plan:'
GROUP BY key;

-- name: totals_with_plans
-- The sums over some days.
SELECT key, sum(n) FROM totals WHERE day BETWEEN ? AND ? GROUP BY key;

-- name: daily_totals
-- The sums of each day, without those of single plans, workers and such.
SELECT day, key, n FROM totals WHERE day BETWEEN ? AND ? AND instr(key, ':') = 0;

-- name: wrong_lists
-- Runs that lists do not show as their summaries say.
SELECT run FROM (SELECT * FROM listing EXCEPT SELECT * FROM listed)
UNION SELECT run FROM (SELECT * FROM listed EXCEPT SELECT * FROM listing)
ORDER BY run LIMIT 100;

-- name: wrong_totals
-- Totals that are not the sums of the summaries: the day, the key, what there should be, what is.
SELECT day, key, coalesce(max(CASE WHEN here THEN n END), 0),
       coalesce(max(CASE WHEN NOT here THEN n END), 0)
FROM (SELECT day, key, n, 1 AS here FROM summed UNION ALL SELECT day, key, n, 0 FROM totals)
GROUP BY day, key
HAVING coalesce(max(CASE WHEN here THEN n END), 0)
       IS NOT coalesce(max(CASE WHEN NOT here THEN n END), 0)
ORDER BY day, key LIMIT 100;

-- name: forget_lists
DELETE FROM listed;

-- name: forget_totals
DELETE FROM totals;

-- name: rebuild_lists
INSERT INTO listed SELECT * FROM listing;

-- name: rebuild_totals
INSERT INTO totals SELECT day, key, n FROM summed;

-- name: page
-- The entries of all runs above a position, in commit order.
SELECT position, run, events.seq, at, version, body, events.hash
FROM events JOIN runs ON runs.id = events.run_id
WHERE position > ? ORDER BY position LIMIT ?;

-- name: batches
-- The batch chain.
SELECT number, first, last, hash FROM batches WHERE number > ? ORDER BY number LIMIT ?;

-- name: batches_from
-- The commits that hold some positions, and the commit before them.
SELECT number, first, last, hash FROM batches
WHERE number >= (SELECT coalesce(max(number), 0) FROM batches WHERE first <= ?) - 1 AND first <= ?
ORDER BY number;

-- name: positions
-- What the batch chain is over.
SELECT position, hash FROM events WHERE position > ? ORDER BY position LIMIT ?;

-- name: places
-- Where a run's entries are in the order of commits, the last one first.
WITH RECURSIVE own (position, run_id, back) AS (
    SELECT position, run_id, back
    FROM runs CROSS JOIN events AS e ON e.position = runs.last AND e.run_id = runs.id
    WHERE runs.run = :run
    UNION ALL
    SELECT e.position, e.run_id, e.back
    FROM own CROSS JOIN events AS e
        ON e.position = own.position - own.back AND e.run_id = own.run_id
    WHERE e.position < own.position  -- whatever `back` is
)
SELECT position FROM own;

-- name: scan_places
-- The same, where some cannot be found from the last one.
SELECT position FROM events WHERE run_id = (SELECT id FROM runs WHERE run = :run) ORDER BY seq;

-- name: hashes
-- The hashes of the entries between two positions.
SELECT hash FROM events WHERE position BETWEEN ? AND ? ORDER BY position;

-- name: odd_summaries
-- Runs beside which stands something that nobody writes there.
SELECT run FROM runs
WHERE typeof(summary) IS NOT (CASE WHEN substr(run, 1, 1) = '$' THEN 'null' ELSE 'blob' END);

-- name: strays
-- Entries whose run is not there.
SELECT position FROM events WHERE run_id NOT IN (SELECT id FROM runs) ORDER BY position LIMIT 100;

-- name: wrong_back
-- Entries that do not name the one before them of their run.
SELECT e.position FROM events AS e
LEFT JOIN events AS b ON b.position = e.position - e.back AND e.back > 0
WHERE CASE e.seq WHEN 1 THEN e.back IS NOT 0
                 ELSE b.run_id IS NOT e.run_id OR b.seq IS NOT e.seq - 1 END
ORDER BY e.position LIMIT 100;

-- name: wrong_last
-- Runs that do not name their last entry. (Entries of archived runs are not here.)
SELECT run FROM runs WHERE id NOT IN (SELECT run_id FROM archived) AND NOT EXISTS (
    SELECT 1 FROM events
    WHERE position = runs.last AND run_id = runs.id AND events.seq = runs.seq)
ORDER BY id LIMIT 100;

-- name: archives
-- The archives, and where in the log the events are that record each.
SELECT number, made, rewritten, deleted FROM archives ORDER BY number;

-- name: archive_of
-- The archive that holds a run.
SELECT archive FROM archived WHERE run_id = (SELECT id FROM runs WHERE run = ?);

-- name: archived_heads
-- Where the logs of the runs in an archive end.
SELECT run, seq, hash FROM archived JOIN runs ON id = run_id WHERE archive = ? ORDER BY run;

-- name: archive_rows
SELECT number, commits, made, rewritten, deleted FROM archives ORDER BY number;

-- name: copy_archive
INSERT OR REPLACE INTO archives (number, commits, made, rewritten, deleted) VALUES (?, ?, ?, ?, ?);

-- name: copy_archived
-- (The run, then the archive.)
INSERT OR REPLACE INTO archived (run_id, archive) SELECT id, ?2 FROM runs WHERE run = ?1;

-- name: copy_run
-- (With the position of its last entry; 0 for an archived one.)
INSERT INTO runs (id, run, created, updated, seq, hash, summary, last)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING;

-- name: copy_entry
-- (Position, run, the entry, and how far back the run's entry before it is.)
INSERT OR IGNORE INTO events (position, run_id, seq, at, version, body, hash, back)
SELECT ?1, id, ?3, ?4, ?5, ?6, ?7, ?8 FROM runs WHERE run = ?2;

-- name: add_archive
INSERT INTO archives (number, commits, made, rewritten, deleted) VALUES (?, ?, ?, 0, 0);

-- name: add_archived
-- (The archive, then the run.)
INSERT INTO archived (run_id, archive) SELECT id, ? FROM runs WHERE run = ?;

-- name: remove_entries
-- What is in an archive now: its last position, and its number.
DELETE FROM events WHERE position <= ?
    AND run_id IN (SELECT run_id FROM archived WHERE archive = ?);

-- name: remove_commits
DELETE FROM batches WHERE number <= ?;

-- name: archive_rewritten
-- (The position of the event, then the number of the archive.)
UPDATE archives SET rewritten = ? WHERE number = ?;

-- name: archive_deleted
UPDATE archives SET deleted = ? WHERE number = ?;

-- name: free_pages
-- How many pages of the file hold nothing, and how many there are.
SELECT (SELECT freelist_count FROM pragma_freelist_count),
       (SELECT page_count FROM pragma_page_count);

-- name: give_back
-- Writes the file anew without the pages that hold nothing.
VACUUM;

-- name: data_version
-- Changes whenever another connection has committed.
PRAGMA data_version;

-- name: integrity
-- SQLite's own check of pages, types and constraints, and of each index against its table.
PRAGMA integrity_check(100);

-- name: schema
-- Every table, index and trigger.
SELECT type, name, coalesce(sql, '') FROM sqlite_master ORDER BY type, name;
