"""The limits of runs that ask models: finite where nothing is said, recorded, shown beforehand."""

import pytest

from leadhand import Agent, GiveUp, Goal, Hybrid, Lead, Policy
from leadhand.core.policy import MODEL_BUDGET, MODEL_CALLS
from leadhand.errors import UsageError
from leadhand.models.names import ModelName
from leadhand.models.recordings import recording
from leadhand.planners.model.planner import ModelPlanner
from leadhand.stores.memory import MemoryStore
from leadhand.testing.models import ScriptedModel
from tests.planners.test_model_planner import FINISH, GOAL, PLAN, WORKERS
from tests.support.cli import Folder


def limits(planner, policy=None, goal=GOAL, workers=WORKERS):
    found = Lead(workers, planner, MemoryStore(), policy=policy).policy_for(goal)
    return found.budget, found.planner_calls_max


def model(**more):
    return ModelPlanner(ScriptedModel([PLAN, FINISH]), **more)


def test_a_model_has_finite_limits_where_nothing_is_said():
    """It had none: 1,000 calls, and no limit in money."""
    assert limits(model()) == limits(Hybrid(model())) == (MODEL_BUDGET, MODEL_CALLS)
    assert limits(None) == (None, 1000), "the goal planner asks no model"


async def gives_up(view):
    return GiveUp("no idea")


def test_a_model_that_may_take_over_has_them_too():
    """Only the first planner was looked at: 1,000 calls, and no limit in money."""
    assert limits(Hybrid(gives_up, then=model())) == (MODEL_BUDGET, MODEL_CALLS)
    assert limits(Hybrid(gives_up, then=Hybrid(model()))) == (MODEL_BUDGET, MODEL_CALLS)
    assert limits(Hybrid(model(budget=5, calls=9), then=model(budget=2, calls=70))) == (2, 9)
    assert limits(Hybrid(model(), then=model(budget=None))) == (None, MODEL_CALLS), "as it was said"
    assert limits(Hybrid(gives_up)) == (None, 1000), "no model is asked"


def test_what_is_said_comes_first():
    assert limits(model(), Policy(budget=3.0)) == (3.0, MODEL_CALLS)
    assert limits(model(), Policy(budget=50.0, planner_calls_max=5000)) == (50.0, 5000)
    goal = Goal(text="x", want=("summary",), have={"city": "Oslo"}, budget=0.5)
    assert limits(model(), goal=goal) == (0.5, MODEL_CALLS)
    assert limits(Hybrid(model(budget=2, calls=7))) == (2, 7)
    assert limits(model(budget=None)) == (None, MODEL_CALLS)
    for wrong in ({"budget": 0}, {"budget": "1"}, {"budget": float("nan")}, {"calls": 0}):
        with pytest.raises(UsageError):
            model(**wrong)


async def test_agents_of_a_goal_have_them_too():
    agent = Agent("clerk", ScriptedModel(["x"]), gives="summary")
    assert limits(None, goal=Goal(text="x"), workers=[agent]) == (MODEL_BUDGET, 1000)
    store = MemoryStore()
    outcome = await Lead([agent], store=store).run(
        {"goal": "g", "steps": [{"id": "a", "worker": "clerk"}]}
    )
    assert b'"budget"' not in store.read(outcome.run)[0].body, "a plan is as long as it is"


def test_a_price_that_nobody_knows_leaves_the_money_open():
    """With a budget such a model would not be asked at all."""
    odd = ScriptedModel([PLAN, FINISH])
    odd.known = ModelName("nobody", "nothing")
    assert limits(ModelPlanner(odd)) == (None, MODEL_CALLS)
    agent = Agent("clerk", odd, gives="aside")
    assert limits(model(), workers=[*WORKERS, agent]) == (None, MODEL_CALLS)


async def test_they_are_recorded_and_hold():
    store = MemoryStore()
    outcome = await Lead(WORKERS, Hybrid(model()), store).run(GOAL)
    log = b"".join(entry.body for entry in store.read(outcome.run))
    assert b'"budget":10.0' in log
    assert b'"planner_calls_max":200' in log
    outcome = await Lead(WORKERS, model(calls=1, style="next_step"), MemoryStore()).run(GOAL)
    assert outcome.status == "failed"
    assert "limit of 1 planner calls is reached" in outcome.reason


CLI = """
from leadhand import Hybrid, ModelPlanner, worker
from leadhand.testing import ScriptedModel

@worker(gives="raw")
async def fetch(city: str) -> str:
    return city

plan = {"kind": "propose", "because": "", "final": True,
        "steps": [{"id": "a", "worker": "fetch", "parameters": {"city": "Oslo"}}]}
planner = Hybrid(ModelPlanner(ScriptedModel([plan] * 9), asks=False))
"""


def test_the_command_line_says_them_before_the_start(tmp_path):
    folder = Folder(tmp_path)
    (tmp_path / "crew.py").write_text(CLI)
    goal = ["Look", "--want", "raw", "--have", "city=Oslo", "--workers", "crew.py"]
    goal += ["--planner", "crew.py:planner"]
    words = (
        "This run stops before it has spent more than 10, and asks its planner at most 200 times"
    )
    found = folder.run("run", *goal)
    assert found.code == 0, found.err
    assert words in found.err
    assert found.err.index(words) < found.err.index("attempt 1")
    assert folder.run("run", *goal, "--json").doc["limits"] == {"budget": 10, "planner_calls": 200}
    found = folder.run("plan", *goal)
    assert words in found.err
    assert folder.run("plan", *goal, "--json").doc["limits"]["budget"] == 10
    (tmp_path / "leadhand.toml").write_text("[policy]\nbudget = 3\n")
    assert "more than 3, and" in folder.run("run", *goal).err
    assert "more than 2, and" in folder.run("run", *goal, "--budget", "2").err
    assert "This run" not in folder.run("run", *goal, "--quiet").err


def test_with_a_tape_there_is_no_default_limit_of_money(tmp_path):
    """A tape is played where no prices are known, too: the question must be the same."""
    planner = ModelPlanner("anthropic:claude-opus-4-5")
    assert planner.budget is not None
    with recording(tmp_path / "tape.json"):
        assert planner.budget is None
