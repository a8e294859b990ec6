"""Worker descriptions: what planners and checks know of a worker without seeing it.

The engine registers the real workers; the core, the planners and the log see only these.
A run records the descriptions it was started with, so a log explains itself.
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
"""The action name of a worker that offers a single unnamed one: it takes any."""


class Offer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One action a worker offers."""

    parameters: dict[str, Any] | None = None
    """JSON Schema of its parameters object; None means anything goes."""
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
    """Whether it can tell afterwards if an unseen attempt happened."""
    timeout_s: float | None = None
    est_s: float | None = None
    cost: float = 0.0
    needs: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    sandbox: str = ""
    """The walls that its programs run behind, in words; empty: none."""
    missing: str = ""
    """Why it cannot work on this machine; empty: nothing is known to be missing."""
    silence: Any = None
    """Of a person: what counts as the result when no answer came in time; None: they cannot."""


class WorkerSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One worker: its name, kind, version and what it offers."""

    name: str
    kind: str = "function"
    version: str = ""
    description: str = ""
    offers: dict[str, Offer] = {}
    max_concurrency: int | None = None
    trusted: bool = True
    """False when its results come from outside and must be treated as untrusted data."""
    stronger: str = ""
    """The worker that is the same with a stronger model, for what was too much for this one."""

    def offer(self, action: str) -> Offer | None:
        """The offer that answers an action, the unnamed one answering any."""
        return self.offers.get(action) or self.offers.get(ANY_ACTION)

    def default_risk(self) -> Risk:
        """Undeclared risk: low for functions, medium for whatever reaches outside."""
        return "low" if self.kind == "function" else "medium"


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A way to give a fact in several smaller steps, for when one worker found it too much."""

    fact: str
    name: str
    takes: tuple[str, ...] = ()
    """Facts that its function is called with."""
    stages: Callable[..., Sequence[str]]
    """Gives the names of the workers, first to last; `name*` is one step for each item."""


class Catalog:
    """The workers a run may use, by name."""

    def __init__(self, specs: Iterable[WorkerSpec] = ()) -> None:
        self.workers: Mapping[str, WorkerSpec] = {spec.name: spec for spec in specs}

    def offer(self, worker: str, action: str) -> Offer | None:
        """What a worker offers for an action, or None."""
        spec = self.workers.get(worker)
        return spec.offer(action) if spec else None

    def risk(self, worker: str, action: str) -> Risk:
        """The risk a worker declares for an action, or its kind's default."""
        spec = self.workers.get(worker)
        if spec is None:
            return "low"
        offer = spec.offer(action)
        return worst(offer.risk) if offer and offer.risk else spec.default_risk()

    def digest(self) -> str:
        """A digest of all descriptions: what a plan was planned against."""
        specs = [self.workers[name] for name in sorted(self.workers)]
        return hashlib.sha256(msgspec.json.encode(specs, order="sorted")).hexdigest()


def doers(step: Doc, workers: Mapping[str, WorkerSpec]) -> tuple[str, ...]:
    """Everybody who may do a step: its worker, its alternatives, then who is stronger than each."""
    named = (step.get("worker", ""), *step.get("alternatives", ()))
    found = dict.fromkeys(named)
    for name in named:
        spec = workers.get(name)
        while spec is not None and spec.stronger and spec.stronger not in found:
            found[spec.stronger] = None
            spec = workers.get(spec.stronger)
    return tuple(found)


def stronger_ones(workers: Mapping[str, WorkerSpec]) -> frozenset[str]:
    """The workers that stand behind others, and are not for plans to name."""
    return frozenset(spec.stronger for spec in workers.values() if spec.stronger)


def effective_risk(plan_risk: str | None, step: Doc, catalog: Catalog) -> Risk:
    """The maximum of what plan, step and every worker that may do it declare."""
    action = step.get("action", "")
    names = doers(step, catalog.workers)
    return worst(plan_risk, step.get("risk_level"), *(catalog.risk(name, action) for name in names))


NOT_DECLARED = "not declared"
"""Shown in place of a risk that nobody declares. Policies count it as its kind's default."""


def declared_risk(plan_risk: str | None, step: Doc, catalog: Catalog) -> str:
    """The risk of a step as it was declared, or `NOT_DECLARED`: for people, never for a policy.

    What the plan or the step itself declares speaks for all its workers.
    """
    if plan_risk or step.get("risk_level"):
        return effective_risk(plan_risk, step, catalog)
    offers = (catalog.offer(name, step.get("action", "")) for name in doers(step, catalog.workers))
    return highest(offer.risk if offer and offer.risk else NOT_DECLARED for offer in offers)


def highest(risks: Iterable[str]) -> str:
    """The highest of some declared risks; one that is not declared is never called low."""
    found = set(risks)
    least = worst(*(found - {NOT_DECLARED}))
    return NOT_DECLARED if NOT_DECLARED in found and least == "low" else least
