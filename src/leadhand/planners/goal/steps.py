"""Plan steps as documents: parameters that refer to results, and why each step is there."""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, Protocol

import msgspec

from leadhand.core import paths
from leadhand.core.plan import references
from leadhand.core.plan.model import RISKS
from leadhand.planners.goal.operator_costs import bound, price_text
from leadhand.planners.goal.world import ANSWER, HAVE, facts_of_step

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from leadhand.core.plan.model import Doc
    from leadhand.planners.goal.operator_costs import Prices
    from leadhand.planners.goal.operators import Operator, Operators
    from leadhand.planners.goal.world import Fact


# Which steps of a plan can start now, and what each of the others waits for.
#
# A plan is a sequence; its partial order keeps only what matters: a step waits for the one that
# gives what it needs, and two steps that would disturb each other keep their order. They disturb
# each other when one drops what the other needs or gives, or writes what the other writes or reads.


class Touching(Protocol):
    """Anything that needs, gives, drops, reads and writes: an operator, or a step under way."""

    @property
    def needs(self) -> tuple[str, ...]: ...
    @property
    def gives(self) -> tuple[str, ...]: ...
    @property
    def drops(self) -> tuple[str, ...]: ...
    @property
    def reads(self) -> tuple[str, ...]: ...
    @property
    def writes(self) -> tuple[str, ...]: ...


def disturb(one: Touching, other: Touching) -> bool:
    """Return whether two steps must not run at the same time."""
    if one.drops and not {*other.needs, *other.gives}.isdisjoint(one.drops):
        return True
    if other.drops and not {*one.needs, *one.gives}.isdisjoint(other.drops):
        return True
    if one.writes and overlap(one.writes, (*other.writes, *other.reads)):
        return True
    return bool(other.writes) and overlap(other.writes, one.reads)


def overlap(some: Collection[str], others: Collection[str]) -> bool:
    """Return whether any place of one list may be a place of the other."""
    return any(
        paths.overlap(paths.parts(one), paths.parts(each)) for one in some for each in others
    )


def waits(plan: Sequence[Touching], true: Collection[str]) -> list[list[int]]:
    """Return for each step of a plan the earlier ones it must wait for, given the `true` facts."""
    giver: dict[str, int | None] = dict.fromkeys(true)
    found: list[list[int]] = []
    for i, step in enumerate(plan):
        before = {giver[fact] for fact in step.needs if giver.get(fact) is not None}
        before |= {j for j in range(i) if disturb(plan[j], step)}
        found.append(sorted(each for each in before if each is not None))
        for fact in step.drops:
            giver.pop(fact, None)
        for fact in step.gives:
            giver.setdefault(fact, i)
    return found


OTHERS_MAX = 3
ID_CHARS_MAX = 90
_ODD = re.compile(r"[^A-Za-z0-9_-]+")


class StepIds:
    """Ids that are unique in a run and name the worker: `clean`, `clean-2`."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = taken
        self._new: set[str] = set()

    def take(self, operator: Operator) -> str:
        """Return an id for one more step of an operator."""
        words = [operator.worker, *([operator.action] if operator.action else [])]
        return self.fresh("-".join(words))

    def fresh(self, words: str) -> str:
        """Return an id made of `words`."""
        base = _ODD.sub("-", words).strip("-")[:ID_CHARS_MAX] or "step"
        ident, number = base, 1
        while ident in self._taken or ident in self._new:
            number += 1
            ident = f"{base}-{number}"
        self._new.add(ident)
        return ident


class StepWriter(msgspec.Struct):
    """Everything that writing the steps of a plan needs to know."""

    operators: Operators
    prices: Prices
    names: StepIds
    replaces: dict[str, str]
    """Failed steps that one new step each may take the place of: what they gave, to their id."""
    wanted: tuple[str, ...]

    def documents(
        self, plan: Sequence[Operator], facts: Mapping[str, Fact]
    ) -> tuple[list[Doc], list[list[int]]]:
        """Return the steps of a plan, and for each the earlier ones it waits for."""
        order = waits(plan, facts)
        known = dict(facts)
        found: list[Doc] = []
        for i, operator in enumerate(plan):
            # A method stands for steps that get their ids when they are written.
            ident = operator.split or self.names.take(operator)
            doc = document(operator, ident, known)
            after = [found[j]["id"] for j in order[i]]
            doc["depends_on"] = list(dict.fromkeys([*doc.get("depends_on", ()), *after]))
            # It quotes messages of workers, and a reference among words is refused.
            doc["because"] = self._because(operator, plan[i + 1 :]).replace(references.MARK, "{{")
            found.append(doc)
            for fact in operator.drops:
                known.pop(fact, None)
            known = facts_of_step(ident, operator.gives) | known  # The first version stays.
        return found, order

    def finished(self, doc: Doc, operator: Operator) -> Doc:
        """Complete a step of the frontier: its alternative workers, and the step it replaces."""
        others = [] if operator.split else self._stand_ins(operator)
        if others:
            doc["alternatives"] = others
        old = self.replaces.pop("\0".join(sorted(doc.get("gives", ()))), None)
        if old is not None:
            doc["supersedes"] = old
        return tidy(doc)

    def _stand_ins(self, operator: Operator) -> list[str]:
        """Workers that take the same, give the same, and are no riskier."""
        givers = self.operators.givers.get(operator.gives[0], ())
        found = [
            (self.prices.of[name], other.worker)
            for name in givers
            if (other := self.operators.by_name[name]).name != operator.name
            and self.prices.of.get(name, inf) < inf
            and _alike(operator, other)
        ]
        return [worker for _, worker in sorted(found)]

    def _because(self, operator: Operator, later: Sequence[Operator]) -> str:
        gives = set(operator.gives)
        uses = next((each for each in later if not gives.isdisjoint(each.needs)), None)
        if uses is not None:
            fact = next(fact for fact in operator.gives if fact in uses.needs)
            reason = f"gives {fact}, which {uses.name} needs"
        else:
            fact = next((f for f in operator.gives if f in self.wanted), operator.gives[0])
            reason = f"gives {fact}, which is wanted" if fact in self.wanted else f"gives {fact}"
        own = self.prices.of.get(operator.name, inf)
        price = f"price {price_text(own)}"
        if operator.name in self.prices.why:
            price += f", {self.prices.why[operator.name]}"
        return f"{reason} ({price})" + self._not_chosen(operator, fact)

    def _not_chosen(self, operator: Operator, fact: str) -> str:
        others = [n for n in self.operators.givers.get(fact, ()) if n != operator.name]
        if not others:
            return ""
        told = [self._told(name) for name in others[:OTHERS_MAX]]
        if len(others) > OTHERS_MAX:
            told.append(f"{len(others) - OTHERS_MAX} more")
        return f"; not chosen: {', '.join(told)}"

    def _told(self, name: str) -> str:
        price, why = self.prices.of.get(name), self.prices.why.get(name, "")
        if price == inf:
            return f"{name} ({why})" if why else f"{name} (out of reach)"
        shown = "out of reach" if price is None else f"price {price_text(price)}"
        return f"{name} ({shown}{', ' + why if why else ''})"


def document(operator: Operator, ident: str, facts: Mapping[str, Fact]) -> Doc:
    """Return one step as a document, with parameters from present or promised facts."""
    versions = [facts[fact].version for fact in operator.unbound if fact in facts]
    return {
        "id": ident,
        "worker": operator.worker,
        "action": operator.action,
        "parameters": bound(operator, facts),
        "depends_on": list(dict.fromkeys(v for v in versions if v not in (HAVE, ANSWER))),
        "needs": list(operator.needs),
        "gives": list(operator.gives),
        "drops": list(operator.drops),
    }


def tidy(doc: Doc) -> Doc:
    """Return the document without empty fields; `gives` stays, for it may withdraw a promise."""
    return {key: value for key, value in doc.items() if value or key == "gives"}


def outlook_steps(docs: Iterable[Doc]) -> tuple[Doc, ...]:
    """Steps as they stand in an outlook."""
    shown = ("id", "worker", "action", "depends_on", "needs", "gives", "drops", "because")
    return tuple({key: doc[key] for key in shown if doc.get(key)} for doc in docs)


def _alike(one: Operator, other: Operator) -> bool:
    return (
        one.action == other.action
        and one.takes == other.takes
        and set(one.needs) == set(other.needs)
        and set(one.gives) == set(other.gives)
        and set(one.drops) == set(other.drops)
        and not {*one.may_take} ^ {*other.may_take}
        and RISKS.index(other.risk) <= RISKS.index(one.risk)
        and other.writes == one.writes
        and other.reads == one.reads
    )
