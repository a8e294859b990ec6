"""Comments of reviewers: with ids to the planner, answered one by one, compared with the facts."""

import pytest

from leadhand.core import events as ev
from leadhand.core.review.comments import comment_rows
from leadhand.core.views.ledger import describe
from leadhand.core.views.run import planner_view
from leadhand.errors import UsageError
from leadhand.planners.model import answers, prompt
from tests.core.driver import propose, step
from tests.core.test_review import drive

TWO = {"comments": [{"step": "a", "text": "use staging"}, {"step": "b", "text": "smaller"}]}


def sent_back(text="", data=TWO):
    run = drive(bare=True).go()
    run.answer(propose(step("a", worker="risky"), step("b", worker="risky")))
    return run.reply("request_changes", text=text, data=data)


def rows(run):
    return [(row.id, row.step, row.status, row.reason, row.fact) for row in comment_rows(run.state)]


def test_a_planner_gets_each_comment_and_answers_one_by_one():
    """What it does not answer is not answered; what became of a step is compared, not believed."""
    run = sent_back("in general less")
    asked = planner_view(run.state, 2, run.last(ev.PlannerAsked).why).comments
    assert [(each["id"], each["step"], each["text"], each["by"]) for each in asked] == [
        ("c1", "", "in general less", "ann"),
        ("c2", "a", "use staging", "ann"),
        ("c3", "b", "smaller", "ann"),
    ]
    said = [
        {"comment": "c2", "addressed": True, "reason": "it is there now"},
        {"comment": "c3", "addressed": False, "reason": "cannot be"},
        {"comment": "c9", "addressed": True, "reason": "of nobody"},
    ]
    same, other = step("a", worker="risky"), step("b", worker="risky", parameters={"n": 1})
    run.answer(propose(same, other, answers=said))
    assert rows(run) == [
        ("c1", None, "not answered", "", "changed"),
        ("c2", "a", "addressed", "it is there now", "unchanged"),
        ("c3", "b", "not addressed", "cannot be", "changed"),
    ]
    assert planner_view(run.state, 3, "").comments == ()
    line = describe(run.last(ev.RevisionProposed))
    assert line.endswith(
        "; comments: c1 not answered, c2 addressed (it is there now), c3 not addressed (cannot be)"
    )
    assert "c2: step a: use staging" in describe(run.last(ev.ChangesRequested))


def test_a_planner_that_knows_nothing_of_comments_leaves_them_not_answered():
    run = sent_back().answer(propose(step("b", worker="risky")))
    assert rows(run) == [
        ("c1", "a", "not answered", "", "removed"),
        ("c2", "b", "not answered", "", "unchanged"),
    ]
    again = {"comments": [{"step": "b", "text": "still too large"}]}
    run.reply("request_changes", data=again)
    assert [each["id"] for each in planner_view(run.state, 3, "").comments] == ["c3"]
    run.answer(propose(step("b", worker="risky"))).reply("approve")
    assert rows(run) == []  # approved: they are of the past


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"comments": [{"step": "nowhere", "text": "x"}]}, "has no step nowhere"),
        ({"comments": [{"step": "a", "text": " "}]}, "has no text"),
        ({"comments": ["x"]}, "a list of objects"),
        ({"comments": [{"step": "a", "text": "x"}] * 51}, "at most 50"),
        ({"comments": [{"step": "a", "text": "x" * 2001}]}, "2,001 characters"),
    ],
)
def test_a_comment_is_about_a_step_and_says_something(data, said):
    with pytest.raises(UsageError, match=said):
        sent_back(data=data)


def test_a_model_is_told_how_to_answer_comments_and_only_then():
    run = sent_back()
    view = planner_view(run.state, 2, run.last(ev.PlannerAsked).why)
    told = prompt.state_parts(view, 10_000)["now"]
    assert "- c1 (step a): use staging" in told
    assert '"comment": "c1"' in told
    assert "was refused" not in told
    assert "answers" in answers.schema_for(view)["properties"]
    other = planner_view(drive(bare=True).go().state, 1, "start")
    assert "answers" not in answers.schema_for(other)["properties"]
    assert "comment" not in prompt.state_parts(other, 10_000)["now"]
    reply = {
        "kind": "propose",
        "because": "b",
        "steps": [{"id": "a", "worker": "risky"}],
        "answers": [{"comment": "c1", "addressed": True, "reason": "r"}, {"comment": 3}, "c2"],
    }
    decision, _notes = answers.read(reply, {"risky"})
    assert decision.answers == ({"comment": "c1", "addressed": True, "reason": "r"},)


def test_a_review_shows_a_bounded_number_of_comments_the_newest():
    """However often a plan is sent back; a planner is told every comment on its last proposal."""
    run = drive(bare=True).go()
    many = {"comments": [{"step": "a", "text": f"{'x' * 1990} {n}"} for n in range(50)]}
    for _round in range(3):
        run.answer(propose(step("a", worker="risky"))).reply("request_changes", data=many)
    view = planner_view(run.state, 4, "")
    told = prompt.state_parts(view, 10_000)["now"]
    assert f"- c150 (step a): {'x' * 1990} 49" in told
    run.answer(propose(step("a", worker="risky")))
    shown = comment_rows(run.state)
    assert (len(shown), shown[0].id, shown[-1].id) == (100, "c51", "c150")
