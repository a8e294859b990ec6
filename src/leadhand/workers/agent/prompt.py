"""The prompt of an agent: its own instructions, the goal, and its step; not the plan.

Parameters are the task; the goal says what it is for. What other steps did, why earlier tries
failed and what people answered come after it; the first two are data that somebody else wrote, and
marked as such.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.core.hashing import digest
from leadhand.errors import UsageError
from leadhand.models.secret_patterns import scrub
from leadhand.workers.agent.tools import READ_CHARS_MAX, as_text, marked

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.ports import Context, Task


PROMPT = Path(__file__).parent / "prompts" / "agent.md"
TEXT_BYTES_MAX = 1 << 20
GOAL_CHARS_MAX = 4000
SUFFIXES = (".md", ".txt")


def text_from(given: str | Path, what: str) -> str:
    """Return `given`, or the content of a file: a Path, or one line that ends with .md or .txt."""
    if isinstance(given, str) and ("\n" in given or not given.endswith(SUFFIXES)):
        return given
    path = Path(given)
    try:
        if path.stat().st_size > TEXT_BYTES_MAX:
            raise UsageError(f"{what}: {path} is larger than {TEXT_BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{what}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{what}: {path} is not a text") from None


class Prompt:
    """The system message of an agent: the house's part or another, then its own instructions."""

    def __init__(self, base: str | Path, instructions: str | Path, place: str) -> None:
        self.base = text_from(base or PROMPT, f"{place}: prompt").strip()
        self.instructions = text_from(instructions, f"{place}: instructions").strip()
        parts = [self.base, self.instructions and f"Your instructions:\n{self.instructions}"]
        self.text = "\n\n".join(part for part in parts if part)
        self.digest = digest("prompt", self.text)[:16]


def attempt_prompt(task: Task, context: Context, hide: Callable[[Any], Any]) -> str:
    """Return the task as text; `hide` removes the secrets that the run knows by value."""
    parts = [*_goal(task, context, hide), "Your task:"]
    if task.action:
        parts.append(f"action: {task.action}")
    parameters = hide(task.parameters)
    quoted: frozenset[str] = getattr(context, "quoted", frozenset())
    for name, value in parameters.items():
        if name in quoted:  # What other steps gave is data, however it gets here.
            parts.append(f"{name}:\n{marked(name, as_text(value), READ_CHARS_MAX)}")
        else:
            parts.append(f"{name}: {scrub(as_text(value))}")
    if not task.action and not parameters:
        parts.append("as your instructions say")
    results = hide(context.results)
    if results:
        parts.append("\nResults of earlier work that you may use:")
        parts += [marked(name, as_text(value)) for name, value in results.items()]
    summaries = hide(context.summaries)
    if summaries:
        parts.append("\nWhat other steps did, in brief:")
        parts += [marked(name, _summary(each)) for name, each in summaries.items()]
    if context.failures:
        parts.append("\nEarlier tries of this task failed. Do not fail the same way:")
        parts += [
            marked("an earlier try", f"{each.failure_class}: {hide(each.message)}")
            for each in context.failures[-3:]
        ]
    if context.answers:
        parts.append("\nWhat people answered about this task:")
        parts += [f"- {scrub(_answered(hide(each)))}" for each in context.answers]
    return "\n".join(parts)


def _summary(step: dict[str, Any]) -> str:
    who = f"{step['worker']} {step['action']}".strip()
    lines = [f"{who}: {step['status']}"]
    lines += [step["data"]] if step["data"] is not None else []
    lines += [step["error"]] if step["error"] else []
    return "\n".join([*lines, *(f"recommends: {each}" for each in step["recommendations"])])


def _goal(task: Task, context: Context, hide: Callable[[Any], Any]) -> list[str]:
    """Return the goal of the run as lines; empty if the task says the same."""
    goal = context.goal
    text = str(hide(goal.text)) if goal is not None and goal.text else ""
    if not text or any(value == goal.text for value in task.parameters.values()):
        return []
    if len(text) > GOAL_CHARS_MAX:
        text = f"{text[:GOAL_CHARS_MAX]}…"
    lines = [f"The goal of the whole work, of which your task is one part: {scrub(text)}"]
    lines += [f"- it is reached when {scrub(str(hide(each)))}" for each in goal.acceptance]
    return [*lines, ""]


def _answered(answer: dict[str, Any]) -> str:
    said = [str(answer[key]) for key in ("choice", "text") if answer.get(key)]
    if answer.get("data") is not None:
        said.append(as_text(answer["data"]))
    asked = f"{answer['question']} " if answer.get("question") else ""
    return f"{asked}{': '.join(said)}"
