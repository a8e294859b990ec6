"""What each role may do to a log in PostgreSQL, tried against a real server."""

import asyncio

import psycopg
import pytest

from leadhand.errors import NotAllowed, UsageError
from leadhand.stores.postgres.address import address_of
from leadhand.stores.postgres.lock import PostgresLock
from leadhand.stores.postgres.reader import PostgresReader
from leadhand.stores.postgres.schema import grant
from leadhand.stores.postgres.session import queries
from leadhand.stores.postgres.store import PostgresStore, migrated
from tests.stores.entries import chained
from tests.support.postgres import PASSWORD, numbers

CHANGES = [
    "UPDATE leadhand.events SET body = 'x'",
    "DELETE FROM leadhand.events",
    "TRUNCATE leadhand.events",
    "INSERT INTO leadhand.events VALUES (9, 1, 9, 9, 1, 'x', 'x')",
    "UPDATE leadhand.batches SET hash = 'x'",
    "DELETE FROM leadhand.batches",
    "INSERT INTO leadhand.batches VALUES (99, 99, 99, 'x')",
    "UPDATE leadhand.runs SET seq = 0",
    "DELETE FROM leadhand.runs",
    "UPDATE leadhand.tail SET epoch = 99",
    "UPDATE leadhand.artifacts SET data = 'x'",
    "DELETE FROM leadhand.artifacts",
    "UPDATE leadhand.meta SET value = 'x'",
    "DROP TABLE leadhand.events",
    "DROP TRIGGER events_no_change ON leadhand.events",
    "ALTER TABLE leadhand.events DISABLE TRIGGER ALL",
    "CREATE TABLE leadhand.mine (a int)",
    "CREATE OR REPLACE FUNCTION leadhand.claim() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "SET session_replication_role = replica",
]
WRITES = [
    "INSERT INTO leadhand.artifacts VALUES ('x', 'x')",
    "INSERT INTO leadhand.words (word) VALUES ('x')",
    "SELECT * FROM leadhand.words",
    "SELECT * FROM leadhand.claim()",
    "UPDATE leadhand.host SET pid = 1",
]


class Team:
    """A database with an owner, a writer and a reader."""

    def __init__(self, postgres, folder) -> None:
        self.postgres, self.folder = postgres, folder
        number = next(numbers)
        self.names = {each: f"{each}_{number}" for each in ("owner", "writer", "reader")}
        with postgres.connect() as connection:
            for name in self.names.values():
                connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
        self.database = postgres.new(folder).dsn.rpartition("/")[2]
        with postgres.connect() as connection:
            connection.execute(f"ALTER DATABASE {self.database} OWNER TO {self.names['owner']}")

    def address(self, role):
        url = self.postgres.url(self.database, self.names[role])
        return address_of(url, self.folder)

    def connect(self, role):
        return self.postgres.connect(self.database, user=self.names[role])


@pytest.fixture
async def team(postgres, tmp_path):
    made = Team(postgres, tmp_path)
    migrated(made.address("owner"))
    grant(made.address("owner"), [made.names["reader"]], [made.names["writer"]])
    store = PostgresStore(made.address("writer"))
    PostgresLock(store).acquire()
    store.claim()
    await store.append("r", 0, chained("r", 2), b"{}")
    made.ref = store.put_artifact(b"a result")
    yield made
    await store.close()


async def test_a_writer_appends_and_a_reader_reads(team):
    """All that a host and a dashboard need, without a right to anything else."""
    log = PostgresReader(team.address("reader"))
    assert log.read("r") == chained("r", 2)
    assert log.get_artifact(team.ref) == b"a result"
    with log.snapshot():
        assert len(log.batches()) == 1
    follower = log.follow()
    seen = [await asyncio.wait_for(anext(follower), 30) for _ in range(2)]
    assert [position for position, _ in seen] == [1, 2]
    await follower.aclose()
    log.close_reader()


@pytest.mark.parametrize("role", ["writer", "reader"])
async def test_nobody_but_the_owner_changes_anything(team, role):
    """Each way that SQL has; what the writer appends, it appends through the functions."""
    with team.connect(role) as connection:
        for statement in CHANGES + (WRITES if role == "reader" else []):
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(statement)
            assert caught.value.sqlstate == "42501", statement
    log = PostgresReader(team.address("owner"))
    assert log.read("r") == chained("r", 2)
    log.close_reader()


H = b"h" * 32
MISFITS = [
    (([], [], [], []), (["r"], [5], [H])),  # a run that is not named
    ((["r"], [2], [4], [H]), (["r"], [4], [H])),  # a gap
    ((["r"], [2], [4], [H]), (["r", "r"], [4, 3], [H, H])),  # out of order
    ((["r"], [2], [3], [b"g" * 32]), (["r"], [3], [H])),  # another head
    ((["r"], [2], [3], [H]), ([], [], [])),  # nothing at all
    ((["r"], [2], [3], [H]), (["r", "s"], [3, 1], [H, H])),  # one more run
    ((["s"], [0], [2], [H]), (["s"], [1], [H])),  # it ends elsewhere
]


@pytest.mark.parametrize(("runs", "entries"), MISFITS)
async def test_a_writer_puts_nothing_anywhere_else_than_at_the_end(team, runs, entries):
    """Whatever it says of where the entries belong."""
    names, befores, seqs, heads = runs
    at, nothing, ones = [1] * len(names), [None] * len(names), [1] * len(entries[0])
    values = (
        *(None, names, befores, at, at, seqs, heads, nothing),
        *(entries[0], entries[1], ones, ones, [b"{}"] * len(ones), entries[2]),
    )
    with team.connect("writer") as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(queries()["append"], values)
    assert caught.value.sqlstate == "LH004"
    log = PostgresReader(team.address("reader"))
    assert (log.read("r"), len(log.batches())) == (chained("r", 2), 1)
    log.close_reader()


async def test_a_log_is_copied_by_the_owner(team):
    """A writer cannot put entries of its choice into the past, nor give a log another name."""
    copy = PostgresStore(team.address("writer"), shared=True, copying=True)
    with pytest.raises(NotAllowed, match="name the owner in the address"):
        copy.adopt("another")
    await copy.close()


async def test_what_happened_stays_for_the_owner_too(team):
    """A guard against accidents: the owner could drop it, and the hash chain would tell."""
    with team.connect("owner") as connection:
        for statement in CHANGES[:3]:
            with pytest.raises(psycopg.Error, match="append-only"):
                connection.execute(statement)


async def test_functions_that_run_as_the_owner_use_nothing_of_the_callers(team):
    """Objects of a writer's own cannot stand in for those the functions mean."""
    with team.connect("writer") as connection:
        connection.execute("CREATE TEMP TABLE tail (epoch bigint)")
        connection.execute(
            "CREATE FUNCTION pg_temp.int8send(bigint) RETURNS bytea LANGUAGE sql AS "
            "'SELECT ''hijacked''::bytea'"
        )
        connection.execute("SET search_path = pg_temp, public, pg_catalog")
        ((epoch, *_),) = connection.execute("SELECT * FROM leadhand.claim()").fetchall()
        assert epoch > 1
    log = PostgresReader(team.address("reader"))
    assert log.epoch() == epoch
    log.close_reader()


def test_the_command_for_the_owner_can_be_copied(tmp_path):
    """Not in the name of whoever was refused, and without what a shell would read."""
    address = address_of("postgres://app:secret@db/log?host=/run/pg&port=1", tmp_path)
    assert address.user == "app"
    command = address.migrate(" --writer app")
    assert command == "leadhand migrate 'postgres://OWNER@db/log?host=/run/pg&port=1' --writer app"


async def test_rights_are_given_anew(team):
    """A writer that is made a reader loses what it had; only the owner gives rights."""
    writer, owner = team.names["writer"], team.address("owner")
    with pytest.raises(NotAllowed, match="let the owner"):
        grant(team.address("writer"), [writer], [])
    grant(owner, [writer], [])
    with team.connect("writer") as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(WRITES[3])
    assert caught.value.sqlstate == "42501"
    with pytest.raises(UsageError, match="there is no role nobody"):
        grant(owner, ["nobody"], [])
    with pytest.raises(UsageError, match="owner of the tables or a superuser"):
        grant(owner, [], ["postgres"])
    with pytest.raises(UsageError, match="name it once"):
        grant(owner, [writer], [writer])
    odd = 'a "quoted"; name'
    with team.postgres.connect() as connection:
        connection.execute('CREATE ROLE "a ""quoted""; name"')
    grant(owner, [odd], [])


async def test_a_role_that_may_not_make_tables_is_told_who_must(postgres, tmp_path):
    """Not an error of the server's, but what to do."""
    made = Team(postgres, tmp_path)
    with pytest.raises(NotAllowed, match=r"leadhand migrate .* --writer writer_"):
        PostgresStore(made.address("writer"))
