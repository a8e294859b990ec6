-- What a role that is not the owner may do to the log: call these two functions.
--
-- They run with the owner's rights, so that whoever appends needs none on the tables beyond
-- reading: nobody but the owner can put an entry anywhere else than at the end, linked to what
-- is there. Who may call them: roles.py.

ALTER FUNCTION leadhand.append(
    bigint, text[], bigint[], bigint[], bigint[], bigint[], bytea[], bytea[],
    text[], bigint[], bigint[], bigint[], bytea[], bytea[]
) SECURITY DEFINER SET search_path = pg_catalog, pg_temp;

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
