"""Why there is no plan: the workers that could give a fact, and the facts that they lack."""

from __future__ import annotations

from difflib import get_close_matches
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.wording import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from leadhand.planners.goal.operator_costs import Prices
    from leadhand.planners.goal.operators import Operators

CLAUSES_MAX = 12
GIVERS_MAX = 4


class NoWay(NamedTuple):
    """Why some facts cannot become true."""

    text: str
    missing: tuple[str, ...]
    """Facts that no worker gives, or gives any more: a person might."""
    spent: bool
    """Whether only money is missing."""


def _meant(fact: str, operators: Operators) -> str:
    """Return a question that suggests the known fact most similar to an unknown one."""
    close = get_close_matches(fact, sorted(operators.givers), n=1, cutoff=0.75)
    return f" (did you mean {close[0]}?)" if close else ""


def why_not(
    wanted: Iterable[str], reached: Collection[str], operators: Operators, prices: Prices
) -> NoWay:
    """Follow the missing facts from the wanted ones down to their roots, and explain them."""
    goal = [fact for fact in wanted if fact not in reached]
    clauses: list[str] = []
    missing: list[str] = []
    reasons: list[str] = []
    queue, seen = list(goal), set(goal)
    for fact in queue:
        givers = operators.givers.get(fact, [])
        if not givers:
            clauses.append(f"no worker gives {fact}{_meant(fact, operators)}")
            missing.append(fact)
            continue
        barred = [name for name in givers if prices.of.get(name) == inf]
        if barred:
            missing.append(fact)
        lacks: dict[str, list[str]] = {}
        for name in givers[:GIVERS_MAX]:
            if name in barred:
                reasons.append(prices.why.get(name, ""))
                clauses.append(f"{name} gives {fact} but {prices.why.get(name, 'is barred')}")
                continue
            lacks[name] = [n for n in operators.by_name[name].needs if n not in reached]
            queue += [need for need in lacks[name] if need not in seen]
            seen.update(lacks[name])
        alone = fact in goal and len(givers) == 1
        clauses += [
            f"{fact} needs {listed(needs)}"
            if alone
            else f"{name} gives {fact} but needs {listed(needs)}"
            for name, needs in lacks.items()
        ]
        if len(givers) > GIVERS_MAX:
            clauses.append(f"{len(givers) - GIVERS_MAX} more that give {fact} lack something too")
    more = [f"and {len(clauses) - CLAUSES_MAX} more"] if len(clauses) > CLAUSES_MAX else []
    text = "; ".join([*clauses[:CLAUSES_MAX], *more])
    spent = bool(reasons) and all(" is left" in each for each in reasons)
    return NoWay(text, tuple(dict.fromkeys(missing)), spent)


def impossible(pair: tuple[str, str]) -> str:
    """Return the message for two wanted facts that exclude each other."""
    one, other = pair
    if one == other:
        return f"it is impossible: {one} can never become true"
    return f"it is impossible: {one} and {other} can never be true together"


def exhausted_message(wanted: Iterable[str], nodes: int) -> str:
    """Return the message for a search that tried everything."""
    return (
        f"it is impossible: {', '.join(wanted)} cannot all be true together; every state that "
        f"can be reached was looked at ({nodes})"
    )


def unaffordable(cost: float, left: float) -> str:
    """Return the message for a proof that every plan costs more than is left."""
    return (
        f"no way costs as little as is left of the budget, {left:g}; the cheapest one found "
        f"costs {cost:g}"
    )


def maybe_unaffordable(cost: float, left: float, nodes: int) -> str:
    """Return the message for a search that found no affordable plan and proved nothing."""
    return (
        f"the cheapest way found costs {cost:g}, and {left:g} of the budget is left; whether there "
        f"is a cheaper one is not known after {nodes} states"
    )


def plan_difference(names: Collection[str], before: Collection[str], prices: Prices) -> str:
    """Return how a new plan differs from the last one."""
    parts = []
    if before:
        # A method is told by the steps that carry it out.
        new = [name for name in dict.fromkeys(names) if name not in before and name[:1] != "@"]
        gone = [name for name in dict.fromkeys(before) if name not in names]
        parts += [f"new: {listed(new)}"] if new else []
        parts += [f"{name} {prices.why[name]}" for name in gone if name in prices.why][:3]
    return "; ".join([*parts, f"{_count(len(names))} to go"])


def _count(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"


def heard(
    advised: Mapping[str, str], chosen: Collection[str], prices: Prices, operators: Operators
) -> list[str]:
    """Return for each recommendation whether it was followed, and if not why."""
    found = []
    for worker, words in sorted(advised.items()):
        own = [name for name, each in operators.by_name.items() if each.worker == worker]
        if any(operators.by_name[name].worker == worker for name in chosen):
            found.append(f'followed "{words}"')
        elif not own:
            found.append(f'declined "{words}": there is no such worker, or it gives nothing')
        elif any(prices.of.get(name) == inf for name in own):
            barred = next(name for name in own if prices.of.get(name) == inf)
            found.append(f'declined "{words}": it {prices.why.get(barred, "is barred")}')
        elif not any(name in prices.of for name in own):
            found.append(f'declined "{words}": it gives nothing that is wanted now')
        else:
            found.append(f'declined "{words}": it lacks what it needs, or another way is cheaper')
    return found
