"""What an agent may call: its tools, by names that every provider takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.model import worst
from leadhand.core.wording import closest, listed
from leadhand.errors import UsageError
from leadhand.models.messages import ToolDef
from leadhand.models.secret_patterns import scrub
from leadhand.workers.agent.endings import ASKING, ENDINGS, YIELDING, finishing
from leadhand.workers.agent.functions import function_tool, worker_tools
from leadhand.workers.agent.untrusted import shortened

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc, Risk
    from leadhand.workers.tools import Tool

_ODD = re.compile(r"[^A-Za-z0-9_-]+")
NAME_CHARS_MAX = 64
DESCRIPTION_CHARS_MAX = 2_000


class Toolbox:
    """The tools of one agent."""

    def __init__(self, given: Iterable[Any], returns: Doc | None, place: str) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in (each for one in given for each in as_tools(one, place)):
            name = _ODD.sub("_", tool.name)[:NAME_CHARS_MAX]
            if name in ENDINGS:
                raise UsageError(f"{place}: no tool can be called {name}, which ends a task")
            if not name or name in self._tools:
                raise UsageError(f"{place}: two tools are called {name!r}. Fix: rename one.")
            self._tools[name] = tool
        self._returns = returns

    @cached_property
    def shown(self) -> tuple[ToolDef, ...]:
        """What a model sees, made when first asked for: a server may have to be asked for it."""
        shown = [
            ToolDef(
                name, shortened(scrub(tool.description), DESCRIPTION_CHARS_MAX), tool.parameters
            )
            for name, tool in self._tools.items()
        ]
        return (*shown, finishing(self._returns), ASKING, YIELDING)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def get(self, name: str) -> Tool | None:
        """A tool by the name that the model knows."""
        return self._tools.get(name)

    def unknown(self, name: str) -> str:
        """What a model is told that calls a tool there is not."""
        known = [*self._tools, *ENDINGS]
        meant = closest(name, known)
        hint = f"Did you mean {meant}?" if meant else f"There are: {listed(known, 50)}."
        return f"there is no tool {name[:NAME_CHARS_MAX]!r}. {hint}"

    @property
    def effects(self) -> tuple[str, ...] | None:
        """What all of them may change; None as soon as one does not say."""
        found: set[str] = set()
        for tool in self:
            if tool.effects is None:
                return None
            found.update(tool.effects)
        return tuple(sorted(found))

    @property
    def writes(self) -> set[str]:
        """The paths that they declare to write."""
        return {path for tool in self for path in getattr(tool, "writes", ())}

    def risk(self, least: str) -> Risk:
        """The highest of their risks, and no lower than that."""
        return worst(least, *(tool.risk for tool in self))

    def version(self) -> str:
        """A digest of what they are."""
        known = [
            [name, tool.description, tool.parameters, tool.effects, tool.risk, tool.version]
            for name, tool in self._tools.items()
        ]
        return digest(canonical(known))


def as_tools(given: Any, place: str) -> Iterator[Tool]:
    """The tools that something stands for: a tool, a function, a worker, several of them."""
    if hasattr(given, "call") and hasattr(given, "parameters"):
        yield given
    elif hasattr(given, "toolset"):
        yield from given.toolset()
    elif hasattr(given, "perform") and hasattr(given, "spec"):
        yield from worker_tools(given, own=True)
    elif isinstance(given, (type, str)):
        raise UsageError(
            f"{place}: {given!r} is no tool. Fix: give a function, a worker, or a tool."
        )
    elif callable(given):
        yield function_tool(given)
    elif isinstance(given, Iterable):
        for each in given:
            yield from as_tools(each, place)
    else:
        raise UsageError(
            f"{place}: a {type(given).__name__} is no tool. Fix: give a function, a worker, or a "
            "tool."
        )
