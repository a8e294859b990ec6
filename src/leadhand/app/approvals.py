"""Approvals, answers and amendments: a person's decisions as commands to a run."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.app.inputs import as_plain
from leadhand.audit.keys import PrivateKey
from leadhand.core.commands import Command
from leadhand.core.decide.effects import Move
from leadhand.core.durations import seconds
from leadhand.core.plan.amend import amendment, edit
from leadhand.core.plan.revisions import plan_of
from leadhand.core.review.approval import Approval, parts_of, plan_binding
from leadhand.core.review.limits import limits_of
from leadhand.core.state.model import Now
from leadhand.engine.approvals import signature_doc, words_with
from leadhand.errors import NotAllowed, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.policy import Policy
    from leadhand.core.state.model import State
    from leadhand.ports import Reviewer


Expiry = str | float | timedelta | datetime | None
"""When an approval expires: "8 hours" from now, or an instant with its zone."""


def approval_of(  # noqa: PLR0913 - all that an approval says
    doc: Doc,
    values: Doc,
    catalog: Catalog,
    policy: Policy,
    *,
    actor: str,
    now: int,
    expires: int = 0,
    reason: str = "",
    key: PrivateKey | None = None,
    context: str = "",
    widens: bool = False,
) -> Approval:
    """Return an approval of a checked plan, with a new id.

    `values` are those of the plan's parameters. `widens`: whether the approver was shown the claims
    of steps beyond their workers, and allows them.
    """
    if expires and expires <= now:
        raise UsageError("an approval that has already ended allows nothing")
    limits = limits_of(policy)
    found = Approval(
        id=os.urandom(16).hex(),
        actor=actor,
        binding=plan_binding(doc, values, catalog, expires, context, limits, widens=widens),
        given=now,
        expires=expires,
        reason=reason,
        parts=parts_of(doc, values, catalog, context),
        limits=limits,
        widens=widens,
        key=key.name if key is not None else "",
    )
    found = msgspec.structs.replace(found, seal=found.sealed())
    if key is None:
        return found
    return msgspec.structs.replace(
        found, signature=signature_doc(key, found.to_sign())["signature"]
    )


def _pending(state: State) -> set[str]:
    """Return the ids of steps that wait for a review."""
    return {str(doc.get("id")) for doc in (state.pending.add if state.pending else ())}


def revision_of(state: State, doc: Doc) -> Doc:
    """Return the revision that makes a run follow an edited plan.

    Raise `UsageError` if the run cannot follow it.
    """
    delta = amendment(state, doc)
    if delta.head:
        steps = [name for name in delta.head if name in state.steps or name in _pending(state)]
        path = f"write steps.{steps[0]}.…, or " if steps else ""
        raise UsageError(
            f"a run keeps what its plan says besides its steps: {', '.join(delta.head)} cannot "
            f"change. Fix: {path}change the plan, and run that"
        )
    waiting = state.pending
    final = waiting.final if waiting is not None else state.final
    if waiting is None and delta.empty and delta.final == final:
        raise UsageError("the plan is the same as before, so there is nothing to amend")
    base = waiting.hash if waiting is not None else state.head
    drop = dict.fromkeys(delta.drop, "a person took it out of the plan")
    said: Doc = {"steps": delta.add, "cancel": delta.cancel, "final": delta.final, "base": base}
    return {**said, "drop": drop} if drop else said


@dataclass(frozen=True)
class Amendment:
    """Changes by path to the current plan of a run."""

    sets: Mapping[str, Json]
    unset: tuple[str, ...]
    actor: str

    def word(self, state: State, _now: Now) -> Command:
        """Return the command for the run."""
        doc, heirs = plan_of(state)
        doc = edit(doc, self.sets.items(), self.unset, heirs=heirs)
        return Command("amend", self.actor, {"revision": revision_of(state, doc)})

    def __call__(self, state: State, now: Now) -> Move:
        return self.word(state, now)(state, now)


@dataclass(frozen=True)
class signed_answer:  # noqa: N801 - it reads as the verb that it is
    """An answer, signed if it gives a permission and there is a key."""

    question: str
    choice: str
    actor: str
    key: PrivateKey | None = None
    text: str = ""
    data: Json = None
    expires: Expiry = None
    shown: str = ""

    def word(self, state: State, now: Now) -> Command:
        """Return the command for the run."""
        more = words_with(
            state,
            self.question,
            self.choice,
            self.actor,
            now,
            expires=ends(self.expires, now.latest),
            key=self.key,
            shown=self.shown,
        )
        details = {
            "id": self.question,
            "choice": self.choice,
            "text": self.text,
            "data": as_plain(self.data, "data"),
            "approval": more,
        }
        return Command("answer", self.actor, details)

    def __call__(self, state: State, now: Now) -> Move:
        return self.word(state, now)(state, now)


def to_approve(state: State, actor: str) -> str:
    """Return the review that waits for `actor`'s approval; "" if none does."""
    revision = state.pending
    if revision is None or any(each.actor == actor for each in revision.approvals):
        return ""
    return next((each.id for each in state.questions.values() if each.kind == "review"), "")


def moment(state: State) -> Now:
    """Return both clocks for a caller that does not host the run.

    The run clock does not go behind the newest time in the run's log.
    """
    wall = time.time_ns() // 1000
    return Now(max(wall, state.last_at), wall)


def ends(expires: Expiry, now_wall: int) -> int:
    """Return when an approval expires, in UTC microseconds; 0 for never."""
    if expires is None:
        return 0
    if isinstance(expires, datetime):
        if expires.tzinfo is None:
            raise UsageError("the end of the approval needs a time zone: datetime(…, tzinfo=UTC)")
        return int(expires.astimezone(UTC).timestamp() * 1e6)
    try:
        length = expires.total_seconds() if isinstance(expires, timedelta) else seconds(expires)
    except ValueError as error:
        raise UsageError(f"expires: {error}") from None
    return now_wall + int(length * 1e6)


def reviewers_by_name(
    reviewers: Mapping[str, Reviewer] | Iterable[Reviewer],
) -> dict[str, Reviewer]:
    """Return reviewers by the names that runs record."""
    if hasattr(reviewers, "items"):
        return dict(reviewers.items())
    found: dict[str, Reviewer] = {}
    for each in reviewers:
        kind = each if hasattr(each, "__qualname__") else type(each)
        name = f"{kind.__module__}:{getattr(kind, '__qualname__', kind)}"
        if name in found:
            raise UsageError(f"two reviewers are called {name}; name them: {{'name': reviewer}}")
        found[name] = each
    return found


def with_reviewers(policy: Policy, names: Iterable[str]) -> Policy:
    """Return a policy under which these reviewers examine each revision."""
    both = tuple(dict.fromkeys((*policy.reviewers, *names)))
    return policy if both == policy.reviewers else msgspec.structs.replace(policy, reviewers=both)


def approver_key(key: PrivateKey | str | Path | None) -> PrivateKey | None:
    """Return an approver's key, from its file. Raise `NotAllowed` if others may read it."""
    if key is None or isinstance(key, PrivateKey):
        return key
    path = Path(key).expanduser()
    try:
        if path.stat().st_mode & 0o077:
            raise NotAllowed(f"{path}: other accounts can read this key. Fix: chmod 600 {path}")
        return PrivateKey.of(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(
            f"{path}: the approver's key cannot be read ({error.strerror}). "
            f"Fix: leadhand audit-key {path} makes one"
        ) from None


def as_approvals(given: Any) -> list[Doc]:
    """Return approvals in the form that runs record: none, one, or several."""
    several = given if isinstance(given, list | tuple) else [] if given is None else [given]
    return [
        (each if isinstance(each, Approval) else Approval.from_doc(each)).to_doc()
        for each in several
    ]
