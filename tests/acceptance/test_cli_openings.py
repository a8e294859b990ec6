"""How often one command loads the settings, lints the plan and opens the database.

Each is done once, and handed down. In this process, so that calls can be counted.
"""

import sqlite3
from collections import Counter

import pytest

import leadhand.settings
from leadhand.cli.group import execute
from leadhand.core.lint import plan as linting
from leadhand.stores.location import kind_of
from tests.support.cli import WORKERS, environment

FILES = {"workers.py": WORKERS}


@pytest.fixture
def counted(folder, monkeypatch):
    """Run a command here; gives back its exit code and what was counted."""
    seen = Counter()

    def count(module, name, word):
        original = getattr(module, name)

        def counting(*args, **kwargs):
            seen[word] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, counting)

    count(leadhand.settings, "_settings", "settings")
    count(linting, "check_whole", "lints")
    count(sqlite3, "connect", "connections")
    files = type(kind_of(folder.path))
    count(files, "reader", "readers")
    count(files, "open", "stores")
    for name, value in environment(folder.path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder.path)

    def run(*words):
        seen.clear()
        return execute([*words]), dict(seen)

    return run


def waiting(folder):
    """A run that waits for a review."""
    plan = folder.plan({"id": "one", "worker": "danger"})
    done = folder.run("run", plan, "--no-input")
    assert done.code == 5, done
    return folder.latest()["run"]


def test_a_run_loads_lints_and_opens_once(folder, counted):
    """One reader for the plans of the library; a connection to write and one to read."""
    plan = folder.plan({"id": "one", "worker": "say"})
    first = counted("run", plan)
    assert first == (0, {"settings": 1, "lints": 1, "stores": 1, "connections": 2})
    again = counted("run", plan)
    assert again == (0, {"settings": 1, "lints": 1, "readers": 1, "stores": 1, "connections": 3})


@pytest.mark.parametrize(
    "words", [("review", "{}", "approve"), ("answer", "{}/review-1", "approve")]
)
def test_an_approval_opens_the_database_twice(folder, counted, words):
    """To read what waits, and to write; what was written is not read again."""
    run = waiting(folder)
    code, seen = counted(*(word.format(run) for word in words))
    assert (code, seen) == (0, {"settings": 1, "readers": 1, "stores": 1, "connections": 3})
    assert not list(folder.path.glob(".leadhand/*-wal")), "the writer is the last to close it"
    assert folder.run("resume", run).code == 0
