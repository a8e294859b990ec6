"""Two thousand worlds in which everything goes wrong, and nothing may be wrong at the end.

`make sim` runs any number of further ones; a failing seed is repeated with
`make sim SEED=… ARGS=--trace`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand.core import events as ev
from tests.simulation.__main__ import main
from tests.simulation.simulator import simulate_seed

SEEDS = 2000
CHUNK = 50
KNOWN = [
    int(line.split()[0])
    for line in Path(__file__).with_name("seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
]

pytestmark = pytest.mark.sim


def show(verdict):
    """What is wrong, and the one command that repeats it."""
    first = verdict.violations[0] if verdict.violations else ""
    return f"seed {verdict.seed}: {first}\n  repeat it: make sim SEED={verdict.seed} ARGS=--trace"


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_seeds_are_clean(first):
    """No violation in any of these worlds."""
    verdicts = [simulate_seed(seed) for seed in range(first, first + CHUNK)]
    failed = [show(verdict) for verdict in verdicts if not verdict.ok]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("seed", KNOWN)
def test_seeds_that_once_failed_are_clean(seed):
    """What was fixed stays fixed."""
    verdict = simulate_seed(seed)
    assert verdict.ok, show(verdict)


@pytest.mark.parametrize("seed", [0, 7, 42, 100, 1234, 9441])
def test_a_seed_gives_one_world(seed):
    """Run twice in one process: nothing is left over from the first that changes the second."""
    assert simulate_seed(seed).trace == simulate_seed(seed).trace


def test_a_seed_gives_one_world_in_every_process():
    """Neither the hash seed nor the place of an object in memory shows in what happens."""
    code = (
        "from tests.simulation.simulator import simulate_seed\n"
        "print([simulate_seed(seed).trace for seed in range(40)])"
    )
    found = set()
    for hash_seed in ("0", "1", "12345"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=env,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_the_worlds_reach_everything():
    """Every kind of event and every decision comes up: a swarm that avoids one tests nothing."""
    kinds, strategies, ends = set(), set(), set()
    for seed in range(700):
        verdict = simulate_seed(seed)
        kinds.update(verdict.kinds)
        strategies.update(verdict.strategies)
        ends.update(verdict.ends)
    never = {"StepCancelled", "ModelCalled", "DraftRefused"}  # The actors of a world ask no models.
    assert {event.__name__ for event in ev.RUN_EVENTS} - kinds == never
    assert strategies == {
        "abandon", "abort", "ask", "continue", "park", "probe", "replan", "reroute", "retry",
        "simplify",
    }  # fmt: skip
    assert ends == {"cancelled", "failed", "rejected", "succeeded"}


def test_the_command_line_says_what_it_found(capsys):
    """A summary on stdout, progress on stderr, and 0 when all is well."""
    assert main(["--seeds", "20", "--jobs", "1"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("20 seeds, 0 violations, ")
    assert "20 of 20" in err


def test_the_command_line_repeats_a_failing_seed(capsys, monkeypatch):
    """The violation, the one command that repeats it, and exit code 1."""
    monkeypatch.setattr("leadhand.core.commands.is_current", lambda *_: True)
    assert main(["--seeds", "300", "--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert "repeat it: make sim SEED=" in out
    seed = out.split("make sim SEED=")[1].split()[0]
    assert main(["--seed", seed, "--trace"]) == 1
    assert "VIOLATION" in capsys.readouterr().out
