"""A process that runs or resumes a plan, to be killed by a test.

    python -m tests.engine.child DATABASE PLAN EFFECTS [RUN]

Its workers leave a line in the EFFECTS file each time they really act, from a process of their
own, so that a test can count what happened in the world whatever became of the host. With
KILL_AT=n in the environment the process kills itself with SIGKILL just before its n-th
operation; with COUNT=1 it prints how many operations there were. An operation is a place where
dying could matter: before and after an append, a commit, an effect, a worker's call.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from leadhand import Lead
from leadhand.core.policy import Policy
from leadhand.engine import perform, run
from leadhand.engine.host import EmbeddedHost
from leadhand.stores.sqlite.store import SqliteStore
from leadhand.workers.declared import declared_workers

ACT = 'echo "$2" >> "$1"; [ "$3" = 0 ] || sleep "$3"'
HAPPENED = 'grep -qx "$2" "$1"'

operations = 0
kill_at = int(os.environ.get("KILL_AT", "0"))


def operation() -> None:
    """Die here if it is time."""
    global operations  # noqa: PLW0603 - one process, one count
    operations += 1
    if operations == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


def around(owner: Any, name: str) -> None:
    """Make a function an operation before and after it."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        operation()
        result = original(*args, **kwargs)
        operation()
        return result

    setattr(owner, name, wrapped)


def workers(effects: str, nap: float) -> list[Any]:
    """Commands of each kind: idempotent, with a probe, and neither."""
    act = ["/bin/sh", "-c", ACT, "act", effects, "{step}", f"{nap:g}"]
    probe = ["/bin/sh", "-c", HAPPENED, "probe", effects, "{step}"]
    tables = {
        "again": {"command": act, "idempotent": True},
        "probed": {"command": act, "probe": probe},
        "once": {"command": act},
        "broken": {"command": ["/bin/false"], "idempotent": True},
    }
    return list(declared_workers(tables))


async def main() -> None:
    """Run or resume, and print how it stands."""
    database, plan, effects, *rest = sys.argv[1:]
    for owner, name in (
        (SqliteStore, "append"),
        (EmbeddedHost, "perform"),
        (run.Run, "_committed"),
        (run.Run, "_turn"),
        (perform, "judge"),
    ):
        around(owner, name)
    policy = Policy(max_concurrency=int(os.environ.get("WIDTH", "4")), backoff_s=0.01)
    lead = Lead(workers(effects, float(os.environ.get("NAP", "0"))), store=database, policy=policy)
    if rest:
        outcome = await lead.resume(rest[0])
    else:
        outcome = await lead.run(json.loads(Path(plan).read_text()), run_id="run")
    questions = [question.step for question in outcome.waiting_for]
    print(
        json.dumps(
            {
                "status": outcome.status,
                "reason": outcome.reason,
                "asks": questions,
                "steps": {s.id: s.status for s in outcome.steps},
                "operations": operations,
                "rollback": None
                if outcome.rollback is None
                else {
                    "status": outcome.rollback.status,
                    "asks": [question.step for question in outcome.rollback.waiting_for],
                    "steps": {s.id: s.status for s in outcome.rollback.steps},
                },
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
