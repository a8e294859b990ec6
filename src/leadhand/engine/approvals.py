"""Approvals in the engine: their signatures, their validity, and their single use.

Signatures are not checked in the core, which has no keys. They are checked where commands become
events, so that no path bypasses the check: neither the command line, nor Python, nor the socket.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leadhand.audit.signatures import Signatures, is_signed_by, words_of
from leadhand.codec.events import decode_all
from leadhand.core import events as ev
from leadhand.core.events import ApprovalGiven, ChangeApproved, ReleaseGiven
from leadhand.core.host_events import ApprovalUsed, refuse_used
from leadhand.core.logcheck.checker import check
from leadhand.core.plan.revisions import ORIGIN_KEYS
from leadhand.core.review import protected_change
from leadhand.core.review.approval import (
    Approval,
    binding,
    refuse_partial,
    refuse_void,
    signed_text,
    was_shown,
)
from leadhand.core.review.decisions import expiry_of
from leadhand.core.review.holds import bound_release, questions
from leadhand.core.review.identity import namesake
from leadhand.core.visible import visible, visible_name
from leadhand.errors import LeadhandError, NotAllowed, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadhand.core.events import Event, RunStarted
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import Now, State
    from leadhand.ports import Entry, Host


# Approvals are checked on admission: before a resumed run starts anything.
#
# A log may have been written by another program, or changed and hashed again. So before a run that
# was read from a store starts anything, its permissions are checked again: each approval and
# release by a pure check of the whole log (it is of exactly the plan, the workers and the limits
# that the log holds, by as many people as required), each approval of a protected change likewise
# (it is of exactly the commit that was asked about), and each signature by the key of the approver.
# An invalid permission is recorded as void, and the steps that rest on it are held until people
# allow them again; a protected change is then asked about again. Nothing is lost, and none of these
# steps starts meanwhile.
#
# Events recorded by this process itself pass the same checks when they are submitted.


RULES = frozenset({"I24", "I26", "I28", "I53", "L13"})
"""Rules of the log checker about permissions of people."""
_PEOPLE = (b'"ApprovalGiven"', b'"ReleaseGiven"', b'"StepsReleased"', b'"ChangeApproved"')
_SIGNED = (ev.ApprovalGiven, ev.ReleaseGiven, ev.ChangeApproved)


class InvalidEntry(NamedTuple):
    """One invalid entry of a log."""

    entry: int
    reason: str
    revisions: list[int]


def names_people(entries: Sequence[Entry]) -> bool:
    """Return whether a log records permissions of people."""
    return any(word in entry.body for entry in entries for word in _PEOPLE)


def invalid_entries(
    run: str,
    entries: Sequence[Entry],
    at_hand: Mapping[str, str],
    used: Mapping[str, str],
    known: set[int],
) -> list[InvalidEntry]:
    """Return the invalid approvals of a log, the first problem of each entry.

    `at_hand` are the approvers of the settings with their keys; `used` maps each used plan approval
    to its run; entries in `known` were found before.
    """
    log = decode_all([(entry.version, entry.body) for entry in entries])
    pairs = [(entry.at, event) for entry, event in zip(entries, log, strict=True)]
    wrong = {each.seq: each.message for each in reversed(check(pairs)) if each.rule in RULES}
    wrong |= _unsigned(run, log, at_hand, used)
    wrong |= _unknown_keys(log, at_hand)
    concerns = _concerns(log)
    return [
        InvalidEntry(seq, wrong[seq], concerns[seq])
        for seq in sorted(wrong)
        if seq not in known and concerns.get(seq)
    ]


def _unsigned(
    run: str, log: Sequence[ev.Event], at_hand: Mapping[str, str], used: Mapping[str, str]
) -> dict[int, str]:
    """Return approvals with an invalid signature, or without a verifiable one where required."""
    looked, first = Signatures(at_hand, used), log[0] if log else None
    try:
        found = {each.seq: each.message for each in reversed(looked.check(run, log))}
        unsure = "; ".join(looked.unchecked.values())
    except LeadhandError as error:  # An entry recorded as an approval is malformed.
        found = {1: str(error)} | {
            seq: f"{event.actor}'s approval is none: {error}"
            for seq, event in enumerate(log, 1)
            if isinstance(event, ev.ApprovalGiven)
        }
        unsure = str(error)  # Later signatures were not checked.
    recorded = first.policy.approvers if isinstance(first, ev.RunStarted) else {}
    if unsure and (at_hand or recorded):
        for seq, event in enumerate(log, 1):
            if isinstance(event, _SIGNED):
                found.setdefault(seq, f"{event.actor}'s signature cannot be checked: {unsure}")
    return found


def _unknown_keys(log: Sequence[ev.Event], at_hand: Mapping[str, str]) -> dict[int, str]:
    """Return approvals that the approvers of the settings cannot have given."""
    if not at_hand:
        return {}
    started, found = log[0] if log else None, dict[int, str]()
    recorded = started.policy.approvers if isinstance(started, ev.RunStarted) else {}
    for seq, event in enumerate(log, 1):
        if not isinstance(event, _SIGNED):
            continue
        who, key = visible_name(event.actor), at_hand.get(event.actor)
        what = "release" if isinstance(event, ev.ReleaseGiven) else "approval"
        what += f" of change {event.commit[:12]}" if isinstance(event, ev.ChangeApproved) else ""
        if key is None:
            found[seq] = f"{who}'s {what}: [approvers] does not name {who}"
        elif not event.signature:
            found[seq] = f"{who}'s {what} is not signed"
        elif recorded and recorded.get(event.actor) != key and event.key != _name(key):
            found[seq] = f"{who}'s {what} is by another key than [approvers] has for {who}"
    return found


def _name(key: str) -> str:
    from leadhand.audit.keys import name_of, raw_key

    try:
        return name_of(raw_key(key))
    except ValueError:
        return key


def _concerns(log: Sequence[ev.Event]) -> dict[int, list[int]]:
    """Return the revisions affected by each entry about a permission."""
    found: dict[int, list[int]] = {}
    part_of: dict[str, int] = {}
    held: dict[str, list[str]] = {}
    changed: dict[str, str] = {}
    for seq, event in enumerate(log, 1):
        match event:
            case ev.RevisionProposed():
                part_of |= {doc["id"]: event.number for doc in event.add}
                found[seq] = [event.number]
            case ev.ApprovalGiven() | ev.RevisionApproved() | ev.ReviewRequested():
                found[seq] = [event.number]
            case ev.StepsHeld():
                held[event.question] = event.steps
            case ev.ReleaseGiven():
                steps = held.get(event.question, ())
                found[seq] = sorted({part_of[step] for step in steps if step in part_of})
            case ev.QuestionAsked(kind=protected_change.KIND):
                changed[event.id] = event.step
            case ev.ChangeApproved() if event.step in part_of:
                found[seq] = [part_of[event.step]]
            case ev.QuestionAnswered() if changed.get(event.id) in part_of:
                found[seq] = [part_of[changed[event.id]]]
            case ev.StepsReleased():
                found[seq] = sorted({part_of[step] for step in event.steps if step in part_of})
            case _:
                pass
    return found


class ApprovalSigner(Protocol):
    """An approver's key: see `audit/keys.py`."""

    @property
    def name(self) -> str:
        """The name of its public key."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature: 64 bytes."""


def refuse_unsigned(
    state: State, events: Sequence[Event], at_hand: Mapping[str, str] | None = None
) -> None:
    """Raise `NotAllowed` if an event gives a permission that no listed approver has signed.

    Listed are the approvers `at_hand` in the settings; without these, the approvers of the run.
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
    """Raise `NotAllowed` unless a listed person signed `text`."""
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


def signature_doc(key: ApprovalSigner, text: bytes) -> Doc:
    """Return a signature in the form of events and approvals."""
    return {"key": key.name, "signature": b64encode(key.sign(text)).decode()}


def approval_words(
    state: State,
    actor: str,
    now: Now,
    *,
    expires: int = 0,
    key: ApprovalSigner | None = None,
    shown: str = "",
) -> Doc:
    """Return the details of an approval of the pending revision: expiry and signature.

    `shown` is the digest of what the approver was shown; without it, claims of the plan beyond its
    workers are not approved. Raise `UsageError` if it is a part of a digest.
    """
    refuse_partial(shown)
    revision = state.pending
    expires = expiry_of(state, expires, now)
    found: Doc = {"expires": expires} if expires else {}
    found |= {"shown": shown} if shown else {}
    if key is None or revision is None:
        return found
    bound = binding(state, revision, expires, widens=was_shown(state, revision, shown))
    return found | signature_doc(key, signed_text(bound, actor, expires))


def release_words(
    state: State,
    question: str,
    actor: str,
    now: Now,
    *,
    expires: int = 0,
    key: ApprovalSigner | None,
) -> Doc:
    """Return the details of a release of the steps a question holds: expiry and signature."""
    expires = expiry_of(state, expires, now)
    found: Doc = {"expires": expires} if expires else {}
    if key is None:
        return found
    bound = bound_release(state, question, expires)
    return found | signature_doc(key, signed_text(bound, actor, expires))


def signed_releases(
    state: State, steps: list[str], actor: str, now: Now, key: ApprovalSigner | None
) -> Doc:
    """Return the details of a release, per question that holds one of these steps; or {}."""
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
    key: ApprovalSigner | None = None,
    shown: str = "",
) -> Doc | None:
    """Return the details of an answer that gives a permission; None for any other answer."""
    question = state.questions.get(ident)
    if choice == "approve" and question is not None and question.kind == protected_change.KIND:
        change = protected_change.change_of(state, question)
        seen: Doc = {"shown": shown} if shown else {}
        if key is None or not change:
            return seen
        bound = protected_change.binding(state.run, question.id, question.step, change)
        return seen | signature_doc(key, signed_text(bound, actor, 0))
    if choice == "approve":
        return approval_words(state, actor, now, expires=expires, key=key, shown=shown)
    if choice == "release" and question is not None:
        return release_words(state, question.id, actor, now, expires=expires, key=key)
    return None


async def admit(host: Host, started: RunStarted, proposal: Doc | None) -> None:
    """Check the approvals a run is started with and use them up, durably, before it starts."""
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
        # Another run may have used it meanwhile.
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
