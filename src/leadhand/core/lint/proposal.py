"""Lint of a planner's proposal: whether its steps can be added to a run.

Reads only the steps of the run that the new steps name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core.lint.document_form import by_id, check_cycles, returns, well_formed
from leadhand.core.lint.findings import CandidateIds, Finding, Findings, name_steps
from leadhand.core.lint.reference_checks import KnownNames
from leadhand.core.lint.step import Scope, check_step
from leadhand.core.plan import graph
from leadhand.core.wording import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.model import Doc, Json


_SETTLED = frozenset({"succeeded", "failed", "skipped", "cancelled", "superseded"})


def proposal(
    steps: list[Doc],
    known: Mapping[str, Any] | Callable[[str], Any],
    catalog: Catalog | None,
    params: Mapping[str, Json] | None = None,
    *,
    resources: Mapping[str, int] | None = None,
) -> list[Finding]:
    """Return all findings against adding `steps` to a run.

    `known` returns (or maps to) the run's knowledge of a step id: its status as a text, or an
    object with a `status` (and a `doc`, the step as planned); None for an unknown id.
    """
    out = Findings()
    look = known if callable(known) else known.get
    some = () if callable(known) else known
    clean = well_formed(steps, "", out)
    new = by_id(clean, "", out)
    for i, step in clean:
        ident = step.get("id", "")
        if ident and look(ident) is not None:
            message = f"the run already has a step {shown(ident)}"
            fix = 'Take another id; "supersedes" says which step it takes the place of.'
            out.add("id-taken", f"steps[{i}].id", message, fix)
    replaced = {step["supersedes"]: ident for ident, step in new.items() if "supersedes" in step}

    def status(ident: str) -> str | None:
        return "new" if ident in new or _heir(look, ident) in replaced else _status(look(ident))

    def giver(ident: str) -> Doc | None:
        return new.get(ident) or _doc(look(ident))

    names = KnownNames({}, params or {}, returns(catalog, giver))
    scope = Scope(catalog, names, status, CandidateIds(new, some), resources)
    for i, step in clean:
        if out.full:
            break
        check_step(scope, step, f"steps[{i}]", out)
        old = step.get("supersedes")
        if old is not None and _status(look(old)) is None:
            what = f"step {shown(step.get('id'))} supersedes {shown(old)}, which is not in the run"
            out.add("supersedes-unknown", f"steps[{i}].supersedes", what, out.guess(old, some))
    check_cycles(_reach(new, replaced, look), clean, "", out)
    return name_steps(out.done(), steps)


def _reach(
    new: Mapping[str, Doc], replaced: Mapping[str, str], look: Callable[[str], Any]
) -> dict[str, list[str]]:
    """Return the graph of a proposal, as far as a cycle can reach.

    Steps of the run never wait for new ones, except through `supersedes`: dependents of the old
    step then wait for the new one. Only then are steps of the run followed, and only those that
    have not ended.
    """
    found: dict[str, list[str]] = {ident: [] for ident in new}
    stack = list(new.items())
    while stack:
        ident, step = stack.pop()
        names = [_heir(look, name) for name in graph.dependencies(step)]
        found[ident] = waits_for = [replaced.get(name, name) for name in names]
        if not replaced:
            continue
        for name in waits_for:
            entry = None if name in found else look(name)
            doc = _doc(entry)
            if doc is not None and _status(entry) not in _SETTLED:
                found[name] = []
                stack.append((name, doc))
    return found


def _heir(look: Callable[[str], Any], ident: str) -> str:
    """Return the step that stands for an id now: the run may know a successor."""
    doc = _doc(look(ident))
    return ident if doc is None else str(doc.get("id", ident))


def _status(entry: Any) -> str | None:
    if entry is None or isinstance(entry, str):
        return entry
    status = entry.get("status") if isinstance(entry, dict) else getattr(entry, "status", None)
    return str(status) if status is not None else ""


def _doc(entry: Any) -> Doc | None:
    if entry is None or isinstance(entry, str):
        return None
    doc = entry.get("doc", entry) if isinstance(entry, dict) else getattr(entry, "doc", None)
    return doc if isinstance(doc, dict) else None
