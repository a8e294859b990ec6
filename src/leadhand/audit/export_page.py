"""The page of a bundle: one HTML file that loads nothing, runs nothing, and needs nobody.

Whatever plans, workers and people wrote is text here and stays text: it is escaped, and so are
characters that hide or turn round what stands beside them. A policy in the page itself forbids
scripts and requests. Lists are bounded; the files beside the page hold everything.
"""

from __future__ import annotations

import html
import json
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from leadhand.core.durations import text as duration
from leadhand.core.visible import marked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.audit.story import LedgerLine, Permission, StepStory, Story, Try
    from leadhand.core.views.timeline import Span


# How the page looks: light and dark, on screens and on paper, from a phone's width up.


STYLE = """
:root {
  color-scheme: light dark;
  --bg: #f6f7f9; --card: #ffffff; --ink: #14181f; --dim: #5b6472; --line: #e2e6ec;
  --accent: #3b5bdb; --good: #12805c; --bad: #c92a2a; --warn: #a15c00; --idle: #76808f;
  --good-bg: #e3f6ee; --bad-bg: #fdecec; --warn-bg: #fff3dc; --idle-bg: #eceff3;
  --accent-bg: #e8edff; --shadow: 0 1px 2px rgb(16 24 40 / .05), 0 1px 8px rgb(16 24 40 / .04);
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #0f1216; --card: #171b21; --ink: #e8ebf0; --dim: #9aa4b2; --line: #2a313b;
    --accent: #8aa2ff; --good: #4fd1a1; --bad: #ff8787; --warn: #ffc36b; --idle: #9aa4b2;
    --good-bg: #12362a; --bad-bg: #3d1b1d; --warn-bg: #3a2b10; --idle-bg: #242a33;
    --accent-bg: #1e2747; --shadow: none;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--bg); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 64px; }
.brand { display: flex; justify-content: space-between; color: var(--dim); font-size: 13px; }
.brand b { color: var(--ink); letter-spacing: .01em; }
h1 { font-size: 28px; line-height: 1.25; margin: 18px 0 10px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 40px 0 12px; }
h2 small { color: var(--dim); font-weight: 400; font-size: 13px; margin-left: 8px; }
p { margin: 6px 0; }
.meta { color: var(--dim); font-size: 14px; }
.meta b { color: var(--ink); font-weight: 600; }
code, pre, .mono { font-family: var(--mono); font-size: 12.5px; }
code { overflow-wrap: anywhere; }
pre {
  margin: 8px 0 0; padding: 12px 14px; background: var(--bg); border: 1px solid var(--line);
  border-radius: 8px; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 480px;
  overflow: auto;
}
.pill {
  display: inline-block; padding: 1px 10px; border-radius: 999px; font-size: 12.5px;
  font-weight: 600; background: var(--idle-bg); color: var(--idle); white-space: nowrap;
}
.good { background: var(--good-bg); color: var(--good); }
.bad { background: var(--bad-bg); color: var(--bad); }
.warn { background: var(--warn-bg); color: var(--warn); }
.note { background: var(--accent-bg); color: var(--accent); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 22px 0; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  box-shadow: var(--shadow); }
.tile { padding: 14px 16px; }
.tile span { color: var(--dim); font-size: 12.5px; display: block; }
.tile b { font-size: 22px; font-weight: 650; line-height: 1.3; overflow-wrap: anywhere; }
.tile i { color: var(--dim); font-style: normal; font-size: 12.5px; display: block; }
.card { padding: 4px 0; overflow: hidden; }
.verdict { padding: 16px 18px; border-left: 4px solid var(--idle); margin: 22px 0; }
.verdict.is-good { border-left-color: var(--good); }
.verdict.is-bad { border-left-color: var(--bad); }
.verdict.is-warn { border-left-color: var(--warn); }
.verdict h3 { margin: 0 0 4px; font-size: 16px; }
table { width: 100%; border-collapse: collapse; }
th { text-align: left; color: var(--dim); font-weight: 500; font-size: 12.5px; }
th, td { padding: 9px 16px; vertical-align: top; border-bottom: 1px solid var(--line); }
tr:last-child td { border-bottom: 0; }
td { overflow-wrap: anywhere; } td b { overflow-wrap: break-word; }
td.when, td.num { white-space: nowrap; color: var(--dim); font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
details.step { border-bottom: 1px solid var(--line); }
details.step:last-child { border-bottom: 0; }
details.step > summary {
  display: grid; grid-template-columns: 1fr auto auto auto; gap: 4px 14px; align-items: baseline;
  padding: 11px 16px; cursor: pointer; list-style: none;
}
details.step > summary::-webkit-details-marker { display: none; }
details.step > summary:hover { background: var(--bg); }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
details.step > summary .name::before { content: "▸"; color: var(--dim); font-size: 12px;
  display: inline-block; width: 16px; }
details.step[open] > summary .name::before { content: "▾"; }
summary .name em { display: block; font-style: normal; color: var(--dim); font-size: 13.5px;
  padding-left: 16px; overflow-wrap: anywhere; }
summary .name b { overflow-wrap: anywhere; }
summary .name span { color: var(--dim); font-size: 13px; margin-left: 8px; }
summary .num { color: var(--dim); font-size: 13px; font-variant-numeric: tabular-nums; }
.inside { padding: 0 16px 14px 32px; }
.try { border-left: 3px solid var(--line); padding: 2px 0 2px 12px; margin: 10px 0; }
.try.is-bad { border-left-color: var(--bad); }
.try.is-good { border-left-color: var(--good); }
.then { color: var(--dim); font-size: 14px; }
.bars { padding: 12px 16px; }
.bar { display: grid; grid-template-columns: minmax(90px, 22%) 1fr; gap: 12px;
  align-items: center; font-size: 13px; padding: 3px 0; }
.bar > span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bar svg { width: 100%; height: 14px; display: block; background: var(--bg); border-radius: 4px; }
.axis { color: var(--dim); font-size: 12px; display: flex; justify-content: space-between;
  padding-left: calc(22% + 12px); }
rect.good { fill: var(--good); } rect.bad { fill: var(--bad); }
rect.warn { fill: var(--warn); } rect.idle { fill: var(--idle); }
.ledgers { display: grid; grid-template-columns: repeat(auto-fit, minmax(360px, 1fr)); gap: 12px; }
.ledgers h3 { font-size: 14px; margin: 10px 16px 6px; }
.ledger { max-height: 520px; overflow: auto; margin: 0; padding: 0 16px 8px; list-style: none;
  font-size: 13.5px; }
.ledger li { display: grid; grid-template-columns: 76px 1fr; gap: 8px; padding: 4px 0;
  border-top: 1px solid var(--line); overflow-wrap: anywhere; }
.ledger time { color: var(--dim); font-variant-numeric: tabular-nums; font-size: 12.5px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 6px 18px; margin: 0;
  padding: 12px 16px; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
footer { color: var(--dim); font-size: 13px; margin-top: 36px; }
@media (max-width: 620px) {
  main { padding: 18px 12px 48px; } h1 { font-size: 22px; }
  details.step > summary { grid-template-columns: auto auto 1fr; }
  summary .name { grid-column: 1 / -1; } summary .pill { justify-self: end; }
  .wide table { min-width: 620px; }
  .ledgers { grid-template-columns: 1fr; } dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 8px; } th, td { padding: 8px 10px; }
}
@media print {
  body { background: #fff; } .card, .tile { box-shadow: none; break-inside: avoid; }
  pre, .ledger { max-height: none; }
}
"""


STEPS_MAX = 500
LINES_MAX = 1000
BARS_MAX = 150
TEXT_MAX = 4000
RESULT_MAX = 20_000

TONES = {
    "succeeded": "good",
    "approved": "good",
    "allowed": "good",
    "released": "good",
    "held": "warn",
    "sent back": "warn",
    "failed": "bad",
    "rejected": "bad",
    "amended": "note",
    "waiting": "warn",
    "waiting_for_person": "warn",
    "asked": "warn",
    "cancelled": "warn",
    "stopped": "warn",
    "answered": "note",
    "started": "note",
    "running": "note",
}
NOBODY = ("policy", "reviewers", "somebody")
FAULTS = {
    "planning": "The planning failed",
    "execution": "The execution failed",
    "limits": "It ran out of what it was given",
    "person": "A person stopped it",
}


def render(story: Story) -> str:
    """The page."""
    body = "".join(
        (
            _head(story),
            _tiles(story),
            _verdict(story),
            _permissions(story.permissions),
            _steps(story),
            _timeline(story),
            _result(story),
            _plan(story),
            _ledgers(story),
            _evidence(story),
        )
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{_e(story.goal, 80)} – {_e(_word(story.status))}</title><style>{STYLE}</style>"
        f"</head><body><main>{body}</main></body></html>\n"
    )


def _e(value: object, limit: int = TEXT_MAX) -> str:
    """Text for the page: what hides is shown, what is markup is not."""
    text = str(value)
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if not text.isascii() or not text.isprintable():
        text = "".join(map(_shown, marked(text)))
    return html.escape(text)


def _shown(char: str) -> str:
    if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
        return char
    return f"\\u{ord(char):04x}"


def _word(status: str) -> str:
    return status.replace("_", " ")


def _pill(word: str) -> str:
    return f'<span class="pill {TONES.get(word, "")}">{_e(_word(word))}</span>'


def _date(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def _clock(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1e6, UTC):%H:%M:%S}"


def _took(start: int, end: int) -> str:
    if not start or not end:
        return ""
    spent = max(0.0, (end - start) / 1e6)
    return "under 1 ms" if spent < 0.001 else duration(spent)


def _number(value: float) -> str:
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _head(story: Story) -> str:
    plan = f" · plan <b>{_e(story.plan_id, 100)}</b>" if story.plan_id else ""
    return (
        f'<div class="brand"><b>Leadhand</b><span>Run report · {_e(story.run)}</span></div>'
        f"<h1>{_e(story.goal, 400)}</h1>"
        f'<p class="meta">{_pill(story.status)} &nbsp;{_date(story.started)} to '
        f"{_clock(story.ended)} UTC · started by <b>{_e(story.actor or 'somebody', 100)}</b> · "
        f"planned by <b>{_e(story.planner, 100)}</b>{plan}</p>"
    )


def _tile(name: str, value: str, more: str = "") -> str:
    extra = f"<i>{more}</i>" if more else ""
    return f'<div class="tile"><span>{name}</span><b>{value}</b>{extra}</div>'


def _tiles(story: Story) -> str:
    done = sum(step.status == "succeeded" for step in story.steps)
    total = sum(step.status != "superseded" for step in story.steps)  # others stand in for those
    tries = sum(len(step.tries) for step in story.steps)
    failed = sum(not each.ok for step in story.steps for each in step.tries)
    won = sum(answer.won is True for answer in story.answers)
    people = {each.who for each in story.permissions if each.who not in NOBODY}
    planned = f"{_e(duration(story.worked_s))} at work"
    if story.planned_s is not None:
        planned += f", planned {_e(duration(story.planned_s))}"
    budget = "" if story.budget is None else f"of {_number(story.budget)} allowed"
    recovered = f"of {_plural(len(story.answers), 'answer')} to a failure"
    tiles = (
        _tile("Steps succeeded", f"{done:,} of {total:,}"),
        _tile("Attempts", f"{tries:,}", f"{failed:,} failed" if failed else "none failed"),
        _tile("Recovered", f"{won:,}", recovered) if story.answers else "",
        _tile("Duration", _took(story.started, story.ended) or "–", planned),
        _tile("Cost", _number(story.cost), budget),
        *([_tile("Of it money", f"${_number(story.money)}", "")] if story.money else []),
        _tile("People involved", f"{len(people):,}"),
    )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _verdict(story: Story) -> str:
    if story.fault.where:
        tone = "bad" if story.fault.where in ("planning", "execution") else "warn"
        title, text = FAULTS[story.fault.where], story.fault.why
    elif story.status == "succeeded":
        tone, failures = "good", len(story.answers)
        title = "It reached its goal"
        text = f"{_checked(story)} " + (
            f"{_plural(failures, 'failure')} on the way {'was' if failures == 1 else 'were'} "
            "answered; each is below, with its reason."
            if failures
            else "Nothing failed on the way."
        )
        if story.dropped:
            text += f" Given up by name, with the reason below: {', '.join(story.dropped[:20])}."
    else:
        tone, title = "warn", f"It is not over: {_word(story.status)}"
        text = story.reason or "This is how it stood when it was exported."
    return f'<div class="card verdict is-{tone}"><h3>{_e(title)}</h3><p>{_e(text, 1500)}</p></div>'


def _checked(story: Story) -> str:
    """What was checked, and what was not."""
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
            ("check", "by its worker's own check"),
            ("form", "only by the declared form of its result"),
        )
        if count[kind]
    ]
    rest = len(done) - sum(count.values())
    text += f"; {', '.join(more)}" if more else ""
    text += f"; {rest:,} by nothing but its worker's report" if rest else ""
    goal = (
        "The goal's acceptance criteria were checked."
        if story.accepted
        else "The goal has no acceptance criteria, so nothing else tells whether it is reached."
    )
    return f"{text}. {goal}"


def _permissions(found: list[Permission]) -> str:
    rows = "".join(
        f'<tr><td class="when">{_date(each.at)}</td><td>{_pill(each.word)}</td>'
        f"<td>{_e(each.what, 600)}{_hash(each.digest)}</td><td><b>{_e(each.who, 100)}</b></td>"
        f"<td>{_e(each.reason, 1000)}</td>"
        f"<td>{f'{_date(each.until)} UTC' if each.until else ''}</td>"
        f"<td>{_e(each.signed, 100)}</td></tr>"
        for each in found[:LINES_MAX]
    )
    head = (
        "<tr><th>UTC</th><th>Word</th><th>What</th><th>Who</th><th>Why</th>"
        "<th>Until</th><th>Signed</th></tr>"
    )
    return (
        "<h2>Who allowed what</h2>"
        f'<div class="card wide"><table>{head}{rows}</table></div>{_rest(len(found), LINES_MAX)}'
    )


def _hash(digest: str) -> str:
    return f'<br><code title="{_e(digest)}">{_e(digest[:16])}</code>' if digest else ""


def _rest(count: int, shown: int) -> str:
    if count <= shown:
        return ""
    return f'<p class="meta">… and {count - shown:,} more; the files beside this page hold all.</p>'


def _steps(story: Story) -> str:
    rank = {"failed": 0, "waiting_for_person": 1}
    steps = sorted(story.steps, key=lambda step: rank.get(step.status, 2))
    if len(steps) <= STEPS_MAX:
        steps = story.steps
    shown = "".join(map(_step, steps[:STEPS_MAX]))
    return (
        f"<h2>Steps<small>{_plural(len(steps), 'step')}; open one to see its attempts</small></h2>"
        f'<div class="card">{shown or "<p class=inside>There were none.</p>"}</div>'
        f"{_rest(len(steps), STEPS_MAX)}"
    )


def _step(step: StepStory) -> str:
    what = " ".join(filter(None, (step.worker, step.action)))
    tries = _plural(len(step.tries), "attempt") if step.tries else ""
    troubled = step.status == "failed" or any(not each.ok for each in step.tries)
    facts = "".join(
        f"<p>{name}: {_e(value, 1000)}</p>"
        for name, value in (
            ("Done when", step.criteria),
            ("Risk", step.risk),
            *(("It recommends", each) for each in step.recommendations),
        )
        if value
    )
    text = f"<em>{_e(step.text, 300)}</em>" if step.text else ""
    told = any(step.reason in each.message for each in step.tries)
    reason = f"<p>{_e(step.reason, 1000)}</p>" if step.reason and not told else ""
    cost = f"<p>Cost: {_number(step.cost)}</p>" if step.cost else ""
    inside = facts + cost + reason + "".join(map(_try, step.tries))
    return (
        f'<details class="step"{" open" if troubled else ""}><summary><span class="name">'
        f"<b>{_e(step.id, 120)}</b><span>{_e(what, 120)}</span>{text}</span>"
        f'<span class="num">{tries}</span><span class="num">{_took(step.start, step.end)}</span>'
        f'{_pill(step.status)}</summary><div class="inside">{inside or "<p>It never ran.</p>"}'
        "</div></details>"
    )


def _try(made: Try) -> str:
    word = made.outcome or "not reported"
    tone = "good" if made.ok else "bad" if made.end else ""
    took = f" · {_took(made.start, made.end)}" if made.end else ""
    message = f"<pre>{_e(made.message)}</pre>" if made.message else ""
    then = ""
    if made.answer is not None:
        by = f" by {_e(made.answer.worker, 100)}" if made.answer.worker else ""
        won = {True: " It worked.", False: "", None: ""}[made.answer.won]
        then = (
            f'<p class="then">Then: <b>{_e(_word(made.answer.strategy))}</b>{by}, because '
            f"{_e(made.answer.reason, 500)}.{won}</p>"
        )
    return (
        f'<div class="try is-{tone}">Attempt {made.number} by {_e(made.worker, 100)}, '
        f"{_clock(made.start)} UTC{took}: <b>{_e(_word(word))}</b>{message}{then}</div>"
    )


def _timeline(story: Story) -> str:
    whole = max(1, story.ended - story.started)
    rows: dict[str, list[Span]] = {}
    for span in story.spans:
        rows.setdefault(span.step or "(people)", []).append(span)
    shown = "".join(
        f'<div class="bar"><span title="{_e(name, 200)}">{_e(name, 60)}</span>'
        f'<svg role="img" aria-label="{_e(name, 100)}">{_rects(found, story, whole)}</svg></div>'
        for name, found in list(rows.items())[:BARS_MAX]
    )
    if not shown:
        return ""
    axis = f'<div class="axis"><span>0</span><span>{_took(story.started, story.ended)}</span></div>'
    return (
        "<h2>Timeline<small>green verified, red failed, amber waiting for a person, grey waiting "
        "for another try or its time</small></h2>"
        f'<div class="card bars">{shown}{axis}</div>{_rest(len(rows), BARS_MAX)}'
    )


def _rects(found: Iterable[Span], story: Story, whole: int) -> str:
    rects = []
    for span in found:
        start = (span.start - story.started) / whole * 100
        width = max(0.4, ((span.end or story.ended) - span.start) / whole * 100)
        start = min(start, 100 - width) if width < 100 else 0
        people = span.kind in ("question", "approval", "held")
        tone = "warn" if people else "good" if span.ok else "bad"
        tone = tone if span.end and span.kind not in ("retry", "scheduled") else "idle"
        title = f"{span.kind} {span.attempt or ''} {span.outcome}".replace("  ", " ")
        rects.append(
            f'<rect class="{tone}" x="{start:.2f}%" width="{min(width, 100):.2f}%" height="14" '
            f'rx="2"><title>{_e(title, 200)}</title></rect>'
        )
    return "".join(rects)


def _result(story: Story) -> str:
    if story.result is None:
        return ""
    text = story.result if isinstance(story.result, str) else _json(story.result)
    return f"<h2>Result</h2><pre>{_e(text, RESULT_MAX)}</pre>"


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _plan(story: Story) -> str:
    rows = "".join(
        f"<tr><td>{each.number}</td><td>{_pill(each.status)}</td><td>{_e(each.author, 100)}</td>"
        f"<td>{_plural(len(each.doc.get('steps', ())), 'step')}</td>"
        f"<td>{_hash(story.digests.get(each.hash, ''))[4:]}</td>"
        f"<td><code>plan/revision-{each.number}.json</code></td></tr>"
        for each in story.revisions[:LINES_MAX]
    )
    head = (
        "<tr><th>Revision</th><th>State</th><th>Author</th><th>Size</th><th>Digest</th>"
        "<th>File</th>"
    )
    return (
        f'<h2>The plan</h2><div class="card wide"><table>{head}</tr>{rows}</table></div>'
        f"{_rest(len(story.revisions), LINES_MAX)}"
    )


def _ledgers(story: Story) -> str:
    parts = []
    for name, title in (("intent", "What was meant"), ("execution", "What was done")):
        lines = [line for line in story.lines if line.ledger == name]
        items = "".join(map(_line, lines[:LINES_MAX]))
        parts.append(
            f'<div class="card"><h3>{title}</h3><ol class="ledger">{items}</ol>'
            f"{_rest(len(lines), LINES_MAX)}</div>"
        )
    return f'<h2>Two ledgers, one log</h2><div class="ledgers">{"".join(parts)}</div>'


def _line(line: LedgerLine) -> str:
    return f"<li><time>{_clock(line.at)}</time><span>{_e(line.text, 600)}</span></li>"


def _evidence(story: Story) -> str:
    anchor = story.anchor
    held = "none: that the log was not cut or rewritten cannot be shown from this file"
    if anchor is not None:
        by = f", signed by {_e(anchor.key)}" if anchor.signature else ""
        held = f"commit {anchor.number:,}, {_date(anchor.at)} UTC{by}"
    kept = _plural(story.artifacts, "artifact")
    gone = f", {story.missing:,} no longer there" if story.missing else ""
    facts = (
        ("Events", f"{story.entries:,}, each with its exact bytes, in <code>log/</code>"),
        ("Head of the log", f"<code>{_e(story.head)}</code>"),
        ("Database", f"<code>{_e(story.database)}</code>"),
        ("Anchor", held),
        ("Kept apart", kept + gone),
        ("To check", "<code>leadhand verify THIS-FILE.zip --key audit.key.pub</code>"),
    )
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts)
    return (
        f'<h2>Evidence</h2><div class="card"><dl>{rows}</dl></div>'
        "<footer>All times are UTC. This page was made from the log beside it; "
        "<code>leadhand verify</code> makes it again and compares.</footer>"
    )
