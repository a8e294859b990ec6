"""Verification of signed approvals in an existing log.

An approval is signed with a key that is in no log (Ed25519), and a run records the public key of
each approver when it starts. So every signature can be checked with the log alone, in a database or
in a bundle:

    the run named approvers     each approval must be signed by the key recorded for its actor
    it named none               a signature is checked if the approver's key is at hand
    approved before the run     the document must also be of this plan, these workers, these limits

A log cannot prove that a recorded key is really that person's: an attacker who can rewrite a whole
log can put other keys into it. So the keys are compared with those at hand (`[approvers]` of the
settings), and without any the result says so.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING

from leadhand.audit.chain import ChainProblem
from leadhand.audit.keys import PublicKey, name_of, raw_key
from leadhand.core import events as ev
from leadhand.core.plan.revisions import head_of
from leadhand.core.review.approval import Approval, plan_digest, refuse_other, signed_text
from leadhand.core.review.protected_change import to_sign
from leadhand.core.wording import listed
from leadhand.errors import LeadhandError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


RULE = "signature"


def is_signed_by(key: str, text: bytes, signature: str) -> bool:
    """Return whether a signature over a text is by `key`, as settings and logs name it."""
    try:
        public = PublicKey.of(raw_key(key))
        return public.check(text, b64decode(signature, validate=True))
    except ValueError:
        return False


def words_of(started: ev.RunStarted | None, event: ev.ApprovalGiven) -> bytes:
    """Return the text that the giver of an approval has signed; empty if there is none."""
    if not event.approval:
        return signed_text(event.binding, event.actor, event.expires)
    given = _given(started, event)
    return given.to_sign() if given is not None else b""


def _given(started: ev.RunStarted | None, event: ev.ApprovalGiven) -> Approval | None:
    approvals = started.approvals if started is not None else ()
    return next(
        (Approval.from_doc(each) for each in approvals if each.get("id") == event.approval), None
    )


class Signatures:
    """The result of checking the approvals of one run or many."""

    def __init__(
        self, known: Mapping[str, str] | None = None, used: Mapping[str, str] | None = None
    ) -> None:
        self.known = known or {}
        """The known approvers and their keys."""
        self.used = used
        """The run that used each approval, if known: only the host knows."""
        self.good = 0
        self.unsigned = 0
        self.strangers: dict[str, str] = {}
        """Keys that signed and are not at hand, each with the name of their claimed owner."""
        self.unchecked: dict[str, str] = {}
        """Keys whose signatures could not be checked, with the reason."""
        self.elsewhere = False
        """Whether an approval given before the run may also have been used by another run."""

    def add(self, other: Signatures) -> None:
        """Add the result of checking further runs."""
        self.good += other.good
        self.unsigned += other.unsigned
        self.strangers.update(other.strangers)
        self.unchecked.update(other.unchecked)
        self.elsewhere = self.elsewhere or other.elsewhere

    def check(self, run: str, log: Iterable[ev.Event]) -> list[ChainProblem]:
        """Return the problems of the approvals of a run."""
        found: list[ChainProblem] = []
        started: ev.RunStarted | None = None
        proposed: ev.RevisionProposed | None = None
        for seq, event in enumerate(log, 1):
            wrong: list[str] = []
            match event:
                case ev.RunStarted():
                    started = event
                case ev.RevisionProposed():
                    proposed = event
                case ev.ApprovalGiven() if started is not None:
                    what = f"{event.actor}'s approval of revision {event.number}"
                    words = words_of(started, event)
                    wrong = [self._signature(started, event, what, words)]
                    wrong.append(self._prior(started, proposed, event))
                case ev.ReleaseGiven() if started is not None:
                    what = f"{event.actor}'s release of {event.question}"
                    words = signed_text(event.binding, event.actor, event.expires)
                    wrong = [self._signature(started, event, what, words)]
                case ev.ChangeApproved() if started is not None:
                    what = f"{event.actor}'s approval of change {event.commit[:12]}"
                    words = to_sign(started.run, event)
                    wrong = [self._signature(started, event, what, words)]
            found += [ChainProblem(run, seq, RULE, each) for each in wrong if each]
        return found

    def _signature(
        self,
        started: ev.RunStarted,
        event: ev.ApprovalGiven | ev.ReleaseGiven | ev.ChangeApproved,
        what: str,
        words: bytes,
    ) -> str:
        actor, approvers = event.actor, started.policy.approvers
        key = approvers.get(actor) if approvers else self.known.get(actor)
        if approvers and key is None:
            return f"{what}: {actor} is not among those who may approve"
        if not event.signature:
            self.unsigned += not approvers
            return f"{what} is not signed" if approvers else ""
        if key is None:
            self.unchecked[event.key or "a key without a name"] = f"the key of {actor}: not at hand"
            return ""
        try:
            name = name_of(raw_key(key))
            if not approvers and name != event.key:
                self.unchecked[event.key] = f"{actor}'s key is now {name}"
                return ""
            good = is_signed_by(key, words, event.signature)
            if not good and (newer := self.known.get(actor, key)) != key:
                good = is_signed_by(newer, words, event.signature)  # The key was replaced since.
        except ValueError:
            return f"{what} cannot be checked: what stands for the key of {actor} is none"
        except UsageError as error:
            self.unchecked[event.key] = str(error)
            return ""
        if not good:
            return f"{what} is not signed by the key of {actor}"
        self.good += 1
        if self.known.get(actor) != key:
            self.strangers[name] = actor
        return ""

    def _prior(
        self,
        started: ev.RunStarted,
        proposed: ev.RevisionProposed | None,
        event: ev.ApprovalGiven,
    ) -> str:
        """Check that an earlier approval is of the initial plan, and not used twice."""
        if not event.approval:
            return ""
        what = f"approval {event.approval}"
        given = _given(started, event)
        if given is None or proposed is None:
            return f"{what} is none that the run was started with"
        same = (event.actor, event.expires, event.key, event.signature)
        if same != (given.actor, given.expires, given.key, given.signature):
            return f"{what} does not say what {event.actor} is said to have allowed"
        plan = head_of(started) | {"steps": proposed.add, "outlook": proposed.outlook}
        try:
            refuse_other(given, plan, started)
        except LeadhandError as error:
            return f"{what}: {error}"
        if event.digest and event.digest != plan_digest(
            started, proposed.add, proposed.outlook, given
        ):
            return f"{what} is not of what {event.actor} is said to have been shown"
        if self.used is None:
            self.elsewhere = True
        elif self.used.get(given.id) != started.run:
            by = self.used.get(given.id)
            return f"{what} was used by {f'run {by}' if by else 'no run, as the host knows it'}"
        return ""

    def unshown(self) -> list[str]:
        """Return a sentence for each thing these approvals cannot prove."""
        found = []
        if self.unsigned:
            several = "an approval is" if self.unsigned == 1 else f"{self.unsigned} approvals are"
            found.append(f"who approved: {several} not signed, and a name alone proves nothing")
        for key, why in sorted(self.unchecked.items()):
            found.append(f"whether {key} signed an approval: signature not checked ({why})")
        if self.strangers:
            keys = listed([f"{key} is {who}'s" for key, who in sorted(self.strangers.items())])
            found.append(f"that {keys}: only the log says so; name them in [approvers]")
        if self.elsewhere:
            found.append("that its approval was used for this run only: the database knows that")
        return found
