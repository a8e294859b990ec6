"""Test doubles: scripted workers and planners.

    fetch = scripted("fetch", [RateLimited("busy", retry_after_s=3), after(5, {"rows": 7})])
    lead = Lead(workers=[fetch], planner=ScriptedPlanner([Propose([...]), Finish()]))

They ship with the package because users need them too. Both remember what they were asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.report import Report
from leadhand.workers.reports import report_from, report_of

if TYPE_CHECKING:
    from leadhand.core.report import Decision, PlannerView
    from leadhand.ports import Context, Task


class Delayed(NamedTuple):
    """An outcome that takes its time."""

    seconds: float
    outcome: Any


class _Hang:
    """Never reports."""


HANG = _Hang()
"""An outcome that never comes: the attempt ends with its deadline."""


def after(seconds: float, outcome: Any = None) -> Delayed:
    """Return `outcome`, delayed by `seconds`."""
    return Delayed(seconds, outcome)


class ScriptedWorker:
    """A worker that returns its `outcomes` one after the other, then the last one for ever.

    An outcome is a report, plain data, an exception to raise, `after(seconds, outcome)`, `HANG`, or
    a function of the task that returns one of these.

    `name` is the worker's name, `offer` its declared offer, `checks` its named checks, and `probes`
    are the outcomes of probes. `calls` and `probed` hold the tasks it was given.
    """

    def __init__(
        self,
        name: str,
        outcomes: Sequence[Any] = (),
        *,
        offer: Offer | None = None,
        checks: dict[str, Callable[[Any], bool]] | None = None,
        probes: Sequence[Any] = (),
    ) -> None:
        self.calls: list[Task] = []
        self.probed: list[Task] = []
        self._outcomes = list(outcomes) or [None]
        self._probes = list(probes)
        self._checks = checks or {}
        offer = offer or Offer(checks=tuple(self._checks), probe=bool(probes))
        self.spec = WorkerSpec(name=name, version="scripted", offers={"": offer})

    async def perform(self, task: Task, context: Context) -> Report:
        """Return the next outcome for `task`; ignore `context`."""
        self.calls.append(task)
        outcome = self._outcomes[min(len(self.calls), len(self._outcomes)) - 1]
        return await _play(outcome, task)

    async def probe(self, task: Task, context: Context) -> Report | None:
        """Return the next probe: a report (it happened), None (it did not), or raise (unknown)."""
        self.probed.append(task)
        if not self._probes:
            raise LookupError("no probe is scripted")
        outcome = self._probes[min(len(self.probed), len(self._probes)) - 1]
        if outcome is None:
            return None
        report = await _play(outcome, task)
        if report.error is not None:
            raise LookupError(report.error.message)
        return report

    def check(self, name: str, action: str, data: Any) -> bool:
        """Return whether the check `name` holds for `data`; `action` is ignored."""
        check = self._checks.get(name)
        return check is not None and check(data) is True

    async def close(self) -> None:
        """Do nothing: a scripted worker holds no resources."""


async def _play(outcome: Any, task: Task) -> Report:
    while isinstance(outcome, Delayed) or _is_function(outcome):
        if isinstance(outcome, Delayed):
            await asyncio.sleep(outcome.seconds)
            outcome = outcome.outcome
        else:
            outcome = outcome(task)
    if isinstance(outcome, _Hang):
        await asyncio.get_running_loop().create_future()
    if isinstance(outcome, BaseException):
        return report_of(outcome)
    return report_from(outcome)


def _is_function(outcome: Any) -> bool:
    return callable(outcome) and not isinstance(outcome, type)


def scripted(
    name: str,
    outcomes: Sequence[Any] = (),
    *,
    checks: dict[str, Callable[[Any], bool]] | None = None,
    probes: Sequence[Any] = (),
    **offer: Any,
) -> ScriptedWorker:
    """Return a worker called `name` that plays back `outcomes`.

    `checks` are named checks of the data, `probes` the outcomes of probes, and `offer` further
    fields of its `Offer`.
    """
    described = Offer(checks=tuple(checks or ()), probe=bool(probes), **offer)
    return ScriptedWorker(name, outcomes, offer=described, checks=checks, probes=probes)


class ScriptedPlanner:
    """A planner that returns its `decisions` one after the other, then the last one for ever.

    A decision may also be an exception to raise, or a function of the view that returns one.
    `name`, `consult`, `replans` and `splits` are those of the port. `views` holds the views it got.
    """

    def __init__(
        self,
        decisions: Sequence[Any],
        *,
        consult: str = "every_report",
        replans: bool = True,
        splits: bool = False,
        name: str = "scripted",
    ) -> None:
        self.name = name
        self.consult = consult
        self.replans = replans
        self.splits = splits
        self.views: list[PlannerView] = []
        self._decisions = list(decisions)

    async def decide(self, view: PlannerView) -> Decision:
        """Return the next decision; record `view`."""
        self.views.append(view)
        decision = self._decisions[min(len(self.views), len(self._decisions)) - 1]
        while isinstance(decision, Delayed):
            await asyncio.sleep(decision.seconds)
            decision = decision.outcome
        if callable(decision):
            decision = decision(view)
        if isinstance(decision, BaseException):
            raise decision
        return decision  # type: ignore[no-any-return]
