"""kill -9 of agents that drive a run, and of its hosts: each step counts once."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from leadhand import Lead
from leadhand.app.reader import reading
from leadhand.audit.chain import verify
from leadhand.core import events as ev
from leadhand.core.logcheck.checker import check
from tests.support import warm
from tests.support.cli import SOURCE

ROOT = Path(__file__).parents[2]
CHILD = "tests.engine.caller_child"
STEPS = [
    {"id": "a", "worker": "caller", "success_criteria": 'data.step == "a"'},
    {"id": "b", "worker": "caller", "depends_on": ["a"]},
    {"id": "c", "worker": "caller", "depends_on": ["a"], "success_criteria": "data.attempt == 1"},
]
RUN = "run"


class World:
    """A database with a run, and what its agent did and heard."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.database = folder, folder / "x.db"
        self.effects, self.acks = folder / "effects", folder / "acks"
        self.effects.touch()
        self.acks.touch()
        lead = Lead([], store=self.database, actor="ann")
        outcome = lead.run_sync({"goal": "survive", "steps": STEPS}, run_id=RUN)
        assert outcome.status == "waiting"

    def child(self, kind: str, *files: Path, kill_at: int = 0) -> warm.Started:
        """Start an agent or a host."""
        path = os.pathsep.join([str(ROOT), str(SOURCE)])
        env = {**os.environ, "PYTHONPATH": path, "KILL_AT": str(kill_at)}
        words = [kind, str(self.database), RUN, *map(str, files)]
        return warm.Started(CHILD, words, cwd=ROOT, env=env)

    def agent(self, kill_at: int = 0, *, cut_off: bool = False) -> dict | None:
        """Let the agent work; None if it was killed, or with `cut_off` if its host was."""
        started = self.child("agent", self.effects, self.acks, kill_at=kill_at)
        try:
            out, err = started.communicate(120)
        finally:
            started.kill()
        if started.returncode == -signal.SIGKILL:
            return None
        if cut_off and started.returncode != 0:
            assert "refused" not in err, err
            return None
        assert started.returncode == 0, out + err
        return json.loads(out.splitlines()[-1])

    def judge(self) -> None:
        """The log is whole, has every report that was received, and each step once."""
        with reading(self.database) as reader:
            assert verify(reader.entries(RUN)) == []
            log = [(entry.at, event) for entry, event in reader.events(RUN)]
        assert check(log) == []
        events = [event for _, event in log]
        reports = [e for e in events if isinstance(e, ev.AttemptReported)]
        assert Counter(e.step for e in reports) == {"a": 1, "b": 1, "c": 1}
        assert all(e.met for e in reports)
        assert not [e for e in events if isinstance(e, (ev.AttemptLost, ev.QuestionAsked))]
        assert {e.caller for e in events if isinstance(e, ev.AttemptStarted)} == {"agent:bot"}
        assert sorted(self.effects.read_text().split()[::2]) == ["a", "b", "c"]
        acked = set(self.acks.read_text().splitlines())
        assert acked <= {f"{e.step} {e.attempt}" for e in reports}


@pytest.mark.slow
@pytest.mark.real
def test_kill_the_agent_that_drives_its_run_at_many_operations(tmp_path: Path) -> None:
    """Host and caller in one process: it asks again under its name, and repeats its report."""
    clean = World(tmp_path / "clean")
    result = clean.agent()
    assert result is not None
    assert result["status"] == "succeeded"
    clean.judge()
    total = result["operations"]
    assert total > 20
    for n in range(1, total + 1, max(1, total // 16)):
        world = World(tmp_path / str(n))
        assert world.agent(kill_at=n) is None
        again = world.agent()
        assert again is not None
        assert again["status"] == "succeeded"
        world.judge()


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("kill_at", [2, 9, 16, 40])
def test_kill_the_host_while_an_agent_works(tmp_path: Path, kill_at: int) -> None:
    """Another process drives the run and dies; the agent goes on with the next one, or alone."""
    world = World(tmp_path / "w")
    host = world.child("host", kill_at=kill_at)
    try:
        while (result := world.agent(cut_off=True)) is None:
            pass
        assert result["status"] == "succeeded"
        world.judge()
    finally:
        host.kill()
        host.communicate(60)
