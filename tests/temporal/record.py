"""Records histories of runs as Temporal keeps them: `python tests/temporal/record.py`.

A history holds what a workflow was told and what it wanted, event by event. One that exists is
left alone, and is replayed for ever: a change that breaks one breaks runs that are under way when
it is installed. `--again NAME` records one anew, and is for histories that no release has seen.
What a run takes several histories for is kept as NAME-1, NAME-2, ….
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent / "histories"
sys.path[:0] = [str(ROOT)]

from leadhand import Context, Goal, Lead, Policy, Transient, worker  # noqa: E402 - found by the line above
from leadhand.core.report import Finish, Propose  # noqa: E402
from leadhand.temporal.cluster_status import workflow_id  # noqa: E402
from tests.support.temporal import Server, on_temporal  # noqa: E402

STORIES = {}
NAMELESS = ("identity", "requestId", "workerInstanceKey", "binaryChecksum")
"""What a history says of the processes that took part."""


def story(**more):
    def keep(function):
        STORIES[function.__name__] = (function, more)
        return function

    return keep


@worker(effects=["files"], idempotent=True)
def note(text: str) -> str:
    return text


@worker(idempotent=True)
async def endless() -> None:
    await asyncio.sleep(600)


tries: list[int] = []


@worker(idempotent=True)
def flaky() -> str:
    tries.append(1)
    if len(tries) < 3:
        raise Transient("connection reset")
    return "fetched"


def step(ident: str, *after: str, **more) -> dict:
    doc = {"id": ident, "worker": "note", "parameters": {"text": ident}, **more}
    return {**doc, "depends_on": list(after)} if after else doc


@story(workers=[note])
async def fan_out(lead: Lead):
    """Five at once, of which three wait for others."""
    steps = [step("a"), step("b"), step("c", "a"), step("d", "a", "b"), step("e", "d")]
    assert (await lead.run({"steps": steps}, run_id="fan_out")).ok


@story(workers=[note], policy=Policy(review=True))
async def review(lead: Lead):
    """It waits for a person, is amended, allowed, and goes on."""
    plan = {"steps": [step("a"), step("b", "a")]}
    assert (await lead.run(plan, run_id="review")).status == "waiting"
    await lead.amend("review", {"steps.b.parameters.text": "three"})
    await lead.answer("review", "review-2", "approve")
    assert (await lead.resume("review")).ok


@story(workers=[flaky], policy=Policy(backoff_s=0.3))
async def retry(lead: Lead):
    """Two failures, each with its pause."""
    tries.clear()
    assert (await lead.run({"steps": [{"id": "get", "worker": "flaky"}]}, run_id="retry")).ok


@story(workers=[note, endless])
async def cancel(lead: Lead):
    """Stopped while a step runs."""
    steps = [{"id": "a", "worker": "endless"}, step("b", "a")]
    running = asyncio.create_task(lead.run({"steps": steps}, run_id="cancel"))
    await asyncio.sleep(2)
    await lead.cancel("cancel", "wrong version")
    assert (await running).status == "cancelled"


@story(workers=[note])
async def schedule(lead: Lead):
    """A step that may not begin before its hour."""
    when = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    assert (await lead.run({"steps": [step("later", not_before=when)]}, run_id="schedule")).ok


@story(workers=[note], policy=Policy(max_concurrency=3), ways={"history_max": 40})
async def continued(lead: Lead):
    """Twenty steps over several histories."""
    steps = [step(f"s{n}") for n in range(20)]
    assert (await lead.run({"steps": steps}, run_id="continued")).ok


def plan_twice(state):
    if not state.steps:
        return Propose([step("a"), step("b", "a")], final=False)
    return Finish(result="both")


def looks(_revision) -> list[str]:
    return []


@story(workers=[note], planner=plan_twice, reviewers={"looks": looks})
async def planned(lead: Lead):
    """A planner and a reviewer, each asked by an activity that sees the whole run."""
    goal = Goal(text="note both", acceptance=["steps.a.data == 'a'"])
    assert (await lead.run(goal, run_id="planned", approve=True)).ok


async def deaf(attempt: int) -> int:
    """The first attempt does not stop when it is told to; it ends some seconds later."""
    if attempt > 1:
        return attempt
    ends = asyncio.get_running_loop().time() + 8
    while (left := ends - asyncio.get_running_loop().time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(left)
    return attempt


@worker(idempotent=True)
async def harmless(context: Context) -> int:
    return await deaf(context.attempt)


@worker(effects=["files"])
async def payment(context: Context) -> int:
    return await deaf(context.attempt)


@story(workers=[harmless], policy=Policy(backoff_s=0.1))
async def beside(lead: Lead):
    """What may be done twice is begun again though the machine that has it does not answer."""
    steps = [{"id": "a", "worker": "harmless", "timeout": "3s"}]
    assert (await lead.run({"steps": steps}, run_id="beside")).result == 2


@story(workers=[payment], policy=Policy(park_s=0.5))
async def barred(lead: Lead):
    """What may not waits until the machine that has it has answered, parked meanwhile."""
    steps = [{"id": "a", "worker": "payment", "timeout": "3s"}]
    assert (await lead.run({"steps": steps}, run_id="barred")).status == "waiting"
    await lead.answer("barred", "q1", "retry")
    assert (await lead.resume("barred")).result > 2


@story(workers=[payment], policy=Policy(park_s=0.5))
async def unbegun(lead: Lead):
    """Cancelled while an attempt waits for the one before it."""
    steps = [{"id": "a", "worker": "payment", "timeout": "3s"}]
    assert (await lead.run({"steps": steps}, run_id="unbegun")).status == "waiting"
    await lead.answer("unbegun", "q1", "retry")
    await lead.cancel("unbegun", "not like this")
    assert (await lead.resume("unbegun")).status == "cancelled"


async def recorded(server: Server, name: str) -> list[str]:
    """Play a story; its histories, the first first."""
    tale, more = STORIES[name]
    with tempfile.TemporaryDirectory() as folder:
        ways = {"prefix": "golden", **more.get("ways", {})}
        options = {**more, "ways": ways, "actor": "ann"}
        workers = options.pop("workers")
        async with on_temporal(server, Path(folder) / "l.db", workers, **options) as here:
            await tale(here.lead)
            ident, found = workflow_id(here.cluster.ways.prefix, name), []
            handle = here.client.get_workflow_handle(ident)
            while handle is not None:
                history = await handle.fetch_history()
                found.insert(0, tidy(history.to_json()))
                began = history.events[0].workflow_execution_started_event_attributes
                before = began.continued_execution_run_id
                handle = here.client.get_workflow_handle(ident, run_id=before) if before else None
            return found


def tidy(text: str) -> str:
    def plain(value):
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items() if key not in NAMELESS}
        return [plain(each) for each in value] if isinstance(value, list) else value

    return json.dumps(plain(json.loads(text)), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("--again", nargs="*", default=[])
    again = ask.parse_args().again
    subprocess.run([sys.executable, ROOT / "scripts" / "environment.py", "temporal"], check=True)
    FOLDER.mkdir(exist_ok=True)
    server = Server()
    server.start()
    try:
        for name in STORIES:
            if any(FOLDER.glob(f"{name}-*.json")) and name not in again:
                continue
            for number, text in enumerate(asyncio.run(recorded(server, name)), 1):
                (FOLDER / f"{name}-{number}.json").write_text(text)
                print(f"{name}-{number}: {len(text)} bytes")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
