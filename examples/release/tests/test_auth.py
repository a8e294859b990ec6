"""The service's own tests. AUTH_VERSION says which version is tested."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from sqlite3 import Connection as Database
from sqlite3 import connect
from types import ModuleType

import pytest

VERSIONS = Path(__file__).resolve().parents[1] / "versions"


@pytest.fixture
def auth() -> ModuleType:
    file = VERSIONS / os.environ["AUTH_VERSION"] / "auth.py"
    spec = importlib.util.spec_from_file_location("auth_under_test", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def database(auth: ModuleType) -> Iterator[Database]:
    made = connect(":memory:")
    made.execute("CREATE TABLE users (name TEXT PRIMARY KEY)")
    made.executemany("INSERT INTO users (name) VALUES (?)", [("ann",), ("bob",)])
    auth.migrate(made)
    yield made
    made.close()


def test_it_knows_its_version(auth: ModuleType) -> None:
    assert os.environ["AUTH_VERSION"] == auth.VERSION


@pytest.mark.parametrize("name", ["ann", "bob"])
def test_people_can_log_in(auth: ModuleType, database: Database, name: str) -> None:
    assert auth.login(database, name)["name"].lower() == name


def test_strangers_cannot(auth: ModuleType, database: Database) -> None:
    with pytest.raises(LookupError, match="no account eve"):
        auth.login(database, "eve")


def test_a_migration_can_be_made_twice(auth: ModuleType, database: Database) -> None:
    auth.migrate(database)
    assert auth.login(database, "ann")["name"].lower() == "ann"
