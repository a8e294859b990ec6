"""Rollbacks and their undos, of odd names and odd results; people with one key."""

import pytest

from leadhand import Lead, worker
from leadhand.audit.keys import PrivateKey
from leadhand.core.policy import Policy, Rule
from leadhand.errors import Conflict, UsageError
from leadhand.stores.memory import MemoryStore

UNDONE = []


@worker(effects=[], idempotent=True)
def make(number: int) -> int:
    return number


@worker(effects=[], idempotent=True)
def unmake(number: int) -> None:
    UNDONE.append(number)


def plan(*idents):
    """Steps that can be taken back."""
    undo = {"worker": "unmake", "parameters": {"number": 1}}
    each = {"worker": "make", "parameters": {"number": 1}, "undo": undo}
    return {"steps": [{"id": ident, **each} for ident in idents]}


@pytest.fixture
def lead(tmp_path):
    UNDONE.clear()
    return Lead([make, unmake], store=tmp_path / "runs.db", actor="ann")


async def test_no_run_takes_the_name_of_another_ones_rollback(lead):
    """Its rollback would be taken for done, and nothing would have been taken back."""
    with pytest.raises(UsageError, match="rollback of another run"):
        await lead.run(plan("a"), run_id="r-rollback")
    async with lead.hosting() as host:
        origin = {"rollback_of": "another"}
        run = await lead.begin(host, plan("a"), run_id="r-rollback", origin=origin)
        await run.wait_idle()
        host.forget(run)
        assert (await lead.run(plan("a"), run_id="r")).ok
        with pytest.raises(Conflict, match="nothing was rolled back"):
            await lead.rollback("r")
    assert UNDONE == []


async def test_the_longest_names_can_be_taken_back(lead):
    """Of a run, and of several steps that differ only at their ends."""
    steps = ["x" * 99 + "1", "x" * 99 + "2", "short"]
    assert (await lead.run(plan(*steps), run_id="r" * 100)).ok
    assert (await lead.rollback("r" * 100)).ok
    assert UNDONE == [1, 1, 1]


async def test_two_approvals_by_one_key_are_one_person():
    """Whatever names they were given under."""
    key = PrivateKey.new()
    listed = f"ed25519:{key.public.text}"
    policy = Policy(rules=(Rule(then="two"),), approvers=dict.fromkeys(("ann", "bob"), listed))
    leads = [
        Lead([make, unmake], store=MemoryStore(), actor=name, key=key, policy=policy)
        for name in ("ann", "bob")
    ]
    given = [each.approve(plan("a")) for each in leads]
    with pytest.raises(UsageError, match="by one key, so by one person"):
        await leads[0].run(plan("a"), approval=given)


async def test_an_undo_that_gets_what_does_not_fit_is_asked_about_in_its_turn(tmp_path):
    """It is no reason to take nothing back: the others are undone, the person's word given."""
    UNDONE.clear()
    results = {"a": 1, "b": None}

    @worker(effects=[], idempotent=True)
    def give(name: str) -> int | None:
        return results[name]

    steps = [
        {
            "id": name,
            "worker": "give",
            "parameters": {"name": name},
            "undo": {"worker": "unmake", "parameters": {"number": f"${{{{ steps.{name}.data }}}}"}},
        }
        for name in results
    ]
    steps[1]["depends_on"] = ["a"]
    lead = Lead([give, unmake], store=tmp_path / "runs.db", actor="ann")
    assert (await lead.run({"steps": steps}, run_id="r")).ok
    waiting = await lead.rollback("r")
    assert (waiting.status, UNDONE) == ("waiting", [])
    (question,) = waiting.waiting_for
    await lead.answer("r-rollback", question.id.rpartition("/")[2], "skip")
    assert (await lead.rollback("r")).ok
    assert UNDONE == [1]
