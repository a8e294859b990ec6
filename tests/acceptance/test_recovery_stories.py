"""Each way out of a failure, end to end through the command line, with a kill -9 in the middle.

The host is killed while the way out is under way; `leadhand resume` takes the run up, and what
was decided before still counts: tries, the other worker, the parts, the question.
"""

import json
import os
import signal

import pytest

from leadhand.app.reader import Reader
from leadhand.core.events import RecoveryDecided
from leadhand.errors import UsageError

pytestmark = pytest.mark.real

WORKERS = '''\
"""Workers that fail in every way there is an answer to."""

import time
from pathlib import Path

from leadhand import Ask, Finish, Permanent, Propose, RateLimited, TooComplex, Transient
from leadhand import Unavailable, method, worker

HERE = Path(__file__).parent


def count(name):
    """How often a worker was called, this call included."""
    path = HERE / f"{name}.txt"
    with path.open("a") as file:
        file.write("called\\n")
    return len(path.read_text().splitlines())


@worker(idempotent=True)
def flaky() -> str:
    """Works the third time."""
    if count("flaky") < 3:
        raise Transient("connection reset")
    return "fetched"


@worker
def dead() -> str:
    count("dead")
    raise Unavailable("no such endpoint")


@worker(idempotent=True)
def standby() -> str:
    """Slow the first time."""
    if count("standby") == 1:
        time.sleep(60)
    return "from the other one"


@worker(gives="table")
def clean(raw: list[int]) -> list[int]:
    count("clean")
    raise TooComplex("too many rows at once")


@worker(gives="parts")
def cut(raw: list[int]) -> list[list[int]]:
    count("cut")
    return [[each] for each in raw]


@worker(gives="row", idempotent=True)
def clean_part(part: list[int]) -> list[int]:
    """The second part is slow the first time."""
    if count(f"part-{part[0]}") == 1 and part == [1]:
        time.sleep(60)
    return part


@worker(gives="table")
def merge(tables: list[list[int]]) -> list[int]:
    count("merge")
    return sorted(sum(tables, []))


@method("table")
def in_parts():
    return ["cut", "clean_part*", "merge"]


@worker
def locked() -> str:
    """Works once somebody has put the key there."""
    count("locked")
    if not (HERE / "key").exists():
        raise Permanent("there is no key")
    return "opened"


@worker(idempotent=True)
def elsewhere() -> str:
    """Slow the first time."""
    if count("elsewhere") == 1:
        time.sleep(60)
    return "went on"


@worker(idempotent=True)
def out() -> str:
    """Asks to be left alone for three seconds, once."""
    with (HERE / "when.txt").open("a") as file:
        file.write(f"{time.time()}\\n")
    if count("out") == 1:
        raise RateLimited("closed for now", retry_after_s=3)
    return "open again"


def asks(view):
    """A planner that wants to know something, and can do without."""
    if not view.answers:
        return Ask("Which colour?", ("red", "blue"), default="blue", within_s=3)
    return Finish(view.answers[-1]["choice"])
'''


FILES = {"workers.py": WORKERS}


def killed_when(folder, condition, what, *args):
    """Start a run, and kill its host with no warning once something is so; the run's id."""
    with folder.start("run", *args, "--quiet") as child:
        folder.until(condition, what)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert folder.latest()["status"].startswith("running"), folder.latest()
    return folder.latest()["run"]


def said(folder, run, *words):
    """Whether the log says something; asked for while the host writes to it."""
    if not run:
        rows = folder.run("ls", "--json").doc
        run = rows[0]["run"] if rows else ""
    done = folder.run("logs", run) if run else None
    return done is not None and all(word in done.out for word in words)


def decided(folder, strategy):
    """Whether a recovery was decided; read here, for a command takes too long on a busy machine."""
    try:
        reader = Reader(folder.path / ".leadhand" / "leadhand.db")
    except UsageError:  # not made yet
        return False
    events = [event for row in reader.runs() for _entry, event in reader.events(row.run)]
    return any(isinstance(e, RecoveryDecided) and e.strategy == strategy for e in events)


def settled(folder, run, *words):
    """The log says so, and nothing is wrong with it."""
    log = folder.run("logs", run).out
    for word in words:
        assert word in log, f"{word!r} is not in\n{log}"
    verified = folder.run("verify", run)
    assert verified.code == 0, verified
    return log


def test_retry(folder):
    """With backoff: killed while it waits for the second try, which is still the second."""
    plan = folder.plan(
        {"id": "a", "worker": "flaky", "retry": {"attempts": 3, "backoff": 3, "factor": 1}}
    )
    run = killed_when(folder, lambda: decided(folder, "retry"), "the decision", plan)
    assert folder.lines("flaky.txt") == 1
    done = folder.run("resume", run)
    assert (done.code, done.out.strip()) == (0, "fetched"), done
    assert folder.lines("flaky.txt") == 3
    log = settled(folder, run, "attempt 2 of 3", "attempt 3 of 3", "attempt 3 verified")
    assert " lost" not in log, "nothing was in flight when the host died"


def test_reroute(folder):
    """Killed while the other worker is at it: that one is asked again, not the dead one."""
    plan = folder.plan({"id": "a", "worker": "dead", "alternatives": ["standby"]})
    run = killed_when(folder, lambda: folder.lines("standby.txt"), "the other worker", plan)
    done = folder.run("resume", run)
    assert (done.code, done.out.strip()) == (0, "from the other one"), done
    assert (folder.lines("dead.txt"), folder.lines("standby.txt")) == (1, 2)
    settled(
        folder,
        run,
        "(unavailable) → switching to standby",
        "(lost) → retrying with standby",
        "attempt 3 verified",
    )


def test_simplify(folder):
    """Killed in the middle of the parts: what is done is kept, and only the rest is done."""
    goal = ("A table", "--planner", "goal", "--have", "raw=[3, 1, 2]", "--want", "table")
    run = killed_when(
        folder,
        lambda: folder.lines("part-1.txt") and verified_parts(folder),
        "the parts",
        *goal,
    )
    done = folder.run("resume", run)
    assert (done.code, json.loads(done.out)) == (0, [1, 2, 3]), done
    names = ("clean", "cut", "part-3", "part-1", "part-2", "merge")
    assert [folder.lines(f"{name}.txt") for name in names] == [1, 1, 1, 2, 1, 1]
    settled(
        folder,
        run,
        "(too_complex) → asking the planner to split it",
        "(lost) → retrying with clean_part",
    )


def verified_parts(folder):
    """Whether the two quick parts are done."""
    log = folder.run("logs", folder.latest()["run"]).out
    return "clean_part: attempt 1 verified" in log and "clean_part-3: attempt 1 verified" in log


def test_escalate(folder):
    """A question, and the rest goes on; killed meanwhile, the question is still there."""
    plan = folder.plan({"id": "a", "worker": "locked"}, {"id": "b", "worker": "elsewhere"})
    run = killed_when(
        folder,
        lambda: folder.lines("elsewhere.txt") and said(folder, "", "Question q1"),
        "the question",
        plan,
    )
    (row,) = folder.run("inbox", "--json").doc
    assert row["id"] == f"{run}/q1"
    waits = folder.run("resume", run)
    assert waits.code == 5, waits
    assert folder.lines("elsewhere.txt") == 2, "the other step went on after the restart"
    (folder.path / "key").touch()
    assert folder.run("answer", f"{run}/q1", "retry", "--text", "it is there now").code == 0
    done = folder.run("resume", run)
    assert done.code == 0, done
    assert (folder.lines("locked.txt"), folder.lines("elsewhere.txt")) == (2, 2)
    settled(
        folder, run, "(permanent) → asking a person", "Question q1 answered by", "it is there now"
    )


def test_a_long_outage(folder):
    """Parked on a timer that survives: called again when it is over, with the try it had."""
    toml = "[project]\nworkers = ['workers.py']\n[policy]\npark = '1s'\n"
    folder.write("leadhand.toml", toml)
    plan = folder.plan({"id": "a", "worker": "out", "retry": 1})
    run = killed_when(folder, lambda: said(folder, "", "→ parked"), "the decision", plan)
    done = folder.run("resume", run)
    assert (done.code, done.out.strip()) == (0, "open again"), done
    first, second = map(float, (folder.path / "when.txt").read_text().split())
    assert second - first >= 3
    settled(
        folder, run, "(rate_limited) → parked until", "no attempt is used", "attempt 2 verified"
    )


def test_an_answer_by_default(folder):
    """Nobody is there before the kill and nobody after it: the planner's own answer counts."""
    goal = ("Paint it", "--planner", "workers.py:asks")
    run = killed_when(folder, lambda: said(folder, "", "Which colour?"), "the question", *goal)
    done = folder.run("resume", run)
    assert (done.code, done.out.strip()) == (0, "blue"), done
    settled(folder, run, "Question q1 answered by default")


def test_a_person(folder):
    """A step of theirs waits through a restart, and their word is judged."""
    plan = folder.plan(
        {"id": "a", "worker": "human", "description": "Count.", "success_criteria": "data.n > 2"},
        {"id": "b", "worker": "elsewhere"},
    )
    run = killed_when(folder, lambda: folder.lines("elsewhere.txt"), "the other step", plan)
    assert folder.run("resume", run).code == 5
    assert folder.run("answer", f"{run}/q1", "done", "--data", '{"n": 2}').code == 0
    again = folder.run("resume", run)
    assert again.code == 5, again
    assert "data.n > 2 does not hold" in again.err
    assert folder.run("answer", f"{run}/q2", "done", "--data", '{"n": 3}').code == 0
    assert folder.run("resume", run).code == 0
    settled(folder, run, "(criteria_unmet) → retrying with ", "attempt 2 verified")
