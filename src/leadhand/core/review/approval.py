"""Approvals: the binding, one digest of exactly what runs.

The *binding* covers the revision (its hash covers the steps and every earlier revision), the plan's
fields besides its steps, the values of its parameters, the workers that may do the steps with their
versions (a version is a digest of source or argv, working directory and environment names, unless
its author sets another), the limits it runs under, the claims of steps beyond their workers
(`core/promises.py`, unless the approver was not shown them), and the expiry of the approval. Any
difference gives another binding, and an approval of another binding is no approval.

`plan_binding` is the same for a plan that is not running yet, so that it can be approved on its own
and run later: key order, white space and the spelling as YAML or JSON make no difference, the order
of steps does. Such an `Approval` is a document of its own, good for one run. It records the limits
it was given under: a run may have tighter ones, never looser (`core/review/limits.py`). Its seal
proves that it is unchanged; only a signature proves by whom it was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core import events as ev
from leadhand.core.calendar import iso
from leadhand.core.catalog import Catalog, able_workers
from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.revisions import head_of
from leadhand.core.promises import is_persons, may_widen, widenings
from leadhand.core.review.limits import loosened_limits
from leadhand.core.wording import listed
from leadhand.errors import Conflict, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leadhand.core.catalog import WorkerSpec
    from leadhand.core.events import RevisionProposed, RunStarted
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.promises import Claims
    from leadhand.core.state.model import State
    from leadhand.core.state.records import Revision


FORM = "leadhand approval 1"
DIGEST_CHARS = 64
"""The digits of a plan digest. An approval names all of them: two plans that share the first 12 are
made in a minute, so that a part of a digest does not say which plan was shown."""
PART_CHARS = 16
"""The digits kept of a part's digest: it explains a difference, and binds nothing."""


class Approval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person's permission to run exactly one plan, once."""

    form: str = FORM
    """The name and version of this form."""
    id: str
    """The id of the approval; a run uses it up."""
    actor: str
    """The person who approved."""
    binding: str
    """One digest of what was allowed: `plan_binding`."""
    given: int
    """When it was given, in UTC microseconds."""
    expires: int = 0
    """UTC microseconds; 0 for never."""
    reason: str = ""
    """The comment of the approver."""
    parts: dict[str, str] = {}
    """Digests of the parts that the binding covers, so that a change can be named."""
    limits: dict[str, Any] = {}
    """The limits it was given under: `core/review/limits.py`. Empty in approvals of early
    versions."""
    widens: bool = False
    """Whether the approver was shown the claims of steps beyond their workers, and allows them."""
    key: str = ""
    """The public key of the approver, if the approval is signed."""
    seal: str = ""
    """A digest of all fields above."""
    signature: str = ""
    """The signature of the seal by the approver's key."""

    def to_doc(self) -> Doc:
        """Return the approval as the document of a file."""
        found: Doc = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_doc(cls, doc: Any) -> Approval:
        """Return the approval in `doc`, the content of a file. Raise `UsageError` if it is none."""
        try:
            found = msgspec.convert(doc, cls)
        except msgspec.ValidationError as error:
            raise UsageError(f"this is not an approval file: {error}") from None
        if found.form != FORM:
            raise UsageError(
                f"this is not an approval file, or it has another version: {found.form[:40]!r}"
            )
        return found

    def sealed(self) -> str:
        """Return the correct seal for the fields."""
        doc = {name: each for name, each in self.to_doc().items() if name not in _OUTSIDE}
        if not self.limits:
            del doc["limits"]
        if not self.widens:
            del doc["widens"]
        return digest(FORM, "seal", canonical(doc))

    def to_sign(self) -> bytes:
        """Return the bytes that its approver signs."""
        return signed_text(self.seal, self.actor, self.expires)


_OUTSIDE = ("seal", "signature")


def versions(steps: Iterable[Doc], catalog: Catalog) -> dict[str, str]:
    """Return the workers that may do or undo `steps`, each with its version; "" if unknown."""
    known = catalog.workers
    tasks = [task for step in steps for task in (step, step.get("undo")) if isinstance(task, dict)]
    names = {name for task in tasks for name in able_workers(task, known)}
    return {name: known[name].version if name in known else "" for name in sorted(names)}


def binding(
    state: State, revision: Revision | RevisionProposed, expires: int, *, widens: bool = True
) -> str:
    """Return the digest of what an approval of a revision allows.

    Without `widens`, claims beyond the workers are left out, as for a person who was not shown
    them.
    """
    if state.started is None:
        return ""
    claimed = claims_of_revision(state, revision) if widens else {}
    workers = versions(revision.add, state.catalog)
    return bind(state.started, revision.hash, workers, expires, claimed)


def claims_of_revision(state: State, revision: Revision | RevisionProposed) -> dict[str, Claims]:
    """Return the claims of a revision beyond its workers, if its author may make claims."""
    claimed = widenings(revision.add, state.catalog)
    return claimed if claimed and may_widen(state.started, revision) else {}


def was_shown(state: State, revision: Revision, shown: str) -> bool:
    """Return whether the digest `shown` is of the revision with all its claims."""
    return binding(state, revision, 0) == shown


def refuse_partial(shown: str) -> None:
    """Raise `UsageError` unless `shown` has the length of a whole digest; empty is allowed."""
    if shown and len(shown) != DIGEST_CHARS:
        raise UsageError(
            f"an approval names the whole digest of what was shown, {DIGEST_CHARS} digits, not "
            f"{len(shown)}: another plan can be made that begins alike. Fix: copy it from what "
            "`leadhand review` shows"
        )


def bind(
    started: RunStarted,
    revision_hash: str,
    workers: Mapping[str, str],
    expires: int,
    claimed: Mapping[str, Json] | None = None,
) -> str:
    """Compute a binding from values of the log; `claimed` are the claims beyond the workers."""
    parts = [started.plan, started.params, dict(workers), started.policy]
    if claimed:
        parts.append(dict(claimed))
    return digest(FORM, started.run, revision_hash, *map(canonical, parts), str(expires))


def release_binding(
    started: RunStarted, question: str, steps: Iterable[Doc], catalog: Catalog, expires: int
) -> str:
    """Return the digest of what a release of held steps allows: as much as an approval of them.

    A hold may stand for an expired approval, or for a changed worker, so it covers the complete
    steps, the workers as they are now, and everything else that an approval covers.
    """
    docs = list(steps)
    parts = [docs, started.plan, started.params, versions(docs, catalog), started.policy]
    return digest(FORM, "release", started.run, question, *map(canonical, parts), str(expires))


def _covered(plan: Doc) -> Doc:
    """Return a plan without fields that have no meaning: `$schema`, an empty outlook."""
    return {
        key: value
        for key, value in plan.items()
        if key != "$schema" and (value or key not in ("outlook", "params"))
    }


def plan_binding(
    plan: Doc,
    params: Mapping[str, Json],
    catalog: Catalog,
    expires: int,
    context: str = "",
    limits: Doc | None = None,
    *,
    widens: bool = True,
) -> str:
    """Return the digest of what an approval of a plan allows; `widens` as for `binding`."""
    steps = plan.get("steps", ())
    found = versions(steps, catalog)
    parts: list[str | bytes] = [
        canonical(_covered(plan)),
        canonical(dict(params)),
        canonical(found),
        str(expires),
        context,
    ]
    if limits:
        parts.append(canonical(limits))
    claimed = widenings(steps, catalog) if widens and is_persons(plan) else {}
    if claimed:
        parts.append(canonical(claimed))
    return digest(FORM, "plan", *parts)


def plan_digest(started: RunStarted, steps: list[Doc], outlook: list[Any], given: Approval) -> str:
    """Return the digest of the plan that was shown to the giver of an approval before the run."""
    plan = head_of(started) | {"steps": steps, "outlook": outlook}
    context = str(started.plan.get("context", ""))
    catalog = Catalog(started.catalog)
    limits, widens = given.limits, given.widens
    return plan_binding(plan, started.params, catalog, 0, context, limits, widens=widens)


class ApprovalRow(msgspec.Struct, kw_only=True):
    """An approval of a revision, by a person or by the policy: the same on every surface."""

    revision: int
    """The number of the revision."""
    digest: str
    """The digest that was shown to the approver."""
    by: str
    """A person, or `policy`."""
    at: str
    """When it was given, in ISO 8601."""
    why: str
    """The comment of the approver, or the rule of the policy."""
    until: str | None
    """When it expires, in ISO 8601; null: never."""
    signed: bool
    """Whether it is signed."""
    key: str
    """The name of the key that signed it; empty when none did."""


def approval_row(
    given: ev.ApprovalGiven | ev.RevisionApproved, at: int, shown: str, key: str
) -> ApprovalRow:
    """Return an approval as documents show it; `shown` is the digest of what was shown."""
    return ApprovalRow(
        revision=given.number,
        digest=shown,
        by=given.actor,
        at=iso(at),
        why=given.reason,
        until=iso(given.expires) if given.expires else None,
        signed=bool(key),
        key=key,
    )


def approvals_in_log(log: Iterable[tuple[int, ev.Event]]) -> list[ApprovalRow]:
    """Return every approval in a log, and every revision that the policy let through."""
    found: list[ApprovalRow] = []
    shown = dict[str, str]()
    for at, event in _with_digests(log, shown):
        match event:
            case ev.ApprovalGiven():
                seen = event.digest or shown.get(event.hash, "")
                key = (event.key or "a key without a name") if event.signature else ""
                found.append(approval_row(event, at, seen, key))
            case ev.RevisionApproved(actor="policy"):
                found.append(approval_row(event, at, shown.get(event.hash, ""), ""))
            case _:
                pass
    return found


def digests(log: Iterable[tuple[int, ev.Event]]) -> dict[str, str]:
    """Return the digest of what was shown for each revision, by the revision's own hash."""
    shown = dict[str, str]()
    for at, event in _with_digests(log, shown):
        if isinstance(event, ev.ApprovalGiven) and event.digest:
            shown[event.hash] = event.digest
        del at
    return shown


def _with_digests(
    log: Iterable[tuple[int, ev.Event]], shown: dict[str, str]
) -> Iterator[tuple[int, ev.Event]]:
    """Yield a log, and keep the digest of each proposed revision in `shown`."""
    started: ev.RunStarted | None = None
    specs: dict[str, WorkerSpec] = {}
    for at, event in log:
        match event:
            case ev.RunStarted():
                started, specs = event, {spec.name: spec for spec in event.catalog}
            case ev.WorkersChanged():
                specs |= {spec.name: spec for spec in event.specs}
            case ev.RevisionProposed() if started is not None:
                catalog = Catalog(specs.values())
                claimed = widenings(event.add, catalog) if may_widen(started, event) else {}
                workers = versions(event.add, catalog)
                shown[event.hash] = bind(started, event.hash, workers, 0, claimed)
            case _:
                pass
        yield at, event


def parts_of(
    plan: Doc, params: Mapping[str, Json], catalog: Catalog, context: str = ""
) -> dict[str, str]:
    """Return the digests of the parts of a plan binding, each under a name that people know."""
    pieces: dict[str, Json] = {
        key: value for key, value in _covered(plan).items() if key != "steps"
    }
    steps = plan.get("steps", ())
    pieces |= {f"step {step.get('id')}": step for step in steps}
    pieces["the order of steps"] = [step.get("id") for step in steps]
    pieces |= {f"parameter {name}": value for name, value in params.items()}
    pieces |= {f"worker {name}": each for name, each in versions(steps, catalog).items()}
    pieces |= {
        f"the promises of step {step}": each for step, each in widenings(steps, catalog).items()
    }
    pieces["the context"] = context
    return {name: digest(canonical(each))[:PART_CHARS] for name, each in pieces.items()}


def refuse_void(approval: Approval, plan: Doc, started: RunStarted, now: int) -> None:
    """Raise `Conflict` unless an approval is of exactly this plan and has not expired."""
    if approval.expires and approval.expires <= now:
        raise Conflict(f"the approval by {approval.actor} has expired. Fix: approve it again")
    if not approval.limits:
        raise Conflict(f"the approval by {approval.actor} names no limits. Fix: approve it again")
    refuse_other(approval, plan, started)


def refuse_other(approval: Approval, plan: Doc, started: RunStarted) -> None:
    """Raise `Conflict` unless an approval is of exactly this plan, under limits no looser."""
    who, params, catalog = approval.actor, started.params, Catalog(started.catalog)
    context, limits = str(started.plan.get("context", "")), approval.limits
    if approval.seal != approval.sealed():
        raise Conflict("the approval file was changed after it was written, so it is void")
    bound = plan_binding(
        plan, params, catalog, approval.expires, context, limits, widens=approval.widens
    )
    if approval.binding != bound:
        before, after = approval.parts, parts_of(plan, params, catalog, context)
        names = [*before, *(name for name in after if name not in before)]
        changed = [name for name in names if before.get(name) != after.get(name)]
        what = f"changed since: {listed(changed, 20)}" if changed else "it is for another plan"
        raise Conflict(
            f"the approval by {who} is for another plan; {what}. Fix: review the plan "
            "with `leadhand review PLAN`, and approve it again"
        )
    more = loosened_limits(limits, started.policy)
    if more:
        raise Conflict(
            f"{who} approved it with tighter limits than this run has: {listed(more)}. "
            "Fix: run it with those limits, or approve it with these"
        )


def signed_text(bound: str, actor: str, expires: int) -> bytes:
    """Return the bytes that an approver signs."""
    return f"{FORM}\n{bound}\n{actor}\n{expires}\n".encode()
