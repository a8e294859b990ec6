"""A run that Temporal hosts, from outside: commands to it, and its state from the log."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from temporalio.client import (
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from leadhand import errors
from leadhand.codec.events import decode
from leadhand.core.commands import Command
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State
from leadhand.core.views.run import ENDED, run_status
from leadhand.errors import (
    Bug,
    Conflict,
    LeadhandError,
    PlanInvalid,
    Queued,
    Unreachable,
    UsageError,
)
from leadhand.temporal.cluster_status import missing, workflow_id
from leadhand.temporal.messages import FORK, SAY

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.ports import Entry
    from leadhand.temporal.host import TemporalHost


LOOK_S = 0.05
LOOK_MAX_S = 0.5
TOGETHER = 4
"""If more runs than this are waited for, each is looked at less often."""
ENGINE_WAIT_S = 10.0
"""How long a command may go unanswered before the serving processes are checked."""
BEGIN_WAIT_S = 60.0
"""The same for the first event of a run: an engine may be about to start."""


class TemporalRun:
    """A run on a Temporal server, as its log tells."""

    def __init__(self, host: TemporalHost, ident: str) -> None:
        self.host = host
        self.id = ident
        self.state = State()
        self.head = ""
        self.progress: dict[str, tuple[str, float | None]] = {}
        self.driven = True

    @property
    def _handle(self) -> WorkflowHandle[Any, Any]:
        ident = workflow_id(self.host.ways.prefix, self.id)
        return self.host.client.get_workflow_handle(ident)

    def refresh(self) -> State:
        """Read new entries of the log, for callers without a loop."""
        return self._take(self.host.store.read(self.id, self.state.seq))

    async def look(self) -> State:
        """Read new entries of the log without blocking the loop."""
        return self._take(await self.host.aside(self.host.store.read, self.id, self.state.seq))

    def _take(self, entries: list[Entry]) -> State:
        for entry in entries:
            if entry.seq > self.state.seq:  # a concurrent reader may have been faster
                evolve(self.state, decode(entry.version, entry.body), entry.at)
                self.head = entry.hash.hex()
        return self.state

    async def hosted(self) -> bool:
        """Return whether a workflow drives it."""
        try:
            told = await self._handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise unanswered(error) from None
        return told.status is WorkflowExecutionStatus.RUNNING

    async def live(self, _step: str) -> Doc | None:
        """Return None: live output is known only where a step runs."""
        return None

    def close(self) -> None:
        """Do nothing: the run is not driven here."""

    async def until(self, seq: int) -> None:
        """Wait until the log has `seq` events. Raise `Queued` if no engine could write them."""
        wait, look_at = LOOK_S, time.monotonic() + BEGIN_WAIT_S
        while (await self.look()).seq < seq:
            await asyncio.sleep(wait)
            wait = min(LOOK_MAX_S, wait * 1.5)
            if time.monotonic() > look_at:
                await self._look_for_engine()
                look_at = time.monotonic() + BEGIN_WAIT_S

    async def _look_for_engine(self) -> None:
        try:
            gone = await missing(self.host.client, self.host.ways.prefix, ())
        except RPCError as error:
            raise unanswered(error) from None
        if gone:
            raise Queued(f"run {self.id} begins when an engine is there; {gone[0]}")

    async def submit_and_wait(self, what: Any) -> None:
        """Submit a command, or an object that makes one."""
        if not isinstance(what, Command):
            make = getattr(what, "word", None)
            if make is None:
                raise Bug("what is said to a run elsewhere must be data")
            what = make(await self.look(), self.host.time())
        await self.speak(what)

    async def speak(self, word: Command) -> Doc:
        """Send a command; it is in the log on return."""
        try:
            told = await self.updated(word)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise await self._unheard() from None
            raise unanswered(error) from None
        await self.look()
        return told

    async def updated(self, word: Command, *, gone_is_fine: bool = False) -> Doc:
        """Send a command to the workflow, and wait for its answer while there may be one.

        `gone_is_fine`: a run that has just ended needs no command.
        """
        task = asyncio.ensure_future(
            self._handle.execute_update(SAY, word, result_type=dict[str, Any])
        )
        try:
            while not (await asyncio.wait([task], timeout=ENGINE_WAIT_S))[0]:
                if gone := await missing(self.host.client, self.host.ways.prefix, ()):
                    raise Unreachable(
                        "no process has accepted the command yet; it may still be "
                        f"carried out: {gone[0]}"
                    )
            told: Doc = task.result()
            return told
        except RPCError as error:
            if not gone_is_fine or error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return {}
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError):
                raise rebuilt(cause.type or "", cause.message) from None
            again = "Fix: check the run, and repeat the command"
            raise Conflict(f"the command was not accepted: {cause}. {again}") from None
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            raise Unreachable(
                "the connection to the Temporal server was lost before it answered "
                f"({error}); the command may still be carried out. Fix: check the run, "
                "and repeat the command if it was not"
            ) from None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _unheard(self) -> LeadhandError:
        """Return the error that explains why this run receives no commands."""
        state = await self.look()
        if state.started is None:
            return UsageError(f"there is no run {self.id}")
        if state.ended is not None:
            return Conflict(f"run {self.id} has ended ({state.ended.status})")
        return Conflict(f"no process hosts run {self.id}. Fix: leadhand resume {self.id}")

    async def wait_idle(self) -> str:
        """Wait until the run has ended or waits for a person."""
        wait = 0.0
        self.host.waiting += 1
        try:
            while True:
                before = self.state.seq
                state = await self.look()
                if await self._awaits_command(state):
                    return run_status(state)
                soon = LOOK_S * max(1.0, self.host.waiting / TOGETHER)
                wait = min(LOOK_MAX_S, soon if state.seq > before else max(soon, wait * 1.5))
                await asyncio.sleep(wait)
        finally:
            self.host.waiting -= 1

    async def _awaits_command(self, state: State) -> bool:
        status = run_status(state)
        if status in ENDED:
            return True
        if state.in_flight or state.planner.epoch:
            return False
        return status in ("waiting", "paused") or (await self.host.look_shared()).stopped

    async def withdraw(self, reason: str) -> bool:
        """Withdraw a run that no engine has started; return False if the server has none."""
        if not await self.hosted():
            return False
        await self.give_up(reason)
        if (await self.look()).started is not None:
            raise Conflict(
                f"an engine had just begun run {self.id}, and no process hosts it now. "
                f"Fix: leadhand resume {self.id}, and cancel it then"
            )
        return True

    async def give_up(self, reason: str) -> None:
        """End the workflow, if there is one, regardless of its pending work."""
        try:
            await self._handle.terminate(reason=reason)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise unanswered(error) from None


def unanswered(error: RPCError) -> Unreachable:
    """Return the error for a server that did not carry out a request."""
    return Unreachable(
        f"the Temporal server does not answer: {str(error)[:200].rstrip('.')}. Fix: "
        "repeat the command when it does"
    )


def rebuilt(name: str, message: str) -> LeadhandError:
    """Return the error that a workflow refused with."""
    if name == FORK:
        return Conflict(f"the run is parked: {message}. Fix: leadhand show RUN names the way out")
    if name == PlanInvalid.__name__:
        return PlanInvalid([message])
    kind = getattr(errors, name, None)
    fits = isinstance(kind, type) and issubclass(kind, LeadhandError)
    return kind(message) if kind is not None and fits else LeadhandError(message)
