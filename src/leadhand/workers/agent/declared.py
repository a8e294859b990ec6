"""Agents declared without Python, in the `[agents.NAME]` tables of leadhand.toml.

    [agents.research]
    tier = "hand"
    tools = ["search", "tickets:read", "files.read_file"]
    commands = [["git", "log"]]
    instructions = "research.md"
    returns = {type = "object", required = ["summary"]}
    gives = "findings"
    timeout = "10 minutes"

Tools are workers by name, all their actions or one; tools of MCP servers are such workers. Files
are relative to the file of the settings. All problems are found at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from leadhand.codec.tables import Table, TableSchema, Text, Texts, keys
from leadhand.core.catalog import NOT_CALLED
from leadhand.core.wording import closest, listed
from leadhand.errors import UsageError
from leadhand.workers.agent.agent import Agent
from leadhand.workers.agent.commands import CommandTool
from leadhand.workers.agent.prompt import SUFFIXES
from leadhand.workers.agent.tools import WorkerTool, worker_tools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.workers.registry import Registry


class AgentOptionsTable(TableSchema):
    """The keys that are handed to `Agent` as they are: it checks them for Python too."""

    description: Any = UNSET
    """What the agent does, for people and planners; a text."""
    parameters: Any = UNSET
    """The JSON Schema of its parameters, or types by name."""
    needs: Any = UNSET
    """Facts that must be true before it; a list of texts."""
    gives: Any = UNSET
    """Facts that are true after it; a list of texts."""
    drops: Any = UNSET
    """Facts that are no longer true after it; a list of texts."""
    risk: Any = UNSET
    """The risk level: low, medium, high or critical."""
    effects: Any = UNSET
    """What it changes in the world; a list of texts."""
    reads: Any = UNSET
    """Paths and places that it reads; a list of texts."""
    writes: Any = UNSET
    """Paths and places that it writes; a list of texts."""
    idempotent: Any = UNSET
    """Whether running it twice has the same effect as running it once; true or false."""
    est: Any = UNSET
    """How long an attempt usually takes; a duration."""
    cost: Any = UNSET
    """What one attempt may cost, in cost units; a number."""
    checks: Any = UNSET
    """Expressions over the report by name, for the success criteria of steps."""
    check: Any = UNSET
    """The expression that every report must satisfy."""
    max_concurrency: Any = UNSET
    """The number of attempts at once; a whole number."""
    trusted: Any = UNSET
    """Whether results are trusted; true or false."""
    max_turns: Any = UNSET
    """The number of turns in one attempt; a whole number. Unset: 20."""
    max_tokens: Any = UNSET
    """The number of tokens of all requests and answers of one attempt. Unset: 200,000."""
    answer_tokens: Any = UNSET
    """The number of tokens of one answer. Unset: 4,096."""
    max_calls: Any = UNSET
    """The number of tool calls in one attempt. Unset: 200."""
    answer_calls: Any = UNSET
    """The number of tool calls in one answer. Unset: 16."""
    budget: Any = UNSET
    """The most that one attempt may cost, in US dollars; a number. Unset: no limit of its own."""
    timeout: Any = UNSET
    """The longest that one attempt may take; a duration. Unset: `policy.timeout`."""


ARGUMENTS = Meta(description='lists of arguments, as in [["git", "log"]]')


class AgentTable(AgentOptionsTable):
    """The keys of `[agents.NAME]`."""

    tier: Text | None = None
    """The tier of models. Unset: `hand`."""
    model: Text | None = None
    """The model, in place of a tier."""
    tools: Texts = ()
    """Workers by name that the agent may call, or `NAME:ACTION`."""
    commands: Annotated[list[list[str]], ARGUMENTS] | None = None
    """Programs with their first arguments that the agent may run in the folder of the settings
    file."""
    options: Texts = ()
    """Options that may follow the commands."""
    instructions: str = ""
    """The system prompt: a text, or a file relative to the settings file."""
    prompt: str = ""
    """The prompt of each task: a text, or a file relative to the settings file."""
    returns: Any = None
    """The JSON Schema of the result, or a JSON file that holds it."""


def declared_agents(
    tables: Mapping[str, Any], folder: Path | str, registry: Registry
) -> list[Agent]:
    """Return the agents of these tables. Raise `UsageError` with every problem in them."""
    problems: list[str] = []
    found: list[Agent] = []
    for name, given in tables.items():
        table = Table(f"agents.{name}", given, problems)
        before = len(problems)
        values = table.read(AgentTable)
        options = {} if values is None else _options(table, values, Path(folder), registry)
        if len(problems) > before:
            continue
        try:
            found.append(Agent(name, **options))
        except UsageError as error:
            problems.append(f"agents.{name}: {str(error).removeprefix(f'agent {name!r}: ')}")
    if problems:
        raise UsageError("\n".join(problems))
    return found


def _options(table: Table, values: AgentTable, folder: Path, registry: Registry) -> dict[str, Any]:
    if values.tier is not None and values.model is not None:
        table.problem("model", "an agent has a tier or a model, not both")
    given = {key: getattr(values, key) for key in keys(AgentOptionsTable)}
    found = {key: value for key, value in given.items() if value is not UNSET}
    found["model"] = values.model or values.tier or "hand"
    found["tools"] = [*_tools(table, values, registry), *_commands(table, values, folder)]
    for key in ("instructions", "prompt"):
        text: str = getattr(values, key)
        is_file = "\n" not in text and text.endswith(SUFFIXES)
        found[key] = folder / text if is_file else text
    found["returns"] = _returns(table, values.returns, folder)
    return found


def _tools(table: Table, values: AgentTable, registry: Registry) -> list[Any]:
    found: list[Any] = []
    for word in values.tools:
        name, colon, action = word.partition(":")
        worker = registry.get(name)
        if worker is None or worker.spec.kind in NOT_CALLED:
            known = [each.spec.name for each in registry]
            guess = closest(name, known)
            hint = f"did you mean {guess}?" if guess else f"there are: {listed(known, 20)}"
            table.problem("tools", f"no worker is called {name!r}; {hint}")
        elif colon and worker.spec.offers.get(action) is None:
            table.problem("tools", f"{name} offers no {action!r}")
        elif hasattr(worker, "call") and hasattr(worker, "parameters"):
            found.append(worker)
        elif colon:
            found.append(WorkerTool(worker, action))
        else:
            found += worker_tools(worker)
    return found


def _commands(table: Table, values: AgentTable, folder: Path) -> list[CommandTool]:
    if values.commands is None:
        return []
    try:
        return [CommandTool(values.commands, options=values.options, cwd=folder)]
    except UsageError as error:
        table.problem("commands", str(error))
        return []


def _returns(table: Table, value: Any, folder: Path) -> Any:
    """Return a schema given as a table, or as the name of a JSON file that holds one."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode((folder / value).read_bytes())
        except OSError as error:
            table.problem("returns", f"{value} cannot be read: {error.strerror}")
            return None
        except msgspec.MsgspecError:
            table.problem("returns", f"{value} is not JSON")
            return None
    if value is not None and not isinstance(value, dict):
        table.problem("returns", "must be a JSON Schema, or the name of a file that holds one")
        return None
    return value
