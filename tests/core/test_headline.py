"""One sentence about a run, from recorded histories: what every surface shows."""

import pytest

from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State
from leadhand.core.views.headline import headline
from tests.golden.test_replay import events

ENDED = {
    "budget": "Failed after 1s: step s2 would pass the budget of 5.0; 2 steps were not started.",
    "cancel": "Cancelled after 16s by ann: enough; 0 of 3 steps succeeded; 1 step was not started.",
    "chain": "Succeeded after 3s: all 3 steps succeeded.",
    "iterative": "Succeeded after 3s (2s working, 1s waiting): 3 of 4 steps succeeded; "
    "1 was left out; 1 earlier step was replaced after step a failed.",
    "rejection": "Rejected: ann rejected revision 1: not today.",
    "reroute": "Failed after 0s: step a (other) failed 2 times: it broke; 1 step was not started.",
    "review": "Succeeded after 20m (0s working, 20m waiting): both steps succeeded.",
}


def sentences(name):
    """Return the sentence after each event of a history, without repetitions."""
    state, found = State(), []
    for at, _batch, event in events(name):
        evolve(state, event, at)
        if not found or found[-1] != headline(state):
            found.append(headline(state))
    return found


@pytest.mark.parametrize("name", ENDED)
def test_how_a_run_ended_is_one_sentence(name):
    assert sentences(name)[-1] == ENDED[name]


def test_an_open_run_says_for_what_it_waits_and_names_no_time():
    told = sentences("review")
    assert "Waiting for approval: revision 1 (2 steps)." in told
    assert "Running: 1 of 2 steps succeeded, 1 running." in told
    assert not any(" after " in each for each in told[:-1])
