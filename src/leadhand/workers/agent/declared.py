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
    parameters: Any = UNSET
    needs: Any = UNSET
    gives: Any = UNSET
    drops: Any = UNSET
    risk: Any = UNSET
    effects: Any = UNSET
    reads: Any = UNSET
    writes: Any = UNSET
    idempotent: Any = UNSET
    est: Any = UNSET
    cost: Any = UNSET
    checks: Any = UNSET
    check: Any = UNSET
    max_concurrency: Any = UNSET
    trusted: Any = UNSET
    max_turns: Any = UNSET
    max_tokens: Any = UNSET
    answer_tokens: Any = UNSET
    max_calls: Any = UNSET
    answer_calls: Any = UNSET
    budget: Any = UNSET
    timeout: Any = UNSET


ARGUMENTS = Meta(description='lists of arguments, as in [["git", "log"]]')


class AgentTable(AgentOptionsTable):
    """The keys of `[agents.NAME]`."""

    tier: Text | None = None
    model: Text | None = None
    tools: Texts = ()
    commands: Annotated[list[list[str]], ARGUMENTS] | None = None
    options: Texts = ()
    instructions: str = ""
    prompt: str = ""
    returns: Any = None


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
        if worker is None or worker.spec.kind == "human":
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
