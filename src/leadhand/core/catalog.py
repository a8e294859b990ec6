"""Worker descriptions: the view of a worker that planners, checks and the log have.

The engine registers the real workers; the core, the planners and the log see only these
descriptions. A run records the descriptions it was started with, so a log explains itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core.plan.model import worst

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.core.plan.model import Doc, Risk

ANY_ACTION = ""
"""The action name of a worker with a single unnamed action: it accepts any action."""


CALLER = "caller"
"""The kind of workers that are the agent which drives the run: they ask for their steps."""


NO_CALLERS = "runs on Temporal hand out no steps to callers"
NO_CALLERS_FIX = "run the plan on this machine, without [temporal] in the settings"
"""Why the catalog of a run may lack the worker `caller`; the same words for every revision."""


NOT_CALLED = ("human", CALLER)
"""Kinds of workers that no process calls: people answer, and callers ask."""


class Offer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One action a worker offers."""

    parameters: dict[str, Any] | None = None
    """JSON Schema of its parameters object; None accepts anything."""
    returns: dict[str, Any] | None = None
    """JSON Schema of its data; the report is checked against it."""
    checks: tuple[str, ...] = ()
    """Named checks that success criteria may call."""
    result_check: bool = False
    """Whether it declares a check of its own result, used when a step has no criteria."""
    risk: str | None = None
    effects: tuple[str, ...] | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    idempotent: bool = False
    probe: bool = False
    """Whether it can determine afterwards whether an unobserved attempt took effect."""
    timeout_s: float | None = None
    est_s: float | None = None
    cost: float = 0.0
    needs: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    sandbox: str = ""
    """A description of the sandbox its programs run in; empty: none."""
    missing: str = ""
    """Why it cannot work on this machine; empty: no known obstacle."""
    silence: Any = None
    """For a person: the result if no answer came in time; None: there is no such default."""


class WorkerSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One worker: its name, kind, version and offers."""

    name: str
    kind: str = "function"
    version: str = ""
    description: str = ""
    offers: dict[str, Offer] = {}
    max_concurrency: int | None = None
    trusted: bool = True
    """False when its results come from outside and must be treated as untrusted data."""
    stronger: str = ""
    """The same worker with a stronger model, for tasks too hard for this one."""

    def offer(self, action: str) -> Offer | None:
        """Return the offer for an action; an unnamed offer answers any action."""
        return self.offers.get(action) or self.offers.get(ANY_ACTION)

    def default_risk(self) -> Risk:
        """Return the risk if none is declared: low for functions, medium for every other kind."""
        return "low" if self.kind == "function" else "medium"


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A way to give a fact in several smaller steps, used when one worker found it too much."""

    fact: str
    name: str
    takes: tuple[str, ...] = ()
    """Facts passed to its function."""
    stages: Callable[..., Sequence[str]]
    """Returns the names of the workers, first to last; `name*` means one step for each item."""


class Catalog:
    """The workers a run may use, by name."""

    def __init__(self, specs: Iterable[WorkerSpec] = ()) -> None:
        self.workers: Mapping[str, WorkerSpec] = {spec.name: spec for spec in specs}

    def offer(self, worker: str, action: str) -> Offer | None:
        """Return the offer of a worker for an action, or None."""
        spec = self.workers.get(worker)
        return spec.offer(action) if spec else None

    def risk(self, worker: str, action: str) -> Risk:
        """Return the risk a worker declares for an action, or the default of its kind."""
        spec = self.workers.get(worker)
        if spec is None:
            return "low"
        offer = spec.offer(action)
        return worst(offer.risk) if offer and offer.risk else spec.default_risk()

    def digest(self) -> str:
        """Return a digest of all descriptions: it identifies what a plan was planned against."""
        specs = [self.workers[name] for name in sorted(self.workers)]
        return hashlib.sha256(msgspec.json.encode(specs, order="sorted")).hexdigest()


def able_workers(step: Doc, workers: Mapping[str, WorkerSpec]) -> tuple[str, ...]:
    """Return every worker that may do a step: its worker, its alternatives, then stronger ones."""
    named = (step.get("worker", ""), *step.get("alternatives", ()))
    found = dict.fromkeys(named)
    for name in named:
        spec = workers.get(name)
        while spec is not None and spec.stronger and spec.stronger not in found:
            found[spec.stronger] = None
            spec = workers.get(spec.stronger)
    return tuple(found)


def stronger_workers(workers: Mapping[str, WorkerSpec]) -> frozenset[str]:
    """Return the workers that back others as stronger ones; plans do not name these."""
    return frozenset(spec.stronger for spec in workers.values() if spec.stronger)


def effective_risk(plan_risk: str | None, step: Doc, catalog: Catalog) -> Risk:
    """Return the highest risk declared by the plan, the step and every worker that may do it."""
    action = step.get("action", "")
    names = able_workers(step, catalog.workers)
    return worst(plan_risk, step.get("risk_level"), *(catalog.risk(name, action) for name in names))


NOT_DECLARED = "not declared"
"""Shown in place of an undeclared risk. Policies use the default of the worker's kind."""


def declared_risk(plan_risk: str | None, step: Doc, catalog: Catalog) -> str:
    """Return the declared risk of a step, or `NOT_DECLARED`: for people, never for a policy.

    A risk declared by the plan or the step applies to all its workers.
    """
    if plan_risk or step.get("risk_level"):
        return effective_risk(plan_risk, step, catalog)
    offers = (
        catalog.offer(name, step.get("action", "")) for name in able_workers(step, catalog.workers)
    )
    return highest(offer.risk if offer and offer.risk else NOT_DECLARED for offer in offers)


def highest(risks: Iterable[str]) -> str:
    """Return the highest of several declared risks; an undeclared risk is never shown as low."""
    found = set(risks)
    least = worst(*(found - {NOT_DECLARED}))
    return NOT_DECLARED if NOT_DECLARED in found and least == "low" else least
