"""Tells the gate which tests ran and how they ended, from inside the runner's process.

This file is not imported by Leadhand. The gate puts its folder on `PYTHONPATH` of the commands
that it runs; `sitecustomize.py` beside it and pytest then load it, before any code of the
repository. It runs on whatever Python a project has, so it uses little, and fails in silence: no
report is seen by the gate.

One run of a runner claims one key, which is gone afterwards, and writes one file: a line for the
beginning, one for each test, one for the end, each with a code that only the holder of the key
can make of it and of all lines before it. A run that began and did not end, a line that was
changed, a file that was taken away: each of them is red (`test_runs.py`). Code in the same
process that looks for the key in the interpreter's memory can find it: see `test_tampering.py`, and
docs/reference/fleet.md.
"""

import contextlib
import hashlib
import hmac
import json
import os
import sys

PLACE = "LEADHAND_TEST_REPORTS"
HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - any Python


def begin(runner):
    """Claim a key and begin a report; return what adds to it, or None when there is none."""
    place = os.environ.pop(PLACE, "")
    _forget()
    if not place:
        return None
    for name in sorted(os.listdir(place)):  # noqa: PTH208
        if not name.endswith(".key"):
            continue
        taken = os.path.join(place, name)  # noqa: PTH118
        mine = f"{taken}.{os.getpid()}"
        try:
            os.rename(taken, mine)  # noqa: PTH104
            with open(mine, "rb") as file:  # noqa: PTH123
                key = file.read()
            os.unlink(mine)  # noqa: PTH108
        except OSError:
            continue
        return _writer(os.path.join(place, name[:-4] + ".log"), key, runner)  # noqa: PTH118
    return None


def _forget():
    """Programs that tests start are no part of the run: they report nothing."""
    for name, separator in (("PYTHONPATH", os.pathsep), ("PYTEST_PLUGINS", ",")):
        parts = os.environ.get(name, "").split(separator)
        left = [each for each in parts if each not in ("", HERE, "leadhand_pytest_report")]
        if left:
            os.environ[name] = separator.join(left)
        else:
            os.environ.pop(name, None)


def _writer(path, key, runner):
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    chain = [b""]
    digest, dumps, write, new = hashlib.sha256, json.dumps, os.write, hmac.new
    pid, getpid = os.getpid(), os.getpid

    def add(kind, name="", outcome=""):
        if getpid() != pid:
            return  # a copy of the process, made by a test
        body = dumps([kind, name, outcome]).encode()
        chain[0] = new(key, chain[0] + body, digest).hexdigest().encode()
        write(out, body + b" " + chain[0] + b"\n")

    add("begin", runner)
    return add


def watch_unittest():
    """Report what `python -m unittest` and `unittest.main()` run."""
    import unittest
    import unittest.main

    program, result = unittest.main, unittest.TestResult
    state = {"add": None, "depth": 0}

    def told(outcome):
        def tell(test):
            if state["add"] is not None:
                state["add"]("test", test.id(), outcome)

        return tell

    def wrap(name, outcome):
        real, tell = getattr(result, name), told(outcome)

        def method(self, test, *more):
            tell(test)
            return real(self, test, *more)

        setattr(result, name, method)

    for name, outcome in (
        ("addSuccess", "passed"),
        ("addFailure", "failed"),
        ("addError", "failed"),
        ("addSkip", "skipped"),
        ("addExpectedFailure", "skipped"),
        ("addUnexpectedSuccess", "failed"),
    ):
        wrap(name, outcome)
    real_subtest, subtest_failed = result.addSubTest, told("failed")

    def add_subtest(self, test, subtest, err):
        if err is not None:
            subtest_failed(test)
        return real_subtest(self, test, subtest, err)

    result.addSubTest = add_subtest
    real_init = program.__init__

    def init(self, *given, **more):
        add = None
        if state["depth"] == 0:
            add = state["add"] = begin("unittest")
        state["depth"] += 1
        try:
            return real_init(self, *given, **more)
        finally:
            state["depth"] -= 1
            if add is not None:
                state["add"] = None
                add("end")

    program.__init__ = init


def install():
    """Watch unittest, and let a sitecustomize.py that this one hides have its say."""
    if PLACE not in os.environ:
        return
    with contextlib.suppress(Exception):
        watch_unittest()


__all__ = ["begin", "install", "sys"]
