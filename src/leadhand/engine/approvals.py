"""Approvals at the door of the engine: whose they are, whether they still hold, used once.

Whether a signature is good is no question for the core, which has no keys. It is asked where what
people say becomes events, so that no way around it exists: not the command line, not Python, not
the socket.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Protocol

from leadhand.audit.approvals import is_signed_by, words_of
from leadhand.core.events import ApprovalGiven, ChangeApproved, ReleaseGiven
from leadhand.core.host import ApprovalUsed, refuse_used
from leadhand.core.plan.revisions import ORIGIN_KEYS
from leadhand.core.review import protected_change
from leadhand.core.review.approval import (
    Approval,
    binding,
    refuse_short,
    refuse_void,
    signed_text,
    was_shown,
)
from leadhand.core.review.decisions import ending
from leadhand.core.review.holds import bound_release, questions
from leadhand.core.review.identity import namesake
from leadhand.core.visible import visible
from leadhand.errors import NotAllowed, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadhand.core.events import Event, RunStarted
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import Now, State
    from leadhand.engine.host import Host


class Signer(Protocol):
    """An approver's key: see `audit/keys.py`."""

    @property
    def name(self) -> str:
        """The name of its public half."""

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""


def refuse_unsigned(
    state: State, events: Sequence[Event], at_hand: Mapping[str, str] | None = None
) -> None:
    """NotAllowed when one of the events allows something, and nobody listed has signed it.

    Listed are the approvers `at_hand` in the settings; where there are none, those of the run.
    """
    approvers = at_hand or state.policy.approvers
    if not approvers:
        return
    for event in events:
        if isinstance(event, ApprovalGiven):
            words = words_of(state.started, event)
            check_signature(approvers, event.actor, words, event.signature)
        if isinstance(event, ReleaseGiven):
            words = signed_text(event.binding, event.actor, event.expires)
            check_signature(approvers, event.actor, words, event.signature)
        if isinstance(event, ChangeApproved):
            words = protected_change.to_sign(state.run, event)
            check_signature(approvers, event.actor, words, event.signature)


def check_signature(approvers: Mapping[str, str], actor: str, text: bytes, signature: str) -> None:
    """NotAllowed unless a listed person signed this."""
    if actor not in approvers:
        raise NotAllowed(
            f"{actor} is not among those who may approve: {', '.join(sorted(approvers))}"
        )
    if not signature:
        raise NotAllowed(
            f"{actor}'s approval is not signed. Fix: name your key with [review] key, or --key PATH"
        )
    if not is_signed_by(approvers[actor], text, signature):
        raise NotAllowed(f"the signature of {actor}'s approval is not by the key of {actor}")


def signed(key: Signer, text: bytes) -> Doc:
    """A signature, as events and approvals hold it."""
    return {"key": key.name, "signature": b64encode(key.sign(text)).decode()}


def own_words(
    state: State,
    actor: str,
    now: Now,
    *,
    expires: int = 0,
    key: Signer | None = None,
    shown: str = "",
) -> Doc:
    """What somebody says with an approval of the revision that waits: when it ends, signed.

    `shown` is how the hash begins of what they were shown; without it, what the plan claims beyond
    its workers is no part of what they allow. `UsageError` for fewer than 12 digits of it.
    """
    refuse_short(shown)
    revision = state.pending
    expires = ending(state, expires, now)
    found: Doc = {"expires": expires} if expires else {}
    found |= {"shown": shown} if shown else {}
    if key is None or revision is None:
        return found
    bound = binding(state, revision, expires, widens=was_shown(state, revision, shown))
    return found | signed(key, signed_text(bound, actor, expires))


def release_words(
    state: State, question: str, actor: str, now: Now, *, expires: int = 0, key: Signer | None
) -> Doc:
    """What goes with a release of the steps that a question holds: when it ends, signed."""
    expires = ending(state, expires, now)
    found: Doc = {"expires": expires} if expires else {}
    if key is None:
        return found
    bound = bound_release(state, question, expires)
    return found | signed(key, signed_text(bound, actor, expires))


def signed_releases(
    state: State, steps: list[str], actor: str, now: Now, key: Signer | None
) -> Doc:
    """What goes with a release, for each question that holds one of these steps; none without a
    key.
    """
    if key is None:
        return {}
    return {
        ident: release_words(state, ident, actor, now, key=key) for ident in questions(state, steps)
    }


def words_with(
    state: State,
    ident: str,
    choice: str,
    actor: str,
    now: Now,
    *,
    expires: int = 0,
    key: Signer | None = None,
    shown: str = "",
) -> Doc | None:
    """What goes with an answer that allows something; None with any other."""
    question = state.questions.get(ident)
    if choice == "approve" and question is not None and question.kind == protected_change.KIND:
        change = protected_change.change_of(state, question)
        seen: Doc = {"shown": shown} if shown else {}
        if key is None or not change:
            return seen
        bound = protected_change.binding(state.run, question.id, question.step, change)
        return seen | signed(key, signed_text(bound, actor, 0))
    if choice == "approve":
        return own_words(state, actor, now, expires=expires, key=key, shown=shown)
    if choice == "release" and question is not None:
        return release_words(state, question.id, actor, now, expires=expires, key=key)
    return None


async def admit(host: Host, started: RunStarted, proposal: Doc | None) -> None:
    """Check the approvals a run is started with, and use them up: durable before it begins."""
    if not started.approvals:
        return
    if proposal is None:
        raise UsageError("an approval is of a plan, and this is a goal")
    head = {key: value for key, value in started.plan.items() if key not in ORIGIN_KEYS}
    doc = {**head, "steps": proposal["steps"], "outlook": proposal.get("outlook") or []}
    given: list[Approval] = []
    for each in started.approvals:
        approval = Approval.from_doc(each)
        refuse_used(host.shared, approval.id, approval.actor)
        refuse_void(approval, doc, started, host.time().latest)
        if started.policy.approvers:
            text, signature = approval.to_sign(), approval.signature
            check_signature(started.policy.approvers, approval.actor, text, signature)
        same = namesake(approval.actor, (other.actor for other in given))
        if same == approval.actor:
            raise UsageError(f"two of the approvals are by {same}: one is enough")
        if same is not None:
            both = f"{visible(same)} and {visible(approval.actor)}"
            raise UsageError(f"the approvals of {both} count as one person's: one is enough")
        _refuse_one_key(started.policy.approvers, approval, given)
        given.append(approval)
    for approval in given:
        # Another start may have come in between.
        refuse_used(host.shared, approval.id, approval.actor)
        if host.claim_approval is not None:
            host.claim_approval(approval, started.run)
        await host.tell_host(ApprovalUsed(approval.id, started.run, approval.actor))


def _refuse_one_key(
    approvers: Mapping[str, str], approval: Approval, given: list[Approval]
) -> None:
    own = approvers.get(approval.actor, approval.key)
    for other in given:
        if own and own == approvers.get(other.actor, other.key):
            names = f"{other.actor} and {approval.actor}"
            raise UsageError(f"the approvals of {names} are by one key, so by one person")
