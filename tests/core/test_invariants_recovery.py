"""The checker of logs on outages, splits, people, default answers and wanted facts."""

import pytest

from leadhand.core import events as ev
from leadhand.core.logcheck.checker import check
from leadhand.core.policy import Policy
from tests.core.test_invariants import SECOND, A, B, Log

LONG = 1000
BUSY = {"kind": "rate_limited"}
MINE = {"id": "a", "worker": "hand"}
WANTS = {"text": "g", "want": ["table"]}


def parked(log, attempt=1, *, asked=LONG, wait=None):
    """A step was out for a while, and is parked."""
    log.start("a", attempt, later=LONG + 1).fail("a", attempt, **BUSY, retry_after=asked)
    until = log.at + (1 + int(asked if wait is None else wait)) * SECOND
    return log.decide("a", "park", attempt, **BUSY, until=until)


def split(log, ident="a", attempt=1):
    """A step was too much, and the planner is asked to split it."""
    log.start(ident, attempt).fail(ident, attempt, kind="too_complex")
    return log.decide(ident, "simplify", attempt, kind="too_complex")


def task(log, ident="q1", *, step="a", until=0, default=""):
    """A person is asked to do something."""
    choices = ["done", "cannot"]
    event = ev.QuestionAsked(
        id=ident, kind="task", text="?", choices=choices, step=step, until=until, default=default
    )
    return log.add(event)


def question(log, *, within=100, default="x", choices=("x", "y")):
    """The planner asks something, with an answer for the case that nobody gives one."""
    until = log.at + (within + 1) * SECOND if within else 0
    more = {"choices": list(choices), "default": default, "until": until}
    return log.add(ev.QuestionAsked(id="q1", kind="planner", text="?", **more))


def silence(log, choice="x", later=100):
    """Nobody answers."""
    answered = ev.QuestionAnswered(id="q1", choice=choice, actor="nobody")
    return log.add(answered, later=later)


def wanting(*steps, **more):
    """A run that wants a table."""
    goal = more.pop("goal", WANTS)
    return Log(*steps, goal=goal, **more)


CLEAN = {
    "parked": lambda: parked(Log(A)).start("a", 2, later=LONG + 1).report("a", 2).done(),
    "parked three times with one try": lambda: (
        parked(parked(parked(Log({**A, "retry": 1})), 2), 3)
        .start("a", 4, later=LONG + 1)
        .report("a", 4)
        .done()
    ),
    "parked up to the limit": lambda: parked(
        parked(Log(A, policy=Policy(outage_s=2.0 * LONG + 2))), 2
    ),
    "too long to be parked": lambda: (
        Log(A)
        .start("a")
        .fail("a", **BUSY, retry_after=99 * LONG)
        .decide("a", "ask", **BUSY)
        .question("a")
    ),
    "split": lambda: (
        split(Log(A, B, splits=True))
        .revise({"id": "c"}, {"id": "d", "supersedes": "a", "depends_on": ["c"]})
        .run("c")
        .run("d")
        .run("b")
        .done()
    ),
    "split as deep as may be": lambda: split(
        split(Log(A, splits=True, policy=Policy(splits_max=2))).revise({"id": "c"}), "c"
    ),
    "a person does it": lambda: (
        task(Log(MINE)).say("done").start("a", worker="hand").report("a").done()
    ),
    "a person does it again": lambda: (
        task(
            task(Log(MINE))
            .say("done")
            .start("a", worker="hand")
            .fail("a", kind="criteria_unmet", effect="done")
            .decide("a", "retry", kind="criteria_unmet", worker="hand"),
            "q2",
        )
        .say("done", "q2")
        .start("a", 2, worker="hand")
        .report("a", 2)
        .done()
    ),
    "what a person did outlives the host": lambda: (
        task(Log(MINE))
        .say("done")
        .start("a", worker="hand")
        .add(ev.RunHosted(2))
        .lose("a")
        .decide("a", "retry", kind="lost", worker="hand")
        .start("a", 2, worker="hand")
        .report("a", 2)
        .done()
    ),
    "a person cannot": lambda: (
        task(Log(MINE)).say("cannot").decide("a", "ask", 0, kind="permanent").question("a", "q2")
    ),
    "another way": lambda: (
        Log(A, replans=True)
        .start("a")
        .fail("a", kind="permanent")
        .decide("a", "ask", kind="permanent")
        .question("a", choices=("retry", "replan"))
        .say("replan")
        .revise({"id": "c"}, drop={"a": "c does it"})
        .run("c")
        .done()
    ),
    "nobody answered": lambda: silence(question(Log(A))).run("a").done(),
    "somebody answered in time": lambda: question(Log(A)).say("y").run("a").done(),
    "wanted and given": lambda: (
        wanting({**A, "gives": "table"}, gives=("table", "more")).run("a").done()
    ),
    "given by the worker": lambda: wanting(A, gives=("table",)).run("a").done(),
    "wanted and had": lambda: wanting(A, goal={**WANTS, "have": {"table": 1}}).run("a").done(),
    "wanted and a parameter": lambda: wanting(A, params={"table": 1}).run("a").done(),
    "one name for what is wanted": lambda: (
        wanting({**A, "gives": ["table"]}, goal={**WANTS, "want": "table"}, gives=("table",))
        .run("a")
        .done()
    ),
    "given by what a person saw": lambda: (
        wanting({**A, "gives": "table", "idempotent": False}, gives=("table",))
        .start("a")
        .fail("a", kind="lost", effect="unknown")
        .decide("a", "ask", kind="lost")
        .question("a")
        .say("done", data=[1])
        .done()
    ),
    "dropped and given again": lambda: (
        wanting(
            {**A, "gives": "table"}, {**B, "drops": "table", "gives": "table"}, gives=("table",)
        )
        .run("a")
        .run("b")
        .done()
    ),
}

BAD = {
    "parked for nothing": (
        "I19",
        lambda: Log(A).start("a").fail("a").decide("a", "park", until=LONG * SECOND),
    ),
    "parked for a moment": ("I19", lambda: parked(Log(A), asked=60)),
    "parked too short": ("I19", lambda: parked(Log(A), wait=LONG - 9)),
    "started before the outage is over": ("I19", lambda: parked(Log(A)).start("a", 2)),
    "parked too long in all": (
        "I19",
        lambda: parked(parked(Log(A, policy=Policy(outage_s=1.5 * LONG))), 2),
    ),
    "parked by another": (
        "I21",
        lambda: (
            Log(A)
            .start("a")
            .fail("a", **BUSY, retry_after=LONG)
            .decide("a", "park", **BUSY, worker="other", until=2 * LONG * SECOND)
        ),
    ),
    "parked though nobody saw": (
        "I17",
        lambda: (
            Log({**A, "idempotent": False})
            .start("a")
            .fail("a", **BUSY, effect="unknown", retry_after=LONG)
            .decide("a", "park", **BUSY, until=2 * LONG * SECOND)
        ),
    ),
    "a park used up a try": (
        "I21",
        lambda: (
            parked(Log({**A, "retry": 2}))
            .start("a", 2, later=LONG + 1)
            .fail("a", 2)
            .decide("a", "ask", 2)
            .question("a")
        ),
    ),
    "given up with tries left": (
        "I21",
        lambda: Log(A, replans=True).start("a").fail("a").decide("a", "replan"),
    ),
    "rerouted with tries left": (
        "I21",
        lambda: (
            Log({**A, "alternatives": ["other"], "idempotent": True})
            .start("a")
            .fail("a")
            .decide("a", "reroute", worker="other")
        ),
    ),
    "split by a planner that cannot": ("I21", lambda: split(Log(A, replans=True))),
    "split too deep": (
        "I31",
        lambda: split(
            split(Log(A, splits=True, policy=Policy(splits_max=1))).revise({"id": "c"}), "c"
        ),
    ),
    "nobody did it": ("L5", lambda: Log(MINE).start("a", worker="hand")),
    "nobody did it again": (
        "L5",
        lambda: (
            task(Log(MINE))
            .say("done")
            .start("a", worker="hand")
            .fail("a", kind="criteria_unmet")
            .decide("a", "retry", kind="criteria_unmet", worker="hand")
            .start("a", 2, worker="hand")
        ),
    ),
    "somebody else's step": ("I21", lambda: task(Log(A))),
    "a task that is done": (
        "I21",
        lambda: task(task(Log(MINE)).say("done").start("a", worker="hand").report("a"), "q2"),
    ),
    "a task without an answer": ("I21", lambda: task(Log(MINE)).start("a", worker="hand")),
    "who cannot, and nobody decides": (
        "I21",
        lambda: task(Log(MINE)).say("cannot").start("a", worker="hand"),
    ),
    "another way without a planner": (
        "I21",
        lambda: (
            Log(A)
            .start("a")
            .fail("a", kind="permanent")
            .decide("a", "ask", kind="permanent")
            .question("a", choices=("retry", "replan"))
            .say("replan")
        ),
    ),
    "by default too early": ("I40", lambda: silence(question(Log(A)), later=99)),
    "by default without a time": ("I40", lambda: silence(question(Log(A), within=0))),
    "nobody said something else": ("I6", lambda: silence(question(Log(A)), "y")),
    "a default that is no choice": ("I6", lambda: question(Log(A), default="z")),
    "wanted and not given": ("L5", lambda: wanting(A).run("a").done()),
    "given by what did not succeed": (
        "L5",
        lambda: (
            wanting({**A, "gives": "table", "failure_action": "continue"}, gives=("table",))
            .start("a")
            .fail("a", kind="permanent")
            .decide("a", "continue", kind="permanent")
            .done()
        ),
    ),
    "given and dropped": (
        "L5",
        lambda: (
            wanting({**A}, {**B, "drops": ["table"], "gives": []}, gives=("table",))
            .run("a")
            .run("b")
            .done()
        ),
    ),
    "given by the word of a planner": (
        "L5",
        lambda: wanting({**A, "gives": "table"}).run("a").done(),
    ),
    "finished without it": ("L5", lambda: wanting(A).run("a").ask().answer("finish").done()),
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean_logs_pass(name):
    """What may happen has no violation, and neither has any part of it."""
    entries = CLEAN[name]().entries
    assert [str(found) for found in check(entries)] == []
    for length in range(1, len(entries)):
        assert not check(entries[:length])


@pytest.mark.parametrize("name", BAD)
def test_each_guard_catches_its_bad_log(name):
    """The rule that is meant speaks, at the last event, and nothing spoke before it."""
    rule, log = BAD[name]
    entries = log().entries
    found = check(entries)
    assert rule in [violation.rule for violation in found], found
    assert {violation.seq for violation in found} <= {len(entries), len(entries) - 1}
