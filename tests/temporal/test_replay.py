"""Recorded histories replay: what a core has decided on Temporal it decides again.

A red test is a change that stops runs which are under way when it is installed;
docs/reference/temporal.md says what to do. `python tests/temporal/record.py` records a history of
something new.
"""

import json
from base64 import b64decode
from pathlib import Path

import pytest
from msgspec import structs
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from leadhand.core.decide import recovery
from leadhand.core.state.model import State
from leadhand.temporal.messages import HostingOptions
from leadhand.temporal.payloads import converter
from leadhand.temporal.processes import sandbox
from leadhand.temporal.workflow import RunFlow

FOLDER = Path(__file__).parent / "histories"
HISTORIES = sorted(path.stem for path in FOLDER.glob("*.json"))


async def replay(name: str) -> Exception | None:
    """What is wrong with a history, to today's core."""
    history = WorkflowHistory.from_json("golden", (FOLDER / f"{name}.json").read_text())
    replayer = Replayer(workflows=[RunFlow], workflow_runner=sandbox(), data_converter=converter())
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    return result.replay_failure


def test_there_are_histories_of_all_that_a_workflow_does():
    names = {each.rpartition("-")[0] for each in HISTORIES}
    assert names >= {"review", "retry", "cancel", "continued", "schedule", "fan_out", "planned"}
    told = "".join((FOLDER / f"{each}.json").read_text() for each in HISTORIES)
    for each in (
        "TIMER_FIRED",
        "WORKFLOW_EXECUTION_UPDATE_COMPLETED",
        "WORKFLOW_EXECUTION_CONTINUED_AS_NEW",
        "ACTIVITY_TASK_CANCEL_REQUESTED",
    ):
        assert each in told, each


@pytest.mark.parametrize("name", HISTORIES)
async def test_a_recorded_history_replays(name):
    assert await replay(name) is None


async def test_a_reordered_decision_does_not_replay(monkeypatch):
    """Which of two steps starts first is seen, though both are the same kind of activity."""

    def last_first(state):
        ready = [each for each in state.steps.values() if each.status == "ready"]
        return max(ready, key=lambda each: each.id, default=None)

    monkeypatch.setattr(State, "next_ready", last_first)
    failure = await replay("fan_out-1")
    assert isinstance(failure, NondeterminismError)
    assert "id" in str(failure)


async def test_a_decision_with_another_outcome_does_not_replay(monkeypatch):
    """A pause that comes out longer leads to the same activities, and to other events."""
    choose = recovery.choose

    def patient(state, step):
        choice = choose(state, step)
        return choice._replace(wait_s=choice.wait_s + 0.001)

    monkeypatch.setattr(recovery, "choose", patient)
    assert isinstance(await replay("retry-1"), NondeterminismError)


def test_what_a_run_goes_by_is_recorded_with_it():
    """A default that changes in a later release must not change a run that is under way."""
    history = json.loads((FOLDER / "retry-1.json").read_text())
    began = history["events"][0]["workflowExecutionStartedEventAttributes"]
    begin = json.loads(b64decode(began["input"]["payloads"][0]["data"]))
    assert set(begin["ways"]) == {each.name for each in structs.fields(HostingOptions)}
