"""A long agent on Temporal: 100 model calls with a context of 209k tokens each.

A user measured the peer (temporalio/sdk-python#1890): each model call of an agent is an activity
whose input is the conversation, so the conversation is written into the workflow's history with
each call; at 209k tokens the workflow is terminated at call 53 of 100, with 50.48 MB of history.

The same work on Leadhand, in two shapes, on a real development server of Temporal:

    one step     an agent that has 209k tokens in its task and calls a tool 99 times
    many steps   100 agents, each with a context of 209k tokens of its own, which another step read

The model is an endpoint on this machine that counts what arrives; tool calls leave a line in a
file. History lengths and sizes are those that the server reports of each execution.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from leadhand import Agent, worker
from leadhand.app.reader import Reader
from leadhand.app.verification import verify_database
from leadhand.audit.anchors import Anchoring
from leadhand.temporal.cluster_status import workflow_id
from leadhand.testing.endpoint import Endpoint, Reply, Say, Use
from leadhand.testing.endpoint.request import Request
from tests.proof.table import ROOT, Figure, Row, of
from tests.support.temporal import Here, Server, on_temporal

CALLS = 100
TOKENS = 209_000
CHARACTERS = 4 * TOKENS
"""The usual estimate of four characters for a token; the model is asked with this many."""
HISTORY_BYTES_MAX = 50 << 20
HISTORY_EVENTS_MAX = 51_200
SECONDS_MAX = 3600.0
VOCABULARY = 8000
LISTED_SECONDS_MAX = 60


class Seen(NamedTuple):
    """What one shape came to."""

    calls: int
    shortest: int
    """Characters of the smallest request that reached the model."""
    effects: int
    status: str
    histories: int
    bytes_max: int
    bytes_sum: int
    events_max: int
    verified: bool


def text_of(number: int, characters: int) -> str:
    """Return words of a vocabulary, other ones for each number."""
    letters = random.Random(0)
    words = [
        "".join(letters.choices("etaoinshrdlucmfwypvbgkqjxz", k=letters.randint(2, 9)))
        for _ in range(VOCABULARY)
    ]
    draw = random.Random(number)
    found: list[str] = []
    size = 0
    while size < characters:
        found.append(draw.choice(words))
        size += len(found[-1]) + 1
    return " ".join(found)[:characters]


def one_step(calls: int, characters: int, effects: Path) -> tuple[list[Any], dict[str, Any]]:
    """Return the workers and the plan of one agent that asks so often."""

    @worker(name="note", effects=())
    async def note(line: int) -> str:
        with effects.open("a") as file:
            file.write(f"{line}\n")
        return f"noted {line}"

    @worker(name="reads", effects=())
    async def reads() -> str:
        return text_of(0, characters)

    agent = Agent(
        "agent",
        "model",
        tools=[note],
        max_turns=calls + 1,
        max_tokens=2 * calls * (TOKENS + 10_000),
        timeout=SECONDS_MAX,
    )
    ask = {"id": "ask", "worker": "agent", "depends_on": ["read"]}
    ask["parameters"] = {"conversation": "${{ steps.read.data }}"}
    return [agent, reads], {"goal": "Read", "steps": [{"id": "read", "worker": "reads"}, ask]}


def many_steps(calls: int, characters: int, effects: Path) -> tuple[list[Any], dict[str, Any]]:
    """Return the workers and the plan of as many agents, each with a context of its own."""

    @worker(name="reads", effects=())
    async def reads(number: int) -> str:
        with effects.open("a") as file:
            file.write(f"{number}\n")
        return text_of(number, characters)

    agent = Agent("agent", "model", max_tokens=4 * TOKENS, timeout=SECONDS_MAX)
    steps: list[dict[str, Any]] = []
    for number in range(calls):
        read = {"id": f"read{number}", "worker": "reads", "parameters": {"number": number}}
        ask = {"id": f"ask{number}", "worker": "agent", "depends_on": [f"read{number}"]}
        ask["parameters"] = {"conversation": f"${{{{ steps.read{number}.data }}}}"}
        after = {"depends_on": [f"ask{number - 1}"]} if number else {}
        steps += [{**read, **after}, ask]
    return [agent, reads], {"goal": "Read", "steps": steps}


SHAPES: dict[str, Callable[[int, int, Path], tuple[list[Any], dict[str, Any]]]] = {
    "one step": one_step,
    "many steps": many_steps,
}


async def carried_out(
    server: Server, shape: str, folder: Path, calls: int = CALLS, characters: int = CHARACTERS
) -> Seen:
    """Run one shape; return what the endpoint, the file and the server saw."""
    effects = folder / "effects"
    effects.touch()
    sizes: list[int] = []

    def answer(request: Request) -> Reply:
        sizes.append(len(json.dumps(request.body, ensure_ascii=False)))
        if shape == "one step" and len(sizes) < calls:
            return Use("note", {"line": len(sizes)})
        return Say(f"answer {len(sizes)}")

    async with Endpoint(answer) as endpoint:
        workers, plan = SHAPES[shape](calls, characters, effects)
        workers[0].model = f"chat:scripted@{endpoint.url}"
        place = folder / "log.db"
        async with on_temporal(server, place, workers) as here:
            async with asyncio.timeout(SECONDS_MAX):
                outcome = await here.lead.run(plan, run_id="long")
            found = await histories(here, "long")
    reader = Reader(place)
    try:
        verified = not list(verify_database(reader, place, Anchoring()).problems)
    finally:
        reader.store.close_reader()
    return Seen(
        calls=len(sizes),
        shortest=min(sizes),
        effects=len(effects.read_text().split()),
        status=outcome.status,
        histories=len(found),
        bytes_max=max(size for size, _ in found),
        bytes_sum=sum(size for size, _ in found),
        events_max=max(length for _, length in found),
        verified=verified,
    )


async def histories(here: Here, run: str) -> list[tuple[int, int]]:
    """Return bytes and events of each execution of a run, once the server lists all as closed."""
    ident = workflow_id(here.cluster.ways.prefix, run)
    end = time.monotonic() + LISTED_SECONDS_MAX
    while True:
        listed = [each async for each in here.client.list_workflows(f'WorkflowId = "{ident}"')]
        if listed and all(each.close_time for each in listed):
            break
        if time.monotonic() > end:
            raise TimeoutError(f"{ident} is not listed as closed")
        await asyncio.sleep(0.5)
    found = []
    for each in listed:
        handle = here.client.get_workflow_handle(ident, run_id=each.run_id)
        info = (await handle.describe()).raw_description.workflow_execution_info
        found.append((info.history_size_bytes, info.history_length))
    return found


def _figures(shape: str, seen: Seen, calls: int) -> list[Figure]:
    mb = 1 << 20
    size = (
        f"{seen.bytes_max / mb:.2f} MB and {seen.events_max} events; {seen.histories} "
        f"histories, {seen.bytes_sum / mb:.2f} MB together"
    )
    done = seen.calls == calls and seen.status == "succeeded"
    wanted_effects = calls - 1 if shape == "one step" else calls
    return [
        Figure(f"{shape}: model calls made, and the run", f"{of(seen.calls, calls)}, {seen.status}",
               f"{calls}, succeeded", done),
        Figure(f"{shape}: characters of the shortest request", f"{seen.shortest:,}",
               f"at least {CHARACTERS:,}", seen.shortest >= CHARACTERS),
        Figure(f"{shape}: largest history, as the server reports it", size,
               f"below {HISTORY_BYTES_MAX // mb} MB and {HISTORY_EVENTS_MAX:,} events",
               seen.bytes_max < HISTORY_BYTES_MAX and seen.events_max < HISTORY_EVENTS_MAX),
        Figure(f"{shape}: effects in the file outside", str(seen.effects), str(wanted_effects),
               seen.effects == wanted_effects),
        Figure(f"{shape}: log verifies", str(seen.verified).lower(), "true", seen.verified),
    ]  # fmt: skip


def row(calls: int = CALLS) -> Row:
    """Run both shapes."""
    script = ROOT / "scripts" / "environment.py"
    subprocess.run([sys.executable, script, "temporal"], check=True)
    server = Server()
    server.start()
    figures: list[Figure] = []
    try:
        for shape in SHAPES:
            with tempfile.TemporaryDirectory() as folder:
                seen = asyncio.run(carried_out(server, shape, Path(folder), calls))
            figures += _figures(shape, seen, calls)
    finally:
        server.stop()
    return Row(
        name="A long agent on Temporal",
        source="temporalio/sdk-python#1890 (2026-09-21), quoted: with openai_agents on Temporal a "
        "conversation of 209k tokens is terminated at 53 of 100 model calls (50.48 MB of "
        "history), one of 105k tokens at 82",
        version="temporal server start-dev; limits of the server: 50 MB and 51,200 events",
        left_out="The peer is not run here; its figures are the quoted ones. The model is a "
        "scripted endpoint. A token is counted as four characters.",
        figures=figures,
        repeat="make proof ARGS=long_agent",
        notes="Payloads of more than 16 KB cross compressed, and by reference to an artifact "
        "where that is more than 512 KB; a run continues in a new history at 16 MB or 10,000 "
        "events.",
    )
