"""Preparing a slot: the project's set-up commands, run before an agent gets it.

They are the gate's own, run in the same way: in the sandbox, with the slot and a home that is
thrown away, and with the shared cache of dependencies to read. What they leave among the files is
not the agent's work.
"""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from leadhand.errors import LeadhandError
from leadhand.fleet.workspace.clean_up import remove

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leadhand.fleet.gate.gate import Gate
    from leadhand.fleet.workspace.slots import Slot


SAID_CHARS = 2_000


class SetupFailed(LeadhandError):
    """A slot could not be prepared, which says nothing about the task."""


def prepared(gate: Gate, folder: Path) -> Callable[[Slot], Awaitable[None]]:
    """Runs the set-up commands of a gate in a slot."""

    async def prepare(slot: Slot) -> None:
        home = Path(tempfile.mkdtemp(prefix="setup-", dir=folder))
        try:
            for argv in gate.rules.setup:
                network = gate.rules.setup_network
                code, said = await gate.run(argv, slot, home, network=network)
                if code:
                    words = f"{shlex.join(argv)} ended with {code}"
                    raise SetupFailed(f"a slot cannot be prepared: {words}\n{said[-SAID_CHARS:]}")
        finally:
            await asyncio.shield(asyncio.to_thread(remove, home))

    return prepare
