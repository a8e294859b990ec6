"""kill -9 at any moment: whatever was acknowledged is there, and the next host goes on."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leadhand.audit.chain import verify, verify_batches, verify_head
from leadhand.errors import StoreError
from leadhand.stores.sqlite.store import SqliteReader, SqliteStore
from tests.stores.entries import chained

ROOT = Path(__file__).resolve().parents[2]
KILLS = 36

CHILD = """
import asyncio, os, sys
from leadhand.stores.sqlite import writer
from leadhand.stores.sqlite.store import SqliteStore
from tests.stores.entries import chained

writer.CHECKPOINT_BYTES = 100_000

async def host():
    store = SqliteStore(sys.argv[1])
    store.claim()
    async def run(name):
        log = store.read(name)
        last = log[-1] if log else None
        while True:
            new = chained(name, 2, after=last)
            await store.append(name, new[0].seq - 1, new, b"{}")
            last = new[-1]
            os.write(1, f"{name} {last.seq} {last.hash.hex()}\\n".encode())
            await asyncio.sleep(float(sys.argv[2]))
    await asyncio.gather(*[run(f"run {i}") for i in range(8)])

asyncio.run(host())
"""


@pytest.mark.real
@pytest.mark.slow
def test_no_acknowledged_entry_is_lost(tmp_path):
    """One file through many deaths; between them it is read with the dead host's log in place."""
    rng = random.Random(11)
    path = tmp_path / "log.db"
    acked: dict[str, tuple[int, str]] = {}
    for _ in range(KILLS):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), "0"], stdout=subprocess.PIPE, cwd=ROOT
        )
        assert child.stdout is not None
        lines = [child.stdout.readline()]
        time.sleep(rng.uniform(0, 0.15))
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.read().splitlines(keepends=True)
        child.stdout.close()
        child.wait()
        for line in lines:
            if line.endswith(b"\n"):
                name, seq, digest = line.decode().rsplit(" ", 2)
                acked[name] = (int(seq), digest.strip())
        check(path, acked)
    assert len(acked) == 8
    assert sum(seq for seq, _ in acked.values()) > KILLS


def check(path: Path, acked: dict[str, tuple[int, str]]) -> None:
    assert Path(f"{path}-wal").exists(), "the dead host left its log"
    reading = SqliteStore.open_reader(path)
    for name, (seq, digest) in acked.items():
        log = reading.read(name)
        assert len(log) >= seq
        assert log[seq - 1].hash.hex() == digest
        assert verify(log) == []
    for header in reading.runs():
        assert verify_head(reading.read(header.run), header) == []
    assert verify_batches(reading.batches(), reading.positions()) == []
    reading.close_reader()


@pytest.mark.real
async def test_a_host_that_was_stopped_and_overtaken_steps_down(tmp_path):
    """SIGSTOP, another takes over, SIGCONT: not one entry of the old one gets in after that."""
    path = tmp_path / "log.db"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), "0.05"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    store = SqliteStore(path, busy_s=1)
    while True:
        child.send_signal(signal.SIGSTOP)
        try:
            store.claim()
            break
        except StoreError:  # it was stopped in the middle of a commit, and holds SQLite's lock
            child.send_signal(signal.SIGCONT)
            time.sleep(0.02)
    mine = chained("mine", 1)
    await store.append("mine", 0, mine)
    place = store.positions()[-1][0]
    child.send_signal(signal.SIGCONT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 1
    assert b"Fenced" in errors
    assert store.positions()[-1] == (place, mine[0].hash)
    await store.close()
    reading = SqliteReader(path)
    assert verify_batches(reading.batches(), reading.positions()) == []
    reading.close_reader()
