"""A slot on another machine, as the coder at home sees it.

The coder takes the same steps as with a slot of its own (`fleet/worker.py`): the agent works, its
work is saved, taken and judged. Here all of them happen on the machine, in one order, and the
slot returns what was handed in. Only trees are taken from there: which files differ is asked of the
hub, and the commit is made at home.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from leadhand.errors import LeadhandError
from leadhand.fleet.workspace.capture import CapturedWork
from leadhand.fleet.workspace.slots import SlotGone

if TYPE_CHECKING:
    from leadhand.fleet.agents.base import Assignment, Coder, CoderResult, Ending, Heard, Workspace
    from leadhand.fleet.gate.gate import GateVerdict
    from leadhand.fleet.machines.messages import WorkDone
    from leadhand.fleet.repository.hub import Hub
    from leadhand.workers.sandbox.sandbox import Sandbox


class MachineLost(LeadhandError):
    """A machine did not carry out its order: it died, was cut off, or could not do it.

    Nothing of it is accepted. The task goes elsewhere, and no try is used up.
    """

    def __init__(self, words: str, cost: float = 0.0, *, machine: str = "") -> None:
        """Create it; `machine` is the one that had the order, empty if none did."""
        super().__init__(words)
        self.cost, self.machine = cost, machine


class Dispatcher(Protocol):
    """Gives orders to machines (`dispatch.py`)."""

    async def carry_out(
        self, slot: RemoteSlot, coder: str, assignment: Assignment, heard: Heard
    ) -> WorkDone:
        """Return what a machine handed in. Raise `MachineLost` if none did."""

    def stop(self, slot: RemoteSlot) -> bool:
        """End the agent in a slot soon; False if there is none."""

    def message(self, slot: RemoteSlot, text: str) -> bool:
        """Tell the agent in a slot something; False if no machine has it."""


@dataclass(slots=True)
class RemoteSlot:
    """A folder on another machine, at a commit, for one order."""

    hub: Hub
    dispatcher: Dispatcher
    lease: str
    base: str
    saved_as: str
    screen: bool
    """Whether the gate runs there on the change by itself."""
    path: Path = Path()
    """No folder of this machine."""
    machine: str = ""
    """The machine that has the order; empty: none yet."""
    saved: bool = False
    told: tuple[str, tuple[str, ...]] = ("", ())
    done: WorkDone | None = None
    verdicts: dict[str, GateVerdict] = field(default_factory=dict)
    """The gate's verdict on the machine, by tree."""

    def agent(self, coder: Coder) -> RemoteCoder:
        """Return the coder that works in this slot."""
        return RemoteCoder(self, coder)

    async def save(self, ref: str) -> str | None:
        """Keep the work in progress that was handed in, under a ref; None if there is none."""
        if self.done is None or not self.done.work:
            return None
        await self.hub.submit(ref, self.done.work)
        return self.done.work

    async def take(self, message: str = "Work of an agent", author: str = "") -> CapturedWork:
        """Return the agent's work as one commit on the base. Raise `SlotGone`."""
        done, hub = self.done, self.hub
        if done is None or done.gone:
            raise SlotGone(done.gone if done is not None else "its machine handed nothing in")
        tree = await hub.tree(done.head or self.base)
        changed = await hub.changed(await hub.tree(self.base), tree)
        head = ""
        if changed:
            who = author or "Leadhand agent <agent@localhost>"
            head = await hub.commit(tree, (self.base,), message, author=who)
            if done.verdict is not None:
                self.verdicts[tree] = done.verdict
        return CapturedWork(head, tree, changed, done.left_out, done.ignored, done.elsewhere)


class RemoteCoder:
    """An agent in a slot on another machine."""

    def __init__(self, slot: RemoteSlot, coder: Coder) -> None:
        self._slot = slot
        self.name = coder.name
        self.login = str(getattr(coder, "login", "") or coder.name)

    @property
    def machine(self) -> str:
        """Return the machine that has it; empty: none yet."""
        return self._slot.machine

    async def work(
        self,
        assignment: Assignment,
        slot: Workspace,
        sandbox: Sandbox,
        heard: Heard,
        *,
        ending: Ending | None = None,
    ) -> CoderResult:
        """Have a machine do all of it; it has its own sandbox, and saves the work itself.

        Raise `MachineLost`.
        """
        done = await self._slot.dispatcher.carry_out(self._slot, self.name, assignment, heard)
        self._slot.done = done
        return done.result

    def stop(self, assignment: Assignment) -> bool:
        """End the work soon; false if there is none."""
        return self._slot.dispatcher.stop(self._slot)

    def message(self, assignment: Assignment, text: str) -> bool:
        """Tell the agent something while it works; false if no machine has it yet."""
        return self._slot.dispatcher.message(self._slot, text)

    def forget(self, assignment: Assignment) -> None:
        """Do nothing: a machine bounds the homes that it keeps."""
