-- The rights of roles; {role} is one. See roles.py.

-- name: none
-- Whatever it was given before.
REVOKE ALL ON ALL TABLES IN SCHEMA leadhand FROM {role};
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA leadhand FROM {role};
REVOKE ALL ON SCHEMA leadhand FROM {role};

-- name: reader
GRANT USAGE ON SCHEMA leadhand TO {role};
GRANT SELECT ON leadhand.meta, leadhand.tail, leadhand.runs, leadhand.events,
    leadhand.batches, leadhand.artifacts, leadhand.host, leadhand.listed, leadhand.totals,
    leadhand.summed, leadhand.archives, leadhand.archived TO {role};

-- name: writer
-- (Besides a reader's.)
GRANT EXECUTE ON FUNCTION leadhand.append, leadhand.claim, leadhand.rebuild_lists TO {role};
GRANT INSERT ON leadhand.artifacts TO {role};
GRANT INSERT, UPDATE ON leadhand.host TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON leadhand.words TO {role};
