"""Behaviour through the public door: Lead, workers and planners as a user writes them."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leadhand import (
    Ask,
    Context,
    Finish,
    GiveUp,
    Goal,
    Lead,
    Permanent,
    Plan,
    PlanInvalid,
    PlannerView,
    Propose,
    RateLimited,
    Report,
    ScriptPlanner,
    Transient,
    worker,
)
from leadhand.app.reader import reading
from leadhand.app.run_limits import plan_policy
from leadhand.core import commands
from leadhand.core.policy import Policy
from leadhand.errors import Conflict, StoreCorrupt, UsageError
from tests.support.need import need

SEED = Path(__file__).parents[2] / "examples" / "deploy" / "plan.json"
QUICK = Policy(backoff_s=0.01, backoff_max_s=0.05)


def steps(*docs: dict[str, Any], **head: Any) -> dict[str, Any]:
    """A plan document."""
    return {"plan_id": "p", "goal": "g", "steps": list(docs), **head}


def run(lead: Lead, what: Any, **more: Any) -> Any:
    """Run to the end."""
    return lead.run_sync(what, **more)


def deployers(failed: int, calls: list[str]) -> list[Any]:
    """The three workers of the seed's plan."""

    @worker(
        name="test-runner",
        action="run_tests",
        checks={"all_tests_pass": lambda data: data["failed"] == 0},
    )
    async def tests(test_suite: str, environment: str) -> dict[str, Any]:
        calls.append("tests")
        return {"failed": failed, "suite": test_suite, "environment": environment}

    @worker(name="db-manager", action="backup_database")
    def backup(database: str, backup_type: str) -> str:
        calls.append("backup")
        return f"{database} {backup_type}"

    @worker(name="k8s-deployer")
    async def deploy(service: str, version: str, strategy: str) -> str:
        calls.append("deploy")
        return f"{service} {version} {strategy}"

    return [tests, backup, deploy]


def test_seed_plan_runs_verbatim(tmp_path: Path) -> None:
    """The deployment plan runs as it stands, with three workers, in order."""
    calls: list[str] = []
    outcome = run(Lead(deployers(0, calls), store=tmp_path / "x.db"), SEED)
    assert outcome.status == "succeeded"
    assert outcome.result == "auth-service v2.1.4 blue_green"
    assert calls == ["tests", "backup", "deploy"]


def test_seed_text_is_the_example() -> None:
    """The example is the plan of the seed, to the letter, where the seed can be read."""
    seed = Path(__file__).parents[3] / "shared/seeds/001_ddacaa963b059e57.txt"
    need(seed.exists(), "the seed documents are not beside this checkout")
    text = re.search(r"```json\n(.*?)```", seed.read_text(), re.DOTALL)
    assert text is not None
    assert json.loads(text[1]) == json.loads(SEED.read_text())


def test_failing_suite_stops_the_deployment(tmp_path: Path) -> None:
    """With a failing test suite nothing after it starts, and the reason is told."""
    calls: list[str] = []
    outcome = run(Lead(deployers(3, calls), store=tmp_path / "x.db"), SEED)
    assert outcome.status == "failed"
    assert calls == ["tests"]
    assert [step.status for step in outcome.steps] == ["failed", "cancelled", "cancelled"]
    assert "all_tests_pass does not hold" in outcome.reason


def test_a_claim_is_not_a_success(tmp_path: Path) -> None:
    """Lying, broken and unsure checks all mean: not done."""

    @worker(checks={"raises": lambda data: data["missing"], "truthy": lambda _data: 1})
    async def liar() -> dict[str, int]:
        return {"n": 1}

    for criterion in (
        "raises",
        "truthy",
        "data.n == 2",
        "data.n",
        "data.absent == 1",
        ["data.n == 1", "data.n > 5"],
    ):
        plan = steps(
            {"id": "a", "worker": "liar", "success_criteria": criterion, "failure_action": "abort"}
        )
        outcome = run(Lead([liar], store=tmp_path / "x.db"), plan)
        assert outcome.status == "failed", criterion
        assert outcome.steps["a"].error.failure_class == "criteria_unmet"


def test_references_keep_their_types(tmp_path: Path) -> None:
    """A reference is the value itself; in a text it is a scalar; data is never scanned again."""
    seen: list[Any] = []

    @worker
    async def give() -> dict[str, Any]:
        return {"rows": [1, 2], "name": "${{ params.secret }}", "n": 3}

    @worker
    async def take(rows: list[int], text: str, name: str, flag: bool) -> None:
        seen.append((rows, text, name, flag))

    plan = steps(
        {"id": "a", "worker": "give"},
        {
            "id": "b",
            "worker": "take",
            "parameters": {
                "rows": "${{ steps.a.data.rows }}",
                "text": "n=${{ steps.a.data.n }}!",
                "name": "${{ steps.a.data.name }}",
                "flag": "${{ params.flag }}",
            },
        },
        params={"flag": {"type": "boolean", "default": True}, "secret": "hush"},
    )
    assert run(Lead([give, take], store=tmp_path / "x.db"), plan).ok
    assert seen == [([1, 2], "n=3!", "${{ params.secret }}", True)]


def test_missing_reference_is_a_known_failure(tmp_path: Path) -> None:
    """A reference into data that is not there fails the step and names what is there."""

    @worker
    async def give() -> dict[str, Any]:
        return {"x": 1}

    @worker
    async def take(v: Any) -> None: ...

    plan = steps(
        {"id": "a", "worker": "give"},
        {
            "id": "b",
            "worker": "take",
            "parameters": {"v": "${{ steps.a.data.y }}"},
            "failure_action": "abort",
        },
    )
    outcome = run(Lead([give, take], store=tmp_path / "x.db"), plan)
    assert outcome.status == "failed"
    assert "has keys: x" in outcome.reason
    assert outcome.steps["b"].attempts == 0


def test_retry_then_reroute(tmp_path: Path) -> None:
    """A passing fault is retried with the same worker, then another one takes over."""
    calls: list[str] = []

    @worker
    async def flaky() -> str:
        calls.append("flaky")
        raise Transient("down")

    @worker
    async def steady() -> str:
        calls.append("steady")
        return "ok"

    plan = steps({"id": "a", "worker": "flaky", "alternatives": ["steady"], "retry": 2})
    outcome = run(Lead([flaky, steady], store=tmp_path / "x.db", policy=QUICK), plan)
    assert outcome.ok
    assert calls == ["flaky", "flaky", "steady"]
    assert outcome.steps["a"].attempts == 3


def test_retry_after_is_honoured(tmp_path: Path) -> None:
    """Nothing is called before the time a worker asked for has passed."""
    times: list[float] = []

    @worker
    async def limited() -> str:
        times.append(time.monotonic())
        if len(times) == 1:
            raise RateLimited("slow down", retry_after_s=0.3)
        return "ok"

    assert run(
        Lead([limited], store=tmp_path / "x.db", policy=QUICK),
        steps({"id": "a", "worker": "limited"}),
    ).ok
    assert times[1] - times[0] >= 0.3


def test_escalation_waits_and_answers_continue(tmp_path: Path) -> None:
    """With nothing left to try a person is asked; the rest goes on; the answer continues it."""
    allow: list[bool] = []

    @worker
    async def broken() -> str:
        if not allow:
            raise Permanent("no such bucket")
        return "fixed"

    @worker
    async def fine() -> str:
        return "ok"

    async def story() -> None:
        lead = Lead([broken, fine], store=tmp_path / "x.db")
        plan = steps(
            {"id": "a", "worker": "broken"},
            {"id": "b", "worker": "fine"},
            {"id": "c", "worker": "fine", "depends_on": ["a"]},
        )
        outcome = await lead.run(plan)
        assert outcome.status == "waiting"
        assert outcome.steps["b"].status == "succeeded"
        assert outcome.steps["c"].status == "waiting"
        allow.append(True)
        async with lead.hosting() as host:
            hosted = await host.resume(outcome.run, lead.registry, None)
            said = hosted.submit(
                lambda s, now: commands.answer(s, "q1", "retry", "me", now), wait=True
            )
            await said
            assert await hosted.wait_idle() == "succeeded"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("choice", "status", "second"),
    [("skip", "failed", "skipped"), ("abort", "failed", "cancelled")],
)
def test_answers_that_end_a_step(tmp_path: Path, choice: str, status: str, second: str) -> None:
    """Skipping dooms the dependents, aborting ends the run; neither is called a success."""

    @worker
    async def broken() -> str:
        raise Permanent("no")

    async def story() -> None:
        lead = Lead([broken], store=tmp_path / "x.db")
        plan = steps(
            {"id": "a", "worker": "broken"}, {"id": "b", "worker": "broken", "depends_on": ["a"]}
        )
        outcome = await lead.run(plan)
        async with lead.hosting() as host:
            hosted = await host.resume(outcome.run, lead.registry, None)
            await hosted.submit(
                lambda s, now: commands.answer(s, "q1", choice, "me", now), wait=True
            )
            assert await hosted.wait_idle() == status
            assert hosted.state.steps["b"].status == second

    asyncio.run(story())


def test_timeout_of_a_step_nobody_may_repeat_asks(tmp_path: Path) -> None:
    """A time-out leaves the outcome unknown: asked about, not repeated; the worker sees it."""
    seen: list[bool] = []

    @worker(timeout=0.2)
    async def slow(context: Context) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(context.cancelled)
            raise

    outcome = run(Lead([slow], store=tmp_path / "x.db"), steps({"id": "a", "worker": "slow"}))
    assert outcome.status == "waiting"
    assert outcome.steps["a"].attempts == 1
    assert outcome.waiting_for[0].answers == ["done", "retry", "skip", "abort"]
    assert seen == [True]


def test_probe_adopts_what_happened(tmp_path: Path) -> None:
    """After a time-out the probe finds the effect, and it is not made again."""
    world: list[str] = []

    def find(name: str) -> dict[str, str] | None:
        return {"made": name} if name in world else None

    @worker(timeout=0.2, probe=find, checks={"made": lambda data: "made" in data})
    async def make(name: str) -> dict[str, str]:
        world.append(name)
        await asyncio.sleep(60)
        return {}

    plan = steps(
        {"id": "a", "worker": "make", "parameters": {"name": "x"}, "success_criteria": "made"}
    )
    outcome = run(Lead([make], store=tmp_path / "x.db"), plan)
    assert outcome.ok
    assert outcome.result == {"made": "x"}
    assert world == ["x"]


def test_frontier_not_waves(tmp_path: Path) -> None:
    """A step starts the moment its own dependencies are verified, not when a level is done."""
    order: list[str] = []

    @worker
    async def nap(seconds: float, name: str) -> None:
        order.append(f"+{name}")
        await asyncio.sleep(seconds)
        order.append(f"-{name}")

    def step(name: str, seconds: float, *after: str) -> dict[str, Any]:
        return {
            "id": name,
            "worker": "nap",
            "parameters": {"seconds": seconds, "name": name},
            "depends_on": list(after),
        }

    plan = steps(step("slow", 0.6), step("quick", 0.01), step("next", 0.01, "quick"))
    assert run(Lead([nap], store=tmp_path / "x.db"), plan).ok
    assert order.index("-next") < order.index("-slow")


def test_limits_hold(tmp_path: Path) -> None:
    """Limits overall, per worker and per named resource are never passed."""
    now = {"all": 0, "a": 0, "r": 0}
    peak = dict(now)

    async def act(*keys: str) -> None:
        for key in keys:
            now[key] += 1
            peak[key] = max(peak[key], now[key])
        await asyncio.sleep(0.01)
        for key in keys:
            now[key] -= 1

    @worker(max_concurrency=3)
    async def a() -> None:
        await act("all", "a")

    @worker
    async def b() -> None:
        await act("all", "r")

    docs = [{"id": f"a{i}", "worker": "a"} for i in range(20)]
    docs += [{"id": f"b{i}", "worker": "b", "uses": {"r": 2}} for i in range(20)]
    plan = steps(*docs, resources={"r": 5}, limits={"concurrency": 4})
    assert run(Lead([a, b], store=tmp_path / "x.db"), plan).ok
    assert peak["all"] == 4
    assert peak["a"] == 3
    assert peak["r"] == 2


def test_large_results_are_kept_apart(tmp_path: Path) -> None:
    """A large result becomes an artifact, and references into it still work."""

    @worker
    async def big() -> dict[str, Any]:
        return {"text": "x" * 200_000, "n": 7}

    @worker
    async def use(n: int, text: str) -> int:
        return n + len(text)

    plan = steps(
        {"id": "a", "worker": "big"},
        {
            "id": "b",
            "worker": "use",
            "parameters": {"n": "${{ steps.a.data.n }}", "text": "${{ steps.a.data.text }}"},
        },
    )
    outcome = run(Lead([big, use], store=tmp_path / "x.db"), plan)
    assert outcome.result == 200_007
    assert outcome.steps["a"].data["n"] == 7
    assert (tmp_path / "x.db").stat().st_size < 200_000


@pytest.mark.parametrize("bad", [{1, 2}, float("nan"), b"x", {1: 2}, object(), "\ud800"])
def test_what_json_cannot_hold(tmp_path: Path, bad: Any) -> None:
    """A result that JSON cannot hold is a failure that names the place, never a crash."""

    @worker
    async def odd() -> Any:
        return {"deep": [bad]}

    plan = steps({"id": "a", "worker": "odd", "failure_action": "abort"})
    outcome = run(Lead([odd], store=tmp_path / "x.db"), plan)
    assert outcome.status == "failed"
    assert outcome.steps["a"].error.failure_class == "invalid_output"
    assert "deep" in outcome.steps["a"].error.message


def test_workers_share_nothing_with_the_log(tmp_path: Path) -> None:
    """What a worker does to its parameters or its result afterwards changes nothing."""
    kept: list[Any] = []

    @worker
    async def give() -> dict[str, Any]:
        data = {"rows": [1]}
        kept.append(data)
        return data

    @worker
    async def spoil(rows: list[int]) -> int:
        rows.append(99)
        kept[0]["rows"].append(98)
        return len(rows)

    ref = {"rows": "${{ steps.a.data.rows }}"}
    plan = steps(
        {"id": "a", "worker": "give"},
        {"id": "b", "worker": "spoil", "parameters": ref},
        {"id": "c", "worker": "spoil", "parameters": ref, "depends_on": ["b"]},
    )
    outcome = run(Lead([give, spoil], store=tmp_path / "x.db"), plan)
    assert outcome.steps["c"].data == 2
    assert outcome.steps["a"].data == {"rows": [1]}


def test_iterative_planner(tmp_path: Path) -> None:
    """One step at a time: it sees results, failures, recommendations and its own notes."""
    views: list[PlannerView] = []

    @worker
    async def fetch(source: str) -> Report:
        if source == "bad":
            return Report.failed("permanent", "gone", recommendations=("try good",))
        return Report(data={"from": source}, cost=0.5)

    def planner(view: PlannerView) -> Any:
        views.append(view)
        count = (view.notes or {"n": 0})["n"] + 1
        notes = {"n": count}
        if not view.steps:
            return Propose(
                [{"id": "one", "worker": "fetch", "parameters": {"source": "bad"}}], notes=notes
            )
        if "one" in view.steps and view.steps["one"].status == "failed" and "two" not in view.steps:
            doc = {
                "id": "two",
                "worker": "fetch",
                "parameters": {"source": "good"},
                "supersedes": "one",
            }
            return Propose([doc], because=view.recommendations[0], notes=notes)
        if "two" in view.results:
            return Finish(view.results["two"], notes=notes)
        return Propose([], notes=notes)

    outcome = run(Lead([fetch], planner, store=tmp_path / "x.db"), Goal(text="get it"))
    assert outcome.status == "succeeded", outcome.reason
    assert outcome.result == {"from": "good"}
    assert outcome.cost == 0.5
    assert [step.status for step in outcome.steps] == ["superseded", "succeeded"]
    assert views[-1].failed_attempts[0].failure.message == "gone"
    assert views[0].goal.text == "get it"


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (lambda _view: GiveUp("no way"), "no way"),
        (lambda _view: Propose([]), "proposes nothing"),
        (lambda _view: "a string", "returned str"),
        (lambda _view: Propose([{"id": "a", "worker": "nobody"}]), "nobody"),
        (lambda _view: Propose([{"id": "a", "worker": "w", "depends_on": ["a"]}]), "itself"),
        (lambda _view: 1 / 0, "ZeroDivisionError"),
        (
            lambda _view: Propose([{"id": f"s{i}", "worker": "w"} for i in range(200)]),
            "more than 100",
        ),
    ],
)
def test_bad_planners_end_cleanly(tmp_path: Path, answer: Any, word: str) -> None:
    """Whatever a planner answers, the run is bounded and says why it stopped."""

    @worker
    async def w() -> None: ...

    policy = Policy(steps_max=100)
    outcome = run(Lead([w], answer, store=tmp_path / "x.db", policy=policy), Goal(text="x"))
    if word == "no way":
        assert (outcome.status, word in outcome.reason) == ("failed", True)
        return
    assert outcome.status == "waiting"
    (question,) = outcome.waiting_for
    assert question.kind == "planning"
    assert word in question.text
    quiet = Policy(steps_max=100, no_input=True)
    outcome = run(Lead([w], answer, store=tmp_path / "y.db", policy=quiet), Goal(text="x"))
    assert outcome.status == "failed"
    assert word in outcome.reason


def test_planner_that_repeats_a_failure_is_stopped(tmp_path: Path) -> None:
    """A person is asked about revisions that try nothing new."""
    calls: list[int] = []

    @worker
    async def w() -> None:
        raise Permanent("no")

    def planner(view: PlannerView) -> Any:
        calls.append(1)
        return Propose([{"id": f"s{len(view.steps)}", "worker": "w"}])

    outcome = run(Lead([w], planner, store=tmp_path / "x.db"), Goal(text="x"))
    assert outcome.status == "waiting"
    assert "stuck" in outcome.waiting_for[0].text
    assert len(calls) < 12


def test_planner_asks_a_person(tmp_path: Path) -> None:
    """A question of the planner waits in the inbox, and the answer reaches it."""

    @worker
    async def w() -> None: ...

    def planner(view: PlannerView) -> Any:
        if not view.answers:
            return Ask("Which one?", ("left", "right"))
        return Finish(view.answers[-1]["choice"])

    async def story() -> None:
        lead = Lead([w], planner, store=tmp_path / "x.db")
        outcome = await lead.run(Goal(text="x"))
        assert outcome.status == "waiting"
        assert outcome.waiting_for[0].text == "Which one?"
        async with lead.hosting() as host:
            hosted = await host.resume(outcome.run, lead.registry, lead.planner)
            await hosted.submit(
                lambda s, now: commands.answer(s, "q1", "left", "me", now), wait=True
            )
            assert await hosted.wait_idle() == "succeeded"
            assert hosted.state.ended.result == "left"

    asyncio.run(story())


def test_goal_acceptance_is_checked(tmp_path: Path) -> None:
    """A planner that calls it done too early is asked again, and then a person is."""

    @worker
    async def w() -> None: ...

    outcome = run(
        Lead([w], lambda _view: Finish(1), store=tmp_path / "x.db"),
        Goal(text="x", acceptance=("result == 2",)),
    )
    assert outcome.status == "waiting"
    assert "result == 2" in outcome.waiting_for[0].text


def test_high_risk_waits_and_approval_continues(tmp_path: Path) -> None:
    """High risk waits for a person, whoever declares it; approving runs it."""

    @worker(risk="high")
    async def danger() -> int:
        return 1

    @worker
    async def safe() -> int:
        return 1

    for plan in (
        steps({"id": "a", "worker": "danger", "risk_level": "low"}),
        steps({"id": "a", "worker": "safe", "risk_level": "critical"}),
        steps({"id": "a", "worker": "safe"}, risk_level="high"),
        steps({"id": "a", "worker": "safe", "alternatives": ["danger"]}),
    ):
        lead = Lead([danger, safe], store=tmp_path / "x.db", actor="ann")
        waiting = run(lead, plan)
        assert waiting.status == "waiting"
        assert waiting.waiting_for[0].kind == "review"
        assert run(lead, plan, approve=True).ok


def test_budget_is_a_limit(tmp_path: Path) -> None:
    """Attempts are reserved before they start, so the budget is not overrun."""

    @worker(cost=1.0)
    async def paid() -> Report:
        return Report(data=1, cost=1.0)

    docs = [{"id": f"s{i}", "worker": "paid"} for i in range(10)]
    lead = Lead([paid], store=tmp_path / "x.db", policy=Policy(budget=3.5))
    outcome = run(lead, steps(*docs))
    assert outcome.status == "failed"
    assert outcome.cost == 3.0
    assert "budget" in outcome.reason


def test_continue_skips_dependents_and_tolerant_ones_go_on(tmp_path: Path) -> None:
    """`continue` lets the rest go on; dependents are skipped unless they say they do not mind."""

    @worker
    async def bad() -> None:
        raise Permanent("no")

    @worker
    async def fine() -> str:
        return "ok"

    only = steps(
        {"id": "a", "worker": "bad", "failure_action": "continue"}, {"id": "b", "worker": "fine"}
    )
    assert run(Lead([bad, fine], store=tmp_path / "x.db"), only).status == "succeeded"
    plan = steps(
        {"id": "a", "worker": "bad", "failure_action": "continue"},
        {"id": "b", "worker": "fine", "depends_on": ["a"]},
        {"id": "c", "worker": "fine", "depends_on": [{"step": "a", "if": "finished"}]},
    )
    outcome = run(Lead([bad, fine], store=tmp_path / "x.db"), plan)
    assert [step.status for step in outcome.steps] == ["failed", "skipped", "succeeded"]
    assert outcome.status == "failed"


def test_all_findings_at_once_and_nothing_runs(tmp_path: Path) -> None:
    """A plan with errors is refused whole, before anything starts."""
    calls: list[int] = []

    @worker
    async def w(n: int) -> None:
        calls.append(1)

    plan = steps(
        {"id": "a", "worker": "w", "parameters": {"n": "x"}},
        {"id": "a", "worker": "nobody"},
        {"id": "c", "worker": "w", "depends_on": ["zz"], "timeout": "soon"},
    )
    with pytest.raises(PlanInvalid) as caught:
        run(Lead([w], store=tmp_path / "x.db"), plan)
    assert len(caught.value.findings) >= 5
    assert calls == []


def test_two_hosts_on_one_database(tmp_path: Path) -> None:
    """A second host is told who has the database; the first goes on unharmed."""

    @worker
    async def nap() -> None:
        await asyncio.sleep(0.2)

    async def story() -> None:
        one = Lead([nap], store=tmp_path / "x.db")
        two = Lead([nap], store=tmp_path / "x.db")
        task = asyncio.create_task(one.run(steps({"id": "a", "worker": "nap"})))
        await asyncio.sleep(0.05)
        with pytest.raises(Conflict, match="is the host of this database"):
            await two.run(steps({"id": "a", "worker": "nap"}))
        assert (await task).ok

    asyncio.run(story())


def test_many_runs_share_a_host(tmp_path: Path) -> None:
    """One Lead hosts many runs at once, each with its own log."""

    @worker
    async def echo(n: int) -> int:
        return n

    async def story() -> None:
        lead = Lead([echo], store=tmp_path / "x.db")
        plans = [steps({"id": "a", "worker": "echo", "parameters": {"n": n}}) for n in range(50)]
        outcomes = await asyncio.gather(*(lead.run(plan) for plan in plans))
        assert [outcome.result for outcome in outcomes] == list(range(50))
        assert len({outcome.run for outcome in outcomes}) == 50

    asyncio.run(story())


def test_pause_resume_and_cancel(tmp_path: Path) -> None:
    """Paused: nothing new starts and what runs may finish. Cancelled: what runs is ended."""
    started: list[str] = []

    @worker
    async def nap(name: str, seconds: float) -> None:
        started.append(name)
        await asyncio.sleep(seconds)

    def step(name: str, seconds: float, *after: str) -> dict[str, Any]:
        return {
            "id": name,
            "worker": "nap",
            "parameters": {"name": name, "seconds": seconds},
            "depends_on": list(after),
        }

    async def story() -> None:
        lead = Lead([nap], store=tmp_path / "x.db")
        async with lead.hosting() as host:
            hosted = await lead.begin(host, steps(step("a", 0.1), step("b", 60, "a")))
            await asyncio.sleep(0.03)
            await hosted.submit(lambda s, _now: commands.pause(s, "me"), wait=True)
            assert await hosted.wait_idle() == "paused"
            assert hosted.state.steps["a"].status == "succeeded"
            assert started == ["a"]
            await hosted.submit(lambda s, _now: commands.resume(s, "me"), wait=True)
            await asyncio.sleep(0.05)
            assert started == ["a", "b"]
            await hosted.submit(lambda s, now: commands.cancel(s, "me", "enough", now), wait=True)
            assert await hosted.wait_idle() == "cancelled"

    asyncio.run(story())


def test_prints_are_kept_with_the_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a worker prints goes to its step's log, never to our own output."""

    @worker
    def loud() -> None:
        print("hello from a thread")

    async def story() -> str:
        lead = Lead([loud], store=tmp_path / "x.db")
        async with lead.hosting() as host:
            hosted = await lead.begin(host, steps({"id": "a", "worker": "loud"}))
            await hosted.wait_idle()
            return hosted.state.steps["a"].report.output

    assert asyncio.run(story()) == "hello from a thread\n"
    assert "hello" not in capsys.readouterr().out


def test_a_goal_needs_a_planner(tmp_path: Path) -> None:
    """Without a planner a goal is a usage error that says what to do."""
    with pytest.raises(UsageError, match="planner"):
        run(Lead([], store=tmp_path / "x.db"), Goal(text="x"))


def test_plan_only_plans(tmp_path: Path) -> None:
    """`plan` asks the planner and executes nothing."""
    calls: list[int] = []

    @worker
    async def w() -> None:
        calls.append(1)

    lead = Lead(
        [w],
        lambda _view: Propose([{"id": "a", "worker": "w"}], final=True),
        store=tmp_path / "x.db",
    )
    plan = lead.plan_sync("do it")
    assert isinstance(plan, Plan)
    assert calls == []
    assert run(lead, plan).ok
    assert calls == [1]


def test_critical_path_first(tmp_path: Path) -> None:
    """With estimates, by the step or by its worker, the longest way to the end starts first."""
    order: list[str] = []

    def note(context: Context) -> None:
        order.append(context.step)

    @worker(est="1s")
    async def short(context: Context) -> None:
        note(context)

    @worker(est="9s")
    async def long(context: Context) -> None:
        note(context)

    plan = steps(
        {"id": "quick", "worker": "short"},
        {"id": "head", "worker": "short"},
        {"id": "tail", "worker": "long", "depends_on": ["head"]},
        {"id": "middle", "worker": "short", "est": "5s"},
        limits={"concurrency": 1},
    )
    assert run(Lead([short, long], store=tmp_path / "x.db"), plan).ok
    assert order == ["head", "tail", "middle", "quick"]


def test_declared_cost_is_charged(tmp_path: Path) -> None:
    """A worker that does not say what it cost is charged what it declares."""

    @worker(cost=1.0)
    async def paid() -> int:
        return 1

    docs = [{"id": f"s{i}", "worker": "paid"} for i in range(5)]
    lead = Lead([paid], store=tmp_path / "x.db", policy=Policy(budget=2))
    outcome = run(lead, steps(*docs))
    assert outcome.status == "failed"
    assert outcome.cost == 2.0


def test_a_budget_that_cannot_do_is_refused_before_the_start(tmp_path: Path) -> None:
    """What the steps are known to cost is held against what the plan may spend."""

    @worker(cost=1.0)
    async def paid() -> int:
        return 1

    docs = [{"id": f"s{i}", "worker": "paid"} for i in range(5)]
    with pytest.raises(PlanInvalid, match=r"LH603 budget-short.* cost 5 .* budget is 2"):
        run(Lead([paid], store=tmp_path / "x.db"), steps(*docs, budget=2))


def test_a_plan_cannot_raise_the_hosts_limits(tmp_path: Path) -> None:
    """What a plan asks for is taken when it is less than what the host allows."""
    policy = Policy(
        resources={"db": 2}, worker_concurrency={"w": 2}, max_concurrency=3, wall_s=9, budget=4
    )
    asked = {
        "resources": {"db": 9, "gpu": 1},
        "limits": {"workers": {"w": 5}, "concurrency": 9},
        "deadline": "1 hour",
        "budget": 7,
    }
    taken = plan_policy(policy, asked, {"deadline": "5s", "budget": 6}, 0)
    assert taken.resources == {"db": 2, "gpu": 1}
    assert taken.worker_concurrency == {"w": 2}
    assert (taken.max_concurrency, taken.wall_s, taken.budget) == (3, 5, 4)
    noon = 1_800_000_000_000_000
    assert plan_policy(Policy(), {"deadline": "2027-01-15T08:00:30Z"}, "", noon).wall_s == 30


def test_a_deadline_stops_the_run(tmp_path: Path) -> None:
    """Past its deadline a run starts nothing more and ends as a limit reached."""

    @worker
    async def nap() -> None:
        await asyncio.sleep(0.2)

    docs = [
        {"id": f"s{i}", "worker": "nap", "depends_on": [f"s{i - 1}"] if i else []} for i in range(9)
    ]
    outcome = run(Lead([nap], store=tmp_path / "x.db"), steps(*docs, deadline="0.5s"))
    assert outcome.status == "failed"
    assert "reached its time limit" in outcome.reason
    assert sum(step.status == "succeeded" for step in outcome.steps) < 5


def test_large_results_reach_planners_and_acceptance(tmp_path: Path) -> None:
    """What is stored apart is loaded for a planner that looks, and for the goal's criteria."""

    @worker
    async def big() -> dict[str, Any]:
        return {"text": "x" * 100_000}

    def planner(view: PlannerView) -> Any:
        if not view.steps:
            return Propose([{"id": "a", "worker": "big"}])
        return Finish(len(view.results["a"]["text"]))

    goal = Goal(text="x", acceptance=("result == 100000", "len(steps.a.data.text) == 100000"))
    assert run(Lead([big], planner, store=tmp_path / "x.db"), goal).result == 100_000


def test_expectations_may_be_named_checks(tmp_path: Path) -> None:
    """`expect` takes what success criteria take; false is a surprise, not a failure."""
    asked: list[str] = []

    @worker(checks={"small": lambda data: data < 5})
    async def number() -> int:
        return 9

    def planner(view: PlannerView) -> Any:
        asked.append(view.why)
        if not view.steps:
            return Propose([{"id": "a", "worker": "number", "expect": ["small"]}], final=True)
        return Finish(view.results["a"])

    lead = Lead([number], ScriptPlanner(planner, consult="on_surprise"), store=tmp_path / "x.db")
    assert run(lead, Goal(text="x")).result == 9
    assert "small does not hold" in asked[1]


def test_unmet_criteria_reroute_unless_there_are_effects(tmp_path: Path) -> None:
    """Another worker may try what was done badly; with declared effects it may not."""

    @worker
    async def sloppy() -> int:
        return 0

    @worker(effects=["mail"])
    async def mailer() -> int:
        return 0

    @worker
    async def careful() -> int:
        return 1

    for first, status in (("sloppy", "succeeded"), ("mailer", "waiting")):
        doc = {
            "id": "a",
            "worker": first,
            "alternatives": ["careful"],
            "success_criteria": "data == 1",
        }
        outcome = run(Lead([sloppy, mailer, careful], store=tmp_path / "x.db"), steps(doc))
        assert outcome.status == status, first


def test_an_unseen_end_may_abort_without_asking(tmp_path: Path) -> None:
    """Aborting repeats nothing, so a plan that says abort need not ask what happened."""

    @worker(timeout=0.1)
    async def slow() -> None:
        await asyncio.sleep(60)

    doc = {"id": "a", "worker": "slow", "failure_action": "abort"}
    outcome = run(Lead([slow], store=tmp_path / "x.db"), steps(doc))
    assert outcome.status == "failed"
    assert "it is unknown whether it took effect" in outcome.reason


def test_answers_and_resume_from_python(tmp_path: Path) -> None:
    """A question can be answered and the run resumed without the command line."""
    fixed: list[bool] = []

    @worker
    async def broken() -> str:
        if not fixed:
            raise Permanent("no")
        return "ok"

    async def story() -> None:
        lead = Lead([broken], store=tmp_path / "x.db")
        waiting = await lead.run(steps({"id": "a", "worker": "broken"}))
        fixed.append(True)
        await lead.answer(waiting.run, "q1", "retry")
        assert (await lead.resume(waiting.run)).result == "ok"

    asyncio.run(story())


def test_a_changed_log_is_not_resumed(tmp_path: Path) -> None:
    """Whatever was changed in the database is found before anything follows from it."""

    @worker
    async def broken() -> str:
        raise Permanent("no")

    for number, change in enumerate(
        (
            "UPDATE events SET body = CAST(replace(body, 'broken', 'brokem') AS BLOB)",
            "DELETE FROM events WHERE position = (SELECT max(position) FROM events)",
            "DELETE FROM events WHERE position > 4",
            "UPDATE events SET at = at + 1 WHERE position = 5",
        )
    ):
        path = tmp_path / f"{number}.db"
        lead = Lead([broken], store=path)
        waiting = run(lead, steps({"id": "a", "worker": "broken"}))
        with closing(sqlite3.connect(path)) as base, base:
            base.execute("DROP TRIGGER events_no_update")
            base.execute("DROP TRIGGER events_no_delete")
            base.execute(change)
        with pytest.raises(StoreCorrupt, match="does not verify"):
            lead.resume_sync(waiting.run)
        with reading(path) as reader, pytest.raises(StoreCorrupt, match="changed or damaged"):
            reader.events(waiting.run)
