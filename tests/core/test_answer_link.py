"""Signed links in a run: bound to what is open, used once, in the commit of the answer."""

import pytest

from leadhand.core import events as ev
from leadhand.core.policy import Policy, Rule
from leadhand.core.review.answer_link import item_digest
from leadhand.errors import Conflict, UsageError
from tests.core.driver import Drive, step

TWO = Policy(rules=(Rule(then="two"),))


def words(run, ident, person="ann"):
    item = item_digest(run.state, run.state.questions[ident])
    return {"id": f"{ident}/{person}", "item": item, "channel": "email"}


def test_the_use_of_a_link_is_recorded_in_the_move_of_the_answer():
    run = Drive(step("a"), policy=TWO)
    run.reply("approve", link=words(run, "review-1"))
    used, given = [
        event for _, event in run.log if isinstance(event, (ev.LinkUsed, ev.ApprovalGiven))
    ]
    assert used == ev.LinkUsed("review-1/ann", "review-1", "ann", "email")
    assert (given.actor, given.number) == ("ann", 1)


def test_a_used_link_is_refused_whoever_brings_it():
    run = Drive(step("a"), policy=TWO)
    link = words(run, "review-1")
    run.reply("approve", link=link)
    with pytest.raises(Conflict, match="was used"):
        run.reply("approve", actor="bob", link=link)
    assert run.state.pending is not None


def test_an_answer_that_is_refused_does_not_use_up_the_link():
    run = Drive(step("a"), policy=TWO)
    link = words(run, "review-1")
    with pytest.raises(UsageError, match="not one of"):
        run.reply("perhaps", link=link)
    assert not run.state.links
    run.reply("approve", link=link)


def test_a_link_that_was_made_for_something_else_is_refused():
    run = Drive(step("a"), policy=TWO)
    other = Drive(step("a", parameters={"x": 1}), policy=TWO)
    for wrong in ({"item": words(other, "review-1")["item"]}, {"item": ""}, {"id": 7}, {"x": ""}):
        with pytest.raises((Conflict, UsageError), match=r"made for|not a signed link"):
            run.reply("approve", link=words(run, "review-1") | wrong)
    assert not run.state.links


def test_the_digest_of_an_item_changes_with_the_question():
    run = Drive(step("a"), step("b"))
    run.fail("a", "permanent").fail("b", "permanent")
    one, two = run.state.questions.values()
    assert item_digest(run.state, one) != item_digest(run.state, two)
