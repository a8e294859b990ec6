"""The revisions of a run as whole plans: deltas folded, so that each can be read and compared.

A step appears as its author wrote it. Superseded and removed steps are gone; `heirs` maps each
superseded step to its successor, since dependents keep the name they were written with.

`standalone` turns such a plan into an independent one, to be saved or sent: heirs get back the
names they inherited, and references follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leadhand.core import events as ev
from leadhand.core.plan import references
from leadhand.core.plan.canonical import follow
from leadhand.core.views.ledger import AMENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.state.model import State


ORIGIN_KEYS = (
    "library",
    "context",
    "bound",
    "rollback_of",
    "rollback_reason",
    "rerun_of",
    "rerun_from",
    "carried",
    "left_out",
    "untrusted",
    "caller",
    "proposed_by",
    "request",
    "issue",
)
"""The fields in which a run records the origin of its plan; not part of the plan."""


class RevisedPlan(NamedTuple):
    """One revision of a run's plan, as a whole document."""

    number: int
    hash: str
    author: str
    status: str
    """proposed, approved, rejected, sent back (changes were requested), or amended (replaced by a
    person's own revision)."""
    doc: Doc
    heirs: dict[str, str]
    """All steps superseded so far: old id to new id."""


def head_of(started: ev.RunStarted | None) -> Doc:
    """Return the fields of a run's plan besides its steps."""
    if started is None:
        return {}
    head = {key: value for key, value in started.plan.items() if key not in ORIGIN_KEYS}
    if started.goal and "goal" not in head:
        head["goal"] = started.goal
    return head


def origin_of(started: ev.RunStarted | None) -> Doc:
    """Return the origin of a run's plan and the context it runs in."""
    plan = started.plan if started is not None else {}
    return {key: plan[key] for key in ORIGIN_KEYS if key in plan}


def revisions(log: Iterable[ev.Event]) -> list[RevisedPlan]:
    """Return every proposed revision, in the order of the log."""
    head: Doc = {}
    steps: dict[str, Doc] = {}
    heirs: dict[str, str] = {}
    pending: tuple[dict[str, Doc], dict[str, str]] = ({}, {})
    found: list[RevisedPlan] = []
    for event in log:
        match event:
            case ev.RunStarted():
                head = head_of(event)
            case ev.RevisionProposed():
                pending = apply_delta(steps, heirs, event.add, [*event.cancel, *event.drop])
                doc = plan_document(head, pending[0], final=event.final, outlook=event.outlook)
                found.append(
                    RevisedPlan(event.number, event.hash, event.author, "proposed", doc, pending[1])
                )
            case ev.RevisionApproved() if found and found[-1].hash == event.hash:
                steps, heirs = pending
                found[-1] = found[-1]._replace(status="approved")
            case ev.RevisionRejected() if found and found[-1].hash == event.hash:
                status = AMENDED if event.reason == AMENDED else "rejected"
                found[-1] = found[-1]._replace(status=status)
            case ev.ChangesRequested() if found and found[-1].hash == event.hash:
                found[-1] = found[-1]._replace(status="sent back")
            case _:
                pass
    return found


def plan_of(state: State, *, pending: bool = True) -> tuple[Doc, dict[str, str]]:
    """Return the current plan of a run and its heirs; with `pending`, including a pending revision.

    Removed and replaced steps are gone; steps that ended otherwise are included.
    """
    head = head_of(state.started)
    heirs = {step.id: step.superseded_by for step in state.steps.values() if step.superseded_by}
    steps: dict[str, Doc] = {}
    for ident in state.steps:  # An heir takes the position of the first of its line.
        step = state.follow(ident)
        if step is not None and step.status != "cancelled" and not step.dropped:
            steps.setdefault(step.id, step.doc)
    replans = state.started is not None and state.started.replans
    final = state.final or not (state.revision or replans)
    if pending and state.pending is not None:
        out = [*state.pending.cancel, *state.pending.drop]
        steps, heirs = apply_delta(steps, heirs, state.pending.add, out)
        final = state.pending.final
    return plan_document(head, steps, final=final, outlook=state.outlook), heirs


def held_by(state: State) -> dict[str, str]:
    """Return the held steps of a run, each with the actor of its hold."""
    return {name: state.steps[name].held_by for name in state.steps if name in state.held}


def apply_delta(
    steps: Mapping[str, Doc], heirs: Mapping[str, str], add: Iterable[Doc], cancel: Iterable[str]
) -> tuple[dict[str, Doc], dict[str, str]]:
    """Return steps and heirs after a delta; an heir takes the position of its predecessor."""
    add = list(add)
    by_old = {step["supersedes"]: step for step in add if step.get("supersedes")}
    out = set(cancel)
    found = {
        by_old.get(ident, step)["id"]: by_old.get(ident, step)
        for ident, step in steps.items()
        if ident not in out
    }
    for step in add:
        found.setdefault(step["id"], step)
    return found, {**heirs, **{old: step["id"] for old, step in by_old.items()}}


def plan_document(
    head: Doc, steps: Mapping[str, Doc], *, final: bool = True, outlook: Json = ()
) -> Doc:
    """Build a plan document from its parts."""
    doc = {**head, "steps": list(steps.values())}
    doc.pop("final", None)
    if not final:
        doc["final"] = False
    if outlook:
        doc["outlook"] = list(outlook)
    return doc


def standalone(doc: Doc, heirs: Mapping[str, str], params: Mapping[str, Json]) -> Doc:
    """Return a run's plan as an independent document: original names, with references adapted.

    `params` are values given to the run that its plan does not declare (the facts of a goal): they
    become defaults.
    """
    now = {step["id"] for step in doc["steps"]}
    stands = {old: follow(old, heirs) for old in heirs}
    first = {
        heir: old
        for old, heir in stands.items()
        if old not in heirs.values() and heir in now and old not in now
    }
    names = first | {old: first.get(heir, heir) for old, heir in stands.items()}
    found = {**doc, "steps": [_renamed(step, names) for step in doc["steps"]]}
    declared = doc.get("params") or {}
    more = {name: {"default": each} for name, each in params.items() if name not in declared}
    if more:
        found["params"] = {**declared, **more}
    return found


def _renamed(step: Doc, names: Mapping[str, str]) -> Doc:
    found = {key: value for key, value in step.items() if key != "supersedes"}
    found["id"] = names.get(step["id"], step["id"])
    if "depends_on" in found:
        found["depends_on"] = [
            names.get(each, each)
            if isinstance(each, str)
            else {**each, "step": names.get(each["step"], each["step"])}
            for each in found["depends_on"]
        ]
    if "context" in found:
        context = found["context"]
        several = [context] if isinstance(context, str) else context
        found["context"] = [
            names.get(each, each)
            if isinstance(each, str)
            else {**each, "step": names.get(each["step"], each["step"])}
            for each in several
        ]
    for key in ("parameters", "undo"):
        if key in found:
            found[key] = rename_references(found[key], names)
    return found


def rename_references(value: Json, names: Mapping[str, str]) -> Json:
    """Return a value with its references to steps renamed by `names`."""

    def renamed(ref: references.Ref) -> str:
        new = names.get(ref.name)
        return ref.text.replace(ref.root, f"steps.{new}.data", 1) if new else ref.text

    return replace_references(value, renamed)


def replace_references(
    value: Json, written: Callable[[references.Ref], str], kind: str = "steps"
) -> Json:
    """Return `value` with each reference of `kind` replaced by the result of `written`.

    `kind` is "steps", or "run" for references to the run being rolled back.
    """
    if isinstance(value, dict):
        return {key: replace_references(each, written, kind) for key, each in value.items()}
    if isinstance(value, list):
        return [replace_references(each, written, kind) for each in value]
    if not isinstance(value, str) or references.MARK not in value:
        return value
    parts = references.pieces(value)
    if any(isinstance(part, references.Ref) and part.problem for part in parts):
        return value
    return "".join(_written(part, written, kind) for part in parts)


def _written(
    part: str | references.Ref, written: Callable[[references.Ref], str], kind: str
) -> str:
    if isinstance(part, str):
        return part.replace(references.MARK, f"${references.MARK}")
    return written(part) if part.kind == kind else part.text
