"""What an approval is of: exactly what runs, as one hash.

The *binding* covers the revision (its hash covers the steps and every revision before), the plan's
own words besides its steps, the values of its parameters, the workers that may do the steps with
their versions (a version is a digest of source or argv, working directory and environment names,
unless its author says otherwise), the limits it runs under, what steps claim beyond their workers
(`core/promises.py`, unless the approver was not shown it), and when the approval ends. Anything
that differs gives another binding, and an approval of another binding is no approval.

`plan_binding` is the same for a plan that is not running yet, so that it can be approved on its own
and run later: key order, white space and the spelling as YAML or JSON make no difference, the order
of steps does. Such an `Approval` is a document of its own, good for one run. It says the limits it
was given under: a run may have tighter ones, never looser (`core/review/limits.py`). Its seal shows
that it is as it was written; only a signature shows by whom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core import events as ev
from leadhand.core.calendar import iso
from leadhand.core.catalog import Catalog, doers
from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.revisions import head_of
from leadhand.core.promises import is_persons, may_widen, widenings
from leadhand.core.review.limits import looser
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
LIMITS_SINCE = 4
"""The version of decisions whose bindings cover the limits that a run was started with."""
SHOWN_MIN = 12
"""How many digits of a hash prove that a person saw it: fewer could be guessed."""
PART_CHARS = 16
"""How much of a part's digest is kept: it explains, and binds nothing."""


class Approval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person's permission to run exactly one plan, once."""

    form: str = FORM
    id: str
    actor: str
    binding: str
    """What was allowed, as one hash: `plan_binding`."""
    given: int
    """When, in UTC microseconds."""
    expires: int = 0
    """UTC microseconds; 0 for never."""
    reason: str = ""
    parts: dict[str, str] = {}
    """Digests of what the binding covers, part by part, so that a change can be named."""
    limits: dict[str, Any] = {}
    """What it was given under: `core/review/limits.py`. Empty in approvals from before there
    were any."""
    widens: bool = False
    """Whether the approver was shown what steps claim beyond their workers, and allows it."""
    key: str = ""
    seal: str = ""
    """A digest of all of the above."""
    signature: str = ""
    """Of the seal, by the approver's key."""

    def to_doc(self) -> Doc:
        """As it stands in a file."""
        found: Doc = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_doc(cls, doc: Any) -> Approval:
        """From a file's content; UsageError when it is something else."""
        try:
            found = msgspec.convert(doc, cls)
        except msgspec.ValidationError as error:
            raise UsageError(f"this is no approval: {error}") from None
        if found.form != FORM:
            raise UsageError(f"this is no approval, or one of another version: {found.form[:40]!r}")
        return found

    def sealed(self) -> str:
        """What the seal should be."""
        doc = {name: each for name, each in self.to_doc().items() if name not in _OUTSIDE}
        if not self.limits:
            del doc["limits"]
        if not self.widens:
            del doc["widens"]
        return digest(FORM, "seal", canonical(doc))

    def to_sign(self) -> bytes:
        """What its approver signs."""
        return signed_text(self.seal, self.actor, self.expires)


_OUTSIDE = ("seal", "signature")


def versions(steps: Iterable[Doc], catalog: Catalog) -> dict[str, str]:
    """The workers that may do some steps, each with its version; an unknown one has none."""
    known = catalog.workers
    names = {name for step in steps for name in doers(step, known)}
    return {name: known[name].version if name in known else "" for name in sorted(names)}


def binding(
    state: State, revision: Revision | RevisionProposed, expires: int, *, widens: bool = True
) -> str:
    """What allowing a revision of a run allows; without `widens`, its claims beyond its workers
    are left out, as they are for a person who was not shown them.
    """
    if state.started is None:
        return ""
    claimed = claimed_by(state, revision) if widens else {}
    workers = versions(revision.add, state.catalog)
    return bind(state.started, revision.hash, workers, expires, claimed)


def claimed_by(state: State, revision: Revision | RevisionProposed) -> dict[str, Claims]:
    """What a revision claims beyond its workers, where that is for its author to claim."""
    claimed = widenings(revision.add, state.catalog)
    return claimed if claimed and may_widen(state.started, revision) else {}


def was_shown(state: State, revision: Revision, shown: str) -> bool:
    """Whether what somebody saw, by how its hash begins, is the revision with all it claims."""
    return len(shown) >= SHOWN_MIN and binding(state, revision, 0).startswith(shown)


def refuse_short(shown: str) -> None:
    """Raise `UsageError` for so little of a hash that it could be guessed; nothing is no hash."""
    if shown and len(shown) < SHOWN_MIN:
        raise UsageError(
            f"a hash of what was shown has at least {SHOWN_MIN} digits, not {len(shown)}: fewer "
            "could be guessed. Fix: copy it from what `leadhand review` shows"
        )


def bind(
    started: RunStarted,
    revision_hash: str,
    workers: Mapping[str, str],
    expires: int,
    claimed: Mapping[str, Json] | None = None,
) -> str:
    """The same, from what the log holds; `claimed` is what steps claim beyond their workers."""
    parts = [canonical(started.plan), canonical(started.params), canonical(dict(workers))]
    if started.decide_version >= LIMITS_SINCE:
        parts.append(canonical(started.policy))
    if claimed:
        parts.append(canonical(dict(claimed)))
    return digest(FORM, started.run, revision_hash, *parts, str(expires))


def release_binding(
    started: RunStarted, question: str, steps: Iterable[Doc], catalog: Catalog, expires: int
) -> str:
    """What letting held steps go allows: as much as an approval of them would.

    A hold may stand for an approval that has ended, or for a worker that has changed since, so it
    covers the steps in full, the workers as they are now, and all else that an approval covers.
    """
    docs = list(steps)
    parts = [docs, started.plan, started.params, versions(docs, catalog), started.policy]
    return digest(FORM, "release", started.run, question, *map(canonical, parts), str(expires))


def _covered(plan: Doc) -> Doc:
    """A plan without what changes nothing: the name of its schema, an empty outlook."""
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
    """What allowing a plan document allows; `widens` as for `binding`."""
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
    """What the giver of an approval was shown of the plan that a run starts with, as one hash."""
    plan = head_of(started) | {"steps": steps, "outlook": outlook}
    context = str(started.plan.get("context", ""))
    catalog = Catalog(started.catalog)
    limits, widens = given.limits, given.widens
    return plan_binding(plan, started.params, catalog, 0, context, limits, widens=widens)


class ApprovalRecord(NamedTuple):
    """Who allowed a revision, or the policy in their place: the same on every surface."""

    revision: int
    digest: str
    """What was shown, as one hash."""
    by: str
    at: int
    why: str
    until: int
    """UTC microseconds; 0 for never."""
    key: str
    """The name of the key that signed it; empty when nothing did."""

    def document(self) -> Doc:
        """As `--json`, the API and the export show it."""
        return {
            "revision": self.revision,
            "digest": self.digest,
            "by": self.by,
            "at": iso(self.at),
            "why": self.why,
            "until": iso(self.until) if self.until else None,
            "signed": bool(self.key),
            "key": self.key,
        }


def allowed(log: Iterable[tuple[int, ev.Event]]) -> list[ApprovalRecord]:
    """Return every approval in a log, and every revision that the policy let through."""
    found: list[ApprovalRecord] = []
    shown = dict[str, str]()
    for at, event in _with_digests(log, shown):
        match event:
            case ev.ApprovalGiven():
                number, seen = event.number, event.digest or shown.get(event.hash, "")
                key = (event.key or "a key without a name") if event.signature else ""
                made = ApprovalRecord(
                    number, seen, event.actor, at, event.reason, event.expires, key
                )
                found.append(made)
            case ev.RevisionApproved(actor="policy"):
                number, seen = event.number, shown.get(event.hash, "")
                made = ApprovalRecord(number, seen, "policy", at, event.reason, event.expires, "")
                found.append(made)
            case _:
                pass
    return found


def digests(log: Iterable[tuple[int, ev.Event]]) -> dict[str, str]:
    """Return what was shown of each revision, as one hash, by the revision's own hash."""
    shown = dict[str, str]()
    for at, event in _with_digests(log, shown):
        if isinstance(event, ev.ApprovalGiven) and event.digest:
            shown[event.hash] = event.digest
        del at
    return shown


def _with_digests(
    log: Iterable[tuple[int, ev.Event]], shown: dict[str, str]
) -> Iterator[tuple[int, ev.Event]]:
    """Go through a log, and keep in `shown` the digest of each revision as it is proposed."""
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
    """The same in pieces, each under the name that people know it by."""
    pieces: dict[str, Json] = {
        key: value for key, value in _covered(plan).items() if key != "steps"
    }
    steps = plan.get("steps", ())
    pieces |= {f"step {step.get('id')}": step for step in steps}
    pieces["the order of steps"] = [step.get("id") for step in steps]
    pieces |= {f"parameter {name}": value for name, value in params.items()}
    pieces |= {f"worker {name}": each for name, each in versions(steps, catalog).items()}
    pieces |= {f"what step {step} claims": each for step, each in widenings(steps, catalog).items()}
    pieces["the context"] = context
    return {name: digest(canonical(each))[:PART_CHARS] for name, each in pieces.items()}


def refuse_void(approval: Approval, plan: Doc, started: RunStarted, now: int) -> None:
    """Conflict unless an approval is of exactly this, now."""
    if approval.expires and approval.expires <= now:
        raise Conflict(f"the time of {approval.actor}'s approval is up. Fix: approve it again")
    if not approval.limits:
        raise Conflict(
            f"{approval.actor}'s approval does not say under which limits it was given, as those "
            "of earlier versions do not. Fix: approve it again"
        )
    refuse_other(approval, plan, started)


def refuse_other(approval: Approval, plan: Doc, started: RunStarted) -> None:
    """Conflict unless an approval is of exactly this plan, under limits that are no looser."""
    who, params, catalog = approval.actor, started.params, Catalog(started.catalog)
    context, limits = str(started.plan.get("context", "")), approval.limits
    if approval.seal != approval.sealed():
        raise Conflict("the approval was changed after it was given, and allows nothing")
    bound = plan_binding(
        plan, params, catalog, approval.expires, context, limits, widens=approval.widens
    )
    if approval.binding != bound:
        before, after = approval.parts, parts_of(plan, params, catalog, context)
        names = [*before, *(name for name in after if name not in before)]
        changed = [name for name in names if before.get(name) != after.get(name)]
        what = f"changed since: {listed(changed, 20)}" if changed else "it is of something else"
        raise Conflict(
            f"{who} approved another plan than this; {what}. "
            "Fix: look at it with `leadhand review PLAN`, and approve it again"
        )
    more = looser(limits, started.policy)
    if more:
        raise Conflict(
            f"{who} approved it under tighter limits than this run would have: {listed(more)}. "
            "Fix: run it under those, or approve it under these"
        )


def signed_text(bound: str, actor: str, expires: int) -> bytes:
    """What an approver signs."""
    return f"{FORM}\n{bound}\n{actor}\n{expires}\n".encode()
