"""A trial of the fleet through the command line: all land, nothing twice, nothing red."""

import pytest

from tests.support.cli import Folder

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.mark.parametrize("more", [(), ("--strict",)])
def test_a_fleet_with_faults_loses_nothing(tmp_path, more):
    folder = Folder(tmp_path)
    options = ("--agents", "8", "--tasks", "24", "--faults", "0.3", "--seed", "7", *more)
    done = folder.run("fleet", "simulate", *options, "--json", timeout_s=300)
    assert done.code == 0, done
    found = done.doc
    assert found["landed"] == found["tasks"] == 24
    assert (found["lost"], found["twice"], found["red_commits"], found["waiting"]) == (0, 0, 0, 0)
    assert found["hooks_run"] == 0
    assert found["faults"] >= 5
    assert found["recovery_rate"] == 1.0
    assert 2 <= found["peak_agents"] <= 8
    assert found["per_hour"] > 0
    assert "landed" in done.err


def test_what_nobody_can_do_is_a_question_not_a_loss(tmp_path):
    """With faults most of the time some tasks end in the inbox; nothing is called done."""
    folder = Folder(tmp_path)
    options = ("--agents", "8", "--tasks", "16", "--faults", "0.9", "--seed", "4")
    done = folder.run("fleet", "simulate", *options, "--json", timeout_s=300)
    assert done.code == 0, done
    found = done.doc
    assert found["waiting"] > 0
    assert found["landed"] + found["waiting"] == 16
    assert (found["twice"], found["red_commits"]) == (0, 0)
