"""Steps of the agent that drives a run, through `Lead`: results, taint, cost, cancel, rollback."""

import asyncio

import pytest

from leadhand import Lead, Policy, worker
from leadhand.app.documents import Driver, shown_document
from leadhand.app.reader import reading
from leadhand.app.step_graph import step_document
from leadhand.cli.rendering.run_rows import row
from leadhand.core.lint.plan import lint
from leadhand.core.views.rows import rows_document
from leadhand.errors import Conflict, UsageError


@worker
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def mine(ident, **more):
    """A step of the caller."""
    return {"id": ident, "worker": "caller", **more}


def plan(*steps, **more):
    """A plan of some steps."""
    return {"goal": "g", "steps": list(steps), **more}


async def carry_out(lead, run, data, caller="bot"):
    """Ask for a step and report it; return both."""
    step = (await lead.next_step(run, caller=caller)).step
    told = await lead.report_step(run, step.id, attempt=step.attempt, caller=caller, data=data)
    return step, told


async def test_large_results_are_handed_on_whole(tmp_path):
    """They are kept apart from the log, and what the agent said counts as untrusted."""
    lead = Lead([], store=tmp_path / "x.db", actor="ann")
    use = {"text": "${{ steps.a.data.text }}"}
    steps = (mine("a"), mine("b", parameters=use, context=["a"]))
    run = (await lead.run(plan(*steps))).run
    text = "x" * 100_000
    await carry_out(lead, run, {"text": text})
    step, told = await carry_out(lead, run, 1)
    assert (step.parameters, step.results) == ({"text": text}, {"a": {"text": text}})
    assert told.status == "succeeded"
    with reading(tmp_path / "x.db") as reader:
        state = reader.state(run)
    assert state.steps["a"].data_ref.startswith("sha256:")
    assert state.permits.tainted


async def test_other_workers_go_on_beside_the_agent(tmp_path):
    """With a host that stays open, the agent gets its step while they are at work."""
    lead = Lead([double], store=tmp_path / "x.db", actor="ann")
    async with lead.hosting() as host:
        after = {"id": "b", "worker": "double", "parameters": {"n": "${{ steps.a.data }}"}}
        run = await lead.begin(host, plan(mine("a"), after))
        _, told = await carry_out(lead, run.id, 4)
        assert told.met
        await run.wait_idle()
        assert (run.state.ended.status, run.state.steps["b"].data) == ("succeeded", 8)


async def test_two_requests_at_once_are_one(tmp_path):
    """The same report twice counts once, and the cost with it; another caller gets nothing."""
    lead = Lead([], store=tmp_path / "x.db", actor="ann", policy=Policy(budget=5.0))
    async with lead.hosting() as host:
        run = (await lead.begin(host, plan(mine("a"), mine("b")))).id
        both = await asyncio.gather(*(lead.next_step(run, caller=c) for c in ("bot", "other")))
        assert [each.step.id if each.step else "" for each in both] == ["a", ""]
        said = {"attempt": 1, "caller": "bot", "data": 1, "cost": 2.0}
        receipts = await asyncio.gather(*(lead.report_step(run, "a", **said) for _ in range(3)))
        assert sorted(each.repeated for each in receipts) == [False, True, True]
        assert host.runs[run].state.spent == 2.0


async def test_a_cancelled_run_takes_the_last_report(tmp_path):
    """The agent hears that it is to stop; afterwards nothing is taken."""
    lead = Lead([], store=tmp_path / "x.db", actor="ann")
    run = (await lead.run(plan(mine("a"), mine("b")))).run
    await lead.next_step(run, caller="bot")
    await lead.cancel(run, "enough")
    assert (await lead.extend_step(run, "a", attempt=1, caller="bot")).cancelled
    told = await lead.report_step(run, "a", attempt=1, caller="bot", data=1)
    assert (told.met, told.status) == (True, "cancelled")
    with pytest.raises(Conflict, match="reported already"):
        await lead.report_step(run, "a", attempt=1, caller="bot", data=2)
    assert (await lead.next_step(run, caller="bot")).step is None


async def test_an_undo_may_be_the_agents(tmp_path):
    """The rollback is a run of its own, whose steps are handed out as well."""
    lead = Lead([], store=tmp_path / "x.db", actor="ann")
    run = (await lead.run(plan(mine("a", undo={"worker": "caller", "action": "undo"})))).run
    await carry_out(lead, run, 1)
    back = (await lead.rollback(run)).run
    step, told = await carry_out(lead, back, None)
    assert (step.action, told.status) == ("undo", "succeeded")


@pytest.mark.parametrize(
    "odd", [{"cost": float("nan")}, {"cost": float("inf")}, {"data": float("nan")}]
)
async def test_a_report_that_no_log_can_hold_is_refused(tmp_path, odd):
    lead = Lead([], store=tmp_path / "x.db", actor="ann")
    run = (await lead.run(plan(mine("a")))).run
    await lead.next_step(run, caller="bot")
    said = {"attempt": 1, "caller": "bot"}
    with pytest.raises(UsageError, match="which JSON does not have"):
        await lead.report_step(run, "a", **said, **odd)
    assert (await lead.report_step(run, "a", **said, data=1)).met


@worker(checks={"even": lambda data: data % 2 == 0})
def count(n: int = 2) -> int:
    """Count something."""
    return n


@worker
def mail() -> str:
    """Tell somebody, and look at nothing."""
    return "sent"


def after(ident, name, **more):
    """A step of a worker of Leadhand's, after the step `a` of the caller."""
    return {"id": ident, "worker": name, "depends_on": ["a"], **more}


@pytest.mark.parametrize(
    ("criteria", "later", "own", "verified"),
    [
        (None, [], False, False),
        ("1 == 1", [], False, False),
        ('status == "succeeded"', [], False, False),  # the same in every report of success
        ("data.ok", [], True, True),
        (None, [after("b", "count", success_criteria="even")], False, True),
        (None, [after("b", "mail")], False, False),  # it looks at nothing
        (None, [mine("b", depends_on=["a"], success_criteria="data.ok")], False, False),
    ],
)
async def test_a_step_that_only_its_agent_calls_done_is_not_verified(
    tmp_path, criteria, later, own, verified
):
    """In the receipt, in documents, in the sentence of the run and of the step, and in lint."""
    lead = Lead([count, mail], store=tmp_path / "x.db", actor="ann")
    doc = plan(mine("a", **({"success_criteria": criteria} if criteria else {})), *later)
    warned = [each.rule for each in lint(doc, lead.registry.catalog()) if each.place == "steps[0]"]
    assert ("criteria-missing" in warned) is not verified
    run = (await lead.run(doc)).run
    _, told = await carry_out(lead, run, {"ok": True})
    assert (told.met, told.verified) == (True, own)
    if later and later[0]["worker"] == "caller":
        _, told = await carry_out(lead, run, {"ok": True})
        assert told.verified
    with reading(tmp_path / "x.db") as reader:
        state = reader.state(run)
        assert state.ended.status == "succeeded"
        shown = shown_document(reader, state, Driver())
        step = step_document(reader, state, state.steps["a"])
        rows = rows_document((entry.at, event) for entry, event in reader.events(run))
    assert (shown.steps[0].verified is False) is not verified
    assert (rows.rows[0].verified is False) is not verified
    assert ("1 was not verified (only the agent says so)" in shown.headline) is not verified
    listed = row(state, state.steps["a"], state.last_at, {}).detail
    for text in (step.outcome, listed):
        assert ("not verified: only agent:bot says so" in text) is not verified
