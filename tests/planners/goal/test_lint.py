"""The goal planner lints its own steps: what would be refused is no way, and another is taken."""

import pytest

from leadhand import Goal, Lead, Permanent, worker
from leadhand.errors import NoPlan
from leadhand.stores.memory import MemoryStore
from leadhand.testing import simulate
from tests.support.cli import Folder

MODES = ("auto", "next_step", "whole")


@worker(gives="b", cost=1)
def text_only(a: str) -> str:
    return a


@worker(gives="b", cost=5)
def number(a: int) -> str:
    return "by number"


@worker(gives="a")
def count() -> int:
    return 1


@worker(gives="a", cost=9)
def spell() -> str:
    return "one"


def goal(mode="auto", **have):
    return Goal(text="g", want=["b"], have=have, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_whose_step_lint_refuses_is_no_way(mode):
    """The cheap one was proposed until the planner was out of ideas; the other was never tried."""
    done = simulate(goal(mode, a=1), [text_only, number])
    assert (done.outcome.status, done.outcome.result) == ("succeeded", "by number")
    assert done.violations == ()
    lines = "\n".join(done.lines())
    assert "refused (planner" not in lines


@pytest.mark.parametrize("mode", MODES)
def test_what_a_later_step_cannot_take_is_seen_before_anything_runs(mode):
    done = simulate(goal(mode), [count, text_only, number])
    assert (done.outcome.status, done.outcome.result) == ("succeeded", "by number")
    assert done.violations == ()


@pytest.mark.parametrize("mode", MODES)
def test_another_giver_may_give_what_a_step_can_take(mode):
    done = simulate(goal(mode), [count, spell, text_only])
    assert (done.outcome.status, done.outcome.result) == ("succeeded", "one")
    assert [step.id for step in done.outcome.steps] == ["spell", "text_only"]
    assert done.violations == ()


@pytest.mark.parametrize("mode", MODES)
def test_where_nothing_is_left_the_question_says_what_lint_found(mode):
    done = simulate(goal(mode, a=1), [text_only])
    (question,) = done.outcome.waiting_for
    assert "text_only gives b but is refused by lint (LH107 parameter-wrong" in question.text
    assert question.answers == ["give", "stop"], "to try it again would not help"
    ended = simulate(goal(mode, a=1), [text_only], answers=lambda _: "stop")
    assert (ended.outcome.status, ended.violations) == ("failed", ())


async def test_no_plan_is_drafted_that_would_be_refused():
    plan = await Lead([text_only, number], store=MemoryStore()).plan(goal(a=1))
    assert [step.worker for step in plan.steps] == ["number"]
    with pytest.raises(NoPlan, match="LH107 parameter-wrong"):
        await Lead([text_only], store=MemoryStore()).plan(goal(a=1))


def test_leadhand_plan_says_what_lint_found(tmp_path):
    folder = Folder(tmp_path)
    source = (
        "from leadhand import worker\n@worker(gives='b')\ndef f(a: str) -> str:\n    return a\n"
    )
    folder.write("workers.py", source)
    done = folder.run(
        "plan", "g", "--want", "b", "--have", "a=1", "-o", "plan.yaml", "--workers", "workers.py"
    )
    assert done.code == 1, done
    assert "LH107" in done.err
    assert not (tmp_path / "plan.yaml").exists()


def test_a_message_that_looks_like_a_reference_is_words():
    """It stood in `because` of the step that was taken instead, which lint refused."""

    @worker(gives="b")
    async def broken() -> str:
        raise Permanent("no ${{ steps.x.data }} here")

    @worker(gives="b", cost=9)
    async def whole() -> str:
        return "whole"

    done = simulate(goal(), [broken, whole])
    assert (done.outcome.status, done.outcome.result) == ("succeeded", "whole")
    assert done.violations == ()
