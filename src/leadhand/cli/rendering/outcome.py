"""The state of a run, printed at the end of `run`, `resume` and `watch`, and by `show RUN`."""

from __future__ import annotations

import json
import shlex
import time
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from leadhand.app.run_limits import SpendingLimits
from leadhand.cli.rendering.review import allowed_line
from leadhand.cli.rendering.run_rows import WAITED_MIN_S, header, planned_s, rows, title
from leadhand.cli.rendering.text import clean, clean_lines, count, gist, hanging_lines, table
from leadhand.core.durations import text
from leadhand.core.plan.graph import dependencies
from leadhand.core.review.protected_change import KIND as PROTECTED
from leadhand.core.rollback import nothing_to_undo, to_roll_back
from leadhand.core.views.headline import headline
from leadhand.core.views.inbox import inbox_row, wants_words
from leadhand.core.views.run import (
    APPROVALS,
    ENDED,
    RunOutcome,
    awaiting,
    dropped_rows,
    exit_code,
    is_for_caller,
    run_outcome,
    run_status,
    worked_s,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leadhand.cli.console import Console
    from leadhand.core.plan.model import Json
    from leadhand.core.review.approval import ApprovalRow
    from leadhand.core.state.model import State
    from leadhand.core.state.records import Question
    from leadhand.core.views.inbox import InboxRow


# A protected change on a terminal: its description, its diff, and the command that approves it.


CHANGE_COLOURS = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}


def print_change(
    console: Console, row: InboxRow, lines_max: int = 0, *, data: bool = False
) -> None:
    """Print the diff of a row of kind `protected_change`, in colours if enabled.

    With `lines_max` a longer diff is cut, with a line that says so and how to see all of it.
    `data`: print to standard output instead of standard error.
    """
    print_line = console.out if data else console.say
    paint = console.paint_data if data else console.paint
    lines = clean_lines(row.diff or "").rstrip("\n").split("\n")
    print_line(f"    commit {row.commit}, on {(row.base or '')[:12]}")
    for line in lines[:lines_max] if lines_max else lines:
        colour = CHANGE_COLOURS.get(line[:1], "") if not line.startswith(("+++", "---")) else "bold"
        print_line("    | " + (paint(line, colour) if colour else line))
    if lines_max and len(lines) > lines_max:
        way = console.command(f"answer {row.id}")
        print_line(f"    … {len(lines) - lines_max} more lines; all of it: {way}")
    if (row.people or 1) > 1:
        given = ", ".join(clean(each, 60) for each in row.approved_by or ()) or "none so far"
        print_line(f"    {row.people} different people must approve it; approved by: {given}")


def ways(console: Console, row: InboxRow) -> list[str]:
    """Return the commands that answer it; the approving one names the commit that was shown."""
    found = []
    if "approve" in row.answers:
        found.append(console.command(f"answer {row.id} approve --commit {row.commit or ''}"))
    found.append(console.command(f'answer {row.id} send_back --text "…"'))
    found.append(console.command(f"answer {row.id} drop"))
    return found


LISTED_MAX = 10
ROWS_MAX = 200
CHANGE_LINES = 60
"""The length of the diff of a protected change shown here; `leadhand answer` shows all."""
COLOURS = {"succeeded": "green", "failed": "red", "rejected": "red", "waiting": "yellow"}
NO_HOST = " (no host)"


def print_outcome(console: Console, state: State, *, hosted: bool | None = None) -> None:
    """Print the status, planned and actual time, failures, open questions, and how to continue.

    `hosted`: whether a process drives it; None if this one did until now.
    """
    status = run_status(state)
    spent = ((state.ended_at or now_of(state, hosted=bool(hosted))) - state.started_at) / 1e6
    planned = planned_s(state)
    worked = min(spent, worked_s(state, now_of(state, hosted=bool(hosted))))
    notes = [f"planned {text(planned)}"] if planned is not None else []
    if spent - worked >= WAITED_MIN_S:
        notes.append(f"{text(spent - worked)} of it waiting")
    against = f" ({', '.join(notes)})" if notes else ""
    word = console.paint(status, COLOURS.get(status, "bold"))
    reason = gist(state.ended.reason, 300) if state.ended and state.ended.reason else ""
    lonely = NO_HOST if hosted is False and status not in ENDED else ""
    whose = state.ended.origin if state.ended else ""
    word += f" ({whose})" if whose in ("planning", "execution") else ""
    console.say(f"{word}{lonely} after {text(spent)}{against}{': ' if reason else ''}{reason}")
    _print_bad(console, state)
    _print_dropped(console, state)
    for question in state.questions.values():
        print_question(console, state, question)
    if status == "failed":
        _print_way_back(console, state)
    if state.ended is not None and state.ended.rollback and not to_roll_back(state):
        console.say(f"Nothing to roll back: {nothing_to_undo(state)}")
    if status == "waiting" and awaiting(state) == "caller":
        way = way_on(console, state)
        console.say(f"It waits for the agent that drives it. Ask for the next step with: {way}")
    elif status == "waiting" and not hosted and is_for_caller(state):
        console.say(f"Then the agent that drives it asks for its step: {way_on(console, state)}")
    elif status not in ENDED and not hosted:
        then = "Then continue with" if status == "waiting" else "Continue with"
        console.say(f"{then}: {console.way_on(state.run)}")


def way_on(console: Console, state: State) -> str:
    """Return the command that takes a run on: the agent's request for its step, or `resume`."""
    if is_for_caller(state) and run_status(state) == "waiting":
        return console.command(f"step next {state.run} --caller NAME")
    return console.way_on(state.run)


def _print_way_back(console: Console, state: State) -> None:
    """Print how to retry a failed step, unless limits or a rollback prevent it."""
    failed = [step.id for step in state.steps.values() if state.is_blocking(step) and step.failure]
    ended = state.ended
    if not failed or ended is None or ended.rollback or ended.limit:
        return
    way = console.command(f"redo {state.run} {shlex.quote(failed[0])} --reason '…'")
    console.say(f"To retry: {way}")


def _print_bad(console: Console, state: State) -> None:
    failed = [step for step in state.steps.values() if step.status == "failed"]
    made_good = "on the way, " if run_status(state) == "succeeded" else ""
    for step in failed[:LISTED_MAX]:
        failure = step.failure or {}
        kind, message = failure.get("class", "failed"), failure.get("message", step.reason)
        tries = f" after {count(step.attempts, 'attempt')}" if step.attempts > 1 else ""
        console.say(f"  {made_good}{clean(step.id)} failed{tries}: {kind}: {gist(message, 500)}")
        for finding in step.findings[:5]:
            if finding not in str(message):
                console.say(f"    {clean(finding, 300)}")
    if len(failed) > LISTED_MAX:
        console.say(f"  … and {len(failed) - LISTED_MAX} more failed")
    skipped = [step for step in state.steps.values() if step.status == "skipped"]
    _print_ids(console, "skipped", [step.id for step in skipped if step.attempts])
    _print_ids(console, "never started", [step.id for step in skipped if not step.attempts])


def _print_dropped(console: Console, state: State) -> None:
    """Print the dropped steps: part of every outcome."""
    dropped = dropped_rows(state)
    for row in dropped[:LISTED_MAX]:
        console.say(f"  dropped: {clean(row.step)}: {gist(row.reason, 300)}")
    if len(dropped) > LISTED_MAX:
        console.say(f"  … and {len(dropped) - LISTED_MAX} more were dropped")


def _print_ids(console: Console, word: str, found: list[str]) -> None:
    if found:
        some = ", ".join(clean(ident) for ident in found[:LISTED_MAX])
        more = f" and {len(found) - LISTED_MAX} more" if len(found) > LISTED_MAX else ""
        console.say(f"  {word}: {some}{more}")


def print_question(console: Console, state: State, question: Question) -> None:
    """Print an open question, and the exact command that answers it."""
    awaited = "approval" if question.kind in APPROVALS else "input"
    console.say(f"  waiting for {awaited}: {hanging_lines(question.text, 600)}")
    ident = f"{state.run}/{question.id}"
    words = wants_words(state, question)
    if question.kind == "review":
        told = still_needs(state)
        if told:
            console.say(f"    {told}")
        console.say(f"    Show the plan: {console.command(f'review {state.run}')}")
        for choice in inbox_row(state, question.id).choices:
            way = console.command(choice.command.removeprefix("leadhand "))
            console.say(f"    {choice.answer}: {way}")
        return
    if question.kind == PROTECTED:
        row = inbox_row(state, question.id)
        print_change(console, row, CHANGE_LINES)
        for line in ways(console, row):
            console.say(f"    {line}")
        return
    console.say(f"    {answer_line(console, ident, question.choices, words=words)}")


def still_needs(state: State) -> str:
    """Return who approved the pending revision, and how many more must; "" before the first."""
    revision = state.pending
    if revision is None or not revision.approvals:
        return ""
    missing = revision.people - len(revision.approvals)
    who = ", ".join(clean(each.actor, 60) for each in revision.approvals)
    return f"allowed by {who}; {missing} more {'person' if missing == 1 else 'people'} must"


def still_held(state: State, steps: Iterable[str]) -> str:
    """Return who released some held steps, and how many more people must."""
    from leadhand.core.review.holds import people_for, questions, standing_releases

    for ident in questions(state, steps):
        question = state.questions[ident]
        given, people = standing_releases(state, question), people_for(state, question).people
        missing = people - len(given)
        who = ", ".join(clean(each.actor, 60) for each in given)
        return f"released by {who}; {missing} more {'person' if missing == 1 else 'people'} must"
    return ""


def answer_line(console: Console, ident: str, choices: Sequence[str], *, words: bool) -> str:
    """Return the command that answers a question."""
    if words and "retry" in choices:
        others = ", ".join(choice for choice in choices if choice != "retry")
        line = console.command(f'answer {ident} retry --text "…"')
        return f"{line}   # or: {others}" if others else line
    if "give" in choices:
        others = ", ".join(choice for choice in choices if choice != "give")
        return console.command(f"answer {ident} give --data '…'") + f"   # or: {others}"
    if not choices:
        return console.command(f'answer {ident} --text "…"')
    # Pasted as it is, it must answer nothing: a shell takes `a|b` for a pipe.
    return console.command(f"answer {ident} …") + f"   # {', '.join(choices)}"


class OutcomeDocument(RunOutcome, kw_only=True):
    """The document that `run --json` ends with."""

    exit_code: int
    resume: str | UnsetType = UNSET
    """The command that takes the run up again, where it has not ended."""
    limits: SpendingLimits | UnsetType = UNSET
    """Where a model planned it: what it may spend."""
    rollback: OutcomeDocument | UnsetType | None = UNSET
    """How what was done was taken back; null where there was nothing to take back."""
    rollback_reason: str | UnsetType = UNSET
    """Why there was nothing to take back."""


def outcome_document(console: Console, state: State, result: Json) -> OutcomeDocument:
    """Return the document that `run --json` ends with."""
    ended = run_status(state) in ENDED
    resume = UNSET if ended else way_on(console, state)
    code = exit_code(state)
    return run_outcome(state, OutcomeDocument, result=result, exit_code=code, resume=resume)


def print_result(console: Console, result: Json) -> None:
    """Print the run's result on stdout: a text itself, the rest as JSON, nothing for null."""
    if result is None:
        return
    if isinstance(result, str):
        console.text(result)
    else:
        console.text(json.dumps(result, indent=2, ensure_ascii=False))


def now_of(state: State, *, hosted: bool) -> int:
    """Return the relevant time of a run: the current time while a process drives it."""
    return time.time_ns() // 1000 if hosted and state.ended is None else state.last_at


def print_head(console: Console, state: State, *, hosted: bool, stopped: str = "") -> None:
    """Print the run's title and state."""
    console.out(title(state))
    status, now = run_status(state), now_of(state, hosted=hosted)
    lonely = "" if hosted or status in ENDED else NO_HOST
    told = header(state, now, stopped=stopped, hosted=hosted, named=True)
    console.out(f"{status}{lonely} · {told}")
    if status in ENDED:
        console.out(clean(headline(state), 1000))
    named = state.started.plan.get("planner") if state.started is not None else None
    if named:
        console.out(f"may be revised by {clean(named, 100)}")


def print_run(
    console: Console,
    state: State,
    *,
    hosted: bool,
    stopped: str = "",
    approvals: Sequence[ApprovalRow] = (),
) -> None:
    """Print a run as `show RUN` does; `approvals` are rows of `core.review.approval.allowed`."""
    print_head(console, state, hosted=hosted, stopped=stopped)
    found, rest = rows(state, now_of(state, hosted=hosted), {}, ROWS_MAX, hosted=hosted)
    cells = [(row.icon, row.id, row.word, row.worker, row.detail) for row in found]
    waiting = [*_proposed(state)][:ROWS_MAX]
    lines = table(("", "STEP", "STATUS", "WORKER", ""), [*cells, *waiting])
    for line in lines if cells or waiting else ():
        console.out(f"  {line}")
    if rest:
        console.out(f"  {rest}")
    for each in state.outlook[:LISTED_MAX]:
        console.out(f"  expected later: {clean(_outlook(each), 100)}")
    for row in approvals[-LISTED_MAX:]:
        what = f"revision {row.revision}, digest {row.digest}"
        console.out(f"  allowed by {allowed_line(row)}; {what}")
    print_recommendations(console, state)
    print_outcome(console, state, hosted=hosted)


def print_recommendations(console: Console, state: State) -> None:
    """Print the newest recommendations of workers, also of successes."""
    said = [*zip(state.recommenders, state.recommendations, strict=True)]
    for step, words in said[-LISTED_MAX:]:
        console.out(f"  {clean(step, 40)} recommends: {clean(words, 200)}")


def _proposed(state: State) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the steps of a pending revision."""
    for doc in state.pending.add if state.pending is not None else ():
        worker = clean(f"{doc.get('worker', '')} {doc.get('action', '')}".strip(), 40)
        after = ", ".join(clean(each, 40) for each in dependencies(doc))
        yield "·", clean(doc["id"], 40), "proposed", worker, f"after {after}" if after else ""


def _outlook(step: Any) -> str:
    if not isinstance(step, dict):
        return str(step)
    return " ".join(str(step.get(key, "")) for key in ("id", "worker", "action")).strip()
