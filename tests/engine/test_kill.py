"""kill -9: nothing acknowledged is lost, nothing is done twice that must not be, no orphan lives.

The world is a file that the commands append to; the host's own log is never asked what
happened outside. A non-idempotent step whose end nobody saw is asked about, never repeated.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from leadhand.app.reader import reading
from leadhand.audit.chain import verify
from leadhand.core.logcheck.checker import check
from tests.support import warm
from tests.support.cli import SOURCE

ROOT = Path(__file__).parents[2]
CHILD = "tests.engine.child"


def plan(kinds: list[str], width: int = 4) -> dict[str, Any]:
    """Rows of commands, each after one of the row before."""
    steps = []
    for index, kind in enumerate(kinds):
        step: dict[str, Any] = {
            "id": f"s{index}",
            "worker": kind,
            "parameters": {"step": f"s{index}"},
        }
        if index >= width:
            step["depends_on"] = [f"s{index - width}"]
        steps.append(step)
    return {"plan_id": "kill", "goal": "survive", "steps": steps}


class World:
    """A database, a plan and the file that commands write to."""

    def __init__(self, folder: Path, document: dict[str, Any], nap: float = 0.0) -> None:
        self.database = folder / "x.db"
        self.plan = folder / "plan.json"
        self.effects = folder / "effects"
        self.plan.write_text(json.dumps(document))
        self.effects.touch()
        self.nap = nap
        self.started = False

    def words(self) -> list[str]:
        """What the child is told: a run the first time, a resume later."""
        files = [str(self.database), str(self.plan), str(self.effects)]
        return [*files, *(["run"] if self.known() else [])]

    def environment(self, kill_at: int = 0) -> dict[str, str]:
        path = os.pathsep.join([str(ROOT), str(SOURCE)])
        more = {"PYTHONPATH": path, "KILL_AT": str(kill_at), "NAP": str(self.nap)}
        return {**os.environ, **more}

    def spawn(self) -> subprocess.Popen[str]:
        """Start the child."""
        argv = [sys.executable, "-m", CHILD, *self.words()]
        return subprocess.Popen(
            argv, cwd=ROOT, env=self.environment(), stdout=subprocess.PIPE, text=True
        )

    def known(self) -> bool:
        """Whether the run's start is in the log."""
        if not self.database.exists():
            return False
        try:
            with reading(self.database) as reader:
                return any(header.run == "run" for header in reader.runs())
        except Exception:
            return False

    def finish(self, kill_at: int = 0) -> dict[str, Any] | None:
        """Let the child run; None when it was killed."""
        env = self.environment(kill_at)
        code, out, err = warm.run(CHILD, self.words(), cwd=ROOT, env=env, timeout_s=120)
        if code == -signal.SIGKILL:
            return None
        assert code == 0, out + err
        return json.loads(out.splitlines()[-1])

    def counts(self) -> Counter[str]:
        """How often each step acted on the world."""
        return Counter(self.effects.read_text().split())

    def check(self) -> None:
        """The log verifies, and every invariant holds over it."""
        with reading(self.database) as reader:
            assert verify(reader.entries("run")) == []
            assert check([(entry.at, event) for entry, event in reader.events("run")]) == []


def judge(world: World, result: dict[str, Any], kinds: list[str]) -> None:
    """What must hold at the end, whatever happened on the way."""
    world.check()
    counts = world.counts()
    for index, kind in enumerate(kinds):
        times, status = counts[f"s{index}"], result["steps"].get(f"s{index}")
        if kind != "again":
            assert times <= 1, f"s{index} ({kind}) acted {times} times"
        if status == "succeeded":
            assert times >= 1, f"s{index} is called done and never acted"
    asked = {kinds[int(step[1:])] for step in result["asks"]}
    assert asked <= {"once"}, "only what has no probe and may not be repeated is asked about"
    if not result["asks"]:
        assert result["status"] == "succeeded", result


@pytest.mark.slow
@pytest.mark.real
def test_kill_at_every_operation(tmp_path: Path) -> None:
    """Dying before the n-th operation, for every n, loses nothing and repeats nothing blindly."""
    kinds = ["again", "probed", "once", "again", "probed", "once"]
    (tmp_path / "clean").mkdir()
    clean = World(tmp_path / "clean", plan(kinds, width=3))
    result = clean.finish()
    assert result is not None
    judge(clean, result, kinds)
    total = result["operations"]
    assert total > 40
    for n in range(1, total + 1):
        folder = tmp_path / str(n)
        folder.mkdir()
        world = World(folder, plan(kinds, width=3))
        world.finish(kill_at=n)
        again = world.finish()
        assert again is not None
        judge(world, again, kinds)


@pytest.mark.slow
@pytest.mark.real
def test_kill_at_random_in_a_thousand_commands(tmp_path: Path) -> None:
    """A 1,000-step run of commands, killed again and again at random, then resumed to its end."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    kinds = [rng.choice(["again", "again", "probed"]) for _ in range(1000)]
    world = World(tmp_path, plan(kinds, width=8), nap=0.002)
    kills, result = 0, None
    while result is None and kills < 12:
        child = world.spawn()
        try:
            child.wait(timeout=rng.uniform(0.6, 2.5))
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            kills += 1
        out, _ = child.communicate(timeout=60)
        if child.returncode == 0:
            result = json.loads(out.splitlines()[-1])
    result = result or world.finish()
    assert result is not None, f"seed {seed}"
    judge(world, result, kinds)
    assert result["status"] == "succeeded"
    assert kills >= 1, f"seed {seed}: nothing was killed"


@pytest.mark.real
def test_no_orphan_beside_its_retry(tmp_path: Path) -> None:
    """A command that outlives its host is dead before its retry starts."""
    world = World(tmp_path, plan(["again"]), nap=60.0)
    child = world.spawn()
    deadline = time.monotonic() + 30
    while not world.effects.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=120)
    world.nap = 0.0
    result = world.finish()
    assert result is not None
    assert result["status"] == "succeeded"
    marker = str(world.effects).encode()
    alive = [p for p in Path("/proc").glob("[0-9]*/cmdline") if marker in _read(p)]
    assert alive == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


UNDOS = ["again", "probed", "once"]


def taken_back() -> dict[str, Any]:
    """Three steps that say how they are undone, and one that fails and asks for it."""
    steps: list[dict[str, Any]] = []
    for index, kind in enumerate(UNDOS):
        undo = {"worker": kind, "parameters": {"step": f"u{index}"}}
        step = {"id": f"s{index}", "worker": "again", "parameters": {"step": f"s{index}"}}
        steps.append({**step, "depends_on": [f"s{index - 1}"] if index else [], "undo": undo})
    fails = {"id": "bad", "worker": "broken", "depends_on": ["s2"], "failure_action": "rollback"}
    return {"goal": "come to nothing", "steps": [*steps, {**fails, "retry": 1}]}


@pytest.mark.slow
@pytest.mark.real
def test_a_rollback_killed_at_every_operation(tmp_path: Path) -> None:
    """A completed undo never runs again; one in flight is repeated, probed or asked about."""
    (tmp_path / "clean").mkdir()
    clean = World(tmp_path / "clean", taken_back())
    result = clean.finish()
    assert result is not None
    assert (result["status"], result["rollback"]["status"]) == ("failed", "succeeded")
    assert clean.effects.read_text().split() == ["s0", "s1", "s2", "u2", "u1", "u0"]
    total = result["operations"]
    for n in range(1, total + 1, 2):
        folder = tmp_path / str(n)
        folder.mkdir()
        world = World(folder, taken_back())
        world.finish(kill_at=n)
        again = world.finish()
        assert again is not None
        back, counts = again["rollback"], world.counts()
        assert counts["u1"] <= 1, f"killed at {n}: what a probe can tell was done twice"
        assert counts["u2"] <= 1, f"killed at {n}: what may be done once was done twice"
        if back["asks"]:
            assert back["asks"] == ["undo-s2"], f"killed at {n}: {back}"
        else:
            assert back["status"] == "succeeded", f"killed at {n}: {back}"
            assert set(counts) == {"s0", "s1", "s2", "u0", "u1", "u2"}
        with reading(world.database) as reader:
            log = [(entry.at, event) for entry, event in reader.events("run-rollback")]
        assert check(log) == []
