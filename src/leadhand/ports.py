"""The protocols at the edge of the core: what a store, a worker, a planner, a clock must do.

Everything outside implements one of these; `tests/contracts` holds one suite for each. Whatever
comes out of them by way of an exception, `ends_us` tells whether it is theirs or ours.
"""

from __future__ import annotations

import asyncio
from opcode import opmap
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Sequence

    from leadhand.core.catalog import Catalog, WorkerSpec
    from leadhand.core.events import GuestProcess
    from leadhand.core.report import Decision, Failure, PlannerView, Report


class Entry(NamedTuple):
    """One stored event: its header, its exact bytes, and the hash that chains it to the last."""

    run: str
    seq: int
    at: int
    """Microseconds since the epoch, by the host's run clock."""
    version: int
    body: bytes
    hash: bytes


class RunHeader(NamedTuple):
    """What a store knows of a run without folding its log."""

    run: str
    created: int
    updated: int
    seq: int
    hash: bytes
    summary: bytes
    """JSON the host wrote at the last change of status; equals what folding would say."""


class Artifacts(Protocol):
    """Where large results are kept, for whoever only reads them."""

    def get_artifact(self, ref: str) -> bytes:
        """The bytes behind a name."""


class Store(Protocol):
    """An append-only log of runs, and artifacts by hash.

    `append` is all or nothing and resolves only when the entries are durable. It raises
    Conflict when `expected` is not the run's last seq, Fenced when another owner claimed
    the store, StoreFull when there is no space (nothing was written), StoreBroken when the
    outcome of a write is not known (the caller must stop).
    """

    @property
    def database_id(self) -> str:
        """A name of this database that no other has."""

    def room(self) -> bool:
        """Whether new work may be granted; reports are always taken."""

    def claim(self) -> int:
        """Become the owner: a new epoch that every later append is checked against."""

    def append(
        self,
        run: str,
        expected: int,
        entries: Sequence[Entry],
        summary: bytes | None = None,
        *,
        alone: bool = False,
    ) -> asyncio.Future[None]:
        """Add entries to a run's log. `alone`: the caller has nothing else to do meanwhile."""

    def read(self, run: str, after: int = 0) -> list[Entry]:
        """A run's entries with a seq above `after`, in order."""

    def runs(self) -> list[RunHeader]:
        """All runs, oldest first."""

    def header(self, run: str) -> RunHeader | None:
        """One run."""

    def follow(self, after: int = 0) -> AsyncIterator[tuple[int, Entry]]:
        """Every entry of every run with a position above `after`, in commit order, for ever."""

    def put_artifact(self, data: bytes) -> str:
        """Keep bytes durably; gives back their name, `sha256:…`."""

    def get_artifact(self, ref: str) -> bytes:
        """The bytes behind a name; StoreCorrupt when they do not match it."""

    async def close(self) -> None:
        """Finish what is queued and let go."""


class Task(NamedTuple):
    """One attempt, as a worker gets it."""

    run: str
    step: str
    attempt: int
    epoch: int
    action: str
    parameters: dict[str, Any]
    deadline: int


class Context(Protocol):
    """What a worker may know and do beyond its parameters."""

    @property
    def goal(self) -> Any: ...
    @property
    def run(self) -> str: ...
    @property
    def step(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def key(self) -> str:
        """The same for every attempt of this step: use it as an idempotency key."""

    @property
    def tier(self) -> str:
        """Which tier of models the plan wants for this step; empty when it does not say."""

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Why earlier attempts of this step failed."""

    @property
    def results(self) -> dict[str, Any]:
        """Results of the steps named in the step's `context`."""

    @property
    def summaries(self) -> dict[str, dict[str, Any]]:
        """What the steps did, in brief, whose summaries the step's `context` names: worker, action,
        status, data (a text), recommendations, error."""

    @property
    def cancelled(self) -> bool:
        """True once the attempt should stop."""

    @property
    def answers(self) -> tuple[dict[str, Any], ...]:
        """What people answered when they were asked about this step."""

    def spawned(self, process: Spawned) -> None:
        """For workers that start programs: which process carries out the attempt."""

    def progress(self, message: str = "", fraction: float | None = None) -> None:
        """Say how far it is; shown live, never kept in the log."""


class Spawned(NamedTuple):
    """Which operating-system process carries out an attempt."""

    pid: int
    start_time: int
    boot_id: str


class Worker(Protocol):
    """Carries out one attempt with only the context it was given. Never plans."""

    @property
    def spec(self) -> WorkerSpec: ...

    async def perform(self, task: Task, context: Context) -> Report:
        """Do it and report. Must not raise for failures of the task; may be cancelled."""

    async def probe(self, task: Task, context: Context) -> Report | None:
        """Whether an earlier attempt happened: a report (it did), or None (it did not).

        Raises LookupError when it cannot tell.
        """

    def check(self, name: str, action: str, data: Any) -> bool:
        """Run a named check, or the action's result check when the name is empty."""

    async def close(self) -> None: ...


class Workers(Protocol):
    """The workers of a run, by name."""

    def get(self, name: str) -> Worker | None: ...

    def catalog(self) -> Catalog: ...


class Machine(Protocol):
    """The machine a host runs on, as far as workers need it."""

    async def clear(self) -> None:
        """End whatever an earlier host of this database left running, and see it gone."""

    async def end(self, process: GuestProcess) -> None:
        """End whatever a process that drove a run left running, and see it gone."""

    def attach(self, workers: Workers) -> None:
        """Give workers the means to start programs."""

    def held(self) -> int:
        """Threads that were told to stop and still run: they hold their places."""

    async def close(self) -> None:
        """End everything that was started."""


class Planner(Protocol):
    """Reads the state and answers with a decision. Never executes."""

    name: str
    replans: bool
    splits: bool
    consult: str

    async def decide(self, view: PlannerView) -> Decision: ...


class Reviewer(Protocol):
    """Looks at a revision before anybody decides about it. A function will do."""

    def __call__(self, revision: dict[str, Any]) -> Any:
        """Return what it finds: nothing, a sentence, several; or an awaitable of that.

        `revision` is a copy: run, goal, number, author, because, params, steps (with every
        reference replaced whose value is known), templates (the steps as written), unresolved
        (by step, the places that still hold a reference), cancel, drop, risk, envelope, untrusted.
        """


class Clock(Protocol):
    """Two kinds of time: elapsed since a start, and the calendar."""

    def now(self) -> int:
        """Microseconds on the run clock: the wall clock at start plus elapsed monotonic time."""

    def wall(self) -> int:
        """Microseconds of the calendar, as the operating system says now."""

    async def sleep(self, seconds: float) -> None: ...


def ends_us(error: BaseException) -> bool:
    """Whether an exception that came out of user code is somebody ending us, and must go on.

    Cancelled from outside, closed, Ctrl-C: those are not the code's own. The same kinds raised
    by the code of its own accord are failures like any other.
    """
    if isinstance(error, KeyboardInterrupt):
        return not _raised_by_statement(error)
    cancelled = isinstance(error, asyncio.CancelledError)
    if not cancelled and not isinstance(error, GeneratorExit):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs: what is left over is being closed
        return True
    return task is None or (cancelled and task.cancelling() > 0)


def _raised_by_statement(error: BaseException) -> bool:
    """Whether a `raise` raised it: a signal interrupts between other instructions."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code
    # asyncio answers a second Ctrl-C with a `raise` of its own.
    of_asyncio = trace.tb_frame.f_globals.get("__name__") == "asyncio.runners"
    return not of_asyncio and code.co_code[trace.tb_lasti] == opmap["RAISE_VARARGS"]
