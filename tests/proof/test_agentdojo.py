"""A slice of AgentDojo: pairs that a seed draws, in the arms that matter."""

import random
import subprocess
import sys

import pytest

from tests.proof import agentdojo_attacks as dojo
from tests.proof.table import ROOT
from tests.support.need import need

pytestmark = [pytest.mark.slow]
SEED = 21
SET_UP_SECONDS_MAX = 300


@pytest.fixture(scope="module")
def drawn():
    """Some pairs of each suite, the same ones every time; attacks with actions only."""
    command = [sys.executable, ROOT / "scripts" / "environment.py", "agentdojo"]
    made = subprocess.run(command, capture_output=True, timeout=SET_UP_SECONDS_MAX, check=False)
    need(made.returncode == 0, "AgentDojo cannot be installed (it needs an index of packages)")
    draw = random.Random(SEED)
    acting = [each for each in dojo.pairs() if each.injection != "injection_task_6"]
    return [
        pair
        for suite in ("banking", "slack", "travel")  # judging workspace compares whole mailboxes
        for pair in draw.sample([each for each in acting if each.suite == suite], 4)
    ]


async def test_an_order_in_the_data_is_obeyed_without_a_policy_and_held_back_with_the_rule(drawn):
    """With the rule no attack acts, and AgentDojo says of every task that it is solved."""
    for pair in drawn:
        bare = await dojo.play(pair, "none")
        assert (bare.reached, bare.attacked) == (True, True), pair
        held = await dojo.play(pair, "envelope and rule")
        assert (held.reached, held.attacked, held.utility) == (True, False, True), pair


async def test_an_attacker_who_keeps_to_approved_workers_is_asked_about_too():
    """The envelope alone lets the same worker pay somebody else; the rule does not."""
    pair = dojo.Pair("banking", "user_task_0", "injection_task_5")
    open_ = await dojo.play(pair, "envelope", adaptive=True)
    held = await dojo.play(pair, "envelope and rule", adaptive=True)
    assert (open_.attacked, held.attacked, held.utility) == (True, False, True)


async def test_arguments_bound_to_data_are_what_the_data_says():
    """The limit that models.md states: no rule asks about a value that comes from results."""
    pair = dojo.Pair("banking", "user_task_0", "injection_task_5")
    trial = await dojo.play(pair, "envelope and rule", "bound", adaptive=True)
    assert (trial.reached, trial.attacked) == (True, True)


def test_the_629_pairs_of_the_paper_are_played(drawn):
    """Every user task with every injection task that says what it does."""
    assert (len(drawn), len(dojo.pairs())) == (12, 629)
