"""Home's side: orders to machines by Temporal, and what they hand in.

Laws
    1. One order, one lease, one activity that is attempted once. A result counts if the activity
       completed and its commit is the one at the lease's ref (`lease.py`): Temporal refuses the
       result of an activity that it gave up, and git refuses the push.
    2. A machine that is silent for the heartbeat's time has lost its lease. Home removes the ref
       before the task goes elsewhere, so that nothing is handed in twice.
    3. When home begins, the leases and workflows of an earlier process are ended: its machines
       learn it with their next heartbeat.
    4. While the Temporal server does not answer, home waits: machines go on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import msgspec
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from leadhand.core.calendar import iso
from leadhand.errors import LeadhandError
from leadhand.fleet.background import finish_despite_cancel, stop, watch
from leadhand.fleet.machines.lease import lease_ref
from leadhand.fleet.machines.messages import (
    FLOW,
    NAMES_MAX,
    SAY,
    STOP,
    MainTests,
    Message,
    Sign,
    WorkDone,
    WorkOrder,
    rules_digest,
    session_on,
)
from leadhand.fleet.machines.remote_slot import MachineLost, RemoteSlot
from leadhand.fleet.machines.workflow import CoderAttempt
from leadhand.fleet.repository.hub import LEASES
from leadhand.temporal.cluster_status import last_seen
from leadhand.temporal.host import connect
from leadhand.temporal.processes import OPEN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from temporalio.client import Client, WorkflowHandle

    from leadhand.fleet.agents.base import Assignment, CoderEvent, Heard
    from leadhand.fleet.gate.gate import Gate
    from leadhand.fleet.machines.settings import MachinesSetup
    from leadhand.fleet.repository.hub import Hub

LOOK_S = 1.0
"""How often home looks at the signs of life of an order, and at its machines."""
SEEN_S = 90.0
"""A machine that gave no sign for this long is not counted on; one that is free asks for work at
least once a minute."""
AGAIN_S = 1.0
END_S = 30.0
"""How long a machine has to hand in when home ends."""
FLOW_S = 14 * 86_400.0
NO_MACHINE = "no machine of the fleet is there"
GATE_RUNS = 12
"""Runs of one command of the gate that may follow an agent: with main's tests, flaky ones again."""


class Machines:
    """The machines of a fleet; open it with `async with`."""

    def __init__(self, hub: Hub, setup: MachinesSetup, gate: Gate) -> None:
        self._hub, self.setup, self._gate = hub, setup, gate
        rules = gate.rules
        self._digest, self._gate_s = rules_digest(rules), rules.time_s * len(rules.commands)
        self._client: Client
        self._stack = contextlib.AsyncExitStack()
        self._home = f"{setup.queue}.home.{secrets.token_hex(4)}"
        self._at_it: dict[str, WorkflowHandle[Any, WorkDone]] = {}
        self._slots: dict[str, RemoteSlot] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._seen: dict[str, float] = {}
        self._trouble: dict[str, str] = {}
        """What the last order of a machine came to, if that was no result."""
        self.told: dict[str, str] = {}
        """What keeps home from all machines, for `fleet status`."""

    async def __aenter__(self) -> Self:
        self._client = await connect(self.setup.cluster)
        await self._end_earlier()
        flows = Worker(
            self._client,
            task_queue=self._home,
            workflows=[CoderAttempt],
            workflow_runner=OPEN,
            max_cached_workflows=2 * self.setup.agents,
        )
        try:
            await self._stack.enter_async_context(flows)
            looking = watch("the Temporal server", self._look, self.told, LOOK_S)
            task = asyncio.get_running_loop().create_task(looking)
            self._stack.push_async_callback(stop, task)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _end_earlier(self) -> None:
        for ref in await self._hub.kept(f"{LEASES}/"):
            handle = self._client.get_workflow_handle(self._workflow(ref.rpartition("/")[2]))
            with contextlib.suppress(RPCError):
                await handle.terminate("home began again")
            await self._hub.drop(ref)

    def _workflow(self, lease: str) -> str:
        return f"{self.setup.queue}/{lease}"

    # --- the machines ---

    async def _look(self) -> None:
        found = await last_seen(self._client, self.setup.queue)
        now = time.time()
        for machine, ago_s in found.items():
            self._seen[machine] = max(self._seen.get(machine, 0.0), now - ago_s)

    @property
    def present(self) -> list[str]:
        """Return the machines that were seen lately."""
        since = time.time() - SEEN_S
        return sorted(name for name, at in self._seen.items() if at >= since)

    @property
    def busy(self) -> int:
        """Return how many slots on machines are held."""
        return len(self._slots)

    def has_room(self) -> bool:
        """Return whether another order may go out to a machine that is there."""
        return self.busy < self.setup.agents and bool(self.present)

    def status(self) -> list[dict[str, Any]]:
        """Return each machine, its agents, when it was last seen and its trouble, for views."""
        names = [slot.machine for slot in self._slots.values()]
        return [
            {
                "name": name,
                "agents": names.count(name),
                "seen": iso(round(at * 1e6)),
                "trouble": self._trouble.get(name, ""),
            }
            for name, at in sorted(self._seen.items())
        ]

    # --- orders ---

    @contextlib.asynccontextmanager
    async def lease(self, base: str, *, saved_as: str, screen: bool) -> AsyncIterator[RemoteSlot]:
        """Hold a slot on some machine while the block runs.

        `screen`: the gate runs there on the change by itself.
        """
        token = secrets.token_hex(16)
        slot = RemoteSlot(self._hub, self, token, base, saved_as, screen)
        self._slots[token] = slot
        try:
            await self._hub.submit(lease_ref(token), base)
            yield slot
        finally:
            del self._slots[token]
            await finish_despite_cancel(self._end(slot))

    async def _end(self, slot: RemoteSlot) -> None:
        with contextlib.suppress(LeadhandError):  # if it stays, the next start of home removes it
            await self._hub.drop(lease_ref(slot.lease))

    async def carry_out(
        self, slot: RemoteSlot, coder: str, assignment: Assignment, heard: Heard
    ) -> WorkDone:
        """Return what a machine handed in. Raise `MachineLost` if none did."""
        order = WorkOrder(
            lease=slot.lease,
            queue=self.setup.queue,
            base=slot.base,
            coder=coder,
            assignment=assignment,
            screen=slot.screen,
            rules=self._digest,
            heartbeat_s=self.setup.cluster.ways.heartbeat_s,
            limit_s=2 * assignment.time_s + 600 + GATE_RUNS * self._gate_s,
            tests=await self._tests(slot.base) if slot.screen else None,
        )
        news = _News(slot, heard)
        handle = await self._start(order)
        self._at_it[slot.lease] = handle
        watching = asyncio.get_running_loop().create_task(self._follow(handle, news))
        try:
            done = await self._result(handle)
        except asyncio.CancelledError:
            await finish_despite_cancel(self._abandon(slot, handle))
            raise
        except WorkflowFailureError as error:
            if not slot.machine and not self.present:
                raise MachineLost(NO_MACHINE) from error
            words, who = _why(error), slot.machine or "a machine"
            self._trouble[who] = words
            raise MachineLost(f"{who}: {words}", news.cost, machine=who) from error
        finally:
            watching.cancel()
            del self._at_it[slot.lease]
        return await self._accept(slot, done, news)

    async def _tests(self, base: str) -> MainTests | None:
        """Return which tests ran on a commit of main, if that is known."""
        tree = await self._hub.tree(base)
        ran = self._gate.known.of(tree)
        if ran is None or len(ran.passed) > NAMES_MAX:
            return None
        return MainTests(tree=tree, passed=ran.passed, counted=ran.counted, runs=ran.runs)

    async def _start(self, order: WorkOrder) -> WorkflowHandle[Any, WorkDone]:
        try:
            return await self._client.start_workflow(
                FLOW,
                order,
                id=self._workflow(order.lease),
                task_queue=self._home,
                result_type=WorkDone,
                execution_timeout=timedelta(seconds=FLOW_S),
            )
        except RPCError as error:
            raise MachineLost(f"the Temporal server does not answer: {error}") from error

    async def _result(self, handle: WorkflowHandle[Any, WorkDone]) -> WorkDone:
        while True:
            try:
                return await handle.result()
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    raise MachineLost("the Temporal server does not know its order") from error
            await asyncio.sleep(AGAIN_S)

    async def _accept(self, slot: RemoteSlot, done: WorkDone, news: _News) -> WorkDone:
        """End the lease, and return the result if its commit is the one that was handed in."""
        news.read(done.sign)
        machine = done.sign.machine
        self._trouble.pop(machine, None)
        if done.seal and not await self._hub.drop(lease_ref(slot.lease), done.seal):
            raise MachineLost(f"{machine}: its work is not there", news.cost, machine=machine)
        for sha in filter(None, (done.work, done.head)):
            if not done.seal or not await self._holds(done.seal, sha):
                words = f"{machine}: {sha} was not handed in"
                raise MachineLost(words, news.cost, machine=machine)
        session = session_on(machine, done.result.session)
        return msgspec.structs.replace(done, result=replace(done.result, session=session))

    async def _holds(self, seal: str, sha: str) -> bool:
        said = await self._hub.git("merge-base", "--is-ancestor", sha, seal, codes=(0, 1, 128))
        return said.code == 0

    async def _abandon(self, slot: RemoteSlot, handle: WorkflowHandle[Any, WorkDone]) -> None:
        """End an order that home does not wait for any more; keep the work it hands in."""
        with contextlib.suppress(RPCError, TimeoutError, WorkflowFailureError, LeadhandError):
            await handle.signal(STOP)
            async with asyncio.timeout(END_S):
                done = await handle.result()
            if done.work and await self._hub.drop(lease_ref(slot.lease), done.seal):
                await self._hub.submit(slot.saved_as, done.work)
            return
        with contextlib.suppress(RPCError):
            await handle.terminate("home does not wait for it")

    async def _follow(self, handle: WorkflowHandle[Any, WorkDone], news: _News) -> None:
        """Read the signs of life of an order, again and again."""
        decode = self._client.data_converter.decode
        while True:
            await asyncio.sleep(LOOK_S)
            with contextlib.suppress(RPCError):
                told = await handle.describe()
                for pending in told.raw_description.pending_activities:
                    if payloads := pending.heartbeat_details.payloads:
                        (sign,) = await decode(payloads, [Sign])
                        news.read(sign)
                        self._seen[sign.machine] = time.time()
                if not news.machine and not self.present:
                    await handle.terminate(NO_MACHINE)

    # --- words for agents ---

    def stop(self, slot: RemoteSlot) -> bool:
        """End the agent in a slot soon; False if there is none."""
        return self._send(slot, STOP)

    def message(self, slot: RemoteSlot, text: str) -> bool:
        """Tell the agent in a slot something; False if no machine has it."""
        if not slot.machine:
            return False
        queue = f"{self.setup.queue}.{slot.machine}"
        return self._send(slot, SAY, Message(queue=queue, lease=slot.lease, text=text))

    def _send(self, slot: RemoteSlot, signal: str, *words: Message) -> bool:
        handle = self._at_it.get(slot.lease)
        if handle is None:
            return False

        async def send() -> None:
            with contextlib.suppress(RPCError):  # it has just ended
                await handle.signal(signal, *words)

        task = asyncio.get_running_loop().create_task(send())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return True


class _News:
    """What was heard of an order; each event of its agent is passed on once."""

    def __init__(self, slot: RemoteSlot, heard: Heard) -> None:
        self._slot, self._heard, self._count = slot, heard, 0
        self.cost = 0.0

    @property
    def machine(self) -> str:
        """Return the machine that has the order; empty: none yet."""
        return self._slot.machine

    def read(self, sign: Sign) -> None:
        """Take a sign of life."""
        self._slot.machine = sign.machine
        fresh = sign.heard - self._count
        if fresh <= 0:
            return
        self._count = sign.heard
        for event in sign.events[-fresh:]:
            self._pass_on(event)

    def _pass_on(self, event: CoderEvent) -> None:
        self.cost = self.cost if event.cost is None else event.cost
        self._heard(event)


def _why(error: WorkflowFailureError) -> str:
    """Return what a lost machine came to, in words."""
    cause: BaseException | None = error.cause
    if isinstance(cause, ActivityError):
        cause = cause.cause or cause
    if isinstance(cause, ApplicationError):
        return cause.message[:300]
    return "it is silent: it ended, or is cut off"
