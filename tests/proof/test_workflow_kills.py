"""A slice of the job of many agents: few agents, two kills."""

import pytest

from tests.proof.workflow_kills import carry_out

pytestmark = [pytest.mark.slow, pytest.mark.real]


def test_no_agent_that_has_finished_runs_again(tmp_path):
    """Counted outside the database: every result is there, and none was made twice."""
    found = carry_out(tmp_path, kills=2, seed=3, phases=(4, 2, 1))
    assert found.kills >= 1
    assert (found.finished, found.again, found.status) == (7, 0, "succeeded")
    assert found.verified
