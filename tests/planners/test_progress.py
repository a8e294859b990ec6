"""The brake on useless work: relevance counts, not activity."""

import itertools

import pytest

from leadhand import Ask, Finish, Goal, Hybrid, Lead, Permanent, Policy, Propose, worker
from leadhand.errors import UsageError
from leadhand.planners.model.planner import ModelPlanner
from leadhand.planners.progress import IDLE, Idle, Progress
from leadhand.stores.memory import MemoryStore
from leadhand.testing import simulate
from leadhand.testing.models import ScriptedModel
from tests.planners.test_model_planner import GOAL, WORKERS, last

COUNT = itertools.count(1)


@worker(gives="weather", effects=())
async def look_out(window: str = "left"):
    """It has nothing to do with anything that is wanted."""
    return f"grey, {next(COUNT)}"


@worker(gives="raw", effects=())
async def fetch_again(city: str, page: int = 1):
    """Another source of a fact that is needed."""
    return {"city": city, "values": [1, 2, 3]}


ALL = [*WORKERS, look_out, fetch_again]


def busy(worker_name, **fixed):
    """A model that proposes one valid step of a worker for ever, each under another id."""
    numbers = itertools.count(1)

    def answer(_request):
        number = next(numbers)
        given = {key: value(number) if callable(value) else value for key, value in fixed.items()}
        step = {"id": f"s{number}", "worker": worker_name, "parameters": given}
        return {"kind": "propose", "because": f"{number}", "steps": [step]}

    return ScriptedModel(answer)


@pytest.mark.parametrize(
    ("model", "calls"),
    [
        (busy("look_out"), 2 * IDLE // 3 + 2),
        (busy("look_out", window=lambda n: f"window {n}"), 2 * IDLE),
        (busy("fetch_again", city="Oslo", page=lambda n: n), 2 * IDLE + 1),
        (busy("fetch", city="Oslo"), 2 * IDLE // 3 + 2),
    ],
)
@pytest.mark.parametrize("style", ["whole", "next_step"])
async def test_useless_work_is_handed_over(model, calls, style):
    """1,000 calls and 3.4 million tokens, and then the run failed; now somebody else goes on."""
    made = len(model.requests)
    planner = Hybrid(ModelPlanner(model, asks=False, style=style))
    outcome = await Lead(ALL, planner, MemoryStore()).run(GOAL)
    assert (outcome.status, outcome.result) == ("succeeded", "2.0 degrees")
    assert len(model.requests) - made <= calls
    told = last(model)
    assert "Mind: your last revisions" in told
    assert "still missing: summary; average" in told


async def test_without_wanted_facts_a_person_is_asked():
    model = busy("fetch", city="Oslo")
    lead = Lead(ALL, ModelPlanner(model, style="next_step"), MemoryStore())
    outcome = await lead.run(Goal(text="Look around"))
    assert outcome.status == "waiting"
    assert "bring nothing nearer" in outcome.waiting_for[0].text
    assert len(model.requests) <= IDLE
    assert "brought no result that was not there before" in last(model)


async def test_alone_it_asks_a_person_who_may_say_more(tmp_path):
    """An answer is progress: it is asked again, and has the whole of its patience again."""
    model = busy("look_out")
    planner = ModelPlanner(model, idle=2)
    lead = Lead(ALL, planner, tmp_path / "runs.db")
    outcome = await lead.run(GOAL)
    asked = len(model.requests)
    assert asked <= 4
    assert "bring nothing nearer to the goal" in outcome.waiting_for[0].text
    question = outcome.waiting_for[0].id.rpartition("/")[2]
    await lead.answer(outcome.run, question, "Use fetch")
    await lead.resume(outcome.run)
    assert asked < len(model.requests) <= 2 * asked
    assert "Use fetch" in last(model, asked)
    assert "Mind:" not in last(model, asked)


def test_a_loop_over_several_inputs_is_left_alone():
    """A dozen pages, one after the other, before what is wanted is made of them."""
    pages = 12

    async def page_by_page(view):
        number = len(view.timeline) + 1
        if number <= pages:
            given = {"city": "Oslo", "page": number}
            return Propose(({"id": f"p{number}", "worker": "fetch_again", "parameters": given},))
        rest = [("mean", "average", "raw", f"p{pages}"), ("end", "summarise", "mean", "mean")]
        for ident, name, parameter, source in rest:
            if ident not in view.steps:
                given = {parameter: f"${{{{ steps.{source}.data }}}}"}
                return Propose(({"id": ident, "worker": name, "parameters": given},))
        return Finish("mine")

    for idle, handed in ((None, False), (2, True)):
        done = simulate(GOAL, ALL, Hybrid(page_by_page, idle=idle))
        assert (done.outcome.status, done.outcome.result) == ("succeeded", "2.0 degrees")
        assert any("leads nowhere" in line for line in done.lines()) == handed


def test_any_first_planner_is_stopped():
    asked = []

    async def spins(view):
        asked.append(view.call)
        return Propose(({"id": f"s{view.call}", "worker": "look_out"},))

    done = simulate(GOAL, ALL, Hybrid(spins))
    assert (done.outcome.status, done.outcome.result) == ("succeeded", "2.0 degrees")
    assert len(asked) <= IDLE
    assert any("spins leads nowhere" in line for line in done.lines())


def test_first_tries_of_untried_workers_are_progress():
    """Each of many sources fails once: none of those revisions is idle."""
    sources = []
    for number in range(30):

        async def source(city: str):
            raise Permanent("not here")

        sources.append(worker(name=f"source_{number}", gives="raw", effects=())(source))
    tried = []
    params = {"city": "${{ params.city }}"}

    async def one_by_one(view):
        number = len(view.timeline)
        if number < len(sources):
            tried.append(number)
            step = {"id": f"s{number}", "worker": f"source_{number}", "parameters": params}
            return Propose((step,))
        return Ask("what now?")

    policy = Policy(replans_idle_max=99)
    simulate(GOAL, [*ALL, *sources], Hybrid(one_by_one, idle=1), policy=policy)
    assert tried == list(range(30))


def test_waiting_is_no_revision():
    progress, idle = Progress(2), Idle()
    progress.revised(idle, [], None)
    assert idle.count == 0


def test_the_setting_is_a_count():
    with pytest.raises(UsageError, match="idle"):
        ModelPlanner(ScriptedModel([]), idle=0)
