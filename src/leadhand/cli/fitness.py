"""`leadhand doctor PLAN`: whether everything that a plan takes is there. Nothing is called."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from leadhand.cli.doctor import Look
from leadhand.cli.taking import taking_of, taking_rows
from leadhand.workers.requirements import program_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.core.plan.model import Doc
    from leadhand.core.policy import Policy
    from leadhand.workers.registry import Registry
    from leadhand.workers.requirements import Requirement


def fitness(doc: Doc, registry: Registry, policy: Policy) -> Iterator[Look]:
    """One look for each thing the plan takes."""
    yield from _workers(doc, registry)
    taking = taking_of(doc, registry)
    for each in taking.needed:
        yield _CHECKS[each.kind](each)
    pools = {**policy.resources, **(doc.get("resources") or {})}
    for name, amount in taking.resources.items():
        there = pools.get(name)
        problem = ""
        if there is None:
            problem = "is declared neither in the plan nor in the settings"
        elif there < amount:
            problem = f"a step holds {amount} at once, and there are {there}"
        fix = f'Add it to "resources" of the plan, as in {{"{name}": {amount}}}.' if problem else ""
        yield Look("resource", f"{name}: {'?' if there is None else there}", problem, fix)
    base = doc.get("base")
    if base and base != registry.catalog().digest():
        yield Look(
            "base",
            "the workers have changed since the plan was made",
            "`leadhand apply` will refuse it",
            "Plan again, or look at it and take base out.",
            warning=True,
        )
    for name, value in taking_rows(taking):
        if name in ("time", "cost"):
            yield Look(name, value)


def _workers(doc: Doc, registry: Registry) -> Iterator[Look]:
    """Each worker once, with the actions that the plan wants of it."""
    wanted: dict[str, dict[str, bool]] = {}
    for step in doc["steps"]:
        action = step.get("action", "")
        wanted.setdefault(step["worker"], {})[action] = True
        for name in step.get("alternatives", ()):
            wanted.setdefault(name, {}).setdefault(action, False)
    for name, actions in wanted.items():
        worker = registry.get(name)
        if worker is None:
            fix = "Give --workers MODULE, or declare it in leadhand.toml."
            must = any(actions.values())
            yield Look("worker", name, "is not loaded", fix, warning=not must)
            continue
        missing = [action for action in actions if worker.spec.offer(action) is None]
        problem = f"does not offer {', '.join(map(repr, missing))}" if missing else ""
        offered = ", ".join(filter(None, worker.spec.offers))
        fix = f"It offers {offered}." if problem else ""
        if not problem:
            offers = [worker.spec.offer(action) for action in actions]
            said = next((each.missing for each in offers if each and each.missing), "")
            problem, _, fix = said.partition(" Fix: ")
        kinds = f"{name} ({worker.spec.kind})"
        yield Look("worker", kinds, problem, fix)


def _program(need: Requirement) -> Look:
    found = program_path(need)
    problem = "" if found else f"{need.worker} needs it, and there is no such program"
    fix = "" if found else "Install it, or mend the path or its permissions."
    return Look("tool", found or need.name, problem, fix)


def _environment(need: Requirement) -> Look:
    problem = "" if need.name in os.environ else f"{need.worker} names it, and it is not set"
    fix = f"export {need.name}=…" if problem else ""
    return Look("secret", need.name, problem, fix, warning=not need.must)


def _host(need: Requirement) -> Look:
    problem = ""
    try:
        socket.getaddrinfo(need.name, need.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        problem = f"{need.worker} calls it, and its name does not resolve: {reason}"
    fix = "Mend the url, or the network." if problem else ""
    return Look("host", f"{need.name}:{need.port}", problem, fix)


def _person(need: Requirement) -> Look:
    return Look("person", f"{need.name} is asked while it runs: see leadhand inbox")


_CHECKS = {
    "program": _program,
    "environment": _environment,
    "host": _host,
    "person": _person,
}
