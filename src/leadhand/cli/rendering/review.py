"""A review for people: everything that will run, with deceptive characters shown. Pure.

It opens with one line, then the findings, the graph, and the steps with every field of each; the
digest that an approval is for comes last. A value stands as it is; one that could be mistaken for
another (empty, a number as a text, invisible or look-alike characters) stands in quotes, escaped.
No line begins with a text of a plan, so that none can pass for a line of ours.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leadhand.cli.console import painted
from leadhand.cli.rendering.graph import draw
from leadhand.cli.rendering.text import clean, clean_lines, wrapped
from leadhand.core.catalog import NOT_DECLARED
from leadhand.core.review.consequences import TOPICS, consequence_line
from leadhand.core.review.limits import changed_limits
from leadhand.core.review.view import PlanReview, ReviewDocument
from leadhand.core.visible import has_marks, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.cli.console import Console
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.review.approval import ApprovalRow


COLOURS = {"+": "green", "-": "red", "~": "yellow", ">": "cyan", "!": "magenta"}
RISK_COLOURS = {"low": "green", "medium": "yellow", "high": "red", "critical": "red"}
AUTHORS = {"document": "from a plan document", "goal": "by the goal planner"}
_OTHER = re.compile(r"(?i)true|false|null|none|yes|no|on|off|~|[-+]?[\d.][\d_.,:e+-]*|0[xo].*")
_KEY = re.compile(r"[A-Za-z0-9_$@.-]+")


def print_review(console: Console, doc: ReviewDocument | PlanReview) -> None:
    """Print a review as data, in colour on a terminal."""
    for line in review_lines(doc, colour=console.data_colour):
        for part in wrapped(line, console.data_width):
            console.out(part)


def review_lines(doc: ReviewDocument | PlanReview, *, colour: bool) -> list[str]:
    """Return the lines of a review."""
    return [*_Review(doc, colour=colour).lines()]


def painted_change(line: str, *, colour: bool) -> str:
    """Return a line of a difference in the colour of its mark."""
    return painted(line, COLOURS[line[0]]) if colour else line


def allowed_line(row: ApprovalRow) -> str:
    """Return who allowed something, when, why, until when, and whether it is signed."""
    why = f": {visible(row.why)}" if row.why else ""
    until = f", until {for_people(row.until)}" if row.until else ""
    signed = f", signed by {visible(row.key)}" if row.signed else ", not signed"
    return f"{visible(row.by)}, {for_people(row.at)}{until}{signed}{why}"


def for_people(moment: str) -> str:
    """Return an instant of a document, which is in UTC: `2026-11-20 02:00:00 UTC`."""
    return f"{moment[:10]} {moment[11:19]} UTC"


def readable(value: Json) -> str:
    """Return a value in one line, without the signs of JSON; in quotes where it is ambiguous."""
    if isinstance(value, str):
        odd = _OTHER.fullmatch(value) or not value or value != value.strip()
        odd = odd or not value.isprintable() or has_marks(value) or value[0] in "\"'[{|-"
        return visible(value) if odd else value
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return ", ".join(f"{_key(key)}: {_item(each)}" for key, each in value.items()) or "empty"
    if isinstance(value, list | tuple):
        return ", ".join(map(_item, value)) or "none"
    return str(value)


def _item(value: Json) -> str:
    """Return a value inside of a list: one with a comma or values of its own is enclosed."""
    if isinstance(value, str):
        text = readable(value)
        return visible(value) if "," in text or ": " in text else text
    return f"({readable(value)})" if isinstance(value, dict | list | tuple) else readable(value)


def _key(key: str) -> str:
    return key if _KEY.fullmatch(key) else visible(key)


def value_lines(key: str, value: Json) -> Iterator[str]:
    """Yield a value under its key, one line for each leaf; nested values are indented."""
    name = _key(key)
    if isinstance(value, str) and "\n" in value:
        yield f"{name}:"
        for line in value.split("\n"):
            yield f"  | {line if line.isprintable() and not has_marks(line) else visible(line)}"
    elif isinstance(value, dict) and value:
        yield f"{name}:"
        for inner, each in value.items():
            yield from (f"  {line}" for line in value_lines(inner, each))
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        yield f"{name}:"
        for number, each in enumerate(value, 1):
            yield from (f"  {line}" for line in value_lines(f"{number}", each))
    else:
        yield f"{name}: {readable(value)}"


class _Review:
    """The parts of a review as lines."""

    def __init__(self, doc: ReviewDocument | PlanReview, *, colour: bool) -> None:
        self._doc = doc
        self._run = doc if isinstance(doc, ReviewDocument) else None
        self._colour = colour

    def _paint(self, text: str, colour: str) -> str:
        return painted(text, colour) if self._colour else text

    def _head(self, text: str) -> Iterator[str]:
        yield ""
        yield self._paint(text, "bold")

    def lines(self) -> Iterator[str]:
        """Yield all lines, the most important ones first."""
        yield from self._opening()
        yield from self._consequences()
        yield from self._comments()
        yield from self._findings()
        if self._doc.steps:
            yield from self._head("Graph")
            yield from (f"  {line}" for line in draw(self._doc.steps, "text"))
        yield from self._head(f"Steps ({len(self._doc.steps)})")
        for number, step in enumerate(self._doc.steps, 1):
            yield from self._step(number, step)
        yield from self._plan()
        yield from self._workers()
        yield from self._changes()
        yield ""
        digest = self._doc.binding or "none, since workers are not loaded"
        if self._run is None or self._doc.binding:
            yield f"Plan digest: {digest}"

    def _opening(self) -> Iterator[str]:
        doc, run = self._doc, self._run
        name = f"Plan {visible(doc.name)}" if doc.name else "Plan"
        yield f"{self._paint(name, 'bold')} · {self._summary()}"
        if run is None:
            return
        author = AUTHORS.get(run.author, f"by {visible(run.author)}") if run.author else ""
        starter = f"started by {visible(run.started_by)}" if run.started_by else ""
        since = f"waiting since {for_people(run.since)}" if run.since else ""
        parts = [f"Run {run.run}", f"revision {run.revision}", author, starter, since]
        yield ", ".join(part for part in parts if part)
        if not run.waiting:
            rest = "these steps have not ended" if run.steps else "no step is left"
            yield f"No approval is pending; {rest}"
            return
        why = self._paint("Waiting for approval:", "bold")
        yield f"{why} {clean(run.why)}"
        if run.because:
            yield f"Reason of the revision: {clean(run.because)}"
        for each in run.approvals:
            yield f"  allowed by {allowed_line(each)}"

    def _summary(self) -> str:
        text = clean(self._doc.summary)
        risk = self._doc.risk
        if risk == NOT_DECLARED and self._doc.policy_risk:
            counted = f"risk not declared (the policy counts it as {self._doc.policy_risk})"
            text = text.replace("risk not declared", counted, 1)
        elif risk == NOT_DECLARED:
            text = text.replace("risk not declared", "risk not known (workers are not loaded)", 1)
        word = f"risk {risk}"
        return text.replace(word, self._paint(word, RISK_COLOURS.get(risk, "yellow")), 1)

    def _consequences(self) -> Iterator[str]:
        if self._doc.consequences:
            yield from self._head("If approved")
            yield f"  {clean(self._doc.in_short)}"
        last = ""
        for each in self._doc.consequences:
            topic = TOPICS[each.topic] if each.topic != last else ""
            last = each.topic
            yield f"  {topic:<15} {clean(consequence_line(each))}"

    def _comments(self) -> Iterator[str]:
        rows = self._run.comments if self._run else ()
        if rows:
            yield from self._head(f"Comments on earlier revisions ({len(rows)})")
        for row in rows:
            place = f"step {readable(row.step)}" if row.step else "the plan"
            mark = self._paint(row.status, "green" if row.status == "addressed" else "yellow")
            about = f"{place}, revision {row.revision}, by {clean(row.by)}"
            yield f"  {row.id}. {about}: {clean(row.text)}"
            said = f": {clean(row.reason)}" if row.reason else ""
            what = "the step" if row.step else "the plan"
            yield f"      {mark}{said} ({what} is {row.fact})"

    def _findings(self) -> Iterator[str]:
        doc, run = self._doc, self._run
        found = [f"new: {clean(what)}" for what in (run.outside if run else ())]
        if run and run.untrusted:
            found.append("proposed by an agent, or after results of an untrusted worker")
        found += [f"widens: {clean(what)}" for what in doc.widens]
        found += [
            f"{clean(what)}; a planner wrote it, so it does not count" for what in doc.overclaims
        ]
        for each in doc.findings:
            code = f" ({each.rule})" if each.rule.startswith("LH") else ""
            found.append(f"{clean(each.message)}{code}")
        if found:
            yield from self._head(f"Findings ({len(found)})")
        for line in found:
            yield f"  {self._paint('!', 'yellow')} {line}"

    def _step(self, number: int, step: Doc) -> Iterator[str]:
        doc, ident = self._doc, step["id"]
        words = [str(step.get(name) or "") for name in ("worker", "action")]
        worker = " ".join(readable(word) for word in words if word)
        risk = doc.risks[ident]
        told = self._paint(f"risk {risk}", RISK_COLOURS.get(risk, "yellow"))
        yield f"  {number}. {self._paint(readable(ident), 'bold')} · {worker} · {told}"
        for line in clean_lines(doc.descriptions.get(ident, "")).strip().split("\n"):
            if line.strip():
                yield f"     | {self._paint(line, 'dim')}"
        if walls := doc.sandboxes[ident]:
            yield f"     sandbox: {readable(walls)}"
        shown = {"id", "worker", "action"}
        for key, value in step.items():
            if key not in shown:
                yield from (f"     {line}" for line in value_lines(key, value))
        for place, value in doc.resolved.get(ident, {}).items():
            yield f"     = {_key(place)}: {readable(value)}"
        for place in doc.unresolved.get(ident, ()):
            yield f"     ? {_key(place)}: known only when the step starts"
        if ident in doc.instants:
            at = for_people(doc.instants[ident])
            yield f"     (approved now, it starts at {at} or later)"

    def _plan(self) -> Iterator[str]:
        doc, run = self._doc, self._run
        yield from self._head("Plan")
        yield f"  side effects: {readable(doc.effects)}"
        yield f"  writes: {readable(doc.writes)}"
        limits = (f"{name} {readable(value)}" for name, value in changed_limits(doc.limits))
        yield f"  limits: {', '.join(limits)}"
        if isinstance(doc, PlanReview) and doc.context:
            yield f"  environment: {readable(doc.context)}"
        for ident in run.cancel if run else ():
            yield f"  takes out: {readable(ident)}"
        for ident, why in (run.drop if run else {}).items():
            yield f"  drops: {readable(ident)}: {readable(why)}"
        if doc.revisable:
            planner = readable(doc.revisable.planner)
            yield f"  may be revised by {planner} within this envelope:"
            for key, value in doc.revisable.envelope.items():
                yield from (f"    {line}" for line in value_lines(key, value))
        parts = {"origin": run.origin if run else {}, "inputs": doc.params}
        for key, value in {**doc.plan, **parts}.items():
            if key in doc.plan or value:
                yield from (f"  {line}" for line in value_lines(key, value))

    def _workers(self) -> Iterator[str]:
        unknown = "?" if self._doc.policy_risk else "not loaded"
        if self._doc.workers:
            yield from self._head("Workers")
        for name, version in self._doc.workers.items():
            yield f"  {readable(name)}, version {version or unknown}"

    def _changes(self) -> Iterator[str]:
        run = self._run
        if run is None or not run.steps:
            return
        if not run.approved_before:
            yield from self._head("No revision was approved before: all of it is new")
        elif run.changes:
            yield from self._head("Difference to the plan that was approved last")
            for line in run.difference:
                yield f"  {painted_change(line, colour=self._colour)}"
