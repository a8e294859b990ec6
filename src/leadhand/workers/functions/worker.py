"""Python functions as workers.

Three ways to run one, settled when it is registered:

    async     awaited on the host's loop. The quick way: a few microseconds of ours.
    thread    a sync function in one of our threads (`threads`). It cannot be killed, only
              abandoned, and sees `context.cancelled`.
    process   in a child Python (`isolation`), which is killed on time-out. The default for
              sync functions that declare effects, where the child can find the function.
              Not for those of `__main__`: a child that imported the script would run it again.

Whatever way it ran, its value or exception becomes a report here (`reports`), and what it
printed belongs to that report (`capture`). `perform` raises only when it was itself cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.report import Report
from leadhand.errors import UsageError
from leadhand.ports import is_external_cancellation
from leadhand.workers.coverage import Coverage
from leadhand.workers.functions.decorator import Declaration
from leadhand.workers.functions.isolation import (
    Target,
    Walls,
    context_document,
    run_isolated,
    target_of,
)
from leadhand.workers.functions.signature import BadParameters, Signature
from leadhand.workers.functions.threads import Lane, Threads
from leadhand.workers.functions.version import covered, files_of, source_bytes
from leadhand.workers.processes.capture import Sink, current, shown_live
from leadhand.workers.reports import holds, report_from, report_of

if TYPE_CHECKING:
    from leadhand.ports import Context, Task
    from leadhand.workers.processes.runner import Processes


class FunctionAction:
    """One action of a worker: a function, and how to call it."""

    def __init__(
        self, declaration: Declaration, function: Callable[..., Any] | None = None
    ) -> None:
        """`function` is the declared one, or the same bound to an instance."""
        self.declaration = declaration
        self.function = declaration.function if function is None else function
        self.is_async = inspect.iscoroutinefunction(self.function)
        self.changes = bool(declaration.effects)
        self.signature = Signature(self.function, declaration.scope)
        self.target = self._target()
        self._classify = partial(report_of, retry_on=declaration.retry_on, effects=self.changes)

    def _target(self) -> Target | None:
        """Return where a child process finds the function, if it runs in one."""
        wish = "process" if self.declaration.sandbox else self.declaration.isolate
        of_script = getattr(self.function, "__module__", "") == "__main__"
        if wish != "process" and (wish or self.is_async or not self.changes or of_script):
            return None
        target = target_of(self.function)
        if target is None and wish == "process":
            option = "sandbox" if self.declaration.sandbox else "isolate"
            raise UsageError(
                f"{self.declaration.name}: {option}: a process can only run a function that stands "
                "at the top of a module or in a class, not inside another function"
            )
        return target

    def offer(self) -> Offer:
        """Return the description for planners and checks."""
        declared = self.declaration
        walls = declared.sandbox
        return Offer(
            sandbox=str(walls) if walls else "",
            missing=walls.missing() if walls else "",
            parameters=self.signature.parameters,
            returns=self.signature.returns,
            checks=tuple(declared.checks),
            result_check=declared.check is not None,
            risk=declared.risk,
            effects=declared.effects,
            reads=declared.reads,
            writes=declared.writes,
            idempotent=declared.idempotent,
            probe=declared.probe is not None,
            timeout_s=declared.timeout_s,
            est_s=declared.est_s,
            cost=declared.cost,
            needs=self.signature.needs if declared.needs is None else declared.needs,
            gives=self.signature.gives if declared.gives is None else declared.gives,
            drops=declared.drops,
        )

    @property
    def parts(self) -> list[Any]:
        """Return everything that decides about a result: the function, its checks, its probe."""
        declared = self.declaration
        others = (declared.function, declared.check, declared.probe, *declared.checks.values())
        return [self.function, *(each for each in others if each)]

    @cached_property
    def sources(self) -> dict[str, tuple[str, bool, bytes]]:
        """Return the modules that a child process loads it from."""
        return source_bytes(self.function)

    async def run_async(self, task: Task, context: Context) -> Report:
        """Await an async function here."""
        sink = shown_live(context, Sink())
        token = current.set(sink)
        try:
            if self.signature.bare and not task.parameters:
                value = await self.function()
            else:
                arguments, keywords = self.signature.bind(task.parameters, context)
                value = await self.function(*arguments, **keywords)
            report = report_from(value, effects=self.changes)
        except BadParameters as problem:
            report = Report.failed("permanent", str(problem))
        except BaseException as error:
            if is_external_cancellation(error):
                raise
            report = self._classify(error)
        finally:
            current.reset(token)
        return replace(report, output=sink.text()) if sink.total else report

    async def run_thread(
        self, task: Task, context: Context, threads: Threads, lane: Lane
    ) -> Report:
        """Call a sync function in a thread."""
        watched = Watched(context, asyncio.get_running_loop()) if self.signature.context else None
        try:
            arguments, keywords = self.signature.bind(task.parameters, watched)
        except BadParameters as problem:
            return Report.failed("permanent", str(problem))
        sink = shown_live(context, Sink())
        token = current.set(sink)
        try:
            outcome = await threads.run(lane, partial(self.function, *arguments, **keywords))
        except asyncio.CancelledError:
            if watched:
                watched.cancelled_here = True
            raise
        except RuntimeError as error:  # There is no thread to be had.
            return Report.failed("transient", f"{type(error).__name__}: {error}")
        finally:
            current.reset(token)
        if outcome.error is not None:
            report = self._classify(outcome.error)
        else:
            report = report_from(outcome.value, effects=self.changes)
        return replace(report, output=sink.text()) if sink.total else report

    def run_here(self, parameters: dict[str, Any], context: Any) -> Report:
        """Call the function in this process and thread, as the child of `isolation` does."""
        try:
            arguments, keywords = self.signature.bind(parameters, context)
            value = self.function(*arguments, **keywords)
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
            return report_from(value, effects=self.changes)
        except BadParameters as problem:
            return Report.failed("permanent", str(problem))
        except BaseException as error:  # noqa: BLE001 - the boundary of the child
            return self._classify(error)

    async def probe(self, task: Task, context: Context, threads: Threads) -> Report | None:
        """Ask the declared probe; LookupError when it cannot tell."""
        function = self.declaration.probe
        if function is None:
            raise LookupError(f"{self.declaration.name} declares no probe")
        signature = Signature(function, self.declaration.scope)
        arguments, keywords = signature.bind(task.parameters, context, lenient=True)
        token = current.set(Sink())
        try:
            if inspect.iscoroutinefunction(function):
                value = await function(*arguments, **keywords)
            else:
                outcome = await threads.run(Lane(), partial(function, *arguments, **keywords))
                if outcome.error is not None:
                    raise outcome.error
                value = outcome.value
        except BaseException as error:
            if is_external_cancellation(error):
                raise
            raise LookupError(f"the probe cannot tell: {type(error).__name__}: {error}") from error
        finally:
            current.reset(token)
        if value is None:
            return None
        report = report_from(value)
        if report.error:
            raise LookupError(f"the probe cannot tell: {report.error.message}")
        return report


class FunctionWorker:
    """A worker made of functions, one for each action."""

    def __init__(
        self,
        name: str,
        actions: Iterable[FunctionAction],
        *,
        threads: Threads | None = None,
    ) -> None:
        self.name = name
        self.threads = threads or Threads()
        self.processes: Processes | None = None
        self._all = list(actions)
        self._actions: dict[str, FunctionAction] = {}
        for each in self._all:
            for action in each.declaration.actions:
                if action in self._actions:
                    which = f"the action {action!r}" if action else "the unnamed action"
                    places = " and ".join(map(_place, (self._actions[action], each)))
                    raise UsageError(
                        f"worker {name!r}: {which} is declared twice, in {places}. "
                        "Fix: load one of them, or give one another name"
                    )
                self._actions[action] = each
        limits = [each.declaration.max_concurrency for each in self._all]
        self.beside: dict[str, str] = {}
        """The files of the workers that were loaded with it, with the names of their modules."""
        self.secrets_beside: frozenset[str] = frozenset()
        """The variables that those workers declare as secrets."""
        self._limit = min((limit for limit in limits if limit), default=None)
        self._lane = Lane(self._limit)

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Return the variables whose values must not get into the log."""
        return tuple(name for each in self._all for name in each.declaration.secrets)

    @property
    def given_values(self) -> dict[str, str]:
        """Return the variables that a function with a sandbox is given."""
        walls = [each.declaration.sandbox for each in self._all]
        names = [name for each in walls if each for name in each.env]
        return {name: os.environ[name] for name in names if name in os.environ}

    @cached_property
    def spec(self) -> WorkerSpec:
        """Its description, made when first asked for: reading sources takes time."""
        for each in self._all:
            if each.target is not None:
                each.sources  # noqa: B018 - read with the version: what is hashed is what runs
        described = (each.declaration.description for each in self._all)
        return WorkerSpec(
            name=self.name,
            kind="function",
            version=self.coverage.version,
            description=next((text for text in described if text), ""),
            offers={action: each.offer() for action, each in self._actions.items()},
            max_concurrency=self._limit,
        )

    @cached_property
    def coverage(self) -> Coverage:
        """Return what its version covers: see `version`."""
        declared = [each.declaration.version for each in self._all]
        boxes = [each.declaration.sandbox for each in self._all]
        walls = {number: str(each) for number, each in enumerate(boxes) if each}
        if len(declared) == 1 and declared[0] and not walls:
            return Coverage(declared=declared[0])
        parts = [part for each in self._all if not each.declaration.version for part in each.parts]
        secrets = self.secrets_beside.union(self.secret_names)
        found = covered(parts, self.beside, secrets) if parts else Coverage()
        said = {f"version of action {n}": text for n, text in enumerate(declared) if text}
        said |= {f"sandbox of action {n}": text for n, text in walls.items()}
        return Coverage(found.files, {**found.values, **said})

    @property
    def files(self) -> dict[str, str]:
        """Return the files of its functions, with the names of their modules."""
        return files_of([part for each in self._all for part in each.parts])

    @property
    def abandoned(self) -> int:
        """Threads that still run for attempts that were given up."""
        return self._lane.abandoned

    def attach(self, processes: Processes) -> None:
        """Give it the means to start child processes."""
        self.processes = processes

    async def perform(self, task: Task, context: Context) -> Report:
        """Call the function and report."""
        action = self._actions.get(task.action) or self._actions.get("")
        if action is None:
            return Report.failed("permanent", f"{self.name} offers no action {task.action!r}")
        if action.target is not None:
            if self.processes is not None:
                return await self._run_isolated(action.target, action, task, context)
            if action.declaration.isolate == "process" or action.declaration.sandbox:
                return Report.failed("unavailable", f"{self.name}: no process can be started here")
        if action.is_async:
            return await action.run_async(task, context)
        return await action.run_thread(task, context, self.threads, self._lane)

    async def _run_isolated(
        self, target: Target, action: FunctionAction, task: Task, context: Context
    ) -> Report:
        assert self.processes is not None
        wants = bool(action.signature.context)
        walls, secrets = action.declaration.sandbox, action.declaration.secrets
        return await run_isolated(
            self.processes,
            target,
            task,
            context,
            wants=wants,
            sources=action.sources,
            walls=None if walls is None else Walls(walls, (*walls.env, *secrets)),
        )

    async def probe(self, task: Task, context: Context) -> Report | None:
        """Ask the declared probe about an earlier attempt.

        Raise `LookupError` if it cannot tell.
        """
        action = self._actions.get(task.action) or self._actions.get("")
        if action is None:
            raise LookupError(f"{self.name} offers no action {task.action!r}")
        try:
            return await action.probe(task, context, self.threads)
        except BadParameters as problem:
            raise LookupError(f"the probe cannot be called: {problem}") from None

    def check(self, name: str, action: str, data: Any) -> bool:
        """Return whether a named check holds for `data`, or the result check if `name` is empty."""
        found = self._actions.get(action) or self._actions.get("")
        if found is None:
            raise LookupError(f"{self.name} offers no action {action!r}")
        declared = found.declaration
        return holds(declared.checks.get(name) if name else declared.check, name, data)

    async def close(self) -> None:
        """Let idle threads go."""
        self.threads.close()


class Watched:
    """A context for a thread: it learns of the cancellation, and speaks through the loop."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._told = context_document(context)
        self.cancelled_here = False

    @property
    def cancelled(self) -> bool:
        """True once the attempt should stop."""
        return self.cancelled_here or self._context.cancelled

    def progress(self, message: str = "", fraction: float | None = None) -> None:
        """Pass progress on in the loop's thread; progress of an abandoned attempt is dropped."""
        if not self.cancelled:
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._context.progress, message, fraction)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_told"][name]
        except KeyError:
            raise AttributeError(f"a context has no {name!r}") from None


async def _awaited(value: Any) -> Any:
    return await value


def _place(action: FunctionAction) -> str:
    """Return where a function is defined, as text."""
    code = getattr(inspect.unwrap(action.function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "a program"
