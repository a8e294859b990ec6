"""The page of a bundle: one HTML file that loads nothing and runs nothing.

`templates/export.html` is the page; texts of plans, workers and people stay texts in it
(`codec/html.py`). A policy in the page itself forbids scripts and requests. Lists are bounded; the
files beside the page hold everything.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from leadhand.codec import html
from leadhand.core.durations import text as duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.audit.story import StepStory, Story
    from leadhand.core.views.timeline import Span

STEPS_MAX = 500
LINES_MAX = 1000
BARS_MAX = 150
RESULT_MAX = 20_000

TONES = {
    "succeeded": "good",
    "approved": "good",
    "approval given": "good",
    "released": "good",
    "held": "warn",
    "sent back": "warn",
    "failed": "bad",
    "rejected": "bad",
    "amended": "note",
    "waiting for approval": "warn",
    "waiting for input": "warn",
    "asked": "warn",
    "cancelled": "warn",
    "stopped": "warn",
    "answered": "note",
    "started": "note",
    "running": "note",
}
WORDS = {"waiting_for_person": "waiting for input", "superseded": "replaced"}
NO_PERSON = ("policy", "reviewers", "unknown")
LEDGERS = {"intent": "Intent", "execution": "Execution"}
FAULTS = {
    "planning": "Planning failed",
    "execution": "Execution failed",
    "limits": "Limit reached",
    "person": "Stopped by a person",
}


def render(story: Story) -> str:
    """Return the page of a run."""
    return html.render(
        __package__,
        "export.html",
        {
            "story": story,
            "tiles": list(_tiles(story)),
            "verdict": _verdict(story),
            "steps": [_step(step) for step in _first_steps(story)],
            "bars": _bars(story),
            "result": _text_of(story.result),
            "ledgers": [
                (title, [line for line in story.lines if line.ledger == name])
                for name, title in LEDGERS.items()
            ],
            "tones": TONES,
            "steps_max": STEPS_MAX,
            "lines_max": LINES_MAX,
            "bars_max": BARS_MAX,
            "result_max": RESULT_MAX,
            "date": _date,
            "clock": _clock,
            "took": _took,
            "amount": _amount,
            "number": "{:,}".format,
            "plural": _plural,
        },
    )


def _date(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def _clock(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1e6, UTC):%H:%M:%S}"


def _took(start: int, end: int) -> str:
    if not start or not end:
        return ""
    spent = max(0.0, (end - start) / 1e6)
    return "under 1 ms" if spent < 0.001 else duration(spent)


def _amount(value: float) -> str:
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _text_of(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result, indent=2, ensure_ascii=False)


def _tiles(story: Story) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the figure and a remark of each tile."""
    done = sum(step.status == "succeeded" for step in story.steps)
    total = sum(step.status != "superseded" for step in story.steps)  # successors stand for those
    tries = sum(len(step.tries) for step in story.steps)
    failed = sum(not each.ok for step in story.steps for each in step.tries)
    won = sum(answer.won is True for answer in story.answers)
    people = {each.who for each in story.permissions if each.who not in NO_PERSON}
    planned = f"{duration(story.worked_s)} working"
    if story.planned_s is not None:
        planned += f", planned {duration(story.planned_s)}"
    yield "Steps succeeded", f"{done:,} of {total:,}", ""
    yield "Attempts", f"{tries:,}", f"{failed:,} failed" if failed else "none failed"
    if story.answers:
        yield "Recovered", f"{won:,}", f"of {_plural(len(story.answers), 'failure')}"
    yield "Duration", _took(story.started, story.ended) or "–", planned
    budget = "" if story.budget is None else f"budget {_amount(story.budget)}"
    yield "Cost", _amount(story.cost), budget
    if story.money:
        yield "In dollars", f"${_amount(story.money)}", ""
    yield "People involved", f"{len(people):,}", ""


def _verdict(story: Story) -> dict[str, str]:
    """Return the tone, the title and the text of what became of the run."""
    if story.fault.where:
        tone = "bad" if story.fault.where in ("planning", "execution") else "warn"
        return {"tone": tone, "title": FAULTS[story.fault.where], "text": story.fault.why}
    if story.status != "succeeded":
        title = f"Not finished: {story.status}"
        text = story.reason or "State at the time of the export."
        return {"tone": "warn", "title": title, "text": text}
    failures = len(story.answers)
    text = f"{_checked(story)} " + (
        f"{_plural(failures, 'failed attempt')} led to a recovery; see the steps below."
        if failures
        else "No attempt failed."
    )
    if story.dropped:
        text += f" Dropped, with the reasons below: {', '.join(story.dropped[:20])}."
    return {"tone": "good", "title": "Goal reached", "text": text}


def _checked(story: Story) -> str:
    """Return a sentence about what was checked, and what was not."""
    done = [step for step in story.steps if step.status == "succeeded"]
    if not done:
        return "No step succeeded, so no result was checked."
    count = {
        kind: sum(step.checked == kind for step in done) for kind in ("criteria", "check", "form")
    }
    text = (
        f"{count['criteria']:,} of {_plural(len(done), 'step')} that succeeded had success "
        "criteria, which were checked"
    )
    more = [
        f"{count[kind]:,} {words}"
        for kind, words in (
            ("check", "passed the worker's own check"),
            ("form", "matched only the declared result schema"),
        )
        if count[kind]
    ]
    rest = len(done) - sum(count.values())
    text += f"; {', '.join(more)}" if more else ""
    text += f"; {rest:,} rely on the worker's report alone" if rest else ""
    goal = (
        "The goal's acceptance criteria were checked."
        if story.accepted
        else "The goal has no acceptance criteria, so nothing else shows that it is reached."
    )
    return f"{text}. {goal}"


def _first_steps(story: Story) -> list[StepStory]:
    """Return the steps that the page shows: of too many, those in trouble first."""
    if len(story.steps) <= STEPS_MAX:
        return story.steps
    rank = {"failed": 0, "waiting_for_person": 1}
    return sorted(story.steps, key=lambda step: rank.get(step.status, 2))[:STEPS_MAX]


def _step(step: StepStory) -> dict[str, Any]:
    facts = [
        ("Success criteria", step.criteria),
        ("Risk", step.risk),
        *(("Recommendation", each) for each in step.recommendations),
    ]
    told = any(step.reason in each.message for each in step.tries)
    return {
        "id": step.id,
        "what": " ".join(filter(None, (step.worker, step.action))),
        "text": step.text,
        "status": WORDS.get(step.status, step.status),
        "start": step.start,
        "end": step.end,
        "cost": step.cost,
        "reason": "" if told else step.reason,
        "facts": [(name, value) for name, value in facts if value],
        "tries": step.tries,
        "attempts": _plural(len(step.tries), "attempt") if step.tries else "",
        "troubled": step.status == "failed" or any(not each.ok for each in step.tries),
    }


def _bars(story: Story) -> list[tuple[str, list[dict[str, str]]]]:
    """Return a row of the timeline for each step, and one for people."""
    rows: dict[str, list[dict[str, str]]] = {}
    for span in story.spans:
        rows.setdefault(span.step or "(people)", []).append(_bar(span, story))
    return list(rows.items())


def _bar(span: Span, story: Story) -> dict[str, str]:
    whole = max(1, story.ended - story.started)
    start = (span.start - story.started) / whole * 100
    width = max(0.4, ((span.end or story.ended) - span.start) / whole * 100)
    start = min(start, 100 - width) if width < 100 else 0
    people = span.kind in ("question", "approval", "held")
    tone = "warn" if people else "good" if span.ok else "bad"
    return {
        "tone": tone if span.end and span.kind not in ("retry", "scheduled") else "idle",
        "x": f"{start:.2f}",
        "width": f"{min(width, 100):.2f}",
        "title": f"{span.kind} {span.attempt or ''} {span.outcome}".replace("  ", " "),
    }
