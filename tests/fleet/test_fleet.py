"""A fleet from a folder of epics to the user's branch, across restarts."""

import asyncio
import signal
import subprocess
import sys

import pytest

from leadhand.core.policy import Policy
from leadhand.errors import UsageError
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.context import AttemptLimits
from leadhand.fleet.epic_folder import run_of
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.service import Fleet, FleetConfig, _mark
from tests.fleet.places import run_git
from tests.fleet.test_worker import AGENT, GATE

TASK = "  - {{id: {0}, goal: write the module {0}, writes: [{0}.py]}}"


def epic(folder, name, *tasks):
    path = folder / f"{name}.md"
    lines = "\n".join(TASK.format(task) for task in tasks)
    path.write_text(f"# {name}\n\nModules.\n\n```yaml\ntasks:\n{lines}\n```\n")
    return path


@pytest.fixture
def fleet(tmp_path, user):
    agent, tricks = tmp_path / "agent.py", tmp_path / "tricks.json"
    agent.write_text(AGENT)
    tricks.write_text('{"b": ["red"], "c": ["nothing", "nothing", "nothing", "nothing"]}')
    command = [sys.executable, str(agent), "{task}", "{attempt}", "{brief_file}", str(tricks)]
    config = FleetConfig(
        repo=user,
        folder=tmp_path / "fleet",
        gate=GateRules(commands=((sys.executable, "-c", GATE),)),
        publish="leadhand/main",
        agents=4,
        sandbox="none",
        limits=AttemptLimits(time_s=30, silence_s=20),
        policy=Policy(backoff_s=0.01, jitter=0.0),
        stagger_s=0.0,
    )

    def coders(processes):
        homes = tmp_path / "homes"
        return [
            ("coder", TemplateCoder("scripted", command, processes=processes, homes=homes), "s"),
            ("coder@strong", TemplateCoder("big", command, processes=processes, homes=homes), "l"),
        ]

    return lambda: Fleet(config, coders)


async def test_epics_become_commits_on_a_branch_of_the_users(fleet, tmp_path, user):
    before = run_git(user, "rev-parse", "HEAD"), run_git(user, "status", "--porcelain")
    async with fleet() as at_work:
        at_work.submit(epic(tmp_path, "first", "a", "b", "c"))
        at_work.submit(epic(tmp_path, "second", "d"))
        async with asyncio.timeout(60):
            await at_work.idle()
        status = await at_work.status()
    assert set(status["epics"].values()) == {"succeeded"}
    assert status["tasks"] == {"succeeded": 4}
    assert status["landed"] == 4, "the log and git agree"
    assert status["agents"]["peak"] >= 2
    names = run_git(user, "ls-tree", "--name-only", "leadhand/main").split()
    assert {"a.py", "b.py", "c.py", "d.py"} <= set(names)
    log = run_git(user, "log", "--format=%(trailers:key=Assisted-by,valueonly)", "leadhand/main")
    assert "big:l" in log, "what was too much for the first went to the stronger one"
    after = run_git(user, "rev-parse", "HEAD"), run_git(user, "status", "--porcelain")
    assert after == before


async def test_a_fleet_goes_on_where_it_was_and_does_nothing_twice(fleet, tmp_path):
    path = epic(tmp_path, "first", "a", "d", "e")
    async with fleet() as at_work:
        ident = at_work.submit(path)
        while not at_work.shop.hub.landed(ident, "a"):
            await asyncio.sleep(0.02)
    async with fleet() as again:
        async with asyncio.timeout(60):
            await again.idle()
        status = await again.status()
        commits = await again.shop.hub.commits()
    assert sorted(each.trailers["Leadhand-Task"] for each in commits) == ["a", "d", "e"]
    assert status["landed"] == 3
    assert ident == run_of("first", path.read_bytes())


async def test_what_a_killed_fleet_left_running_is_gone_before_the_next_begins(fleet, tmp_path):
    """Engine and supervisor killed at once: agents live on, in slots that others are to get."""
    marks = [f"fleet-{_mark(folder)}" for folder in (tmp_path / "fleet", tmp_path / "another")]
    left, foreign = (
        subprocess.Popen(["sleep", "600"], env={"LEADHAND_SPAWN": f"{mark}:nonce:1"})
        for mark in marks
    )
    async with fleet():
        ended = left.poll(), foreign.poll()
    for each in (left, foreign):
        each.kill()
        each.wait()
    assert ended == (-signal.SIGKILL, None)


async def test_what_is_no_epic_is_refused_and_the_rest_goes_on(fleet, tmp_path):
    bad = tmp_path / "bad.md"
    bad.write_text("# Bad\n```yaml\ntasks: [{id: a}]\n```\n")
    async with fleet() as at_work:
        with pytest.raises(UsageError):
            at_work.submit(bad)
        (at_work.epics / "bad.md").write_text(bad.read_text())
        (at_work.epics / "words.md").write_text("# Only words\n")
        at_work.submit(epic(tmp_path, "good", "a"))
        async with asyncio.timeout(60):
            await at_work.idle()
        status = await at_work.status()
    assert set(status["refused"]) == {"bad.md", "words.md"}
    assert list(status["epics"].values()) == ["succeeded"]
