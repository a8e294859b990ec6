"""Facts: whether every need is met where it arises, and the goal at the end.

Workers, or the steps themselves, declare which facts they need, give and drop. A plan that uses
facts (a step has `needs` or `gives`, or the goal has `want`) is followed from its start: a fact
holds for a step if an earlier step gives it and no step that may come between drops it. A parameter
given to a step counts as a need that is met. Plans without facts, and plans without a catalogue,
are not judged: undeclared facts cannot be checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.lint.document_form import join
from leadhand.core.wording import listed, shown

if TYPE_CHECKING:
    from leadhand.core.catalog import Catalog
    from leadhand.core.lint.context import LintContext
    from leadhand.core.lint.findings import Findings


LOOK_MAX = 16
"""The number of givers and droppers examined for one need: the nearest ones."""


def check_facts(whole: LintContext, out: Findings, *, advice: bool) -> None:
    """Report unmet needs and an unmet goal; as advice, superfluous or merely claimed facts."""
    if whole.catalog is None or not _speaks(whole):
        return
    book = _Book(whole, whole.catalog)
    dropped: set[tuple[str, str]] = set()
    for ident in whole.order.names:
        for fact in whole.facts(whole.steps[ident], "needs"):
            if fact not in whole.steps[ident].get("parameters", {}):
                _check_need(book, fact, ident, dropped, out)
    if whole.plan.get("final", True):
        _check_goal(book, out)
    if advice:
        _check_use(book, out)
        _check_claims(book, out)


def _speaks(whole: LintContext) -> bool:
    if whole.goal.get("want"):
        return True
    return any("needs" in step or "gives" in step for _, step in whole.numbered)


class _Book:
    """The steps that give and drop each fact, in the order of the plan."""

    def __init__(self, whole: LintContext, catalog: Catalog) -> None:
        self.whole, self.catalog = whole, catalog
        self.have = {*whole.goal.get("have", {}), *whole.plan.get("params", {})}
        self.want = list(dict.fromkeys(whole.goal.get("want", ())))
        self.givers: dict[str, list[str]] = {}
        self.takers: dict[str, list[str]] = {}
        self.needed: set[str] = set(self.want)
        for ident in whole.order.names:
            step = whole.steps[ident]
            self.needed.update(whole.facts(step, "needs"))
            for fact in whole.facts(step, "gives"):
                self.givers.setdefault(fact, []).append(ident)
            for fact in whole.facts(step, "drops"):
                self.takers.setdefault(fact, []).append(ident)

    def near(self, whose: dict[str, list[str]], fact: str, number: int) -> list[str]:
        """Return the steps of `whose[fact]` nearest to `number`, on either side."""
        found = whose.get(fact, [])
        if len(found) <= LOOK_MAX:
            return found
        numbers = self.whole.order.number
        return sorted(found, key=lambda ident: abs(numbers[ident] - number))[:LOOK_MAX]

    def helper(self, fact: str) -> str:
        """Return a hint which step or worker could give a fact."""
        if self.givers.get(fact):
            giver = shown(self.givers[fact][0])
            return f'Step {giver} gives it: add {giver} to "depends_on".'
        able = _providers(self.catalog, fact)
        if able:
            return f"Worker {listed(able, 3)} gives it: add a step before."
        return "No registered worker gives it."


def _providers(catalog: Catalog, fact: str) -> list[str]:
    return [
        spec.name
        for spec in catalog.workers.values()
        if any(fact in offer.gives for offer in spec.offers.values())
    ]


def _check_need(
    book: _Book, fact: str, ident: str, dropped: set[tuple[str, str]], out: Findings
) -> None:
    whole, order = book.whole, book.whole.order
    number = order.number[ident]
    sources = [
        giver
        for giver in book.near(book.givers, fact, number)
        if order.before(giver, ident) is not False
    ]
    if not sources and fact not in book.have:
        message = f"step {shown(ident)} needs {shown(fact)}, and nothing before it gives it"
        place = whole.place(ident, "needs" if "needs" in whole.steps[ident] else "")
        out.add("need-unmet", place, message, book.helper(fact))
        return
    for taker in book.near(book.takers, fact, number):
        if taker == ident or order.before(ident, taker) is not False:
            continue
        again = any(giver == taker or order.before(taker, giver) is not False for giver in sources)
        if again or (taker, fact) in dropped:
            continue
        dropped.add((taker, fact))
        message = f"step {shown(taker)} takes back {shown(fact)}, which {shown(ident)} needs"
        fix = f"Let {shown(taker)} come after {shown(ident)}, or give the fact again between."
        out.add("fact-dropped", whole.place(taker), message, fix)


def _check_goal(book: _Book, out: Findings) -> None:
    whole, order = book.whole, book.whole.order
    place = join(whole.prefix, "goal.want")
    for fact in book.want:
        givers = book.near(book.givers, fact, len(order.names))
        if not givers and fact not in book.have:
            message = f"the goal wants {shown(fact)}, and no step gives it"
            out.add("plan-empty", place, message, book.helper(fact))
            continue
        for taker in book.near(book.takers, fact, len(order.names)):
            if not any(g == taker or order.before(taker, g) is not False for g in givers):
                message = f"the goal wants {shown(fact)}, and step {shown(taker)} takes it back"
                out.add("goal-undone", whole.place(taker), message, "Give it again after that.")
                break


def _check_use(book: _Book, out: Findings) -> None:
    whole = book.whole
    if not book.want:
        return
    waited_for = {name for names in whole.edges.values() for name in names}
    for ident, step in whole.steps.items():
        given = whole.facts(step, "gives")
        idle = all(fact in book.have or fact not in book.needed for fact in given)
        if given and idle and ident not in waited_for and not whole.effects(step):
            message = (
                f"step {shown(ident)} gives {listed(given, 3)}, which no step and no goal needs"
            )
            out.add("gives-useless", whole.place(ident), message, "Leave the step out.")
    for fact in book.want:
        able = _providers(book.catalog, fact)
        if len(able) == 1:
            message = f"only worker {shown(able[0])} gives {shown(fact)}"
            fix = "If it fails, there is no other way."
            out.add("provider-single", join(whole.prefix, "goal.want"), message, fix)


def _check_claims(book: _Book, out: Findings) -> None:
    for fact in sorted(book.needed & book.givers.keys()):
        for ident in book.givers[fact]:
            if not book.whole.judged(book.whole.steps[ident]):
                message = (
                    f"step {shown(ident)} says that it gives {shown(fact)}, and nothing checks it"
                )
                fix = 'Give the worker a "check", or the step success criteria.'
                out.add("fact-unchecked", book.whole.place(ident), message, fix)
