"""Running a run again: from its beginning, and from a step with results that are taken over."""

import copy

import pytest

from leadhand import Goal, Lead, Permanent, worker
from leadhand.app.reader import Reader, reading
from leadhand.core.carried import carried_results, result_digest
from leadhand.core.logcheck.checker import check
from leadhand.core.policy import Policy, Rule
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State
from leadhand.core.views.ledger import describe
from leadhand.engine.fold import fold
from leadhand.errors import Conflict, NotAllowed, UsageError
from leadhand.workers.declared import declared_workers

CALLS: list[str] = []
BROKEN: set[str] = set()


@worker
async def build(version: str) -> dict[str, str]:
    CALLS.append("build")
    return {"image": f"shop:{version}"}


@worker(effects=["cluster"], risk="high")
async def deploy(image: str) -> dict[str, object]:
    CALLS.append("deploy")
    if "deploy" in BROKEN:
        raise Permanent("the cluster is full")
    return {"ready": 1, "image": image}


@worker
async def note(text: str) -> str:
    CALLS.append(f"note {text}")
    return text


@worker(gives="table")
async def draw() -> str:
    CALLS.append("draw")
    return "a table"


@worker(needs="table", gives="report")
async def write(table: str) -> str:
    CALLS.append("write")
    if "write" in BROKEN:
        raise Permanent("no ink")
    return f"report of {table}"


STEPS = [
    {"id": "build", "worker": "build", "parameters": {"version": "${{ params.version }}"}},
    {"id": "aside", "worker": "note", "parameters": {"text": "aside"}},
    {
        "id": "deploy",
        "worker": "deploy",
        "parameters": {"image": "${{ steps.build.data.image }}"},
        "failure_action": "abort",
    },
    {
        "id": "tell",
        "worker": "note",
        "parameters": {"text": "${{ steps.deploy.data.image }} is ${{ steps.build.data.image }}"},
        "depends_on": ["build", "deploy"],
    },
]
PLAN = {
    "plan_id": "release",
    "goal": {
        "text": "Release",
        "acceptance": ["steps.build.data.image == 'shop:7'", "steps.deploy.data.ready == 1"],
    },
    "params": {"version": {"type": "string"}},
    "steps": STEPS,
}


@pytest.fixture
def lead(tmp_path):
    CALLS.clear()
    BROKEN.clear()
    return Lead([build, deploy, note, draw, write], store=tmp_path / "runs.db", actor="ann")


def started_of(lead, run):
    with reading(lead._readable()) as reader:
        return reader.events(run)[0][1]


async def failed_run(lead, plan=PLAN, **more):
    """Run a plan whose deployment fails; mend the cluster; return the run."""
    BROKEN.update({"deploy", "write"})
    run = (await lead.run(plan, approve=True, **more)).run
    BROKEN.clear()
    CALLS.clear()
    return run


async def test_a_rerun_from_a_failed_step_runs_only_what_waits_for_it(lead):
    """Results of other steps are taken over, named with run, attempt, entry and digest."""
    first = await failed_run(lead, params={"version": "7"})
    again = await lead.rerun(first, from_step="deploy", approve=True)
    assert again.ok, again.reason
    assert CALLS == ["deploy", "note shop:7 is shop:7"]
    started = started_of(lead, again.run)
    carried = carried_results(started.plan)["build"]
    assert (carried.run, carried.attempt) == (first, 1)
    assert carried.digest == result_digest({"image": "shop:7"})
    assert started.plan["rerun_of"] == first
    assert started.plan["left_out"] == {"aside": "succeeded"}
    line = describe(started)
    assert f"it repeats run {first} from step deploy" in line
    assert f"results taken over, not produced here: build (run {first}, attempt 1," in line
    assert lead.verify()["violations"] == []


async def test_no_approval_is_taken_over(lead):
    """The first run was approved; both kinds of re-run wait for an approval of their own."""
    first = await failed_run(lead, params={"version": "7"})
    whole = await lead.rerun(first)
    part = await lead.rerun(first, from_step="deploy")
    assert [whole.status, part.status] == ["waiting", "waiting"]
    assert CALLS == []
    done = await lead.resume(whole.run, approve=True)
    assert done.ok
    assert CALLS[:2] == ["build", "note aside"]


async def test_a_review_and_a_budget_of_the_first_run_hold_for_the_next(tmp_path):
    """A policy that has become looser since does not loosen a re-run."""
    CALLS.clear()
    strict = Policy(review=True, budget=3.0)
    store = tmp_path / "runs.db"
    plan = {"steps": [STEPS[1]]}
    first = await Lead([note], store=store, actor="ann", policy=strict).run(plan, approve=True)
    loose = Lead([note], store=store, actor="ann")
    again = await loose.rerun(first.run)
    assert again.status == "waiting"
    assert started_of(loose, again.run).policy.budget == 3.0


async def test_a_rerun_of_a_rerun_keeps_the_first_origin(lead):
    """What the second run was given still comes from the first."""
    first = await failed_run(lead, params={"version": "7"})
    second = await lead.rerun(first, from_step="deploy", approve=True)
    for from_step in ("", "tell"):
        third = await lead.rerun(second.run, from_step=from_step, approve=True)
        assert third.ok
        started = started_of(lead, third.run)
        assert started.plan["rerun_of"] == second.run
        assert carried_results(started.plan)["build"].run == first
    assert carried_results(started.plan)["deploy"].run == second.run
    assert lead.verify()["violations"] == []


async def test_facts_of_steps_that_are_not_run_again_still_hold(lead):
    """The goal wants a fact that an earlier step gave; the new run has it from the start."""
    table = {"id": "draw", "worker": "draw", "gives": ["table"]}
    report = {
        "id": "write",
        "worker": "write",
        "parameters": {"table": "${{ steps.draw.data }}"},
        "failure_action": "abort",
    }
    plan = {"goal": {"text": "x", "want": ["table", "report"]}, "steps": [table, report]}
    first = await failed_run(lead, plan)
    again = await lead.rerun(first, from_step="write")
    assert again.ok, again.reason
    assert again.result == {"table": "a table", "report": "report of a table"}
    assert CALLS == ["write"]


async def test_a_goal_is_planned_again(lead):
    """The same goal with the same inputs; a step of it cannot be chosen."""
    goal = Goal(text="x", want=["report"])
    BROKEN.add("write")
    first = await lead.run(goal)
    await lead.cancel(first.run)
    await lead.resume(first.run)
    BROKEN.clear()
    with pytest.raises(UsageError, match="started from a goal"):
        await lead.rerun(first.run, from_step="write")
    again = await lead.rerun(first.run)
    assert again.ok
    assert started_of(lead, again.run).plan["rerun_of"] == first.run


async def test_what_cannot_be_run_again_is_refused_with_a_reason(lead):
    """And nothing is started."""
    open_run = await lead.run(PLAN, params={"version": "7"})
    with pytest.raises(Conflict, match="is waiting"):
        await lead.rerun(open_run.run)
    first = await failed_run(lead, params={"version": "7"})
    with pytest.raises(UsageError, match=r'has no step "deplyo"\. Fix: did you mean'):
        await lead.rerun(first, from_step="deplyo")
    with pytest.raises(UsageError, match='needs step "deploy", which is failed'):
        await lead.rerun(first, from_step="tell")
    with pytest.raises(UsageError, match="there is no run nowhere"):
        await lead.rerun("nowhere")
    told = copy.deepcopy(PLAN)
    told["steps"][2]["context"] = ["build"]
    second = await failed_run(lead, told, params={"version": "7"})
    with pytest.raises(UsageError, match='gets the result of "build" as context'):
        await lead.rerun(second, from_step="deploy")
    undone = await lead.run(
        {"steps": [{**STEPS[1], "undo": {"worker": "note", "parameters": {"text": "undo"}}}]}
    )
    back = await lead.rollback(undone.run)
    with pytest.raises(UsageError, match="is a rollback"):
        await lead.rerun(back.run)
    assert len(lead.list()) == 5


async def test_a_result_that_was_made_up_is_found(lead):
    """A record that the log of the first run does not bear out is a violation."""
    first = await failed_run(lead, params={"version": "7"})
    made_up = {"run": first, "attempt": 1, "entry": 2, "digest": result_digest("x"), "param": "p"}
    plan = {"params": {"p": {}}, "steps": [{**STEPS[1], "parameters": {"text": "${{ params.p }}"}}]}
    async with lead.hosting() as host:
        origin = {"rerun_of": first, "carried": {"build": made_up}}
        run = await lead.begin(host, plan, params={"p": "x"}, origin=origin)
        await run.wait_idle()
        host.forget(run)
    found = lead.verify(run.id)["violations"]
    assert [each["rule"] for each in found] == ["taken over"]
    assert "step build is not the result of attempt 1" in found[0]["message"]


async def test_a_parameter_that_is_not_the_recorded_result_breaks_a_rule(lead):
    """The checker needs one log only for that; an untrusted result taints the new run."""
    first = await failed_run(lead, params={"version": "7"})
    again = await lead.rerun(first, from_step="deploy", approve=True)
    with reading(lead._readable()) as reader:
        log = [(entry.at, event) for entry, event in reader.events(again.run)]
    assert check(log) == []
    at, started = log[0]
    started.params["result_build"]["image"] = "shop:8"
    assert check(log)[0].rule == "I54"
    started.plan["carried"]["build"]["untrusted"] = True
    state = State()
    evolve(state, started, at)
    assert state.permits.tainted


@worker
async def big() -> dict[str, str]:
    CALLS.append("big")
    return {"text": "x" * 400_000}


@worker
async def count_it(text: str) -> int:
    CALLS.append("count")
    if "write" in BROKEN:
        raise Permanent("no ink")
    return len(text)


async def test_a_large_result_is_taken_over_from_its_artifact(tmp_path):
    """Stored apart in the first run, checked against its hash, and the same in the second."""
    CALLS.clear()
    lead = Lead([big, count_it], store=tmp_path / "runs.db", actor="ann")
    step = {
        "id": "count",
        "worker": "count_it",
        "parameters": {"text": "${{ steps.big.data.text }}"},
        "failure_action": "abort",
    }
    first = await failed_run(lead, {"steps": [{"id": "big", "worker": "big"}, step]})
    again = await lead.rerun(first, from_step="count")
    assert (again.status, again.result, CALLS) == ("succeeded", 400_000, ["count"])
    assert lead.verify()["violations"] == []


@worker(gives="told")
async def pager() -> str:
    CALLS.append("pager")
    raise Permanent("no pager is in use any more")


@worker(gives="told", cost=2)
async def phone() -> str:
    CALLS.append("phone")
    return "told by phone"


@worker(needs="told", gives="signed", effects=["ledger"])
async def sign(told: str) -> str:
    CALLS.append("sign")
    if "write" in BROKEN:
        raise Permanent("no ink")
    return f"signed: {told}"


async def test_a_step_that_was_replaced_leads_to_its_successor(tmp_path):
    """The plan that was last accepted counts, under the names it was written with."""
    CALLS.clear()
    lead = Lead([pager, phone, sign], store=tmp_path / "runs.db", actor="ann")
    tell = {"id": "tell", "worker": "pager", "gives": ["told"]}
    last = {
        "id": "last",
        "worker": "sign",
        "parameters": {"told": "${{ steps.tell.data }}"},
        "failure_action": "abort",
    }
    goal = {"text": "x", "want": ["told", "signed"]}
    first = await failed_run(lead, {"goal": goal, "planner": "goal", "steps": [tell, last]})
    again = await lead.rerun(first, from_step="last", approve=True)
    assert again.ok, again.reason
    assert CALLS == ["sign"]
    assert again.result == {"told": "told by phone", "signed": "signed: told by phone"}
    CALLS.clear()
    whole = await lead.rerun(first, approve=True)
    assert whole.ok, whole.reason
    assert CALLS == ["phone", "sign"], "the revision that took its place was accepted"
    assert lead.verify()["violations"] == []


async def test_what_a_trusted_worker_made_of_untrusted_data_stays_untrusted(tmp_path):
    """The step that read the data is not taken over itself; the new run counts as having read."""
    table = {"fetch": {"command": ["echo", "from outside"]}}
    found = declared_workers(table, folder=tmp_path)
    lead = Lead([*found, note], store=tmp_path / "leadhand.db")
    text = {"a": "${{ steps.a.data.stdout }}", "b": "${{ steps.b.data }}"}
    steps = [
        {"id": "a", "worker": "fetch"},
        {"id": "b", "worker": "note", "parameters": {"text": text["a"]}},
        {"id": "c", "worker": "note", "parameters": {"text": text["b"]}},
    ]
    first = await lead.run({"steps": steps})
    again = await lead.rerun(first.run, from_step="c")
    with reading(lead._readable()) as reader:
        state = fold(reader.store.read(again.run))
    assert state.started is not None
    assert [*carried_results(state.started.plan)] == ["b"]
    assert state.permits.tainted


async def test_a_plan_that_was_revised_after_untrusted_data_stays_untrusted(tmp_path):
    """Its steps may hold what the data said; a plan of before the data does not."""
    found = declared_workers({"fetch": {"command": ["echo", "hi"]}}, folder=tmp_path)
    lead = Lead([*found, pager, phone, sign], store=tmp_path / "leadhand.db", actor="ann")
    steps = [
        {"id": "a", "worker": "fetch"},
        {"id": "tell", "worker": "pager", "gives": ["told"], "depends_on": ["a"]},
    ]
    first = await lead.run(
        {"goal": {"text": "x", "want": ["told"]}, "planner": "goal", "steps": steps}
    )
    assert first.ok, first.reason
    plain = await lead.run({"steps": steps[:1]})
    for run, tainted in ((first.run, True), (plain.run, False)):
        again = await lead.rerun(run)
        with reading(lead._readable()) as reader:
            started = fold(reader.store.read(again.run)[:1])
        assert started.permits.tainted is tainted
    assert lead.verify()["violations"] == []


async def test_verify_reads_the_log_of_the_first_run_once(lead, monkeypatch):
    """However many results were taken over: not once for each."""
    many = [{"id": f"n{i}", "worker": "note", "parameters": {"text": str(i)}} for i in range(20)]
    last = {"id": "last", "worker": "note", "parameters": {"text": "x"}}
    last["depends_on"] = [step["id"] for step in many]
    first = (await lead.run({"steps": [*many, last]})).run
    again = await lead.rerun(first, from_step="last")
    assert len(carried_results(started_of(lead, again.run).plan)) == 20
    read: list[str] = []
    real = Reader.entries
    monkeypatch.setattr(Reader, "entries", lambda *at: read.append(at[1]) or real(*at))
    assert lead.verify(again.run)["violations"] == []
    assert read.count(first) == 1


@worker
async def login(key: str) -> dict[str, str]:
    return {"token": f"of {key}"}


async def test_a_secret_in_a_result_is_its_mark_in_both_runs(tmp_path, monkeypatch):
    """No result holds a secret, so a later step of the first run got the mark as well."""
    CALLS.clear()
    monkeypatch.setenv("SHOP_KEY", "sup3r-s3cret-value-77")
    lead = Lead([login, note], store=tmp_path / "runs.db", actor="ann")
    steps = [
        {"id": "a", "worker": "login", "parameters": {"key": "${{ params.key }}"}},
        {"id": "b", "worker": "note", "parameters": {"text": "${{ steps.a.data.token }}"}},
    ]
    plan = {"params": {"key": {"type": "secret"}}, "steps": steps}
    first = await lead.run(plan, params={"key": "env:SHOP_KEY"})
    again = await lead.rerun(first.run, from_step="b")
    assert again.ok
    assert CALLS == ["note of [secret:key]"] * 2
    said = started_of(lead, again.run).plan["params"]["result_a"]["description"]
    assert said.endswith("It holds [secret:key] in place of a secret, as in that run")


async def test_the_label_of_a_rerun_cannot_be_given_by_hand(lead):
    """Lists find re-runs by it. It does not count among the 20 labels of a run."""
    plan = {"steps": [STEPS[1]]}
    with pytest.raises(UsageError, match="rerun_of is given to re-runs only"):
        await lead.run(plan, labels=["rerun_of=other"])
    first = await lead.run(plan, labels=[f"l{i}" for i in range(20)])
    again = await lead.rerun(first.run, labels=["rerun_of=other"])
    assert again.ok
    labels = started_of(lead, again.run).labels
    assert len(labels) == 21
    assert f"rerun_of={first.run}" in labels


async def test_a_rerun_needs_two_people_again(lead, tmp_path):
    """Neither approval of the first run counts, and one person is not two."""
    policy = Policy(rules=(Rule(risk="high", then="two"),))
    people = {
        name: Lead([build, deploy, note], store=tmp_path / "runs.db", actor=name, policy=policy)
        for name in ("ann", "bob")
    }
    first = await people["ann"].run(PLAN, params={"version": "7"})
    for name, one in people.items():
        await one.answer(first.run, "review-1", "approve", text=name)
    assert (await people["ann"].resume(first.run)).ok
    CALLS.clear()
    for from_step in ("", "deploy"):
        again = await people["ann"].rerun(first.run, from_step=from_step, approve=True)
        assert again.status == "waiting", "ann approved, and is one person"
        with pytest.raises((Conflict, NotAllowed)):
            await people["ann"].answer(again.run, "review-1", "approve")
        assert CALLS == []
        await people["bob"].answer(again.run, "review-1", "approve")
        assert (await people["bob"].resume(again.run)).ok
        CALLS.clear()
    assert lead.verify()["violations"] == []
