"""Changes of protected files: one exact commit, shown to people and bound by their approval.

A worker that changed a protected file reports a failure that carries the change (`Failure.change`):
a commit, its base, the paths, the diff and a digest. The run then asks a person, with a question of
its own kind, and there is no other way on:

    approve      exactly this commit, by as many people as the policy wants; the worker is started
                 again, and takes this change and no other
    send_back    with a comment; the worker starts over, and is told the comment
    drop         the step is skipped

Rules of the policy see a protected change as an effect of that name, so that a rule `{effects =
["protected_change"], then = "two"}` asks for two people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.hashing import canonical, digest
from leadhand.core.review.approval import signed_text
from leadhand.core.review.decisions import (
    ApprovalWords,
    refuse_non_approver,
    refuse_second_approval,
)
from leadhand.core.review.ruling import reach_of, ruling
from leadhand.errors import Conflict, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State, StepState
    from leadhand.core.state.records import Question


KIND = "protected_change"
"""The kind of the question, and the effect that rules of the policy name."""
CHOICES = ("approve", "send_back", "drop")
FORM = "leadhand protected change 1"
COMMIT_CHARS = 12
"""The digits of a commit in texts; an approval names all of them."""


def change_of(state: State, question: Question) -> Doc:
    """Return the change a question is about: commit, base, paths, diff, digest."""
    step = state.steps.get(question.step)
    found = (step.failure or {}).get("change") if step is not None else None
    return dict(found) if isinstance(found, dict) else {}


def change_question(state: State, step: StepState) -> tuple[str, list[str], int]:
    """Return the text, the choices and the number of people of the question about a change."""
    failure = step.failure or {}
    change = failure.get("change") or {}
    reach = reach_of(state, [step.doc])
    found = ruling(state, reach._replace(effects=reach.effects | {KIND}), None)
    paths = ", ".join(change.get("paths", ())) or "nothing"
    commit = str(change.get("commit", ""))[:COMMIT_CHARS]
    text = (
        f"Step {step.id} changes protected files: {paths} (commit {commit}). "
        f"{failure.get('message', '')} Nothing of it is merged yet. Read the diff, then "
        "approve exactly this change, send it back with a comment, or drop it."
    )
    if found.refused:
        return f"{text} It cannot be approved: {found.reason}.", list(CHOICES[1:]), 1
    return text, list(CHOICES), max(1, found.people)


def binding(run: str, question: str, step: str, change: Mapping[str, Any]) -> str:
    """Return the digest an approval of a change covers: run, question, step, commit and content."""
    return digest(FORM, run, question, step, canonical([change["commit"], change["digest"]]))


def to_sign(run: str, event: ev.ChangeApproved) -> bytes:
    """Return the bytes that an approver of a change signs."""
    change = {"commit": event.commit, "digest": event.digest}
    return signed_text(binding(run, event.question, event.step, change), event.actor, 0)


def answer_change(
    state: State, question: Question, choice: str, actor: str, text: str, said: ApprovalWords
) -> list[ev.Event]:
    """Return the events that follow from a person's answer.

    `said.shown` is the commit that the person saw, whole. Raise `UsageError` without it,
    `Conflict` if another commit is pending by now or the person has approved before, and
    `NotAllowed` for an actor that is no person or no approver.
    """
    refuse_non_approver(state, actor, choice.replace("_", " "))
    reply = ev.QuestionAnswered(id=question.id, choice=choice, actor=actor, text=text)
    if choice == "send_back":
        if not text.strip():
            raise UsageError('a change goes back with a comment. Fix: add --text "what to change"')
        return [reply]
    if choice == "drop":
        because = f"{actor} dropped the change" + (f": {text}" if text else "")
        return [reply, ev.StepSkipped(question.step, because, tolerated=True)]
    given = _approval(state, question, actor, text, said)
    enough = len(question.approvals) + 1 >= question.people
    return [given, reply] if enough else [given]


def _approval(
    state: State, question: Question, actor: str, text: str, said: ApprovalWords
) -> ev.ChangeApproved:
    change = change_of(state, question)
    commit = str(change.get("commit", ""))
    if len(said.shown) < len(commit):
        raise UsageError(
            f"an approval names the commit that was read, all {len(commit)} digits: another commit "
            f"can be made that begins alike. Fix: read the diff, then add --commit {commit}"
        )
    if not commit or commit != said.shown:
        raise Conflict(
            f"what waits is not what was approved: it is commit {commit[:COMMIT_CHARS]}, not "
            f"{said.shown[:COMMIT_CHARS]}. Fix: look at it again with `leadhand inbox`"
        )
    refuse_second_approval(state, question.approvals, actor, said.key, question.people)
    return ev.ChangeApproved(
        question=question.id,
        step=question.step,
        commit=commit,
        digest=str(change.get("digest", "")),
        actor=actor,
        reason=text,
        key=said.key,
        signature=said.signature,
    )
