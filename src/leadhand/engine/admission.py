"""Approvals are checked where work is admitted: before anything of a run starts that was taken up.

A log may have been written by another program, or changed and hashed anew. So before a run that was
read from a store starts anything, what people are said to have allowed is looked at again: each
approval and release by a pure check of the whole log (it is of exactly the plan, the workers and
the limits that the log holds, and by as many people as had to), each approval of a protected change
likewise (it is of exactly the commit that was asked about), and each signature by the key of the
approver. What does not hold is recorded as void, and the steps that rest on it are held until
people allow them anew; a protected change is then asked about again. Nothing is lost, and nothing
of it starts meanwhile.

What this process itself records passes the same checks at the door (`approvals.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leadhand.audit.approvals import Signatures
from leadhand.codec.events import decode_all
from leadhand.core import events as ev
from leadhand.core.logcheck.checker import check
from leadhand.core.review import protected_change
from leadhand.core.visible import visible_name
from leadhand.errors import LeadhandError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadhand.ports import Entry

RULES = frozenset({"I24", "I26", "I28", "I53", "L13"})
"""Rules of the log that are about what people allowed."""
_PEOPLE = (b'"ApprovalGiven"', b'"ReleaseGiven"', b'"StepsReleased"', b'"ChangeApproved"')
_SIGNED = (ev.ApprovalGiven, ev.ReleaseGiven, ev.ChangeApproved)


class Fault(NamedTuple):
    """One entry of a log that does not hold."""

    entry: int
    reason: str
    revisions: list[int]


def names_people(entries: Sequence[Entry]) -> bool:
    """Whether a log says that people allowed something."""
    return any(word in entry.body for entry in entries for word in _PEOPLE)


def faults(
    run: str,
    entries: Sequence[Entry],
    at_hand: Mapping[str, str],
    used: Mapping[str, str],
    known: set[int],
) -> list[Fault]:
    """What does not hold of the approvals in a log, the first thing of each entry.

    `at_hand` are the approvers of the settings with their keys; `used` which run has used up each
    approval of a plan; entries in `known` were found before.
    """
    log = decode_all([(entry.version, entry.body) for entry in entries])
    pairs = [(entry.at, event) for entry, event in zip(entries, log, strict=True)]
    wrong = {each.seq: each.message for each in reversed(check(pairs)) if each.rule in RULES}
    wrong |= _unsigned(run, log, at_hand, used)
    wrong |= _unknown_keys(log, at_hand)
    concerns = _concerns(log)
    return [
        Fault(seq, wrong[seq], concerns[seq])
        for seq in sorted(wrong)
        if seq not in known and concerns.get(seq)
    ]


def _unsigned(
    run: str, log: Sequence[ev.Event], at_hand: Mapping[str, str], used: Mapping[str, str]
) -> dict[int, str]:
    """Approvals whose signature does not hold, or cannot be checked where there must be one."""
    looked, first = Signatures(at_hand, used), log[0] if log else None
    try:
        found = {each.seq: each.message for each in reversed(looked.check(run, log))}
        unsure = "; ".join(looked.unchecked.values())
    except LeadhandError as error:  # What stands there as an approval is none.
        found = {1: str(error)} | {
            seq: f"{event.actor}'s approval is none: {error}"
            for seq, event in enumerate(log, 1)
            if isinstance(event, ev.ApprovalGiven)
        }
        unsure = str(error)  # No signature after it was looked at.
    recorded = first.policy.approvers if isinstance(first, ev.RunStarted) else {}
    if unsure and (at_hand or recorded):
        for seq, event in enumerate(log, 1):
            if isinstance(event, _SIGNED):
                found.setdefault(seq, f"{event.actor}'s signature cannot be checked: {unsure}")
    return found


def _unknown_keys(log: Sequence[ev.Event], at_hand: Mapping[str, str]) -> dict[int, str]:
    """Approvals that the approvers of the settings cannot have given."""
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
    """The revisions that each entry about a permission concerns."""
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
