"""The tools of an agent: functions, workers and MCP tools, by names that every provider takes.

Tool                the protocol of a tool
function_tool,      a Python function or any worker as a tool
worker_tools
finishing, misfit   the three tools by which a model ends its task
marked, shortened   a tool's result as the model is shown it: data, never instructions
Toolbox             all of them, by the names that the model calls
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from leadhand.codec.values import plain
from leadhand.core.hashing import canonical, digest
from leadhand.core.jsonschema import problems
from leadhand.core.plan.model import worst
from leadhand.core.wording import closest, listed
from leadhand.errors import UsageError, WorkerFailure
from leadhand.models.messages import ToolDef
from leadhand.models.secret_patterns import scrub
from leadhand.ports import Task
from leadhand.workers.functions.decorator import MARK, Declaration, declare
from leadhand.workers.functions.worker import FunctionAction, FunctionWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leadhand.core.catalog import Offer
    from leadhand.core.plan.model import Doc, Risk
    from leadhand.core.report import Failure
    from leadhand.ports import Context, Worker
    from leadhand.workers.processes.runner import Processes


# The protocol of a tool, independent of its provider.
#
# A Python function, a command with an allow list, a tool of an MCP server: an agent sees one form.
# Name and description may come from a stranger. They are text to show and to send on, never
# instructions to us, and a result is data.


class Tool(Protocol):
    """One thing that can be called with a JSON object and answers with JSON-like data."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments object."""

    @property
    def effects(self) -> tuple[str, ...] | None:
        """Return what it changes outside; None if that is not declared."""

    @property
    def risk(self) -> str | None: ...
    @property
    def version(self) -> str:
        """Return a digest of the definition that was approved; it changes with the definition."""

    async def call(self, arguments: dict[str, Any], context: Context) -> Any:
        """Return the result: text or JSON-like data.

        Raise `WorkerFailure`; cancelling stops the call.
        """


# A tool's result as a model is shown it: data between two marks.
#
# The mark is a digest of the data itself, so nobody can write data that holds its own end mark. It
# is the same for the same data: what was recorded can be replayed.


RESULT_CHARS_MAX = 20_000
"""What a model is shown of one result; the rest is left out, and that is said."""
READ_CHARS_MAX = 1_000_000
"""What is looked through for secrets of one result: far more than is shown."""
MARK_CHARS = 16


def as_text(value: Any) -> str:
    """Return a tool's result as text: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(plain(value)).decode()
    except (ValueError, TypeError):
        return str(value)


def shortened(text: str, most: int) -> str:
    """Return `text` with its middle left out if it is longer than `most`."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def marked(source: str, text: str, most: int = RESULT_CHARS_MAX) -> str:
    """Return a text from outside, without secrets, between marks that it cannot contain."""
    data = shortened(scrub(shortened(text, READ_CHARS_MAX)), most)
    mark = digest("untrusted", source, data)[:MARK_CHARS]
    return f'<data from="{source}" mark="{mark}">\n{data}\n</data mark="{mark}">'


# The three tools by which a model ends its task; they are never run.
#
#     finish          the result, in the form that was declared
#     needs_info      a question; the planner answers it from what it knows, else a person does
#     too_complex     why it is too much, and into which parts it could be split


FINISH, NEEDS_INFO, TOO_COMPLEX = "finish", "needs_info", "too_complex"
ENDINGS = (FINISH, NEEDS_INFO, TOO_COMPLEX)
PROBLEMS_SHOWN = 5

_TEXT = {"type": "string", "minLength": 1}

ASKING = ToolDef(
    NEEDS_INFO,
    "End the task with a question, when something is missing that no tool can give.",
    {
        "type": "object",
        "properties": {"question": {**_TEXT, "description": "One question, complete in itself."}},
        "required": ["question"],
        "additionalProperties": False,
    },
)
YIELDING = ToolDef(
    TOO_COMPLEX,
    "End the task because it is too large or too unclear for you.",
    {
        "type": "object",
        "properties": {
            "reason": _TEXT,
            "parts": {
                "type": "array",
                "items": _TEXT,
                "description": "Smaller tasks that together would do it.",
            },
        },
        "required": ["reason"],
        "additionalProperties": False,
    },
)


SHARED = ("#/$defs/", "#/definitions/")
ONLY_RESULT = {"properties": {"result": True}, "additionalProperties": False}
"""What a call of `finish` holds, its result aside."""


def finishing(returns: Doc | None) -> ToolDef:
    """Return the tool that takes the result."""
    result = dict(_moved(returns)) if returns is not None else {"type": "string"}
    # References inside of the schema begin at its root, which is now one level up.
    shared = {key: result.pop(key) for key in ("$defs", "definitions") if key in result}
    result.pop("$schema", None)
    parameters = {
        "type": "object",
        "properties": {"result": result},
        "required": ["result"],
        "additionalProperties": False,
        **shared,
    }
    return ToolDef(FINISH, "End the task with its result.", parameters)


def _moved(schema: Any) -> Any:
    """Return the schema with its references rewritten for their place under `properties.result`."""
    if isinstance(schema, list):
        return [_moved(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _moved(value) for key, value in schema.items()}
    name = str(schema.get("$ref", ""))
    if name == "#" or (name.startswith("#/") and not name.startswith(SHARED)):
        found["$ref"] = f"#/properties/result{name[1:]}"
    return found


def misfit(value: Any, schema: Any, what: str) -> str:
    """Return the first violation of `schema` in one line; empty if there is none."""
    found = problems(value, schema, what)
    shown = "; ".join(f"{each.path or what} {each.message}" for each in found[:PROBLEMS_SHOWN])
    more = len(found) - PROBLEMS_SHOWN
    return f"{shown}; and {more} more" if more > 0 else shown


# Python functions, and any other worker, as tools of an agent.
#
# A function is called as a worker of the same declaration would be: in its thread, its process or
# on the loop, its arguments checked by its signature, its exceptions read by the same table. A
# plain function needs no `@worker`; with it, effects and risk are known.


ANYTHING: dict[str, Any] = {"type": "object", "additionalProperties": True}


class ToolFailure(WorkerFailure):
    """The failure that a worker reported when it was used as a tool."""

    failure_class: str = "unavailable"  # type: ignore[misc]  # here it belongs to the instance

    def __init__(self, failure: Failure, data: Any = None) -> None:
        super().__init__(failure.message, effect=failure.effect, data=data)
        self.failure_class = failure.failure_class


class WorkerTool:
    """One action of a worker, as a tool."""

    def __init__(self, worker: Worker, action: str = "", *, own: bool = False) -> None:
        """Take the worker; `own`: it is attached and closed with the tool."""
        offer = worker.spec.offer(action)
        assert offer is not None, f"{worker.spec.name} offers no {action!r}"
        self.worker, self.action, self._own = worker, action, own
        self._offer: Offer = offer
        self.name = f"{worker.spec.name}_{action}" if action else worker.spec.name
        self.description = worker.spec.description

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of its parameters."""
        return self._offer.parameters or ANYTHING

    @property
    def effects(self) -> tuple[str, ...] | None:
        """Return the effects that its worker declares."""
        return self._offer.effects

    @property
    def writes(self) -> tuple[str, ...]:
        """Return the paths that its worker declares to write."""
        return self._offer.writes

    @property
    def risk(self) -> str:
        """Return the risk that its worker declares, or the default of its kind."""
        return self._offer.risk or self.worker.spec.default_risk()

    @property
    def version(self) -> str:
        """Its worker's."""
        return self.worker.spec.version

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Return the variables whose values must not get into the log."""
        return tuple(getattr(self.worker, "secret_names", ()))

    @property
    def given_values(self) -> dict[str, str]:
        """Variables that its worker is given, with their values."""
        return dict(getattr(self.worker, "given_values", {}))

    def attach(self, processes: Processes) -> None:
        """Give it the means to start programs."""
        attach = getattr(self.worker, "attach", None)
        if self._own and attach is not None:
            attach(processes)

    async def call(self, arguments: dict[str, Any], context: Context) -> Any:
        """Let the worker perform the call. Raise `ToolFailure` if it reports a failure."""
        task = Task(context.run, context.step, context.attempt, 0, self.action, arguments, 0)
        report = await self.worker.perform(task, context)
        if report.error is not None:
            raise ToolFailure(report.error, report.data)
        return report.data

    async def close(self) -> None:
        """Close the worker, if it is its own."""
        if self._own:
            await self.worker.close()


def function_tool(function: Callable[..., Any]) -> WorkerTool:
    """Return a tool from a function, with or without `@worker`."""
    declared = getattr(function, MARK, None)
    declaration = declared if isinstance(declared, Declaration) else declare(function, {})
    action = FunctionAction(declaration, function)
    return WorkerTool(FunctionWorker(declaration.name, [action]), declaration.actions[0], own=True)


def worker_tools(worker: Worker, *, own: bool = False) -> Iterator[WorkerTool]:
    """Yield each action of a worker as a tool."""
    for action in worker.spec.offers:
        yield WorkerTool(worker, action, own=own)


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
        """Return the definitions for the model, computed at first use: servers may be asked."""
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
        """Return a tool by the name that the model knows, or None."""
        return self._tools.get(name)

    def unknown(self, name: str) -> str:
        """Return what a model is told that calls an unknown tool."""
        known = [*self._tools, *ENDINGS]
        meant = closest(name, known)
        hint = f"Did you mean {meant}?" if meant else f"There are: {listed(known, 50)}."
        return f"there is no tool {name[:NAME_CHARS_MAX]!r}. {hint}"

    @property
    def effects(self) -> tuple[str, ...] | None:
        """Return the effects of all tools; None as soon as one does not declare them."""
        found: set[str] = set()
        for tool in self:
            if tool.effects is None:
                return None
            found.update(tool.effects)
        return tuple(sorted(found))

    @property
    def writes(self) -> set[str]:
        """Return the paths that the tools declare to write."""
        return {path for tool in self for path in getattr(tool, "writes", ())}

    def risk(self, least: str) -> Risk:
        """Return the highest risk of the tools, and at least `least`."""
        return worst(least, *(tool.risk for tool in self))

    def version(self) -> str:
        """Return a digest of all tools."""
        known = [
            [name, tool.description, tool.parameters, tool.effects, tool.risk, tool.version]
            for name, tool in self._tools.items()
        ]
        return digest(canonical(known))


def as_tools(given: Any, place: str) -> Iterator[Tool]:
    """Yield the tools that `given` stands for: a tool, a function, a worker, or several of them.

    Raise `UsageError`, which names `place`, for anything else.
    """
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
