"""`[review]` and `[approvers]`: required approvals, and the people who may give them.

    [review]
    rules = [{risk = "high", then = "two"}, {effects = ["pay"], then = "refuse"}]
    reviewers = ["checks:no_weekend"]
    expires = "8 hours"
    key = "~/.config/leadhand/approver.key"

    [approvers]
    ann = "ed25519:…"

The first rule that matches decides. If there are approvers, an approval counts only with a
signature of one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand import plugins
from leadhand.audit.keys import raw_key
from leadhand.core.plan.model import RISKS
from leadhand.core.policy import Rule
from leadhand.core.review.identity import namesake, odd_name
from leadhand.core.visible import visible
from leadhand.core.wording import closest, listed, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

THEN = ("allow", "one", "two", "refuse")
FIELDS = tuple(Rule.__struct_fields__)


def rules(value: Any) -> tuple[Rule, ...]:
    """Read a list of rules. Raise `ValueError` with the end of a sentence."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ValueError('must be a list of rules, as in [{risk = "high", then = "two"}]')
    return tuple(map(_rule, value))


def _rule(table: dict[str, Any]) -> Rule:
    for key in table:
        if key not in FIELDS:
            meant = closest(key, FIELDS)
            fix = f'did you mean "{meant}"?' if meant else f"there are: {listed(FIELDS)}"
            raise ValueError(f"has a rule with {shown(key)}; {fix}")
    try:
        found = msgspec.convert(table, Rule)
    except msgspec.ValidationError as error:
        raise ValueError(f"has an invalid rule: {error}") from None
    if found.then not in THEN:
        raise ValueError(f"has a rule with then = {shown(found.then)}; it is one of {listed(THEN)}")
    if found.risk and found.risk not in RISKS:
        raise ValueError(f"has a rule with risk = {shown(found.risk)}; one of {listed(RISKS)}")
    if found.cost_over is not None and not found.cost_over >= 0:
        raise ValueError("has a rule with a negative cost_over")
    return found


def reviewers(value: Any) -> tuple[str, ...]:
    """Read names of functions, or of reviewers that installed packages provide."""
    if not isinstance(value, list):
        raise ValueError('must be a list, as in ["module:function"]')  # noqa: TRY004 - a sentence
    for each in value:
        module, _, function = each.rpartition(":") if isinstance(each, str) else ("", "", "")
        named = isinstance(each, str) and plugins.part("reviewers", each) is not None
        if not named and (not module or not function.isidentifier()):
            raise ValueError(f"must name functions as module:function, and {shown(each)} does not")
    return tuple(dict.fromkeys(value))


def refuse_namesakes(people: Iterable[str]) -> None:
    """Raise `ValueError` for malformed names, or names that could be mistaken for each other."""
    seen: list[str] = []
    for name in people:
        if wrong := odd_name(name):
            raise ValueError(f"holds the name {visible(name)}: {wrong}")
        same = namesake(name, seen)
        if same is not None:
            both = f"{visible(same)} and {visible(name)}"
            raise ValueError(f"holds {both}, which people could take for one another")
        seen.append(name)


def person_name(value: Any) -> str:
    """Read the name of the acting person."""
    if not isinstance(value, str):
        raise ValueError("must be a text")  # noqa: TRY004 - a sentence
    if value and (wrong := odd_name(value)):
        raise ValueError(f"is not a valid name of a person: {wrong}")
    return value


def approver(value: Any) -> str:
    """Read a person's public key."""
    try:
        raw_key(value)
    except (ValueError, AttributeError, TypeError):
        raise ValueError(
            'must be a public key, as in "ed25519:…"; `leadhand audit-key` prints it'
        ) from None
    return str(value)
