"""Planners that make no sense: bounded, explained, and the run ends or waits in order.

Whatever a planner does, the command ends by itself, with an exit code that says what became of
the run and words that say why; the log verifies, and nobody is left waiting.
"""

import re

import pytest

pytestmark = pytest.mark.real

WORKERS = """\
from leadhand import Permanent, worker


@worker
def fails() -> str:
    raise Permanent("page not found")


@worker
def works() -> str:
    return "ok"


@worker
def echoes(text: str) -> str:
    return text
"""

PLANNERS = '''\
"""Each is asked again and again, and never learns."""

from leadhand import Finish, Propose


def step(ident, **more):
    return {"id": ident, "worker": "works", **more}


def same_again(view):
    """The same failing thing under a new name."""
    return Propose([step(f"s{view.call}", worker="fails")])


def same_name(view):
    """The same failing thing under the same name."""
    return Propose([step("s", worker="fails")])


def same_instead(view):
    """The same failing thing in place of the one that failed."""
    more = {"supersedes": f"s{view.call - 1}"} if view.call > 1 else {}
    return Propose([step(f"s{view.call}", worker="fails", **more)])


def nothing(view):
    return Propose([])


def nothing_final(view):
    """All is done, it says; and nothing was."""
    return Propose([], final=True)


def done_already(view):
    return Finish("trust me")


def cycle(view):
    return Propose([step("a", depends_on=["b"]), step("b", depends_on=["a"])])


def itself(view):
    return Propose([step("a", depends_on=["a"])])


def unknown_worker(view):
    return Propose([step("a", worker="nobody")])


def unknown_step(view):
    return Propose([step("a", depends_on=["z"])])


def too_many(view):
    """Ten thousand steps where a thousand are allowed."""
    return Propose([step(f"s{number}") for number in range(10_000)], final=True)


def many_and_cyclic(view):
    """Ten thousand steps in a ring."""
    last = 9_999
    ring = [step(f"s{n}", depends_on=[f"s{n - 1 if n else last}"]) for n in range(last + 1)]
    return Propose(ring, final=True)


def for_ever(view):
    """One more step, always."""
    return Propose([step(f"s{view.call}")])


def for_ever_new(view):
    """One more step that does something else, always."""
    return Propose([step(f"s{view.call}", worker="echoes", parameters={"text": str(view.call)})])


def raises(view):
    raise RuntimeError("I have no idea")


def nonsense(view):
    return {"steps": "all of them"}


def unspeakable(view):
    return Propose([step("a", parameters={"x": object()})])


def leaves(view):
    raise SystemExit(7)


async def hangs(view):
    import asyncio

    await asyncio.sleep(3600)
'''

TOML = """\
[project]
workers = ['workers.py']
[policy]
steps = 1000
planner_calls = 40
planner_timeout = "2s"
"""

CASES = {
    "same_again": (1, "stuck: 4 revisions in a row tried nothing new"),
    "same_name": (1, "the planner failed 3 times in a row"),
    "same_instead": (1, "stuck: 4 revisions in a row tried nothing new"),
    "nothing": (1, "it proposes nothing, and nothing is under way"),
    "cycle": (1, "a → b → a: each waits for the next"),
    "itself": (1, "the planner failed 3 times in a row"),
    "unknown_worker": (1, 'no worker "nobody" is registered'),
    "unknown_step": (1, "the planner failed 3 times in a row"),
    "too_many": (1, "the plan would have more than 1000 steps"),
    "many_and_cyclic": (1, "the plan would have more than 1000 steps"),
    "for_ever": (6, "the limit of 40 planner calls is reached"),
    "for_ever_new": (6, "the limit of 40 planner calls is reached"),
    "raises": (1, "RuntimeError: I have no idea"),
    "nonsense": (1, "return Propose, Wait, Ask, Finish or GiveUp"),
    "unspeakable": (1, "the planner failed 3 times in a row"),
    "leaves": (1, "the planner failed 3 times in a row"),
    "hangs": (1, "the planner took too long"),
}


FILES = {"workers.py": WORKERS, "planners.py": PLANNERS, "leadhand.toml": TOML}


def ended(folder, code, reason, *args):
    """The run ended so, for that reason, and its log is in order."""
    done = folder.run("run", *args)
    assert done.code == code, done
    assert reason in done.err, done
    run = folder.latest()["run"]
    assert folder.run("verify", run).code == 0
    assert folder.run("inbox", "--json").doc == []
    return folder.run("logs", run).out


@pytest.mark.parametrize("name", CASES)
def test_a_bad_planner_is_bounded_and_explained(folder, name):
    """It is told what is wrong, up to three times in a row; then the run fails and says why."""
    code, reason = CASES[name]
    planner = ("--planner", f"planners.py:{name}", "--no-input")
    log = ended(folder, code, reason, "Whatever", *planner)
    assert len(re.findall(r"Planner call \d+ \(", log)) <= 41


@pytest.mark.parametrize("name", ["same_again", "nothing", "raises"])
def test_a_person_is_asked_about_a_planner_without_ideas(folder, name):
    """Unless nobody is to be asked; abort ends the run, and says who failed."""
    done = folder.run("run", "Whatever", "--planner", f"planners.py:{name}")
    assert done.code == 5, done
    assert CASES[name][1] in done.err
    (row,) = folder.run("inbox", "--json").doc
    assert (row["kind"], [each["answer"] for each in row["choices"]]) == (
        "planning",
        ["go_on", "abort"],
    )
    assert folder.run("answer", row["id"], "abort").code == 0
    done = folder.run("resume", row["run"], "--planner", f"planners.py:{name}")
    assert done.code == 1, done
    assert "failed (planning)" in done.err
    assert folder.run("verify", row["run"]).code == 0


@pytest.mark.parametrize("name", ["nothing_final", "done_already"])
def test_a_planner_that_claims_what_is_wanted(folder, name):
    """Three times it hears what is missing; its word for it never counts."""
    planner = ("--planner", f"planners.py:{name}", "--want", "table")
    missing = "table is wanted, and nothing has given it"
    log = ended(folder, 1, missing, "A table", *planner, "--no-input")
    assert len(re.findall(r"Planner call \d+ \(", log)) == 3


def test_ten_thousand_steps_within_the_limits_are_done(folder):
    """Many is not wrong."""
    folder.write("leadhand.toml", TOML.replace("1000", "20000"))
    done = folder.run("run", "Much", "--planner", "planners.py:too_many", "--json", timeout_s=300)
    assert done.code == 0, done
    assert len(done.doc["steps"]) == 10_000
