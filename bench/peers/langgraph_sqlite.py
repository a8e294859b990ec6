"""LangGraph with its SQLite checkpointer: a chain of steps, and a fan-out through `Send`.

Fair, and where in doubt in the peer's favour:
- the chain is one node that loops, which LangGraph runs two to three times as fast as a graph
  of 1,000 nodes; the state is one integer, so its checkpoints stay small;
- `durability="sync"` makes a step durable before the next one starts, as Leadhand does
  (`--durability async`, its default, writes behind the run: shown, not compared);
- both savers can be run; the faster one is compared. WAL and synchronous=FULL are set and read
  back, and the rows found afterwards must account for every step.

By hand, from `bench/`: `python -m peers.langgraph_sqlite chain --saver sync`.
"""

from __future__ import annotations

import asyncio
import operator
import sqlite3
import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

import aiosqlite
from frame import arguments, durability, emit, expect
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send


class Count(TypedDict):
    """The state of both graphs: how many steps are done."""

    done: Annotated[int, operator.add]


def step(_: Count) -> dict[str, int]:
    """The no-op as a plain function."""
    return {"done": 1}


async def astep(_: Count) -> dict[str, int]:
    """The no-op as a coroutine."""
    return {"done": 1}


def graph(shape: str, size: int, node: Any) -> Any:
    """One node, either looping `size` times or sent to `size` times at once."""
    builder = StateGraph(Count)
    builder.add_node("step", node)
    if shape == "chain":
        builder.add_edge(START, "step")
        builder.add_conditional_edges("step", lambda s: "step" if s["done"] < size else END)
    else:
        sends = [Send("step", {"done": 0}) for _ in range(size)]
        builder.add_conditional_edges(START, lambda _: sends, ["step"])
    return builder


def run_sync(db: Path, shape: str, size: int, config: Any, mode: Any) -> tuple[float, str]:
    """`SqliteSaver`: steps on threads."""
    connection = sqlite3.connect(db, check_same_thread=False)
    connection.execute("PRAGMA synchronous=FULL")
    saver = SqliteSaver(connection)
    saver.setup()
    compiled = graph(shape, size, step).compile(checkpointer=saver)
    began = time.perf_counter()
    result = compiled.invoke({"done": 0}, config, durability=mode)
    seconds = time.perf_counter() - began
    expect("steps", result["done"], size)
    synced = durability(lambda name: connection.execute(f"PRAGMA {name}").fetchone()[0])
    connection.close()
    return seconds, synced


async def run_async(db: Path, shape: str, size: int, config: Any, mode: Any) -> tuple[float, str]:
    """`AsyncSqliteSaver`: steps on the event loop."""
    async with aiosqlite.connect(db) as connection:
        await connection.execute("PRAGMA synchronous=FULL")
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        compiled = graph(shape, size, astep).compile(checkpointer=saver)
        began = time.perf_counter()
        result = await compiled.ainvoke({"done": 0}, config, durability=mode)
        seconds = time.perf_counter() - began
        expect("steps", result["done"], size)
        found = {}
        for name in ("journal_mode", "synchronous"):
            rows = await connection.execute_fetchall(f"PRAGMA {name}")
            found[name] = next(iter(rows))[0]
        return seconds, durability(found.__getitem__)


def main() -> None:
    """Time one shape with one saver."""
    given = arguments(
        ["chain", "fanout"],
        saver={"choices": ["sync", "async"], "default": "sync"},
        durability={"choices": ["sync", "async"], "default": "sync"},
    )
    db = given.dir / "langgraph.db"
    config = {"configurable": {"thread_id": "bench"}, "recursion_limit": given.size + 10}
    common = (db, given.shape, given.size, config, given.durability)
    if given.saver == "sync":
        seconds, synced = run_sync(*common)
    else:
        seconds, synced = asyncio.run(run_async(*common))
    after = sqlite3.connect(db)
    checkpoints, writers = after.execute(
        "SELECT (SELECT count(*) FROM checkpoints), (SELECT count(DISTINCT task_id) FROM writes)"
    ).fetchone()
    # The input writes too, and is checkpointed before and after it is taken in.
    expect("writers", writers, given.size + 1)
    expect("checkpoints", checkpoints, given.size + 2 if given.shape == "chain" else 3)
    durable = f"{synced}, durability={given.durability}"
    emit(given.size, seconds, durable=durable, version=version("langgraph"))


if __name__ == "__main__":
    main()
