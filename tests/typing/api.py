"""User code that must pass mypy --strict. It is never run; `test_typing.py` checks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadhand import (
    Agent,
    Ambiguous,
    Approval,
    Ask,
    CommandTool,
    Conflict,
    Context,
    Denied,
    Failure,
    Finish,
    GiveUp,
    Goal,
    GoalPlanner,
    HandedStep,
    Human,
    Hybrid,
    InvalidOutput,
    Lead,
    LeadhandError,
    McpServer,
    ModelPlanner,
    NeedsInfo,
    NextStep,
    NotAllowed,
    Outcome,
    Permanent,
    Plan,
    PlanInvalid,
    PlannerView,
    Policy,
    Propose,
    RateLimited,
    Report,
    Rule,
    ScriptPlanner,
    Step,
    StepLease,
    StepReceipt,
    TooComplex,
    Transient,
    Unavailable,
    UsageError,
    Wait,
    WorkerFailure,
    method,
    worker,
)


@dataclass
class Price:
    """What a worker may return."""

    product: str
    cents: int


@worker
async def fetch_prices(competitor: str) -> list[Price]:
    """A plain async worker."""
    return [Price(competitor, 100)]


@worker(
    name="tests",
    action="run",
    checks={"all_tests_pass": lambda data: data["failed"] == 0},
    risk="low",
    effects=("files",),
    timeout="15 minutes",
    idempotent=True,
    cost=0.5,
    version="2",
)
def run_tests(suite: str = "all", *, context: Context) -> dict[str, int]:
    """A worker with everything declared, which looks at its context."""
    context.progress("half", 0.5)
    if context.cancelled or context.attempt > 3:
        raise Transient("busy", retry_after_s=3.0)
    earlier: tuple[Failure, ...] = context.failures
    key: str = context.key
    return {"failed": len(earlier), "key": len(key)}


@worker(name="deploy", probe=lambda version: {"version": version})
def deploy(version: str) -> Report:
    """A worker that reports in full."""
    if not version:
        return Report.failed("permanent", "no version", effect="none")
    return Report(data={"version": version}, recommendations=("watch it",), cost=1.0)


# A decorated function is what it was.
prices: Callable[[str], Any] = fetch_prices
count: dict[str, int] = run_tests("unit", context=None)  # type: ignore[arg-type]


def failures() -> list[WorkerFailure]:
    """Every kind of failure that a worker may raise."""
    return [
        Ambiguous("two ways to read it"),
        Denied("no access"),
        InvalidOutput("not JSON", effect="done"),
        NeedsInfo("which region?", recommendations=["ask the owner"]),
        Permanent("gone"),
        RateLimited(retry_after_s=30),
        TooComplex("split it", data={"parts": 3}),
        Transient(),
        Unavailable("down"),
    ]


def next_step(view: PlannerView) -> Propose | Wait | Ask | Finish | GiveUp:
    """A planner that is a function."""
    if view.in_flight or view.questions or view.retries:
        return Wait("something is under way")
    if view.findings:
        return GiveUp("; ".join(view.findings), notes=view.notes)
    if "raw" not in view.results:
        return Propose((Step(id="raw", worker="fetch_prices"),), because="it is needed first")
    if view.failed_attempts and view.failed_attempts[-1].failure.failure_class == "needs_info":
        return Ask("Which competitor?", choices=("Acme", "Other"))
    status: str = view.steps["raw"].status
    names: tuple[str, ...] = view.completed
    results: Mapping[str, Any] = view.results
    given_up = {step.id: "not needed" for step in view.timeline if step.status == "failed"}
    result = {"status": status, "names": list(names), "raw": results["raw"]}
    return Finish(result, drop=given_up)


async def async_step(view: PlannerView) -> Finish:
    """So may an async one be."""
    return Finish(view.cost)


def plans() -> Plan:
    """A plan is a document, typed."""
    goal = Goal(text="Ship it", want=("released",), have={"version": "2.1.4"}, budget=5)
    plan = Plan(
        goal=goal.to_doc(),
        steps=(
            Step(id="tests", worker="tests", action="run", success_criteria="all_tests_pass"),
            Step(
                id="deploy",
                worker="deploy",
                depends_on=("tests",),
                parameters={"version": "${{ params.version }}"},
                failure_action="abort",
                timeout="10m",
            ),
        ),
        final=True,
    )
    again: Plan = Plan.from_doc(plan.to_doc())
    return again


async def run_it() -> str:
    """The two verbs, with everything they take."""
    lead = Lead(
        workers=[fetch_prices, run_tests, deploy],
        planner=next_step,
        store="runs.db",
        policy=Policy(max_concurrency=4, budget=10.0),
        actor="ann",
    )
    plan: Plan = await lead.plan("Compare our competitors", have={"competitor": "Acme"})
    outcome: Outcome = await lead.run(plan)
    outcome = await lead.run({"steps": []}, params={"version": "1"}, approve=True)
    outcome = await lead.run(Path("plan.yaml"))
    outcome = await lead.run(Goal(text="Ship it"))
    outcome = await lead.resume(outcome.run)
    outcome = await lead.rerun(outcome.run, from_step="a", approve=False)
    if not outcome.ok:
        return f"{outcome.status}: {outcome.reason} after {outcome.duration_s:.1f} s"
    return str(outcome.result)


async def review_it() -> str:
    """Approve a plan, run it, say what people say."""
    policy = Policy(rules=(Rule(risk="high", then="two"),))
    lead = Lead([deploy], policy=policy, reviewers=[lambda revision: []], key="ann.key")
    approval: Approval = lead.approve(plans(), params={"version": "1"}, expires="8 hours")
    outcome: Outcome = await lead.run(plans(), approval=[approval])
    await lead.amend(outcome.run, {"steps.deploy.timeout": "5m"}, ["steps.tests.timeout"])
    shown = await lead.review(outcome.run)
    await lead.answer(outcome.run, "review-2", "approve", expires=60.0)
    await lead.pause(outcome.run, "lunch")
    question: str = await lead.hold(outcome.run, "tests", "deploy", reason="not yet")
    released: list[str] = await lead.release(outcome.run, "deploy", reason=question)
    await lead.redo(outcome.run, released[0], "the disk was full")
    return shown.binding


async def carry_out(lead: Lead, run: str) -> bool:
    """Carry out the steps of a run as the agent that drives it."""
    told: NextStep = await lead.next_step(run, caller="bot", lease="10m", wait_s=5)
    step: HandedStep | None = told.step
    if step is None:
        return told.ended
    mine = {"attempt": step.attempt, "caller": "bot"}
    lease: StepLease = await lead.extend_step(run, step.id, attempt=step.attempt, caller="bot")
    receipt: StepReceipt = await lead.report_step(
        run, step.id, attempt=step.attempt, caller="bot", data={"until": lease.deadline, **mine}
    )
    return receipt.met


@method("prices")
def in_parts(competitor: str) -> list[str]:
    """How to split what is too complex."""
    return ["split", "fetch_prices*", "join"]


def plan_it() -> Lead:
    """With the built-in planner, named in three ways or not at all."""
    goal = Goal(want="prices", have={"competitor": "Acme"}, budget=3.0, deadline="10m")
    Lead(workers=[fetch_prices, in_parts]).run_sync(goal)
    Lead(workers=[fetch_prices], planner="goal")
    somebody = Human("editor", "Who reads it?", gives="reader", timeout="1h", default="the board")
    Lead(workers=[fetch_prices, somebody]).run_sync(goal, mode="whole")
    return Lead(workers=[fetch_prices], planner=Hybrid(GoalPlanner(nodes_max=1000)))


def ask_models() -> Lead:
    """A model that plans, agents that work, tools of others."""
    files = McpServer(name="files", command=["python", "-m", "files"])
    agent = Agent(
        "reader",
        "hand",
        tools=[fetch_prices, CommandTool(allow=[["git", "status"]]), *files.toolset()],
        returns={"type": "object"},
        gives="findings",
        max_turns=5,
    )
    Lead(workers=[agent], planner="anthropic:claude-opus-4-5")
    return Lead(workers=[agent], planner=Hybrid(ModelPlanner("lead", style="next_step", rounds=2)))


def run_it_blocking() -> None:
    """The same for scripts, with the errors that may come."""
    lead = Lead(workers=[deploy], planner=ScriptPlanner(async_step, consult="on_surprise"))
    try:
        outcome: Outcome = lead.run_sync(plans())
    except PlanInvalid as error:
        findings: tuple[object, ...] = error.findings
        raise SystemExit(len(findings)) from error
    except LeadhandError as error:
        raise SystemExit(error.exit_code) from error
    assert outcome.status


def reads(folder: Path) -> list[str]:
    """A Lead of a project's settings, what is in its database, and what may go wrong."""
    lead = Lead.from_settings(folder, context="staging", actor="ann")
    try:
        bundle: bytes = lead.export("7kq3", folder / "run.zip")
        valid: object = lead.verify("7kq3", key=folder / "audit.pub")["valid"]
    except (Conflict, NotAllowed, UsageError) as error:
        return [str(error), str(error.exit_code)]
    runs = [row.run for row in lead.list(status="failed", limit=5)]
    return [*runs, str(len(bundle)), str(valid)]
