"""Use over a range of days, where open runs wait in great number or every run has its own plan."""

import pytest

from leadhand import Lead, Policy, worker
from leadhand.app import usage as usage_module
from leadhand.app.metrics import figures
from leadhand.app.reader import Reader, reading
from leadhand.app.usage import DayRange, usage

DAYS = DayRange.of(None, None)


@worker
async def note(text: str) -> str:
    return text


STEP = {"id": "a", "worker": "note", "parameters": {"text": "x"}}


async def test_no_log_of_a_waiting_run_is_read(tmp_path, monkeypatch):
    """Unless it went on waiting after an event: the first of two approvals."""
    policy = Policy(review=True, rules=())
    lead = Lead([note], store=tmp_path / "runs.db", actor="ann", policy=policy)
    for _ in range(3):
        assert (await lead.run({"plan_id": "p", "steps": [STEP]})).status == "waiting"
    with reading(lead._readable()) as reader:
        counted = usage(reader, DAYS, "plan")
        folded = [reader.state(header.run) for header in reader.open_runs()]
    with monkeypatch.context() as patch, reading(lead._readable()) as reader:
        patch.setattr(Reader, "state", None)
        assert usage(reader, DAYS, "plan") == counted
        assert figures(reader).sums["needed_person"] == 3
    assert (counted.total.open, counted.open_included, len(folded)) == (3, 3, 3)
    await lead.amend(folded[0].run, {"steps.a.parameters.text": "y"})
    with reading(lead._readable()) as reader:
        assert usage(reader, DAYS, "plan").total.open == 3


async def test_plans_beyond_a_bound_are_added_up(tmp_path, monkeypatch):
    """As where every run has a plan id of its own; the sums stay whole."""
    monkeypatch.setattr(usage_module, "ROWS_MAX", 3)
    lead = Lead([note], store=tmp_path / "runs.db", actor="ann")
    for number in range(5):
        await lead.run({"plan_id": f"p{number}", "steps": [STEP]})
    with reading(lead._readable()) as reader:
        told = usage(reader, DAYS, "plan")
        assert [(row.name, row.runs) for row in told.rows] == [("(other)", 3), ("p0", 1), ("p1", 1)]
        assert told.total.runs == 5
        assert usage(reader, DAYS, "worker").total == told.total


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31"])
def test_a_range_may_lie_at_an_end_of_the_calendar(text):
    assert DayRange.of(None, text).first <= DayRange.of(text, text).first
