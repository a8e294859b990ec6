"""The requirements of a plan: workers, tools, secrets, hosts, people, resources, time, cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadhand.cli.rendering.text import clean
from leadhand.core.durations import seconds, text
from leadhand.core.plan import graph
from leadhand.core.state.ready import uses_of
from leadhand.workers.requirements import Requirement, requirements

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.plan.model import Doc
    from leadhand.workers.registry import Registry


@dataclass(frozen=True, slots=True)
class Taking:
    """The requirements and the probable cost of a plan."""

    workers: dict[str, tuple[str, ...]]
    """Each worker, with its possible substitutes."""
    needed: tuple[Requirement, ...]
    resources: dict[str, int]
    """The most that one step holds of each."""
    seconds: float | None
    """Along the longest chain; None if no step has an estimate."""
    unknown: tuple[str, ...]
    """Steps without an estimate."""
    cost: float

    def names(self, kind: str) -> list[str]:
        """Return the required things of a kind, each with its users."""
        found: dict[str, list[str]] = {}
        for each in self.needed:
            if each.kind == kind:
                found.setdefault(each.name, []).append(each.worker)
        if kind == "person":
            return sorted(found)
        return [f"{name} ({', '.join(dict.fromkeys(who))})" for name, who in sorted(found.items())]


def taking_of(doc: Doc, registry: Registry) -> Taking:
    """Return the requirements of a plan, as far as its workers declare them."""
    workers: dict[str, tuple[str, ...]] = {}
    needed: list[Requirement] = []
    resources: dict[str, int] = {}
    est: dict[str, float] = {}
    unknown: list[str] = []
    cost = 0.0
    for step in doc["steps"]:
        action = step.get("action", "")
        others = tuple(step.get("alternatives", ()))
        workers[step["worker"]] = tuple(dict.fromkeys((*workers.get(step["worker"], ()), *others)))
        for name in (step["worker"], *others):
            worker = registry.get(name)
            needed += requirements(worker, action) if worker is not None else []
        for name, amount in uses_of(step):
            resources[name] = max(amount, resources.get(name, 0))
        first = registry.get(step["worker"])
        offer = first.spec.offer(action) if first is not None else None
        written = step.get("est")
        took = seconds(written) if written is not None else offer.est_s if offer else None
        if took is None:
            unknown.append(step["id"])
        else:
            est[step["id"]] = took
        cost += offer.cost if offer else 0.0
    chain = max(graph.tails(graph.edges(doc["steps"]), est).values(), default=0.0)
    return Taking(
        workers,
        tuple(dict.fromkeys(needed)),
        resources,
        chain if est else None,
        tuple(unknown),
        round(cost, 9),
    )


def taking_rows(taking: Taking) -> Iterable[tuple[str, str]]:
    """Yield the requirements as name and text, without empty ones."""
    stand_ins = [
        f"{name} (or {', '.join(others)})" if others else name
        for name, others in taking.workers.items()
    ]
    yield "workers", ", ".join(stand_ins)
    for kind, title in (
        ("program", "tools"),
        ("environment", "secrets"),
        ("host", "hosts"),
        ("person", "people"),
    ):
        names = taking.names(kind)
        if names:
            yield title, ", ".join(names)
    if taking.resources:
        yield "resources", ", ".join(f"{name}: {n}" for name, n in taking.resources.items())
    if taking.seconds is not None:
        rest = f", and {_some(taking.unknown)} without an estimate" if taking.unknown else ""
        yield "time", f"about {text(taking.seconds)} along the longest chain{rest}"
    else:
        yield "time", "no step has an estimate (est)"
    yield "cost", f"about {taking.cost:g}" if taking.cost else "none declared"


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(clean(name, 40) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def taking_document(taking: Taking) -> Doc:
    """Return the requirements as a document."""

    def named(kind: str) -> list[Doc]:
        return [
            {"name": each.name, "worker": each.worker, "required": each.must}
            for each in taking.needed
            if each.kind == kind
        ]

    return {
        "workers": {name: list(others) for name, others in taking.workers.items()},
        "tools": named("program"),
        "secrets": named("environment"),
        "hosts": named("host"),
        "people": [each.name for each in taking.needed if each.kind == "person"],
        "resources": taking.resources,
        "seconds": taking.seconds,
        "without_estimate": list(taking.unknown),
        "cost": taking.cost,
    }
