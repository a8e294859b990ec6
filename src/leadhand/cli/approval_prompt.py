"""The question `Approve?` of `leadhand run` and `leadhand resume` on a terminal.

An approval given here is an approval like any other: it is bound to the digest of what was shown,
expires, is signed where approvers have keys, and counts once for each person. What waits is shown
again whenever its digest is no longer the one that was shown. Enter, Ctrl-C and the end of input
decide nothing: the run goes on waiting.
"""

from __future__ import annotations

import os
import tempfile
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from leadhand.cli.rendering.review import painted_change, review_lines
from leadhand.cli.rendering.text import clean
from leadhand.cli.terminal import Overtaken, Terminal, is_foreground
from leadhand.errors import Conflict, LeadhandError, NotAllowed, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadhand.audit.keys import PrivateKey
    from leadhand.cli.console import Console
    from leadhand.cli.signals import Signals
    from leadhand.core.events import Event
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State
    from leadhand.core.state.records import Revision
    from leadhand.settings import Settings


WORDS = {
    "y": "approve",
    "yes": "approve",
    "n": "reject",
    "no": "reject",
    "e": "edit",
    "edit": "edit",
    "d": "diff",
    "diff": "diff",
    "c": "request_changes",
    "changes": "request_changes",
}


class AskedRun(Protocol):
    """The run that is asked about, wherever it is driven."""

    @property
    def state(self) -> State:
        """Its newest state."""

    def log(self) -> Sequence[Event]:
        """Return its events."""

    def stale(self) -> str:
        """Return what has changed on disk since it was loaded for this run; "" if nothing."""

    async def send(self, verb: str, details: Doc) -> Doc:
        """Send a command of the person; durable on return."""


class ApprovalPrompt:
    """Asks a person at the terminal about revisions that wait for an approval."""

    def __init__(self, console: Console, settings: Settings, actor: str) -> None:
        self._console = console
        self._settings = settings
        self._actor = actor
        self._undecided: set[tuple[str, int]] = set()
        """The digests that were asked about without a decision, with the number of approvals."""
        self._draft: tuple[str, str] | None = None
        """An edited plan that was refused, for the next edit: the digest of its base, and it."""
        self.open = False
        """Whether a question is on the screen."""
        self.load_again = False
        """Whether workers or settings must be loaded again before an approval can be given."""

    @property
    def possible(self) -> bool:
        """Whether a person is at the terminal, which this process may read."""
        asks = self._console.can_ask and not self._settings.policy.no_input
        return asks and is_foreground()

    def wants(self, state: State) -> bool:
        """Return whether there is a revision to ask about."""
        revision = _waiting(state)
        if revision is None or self.load_again or state.policy.no_input or not self.possible:
            return False
        return _mark(state, revision) not in self._undecided

    async def ask(self, run: AskedRun, signals: Signals | None) -> None:
        """Show what waits and ask about it, until a person has decided or leaves it."""
        self.open = True
        try:
            with Terminal(signals) as terminal:
                await self._ask(run, terminal)
        finally:
            self.open = False

    async def _ask(self, run: AskedRun, terminal: Terminal) -> None:
        seen: _Shown | None = None
        while (revision := _waiting(run.state)) is not None:
            state, mark, replaced = run.state, _mark(run.state, revision), False
            if seen is None or mark[0] != seen.digest:
                replaced = seen is not None
                self._show(terminal, state, seen)
                seen = _Shown.of(state, revision)
            refusal = self._refusal(state, revision)
            if refusal:
                self._undecided.add(mark)
                terminal.say(f"You cannot approve this: {clean(refusal, 500)}")
                self._say_other_way(terminal, state, revision)
                return
            choices = self._choices(state, revision)
            try:
                answer = await self._line(run, terminal, mark, replaced=replaced)
                if not answer:
                    self._undecided.add(mark)
                    terminal.say("No decision: the run waits.")
                    return
                choice = WORDS.get(answer.lower(), "")
                if choice not in choices:
                    terminal.say("Type one of the letters in brackets, or Enter to decide later.")
                elif choice == "diff":
                    self._print_difference(terminal, run)
                elif await self._carried_out(run, terminal, choice, mark):
                    return
            except Overtaken:
                continue
            except LeadhandError as error:
                terminal.say(clean(error, 2000))

        if seen is not None:
            terminal.say("No approval is pending any more: it was decided elsewhere.")

    async def _line(
        self,
        run: AskedRun,
        terminal: Terminal,
        mark: tuple[str, int],
        question: str = "",
        *,
        replaced: bool = False,
    ) -> str | None:
        """Ask, and return the answer. Raise `Overtaken` if something else waits by now."""

        def overtaken() -> bool:
            now = _waiting(run.state)
            return now is None or _mark(run.state, now) != mark

        revision = _waiting(run.state)
        if revision is None:
            raise Overtaken
        asked = question or self._question(terminal, run.state, revision)
        answer = await terminal.line(asked, overtaken, replaced=replaced)
        if answer and overtaken():
            terminal.say(
                "It was decided or changed elsewhere meanwhile: your answer has no effect."
            )
            raise Overtaken
        return answer

    async def _carried_out(
        self, run: AskedRun, terminal: Terminal, choice: str, mark: tuple[str, int]
    ) -> bool:
        """Carry out a choice; return whether the question is settled."""
        shown, state, revision = mark[0], run.state, _waiting(run.state)
        if revision is None:
            raise Overtaken
        number = revision.number
        if choice == "edit":
            await self._edit(run, terminal, revision, shown)
            return False
        text = ""
        comments: list[Doc] = []
        if choice == "reject":
            said = await self._line(run, terminal, mark, "Reason (optional): ")
            if said is None:
                return False
            text = said
        elif choice == "request_changes":
            found = await self._changes(run, terminal, mark)
            if found is None:
                return False
            text, comments = found
        elif why := run.stale():
            terminal.say(f"{why} changed after the plan was shown: nothing was approved.")
            terminal.say("It is loaded and shown again when no step is running.")
            self.load_again = True
            return True
        details: Doc = {"id": f"review-{number}", "choice": choice, "text": text}
        if comments:
            details["data"] = {"comments": comments}
        if choice == "approve":
            details["approval"] = self._words(state, details["id"], shown)
        await run.send("answer", details)
        return self._say_decided(terminal, run.state, number, choice, shown)

    async def _changes(
        self, run: AskedRun, terminal: Terminal, mark: tuple[str, int]
    ) -> tuple[str, list[Doc]] | None:
        """Ask for changes in general and on single steps; None if nothing was said."""
        text = await self._line(run, terminal, mark, "Requested changes: ")
        comments: list[Doc] = []
        while text is not None:
            said = await self._line(run, terminal, mark, "On one step, STEP=TEXT (Enter sends): ")
            if said is None:
                return None
            if not said:
                return (text, comments) if text or comments else None
            step, _, about = (part.strip() for part in said.partition("="))
            revision = _waiting(run.state)
            added = [str(doc["id"]) for doc in revision.add] if revision is not None else []
            if not about or step not in (*added, *run.state.steps):
                terminal.say(f"Not a comment on a step of this plan: {clean(said, 80)}")
            else:
                comments.append({"step": step, "text": about})
        return None

    def _words(self, state: State, question: str, shown: str) -> Doc | None:
        """Return the details of an approval of exactly what was shown."""
        from leadhand.app.approvals import moment
        from leadhand.engine.approvals import words_with

        key, now = self._key(), moment(state)
        return words_with(state, question, "approve", self._actor, now, key=key, shown=shown)

    def _key(self) -> PrivateKey | None:
        from leadhand.app.approvals import approver_key

        return approver_key(self._settings.approver_key)

    def _refusal(self, state: State, revision: Revision) -> str:
        """Return why this person may not approve a revision; "" if the person may."""
        from leadhand.core.review.decisions import refuse_second_approval

        try:
            key = self._key()
            name = key.name if key is not None else ""
            refuse_second_approval(state, revision.approvals, self._actor, name, revision.people)
        except (NotAllowed, Conflict, UsageError) as error:
            return str(error)
        approvers = self._settings.policy.approvers or state.policy.approvers
        if approvers and self._actor not in approvers:
            names = ", ".join(sorted(approvers))
            return f"{self._actor} is not among the approvers: {names}"
        if approvers and key is None:
            return f"{self._actor} has no key to sign with. Fix: [review] key in leadhand.toml"
        return ""

    def _say_other_way(self, terminal: Terminal, state: State, revision: Revision) -> None:
        missing = revision.people - len(revision.approvals)
        who = "Another person" if missing == 1 else f"{missing} other people"
        digest = _mark(state, revision)[0]
        way = self._console.command(f"review {state.run} approve --digest {digest}")
        terminal.write(f"{who} must approve: {way}\n")  # not broken, so that it can be copied

    def _show(self, terminal: Terminal, state: State, before: _Shown | None) -> None:
        """Print the plan that waits; after another one, also what changed."""
        from leadhand.app.approvals import moment
        from leadhand.core.review.view import review_document

        terminal.say()
        doc = review_document(state, moment(state))
        for line in review_lines(doc, colour=terminal.colour):
            terminal.say(line)
        if before is None:
            return
        terminal.say()
        terminal.say("The plan changed while the question was open. Difference to what was shown:")
        for line in before.changes(state) or ["! how it came about; no step differs"]:
            terminal.say(f"  {painted_change(line, colour=terminal.colour)}")

    def _choices(self, state: State, revision: Revision) -> list[str]:
        question = state.questions.get(f"review-{revision.number}")
        offered = question.choices if question is not None else ()
        more = ["request_changes"] if "request_changes" in offered else []
        return ["approve", "reject", "edit", "diff", *more]

    def _question(self, terminal: Terminal, state: State, revision: Revision) -> str:
        """Return `Approve? [y]es [n]o [e]dit [d]iff `."""
        told = {"approve": "[y]es", "reject": "[n]o", "edit": "[e]dit", "diff": "[d]iff"}
        told["request_changes"] = "[c]hanges"
        text = " ".join(told[each] for each in self._choices(state, revision))
        head = "\033[1mApprove?\033[0m" if terminal.colour else "Approve?"
        return f"{head} {text} "

    def _print_difference(self, terminal: Terminal, run: AskedRun) -> None:
        """Print the difference to the plan approved last, else to the previous revision."""
        from leadhand.app.approvals import moment
        from leadhand.app.comparison import compare_in_log
        from leadhand.core.review.view import review_document

        state = run.state
        if moved := worker_changes(run.log(), state):
            terminal.say("Workers changed while the question was open:")
            for line in moved:
                terminal.say(f"  {painted_change(line, colour=terminal.colour)}")
        doc = review_document(state, moment(state))
        old, lines = "the plan that was approved last", doc.difference
        if not doc.approved_before:
            try:
                compared = compare_in_log([*run.log()], state.run)
            except UsageError:
                terminal.say("This is the first revision: there is nothing to compare it with.")
                return
            old, lines = "the previous revision", compared.document().difference
        terminal.say(f"Difference to {old}:" if lines else f"No difference to {old}.")
        for line in lines:
            terminal.say(f"  {painted_change(line, colour=terminal.colour)}")

    async def _edit(
        self, run: AskedRun, terminal: Terminal, revision: Revision, shown: str
    ) -> None:
        """Let the person edit the plan that was shown; amend the run by what they saved.

        Raise `Conflict` if another plan waits by then, or none: the text is kept in a file.
        """
        from leadhand.app.approvals import revision_of
        from leadhand.codec.documents import read_document, write_yaml
        from leadhand.core.plan.diff import differences, lines
        from leadhand.core.plan.revisions import held_by, plan_of

        state, base = run.state, revision.hash
        before, heirs = plan_of(state)
        before = deepcopy(before)
        drafted = self._draft is not None and self._draft[0] == shown
        text = self._draft[1] if drafted and self._draft else write_yaml(before)
        saved = await terminal.edited(text, ".yaml")
        if saved is None and not drafted:
            terminal.say("The editor ended without saving: nothing was changed.")
            return
        text = text if saved is None else saved
        self._draft = (shown, text)
        state, now = run.state, _waiting(run.state)
        if now is None or now.hash != base or _mark(state, now)[0] != shown:
            self._draft = None
            what = "was decided" if now is None else "changed"
            raise Conflict(
                f"the plan {what} elsewhere while you edited it, so nothing was changed. "
                f"Your text is in {_kept(text)}"
            )
        after = read_document(text.encode(), name="the edited plan")
        changes = differences(before, after, heirs, held_by(state))
        if not changes:
            self._draft = None
            terminal.say("The plan is the same as before: nothing was changed.")
            return
        amended = {**revision_of(state, after), "base": base, "because": ""}
        try:
            await run.send("amend", {"revision": amended})
        except Conflict as error:
            self._draft = None
            raise Conflict(f"{error}. Your text is in {_kept(text)}") from None
        self._draft = None
        terminal.say("Changed:")
        for line in lines(changes):
            terminal.say(f"  {painted_change(f'{line.mark} {line.text}', colour=terminal.colour)}")

    def _say_decided(
        self, terminal: Terminal, state: State, number: int, choice: str, shown: str
    ) -> bool:
        """Print what was decided; return whether this person has nothing more to decide."""
        now = _waiting(state)
        if choice == "approve" and now is not None and now.number == number:
            self._undecided.add(_mark(state, now))
            terminal.say(f"Approved ({len(now.approvals)} of {now.people}), digest {shown[:12]}.")
            self._say_other_way(terminal, state, now)
            return True
        done = {"approve": "Approved", "reject": "Rejected", "request_changes": "Sent back"}
        digest = f", digest {shown[:12]}" if choice == "approve" else ""
        terminal.say(f"{done[choice]}: revision {number}{digest}")
        return now is None


@dataclass(frozen=True)
class _Shown:
    """What was on the screen when a question was asked; states change in place."""

    digest: str
    plan: Doc
    workers: dict[str, str]
    limits: Doc

    @classmethod
    def of(cls, state: State, revision: Revision) -> _Shown:
        """Return what is shown of a revision."""
        from leadhand.core.plan.revisions import plan_of
        from leadhand.core.review.approval import versions
        from leadhand.core.review.limits import limits_of

        plan = deepcopy(plan_of(state)[0])
        workers = versions(revision.add, state.catalog)
        return cls(_mark(state, revision)[0], plan, workers, limits_of(state.policy))

    def changes(self, state: State) -> list[str]:
        """Return a line for each difference between what was shown and what waits now."""
        from leadhand.core.plan.diff import differences, lines
        from leadhand.core.plan.revisions import held_by, plan_of

        revision = _waiting(state)
        assert revision is not None
        after, heirs = plan_of(state)
        changed = differences(self.plan, after, heirs, held_by(state))
        now = self.of(state, revision)
        return [
            *(f"{line.mark} {line.text}" for line in lines(changed)),
            *_moved("worker", self.workers, now.workers),
            *_moved("limit", self.limits, now.limits),
        ]


def worker_changes(log: Sequence[Event], state: State) -> list[str]:
    """Return a line for each worker of the pending steps that changed since their proposal."""
    from leadhand.core import events as ev
    from leadhand.core.catalog import Catalog
    from leadhand.core.review.approval import versions

    specs = {spec.name: spec for spec in state.started.catalog} if state.started else {}
    proposed = dict(specs)
    for event in log:
        if isinstance(event, ev.WorkersChanged):
            specs |= {spec.name: spec for spec in event.specs}
        elif isinstance(event, ev.RevisionProposed):
            proposed = dict(specs)
    steps = state.pending.add if state.pending is not None else []
    return _moved(
        "worker", versions(steps, Catalog(proposed.values())), versions(steps, state.catalog)
    )


def _moved(what: str, old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return a line for each value that is another one now."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    word = f"{what} {{}}, version" if what == "worker" else f"{what} {{}}"
    return [
        f"~ {word.format(clean(name))}: {clean(old.get(name))} → {clean(new.get(name))}"
        for name in names
    ]


def _kept(text: str) -> str:
    """Write a text that was refused to a file, and return its path."""
    number, path = tempfile.mkstemp(prefix="leadhand-plan-", suffix=".yaml")
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _waiting(state: State) -> Revision | None:
    """Return the revision that waits for an approval, if one does."""
    revision = state.pending
    if revision is None or f"review-{revision.number}" not in state.questions:
        return None
    return revision


def _mark(state: State, revision: Revision) -> tuple[str, int]:
    """Return the digest of a revision, and how many people have approved it."""
    from leadhand.core.review.approval import binding

    return binding(state, revision, 0), len(revision.approvals)
