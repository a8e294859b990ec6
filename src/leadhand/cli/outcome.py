"""How a run stands, said at the end of `run`, `resume` and `watch`, and by `show RUN`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from leadhand.cli.rows import header, planned_s, rows, title
from leadhand.cli.text import clean, count, iso, table
from leadhand.core.durations import text
from leadhand.core.views import exit_code, outcome_doc, run_status
from leadhand.engine.results import result_of

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.cli.console import Console
    from leadhand.core.plan import Doc, Json
    from leadhand.core.state import Question, State

LISTED_MAX = 10
COLOURS = {"succeeded": "green", "failed": "red", "rejected": "red", "waiting": "yellow"}
ENDED = ("succeeded", "failed", "cancelled", "rejected")


def print_outcome(console: Console, state: State, *, hosted: bool = False) -> None:
    """Status, planned against actual, what failed and why, what waits, how to go on."""
    status = run_status(state)
    spent = ((state.ended_at or state.last_at) - state.started_at) / 1e6
    planned = planned_s(state)
    against = f" (planned {text(planned)})" if planned is not None else ""
    word = console.paint(status, COLOURS.get(status, "bold"))
    reason = clean(state.ended.reason, 300) if state.ended and state.ended.reason else ""
    console.say(f"{word} after {text(spent)}{against}{': ' if reason else ''}{reason}")
    _print_bad(console, state)
    for question in state.questions.values():
        print_question(console, state.run, question)
    if status not in ENDED and not hosted:
        console.say(f"Go on with: leadhand resume {state.run}")


def _print_bad(console: Console, state: State) -> None:
    failed = [step for step in state.steps.values() if step.status == "failed"]
    for step in failed[:LISTED_MAX]:
        failure = step.failure or {}
        kind, message = failure.get("class", "failed"), failure.get("message", step.reason)
        tries = f" after {count(step.attempts, 'attempt')}" if step.attempts > 1 else ""
        console.say(f"  {clean(step.id)} failed{tries}: {kind}: {clean(message, 500)}")
        for finding in step.findings[:5]:
            if finding not in str(message):
                console.say(f"    {clean(finding, 300)}")
    if len(failed) > LISTED_MAX:
        console.say(f"  … and {len(failed) - LISTED_MAX} more failed")
    skipped = [step.id for step in state.steps.values() if step.status == "skipped"]
    if skipped:
        some = ", ".join(clean(ident) for ident in skipped[:LISTED_MAX])
        more = f" and {len(skipped) - LISTED_MAX} more" if len(skipped) > LISTED_MAX else ""
        console.say(f"  never started: {some}{more}")


def print_question(console: Console, run: str, question: Question) -> None:
    """What waits, and the exact command that answers it."""
    console.say(f"  waits for you: {clean(question.text, 600)}")
    choices = "|".join(question.choices) if question.choices else '--text "…"'
    console.say(f"    leadhand answer {run}/{question.id} {choices}")


def outcome_document(state: State, result: Json) -> Doc:
    """The document that `run --json` ends with."""
    doc = outcome_doc(state)
    doc["result"] = result
    doc["exit_code"] = exit_code(state)
    if doc["status"] not in ENDED:
        doc["resume"] = f"leadhand resume {state.run}"
    return doc


def print_result(console: Console, result: Json) -> None:
    """The run's result on stdout: text as it is, the rest as JSON, nothing for null."""
    if result is None:
        return
    if isinstance(result, str):
        console.out(result)
    else:
        console.out(json.dumps(result, indent=2, ensure_ascii=False))


def run_document(reader: Reader, state: State) -> Doc:
    """A run as `show RUN --json` prints it."""
    doc = outcome_doc(state)
    doc["result"] = result_of(reader.store, state)
    doc["started"] = iso(state.started_at)
    doc["plan"] = state.started.plan if state.started else {}
    doc["params"] = state.params
    doc["revision"] = state.revision
    doc["planner"] = state.started.planner if state.started else ""
    doc["seq"] = state.seq
    for row, step in zip(doc["steps"], state.steps.values(), strict=False):
        row |= {"action": step.action, "reason": step.reason, "findings": list(step.findings)}
        row["started"] = iso(step.started) if step.started else None
        row["ended"] = iso(step.ended) if step.ended else None
        row["cost"] = step.cost
    return doc


def print_run(console: Console, state: State, *, hosted: bool) -> None:
    """A run as `show RUN` prints it."""
    console.out(title(state))
    console.out(f"{run_status(state)} · {header(state, state.last_at)}")
    found, rest = rows(state, state.last_at, {}, 200)
    lines = table(
        ("", "STEP", "STATUS", "WORKER", ""),
        ((row.icon, row.id, row.word, row.worker, row.detail) for row in found),
    )
    for line in lines:
        console.out(f"  {line}")
    if rest:
        console.out(f"  {rest}")
    for each in state.outlook[:LISTED_MAX]:
        console.out(f"  later, perhaps: {clean(_outlook(each), 100)}")
    print_outcome(console, state, hosted=hosted)


def _outlook(step: Any) -> str:
    if not isinstance(step, dict):
        return str(step)
    return " ".join(str(step.get(key, "")) for key in ("id", "worker", "action")).strip()
