-- What only the writer's connection has, and only while it is open: an intake that takes a
-- whole group of appends as one row, checks the owner, and files it.
--
-- Why in one statement: the sqlite3 module gives up Python's interpreter lock for every step
-- of every statement, and with a busy event loop each time may cost a switch interval (5 ms).
-- One statement outside a transaction is one step, commit and fsync included.
--
-- A row for each entry is made from four values, since a bound value cannot be an array:
--   numbers  for each entry, 7 integers of 20 characters: run id, seq, at, version, how far
--            back the run's entry before it is, and where in `data` its body starts and how long
--            it is
--   hashes   for each entry, 32 bytes
--   heads    for each run touched, 9 integers of 20 characters: run id, created, updated,
--            seq, which entry is its last (from 0), and where its name and its summary are
--            (start and length each; a summary of length -1 leaves the old one)
--   data     bodies, names and summaries

-- name: counter
-- 0, 1, 2, ... up to the largest group there can be; its readers stop sooner by LIMIT.
CREATE TEMP VIEW counter AS
WITH RECURSIVE counting(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counting LIMIT 16777216)
SELECT n FROM counting;

-- name: intake
CREATE TEMP VIEW intake AS
SELECT 0 AS epoch, 0 AS number, 0 AS batch_hash, 0 AS first, 0 AS count,
       0 AS numbers, 0 AS hashes, 0 AS runs, 0 AS heads, 0 AS data;

-- name: file_intake
CREATE TEMP TRIGGER file_intake INSTEAD OF INSERT ON intake BEGIN
    SELECT RAISE(ABORT, 'fenced')
    WHERE (SELECT value FROM meta WHERE key = 'epoch') IS NOT NEW.epoch;

    INSERT INTO events (position, run_id, seq, at, version, back, body, hash)
    SELECT NEW.first + n,
           CAST(substr(NEW.numbers, 140 * n +   1, 20) AS INTEGER),
           CAST(substr(NEW.numbers, 140 * n +  21, 20) AS INTEGER),
           CAST(substr(NEW.numbers, 140 * n +  41, 20) AS INTEGER),
           CAST(substr(NEW.numbers, 140 * n +  61, 20) AS INTEGER),
           CAST(substr(NEW.numbers, 140 * n +  81, 20) AS INTEGER),
           substr(NEW.data, CAST(substr(NEW.numbers, 140 * n + 101, 20) AS INTEGER),
                            CAST(substr(NEW.numbers, 140 * n + 121, 20) AS INTEGER)),
           substr(NEW.hashes, 32 * n + 1, 32)
    FROM counter LIMIT NEW.count;

    INSERT INTO runs (id, created, updated, seq, hash, last, run, summary)
    SELECT CAST(substr(NEW.heads, 180 * n +  1, 20) AS INTEGER),
           CAST(substr(NEW.heads, 180 * n + 21, 20) AS INTEGER),
           CAST(substr(NEW.heads, 180 * n + 41, 20) AS INTEGER),
           CAST(substr(NEW.heads, 180 * n + 61, 20) AS INTEGER),
           substr(NEW.hashes, 32 * CAST(substr(NEW.heads, 180 * n + 81, 20) AS INTEGER) + 1, 32),
           NEW.first + CAST(substr(NEW.heads, 180 * n + 81, 20) AS INTEGER),
           CAST(substr(NEW.data, CAST(substr(NEW.heads, 180 * n + 101, 20) AS INTEGER),
                                 CAST(substr(NEW.heads, 180 * n + 121, 20) AS INTEGER)) AS TEXT),
           substr(NEW.data, CAST(substr(NEW.heads, 180 * n + 141, 20) AS INTEGER),
                            nullif(CAST(substr(NEW.heads, 180 * n + 161, 20) AS INTEGER), -1))
    FROM counter WHERE true LIMIT NEW.runs
    ON CONFLICT (id) DO UPDATE SET
        updated = excluded.updated, seq = excluded.seq, hash = excluded.hash, last = excluded.last,
        summary = coalesce(excluded.summary, summary);

    INSERT INTO batches (number, first, last, hash)
    VALUES (NEW.number, NEW.first, NEW.first + NEW.count - 1, NEW.batch_hash);
END;

-- name: find_heads
-- Where some runs end: how many they are, where each name starts and how long it is (2
-- integers of 20 characters), and the names.
SELECT run, id, seq, hash, last FROM runs WHERE run IN (
    SELECT CAST(substr(:names, CAST(substr(:places, 40 * n +  1, 20) AS INTEGER),
                           CAST(substr(:places, 40 * n + 21, 20) AS INTEGER)) AS TEXT)
    FROM counter LIMIT :count);
