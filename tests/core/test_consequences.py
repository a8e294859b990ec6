"""What an approval leads to, and the checklist: the same for the page and the terminal."""

from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.review.view import plan_review
from leadhand.core.state.model import Now

CATALOG = Catalog(
    [
        WorkerSpec(name="fetch", offers={"": Offer(effects=(), timeout_s=5)}),
        WorkerSpec(name="quick", offers={"": Offer()}),
        WorkerSpec(
            name="deploy",
            description="Deploy it.",
            offers={"": Offer(effects=("cluster",), risk="high", cost=2.0)},
        ),
        WorkerSpec(name="ann", kind="human", offers={"": Offer(effects=())}),
    ]
)
NOON = 1_800_000_000_000_000


def review(*steps, limits=None, **plan):
    doc = {"goal": "Ship it", "steps": list(steps), **plan}
    return plan_review(
        doc, {}, CATALOG, Now(NOON, NOON), context="", limits=limits or {}, not_loaded=[]
    )


def told(doc, topic):
    return [(each.text, each.steps) for each in doc.consequences if each.topic == topic]


def check(doc, name):
    (found,) = [each for each in doc.checks if each.name == name]
    return found.mark, found.steps


LOOK = {"id": "look", "worker": "fetch"}
SHIP = {"id": "ship", "worker": "deploy", "depends_on": ["look"], "timeout": "5m"}


def test_a_step_that_uses_a_result_does_not_start_at_once():
    use = {"id": "use", "worker": "fetch", "parameters": {"x": "${{ steps.look.data }}"}}
    assert told(review(LOOK, use), "start") == [
        ("starts at once", ["look"]),
        ("starts after the steps before it", ["use"]),
    ]


def test_it_says_what_starts_changes_asks_costs_and_can_be_undone():
    sign = {"id": "sign", "worker": "ann", "depends_on": ["ship"], "failure_action": "abort"}
    doc = review(LOOK, SHIP, sign, limits={"budget": 5})
    assert told(doc, "start") == [
        ("starts at once", ["look"]),
        ("starts after the steps before it", ["ship", "sign"]),
    ]
    assert told(doc, "changes") == [("changes cluster", ["ship"])]
    assert told(doc, "asks") == [
        ("runs without asking again", ["look", "ship"]),
        ("asks a person to carry it out", ["sign"]),
        ("asks a person if it fails and no recovery is left", ["look", "ship"]),
    ]
    assert told(doc, "cost") == [("at most 5, the budget of the run; the steps declare 2", [])]
    assert told(doc, "undo") == [("cannot be rolled back", ["ship"])]
    assert check(doc, "rollback") == ("warning", ["ship"])
    assert check(doc, "side effects")[0] == check(doc, "budget")[0] == "ok"
    assert doc.step_facts["sign"].person
    assert not doc.step_facts["ship"].person


def test_what_is_not_declared_is_said_to_be_unknown():
    doc = review({"id": "odd", "worker": "quick"})
    assert told(doc, "changes") == [("unknown: worker quick declares no effects", ["odd"])]
    assert told(doc, "undo")[0][1] == ["odd"]
    assert check(doc, "side effects") == ("warning", ["odd"])
    assert check(doc, "rollback") == ("note", ["odd"])
    assert check(doc, "budget")[0] == "note"


def test_a_start_time_and_an_undo_are_told():
    undo = {"worker": "fetch"}
    later = {**SHIP, "depends_on": [], "not_before": "2099-01-01T02:00:00Z", "undo": undo}
    doc = review({**later, "timeout": None}, limits={"approval_s": 3600, "budget": None})
    assert told(doc, "start") == [("starts at 2099-01-01 02:00:00 UTC or later", ["ship"])]
    assert told(doc, "undo") == [("can be rolled back, undo by fetch", ["ship"])]
    assert check(doc, "rollback")[0] == "ok"
    assert check(doc, "expiry") == ("warning", ["ship"])


def test_a_plan_that_was_not_linted_is_not_said_to_have_timeouts():
    many = [{"id": f"s{number}", "worker": "deploy"} for number in range(501)]
    assert check(review(*many), "timeouts")[0] == "note"
    assert check(review({"id": "a", "worker": "deploy"}), "timeouts") == ("note", ["a"])
    assert check(review(SHIP, LOOK), "timeouts")[0] == "ok"


def test_a_planner_that_may_revise_is_named():
    doc = review(LOOK, planner="goal")
    assert told(doc, "asks")[-1][0].startswith("planner goal may revise the plan: within this")
