"""An agent that drives a run, or the host of one, as a process to be killed by a test.

    python -m tests.engine.caller_child agent DATABASE RUN EFFECTS ACKS
    python -m tests.engine.caller_child host DATABASE RUN

The agent asks for steps and carries them out: it leaves a line in EFFECTS each time it acts, and a
line in ACKS for each report whose receipt it has got. Without a live host it drives the run itself.
With KILL_AT=n in the environment the process kills itself just before its n-th operation.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from leadhand import Lead
from leadhand.engine import perform, run
from leadhand.errors import Conflict
from leadhand.stores.sqlite.store import SqliteStore
from tests.engine import child
from tests.engine.child import around, operation

AGENT = "bot"


def _append(path: str, line: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


async def agent(database: str, ident: str, effects: str, acks: str) -> str:
    """Carry out the steps of a run until it ends or waits for a person; return how it stands."""
    lead = Lead([], store=database)
    while True:
        operation()
        told = await lead.next_step(ident, caller=AGENT, lease="10m", wait_s=20)
        operation()
        step = told.step
        if step is None:
            return told.status
        # What it did is on its disk: an agent that begins again looks before it acts.
        done = f"{step.id} {step.attempt}"
        if done not in Path(effects).read_text().splitlines():
            _append(effects, done)
        operation()
        await _report(lead, ident, step.id, step.attempt)
        operation()
        _append(acks, done)


async def _report(lead: Lead, ident: str, step: str, attempt: int) -> None:
    try:
        await lead.report_step(
            ident, step, attempt=attempt, caller=AGENT, data={"step": step, "attempt": attempt}
        )
    except Conflict as error:
        lost = "ended before it answered" in str(error)
        raise SystemExit("no answer" if lost else f"refused: {error}") from error


async def host(database: str, ident: str) -> None:
    """Drive the run until it ends or this process is killed."""
    lead = Lead([], store=database)
    async with lead.hosting() as opened:
        driven = await lead.resume_on(opened, ident)
        sys.stdout.write("up\n")
        sys.stdout.flush()
        while driven.state.ended is None:
            await asyncio.sleep(0.02)
            operation()


def main() -> None:
    """Do what the words say, and print how it stands."""
    for owner, name in (
        (SqliteStore, "append"),
        (run.Run, "_committed"),
        (run.Run, "_turn"),
        (perform, "judge"),
    ):
        around(owner, name)
    kind, *words = sys.argv[1:]
    if kind == "host":
        asyncio.run(host(*words))
        return
    status = asyncio.run(agent(*words))
    sys.stdout.write(json.dumps({"status": status, "operations": child.operations}) + "\n")


if __name__ == "__main__":
    main()
