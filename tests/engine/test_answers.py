"""What people give, against what they were asked for."""

import pytest

from leadhand import Human, Lead
from leadhand.core.facts import unfit_answer
from leadhand.errors import UsageError
from leadhand.stores.memory import MemoryStore


@pytest.mark.parametrize(
    ("facts", "value"),
    [
        (["price"], 3),
        (["price"], "three"),
        (["price"], {"price": 3}),
        (["price"], {"amount": 3, "currency": "EUR"}),
        (["price"], {}),
        (["a", "b"], {"a": 1}),
        (["ok:table"], True),
        (["ok:table"], {"ok:table": True}),
        (["ok:table", "price"], 3),
    ],
)
def test_what_can_be_meant_is_taken(facts, value):
    """A whole value, a field for each, or some of them: the planner asks for the rest."""
    assert unfit_answer(facts, value) == ""


@pytest.mark.parametrize(
    ("facts", "value"),
    [
        (["price"], {"prize": 3}),
        (["price"], {"price": 3, "more": 4}),
        (["left", "right"], {"lefft": 1, "right": 2}),
        (["left", "right"], {"x": 1}),
        (["left", "right"], {}),
        (["left", "right"], [1, 2]),
        (["ok:table"], {"ok:tabel": False}),
        (["ok:table"], {"ok:table": False}),
        (["ok:table"], "yes"),
        (["ok:table"], 1),
    ],
)
def test_a_slip_is_found(facts, value):
    """Names that were not asked for, or one value for several."""
    assert unfit_answer(facts, value)


async def test_who_does_a_step_brings_what_it_gives():
    """Or is told so; but a person who was asked may say that something is not so."""
    plan = {"goal": "g", "steps": [{"id": "a", "worker": "ann"}]}
    lead = Lead([Human("ann", gives=["left", "right"])], store=MemoryStore())
    async with lead.hosting():
        waits = await lead.run(plan)
        for data in ({"lefft": 1, "right": 2}, None):
            with pytest.raises(UsageError, match="step a gives left, right"):
                await lead.answer(waits.run, "q1", "done", data=data)
        await lead.answer(waits.run, "q1", "done", data={"left": 1, "right": 2})
        assert (await lead.resume(waits.run)).ok
    lead = Lead([Human("ann", gives="ok:table")], store=MemoryStore())
    async with lead.hosting():
        waits = await lead.run(plan)
        await lead.answer(waits.run, "q1", "done", data=False)
        assert not (await lead.resume(waits.run)).ok
