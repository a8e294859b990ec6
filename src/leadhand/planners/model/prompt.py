"""The state of a run as text for a model planner, within a budget.

Deterministic: the same state gives the same text, whichever of two steps ended first, so that a
recording can be played again. Results are shortened; whole ones are available on request. Data of
workers is enclosed in marks that it cannot forge, since they carry a digest of it.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core.calendar import iso
from leadhand.core.catalog import CALLER, stronger_workers
from leadhand.core.hashing import digest
from leadhand.core.wording import listed
from leadhand.errors import UsageError
from leadhand.models.messages import UserMessage
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.catalog import Offer, WorkerSpec
    from leadhand.core.plan.model import Goal
    from leadhand.core.report import PlannerView, StepView


# The prompts of a model planner: Markdown beside this file, or in a folder of one's own.
#
#     system.md       what a planner is, the rules, the form of an answer
#     system_list.md  the same for style `list`, whose answers are numbered lists
#     question.md     the state, as a planner is asked
#     wrong.md        what is said when a proposal cannot be carried out
#     list.md         the form of an answer in style `list`
#
# A folder of one's own holds any of these; what it does not hold is taken from here, except that
# its `system.md` stands for `system_list.md` too. `{{name}}` stands for a part of the state. A
# digest of all of them goes into the log with every call.


NAMES = ("system", "system_list", "question", "wrong", "list")
HOLES = {
    "question": frozenset(
        {"goal", "criteria", "given", "workers", "steps"}
        | {"results", "failures", "heard", "now", "style"}
    ),
    "wrong": frozenset({"problem", "facts"}),
}
"""What each of them can be filled with; the others are taken as they are."""
STABLE = frozenset({"workers", "goal", "criteria", "given"})
"""What stays the same in all questions of a run: where it comes first, a provider can cache it."""
_HOLE = re.compile(r"\{\{(\w+)\}\}")


class Prompts:
    """The templates, and their digest."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder) if folder is not None else None
        if self.folder is not None and not self.folder.is_dir():
            raise UsageError(f"prompts: {self.folder} is no folder")
        self._texts = {name: self._read(name) for name in NAMES}
        self.digest = digest("\0".join(self._texts.values()).encode())[:16]

    def _read(self, name: str) -> str:
        names = ("system_list", "system") if name == "system_list" else (name,)
        for each in names if self.folder is not None else ():
            own = self.folder / f"{each}.md"  # type: ignore[operator]  # there is a folder
            if own.exists():
                return _checked(name, own)
        ours = files("leadhand.planners.model").joinpath("prompts", f"{name}.md")
        return ours.read_text(encoding="utf-8")

    def fill(self, name: str, values: Mapping[str, str] = {}) -> str:
        """Return a template with its placeholders filled."""
        text = self._texts[name]
        filled = _HOLE.sub(lambda hole: values[hole[1]], text) if values else text
        return re.sub(r"\n{3,}", "\n\n", filled).strip()

    def question(self, values: Mapping[str, str]) -> UserMessage:
        """Return the question, with the length of the beginning that the next one repeats."""
        template, whole = self._texts["question"], self.fill("question", values)
        moving = next((hole for hole in _HOLE.finditer(template) if hole[1] not in STABLE), None)
        first = template[: moving.start()].rpartition("\n\n")[0] if moving else template
        filled = _HOLE.sub(lambda hole: values[hole[1]], first)
        stable = re.sub(r"\n{3,}", "\n\n", filled).strip()
        return UserMessage(whole, len(stable) if whole.startswith(stable) else 0)


def _checked(name: str, path: Path) -> str:
    """Return a template of the user's own. Raise `UsageError` for a mistake in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"prompts: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"prompts: {path} is not a text in UTF-8") from None
    for hole in _HOLE.finditer(text) if name in HOLES else ():
        if hole[1] not in HOLES[name]:
            known = ", ".join(sorted(HOLES[name]))
            raise UsageError(f"prompts: {path} has {hole[0]}, and there is only: {known}")
    return text


TOKEN_CHARS = 4
BRIEF_CHARS = 400
"""How much of a result is told when there is room for all of them."""
FAILURES_TOLD = 12
STEPS_TOLD = 200
QUESTIONS_TOLD = 5
ERROR_CHARS = 200
FINDING_CHARS = 500
FENCE_CHARS = 140
"""About what stands around the data of one result: its name and two marks."""
MARK_CHARS = 16
"""Length of the digest around data: no text can contain its own digest."""
READ_CHARS_MAX = 200_000
"""The length searched for secrets beyond the shown part: a result may be very long."""
WHOLE_SHARE = 0.5
"""How much of the budget whole results may take that were asked for."""


_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)


def clean(text: str) -> str:
    """Return `text` without invisible characters."""
    return _UNSEEN.sub("", text)


def state_parts(view: PlannerView, tokens: int, *, lists: bool = False) -> dict[str, str]:
    """Return the parts of the state, by the names that the prompts know, without secrets.

    With `lists` nothing is said of references, which a numbered list cannot hold.
    """
    room = tokens * TOKEN_CHARS
    parts = {
        "goal": view.goal.text or f"Make these true: {', '.join(view.goal.want)}",
        "criteria": _criteria(view.goal),
        "given": _given(view.goal, room // 8, lists=lists),
        "workers": _workers(view, room // 3),
        "steps": _steps(view, room // 6),
        "results": _results(view, room // 3),
        "failures": _failures(view),
        "heard": _heard(view, room // 8),
        "now": _now(view),
    }
    return {name: scrub(text) for name, text in parts.items()}


def whole(view: PlannerView, names: list[str], tokens: int) -> str:
    """Full results of finished steps, as far as there is room."""
    room = int(tokens * TOKEN_CHARS * WHOLE_SHARE) // max(1, len(names))
    parts = []
    for name in names:
        if name in view.results:
            parts.append(f"{name}:\n{fence_data(_json(view.results[name]), room)}")
        else:
            parts.append(f"{name}: there is no finished step of that name")
    return "\n\n".join(parts)


def fence_data(text: str, limit: int) -> str:
    """Return data between marks that carry its digest; a cut says how much is missing."""
    unread = max(0, len(text) - limit - READ_CHARS_MAX)
    text = scrub(clean(text[: limit + READ_CHARS_MAX]))
    if len(text) + unread > limit:
        text = f"{text[:limit]} … ({len(text) + unread - limit:,} more characters)"
    mark = digest(text.encode("utf-8", "backslashreplace"))[:MARK_CHARS]
    return f"<data {mark}>\n{text}\n</data {mark}>"


def _criteria(goal: Goal) -> str:
    lines = []
    if goal.want:
        lines.append(f"Wanted: {', '.join(goal.want)}")
    lines += [f"- {each}" for each in goal.acceptance]
    return "# Acceptance criteria\n" + "\n".join(lines) + "\n" if lines else ""


def _given(goal: Goal, room: int, *, lists: bool) -> str:
    if not goal.have:
        return ""
    each = max(80, room // len(goal.have))
    lines = [f"- {name} = {_cut(_json(value), each)}" for name, value in goal.have.items()]
    how = "" if lists else " (as parameters: ${{ params.NAME }})"
    return f"# Given{how}\n" + "\n".join(lines) + "\n"


def _workers(view: PlannerView, room: int) -> str:
    behind = stronger_workers(view.catalog.workers)  # They come in when the first is not enough.
    used = {step.worker for step in view.steps.values()}  # A run without a caller gets none.
    lines = [
        line
        for spec in view.catalog.workers.values()
        if spec.name not in behind and (spec.kind != CALLER or spec.name in used)
        for action, offer in spec.offers.items()
        for line in [_worker(spec, action, offer)]
    ]
    if sum(map(len, lines)) > room:
        lines = [line.partition("\n")[0] for line in lines]
    kept: list[str] = []
    size = 0
    for line in lines:
        size += len(line) + 1
        if size > room:
            kept.append(f"({len(lines) - len(kept)} more are not shown)")
            break
        kept.append(line)
    return "\n".join(kept)


def _worker(spec: WorkerSpec, action: str, offer: Offer) -> str:
    name = f"{spec.name}, action {action}" if action else spec.name
    about = _cut(clean(spec.description).strip().split("\n")[0], 200)
    lines = [f"- {name}" + (f": {about}" if about else "")]
    if offer.parameters:
        lines.append(f"  parameters: {_schema(offer.parameters)}")
    for word in ("needs", "gives", "drops"):
        facts = getattr(offer, word)
        if facts:
            lines.append(f"  {word}: {', '.join(facts)}")
    risk = offer.risk or spec.default_risk()
    price = f", costs about {offer.cost:g}" if offer.cost else ""
    if risk != "low" or price or offer.effects:
        effects = f"; changes {listed(offer.effects)}" if offer.effects else ""
        lines.append(f"  risk {risk}{price}{effects}")
    return "\n".join(lines)


def _schema(schema: Mapping[str, Any]) -> str:
    """Parameters in brief: `city: string, days?: integer`."""
    required = set(schema.get("required", ()))
    parts = []
    for name, form in schema.get("properties", {}).items():
        kind = form.get("type") if isinstance(form, dict) else None
        if isinstance(form, dict) and "enum" in form:
            kind = " | ".join(map(_json, form["enum"][:8]))
        mark = "" if name in required else "?"
        parts.append(f"{name}{mark}: {kind if isinstance(kind, str) else 'any'}")
    return ", ".join(parts) or "none"


def _steps(view: PlannerView, room: int) -> str:
    planned = {name: i for i, name in enumerate(view.steps)}
    steps = sorted(view.timeline, key=lambda step: planned.get(step.id, 0))
    if not steps:
        return "Nothing has been done yet."
    lines = [_step(step, view.retries.get(step.id, 0)) for step in steps[-STEPS_TOLD:]]
    if sum(map(len, lines)) > room:  # What failed is told below, the newest of it.
        lines = [line.partition("\n")[0] for line in lines]
    while len(lines) > 1 and sum(map(len, lines)) > room:
        del lines[: len(lines) // 4 + 1]
    if len(steps) > len(lines):
        lines.insert(0, f"({len(steps) - len(lines)} earlier steps are not shown)")
    return "\n".join(lines)


def _step(step: StepView, again: int) -> str:
    who = f"{step.worker} {step.action}".strip()
    why = f":\n{fence_data(step.error.message, ERROR_CHARS)}" if step.error is not None else ""
    return f"- {step.id}: {who}: {_status(step, again)}{why}"


def _status(step: StepView, again: int) -> str:
    """Return how a step stands; of one that will go on by itself or by a person, what it waits
    for."""
    if step.status == "backing_off":
        at = f" at {iso(again)}" if again else ""
        times = "once" if step.attempts == 1 else f"{step.attempts} times"
        return f"failed {times}, is tried again by itself{at}"
    return {"asking": "waits for a person's answer"}.get(step.status, step.status)


def _results(view: PlannerView, room: int) -> str:
    names = list(view.results)
    if not names:
        return ""
    each = max(60, min(BRIEF_CHARS, room // len(names) - FENCE_CHARS))
    newest = names[-max(1, room // (each + FENCE_CHARS)) :]
    lines = [f"{name}:\n{fence_data(_json(view.results[name]), each)}" for name in newest]
    return "\n".join(["Results in brief:", *lines])


def _failures(view: PlannerView) -> str:
    if not view.failed_attempts:
        return ""
    newest = sorted(view.failed_attempts[-FAILURES_TOLD:], key=lambda e: (e.step, e.attempt))
    lines = [
        f"- {each.step}, attempt {each.attempt} by {each.worker}: {each.failure.failure_class}:\n"
        f"{fence_data(each.failure.message, 300)}"
        for each in newest
    ]
    return "Failed attempts:\n" + "\n".join(lines)


def _heard(view: PlannerView, room: int) -> str:
    parts = []
    if view.recommendations:
        newest = view.recommendations[-FAILURES_TOLD:]
        told = "\n".join(f"- {getattr(word, 'step', '') or 'a step'}: {word}" for word in newest)
        parts.append(f"Workers recommend:\n{fence_data(told, 2000)}")
    if view.answers:
        said = [clean(_json(answer)) for answer in view.answers[-FAILURES_TOLD:]]
        each = room // len(said)
        parts.append("People answered:\n" + "\n".join(_cut(line, each) for line in said))
    return "\n".join(parts)


def _now(view: PlannerView) -> str:
    lines = [f"You are asked because: {_cut(clean(view.why), 1000)}"]
    if view.in_flight:
        lines.append(f"Under way: {listed(view.in_flight, 50)}")
    lines += [f"Not now: {name}, {why}" for name, why in sorted(view.barred.items())]
    for question in view.questions[:QUESTIONS_TOLD]:
        about = f" (step {question['step']})" if question.get("step") else ""
        lines.append(f"A person is asked{about}: {_cut(clean(str(question['text'])), 300)}")
    if view.budget_left is not None:
        lines.append(f"Budget left: {_money(view.budget_left, view.cost)}")
    sent_back = bool(view.comments) and view.why.startswith("changes:")  # the comments say why
    refused = () if sent_back else view.findings
    findings = [_cut(clean(finding), FINDING_CHARS) for finding in refused[:5]]
    lines += _comments(view)
    lines += [f"Your last proposal was refused: {finding}" for finding in findings]
    return "\n".join(lines)


def _comments(view: PlannerView) -> list[str]:
    """Return the reviewers' comments on the last proposal, and how to answer them."""
    if not view.comments:
        return []
    lines = ["People reviewed your last proposal and request changes:"]
    for each in view.comments:
        about = f"step {each['step']}" if each["step"] else "the plan"
        lines.append(f"- {each['id']} ({about}): {clean(each['text'])}")
    lines.append(
        "Propose again. `answers` says for each comment, by its id, whether you addressed it: "
        '[{"comment": "c1", "addressed": true, "reason": "what you changed, or why not"}].'
    )
    return lines


def _money(left: float, spent: float) -> str:
    """Return the remaining budget in tenths of the whole: cents would change every prompt.

    The last two tenths are given exactly.
    """
    total = left + spent
    if not total or left < 0.2 * total:
        return f"{left:g}"
    return f"{round(left / total, 1) * total:.4g} of {total:.4g}"


def _json(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
