"""One host per database."""

import json
import os
import signal
import subprocess
import sys

import pytest

from leadhand.errors import Conflict
from leadhand.stores.sqlite.lock import HostLock

HOLD = """
import sys, time
from leadhand.stores.sqlite.lock import HostLock
HostLock(sys.argv[1]).acquire("/tmp/x.sock")
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def database(tmp_path):
    return tmp_path / "log.db"


def test_the_second_is_told_who_was_first(database):
    """By process number, also within one process."""
    with HostLock(database) as lock:
        assert lock.held
        with pytest.raises(Conflict, match=rf"log\.db: process {os.getpid()} is the host"):
            HostLock(database).acquire()
    HostLock(database).acquire()


def test_who_holds_it_can_be_read(database):
    """Pid, start and socket, as JSON; None when nobody does."""
    assert HostLock(database).holder() is None
    lock = HostLock(database)
    lock.acquire("/run/x.sock")
    holder = HostLock(database).holder()
    assert holder is not None
    assert (holder["pid"], holder["socket"]) == (os.getpid(), "/run/x.sock")
    assert holder["started"] > 1_700_000_000_000_000
    assert json.loads(lock.path.read_text()) == holder
    lock.release()
    lock.release()
    assert HostLock(database).holder() is None
    assert lock.path.exists()


def test_a_file_that_says_nothing_is_still_a_lock(database):
    """Whoever took it has not written its name yet."""
    lock = HostLock(database)
    lock.acquire()
    lock.path.write_text("")
    assert HostLock(database).holder() == {"pid": 0, "started": 0, "socket": ""}
    with pytest.raises(Conflict, match="another process"):
        HostLock(database).acquire()
    lock.release()


def test_two_names_of_a_database_have_one_lock(database, tmp_path):
    """A link is not a way around it."""
    database.touch()
    link = tmp_path / "link.db"
    link.symlink_to(database)
    with HostLock(database), pytest.raises(Conflict):
        HostLock(link).acquire()


@pytest.mark.real
def test_it_ends_with_the_process(database):
    """However that ends."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(database)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    holder = HostLock(database).holder()
    assert holder is not None
    assert holder["pid"] == child.pid
    with pytest.raises(Conflict, match=f"process {child.pid}"):
        HostLock(database).acquire()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert HostLock(database).holder() is None
    with HostLock(database):
        pass


@pytest.mark.real
@pytest.mark.parametrize(
    "start",
    [
        "child = subprocess.Popen(['sleep', '60'], close_fds=False).pid",
        "child = os.fork() or time.sleep(60)",
    ],
    ids=["spawned", "forked"],
)
def test_children_do_not_keep_it(database, start):
    """A worker that outlives its host must not keep the next host out."""
    code = (
        "import os, subprocess, sys, time\n"
        "from leadhand.stores.sqlite.lock import HostLock\n"
        f"HostLock(sys.argv[1]).acquire()\n{start}\nprint(child, flush=True)\nos._exit(0)\n"
    )
    host = subprocess.Popen(
        [sys.executable, "-c", code, str(database)], stdout=subprocess.PIPE, text=True
    )
    assert host.stdout is not None
    child = int(host.stdout.readline())
    try:
        host.wait(timeout=60)
        HostLock(database).acquire()
    finally:
        os.kill(child, signal.SIGKILL)
        host.stdout.close()
