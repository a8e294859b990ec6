"""The protocols at the edge of the core: host, run, store, worker, planner, reviewer, clock.

Everything outside implements one of these; `tests/contracts` holds one suite for each. `ends_us`
tells whether an exception raised by such code is its own failure or ends this process.
"""

from __future__ import annotations

import asyncio
from opcode import opmap
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from leadhand.core.catalog import Catalog, WorkerSpec
    from leadhand.core.decide.effects import Move
    from leadhand.core.events import Event, GuestProcess, RunStarted
    from leadhand.core.host_events import HostState
    from leadhand.core.report import Decision, Failure, PlannerView, Report
    from leadhand.core.review.approval import Approval
    from leadhand.core.state.model import Now, State


class Entry(NamedTuple):
    """One stored event: its header, its exact bytes, and the hash that chains it to the last."""

    run: str
    """The id of the run."""
    seq: int
    """The number of the entry in the log of the run, from 1."""
    at: int
    """Microseconds since the epoch, by the host's run clock."""
    version: int
    """The version of the event's form."""
    body: bytes
    """The event as JSON, exactly as it was hashed."""
    hash: bytes
    """The hash of this entry and of the one before."""


class RunHeader(NamedTuple):
    """The facts a store knows about a run without folding its log."""

    run: str
    """The id of the run."""
    created: int
    """When the run was created, in UTC microseconds."""
    updated: int
    """When its last entry was written, in UTC microseconds."""
    seq: int
    """The number of its last entry."""
    hash: bytes
    """The hash of its last entry."""
    summary: bytes
    """JSON the host wrote at the last change of status; equals the result of folding."""


ANY_LIBRARY = "*"
"""Stands for every plan of the library in a `RunQuery`."""


class RunQuery(NamedTuple):
    """Which runs of a list are wanted; what is empty or 0 excludes none."""

    status: tuple[str, ...] = ()
    """One of these statuses."""
    text: str = ""
    """A text in the id, the goal or the plan id; upper and lower case are the same."""
    plan: str = ""
    """The `plan_id` of the plan; with `*` at its end, what the `plan_id` begins with."""
    actor: str = ""
    """The person who started it."""
    label: str = ""
    """A label: `name` with any value or none, or `name=value`."""
    environment: str = ""
    """The environment that it was started in."""
    library: str = ""
    """The plan of the library it was started from: `name`, or `name@version`; or any plan
    (`ANY_LIBRARY`)."""
    since: int = 0
    """Created at this moment or later, in UTC microseconds."""
    until: int = 0
    """Created before this moment, in UTC microseconds."""
    open: bool = False
    """Not ended."""
    waiting: bool = False
    """With an open question to a person."""
    sort: str = "-created"
    """`created`, `ended`, `duration` or `cost`; with `-` in front, the largest first. An open run
    has ended at 0 and took 0."""
    cursor: str = ""
    """`next` of the page before."""
    limit: int = 50
    """How many, at most."""


class RunSlice(NamedTuple):
    """One page of a list of runs."""

    headers: list[RunHeader]
    """The runs."""
    next: str | None
    """The cursor of the next page; None on the last."""


class Artifacts(Protocol):
    """Large results, for reading."""

    def get_artifact(self, ref: str) -> bytes:
        """Return the bytes of artifact `ref`.

        Raise `StoreCorrupt` if they are missing or altered.
        """


class Store(Protocol):
    """An append-only log of runs, and artifacts by hash.

    `append` is all or nothing and resolves only when the entries are durable. It raises `Conflict`
    if `expected` is not the run's last seq, `Fenced` if another owner claimed the store,
    `StoreFull` if there is no space (nothing was written), `StoreBroken` if the outcome of a write
    is not known (the caller must stop).

    - `run`: the id of the run.
    - `ref`: the name of the artifact, `sha256:…`.
    """

    @property
    def database_id(self) -> str:
        """The unique id of this database."""

    def room(self) -> bool:
        """Return whether new work may start; reports are always accepted."""

    def claim(self) -> int:
        """Become the owner. Return the new epoch, which every later append is checked against."""

    def append(
        self,
        run: str,
        expected: int,
        entries: Sequence[Entry],
        summary: bytes | None = None,
        *,
        alone: bool = False,
    ) -> asyncio.Future[None]:
        """Append entries to a run's log; the future resolves once they are durable.

        - `run`: the run; a new name creates it.
        - `expected`: the seq of the run's last entry, 0 for a new run.
        - `entries`: consecutive entries that begin with seq `expected` + 1.
        - `summary`: the new `RunHeader.summary`; None keeps the old one.
        - `alone`: whether the caller has nothing else to do meanwhile.
        """

    def read(self, run: str, after: int = 0) -> list[Entry]:
        """Return the entries of `run` with a seq above `after`, in order; [] if it is unknown."""

    def runs(self) -> list[RunHeader]:
        """Return the headers of all runs, oldest first."""

    def header(self, run: str) -> RunHeader | None:
        """Return the header of `run`, or None if there is no such run."""

    def find_runs(self, query: RunQuery) -> RunSlice:
        """Return the headers of one page of the runs that `query` is for, in its order.

        Raise `ValueError` for a cursor or an order that does not exist.
        """

    def last_change(self) -> int:
        """Return when the last entry of any run was written, in UTC microseconds; 0 if none."""

    def follow(self, after: int = 0) -> AsyncIterator[tuple[int, Entry]]:
        """Yield each entry of all runs with a position above `after`, in commit order, for ever."""

    def put_artifact(self, data: bytes) -> str:
        """Store `data` durably; return its name, `sha256:…`."""

    def get_artifact(self, ref: str) -> bytes:
        """Return the bytes of artifact `ref`.

        Raise `StoreCorrupt` if they are missing or altered.
        """

    async def close(self) -> None:
        """Finish all queued appends and close the store."""


class Task(NamedTuple):
    """One attempt, as a worker gets it.

    `action` and `parameters` come from the step, with references resolved; `epoch` identifies the
    attempt, and `deadline` is in microseconds on the run clock.
    """

    run: str
    """The id of the run."""
    step: str
    """The id of the step."""
    attempt: int
    """The number of the attempt, from 1."""
    epoch: int
    action: str
    parameters: dict[str, Any]
    deadline: int


class Context(Protocol):
    """The context of an attempt: what a worker may know and do beyond its parameters."""

    @property
    def goal(self) -> Any:
        """The goal of the run, as a `Goal`."""

    @property
    def run(self) -> str:
        """The id of the run."""

    @property
    def step(self) -> str:
        """The id of the step."""

    @property
    def attempt(self) -> int:
        """The number of this attempt, counted from 1."""

    @property
    def key(self) -> str:
        """The same for every attempt of this step: use it as an idempotency key."""

    @property
    def tier(self) -> str:
        """The tier of models the plan wants for this step; empty if it does not say."""

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures of earlier attempts of this step."""

    @property
    def results(self) -> dict[str, Any]:
        """Results of the steps named in the step's `context`, by step."""

    @property
    def summaries(self) -> dict[str, dict[str, Any]]:
        """Summaries of the steps whose summaries the step's `context` names, by step.

        For each: worker, action, status, data (a text), recommendations, error.
        """

    @property
    def cancelled(self) -> bool:
        """True once the attempt should stop."""

    @property
    def answers(self) -> tuple[dict[str, Any], ...]:
        """Answers of people to questions about this step."""

    def spawned(self, process: Spawned) -> None:
        """Record the `process` that carries out the attempt, for workers that start programs."""

    def progress(self, message: str = "", fraction: float | None = None) -> None:
        """Report progress; shown live, never logged.

        `message` is a short text, `fraction` the completed share from 0 to 1.
        """


class Spawned(NamedTuple):
    """The operating-system process of an attempt.

    `start_time` and `boot_id` distinguish it from another process with the same pid.
    """

    pid: int
    """The id of the process."""
    start_time: int
    boot_id: str


class Worker(Protocol):
    """A worker: carries out one attempt with only the context it is given. Never plans.

    - `task`: the attempt.
    - `context`: the goal and the circumstances of the attempt.
    - `name`: the name of the check; "" for the check of every result.
    - `action`: the action whose check it is.
    - `data`: the data of the report.
    """

    @property
    def spec(self) -> WorkerSpec:
        """The description of the worker: name, kind, version and offers."""

    async def perform(self, task: Task, context: Context) -> Report:
        """Carry out the attempt `task` and return its report.

        `context` gives the goal and the circumstances of the attempt. Must not raise for failures
        of the task: these are reports. May be cancelled.
        """

    async def probe(self, task: Task, context: Context) -> Report | None:
        """Return a report if the earlier attempt `task` took effect, None if it did not.

        `context` is that of the attempt. Raise `LookupError` if the worker cannot tell.
        """

    def check(self, name: str, action: str, data: Any) -> bool:
        """Run the check `name` of `action` on the result `data`; "" is the action's result check.

        Only True counts as met; raising counts as unmet.
        """

    async def close(self) -> None:
        """Release all resources of the worker."""


class Workers(Protocol):
    """The workers of a run, by name."""

    def get(self, name: str) -> Worker | None:
        """Return the worker called `name`, or None."""

    def catalog(self) -> Catalog:
        """Return the descriptions of all workers."""


class Machine(Protocol):
    """The machine a host runs on, as far as workers need it."""

    async def clear(self) -> None:
        """End all processes that an earlier host of this database left running, and wait for it."""

    async def end(self, process: GuestProcess) -> None:
        """End all that `process`, which drove a run, left running, and wait for it."""

    def attach(self, workers: Workers) -> None:
        """Enable `workers` to start programs."""

    def held(self) -> int:
        """Return the number of threads that were told to stop and still run: they use capacity."""

    async def close(self) -> None:
        """End everything that was started."""


class Planner(Protocol):
    """A planner: reads the state and returns a decision. Never executes.

    `name` identifies it in the log; `replans` and `splits` say whether it can plan around a failure
    and split a step; `consult` says when it is asked: "every_report", or "on_surprise" (failures
    and surprises only).
    """

    name: str
    """The name of the planner in the log."""
    replans: bool
    """Whether it can plan around a failure."""
    splits: bool
    """Whether it can split a step into smaller ones."""
    consult: str
    """When it is asked: "every_report" or "on_surprise"."""

    async def decide(self, view: PlannerView) -> Decision:
        """Return the next decision for the run shown in `view`.

        Findings against its last proposal are in `view.findings`. Raising counts as a failed round.
        """


class Reviewer(Protocol):
    """An automatic reviewer: examines a revision before it is decided. May be a function."""

    def __call__(self, revision: dict[str, Any]) -> Any:
        """Return the findings: nothing, a sentence, or several; or an awaitable of these.

        `revision` is a copy: run, goal, number, author, because, params, steps (with every
        reference replaced whose value is known), templates (the steps as written), unresolved (by
        step, the places that still hold a reference), cancel, drop, risk, envelope, untrusted.
        """


class RunHandle(Protocol):
    """One run on a host: its state, and the way to change it.

    Implemented by the run in this process (`engine/run.py`), the run of another process as its
    host knows it, and the run on Temporal (`temporal/run.py`). What carrying out an attempt needs
    of a run is another port: `AttemptRun` in `engine/perform.py`.
    """

    id: str
    """The id of the run."""
    driven: bool
    """Whether a host drives it; False for a run that is only read and spoken to."""

    @property
    def host(self) -> Host:
        """The host it was loaded on."""

    @property
    def state(self) -> State:
        """The fold of its log, as far as the host has read it."""

    @property
    def progress(self) -> Mapping[str, tuple[str, float | None]]:
        """By step under way, the last message of its worker and the fraction that is done."""

    async def submit_and_wait(self, what: Callable[[State, Now], Move]) -> None:
        """Submit `what`, which makes a move of the state, and wait until it is durable.

        Raises why the run refuses it. A run that is hosted elsewhere takes only data: a `Command`,
        or an object whose `word` makes one.
        """

    async def wait_idle(self) -> str:
        """Wait until the run ended, or goes on only when a person says so; return its status."""

    async def live(self, step: str) -> dict[str, Any] | None:
        """Return attempt, message, fraction and output of `step`, which is under way, if known."""

    def close(self) -> None:
        """Let go of its timers; it is no longer driven here."""


class Host(Protocol):
    """Starts runs, finds them and takes commands for them, wherever they are driven.

    Implemented by the host in this process (`engine/host.py`, and the simulator's on top of it)
    and by the host on Temporal (`temporal/host.py`). A host decides nothing about a run: that is
    the core's part. Every method raises UsageError for a run that is not there, Conflict for a
    command that the state of the run does not allow, and Unreachable when a service elsewhere does
    not answer.

    - `ident`: the id of the run.
    - `workers`: the workers of the run.
    - `planner`: the planner of the run.
    """

    store: Store
    """The log. Where runs are driven elsewhere it may be open for reading only."""
    owner: int
    """The epoch of this owner of the store; 0 where runs are driven elsewhere."""
    draining: bool
    """Whether the host starts nothing new because it is ending."""
    in_flight: int
    """Attempts under way in this process."""
    failed: BaseException | None
    """Why the host cannot go on, if it cannot."""
    claim_approval: Callable[[Approval, str], None] | None
    """Records outside of the database that a run uses an approval; raises if another has."""
    launched: Callable[[str], None]
    """Called with the id of a run that a service elsewhere has taken, before the run begins."""

    @property
    def runs(self) -> Mapping[str, RunHandle]:
        """The runs that are loaded, by id."""

    @property
    def asleep(self) -> Mapping[str, object]:
        """Open runs that were unloaded while nothing happens in them, by id."""

    @property
    def shared(self) -> HostState:
        """What belongs to no single run, such as stop-all."""

    async def look_shared(self) -> HostState:
        """Return `shared`, without blocking the loop where the log is elsewhere."""

    def time(self) -> Now:
        """Return both clocks."""

    async def start(self, started: RunStarted, workers: Workers, planner: Planner) -> RunHandle:
        """Start a run whose first event is `started`, with its `workers` and its `planner`.

        Returns once the start is durable.
        """

    def load(self, ident: str, workers: Workers) -> RunHandle:
        """Return run `ident` from its log, with `workers`, without driving it."""

    async def find(self, ident: str, workers: Workers) -> RunHandle:
        """Return run `ident` as `load` does with `workers`, without blocking the loop."""

    async def resume(self, ident: str, workers: Workers, planner: Planner | None) -> RunHandle:
        """Resume run `ident` from the end of its log, with its `workers` and its `planner`."""

    async def send_command(
        self, ident: str, verb: str, actor: str, details: dict[str, Any], workers: Workers
    ) -> dict[str, Any]:
        """Send the command `verb` of person `actor`, with `details`; return its answer.

        `ident` is the run, empty for a command to all runs. `workers` are those of a run that has
        to be loaded. The command is durable on return.
        """

    async def tell_host(self, event: Event) -> None:
        """Record `event`, which belongs to no single run."""

    async def engines(self) -> list[str]:
        """Return who drives runs here; what is begun waits while there is no one."""

    def forget(self, run: RunHandle) -> None:
        """Unload `run` if it has ended."""

    def discard(self, ident: str) -> None:
        """Drop what is known of run `ident`, which is not driven here; it is read again."""

    def fail(self, error: BaseException) -> None:
        """Stop because of `error`: the host cannot go on."""

    async def drain(self) -> None:
        """Start nothing new, and wait for what is in flight in this process."""

    async def close(self) -> None:
        """End what still runs in this process, and let go of the store."""


class Clock(Protocol):
    """Two kinds of time: elapsed since a start, and the calendar."""

    def now(self) -> int:
        """Return microseconds on the run clock.

        The run clock is the wall clock at start plus elapsed monotonic time.
        """

    def wall(self) -> int:
        """Return microseconds of the calendar, by the operating system's current time."""

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of elapsed time."""


def is_external_cancellation(error: BaseException) -> bool:
    """Return whether `error`, raised in user code, ends this process or task, not the code.

    Cancellation from outside, closing and Ctrl-C must be passed on. The same exceptions raised by
    the code itself are failures like any other.
    """
    if isinstance(error, KeyboardInterrupt):
        return not _raised_by_statement(error)
    cancelled = isinstance(error, asyncio.CancelledError)
    if not cancelled and not isinstance(error, GeneratorExit):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs: leftovers are being closed
        return True
    return task is None or (cancelled and task.cancelling() > 0)


def _raised_by_statement(error: BaseException) -> bool:
    """Return whether a `raise` raised it: a signal interrupts between other instructions."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code
    # asyncio answers a second Ctrl-C with a `raise` of its own.
    of_asyncio = trace.tb_frame.f_globals.get("__name__") == "asyncio.runners"
    return not of_asyncio and code.co_code[trace.tb_lasti] == opmap["RAISE_VARARGS"]
