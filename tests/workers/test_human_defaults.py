"""A step that a person does: what they are asked, and what counts when they say nothing."""

import pytest

from leadhand import Goal, Human, Lead, worker
from leadhand.core.review.decisions import NOBODY
from leadhand.errors import UsageError
from leadhand.stores.memory import MemoryStore
from leadhand.testing import simulate


@worker(gives="letter")
async def write(reader: str) -> str:
    """To whoever reads it."""
    return f"Dear {reader}"


def events(store, kind):
    """Events of a kind in the one run of a store."""
    import msgspec

    (run,) = [each.run for each in store.runs() if each.run != "$host"]
    docs = [msgspec.json.decode(entry.body) for entry in store.read(run)]
    return [doc for doc in docs if doc["type"] == kind]


def test_silence_may_count_as_an_answer():
    """The default is the step's result, and the log says that nobody gave it."""
    who = Human("editor", "Who reads it?", gives="reader", timeout=0.05, default="council")
    store = MemoryStore()
    outcome = Lead([write, who], store=store).run_sync(Goal(want="letter"))
    assert outcome.result == "Dear council"
    (asked,) = events(store, "QuestionAsked")
    assert 'Who reads it? Default without an answer within 50ms: "council".' in asked["text"]
    (answered,) = events(store, "QuestionAnswered")
    assert (answered["actor"], answered["choice"], answered["data"]) == (NOBODY, "done", "council")


def test_without_a_default_silence_means_that_they_cannot():
    """Which is a failure like any other: somebody else does it, or a person is asked."""
    who = Human("editor", gives="reader", timeout=0.05)
    outcome = Lead([write, who], store=MemoryStore()).run_sync(Goal(want="letter"))
    assert outcome.status == "waiting"
    assert outcome.steps["editor"].error.failure_class == "permanent"


def test_a_default_is_judged_as_any_answer_is():
    """It may be any data; a step's criteria hold for it too."""
    who = Human("count", "How many?", timeout="1h", default={"rows": 3})
    plan = {"steps": [{"id": "a", "worker": "count", "success_criteria": "data.rows == 3"}]}
    done = simulate(plan, workers=[who])
    assert done.outcome.result == {"rows": 3}
    assert done.seconds >= 3600
    plan["steps"][0] |= {"success_criteria": "data.rows == 4", "failure_action": "abort"}
    assert simulate(plan, workers=[who]).outcome.status == "failed"


def test_a_default_survives_a_crash():
    """The question and its time are in the log: another host lets it count."""
    who = Human("count", "How many?", timeout="1h", default=7)
    done = simulate({"steps": [{"id": "a", "worker": "count"}]}, workers=[who], crash_after=[2])
    assert (done.hosts, done.outcome.result) == (2, 7)


def test_a_default_needs_a_time():
    """Otherwise it would never count; and it is data."""
    with pytest.raises(UsageError, match="timeout="):
        Human("count", default=7)
    with pytest.raises(ValueError, match="default of count"):
        Human("count", timeout=1, default={1, 2})
