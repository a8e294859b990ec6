"""Claims that once were believed: each as it was found in the field, and what follows now."""

import pytest

from leadhand import (
    Ask,
    Finish,
    Goal,
    GoalPlanner,
    Hybrid,
    ModelPlanner,
    Propose,
    Report,
    TooComplex,
    method,
    worker,
)
from leadhand.core import events as ev
from leadhand.errors import PlanInvalid
from leadhand.testing import ScriptedModel, ScriptedPlanner, scripted, simulate


def workers():
    """fetch, clean, a person's gate, summarise; each with its calls."""
    return {
        "fetch": scripted("fetch", [[3, 1, 2]], gives=("raw",), effects=()),
        "clean": scripted("clean", [[1, 2, 3]], needs=("raw",), gives=("table",), effects=()),
        "approve": scripted("approve", [True], needs=("table",), gives=("approved:table",)),
        "summarise": scripted(
            "summarise", ["1 to 3"], needs=("table", "approved:table"), gives=("summary",)
        ),
    }


GOAL = Goal(text="g", want=("summary",))
RAW = {"id": "f", "worker": "fetch"}
TABLE = {"id": "c", "worker": "clean", "parameters": {"raw": "${{ steps.f.data }}"}}
SUMMARY = {"id": "s", "worker": "summarise", "parameters": {"table": "${{ steps.c.data }}"}}


def proposal(*steps, **more):
    return {"kind": "propose", "because": "b", "steps": list(steps), "final": True, **more}


CLAIMS = {
    "what is wanted": [{**RAW, "gives": ["summary"]}],
    "a flag": [RAW, {**TABLE, "gives": ["table", "approved:table"]}, SUMMARY],
    "no needs": [RAW, TABLE, {**SUMMARY, "needs": ["table"]}],
    "a flag of a flag's giver": [
        {"id": "a", "worker": "approve", "needs": []},
        RAW,
        TABLE,
        {**SUMMARY, "depends_on": ["a"]},
    ],
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_model_that_claims_is_told_and_nothing_is_run_for_it(claim):
    """Whatever it repeats: no false success, and the goal planner finds the true way."""
    able = workers()
    model = ScriptedModel([proposal(*CLAIMS[claim])] * 5)
    done = simulate(GOAL, list(able.values()), Hybrid(ModelPlanner(model, asks=False)))
    assert (done.outcome.status, done.outcome.result) == ("succeeded", "1 to 3")
    assert [len(each.calls) for each in able.values()] == [1, 1, 1, 1]
    assert done.violations == ()


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_script_in_a_hybrid_hands_over(claim):
    """Its claims are capped: what its steps need is not true, or what is wanted is not there."""
    able = workers()
    first = ScriptedPlanner([Propose(CLAIMS[claim], final=True), Finish("done")])
    done = simulate(GOAL, list(able.values()), Hybrid(first))
    assert (done.outcome.status, done.outcome.result) == ("succeeded", "1 to 3")
    assert len(able["approve"].calls) == 1
    assert done.violations == ()


def test_a_script_alone_is_capped_and_the_log_says_so():
    """It runs its step, and what is wanted is not there."""
    able = workers()
    first = ScriptedPlanner([Propose(CLAIMS["what is wanted"], final=True), Finish("done")])
    done = simulate(GOAL, list(able.values()), first)
    assert done.outcome.status != "succeeded"
    assert done.violations == ()
    (approved,) = [e for _, e in done.events if isinstance(e, ev.RevisionApproved)][:1]
    assert "step f: the plan says it gives summary; its worker does not" in approved.reason
    assert "scripted is a planner" in approved.reason


@pytest.mark.parametrize("claims", [True, None, False])
def test_a_payment_that_nobody_saw_is_not_made_twice(claims):
    """`idempotent: true` in a plan that nobody approved repeats nothing."""
    lost = scripted("pay", [unseen(), "paid"], effects=("money",))
    step = {"id": "p", "worker": "pay"} | ({} if claims is None else {"idempotent": claims})
    done = simulate({"goal": "g", "steps": [step]}, [lost])
    assert (done.outcome.status, len(lost.calls)) == ("waiting", 1)
    assert "it is unknown whether it took effect" in done.outcome.waiting_for[0].text
    assert done.violations == ()


def unseen():
    return Report.failed("transient", "the line went dead", effect="unknown")


def checked(name="count", **offer):
    """A worker whose own check fails."""

    @worker(name=name, check=lambda data: data > 3, checks={"some": lambda data: data > 0}, **offer)
    async def count() -> int:
        return 1

    return count


@pytest.mark.parametrize("criteria", [None, "status == 'succeeded'", ["data == 1"], "some"])
def test_criteria_are_added_to_the_workers_check(criteria):
    """They take its place in no plan, a person's neither."""
    step = {"id": "a", "worker": "count", "failure_action": "abort"}
    step |= {} if criteria is None else {"success_criteria": criteria}
    done = simulate({"goal": "g", "steps": [step]}, [checked()])
    assert done.outcome.status == "failed"
    assert "the worker's own check does not hold" in done.outcome.steps["a"].error.message


def test_both_the_check_and_the_criteria_must_hold():
    """Each finding is told."""
    step = {"id": "a", "worker": "count", "failure_action": "abort"}
    done = simulate(
        {"goal": "g", "steps": [{**step, "success_criteria": "data == 9"}]}, [checked()]
    )
    assert "the worker's own check does not hold; data == 9 does not hold" in (
        done.outcome.steps["a"].error.message
    )


def test_a_plan_cannot_call_effects_harmless():
    """What is wrong although it may have touched something is not done again."""
    pay = scripted("pay", ["odd", "good"], effects=("money",))
    step = {"id": "p", "worker": "pay", "effects": [], "success_criteria": "data == 'good'"}
    done = simulate({"goal": "g", "steps": [step]}, [pay])
    assert (done.outcome.status, len(pay.calls)) == ("waiting", 1)


def test_a_method_ends_with_a_worker_that_gives_its_fact():
    """The goal planner promises for nobody either."""

    @worker(gives="table")
    async def at_once(raw: list[int]) -> list[int]:
        raise TooComplex("too many")

    @worker(gives="half")
    async def halve(raw: list[int]) -> list[int]:
        return raw[:1]

    @method("table")
    def in_parts():
        return ["halve"]

    goal = Goal(want="table", have={"raw": [1, 2]})
    done = simulate(goal, [at_once, halve, in_parts], GoalPlanner())
    assert done.outcome.status == "waiting"
    assert "must end with one worker that gives table" in done.outcome.waiting_for[0].text


# Invented data.

INVENTED = {
    "a literal": ({"raw": "invented rows"}, False),
    "a literal in a list": ({"raw": ["invented rows"]}, False),
    "a literal beside a reference": ({"raw": ["${{ steps.f.data }}", 4]}, False),
    "a text around a reference": ({"raw": "rows: ${{ steps.f.data }}"}, False),
    "another result": ({"raw": "${{ steps.o.data }}"}, False),
    "another parameter of the run": ({"raw": "${{ params.topic }}"}, False),
    "a reference": ({"raw": "${{ steps.f.data }}"}, True),
    "a part of it": ({"raw": "${{ steps.f.data[0] }}"}, True),
    "a list of references": ({"raw": ["${{ steps.f.data }}"]}, True),
}
OTHER = {"id": "o", "worker": "other", "parameters": {"topic": "prices", "depth": 3}}


@pytest.mark.parametrize("given", INVENTED)
@pytest.mark.parametrize("true", [True, False], ids=["fetched", "nothing is there"])
def test_data_that_a_planner_writes_meets_no_need(given, true):
    """A need that somebody gives is met by what they gave; refused with the first unmet need."""
    parameters, right = INVENTED[given]
    able = workers()
    able["other"] = scripted("other", ["else"], needs=("topic", "depth"), gives=("aside",))
    steps = [RAW, OTHER, {"id": "c", "worker": "clean", "parameters": parameters}]
    if not true:
        steps = [OTHER, {"id": "c", "worker": "clean", "parameters": {"raw": "invented"}}]
    else:
        steps[2]["depends_on"] = ["f", "o"]
    good = proposal(RAW, TABLE)
    model = ScriptedModel([proposal(*steps), good, {"kind": "finish", "because": "", "result": 1}])
    goal = Goal(text="g", want=("table",), have={"topic": "prices"})
    done = simulate(goal, list(able.values()), ModelPlanner(model))
    assert done.outcome.status == "succeeded"
    accepted = right and true
    assert len(model.requests) <= 2 if accepted else len(model.requests) >= 2
    if not accepted:
        told = model.requests[1].turns[-1].text
        assert "data that you write yourself does not" in told
        assert "raw" in told


def test_the_value_that_is_there_may_be_repeated():
    """A script puts results into parameters as they are; that is the fact, not an invention."""
    able = workers()

    async def plan(view):
        if "f" not in view.results:
            return Propose([RAW])
        if "c" not in view.results:
            data = {"raw": view.results["f"]}
            return Propose([{"id": "c", "worker": "clean", "parameters": data}])
        return Finish(view.results["c"])

    goal = Goal(text="g", want=("table",))
    done = simulate(goal, list(able.values()), Hybrid(plan))
    assert [step.id for step in done.outcome.steps] == ["f", "c"]
    assert done.outcome.status == "succeeded"


def test_what_nobody_gives_is_an_ordinary_parameter():
    """No fact anybody could give: to write it is the only way."""
    able = scripted("search", [[1]], needs=("words",), gives=("hits",), effects=())
    step = {"id": "a", "worker": "search", "parameters": {"words": "cheap parcels"}}
    model = ScriptedModel([proposal(step), {"kind": "finish", "because": "", "result": 1}])
    done = simulate(Goal(text="g", want=("hits",)), [able], ModelPlanner(model))
    assert (done.outcome.status, len(able.calls)) == ("succeeded", 1)


def test_a_parameter_by_another_name_takes_the_fact_as_well():
    """The one parameter that is no need takes the one need that is no parameter."""

    @worker(gives="table", effects=())
    async def clean() -> list[int]:
        return [1]

    @worker(needs=["table"], gives="summary", effects=())
    async def summarise(rows: list[int]) -> str:
        return f"{rows}"

    one = {"id": "c", "worker": "clean"}
    two = {"id": "s", "worker": "summarise", "depends_on": ["c"]}
    bad = proposal(one, {**two, "parameters": {"rows": [7]}})
    good = proposal(one, {**two, "parameters": {"rows": "${{ steps.c.data }}"}})
    model = ScriptedModel([bad, good, {"kind": "finish", "because": "", "result": 1}])
    goal = Goal(text="g", want=("summary",))
    done = simulate(goal, [clean, summarise], ModelPlanner(model))
    assert done.outcome.steps["s"].data == "[1]"
    told = model.requests[1].turns[-1].text
    assert "takes table as rows, and gets something else" in told
    assert "Refer to it: ${{ steps.c.data }}" in told


def test_a_persons_document_may_give_literals():
    """That is a person's word."""
    able = workers()
    step = {"id": "c", "worker": "clean", "parameters": {"raw": [9]}}
    done = simulate({"goal": {"text": "g", "want": ["table"]}, "steps": [step]}, [able["clean"]])
    assert done.outcome.status == "succeeded"


@pytest.mark.parametrize("passed_on", [True, False])
def test_what_a_person_gave_is_there(passed_on):
    """Its value may be passed on; another one in its place is an invention."""
    able = workers()

    async def plan(view):
        if not view.answers:
            return Ask("What are the rows?", ("give",), facts=("raw",))
        if "c" not in view.results:
            data = view.answers[0]["data"]["raw"] if passed_on else [9]
            return Propose([{"id": "c", "worker": "clean", "parameters": {"raw": data}}])
        return Finish(view.results["c"])

    done = simulate(
        Goal(text="g", want=("table",)),
        list(able.values()),
        Hybrid(plan),
        answers=lambda _question: ("give", {"raw": [3, 1, 2]}),
    )
    assert done.outcome.status == "succeeded"
    assert done.violations == ()
    assert able["clean"].calls[0].parameters == {"raw": [3, 1, 2]}
    assert ("c" in [step.id for step in done.outcome.steps]) == passed_on


def test_a_step_that_gives_fewer_facts_does_not_move_them():
    """Where a fact is in the data is its worker's to say; narrowing leaves the others out."""
    both = scripted("both", [{"x": 1, "y": 2}], gives=("x", "y"))
    step = {"id": "a", "worker": "both", "gives": "x"}
    done = simulate({"goal": {"text": "g", "want": ["x"]}, "steps": [step]}, [both])
    assert (done.outcome.status, done.outcome.result) == ("succeeded", 1)
    with pytest.raises(PlanInvalid, match='the goal wants "y", and no step gives it'):
        simulate({"goal": {"text": "g", "want": ["y"]}, "steps": [step]}, [both])
