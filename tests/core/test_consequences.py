"""What an approval leads to, and the checklist: the same for the page and the terminal."""

from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.review.consequences import (
    NOT_VERIFIED,
    UNITS,
    Approved,
    consequence_line,
    consequences,
    in_short,
    step_facts,
)
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
        ("at once", ["look"]),
        ("then", ["use"]),
    ]


def test_it_says_what_starts_changes_asks_costs_and_can_be_undone():
    sign = {"id": "sign", "worker": "ann", "depends_on": ["ship"], "failure_action": "abort"}
    doc = review(LOOK, SHIP, sign, limits={"budget": 5})
    assert told(doc, "start") == [
        ("at once", ["look"]),
        ("then", ["ship"]),
        ("then", ["sign"]),
    ]
    assert told(doc, "changes") == [("cluster", ["ship"])]
    assert told(doc, "asks") == [("a person carries it out", ["sign"])]
    assert told(doc, "failure") == [
        ("a person is asked", ["look", "ship"]),
        ("the run stops", ["sign"]),
    ]
    assert doc.in_short == (
        "3 steps run once it is approved: look, then ship, then sign. Side effects: cluster; "
        "cannot be rolled back: ship. "
        "Cost limit: 5 dollars and units together."
    )
    assert not told(doc, "approvals") + told(doc, "reject")  # the policy decides when it runs
    assert told(doc, "cost") == [
        (f"at most 5 {UNITS}, the budget of the run; the steps declare 2 units", [])
    ]
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
    when = "at 2099-01-01 02:00:00 UTC, or at once if that has passed"
    assert told(doc, "start") == [(when, ["ship"])]
    assert ("an approval expires 1h after it was given", True) in [
        (text.partition(":")[0], "held" in text) for text, _ in told(doc, "covers")
    ]
    assert told(doc, "undo") == [("can be rolled back, undo by fetch", ["ship"])]
    assert check(doc, "rollback")[0] == "ok"
    assert check(doc, "expiry") == ("warning", ["ship"])


def test_a_step_is_told_with_its_values_and_a_time_with_its_zone():
    """Long values are shortened; the time stands in UTC and as the plan has it."""
    given = {"database": "login_prod", "to": "v17", "text": "x" * 99, "n": 3, "more": [1]}
    at = "2099-01-01 03:30 Europe/Berlin"
    doc = review({**SHIP, "depends_on": [], "parameters": given, "not_before": at})
    values = f"database login_prod, to v17, text {'x' * 39}…, n 3"
    assert doc.step_facts["ship"].doing.startswith(f"deploy: {values}")
    both = f"2099-01-01 02:30:00 UTC ({at})"
    assert both in doc.in_short
    assert both in told(doc, "start")[0][0]


def test_a_rollback_says_what_stays():
    """Only what may have run before the step that fails."""
    chain = [
        {"id": "early", "worker": "deploy"},
        {"id": "ship", "worker": "deploy", "depends_on": ["early"]},
        {"id": "late", "worker": "deploy", "depends_on": ["ship"]},
    ]
    chain[1] |= {"failure_action": "rollback", "undo": {"worker": "fetch"}}
    failure = dict(told(review(*chain), "failure"))
    assert failure["the run stops and is rolled back, but what early did stays"] == ["ship"]


def test_a_start_time_that_has_passed_is_not_to_come():
    doc = review({**SHIP, "depends_on": [], "not_before": "2020-01-01T02:00:00Z"})
    assert told(doc, "start") == [("at once", ["ship"])]
    assert "not before" not in doc.in_short


def test_a_plan_that_was_not_linted_is_not_said_to_have_timeouts():
    many = [{"id": f"s{number}", "worker": "deploy"} for number in range(501)]
    assert check(review(*many), "timeouts")[0] == "note"
    assert check(review({"id": "a", "worker": "deploy"}), "timeouts") == ("note", ["a"])
    assert check(review(SHIP, LOOK), "timeouts")[0] == "ok"


def test_a_planner_that_may_revise_is_named():
    doc = review(LOOK, planner="goal")
    assert told(doc, "asks")[-1][0].startswith("only if planner goal goes beyond this approval")
    assert told(doc, "failure") == [("planner goal may revise the plan", [])]


def test_steps_are_told_in_the_order_in_which_they_start():
    """Each wave has a line; from the fifth on they share one."""
    chain = [
        {"id": f"s{number}", "worker": "fetch", "depends_on": [f"s{number - 1}"] * bool(number)}
        for number in range(8)
    ]
    found = told(review(*chain), "start")
    assert found[:2] == [("at once", ["s0"]), ("then", ["s1"])]
    more = ("then, each after the steps that it depends on", ["s4", "s5", "s6", "s7"])
    assert found[4:] == [more]


def test_a_rollback_plan_is_told_by_its_steps():
    back = [
        {"id": "data", "worker": "deploy", "action": "restore", "depends_on": ["slot"]},
        {"id": "slot", "worker": "deploy", "action": "switch"},
    ]
    doc = review(SHIP, LOOK, rollback_plan={"steps": back})
    assert told(doc, "undo") == [
        (f"can be rolled back, by the rollback plan, {NOT_VERIFIED}", ["ship"]),
        ("the rollback plan runs slot (deploy switch), data (deploy restore)", []),
    ]
    assert "can be rolled back (not verified)" in doc.in_short
    checked = [back[0] | {"success_criteria": "data.ok"}, back[1]]
    doc = review(SHIP, LOOK, rollback_plan={"steps": checked})
    assert told(doc, "undo")[0] == ("can be rolled back, by the rollback plan", ["ship"])
    assert "can be rolled back." in doc.in_short


KNOWN = Approved(
    [SHIP],
    {},
    CATALOG,
    {},
    2.0,
    None,
    NOON,
    kept=[{"id": "tidy", "worker": "fetch", "depends_on": ["old"]}],
    heirs={"old": "ship"},
    people=2,
    done=1,
)


def lines(known):
    found = consequences(known, step_facts(known))
    return [f"{each.topic} {consequence_line(each)}" for each in found]


def test_nothing_starts_before_the_second_approval():
    """A step that was approved before waits for the one that replaces what it depends on."""
    found = lines(KNOWN)
    assert found[0] == (
        "approvals 0 of 2 given: 2 different people must approve before anything starts"
    )
    assert found[1:4] == [
        "start after the second approval: ship",
        "start then: tidy",
        "start of these, approved before and unchanged: tidy",
    ]
    assert found[-1].endswith("the run ends as rejected; what 1 finished step did stays")
    tell = {"id": "tell", "worker": "deploy"}
    apart = lines(KNOWN._replace(kept=[tell]))
    assert "start approved before, do not wait for this approval: tell" in apart
    assert "changes cluster: ship" in apart
    back = lines(KNOWN._replace(kept=[{**tell, "depends_on": ["old"]}]))
    assert "changes cluster: ship, tell" in back, "an effect of what was approved before"
    assert in_short(KNOWN, step_facts(KNOWN)).startswith(
        "2 steps run after the second approval (1 to approve, 1 approved before): ship, then tidy. "
    )


def test_many_steps_are_counted_and_few_are_named_in_their_order():
    """The order of a large plan is told in lines of its own; when it starts, always."""
    alike = [{"id": f"s{n}", "worker": "deploy"} for n in range(5)]
    last = {"id": "last", "worker": "deploy", "depends_on": ["s0"]}
    at = {"last": 3_600_000_000}

    def short(*steps):
        known = KNOWN._replace(steps=[*steps], kept=[], people=0, now=1, instants=at)
        return in_short(known, step_facts(known)).partition("Side")[0].strip()

    assert short(alike[0], alike[1], last) == (
        "3 steps run once it is approved: s0 and s1, then last not before 1970-01-01 01:00:00 UTC."
    )
    assert short(*alike, last) == (
        "6 steps run once it is approved, last not before 1970-01-01 01:00:00 UTC."
    )


def test_the_missing_approval_and_those_who_may_give_it_are_named():
    first = KNOWN._replace(given=["ann"], approvers=["ann", "bob"])
    assert lines(first)[0] == (
        "approvals 1 of 2 given (by ann): another person must approve before anything starts; "
        "approvers: ann, bob"
    )
    assert lines(KNOWN._replace(people=1))[0] == "approvals one is enough"


def test_who_started_the_run_counts_only_as_the_first():
    begun = KNOWN._replace(starter="ann")
    assert lines(begun)[0].endswith("; ann, who started the run, counts only as the first")
    other = lines(begun._replace(given=["bob"]))[0]
    assert other.endswith("; not ann, who started the run and can only be the first")
    assert "started" not in lines(begun._replace(given=["ann"]))[0]
    assert "started" not in lines(begun._replace(approvers=["bob", "eve"]))[0]
