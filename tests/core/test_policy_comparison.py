"""In what a policy allows more than another."""

import pytest
from msgspec import structs

from leadhand.core.policy import Policy, Rule
from leadhand.core.review.limits import (
    MOST,
    PACE,
    POOLS,
    WORD,
    changed_limits,
    limits_of,
    loosened_limits,
)

TWO, ONE, ALLOW = (
    Rule(risk="high", then="two"),
    Rule(then="one"),
    Rule(workers=("w",), then="allow"),
)
REFUSE = Rule(effects=("pay",), then="refuse")


def test_every_constant_is_of_one_kind():
    """A new one must say whether it allows anything."""
    kinds = [*MOST, *POOLS, *WORD, *PACE]
    assert sorted(kinds) == sorted(Policy.__struct_fields__)


@pytest.mark.parametrize("name", MOST)
def test_more_of_a_number_is_looser(name):
    """And less is not; no number at all is the most."""
    low, high = (Policy(**{name: each}) for each in (5, 6))
    assert loosened_limits(limits_of(high), low) == []
    assert loosened_limits(limits_of(low), low) == []
    [said] = loosened_limits(limits_of(low), high)
    assert "6 instead of 5" in said
    if getattr(Policy(), name) is None:
        assert loosened_limits(limits_of(Policy()), low) == []
        assert "without limit instead of 5" in loosened_limits(limits_of(low), Policy())[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"auto_risk": "low"}, {"auto_risk": "high"}),
        ({"review": True}, {"review": False}),
        ({}, {"agent_risk": "low"}),
        ({"agent_risk": "low"}, {"agent_risk": "medium"}),
        ({"reviewers": ("a", "b")}, {"reviewers": ("a",)}),
        ({"approvers": {"ann": "k"}}, {"approvers": {}}),
        ({"approvers": {"ann": "k"}}, {"approvers": {"ann": "other"}}),
        ({"approvers": {"ann": "k"}}, {"approvers": {"ann": "k", "bob": "b"}}),
        ({"worker_concurrency": {"w": 1}}, {"worker_concurrency": {"w": 2}}),
        ({"worker_concurrency": {"w": 1}}, {"worker_concurrency": {}}),
        ({"resources": {"db": 1}}, {"resources": {"db": 9}}),
        ({"rules": (TWO,)}, {"rules": ()}),
        ({"rules": (REFUSE,)}, {"rules": (TWO,)}),
        ({"rules": ()}, {"rules": (ALLOW,)}),
        ({"rules": (TWO,)}, {"rules": (ONE, TWO)}),
        ({"rules": (TWO, ONE)}, {"rules": (ONE, TWO)}),
        ({"rules": (TWO, ALLOW)}, {"rules": (ALLOW, TWO)}),
    ],
)
def test_one_way_is_looser(before, after):
    """Whoever must allow what."""
    assert len(loosened_limits(limits_of(Policy(**before)), Policy(**after))) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"auto_risk": "high"}, {"auto_risk": "low"}),
        ({}, {"review": True}),
        ({"agent_risk": "medium"}, {"agent_risk": "low"}),
        ({"agent_risk": "medium"}, {}),
        ({"reviewers": ("a",)}, {"reviewers": ("b", "a")}),
        ({}, {"approvers": {"ann": "k"}}),
        ({"approvers": {"ann": "k", "bob": "b"}}, {"approvers": {"ann": "k"}}),
        ({}, {"worker_concurrency": {"w": 2}}),
        ({"rules": (ALLOW, TWO)}, {"rules": (TWO,)}),
        ({"rules": (ONE,)}, {"rules": (REFUSE, TWO, ONE)}),
        ({}, {"backoff_s": 9.0, "jitter": 0.5, "park_s": 1.0}),
    ],
)
def test_the_other_way_is_not(before, after):
    """Tighter, or no matter of allowing."""
    assert loosened_limits(limits_of(Policy(**before)), Policy(**after)) == []


def test_limits_are_written_in_one_spelling():
    """Whatever a tool makes of 5.0 on the way; and what is not known here says nothing."""
    assert limits_of(Policy(budget=5.0))["budget"].__class__ is int
    assert limits_of(Policy(budget=0.5))["budget"] == 0.5
    assert loosened_limits({"of_a_later_version": 3}, Policy()) == []


def test_what_is_not_as_usual_is_shown():
    """And the budget always."""
    assert dict(changed_limits(limits_of(Policy()))) == {"budget": None}
    odd = structs.replace(Policy(), max_concurrency=3, budget=5.0)
    assert dict(changed_limits(limits_of(odd))) == {"budget": 5, "concurrency": 3}
