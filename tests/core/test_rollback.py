"""The plan that takes back what a run did."""

import msgspec
import pytest

from leadhand.core import events as ev
from leadhand.core.hashing import canonical, digest
from leadhand.core.lint.plan import lint
from leadhand.core.logcheck.checker import check
from leadhand.core.rollback import rollback_id, rollback_of
from leadhand.errors import Conflict, UsageError
from tests.core.driver import Drive, propose, step


def nowhere(name):
    raise UsageError(f"there is no plan {name}")


def undo(ident, /, **parameters):
    return {"worker": "w", "parameters": parameters or {"of": ident}}


def failed(*steps, **start):
    """A run whose last step fails and asks for a rollback."""
    last = step("bad", steps[-1]["id"], failure_action="rollback", retry=1)
    run = Drive(*steps, last, **start)
    while run.running and run.running != ["bad"]:
        run.later(1).done(run.running[0], data={"id": f"made-{run.running[0]}"})
    return run.fail("bad", "permanent")


def test_a_rollback_is_asked_for_by_the_last_rung_and_recorded():
    """Both in the decision to stop and in the end; an abort does not ask for one."""
    run = failed(step("a", undo=undo("a")))
    assert run.ended == "failed"
    assert run.last(ev.StopDecided).rollback
    assert run.last(ev.RunEnded).rollback
    aborted = Drive(step("a", failure_action="abort")).fail("a", "permanent")
    assert not aborted.last(ev.RunEnded).rollback


def test_a_recoverable_failure_takes_nothing_back():
    """Only when nothing else is left."""
    run = Drive(step("a", undo=undo("a"), failure_action="rollback")).fail("a", "transient")
    assert run.ended is None
    assert run.later(60).done("a").ended == "succeeded"


def test_what_succeeded_is_undone_the_last_first_one_after_the_other():
    """What did not, and what does not say how, is left out."""
    run = failed(
        step("a", undo=undo("a")),
        step("b", "a"),
        step("c", "b", undo=undo("c")),
    )
    plan, params, _ = rollback_of(run.state, nowhere)
    assert [(s["id"], s.get("depends_on", [])) for s in plan["steps"]] == [
        ("undo-c", []),
        ("undo-a", [{"step": "undo-c", "if": "finished"}]),
    ]
    assert params == {}
    assert plan["goal"].startswith("Roll back run r1")
    assert [f for f in lint(plan, run.state.catalog) if f.level == "error"] == []


def test_results_go_over_as_values_and_are_never_read_as_references():
    """Even if a worker returned something that looks like one."""
    run = failed(step("a", undo=undo("a", ident="${{ steps.a.data.id }}", mode="x")))
    run.state.steps["a"].data = {"id": "${{ params.evil }}"}
    plan, params, _ = rollback_of(run.state, nowhere)
    assert plan["steps"][0]["parameters"] == {"ident": "${{ params.undo_1 }}", "mode": "x"}
    assert params == {"undo_1": "${{ params.evil }}"}


def test_results_take_the_names_of_no_other_parameters():
    """An undo would be called with something else than its plan says."""
    run = failed(
        step("a", undo=undo("a", ident="${{ steps.a.data.id }}", other="${{ params.undo_1 }}")),
        plan={"params": {"undo_1": {"default": 99}}},
        params={"undo_1": 99},
    )
    run.state.steps["a"].data = {"id": 7}
    plan, params, _ = rollback_of(run.state, nowhere)
    wanted = {"ident": "${{ params.undo_2 }}", "other": "${{ params.undo_1 }}"}
    assert plan["steps"][0]["parameters"] == wanted
    assert params == {"undo_1": 99, "undo_2": 7}


def test_a_secret_may_stand_beside_a_result():
    """In one parameter, even in one text: only the result is written down."""
    mixed = "$${{ steps.a.data.id }} ${{ params.token }}/${{steps.a.data.id}}"
    run = failed(
        step("a", undo=undo("a", auth={"both": [mixed]})),
        plan={"params": {"token": {"type": "secret", "env": "T"}}},
        params={"token": "env:T"},
    )
    run.state.steps["a"].data = {"id": 7}
    plan, params, _ = rollback_of(run.state, nowhere)
    (text,) = plan["steps"][0]["parameters"]["auth"]["both"]
    assert text == "$${{ steps.a.data.id }} ${{ params.token }}/${{ params.undo_1 }}"
    assert params == {"token": "env:T", "undo_1": 7}


def test_the_runs_own_parameters_are_handed_on():
    """As they were given."""
    run = failed(
        step("a", undo=undo("a", where="${{ params.place }}")),
        plan={"params": {"place": {"default": "here"}}},
        params={"place": "there"},
    )
    plan, params, _ = rollback_of(run.state, nowhere)
    assert plan["steps"][0]["parameters"] == {"where": "${{ params.place }}"}
    assert params == {"place": "there"}


def test_a_plan_for_it_comes_before_undos():
    """Given in the plan, or by its name in the library."""
    inline = {"steps": [step("x")]}
    run = failed(step("a", undo=undo("a")), plan={"rollback_plan": inline})
    assert [s["id"] for s in rollback_of(run.state, nowhere).plan["steps"]] == ["x"]
    named = failed(step("a"), plan={"rollback_plan": "put-back"}, params={"v": 2})
    library = {"put-back": {"steps": [step("y")], "params": {"v": {"default": 1}}}}
    plan, params, _ = rollback_of(named.state, library.__getitem__)
    assert ([s["id"] for s in plan["steps"]], params) == (["y"], {"v": 2})
    with pytest.raises(UsageError, match="no plan put-back"):
        rollback_of(named.state, nowhere)


def test_what_cannot_be_rolled_back_says_why():
    """A run that goes on, one that did nothing that can be undone, a rollback."""
    with pytest.raises(Conflict, match="has not ended"):
        rollback_of(Drive(step("a")).state, nowhere)
    with pytest.raises(UsageError, match="nothing to roll back"):
        rollback_of(failed(step("a")).state, nowhere)
    back = failed(step("a", undo=undo("a")), run=rollback_id("r1"))
    with pytest.raises(UsageError, match="a rollback itself"):
        rollback_of(back.state, nowhere)


@pytest.mark.parametrize("data", [None, {"other": 1}])
def test_an_undo_without_its_result_keeps_no_other_from_running(data):
    """Its turn comes, it is refused with the reason, and a person is asked; never with null."""
    run = failed(
        step("a", undo=undo("a")), step("b", "a", undo=undo("b", ident="${{ steps.b.data.id }}"))
    )
    run.state.steps["b"].data = data
    plan, params, undos = rollback_of(run.state, nowhere)
    assert undos
    assert [f for f in lint(plan, run.state.catalog) if f.level == "error"] == []
    linted = digest(canonical(plan["steps"]))
    head = {"params": plan["params"]}
    back = Drive(*plan["steps"], params=params, plan=head, linted=linted)
    assert back.running == []
    (question,) = back.state.questions.values()
    assert "has no key" in question.text
    assert back.reply("skip").running == ["undo-a"]
    assert back.done("undo-a").ended == "succeeded"


# --- results of the run that is taken back --------------------------------------------------


def test_a_rollback_plan_gets_results_of_the_run_it_takes_back():
    """As values, under names that it does not declare; its own references stay as they are."""
    back = {
        "params": {"run_1": {"default": 5}},
        "steps": [
            step(
                "x", parameters={"file": "${{ run.steps.a.data.id }}", "n": "${{ params.run_1 }}"}
            ),
            step("y", "x", parameters={"both": "${{ steps.x.data }}/${{ run.steps.b.data.id }}"}),
        ],
    }
    written = canonical(back)
    run = failed(step("a"), step("b", "a"), plan={"rollback_plan": back})
    plan, params, lenient = rollback_of(run.state, nowhere)
    assert plan["steps"][0]["parameters"] == {
        "file": "${{ params.run_2 }}",
        "n": "${{ params.run_1 }}",
    }
    assert plan["steps"][1]["parameters"] == {"both": "${{ steps.x.data }}/${{ params.run_3 }}"}
    assert params == {"run_2": "made-a", "run_3": "made-b"}
    assert lenient
    assert canonical(back) == written
    assert [f for f in lint(plan, run.state.catalog, params=params) if f.level == "error"] == []


def test_a_result_that_is_not_there_fails_its_step_and_no_other():
    """The reason stands in the reference, so that the question says it."""
    back = {"steps": [step("x", parameters={"file": "${{ run.steps.bad.data.id }}"}), step("y")]}
    run = failed(step("a"), plan={"rollback_plan": back})
    plan, params, lenient = rollback_of(run.state, nowhere)
    assert params == {"run_1": None}
    assert "step bad is failed" in plan["steps"][0]["parameters"]["file"]
    assert lenient


def test_a_run_does_not_refer_to_a_run():
    """Were it not found by lint, the step would be refused."""
    run = Drive(step("a"), step("b", "a", parameters={"x": "${{ run.steps.a.data.id }}"}))
    assert "rollback plan" in str(run.log)


# --- rollback as an answer ------------------------------------------------------------------


def choices(*steps, **start):
    run = Drive(*steps, **start)
    while run.running and run.running != ["bad"]:
        run.later(1).done(run.running[0])
    run.fail("bad", "permanent")
    return run, run.last(ev.QuestionAsked).choices


def test_rollback_is_an_answer_where_there_is_something_to_take_back():
    """A plan for it, or a completed step that says how it is undone."""
    bad = step("bad", "a", retry=1)
    assert "rollback" not in choices(step("a"), bad)[1]
    assert "rollback" in choices(step("a", undo=undo("a")), bad)[1]
    assert "rollback" in choices(step("a"), bad, plan={"rollback_plan": "back"})[1]
    waits = step("c", "bad", undo=undo("c"))
    assert "rollback" not in choices(step("a"), bad, waits)[1], "c has not completed"


def test_the_answer_rollback_ends_the_run_to_be_taken_back():
    """As failed, by the word of the person."""
    run, _ = choices(step("a", undo=undo("a")), step("bad", "a", retry=1))
    run.reply("rollback", text="enough")
    assert run.ended == "failed"
    assert run.last(ev.RunEnded).rollback
    assert "enough" in run.last(ev.RunEnded).reason
    assert check(run.log) == []
    assert [s["id"] for s in rollback_of(run.state, nowhere).plan["steps"]] == ["undo-a"]


def puzzled(run):
    """The planner answers nothing that can be used, until a person is asked."""
    for _ in range(run.state.policy.planner_rounds_max):
        run.answer({"kind": "nonsense"})
    return run


def test_a_planner_that_is_out_of_ideas_can_be_answered_with_a_rollback():
    """Where there is something to take back."""
    for undone in (True, False):
        run = Drive(
            answer=propose(step("a", **({"undo": undo("a")} if undone else {})), final=False)
        )
        puzzled(run.done("a"))
        asked = run.last(ev.QuestionAsked)
        assert (asked.kind, "rollback" in asked.choices) == ("planning", undone)
        if undone:
            run.reply("rollback", text="enough")
            assert (run.ended, run.last(ev.RunEnded).rollback) == ("failed", True)
            assert check(run.log) == []


def test_a_document_is_not_handed_over():
    """It names no planner, and a person amends it instead."""
    goal = {"text": "g", "want": ["x"]}
    for name, offered in (("document", False), ("test", True)):
        run = Drive(answer=propose(step("a"), final=False), goal=goal, planner=name)
        puzzled(run.done("a"))
        assert ("hand_over" in run.last(ev.QuestionAsked).choices) == offered


@pytest.mark.parametrize("who", ["stop", "end"])
def test_the_checker_knows_whether_a_run_is_to_be_taken_back(who):
    """A stop or an end that says otherwise than the answer is a violation."""
    run, _ = choices(step("a", undo=undo("a")), step("bad", "a", retry=1))
    run.reply("rollback")
    kind = ev.StopDecided if who == "stop" else ev.RunEnded
    log = [
        (at, msgspec.structs.replace(event, rollback=False) if isinstance(event, kind) else event)
        for at, event in run.log
    ]
    assert any(each.rule == "I21" for each in check(log))
