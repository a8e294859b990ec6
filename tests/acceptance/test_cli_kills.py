"""kill -9 at any moment of a command that writes: all of what it says, or nothing."""

import contextlib
import json
import os
import random
import subprocess
import time

import pytest

from tests.support.cli import PROGRAM, WORKERS, environment

pytestmark = [pytest.mark.real, pytest.mark.slow]

TRIES = int(os.environ.get("LEADHAND_KILL_TRIES", "6"))


FILES = {"workers.py": WORKERS}


def killed(folder, args, after_s):
    """Whether it was killed before it ended, and its exit code."""
    child = subprocess.Popen(
        [*PROGRAM, *args],
        cwd=folder.path,
        env=environment(folder.path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        return False, child.wait(after_s)
    child.kill()
    return True, child.wait()


def taken_s(folder, *args):
    begin = time.monotonic()
    assert folder.run(*args).code == 0
    return time.monotonic() - begin


def waiting(folder):
    assert folder.run("run", "plan.json", "--quiet").code == 5
    return folder.latest()["run"]


def test_answers(folder):
    """An answer is there or not; given again, it is taken or said to be there already."""
    folder.plan({"id": "a", "worker": "danger"})
    whole_s = taken_s(folder, "answer", f"{waiting(folder)}/review-1", "approve")
    chance = random.Random(6)
    for _ in range(TRIES):
        run = waiting(folder)
        words = ("answer", f"{run}/review-1", "approve")
        was_killed, code = killed(folder, words, chance.uniform(0, 1.2 * whole_s))
        seen = folder.run("verify", "--all")
        # A host that is killed as it opens is told of until the next one has opened.
        assert seen.code == 0 or "or a host died as it opened" in seen.out, seen
        again = folder.run(*words)
        if again.code:
            assert again.code == 2, again
            assert f'No open question "{run}/review-1"' in again.err
        else:
            assert was_killed or code, "an answer that was acknowledged is lost"
        done = folder.run("resume", run)
        assert (done.code, done.out.strip()) == (0, "survived"), done
    assert folder.run("verify", "--all").code == 0


def test_starts_in_the_background(folder):
    """A run has not begun, or it goes on without the one who asked for it."""
    folder.plan({"id": "a", "worker": "say"})
    whole_s = taken_s(folder, "run", "plan.json", "--detach")
    chance = random.Random(6)
    for _ in range(TRIES):
        folder.until(lambda: no_host(folder), "the host before")
        known = {row["run"] for row in folder.run("ls", "--json").doc}
        was_killed, _code = killed(
            folder, ("run", "plan.json", "--detach"), chance.uniform(0, 1.2 * whole_s)
        )
        time.sleep(2 * whole_s)
        folder.until(lambda: no_host(folder), "the host to end")
        new = [row for row in folder.run("ls", "--json").doc if row["run"] not in known]
        assert len(new) <= 1
        assert new or was_killed, "a run that was acknowledged is lost"
        assert all(row["status"] == "succeeded" for row in new), new
        seen = folder.run("verify", "--all")
        assert seen.code == 0 or "or a host died as it opened" in seen.out, seen


def no_host(folder):
    lock = folder.path / ".leadhand" / "leadhand.db.lock"
    return not lock.exists() or not lock.read_text().strip()


def test_the_background_host_outlives_whoever_asked(folder):
    """The pipe it answers on has no reader any more: that is no reason to end."""
    folder.plan({"id": "a", "worker": "nap", "parameters": {"seconds": 1}})
    asked, tell = os.pipe()
    request = {"doc": json.loads((folder.path / "plan.json").read_text()), "values": {}}
    request |= {"goal": None, "planner": "", "workers": [str(folder.path / "workers.py")]}
    request |= {"store": str(folder.path / "x.db"), "policy": None, "actor": "t", "approve": False}
    os.close(asked)
    done = subprocess.run(
        [*PROGRAM, "host", "--tell", str(tell)],
        cwd=folder.path,
        env=environment(folder.path),
        input=json.dumps(request).encode(),
        pass_fds=[tell],
        capture_output=True,
        timeout=60,
        check=False,
    )
    os.close(tell)
    assert done.returncode == 0, done.stderr
    (row,) = folder.run("ls", "--json", "--store", "x.db").doc
    assert row["status"] == "succeeded"
