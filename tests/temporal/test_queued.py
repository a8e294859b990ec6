"""A run that no engine begins: whoever started it knows its id, and may leave or withdraw it."""

import signal
import time

import pytest

from leadhand.app.opening import open_store
from tests.support.cli import WORKERS, Folder, finished

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def project(tmp_path, temporal):
    """A project whose log is there, and nobody who serves it."""
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    folder.write(
        "leadhand.toml",
        f'[project]\nworkers = ["workers.py"]\n[temporal]\naddress = "{temporal.address}"\n',
    )
    folder.plan({"id": "a", "worker": "say"})
    (tmp_path / ".leadhand").mkdir()
    store, lock = open_store(tmp_path / ".leadhand" / "leadhand.db")
    store.close_now()
    lock.release()
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_wait_for_an_engine(project, number):
    with project.start("run", "plan.json", "--json") as waits:
        assert "nobody serves runs" in waits.stderr.readline()
        time.sleep(1)
        waits.send_signal(number)
        began = time.monotonic()
        done = finished(waits)
        assert time.monotonic() - began < 3
    assert done.code == 128 + number, done
    assert "no longer waiting" in done.err, done
    assert done.doc["status"] == "queued"
