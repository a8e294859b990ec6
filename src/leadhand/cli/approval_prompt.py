"""The question `Approve?` of `leadhand run` and `leadhand resume` on a terminal.

An approval given here is an approval like any other: it is bound to the digest of what was shown,
expires, is signed where approvers have keys, and counts once for each person. What waits is shown
again whenever its digest is no longer the one that was shown. Enter, Ctrl-C and the end of input
decide nothing: the run goes on waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leadhand.cli.rendering.review import painted_change, review_lines
from leadhand.cli.rendering.text import clean
from leadhand.cli.terminal import Overtaken, Terminal, is_foreground
from leadhand.errors import Conflict, LeadhandError, NotAllowed, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        return self._console.can_ask and is_foreground()

    def wants(self, state: State) -> bool:
        """Return whether there is a revision to ask about."""
        revision = _waiting(state)
        if revision is None or self.load_again or not self.possible:
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
        shown = ""
        while (revision := _waiting(run.state)) is not None:
            state, mark = run.state, _mark(run.state, revision)
            if mark[0] != shown:
                self._show(terminal, state, again=bool(shown))
                shown = mark[0]
            refusal = self._refusal(state, revision)
            if refusal:
                self._undecided.add(mark)
                self._say_other_way(terminal, state, refusal)
                return
            try:
                answer = await self._line(run, terminal, shown)
            except Overtaken:
                continue
            choice = WORDS.get((answer or "").lower(), "")
            if not answer:
                self._undecided.add(_mark(state, revision))
                terminal.say("No decision: the run waits.")
                return
            try:
                if choice not in self._choices(state, revision):
                    terminal.say("Type one of the letters in brackets, or Enter to decide later.")
                elif choice == "diff":
                    self._print_difference(terminal, run)
                elif await self._carried_out(run, terminal, choice, shown):
                    return
            except Overtaken:
                continue
            except LeadhandError as error:
                terminal.say(clean(error, 2000))
                shown = "" if isinstance(error, Conflict) else shown

        if shown:
            terminal.say("No approval is pending any more.")

    async def _line(
        self, run: AskedRun, terminal: Terminal, shown: str, question: str = ""
    ) -> str | None:
        """Ask, and return the answer. Raise `Overtaken` if something else waits by now."""
        state = run.state
        revision = _waiting(state)
        assert revision is not None
        mark = (shown, len(revision.approvals))

        def overtaken() -> bool:
            now = _waiting(run.state)
            return now is None or _mark(run.state, now) != mark

        asked = question or self._question(terminal, state, revision)
        return await terminal.line(asked, overtaken)

    async def _carried_out(
        self, run: AskedRun, terminal: Terminal, choice: str, shown: str
    ) -> bool:
        """Carry out a choice; return whether the question is settled."""
        state, revision = run.state, _waiting(run.state)
        if revision is None or _mark(state, revision)[0] != shown:
            terminal.say("The plan changed after it was shown: nothing was decided.")
            return False
        if choice == "edit":
            await self._edit(run, terminal, state, shown)
            return False
        text = ""
        if choice != "approve":
            asked = "Reason (optional): " if choice == "reject" else "Requested changes: "
            said = await self._line(run, terminal, shown, asked)
            if said is None or (choice == "request_changes" and not said):
                return False
            text = said
        elif why := run.stale():
            terminal.say(f"{why} changed after the plan was shown: nothing was approved.")
            terminal.say("It is loaded and shown again when no step is running.")
            self.load_again = True
            return True
        details: Doc = {"id": f"review-{revision.number}", "choice": choice, "text": text}
        if choice == "approve":
            details["approval"] = self._words(state, details["id"], shown)
        await run.send("answer", details)
        self._say_decided(terminal, run.state, revision, choice)
        # Another person may have to approve it too: that is said, and nothing is asked.
        return _waiting(run.state) is None

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

    def _say_other_way(self, terminal: Terminal, state: State, refusal: str) -> None:
        revision = state.pending
        assert revision is not None
        terminal.say(f"You cannot approve this: {clean(refusal, 500)}")
        missing = revision.people - len(revision.approvals)
        who = "Another person approves" if missing == 1 else f"{missing} other people approve"
        short = _mark(state, revision)[0][:12]
        way = self._console.command(f"review {state.run} approve --hash {short}")
        terminal.say(f"{who} with: {way}")

    def _show(self, terminal: Terminal, state: State, *, again: bool) -> None:
        from leadhand.app.approvals import moment
        from leadhand.core.review.view import review_document

        if again:
            terminal.say("What waits is no longer what was shown. This is the plan now:")
        terminal.say()
        doc = review_document(state, moment(state))
        for line in review_lines(doc, colour=terminal.colour):
            terminal.say(line)

    def _choices(self, state: State, revision: Revision) -> list[str]:
        question = state.questions[f"review-{revision.number}"]
        more = ["request_changes"] if "request_changes" in question.choices else []
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

    async def _edit(self, run: AskedRun, terminal: Terminal, state: State, shown: str) -> None:
        """Let the person edit the plan; amend the run by what they saved."""
        from leadhand.app.approvals import revision_of
        from leadhand.codec.documents import read_document, write_yaml
        from leadhand.core.plan.diff import differences, lines
        from leadhand.core.plan.revisions import held_by, plan_of

        before, heirs = plan_of(state)
        drafted = self._draft is not None and self._draft[0] == shown
        text = self._draft[1] if drafted and self._draft else write_yaml(before)
        saved = await terminal.edited(text, ".yaml")
        if saved is None and not drafted:
            terminal.say("The editor ended without saving: nothing was changed.")
            return
        text = text if saved is None else saved
        self._draft = (shown, text)
        after = read_document(text.encode(), name="the edited plan")
        changes = differences(before, after, heirs, held_by(state))
        if not changes:
            self._draft = None
            terminal.say("The plan is the same as before: nothing was changed.")
            return
        revision = {**revision_of(state, after), "because": ""}
        await run.send("amend", {"revision": revision})
        self._draft = None
        terminal.say("Changed:")
        for line in lines(changes):
            terminal.say(f"  {painted_change(f'{line.mark} {line.text}', colour=terminal.colour)}")

    def _say_decided(
        self, terminal: Terminal, state: State, revision: Revision, choice: str
    ) -> None:
        """Print what was decided; how many approvals are missing is said after it."""
        done = {"approve": "Approved", "reject": "Rejected", "request_changes": "Sent back"}
        digest = f", digest {_mark(state, revision)[0][:12]}" if choice == "approve" else ""
        terminal.say(f"{done[choice]}: revision {revision.number}{digest}")


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
