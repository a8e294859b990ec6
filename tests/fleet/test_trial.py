"""A trial of the fleet through the command line: all land, nothing twice, nothing red."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leadhand.fleet.governor import Needs
from tests.support.cli import Folder, environment

pytestmark = [pytest.mark.slow, pytest.mark.real]


CLEAN = (
    "lost",
    "twice",
    "red_commits",
    "unhandled",
    "lost_work",
    "false_success",
    "foreign",
    "wrote_outside",
    "hooks_run",
    "checkout_changed",
)


def tried(tmp_path, *options, code=0):
    done = Folder(tmp_path).run("fleet", "simulate", *options, "--json", timeout_s=420)
    assert done.code == code, done
    assert "landed" in done.err
    found = done.doc
    assert {name: found[name] for name in CLEAN} == dict.fromkeys(CLEAN, 0)
    assert found["disagreements"] == []
    assert found["sandbox"] != "none"
    return found


@pytest.mark.parametrize("more", [("--tasks", "18"), ("--tasks", "14", "--strict")])
def test_a_fleet_with_faults_loses_nothing(tmp_path, more):
    found = tried(tmp_path, "--agents", "8", "--faults", "0.3", "--seed", "11", *more)
    assert found["landed"] == found["tasks"] == int(more[1])
    assert found["waiting"] == 0
    assert found["faults"] >= 4
    assert found["recovery_rate"] == 1.0
    failed = found["recovery_by_class"].values()
    assert sum(row["times"] for row in failed) >= 4
    assert all(row["recovered"] == row["times"] and row["rate"] == 1.0 for row in failed)
    assert found["peak_agents"] <= 8
    if max(os.getloadavg()) < Needs().load * (os.cpu_count() or 1) / 2:
        assert found["peak_agents"] >= 6, "on a machine with a high load agents start one by one"
    assert found["per_hour"] > 0
    assert found["tested_again"] > 0
    assert found["gate_runs"] > found["queue_gate_runs"] >= 0 <= found["reused_verdicts"]
    assert found["semantic_pairs"] == 1
    answered = found["catalogue"]
    assert sum(row["handled"] for row in answered.values()) == found["faults"]
    assert found["memory_mb"]["peak"] > 10


@pytest.mark.parametrize("kind", ["engine killed", "disk full", "merge conflict", "flaky test"])
def test_trouble_from_outside_is_answered(tmp_path, kind):
    """Each by itself, so that none hides behind another."""
    options = (
        "--agents",
        "3",
        "--tasks",
        "6",
        "--faults",
        "0.3",
        "--seed",
        "9",
        "--work-seconds",
        "0",
    )
    found = tried(tmp_path, *options, "--only", kind)
    assert found["landed"] == 6
    assert found["catalogue"][kind]["times"] >= 1
    assert (found["engine_kills"] >= 1) == (kind == "engine killed") or kind == "disk full"


def test_tasks_that_share_files_all_land(tmp_path):
    """Beside each other, with fewer runs of the gate than changes, main green at each tip."""
    options = ("--agents", "10", "--tasks", "12", "--overlap", "0.5", "--work-seconds", "3")
    found = tried(tmp_path, *options, "--batch", "8", "--gate-seconds", "1", "--gates", "1")
    assert found["landed"] == 12
    assert found["questions"] == 0
    assert found["fitting"] < 6
    assert found["redone"] <= 0.5
    assert found["queue_gate_runs"] < 12
    assert found["tested_again"] > 0


def test_what_nobody_can_do_is_a_question_not_a_loss(tmp_path):
    """With faults most of the time some tasks end in the inbox; nothing is called done."""
    options = ("--agents", "8", "--tasks", "12", "--faults", "0.9", "--work-seconds", "0")
    found = tried(tmp_path, *options, "--only", "gate red", "--only", "false done")
    assert found["waiting"] > 0
    assert found["landed"] + found["waiting"] == 12
    assert found["recovery_rate"] < 1.0
    failed = found["recovery_by_class"]["criteria_unmet"]
    assert 0 < failed["recovered"] < failed["times"]


def test_a_trial_that_is_ended_leaves_no_folder_and_no_process(tmp_path):
    room = tmp_path / "room"
    room.mkdir()
    argv = [sys.executable, "-m", "leadhand.cli", "fleet", "simulate", "--tasks", "4"]
    env = environment(tmp_path, TMPDIR=str(room))
    trial = subprocess.Popen(
        [*argv, "--work-seconds", "300"], cwd=tmp_path, env=env, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 240
        while not _with(room, "scripted_agent.py"):
            assert trial.poll() is None, "it ended by itself"
            assert time.monotonic() < until, "no agent is at work"
            time.sleep(0.1)
        assert _with(room, "fleet_process")
        trial.send_signal(signal.SIGTERM)
        assert trial.wait(timeout=240) == 128 + signal.SIGTERM
    finally:
        trial.kill()
        trial.wait()
    assert list(room.iterdir()) == []
    assert _with(room, "") == []


def _with(room, word):
    """Return the processes whose arguments name a file in `room`, and this word."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            argv = each.read_bytes()
            if os.fsencode(room) in argv and word.encode() in argv:
                found.append(each.parent.name)
    return found
