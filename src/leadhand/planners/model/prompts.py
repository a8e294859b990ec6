"""The prompts of a model planner: Markdown beside this file, or in a folder of one's own.

    system.md       what a planner is, the rules, the form of an answer
    system_list.md  the same for style `list`, whose answers are numbered lists
    question.md     the state, as a planner is asked
    wrong.md        what is said when a proposal cannot be carried out
    list.md         the form of an answer in style `list`

A folder of one's own holds any of these; what it does not hold is taken from here, except that its
`system.md` stands for `system_list.md` too. `{{name}}` stands for a part of the state. A digest of
all of them goes into the log with every call.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from leadhand.core.hashing import digest
from leadhand.errors import UsageError
from leadhand.models.talk import Told

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        """A template with its holes filled."""
        text = self._texts[name]
        filled = _HOLE.sub(lambda hole: values[hole[1]], text) if values else text
        return re.sub(r"\n{3,}", "\n\n", filled).strip()

    def question(self, values: Mapping[str, str]) -> Told:
        """The question, and how much of its beginning comes again in the next one."""
        template, whole = self._texts["question"], self.fill("question", values)
        moving = next((hole for hole in _HOLE.finditer(template) if hole[1] not in STABLE), None)
        first = template[: moving.start()].rpartition("\n\n")[0] if moving else template
        filled = _HOLE.sub(lambda hole: values[hole[1]], first)
        stable = re.sub(r"\n{3,}", "\n\n", filled).strip()
        return Told(whole, len(stable) if whole.startswith(stable) else 0)


def _checked(name: str, path: Path) -> str:
    """A template of one's own; what is wrong with it is said before anybody is asked."""
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
