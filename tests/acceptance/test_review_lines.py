"""A review in lines: values that can be read, and none that can be mistaken for another."""

import pytest

from leadhand.cli.rendering.review import readable, review_lines, value_lines
from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.policy import Policy
from leadhand.core.review.limits import limits_of
from leadhand.core.review.view import plan_review
from leadhand.core.state.model import Now


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("v2.1.4", "v2.1.4"),
        ("two words", "two words"),
        ("Größe", "Größe"),
        ("1.10", '"1.10"'),
        ("true", '"true"'),
        ("none", '"none"'),
        ("", '""'),
        (" x", '" x"'),
        ("- x", '"- x"'),
        ('"x"', '"\\"x\\""'),
        ("a\u202eb", '"a\\u202eb"'),
        ("a\x1b[2J", '"a\\u001b[2J"'),
        (1.5, "1.5"),
        (True, "true"),
        (None, "none"),
        ([], "none"),
        ({}, "empty"),
        (["a", "b"], "a, b"),
        (["a, b"], '"a, b"'),
        ([["a"], "b"], "(a), b"),
        ({"k": 1}, "k: 1"),
    ],
)
def test_a_value_is_readable_and_unambiguous(value, text):
    assert readable(value) == text


def test_nested_values_and_texts_of_several_lines_are_indented():
    """Each line of a text stands behind a bar; what cannot be seen in it is escaped."""
    value = {"run": "one\ntwo\x1b[2J", "list": [{"a": 1}, {"a": 2}], "odd key": 3}
    assert [*value_lines("parameters", value)] == [
        "parameters:",
        "  run:",
        "    | one",
        '    | "two\\u001b[2J"',
        "  list:",
        "    1:",
        "      a: 1",
        "    2:",
        "      a: 2",
        '  "odd key": 3',
    ]


def spec(name, **offer):
    made = {"": Offer(**offer)}
    return WorkerSpec(name=name, version="1", description=f"Does {name}.", offers=made)


def lines(*steps, colour=False, **plan):
    known = [
        spec("pay", risk="high", effects=("money",), cost=2.0),
        spec("look", risk="low", effects=()),
        spec("quick"),
    ]
    doc = {"goal": "Pay", "steps": list(steps), **plan}
    limits, now = limits_of(Policy()), Now(1, 1)
    catalog = Catalog(known)
    found = plan_review(doc, {}, catalog, now, context="", limits=limits, not_loaded=[])
    return found, review_lines(found, colour=colour)


PAY = {"id": "pay", "worker": "pay"}
LOOK = {"id": "look", "worker": "look"}


@pytest.mark.parametrize(
    ("steps", "plan", "parts"),
    [
        ([PAY], {}, ("1 step", "risk high", "side effects: money", "cannot be rolled back: pay")),
        ([PAY | {"undo": {"worker": "look"}}], {}, ("can be rolled back", "cost 2")),
        ([PAY], {"rollback_plan": "back"}, ("can be rolled back",)),
        ([LOOK], {"estimated_duration": "15 minutes"}, ("side effects: none", "estimate 15m")),
        ([{"id": "q", "worker": "quick"}], {}, ("(quick declares none)", "rollback not declared")),
    ],
)
def test_the_first_line_says_what_is_decided(steps, plan, parts):
    found, shown = lines(*steps, **plan)
    told = shown[0].split(" · ")
    assert told[0] == 'Plan "Pay"'
    counted = " (the policy counts it as low)"
    assert found.summary == " · ".join(told[1:]).replace(counted, "")
    for part in parts:
        assert part in shown[0]
    assert found.reversible is ("can be rolled back" in shown[0] or "effects: none" in shown[0])


@pytest.mark.parametrize(("worker", "named"), [("pay", True), ("look", False)])
def test_an_undo_of_high_risk_is_named(worker, named):
    """Its rollback waits for a person, while the failed step's effect stays."""
    found, _ = lines(PAY | {"undo": {"worker": worker}})
    assert ("undo-risky" in {each.rule for each in found.findings}) is named


def test_a_worker_with_several_actions_describes_none_of_them():
    """Its own words are of one action, which need not be that of the step."""
    offers = {"deploy": Offer(effects=()), "health": Offer(effects=())}
    site = WorkerSpec(name="site", version="1", description="Deploy it.", offers=offers)
    doc = {"goal": "g", "steps": [{"id": "h", "worker": "site", "action": "health"}]}
    found = plan_review(
        doc, {}, Catalog([site]), Now(1, 1), context="", limits=limits_of(Policy()), not_loaded=[]
    )
    assert "Deploy it." not in "\n".join(review_lines(found, colour=False))


def test_findings_graph_and_steps_follow_with_what_each_worker_does():
    found, shown = lines(LOOK, PAY | {"depends_on": ["look"]}, {"id": "q", "worker": "quick"})
    text = "\n".join(shown)
    order = [text.index(part) for part in ("Findings", "Graph", "Steps (3)", "Plan digest: ")]
    assert order == sorted(order)
    rules = {each.rule for each in found.findings}
    assert {"effects-undeclared", "undo-missing", "budget-missing", "LH602"} <= rules
    assert "  ! worker quick declares no effects" in text
    assert "  └─ pay: pay" in text
    assert "  2. pay · pay · risk high\n     | Does pay.\n     depends_on: look" in text
    assert "[" not in text.partition("Steps (3)")[2], "no fragments of JSON"
    assert "\x1b" not in text
    assert "\x1b[31mrisk high\x1b[0m" in lines(PAY, colour=True)[1][0]
