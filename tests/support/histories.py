"""Random histories of one database: real runs, interleaved, in commits of any size."""

import asyncio
import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from leadhand import Lead, Permanent, worker
from leadhand.audit.chain import GENESIS, link
from leadhand.audit.verify import artifacts_of
from leadhand.codec.events import decode, encode
from leadhand.core.host_events import HOST_STREAM, HostOpened
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State
from leadhand.core.views.run import summary
from leadhand.ports import Entry
from leadhand.stores.group_commit import AppendRequest
from leadhand.stores.memory import MemoryStore
from leadhand.stores.sqlite.store import SqliteStore

BEGIN = 1_750_000_000_000_000
DAY_US = 86_400_000_000
DAYS = 60
SECRET = "tok-4711-not-for-the-log"


@worker(name="say")
async def say(text: str = "hello") -> str:
    return text


@worker(name="big")
async def big(text: str = "line") -> list[str]:
    return [text] * 20_000


@worker(name="broken")
async def broken() -> None:
    raise Permanent("it cannot be done")


STEPS: dict[str, list[dict[str, Any]]] = {
    "plain": [{"id": "a", "worker": "say"}, {"id": "b", "worker": "say", "depends_on": ["a"]}],
    "secret": [{"id": "a", "worker": "say", "parameters": {"text": SECRET}}],
    "large": [{"id": "a", "worker": "big"}],
    "large secret": [{"id": "a", "worker": "big", "parameters": {"text": SECRET}}],
    "failed": [{"id": "a", "worker": "broken", "failure_action": "abort"}],
}


def artifacts_in(store: MemoryStore) -> dict[str, bytes]:
    """The large results in a store."""
    events = [decode(entry.version, entry.body) for entry in store.read("example")]
    return {ref: store.get_artifact(ref) for ref in artifacts_of(events)}


@cache
def _example(kind: str) -> tuple[list[Entry], dict[str, bytes]]:
    """The log of a real run, and its artifacts."""
    store = MemoryStore()
    lead = Lead([say, big, broken], store=store)
    plan = {"plan_id": kind.replace(" ", "-"), "goal": kind, "steps": STEPS[kind]}
    asyncio.run(lead.run(plan, run_id="example"))
    return store.read("example"), artifacts_in(store)


def _renamed(log: list[Entry], run: str, shift: int) -> list[Entry]:
    made, prev = [], GENESIS
    for entry in log:
        body = entry.body.replace(b'"example"', f'"{run}"'.encode())
        prev = link(prev, run, entry.seq, entry.at + shift, entry.version, body)
        made.append(Entry(run, entry.seq, entry.at + shift, entry.version, body, prev))
    return made


def _summary(entries: list[Entry]) -> bytes:
    state = State()
    for entry in entries:
        evolve(state, decode(entry.version, entry.body), entry.at)
    return msgspec.json.encode(summary(state))


@dataclass
class History:
    """A database, and what was put into it."""

    path: Path
    ended: dict[str, int] = field(default_factory=dict)
    """When each run ended; 0: open."""

    @property
    def archivable(self) -> list[int]:
        """The moments at which runs ended."""
        return sorted(at for at in self.ended.values() if at)


def make(path: Path, seed: int, runs: int = 14) -> History:
    """Write a history: runs of all kinds, one in six of them open, in commits of any size."""
    rng = random.Random(seed)
    history = History(path)
    store = SqliteStore(path, synchronous="NORMAL")
    owner = store.claim()
    waiting: list[list[Entry]] = []
    for number in range(runs):
        run = f"r{number:03d}-{rng.randrange(1 << 20):05x}"
        log, artifacts = _example(rng.choice(list(STEPS)))
        for data in artifacts.values():
            store.put_artifact(data)
        begin = BEGIN + rng.randrange(DAYS) * DAY_US + rng.randrange(DAY_US)
        entries = _renamed(log, run, begin - log[0].at)
        if rng.random() < 1 / 6:
            entries = entries[: rng.randrange(1, len(entries))]
            history.ended[run] = 0
        else:
            history.ended[run] = entries[-1].at
        waiting.append(entries)
    opened = encode(HostOpened(owner, 1, "0.1.0"))
    first = link(GENESIS, HOST_STREAM, 1, BEGIN, 1, opened)
    _commit(store, [[Entry(HOST_STREAM, 1, BEGIN, 1, opened, first)]], {})
    whole = {entries[0].run: list(entries) for entries in waiting}
    # Later runs begin later, and some are under way at the same time.
    waiting.sort(key=lambda entries: entries[0].at)
    while waiting:
        group: dict[str, list[Entry]] = {}
        for _ in range(rng.choice((1, 1, 2, 5))):
            if not waiting:
                break
            entries = waiting[min(int(rng.expovariate(0.7)), len(waiting) - 1)]
            size = rng.randrange(1, len(entries) + 1)
            group.setdefault(entries[0].run, []).extend(entries[:size])
            del entries[:size]
            waiting = [each for each in waiting if each]
        _commit(store, list(group.values()), whole)
    store.close_now()
    return history


def _commit(store: SqliteStore, group: list[list[Entry]], whole: dict[str, list[Entry]]) -> None:
    nobody: Any = None
    requests = []
    for entries in group:
        run, last = entries[0].run, entries[-1].seq
        told = _summary(whole[run][:last]) if run in whole else None
        requests.append(AppendRequest(nobody, nobody, run, entries[0].seq - 1, entries, told, 0))
    store.commit_together(requests)
