"""Operators: workers as a planner sees them, with needs, gives, drops and cost.

A fact is a name. One with a colon ("approved:table") is a flag: it is true or not, and carries
no data. Any other is an artefact: the data of the step that gave it. A worker that gives one
artefact reports it as its data; one that gives several reports an object with those keys.

Every offer of a worker is an operator of its own. A parameter that must be given is a need of
the same name, whether or not it was named as one; only where exactly one need and one parameter
are left over do they belong together under different names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core.catalog import stronger_workers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.core.catalog import Catalog, Offer


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be done."""

    name: str
    worker: str
    action: str = ""
    needs: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    takes: dict[str, str] = {}
    """Parameters that must be given, each with the fact that fills it."""
    may_take: tuple[str, ...] = ()
    """Parameters that are filled when a fact of that name is true."""
    cost: float = 0.0
    est_s: float = 0.0
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    idempotent: bool = False
    changes: bool = False
    """Whether it declares effects outside."""
    risk: str = "low"
    split: str = ""
    """The method it stands for, where it is no worker but a way to split one."""

    @property
    def artefacts(self) -> tuple[str, ...]:
        """Return the facts it gives that carry data."""
        return tuple(fact for fact in self.gives if not is_flag(fact))

    @property
    def unbound(self) -> tuple[str, ...]:
        """Needs that no parameter carries: they only have to be true."""
        taken = set(self.takes.values())
        return tuple(fact for fact in self.needs if fact not in taken)


def is_flag(fact: str) -> bool:
    """Return whether a fact carries no data."""
    return ":" in fact


def operator_name(worker: str, action: str) -> str:
    """Return the name of an operator: `worker` or `worker:action`."""
    return f"{worker}:{action}" if action else worker


class Operators:
    """All operators of a catalog, by name and by the facts they give."""

    def __init__(self, operators: Iterable[Operator]) -> None:
        self.by_name = {each.name: each for each in sorted(operators, key=lambda one: one.name)}
        self.givers: dict[str, list[str]] = {}
        for name, each in self.by_name.items():
            for fact in each.gives:
                self.givers.setdefault(fact, []).append(name)
        self.dropped = frozenset(fact for each in self.by_name.values() for fact in each.drops)
        costs = [each.cost for each in self.by_name.values() if each.cost > 0]
        self.unit = min(costs) / 2 if costs else 1.0
        """The price of a step whose worker names no cost: half of the least that is named."""

    def replaced(self, some: Mapping[str, Operator]) -> Operators:
        """Return the same operators with some changed or added."""
        return Operators({**self.by_name, **some}.values()) if some else self

    def relevant(self, wanted: Iterable[str], true: Mapping[str, Any]) -> list[Operator]:
        """Return the operators that could take part in reaching `wanted`, sorted by name."""
        stack, seen, found = list(wanted), set(wanted), set()
        while stack:
            fact = stack.pop()
            # A true fact that is never dropped need not be given again.
            if fact in true and fact not in self.dropped:
                continue
            for name in self.givers.get(fact, ()):
                if name not in found:
                    found.add(name)
                    for need in self.by_name[name].needs:
                        if need not in seen:
                            seen.add(need)
                            stack.append(need)
        return [self.by_name[name] for name in sorted(found)]


class OperatorCache:
    """The operators of the catalog that was asked about last: it rarely changes in a run."""

    def __init__(self) -> None:
        self._last: tuple[Catalog, Operators] | None = None

    def of(self, catalog: Catalog) -> Operators:
        """Return the operators of `catalog`, computed once for the same object."""
        if self._last is None or self._last[0] is not catalog:
            self._last = (catalog, operators_of(catalog))
        return self._last[1]


def operators_of(catalog: Catalog) -> Operators:
    """Return the operators of all workers that give a fact, without fallbacks of another worker."""
    behind = stronger_workers(catalog.workers)
    return Operators(
        _operator(spec.name, action, offer, catalog.risk(spec.name, action))
        for spec in catalog.workers.values()
        for action, offer in spec.offers.items()
        if offer.gives and spec.name not in behind
    )


def takes_of(offer: Offer) -> dict[str, str]:
    """Return the parameters that are filled with facts, each with its fact.

    A parameter without a default takes the fact of its name. If exactly one such parameter names no
    fact that the worker needs, and exactly one needed artefact is no parameter, that parameter
    takes that artefact.
    """
    schema = offer.parameters
    facts = [fact for fact in offer.needs if not is_flag(fact)]
    if schema is None:
        return {fact: fact for fact in facts}
    required = [name for name in schema.get("required", ()) if name in schema["properties"]]
    takes = {name: name for name in required}
    takes |= {fact: fact for fact in facts if fact in schema["properties"]}
    loose = [name for name in required if name not in facts]
    spare = [fact for fact in facts if fact not in takes]
    if len(loose) == 1 and len(spare) == 1:
        takes[loose[0]] = spare[0]
    return takes


def _operator(worker: str, action: str, offer: Offer, risk: str) -> Operator:
    takes = takes_of(offer)
    known = offer.parameters["properties"] if offer.parameters is not None else ()
    optional = tuple(sorted(name for name in known if name not in takes))
    return Operator(
        name=operator_name(worker, action),
        worker=worker,
        action=action,
        needs=tuple(sorted({*offer.needs, *takes.values()})),
        gives=tuple(dict.fromkeys(offer.gives)),
        drops=tuple(sorted({*offer.drops} - {*offer.gives})),
        takes=takes,
        may_take=optional,
        cost=offer.cost,
        est_s=offer.est_s or 0.0,
        reads=offer.reads,
        writes=offer.writes,
        idempotent=offer.idempotent,
        changes=bool(offer.effects),
        risk=risk,
    )
