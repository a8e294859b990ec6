-- What lists and totals must hold, derived from the summaries; and the triggers of the writer's
-- connection that keep it so. They are temporary: the schema of a file is not trusted
-- (connection.py), and some versions of SQLite, such as 3.40, refuse it their functions for JSON.

-- name: told
-- The summaries as JSON; what cannot be read as that is empty, and its run counts as open.
CREATE TEMP VIEW IF NOT EXISTS told AS
SELECT id, run, created,
       CASE WHEN json_valid(CAST(summary AS TEXT)) THEN CAST(summary AS TEXT) ELSE '{}' END AS doc
FROM runs WHERE substr(run, 1, 1) <> '$';

-- name: listing
-- What `listed` must hold.
CREATE TEMP VIEW IF NOT EXISTS listing AS
SELECT id, run, created,
       CAST(coalesce(json_extract(doc, '$.ended'), 0) AS INTEGER) AS ended,
       CASE WHEN json_extract(doc, '$.ended') > 0
            THEN CAST(json_extract(doc, '$.ended') AS INTEGER) - created ELSE 0 END AS duration,
       CAST(round(coalesce(json_extract(doc, '$.cost'), 0) * 1000000) AS INTEGER) AS cost,
       CAST(coalesce(json_extract(doc, '$.waiting'), 0) AS INTEGER) AS waiting,
       CAST(coalesce(json_extract(doc, '$.status'), '') AS TEXT) AS status,
       CAST(coalesce(json_extract(doc, '$.plan'), '') AS TEXT) AS plan,
       CAST(coalesce(json_extract(doc, '$.actor'), '') AS TEXT) AS actor,
       CAST(coalesce(json_extract(doc, '$.environment'), '') AS TEXT) AS environment,
       CAST(coalesce(json_extract(doc, '$.library'), '') AS TEXT) AS library,
       coalesce((SELECT char(10) || group_concat(value, char(10)) || char(10)
                 FROM json_each(doc, '$.labels')), '') AS labels,
       CAST(coalesce(json_extract(doc, '$.goal'), '') AS TEXT) AS goal
FROM told;

-- name: summed
-- What `totals` must hold.
CREATE TEMP VIEW IF NOT EXISTS summed AS
SELECT created / 86400000000 AS day, part.key AS key, sum(part.value) AS n
FROM told, json_each(doc, '$.totals') AS part
WHERE part.type = 'integer'
GROUP BY 1, 2 HAVING sum(part.value) <> 0;

-- name: runs_listed
-- A new run.
CREATE TEMP TRIGGER runs_listed AFTER INSERT ON runs WHEN substr(NEW.run, 1, 1) <> '$' BEGIN
    DELETE FROM listed WHERE id = NEW.id;
    INSERT INTO listed SELECT * FROM listing WHERE id = NEW.id;
    INSERT INTO totals (day, key, n)
    SELECT created / 86400000000, part.key, part.value
    FROM told, json_each(doc, '$.totals') AS part
    WHERE told.id = NEW.id AND part.type = 'integer'
    ON CONFLICT (day, key) DO UPDATE SET n = n + excluded.n;
END;

-- name: runs_relisted
-- A new summary. What the run added to the totals before is taken away: nothing, unless it was
-- reopened.
CREATE TEMP TRIGGER runs_relisted AFTER UPDATE OF summary ON runs
WHEN NEW.summary IS NOT OLD.summary AND substr(NEW.run, 1, 1) <> '$' BEGIN
    DELETE FROM listed WHERE id = NEW.id;
    INSERT INTO listed SELECT * FROM listing WHERE id = NEW.id;
    INSERT INTO totals (day, key, n)
    SELECT OLD.created / 86400000000, part.key, -part.value
    FROM json_each(CASE WHEN json_valid(CAST(OLD.summary AS TEXT))
                        THEN CAST(OLD.summary AS TEXT) ELSE '{}' END, '$.totals') AS part
    WHERE part.type = 'integer'
    ON CONFLICT (day, key) DO UPDATE SET n = n + excluded.n;
    INSERT INTO totals (day, key, n)
    SELECT created / 86400000000, part.key, part.value
    FROM told, json_each(doc, '$.totals') AS part
    WHERE told.id = NEW.id AND part.type = 'integer'
    ON CONFLICT (day, key) DO UPDATE SET n = n + excluded.n;
    DELETE FROM totals WHERE n = 0 AND day = OLD.created / 86400000000
        AND key IN (SELECT key FROM json_each(
            CASE WHEN json_valid(CAST(OLD.summary AS TEXT))
                 THEN CAST(OLD.summary AS TEXT) ELSE '{}' END, '$.totals'));
END;
