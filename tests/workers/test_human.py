"""People as workers: what they are described as, how their word is read, and how it is judged."""

import asyncio
from pathlib import Path

import pytest

from leadhand import Goal, Human, Lead, Permanent, ScriptPlanner, Transient, worker
from leadhand.core import events as ev
from leadhand.core.policy import Policy
from leadhand.core.report import Propose
from leadhand.errors import UsageError
from leadhand.ports import Task
from leadhand.testing import simulate
from leadhand.workers.registry import Registry

TASK = Task("r", "a", 1, 1, "", {}, 0)


class Said:
    """A context with some answers."""

    def __init__(self, *answers):
        self.answers = answers


def plan(*steps, **more):
    """A plan document."""
    return {"goal": "g", "steps": list(steps), **more}


def hand(**more):
    """A step for a person."""
    return {"id": "a", "worker": "human", **more}


def kinds(done, kind):
    """Events of one kind."""
    return [event for _, event in done.events if isinstance(event, kind)]


# The worker by itself.


def test_how_a_person_is_described():
    """As any worker, so that planners plan with them."""
    ann = Human(
        "ann", "Ann.", needs="draft", gives=["ok:draft"], cost=9, est="1h", timeout="2 days"
    )
    spec = ann.spec
    assert (spec.name, spec.kind, spec.description, spec.version) == ("ann", "human", "Ann.", "1")
    offer = spec.offer("")
    assert (offer.needs, offer.gives, offer.cost) == (("draft",), ("ok:draft",), 9)
    assert (offer.est_s, offer.timeout_s) == (3600.0, 172_800.0)
    assert (offer.idempotent, offer.risk, offer.probe) == (True, "low", False)
    offer = Human().spec.offer("anything")
    assert (offer.needs, offer.gives, offer.est_s, offer.timeout_s) == ((), (), None, None)


def test_everybody_has_one():
    """A run needs not register anybody to be able to ask; who is registered goes first."""
    assert Registry([]).get("human").spec.kind == "human"
    ours = Human("human", "Us.")
    assert Registry([ours]).get("human").spec.description == "Us."


@pytest.mark.parametrize(
    ("answers", "data"),
    [
        ([], None),
        ([{"choice": "done", "text": "", "data": None}], None),
        ([{"choice": "done", "text": "red", "data": None}], "red"),
        ([{"choice": "done", "text": "red", "data": [1]}], [1]),
        ([{"choice": "done", "text": "red", "data": 0}], 0),
        ([{"choice": "done", "text": "red", "data": False}], False),
        ([{"choice": "done", "data": 1}, {"choice": "done", "data": 2}], 2),
        ([{"choice": "done", "data": 1}, {"choice": "retry", "text": "go", "data": 7}], 1),
        ([{"choice": "cannot", "text": "no"}, {"choice": "retry", "text": "please"}], None),
    ],
)
async def test_what_they_said_is_the_report(answers, data):
    """Data before text; what was said to other questions is no report."""
    report = await Human().perform(TASK, Said(*answers))
    assert (report.status, report.data, report.error) == ("succeeded", data, None)


async def test_nobody_else_can_tell():
    """There is no probe, there are no checks, and nothing to close."""
    with pytest.raises(LookupError):
        await Human().probe(TASK, Said())
    assert Human().check("fine", "", 1) is False
    assert await Human().close() is None


# In runs.


def test_a_step_waits_in_the_inbox():
    """The run rests, for as long as it takes."""
    done = simulate(plan(hand(description="Count the chairs.")))
    assert done.outcome.status == "waiting"
    (row,) = done.outcome.waiting_for
    assert (row.kind, row.answers) == ("task", ["done", "cannot"])
    assert "Count the chairs." in row.text


def test_the_answer_is_the_result():
    """Text or data, and whoever comes next gets it."""

    @worker
    async def double(n: int) -> int:
        return 2 * n

    then = {"id": "b", "worker": "double", "parameters": {"n": "${{ steps.a.data }}"}}
    done = simulate(plan(hand(), then), [double], answers=lambda _question: ("done", 21))
    assert (done.outcome.result, done.violations) == (42, ())


@pytest.mark.parametrize(
    ("criteria", "said", "status"),
    [
        ("data.n > 5", {"n": 6}, "succeeded"),
        ("data.n > 5", {"n": 5}, "failed"),
        ("data.n > 5", None, "failed"),
        ("data.n > 5", "six", "failed"),
    ],
)
def test_a_persons_word_is_judged(criteria, said, status):
    """By the step's criteria; asked once more with what was wrong, then it has failed."""
    doc = hand(success_criteria=criteria, failure_action="abort")
    done = simulate(plan(doc), answers=lambda _question: ("done", said))
    assert (done.outcome.status, done.violations) == (status, ())
    asked = kinds(done, ev.QuestionAsked)
    assert len(asked) == (1 if status == "succeeded" else 2)
    assert all(event.met is (status == "succeeded") for event in kinds(done, ev.AttemptReported))


@pytest.mark.parametrize(
    ("gives", "said", "status"),
    [
        ("table", [1], "succeeded"),
        ("ok:table", None, "succeeded"),
        ("ok:table", True, "succeeded"),
        ("ok:table", False, "failed"),
        (("table", "sum"), {"table": [1], "sum": 1}, "succeeded"),
    ],
)
def test_a_persons_promise_is_kept_or_broken(gives, said, status):
    """As anybody's."""
    ann = Human("ann", gives=gives)
    doc = hand(worker="ann", failure_action="abort")
    done = simulate(plan(doc), [ann], answers=lambda _question: ("done", said))
    assert (done.outcome.status, done.violations) == (status, ())


@pytest.mark.parametrize(("gives", "said"), [("table", None), (("table", "sum"), {"table": [1]})])
def test_what_a_person_plainly_did_not_bring_is_refused(gives, said):
    """When they say that it is done, with what is missing."""
    doc = hand(worker="ann", failure_action="abort")
    with pytest.raises(UsageError, match="step a gives"):
        simulate(plan(doc), [Human("ann", gives=gives)], answers=lambda _question: ("done", said))


def test_who_cannot_says_so():
    """It is a failure with its reason, and nothing is tried again."""
    doc = hand(failure_action="abort")
    done = simulate(plan(doc), answers=lambda _question: "cannot")
    assert done.outcome.status == "failed"
    assert done.outcome.steps["a"].error.failure_class == "permanent"
    assert "person cannot do it" in done.outcome.reason


def test_silence_is_an_answer_when_there_is_a_time():
    """Nobody has to be there."""
    doc = hand(worker="ann", failure_action="abort")
    done = simulate(plan(doc), [Human("ann", timeout="1h")])
    assert done.outcome.status == "failed"
    assert 3600 <= done.seconds < 3601
    assert "no answer came in time" in done.outcome.reason


def test_months_are_no_trouble():
    """What waits is a line in the log."""
    doc = hand(worker="ann", failure_action="continue")
    done = simulate(plan(doc), [Human("ann", timeout=300 * 86_400)])
    assert done.outcome.status == "succeeded"
    assert done.seconds >= 300 * 86_400


@pytest.mark.parametrize("after", range(1, 9))
def test_an_answer_survives_a_crash_at_any_commit(after):
    """It is asked once, and what was said is what counts."""
    done = simulate(
        plan(hand(success_criteria="data == 7")),
        answers=lambda _question: ("done", 7),
        crash_after=[after],
    )
    assert (done.outcome.status, done.outcome.result, done.violations) == ("succeeded", 7, ())
    assert len(kinds(done, ev.QuestionAsked)) == 1


def test_an_answer_outlives_a_question_about_the_crash():
    """With one try only, a lost attempt is asked about; `retry` is not what was done."""

    def people(question):
        return ("done", 7) if question.kind == "task" else ("retry", 99)

    outcomes = set()
    for after in range(1, 9):
        done = simulate(
            plan(hand(retry=1)), answers=people, crash_after=[after], policy=Policy(jitter=0.0)
        )
        assert done.violations == ()
        outcomes.add((done.outcome.status, done.outcome.result))
        asked = [event.kind for event in kinds(done, ev.QuestionAsked)]
        outcomes.add(tuple(asked))
    assert outcomes == {("succeeded", 7), ("task",), ("task", "unseen")}


def test_a_person_stands_in_for_a_worker_that_cannot():
    """Named as an alternative."""

    @worker
    async def robot() -> int:
        raise Transient("out of order")

    doc = {"id": "a", "worker": "robot", "retry": 1, "alternatives": ["human"]}
    done = simulate(plan(doc), [robot], answers=lambda _question: ("done", 3))
    assert (done.outcome.result, done.violations) == (3, ())


def test_a_planner_may_ask_for_hands():
    """A script that proposes a step for a person, and hears that they cannot."""

    async def decide(view):
        if view.call == 1:
            return Propose([hand()])
        assert view.steps["a"].error.message == "person cannot do it"
        look = hand(id="b", description="Then just look.", supersedes="a")
        return Propose([look], final=True)

    said = iter(["cannot", ("done", "seen")])
    done = simulate(
        Goal(text="Look"), planner=ScriptPlanner(decide), answers=lambda _question: next(said)
    )

    assert (done.outcome.status, done.violations) == ("succeeded", ())


def test_on_disk_through_the_public_door(tmp_path: Path):
    """Ask, go away, answer, resume: each in a Lead of its own."""
    store = tmp_path / "runs.db"

    @worker
    async def broken() -> None:
        raise Permanent("never called")

    def lead():
        return Lead([broken], store=store, actor="ann")

    waiting = lead().run_sync(plan(hand(success_criteria="data > 1")))
    assert waiting.status == "waiting"
    run, ident = waiting.waiting_for[0].id.split("/")

    async def answer(data):
        await lead().answer(run, ident, "done", data=data)

    asyncio.run(answer(1))
    again = lead().resume_sync(run)
    assert again.status == "waiting"
    assert "Last time: data > 1 does not hold" in again.waiting_for[0].text
    ident = again.waiting_for[0].id.split("/")[1]
    asyncio.run(answer(2))
    assert lead().resume_sync(run).result == 2
