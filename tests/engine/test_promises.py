"""A plan narrows what a worker promises, never widens it: every field, every author, both ways.

Who may widen: a person, in a document or an amendment, once everybody who had to approve it was
shown it. There is no MCP server of ours, so no MCP caller can propose steps; over HTTP a plan is a
document like any other (tests/acceptance/test_cli_promises.py has the command line and the API).
"""

import asyncio
from contextvars import ContextVar
from dataclasses import fields

import pytest

from leadhand import Finish, Goal, Hybrid, Lead, ModelPlanner, Policy, Propose
from leadhand.codec.events import decode
from leadhand.core import promises
from leadhand.core.plan.model import Step
from leadhand.core.views.run import step_view
from leadhand.errors import Conflict, UsageError
from leadhand.planners.goal.world import promised_field
from leadhand.planners.model.answers import SCHEMA
from leadhand.testing import ScriptedModel, ScriptedPlanner, check, scripted

PROMISE = {
    "gives": "what its worker gives, less what the step leaves out",
    "needs": "its worker's and its own",
    "drops": "its worker's and its own",
    "reads": "its worker's and its own",
    "writes": "its worker's and its own",
    "idempotent": "what its worker says, unless the step denies it",
}
ADDS = {"risk_level", "effects", "success_criteria"}
"""Fields that nobody can lower: they add to what the worker declares."""
ORDERS = {
    *("id", "worker", "action", "description", "parameters", "depends_on", "failure_action"),
    *("expect", "retry", "timeout", "alternatives", "not_before", "window", "uses", "est"),
    *("tier", "context", "supersedes", "because", "undo"),
}
"""Fields in which a plan says what is to be done, not what a worker can be trusted with."""


def test_every_field_of_a_step_is_a_promise_or_is_none():
    """A new field of a step is to be put into one of these, with what follows from it."""
    known = {field.name for field in fields(Step)}
    assert known == {*PROMISE, *ADDS, *ORDERS}
    assert set(promises.WIDENING) == set(PROMISE)
    asked = SCHEMA["properties"]["steps"]["items"]["properties"]
    assert set(PROMISE).isdisjoint(asked), "a model is not asked what a worker promises"


# Field, direction, worker, what the step says, what counts, what counts if a person widens.
CASES = [
    ("gives", "narrow", "once", ["table"], ("table",), ("table",)),
    ("gives", "narrow", "once", [], (), ()),
    ("gives", "widen", "once", ["table", "summary"], ("table",), ("table", "summary")),
    ("gives", "widen", "once", ["said:so"], (), ("said:so",)),
    ("gives", "widen", "once", "summary", (), ("summary",)),
    ("needs", "narrow", "once", ["raw", "have"], ("raw", "have"), ("raw", "have")),
    ("needs", "widen", "once", [], ("raw",), ()),
    ("needs", "widen", "once", ["have"], ("raw", "have"), ("have",)),
    ("drops", "narrow", "once", ["old", "more"], ("old", "more"), ("old", "more")),
    ("drops", "widen", "once", [], ("old",), ()),
    ("reads", "narrow", "once", ["in", "more"], ("in", "more"), ("in", "more")),
    ("reads", "widen", "once", [], ("in",), ()),
    ("writes", "narrow", "once", ["out", "more"], ("out", "more"), ("out", "more")),
    ("writes", "widen", "once", ["out/part"], ("out", "out/part"), ("out/part",)),
    ("idempotent", "narrow", "twice", False, False, False),
    ("idempotent", "narrow", "twice", True, True, True),
    ("idempotent", "widen", "once", True, False, True),
]
IDS = [f"{case[0]}-{case[1]}-{case[3]}" for case in CASES]

OFFER = {
    "needs": ("raw",),
    "gives": ("table", "ok:table"),
    "drops": ("old",),
    "reads": ("in",),
    "writes": ("out",),
    "effects": (),
}
HAVE = {"raw": 1, "have": 2}
DATA = {"table": 1, "summary": 2}


def workers():
    """One that may be done once, and one that may be repeated; both promise the same else."""
    return [scripted("once", [DATA], **OFFER), scripted("twice", [DATA], **OFFER, idempotent=True)]


def document(step, **more):
    return {"goal": {"text": "g", "have": HAVE}, "steps": [step], **more}


class Author:
    """Somebody who proposes one step; `play` returns the state of its run."""

    def __init__(self, play, *, widens):
        self.play, self.widens = play, widens


def lead(planner=None, **more):
    return Lead(workers(), planner, STORE.get(), actor="ann", **more)


STORE = ContextVar("STORE")


@pytest.fixture(autouse=True)
def store(tmp_path):
    token = STORE.set(tmp_path / "runs.db")
    yield
    STORE.reset(token)


async def state_of(made, run):
    async with made.hosting() as host:
        log = [(entry.at, decode(entry.version, entry.body)) for entry in host.store.read(run)]
        assert check(log) == []
        return host.load(run, made.registry).state


async def reviewed(step, *, shown, review=True, **more):
    """A document that waits for a review, approved by a person."""
    made = lead(policy=Policy(review=review), **more.pop("lead", {}))
    outcome = await made.run(document(step, **more))
    if review:
        assert outcome.status == "waiting"
        seen = (await made.review(outcome.run)).binding if shown else ""
        await made.answer(outcome.run, "review-1", "approve", shown=seen)
        await made.resume(outcome.run)
    return await state_of(made, outcome.run)


async def test_a_few_digits_do_not_show_that_a_person_saw_it():
    """One of sixteen guesses was right, and allowed what the steps claim beyond their workers."""
    made = lead(policy=Policy(review=True))
    outcome = await made.run(document({"id": "a", "worker": "once", "gives": ["other"]}))
    seen = (await made.review(outcome.run)).binding
    for digits in range(1, 12):
        with pytest.raises(UsageError, match="the whole digest"):
            await made.answer(outcome.run, "review-1", "approve", shown=seen[:digits])
        words = {"shown": seen[:digits]}
        with pytest.raises(UsageError, match="the whole digest"):
            await made.send_command(
                outcome.run, "answer", id="review-1", choice="approve", approval=words
            )
    other = seen[:-1] + ("0" if seen[-1] != "0" else "1")
    with pytest.raises(Conflict, match="review it again") as refused:
        await made.answer(outcome.run, "review-1", "approve", shown=other)
    assert seen not in str(refused.value)
    await made.answer(outcome.run, "review-1", "approve", shown=seen)


async def at_once(step):
    """A document that is approved as it waits, by whoever started it: what `--yes` does."""
    made = lead(policy=Policy(review=True))
    outcome = await made.run(document(step), approve=True)
    return await state_of(made, outcome.run)


async def beforehand(step, *, shown):
    """A document that was approved before its run."""
    made = lead()
    given = made.approve(document(step), widens=shown)
    outcome = await made.run(document(step), approval=given)
    return await state_of(made, outcome.run)


async def amended(step, *, shown):
    """A person's amendment of what waits."""
    made = lead(policy=Policy(review=True))
    first = {"id": "a", "worker": step["worker"]}
    outcome = await made.run(document(first))
    sets = {f"steps.a.{key}": value for key, value in step.items() if key not in ("id", "worker")}
    await made.amend(outcome.run, sets)
    (question,) = [q["id"].partition("/")[2] for q in await waiting(made, outcome.run)]
    seen = (await made.review(outcome.run)).binding if shown else ""
    await made.answer(outcome.run, question, "approve", shown=seen)
    await made.resume(outcome.run)
    return await state_of(made, outcome.run)


async def waiting(made, run):
    async with made.hosting() as host:
        state = host.load(run, made.registry).state
        return [{"id": f"{run}/{each.id}"} for each in state.questions.values()]


async def planned(step, planner, *, approve=False):
    """A planner's proposal; with `approve` a person allows it, and is shown all of it."""
    made = lead(planner, policy=Policy(review=approve))
    outcome = await made.run(Goal(text="g", want=("raw",), have=HAVE))
    if approve:
        seen = (await made.review(outcome.run)).binding
        await made.answer(outcome.run, "review-1", "approve", shown=seen)
        await made.resume(outcome.run)
    return await state_of(made, outcome.run)


def script(step):
    return ScriptedPlanner([Propose([step], final=True), Finish(1)])


AUTHORS = {
    "document, approved as shown": Author(lambda s: reviewed(s, shown=True), widens=True),
    "document, approved before, as shown": Author(lambda s: beforehand(s, shown=True), widens=True),
    "amendment, approved as shown": Author(lambda s: amended(s, shown=True), widens=True),
    "document, approved unseen": Author(lambda s: reviewed(s, shown=False), widens=False),
    "document, approved before, unseen": Author(lambda s: beforehand(s, shown=False), widens=False),
    "amendment, approved unseen": Author(lambda s: amended(s, shown=False), widens=False),
    "document, with --yes": Author(at_once, widens=False),
    "document, by the policy": Author(
        lambda s: reviewed(s, shown=False, review=False), widens=False
    ),
    "document of a model, as shown": Author(
        lambda s: reviewed(s, shown=True, planner="model", lead={"planners": {"model": script(s)}}),
        widens=False,
    ),
    "script": Author(lambda s: planned(s, script(s)), widens=False),
    "script, approved as shown": Author(
        lambda s: planned(s, script(s), approve=True), widens=False
    ),
    "hybrid": Author(lambda s: planned(s, Hybrid(script(s))), widens=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("author", AUTHORS)
def test_narrowing_counts_and_widening_only_by_a_person(author, case):
    """Whoever reads a promise finds the same one: facts, recovery, planners, lint."""
    field, direction, name, said, counts, if_widened = case
    step = {"id": "a", "worker": name, field: said}
    state = asyncio.run(AUTHORS[author].play(step))
    done = state.follow("a")
    assert done.status == "succeeded"
    widened = direction == "widen" and AUTHORS[author].widens
    assert done.widened == widened
    offer = state.catalog.offer(name, "")
    if field == "idempotent":
        found = promises.is_idempotent(done.doc, offer, widened=done.widened)
    else:
        found = promised_field(step_view(done), state.catalog, field)
    assert found == (if_widened if widened else counts)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_model_is_refused_with_the_reason(case):
    """It may not even narrow: only the fields of the schema are read."""
    field, _, name, said, *_ = case
    step = {"id": "a", "worker": name, "parameters": {"raw": "${{ params.raw }}"}}
    good = {"kind": "propose", "because": "b", "steps": [step], "final": True}
    bad = {**good, "steps": [{**step, field: said}]}
    model = ScriptedModel([bad, good, {"kind": "finish", "because": "b", "result": 1}])
    state = asyncio.run(planned(step, ModelPlanner(model)))
    assert field not in state.steps["a"].doc
    told = model.requests[1].turns[-1].text if said not in ([], "") else ""
    assert not told or (field in told and "for its worker to declare, not for a plan" in told)
