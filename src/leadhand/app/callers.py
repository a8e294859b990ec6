"""The door for an agent that drives a run: its next step, and its reports.

The request goes to the process that drives the run. If none does, this process drives it for as
long as the request takes, and until nothing more can happen without the agent or a person: so a
plan whose steps the agent itself carries out needs no service.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.app import commands
from leadhand.app.rollback import roll_back
from leadhand.core.calendar import iso
from leadhand.core.callers import LEASE_S, agent_name
from leadhand.core.catalog import NO_CALLERS, NO_CALLERS_FIX
from leadhand.core.durations import seconds
from leadhand.core.rollback import to_roll_back
from leadhand.core.views.inbox import InboxRow
from leadhand.core.views.run import ENDED
from leadhand.engine.callers import CallerReport
from leadhand.errors import UsageError
from leadhand.stores.location import StoreAddress, there

if TYPE_CHECKING:
    from leadhand.app.lead import Lead
    from leadhand.core.plan.model import Doc, Json
    from leadhand.ports import Host, RunHandle

ELSEWHERE = f"{NO_CALLERS}. Fix: {NO_CALLERS_FIX}"
LOOK_S = 0.2
"""The interval of looks while other workers are at work."""
TAKEN_UP_S = 6.0
"""How long the host of a database may take to take up a run that it does not drive yet."""


class HandedStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that was handed out to a caller: all that the caller needs to carry it out."""

    id: str
    """The id of the step."""
    attempt: int
    """The number of this attempt: the report must name it."""
    caller: str
    """The caller that has the step, as `agent:NAME`."""
    deadline: str
    """When the lease ends, ISO 8601 in UTC: report or extend the lease before."""
    limit: str
    """When the time for this attempt is over, however often the lease is extended."""
    key: str
    """The same for every attempt of the step: an idempotency key for what it does outside."""
    goal: Any = None
    """The goal of the run."""
    action: str = ""
    """What is to be done, in a word, if the plan names an action."""
    description: str = ""
    """What is to be done."""
    parameters: dict[str, Any] = {}
    """The inputs, with references replaced by results of other steps."""
    success_criteria: list[str] = []
    """What the reported data is judged by."""
    effects: list[str] = []
    """The side effects that the plan declares."""
    results: dict[str, Any] = {}
    """Results of the steps that the step's `context` names."""
    summaries: dict[str, Any] = {}
    """Summaries of the steps whose summaries it names."""
    failures: list[dict[str, Any]] = []
    """Why earlier attempts failed."""
    answers: list[dict[str, Any]] = []
    """What people answered to questions about the step."""
    again: bool = False
    """Whether this caller had the step already, and this repeats it."""


class NextStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a caller that asks for its next step."""

    run: str
    """The id of the run."""
    status: str
    """The status of the run."""
    step: HandedStep | None = None
    """The step to carry out; None: there is none now, and `status` and `awaiting` say why."""
    awaiting: str = ""
    """For what a waiting run waits: `approval`, `input` or `caller`."""
    waiting_for: list[InboxRow] = []
    """The open questions to people."""
    busy: list[dict[str, str]] = []
    """Steps that callers have, each with its caller."""
    reason: str = ""
    """Why the run ended as it did, or why nothing is handed out."""
    result: Any = None
    """The result of a run that succeeded."""

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.status in ENDED


class StepReceipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of the report of a caller."""

    run: str
    """The id of the run."""
    step: str
    """The id of the step."""
    attempt: int
    """The number of the attempt."""
    met: bool
    """Whether the step counts as succeeded: no criterion was found unmet."""
    verified: bool
    """Whether a criterion of the step was checked against the report and holds. What the report
    says of the world is still the agent's word: a step that Leadhand runs itself can check it.
    False beside `met`: only the agent says that the step is done."""
    repeated: bool
    """Whether this very report had been accepted before; nothing was recorded again."""
    step_status: str
    """The status of the step now."""
    status: str
    """The status of the run now."""
    findings: list[str] = []
    """The criteria that do not hold, and why."""
    awaiting: str = ""
    """For what a waiting run waits: `approval`, `input` or `caller`."""
    waiting_for: list[InboxRow] = []
    """The open questions to people."""
    reason: str = ""
    """Why the run ended, if it has."""
    result: Any = None
    """The result of a run that succeeded."""


class StepLease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The lease of a caller after it asked for more time."""

    run: str
    """The id of the run."""
    step: str
    """The id of the step."""
    attempt: int
    """The number of the attempt."""
    deadline: str
    """When the lease ends, ISO 8601 in UTC."""
    limit: str
    """When the time for this attempt is over, however often the lease is extended."""
    cancelled: bool = False
    """Whether the run is being stopped: undo nothing, stop, and report what was done."""


Ask = Callable[[str, "Doc"], Awaitable["Doc"]]
"""Sends a request of one caller to one run, as a verb and details; returns the answer."""


async def next_step(ask: Ask, lease: str | float | None = None, wait_s: float = 0.0) -> NextStep:
    """Return the next step, handed out to the caller, or why there is none.

    While other workers are at work, look again for `wait_s` seconds.
    """
    until = time.monotonic() + wait_s
    while True:
        told = await ask("claim", {"lease_s": _lease_s(lease)})
        waits = told.get("step") is None and told["status"] == "running"
        if not waits or time.monotonic() >= until:
            return _next(told)
        await asyncio.sleep(LOOK_S)


def _lease_s(lease: str | float | None) -> float:
    if lease is None:
        return LEASE_S
    try:
        return seconds(lease)
    except ValueError as error:
        raise UsageError(f"the lease: {error}") from None


def _next(told: Doc) -> NextStep:
    step, reason = told.get("step"), str(told.get("reason", ""))
    if step is not None:
        step = step | {"deadline": iso(step["deadline"]), "limit": iso(step["limit"])}
    elif told.get("stopped"):
        reason = "all runs are stopped: see `leadhand stop-all --help`"
    elif told["busy"]:
        reason = f"{told['busy'][0]['caller']} has step {told['busy'][0]['step']}"
    return msgspec.convert(_of(NextStep, told | {"step": step, "reason": reason}), NextStep)


async def report_step(ask: Ask, step: str, attempt: int, report: CallerReport) -> StepReceipt:
    """Report attempt `attempt` of `step`; return what became of it, once it is durable."""
    details = {"step": step, "attempt": attempt, "report": msgspec.to_builtins(report)}
    told = await ask("report", details)
    return msgspec.convert(_of(StepReceipt, told), StepReceipt)


async def extend_step(
    ask: Ask,
    step: str,
    attempt: int,
    lease: str | float | None = None,
    message: str = "",
    fraction: float | None = None,
) -> StepLease:
    """Extend the lease of a step that the caller has."""
    details: Doc = {"step": step, "attempt": attempt, "message": message, "fraction": fraction}
    told = await ask("extend", details | {"lease_s": _lease_s(lease)})
    told |= {"deadline": iso(told["deadline"]), "limit": iso(told["limit"])}
    return msgspec.convert(_of(StepLease, told), StepLease)


def _of(form: type[msgspec.Struct], told: Doc) -> Json:
    """Return the fields of `form` in an answer, as plain data."""
    return msgspec.to_builtins({k: told[k] for k in form.__struct_fields__ if k in told})


async def request(lead: Lead, run_id: str, caller: str, verb: str, details: Doc) -> Doc:
    """Have the process that drives the run carry out a request; drive it here if none does."""
    actor, place = agent_name(caller), lead.place
    if lead.is_elsewhere:
        raise UsageError(ELSEWHERE)
    if not lead.is_open and isinstance(place, (Path, StoreAddress)):
        if not there(place):
            raise UsageError(f"there is no run {run_id}: {place} does not exist")
        told = await _by_host(place, run_id, verb, actor, details)
        if told is not None:
            return told
    async with lead.hosting_beside() as host:
        return await _driven_here(lead, host, run_id, verb, actor, details)


async def _by_host(
    place: Path | StoreAddress, run_id: str, verb: str, actor: str, details: Doc
) -> Doc | None:
    """Return the answer of the process that drives the run; None if no process does."""
    until = time.monotonic() + TAKEN_UP_S
    request = {"verb": verb, "run": run_id, "actor": actor, "details": details}
    while True:
        told = await commands.ask(place, request)
        if told is None or told.get("driven"):
            return told
        if time.monotonic() >= until:
            return None
        await asyncio.sleep(LOOK_S)


async def _driven_here(
    lead: Lead, host: Host, run_id: str, verb: str, actor: str, details: Doc
) -> Doc:
    """Carry out a request on a host of this process, which drives the run."""
    run = host.runs.get(run_id)
    shared = lead.shares_host
    if run is None or not run.driven:
        run = await lead.resume_on(host, run_id)
    if verb == "claim" and not shared:
        await _wait_for_others(run)  # what other workers do would end with this process
    told = await host.send_command(run_id, verb, actor, details, lead.registry)
    if not shared:
        await _wait_for_others(run)
        if to_roll_back(run.state):
            await (await roll_back(lead, host, run_id)).wait_idle()
    return told


async def _wait_for_others(run: RunHandle) -> None:
    """Wait until nothing more happens in a run without a caller or a person.

    A run that is being stopped is left to its caller, which may still report within the grace.
    """
    while run.state.stopping is not None and run.state.handed_out:
        if len(run.state.in_flight) == run.state.handed_out:
            return
        await asyncio.sleep(LOOK_S)
    await run.wait_idle()
