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
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core.wording import closest, listed
from leadhand.errors import UsageError
from leadhand.workers.agent.agent import Agent
from leadhand.workers.agent.commands import CommandTool
from leadhand.workers.agent.functions import WorkerTool, worker_tools
from leadhand.workers.agent.prompt import SUFFIXES
from leadhand.workers.declaration import DeclarationTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.workers.registry import Registry

PASSED = (
    "description",
    "parameters",
    "needs",
    "gives",
    "drops",
    "risk",
    "effects",
    "reads",
    "writes",
    "idempotent",
    "est",
    "cost",
    "checks",
    "check",
    "max_concurrency",
    "trusted",
    "max_turns",
    "max_tokens",
    "answer_tokens",
    "max_calls",
    "answer_calls",
    "budget",
    "timeout",
)
KEYS = (
    *PASSED,
    "tier",
    "model",
    "tools",
    "commands",
    "options",
    "instructions",
    "prompt",
    "returns",
)


def declared_agents(
    tables: Mapping[str, Any], folder: Path | str, registry: Registry
) -> list[Agent]:
    """The agents of these tables; UsageError lists everything that is wrong with them."""
    problems: list[str] = []
    found: list[Agent] = []
    for name, given in tables.items():
        table = DeclarationTable(f"agents.{name}", given, problems)
        before = len(problems)
        options = _options(table, Path(folder), registry)
        if len(problems) > before:
            continue
        try:
            found.append(Agent(name, **options))
        except UsageError as error:
            problems.append(f"agents.{name}: {str(error).removeprefix(f'agent {name!r}: ')}")
    if problems:
        raise UsageError("\n".join(problems))
    return found


def _options(table: DeclarationTable, folder: Path, registry: Registry) -> dict[str, Any]:
    values = table.values
    for key in values:
        if key not in KEYS:
            guess = closest(key, KEYS)
            table.problem(key, "is not known" + (f"; did you mean {guess}?" if guess else ""))
    if "tier" in values and "model" in values:
        table.problem("model", "an agent has a tier or a model, not both")
    found = {key: values[key] for key in PASSED if key in values}
    found["model"] = table.text("model") or table.text("tier") or "hand"
    found["tools"] = [*_tools(table, registry), *_commands(table, folder)]
    for key in ("instructions", "prompt"):
        text = table.text(key) or ""
        is_file = "\n" not in text and text.endswith(SUFFIXES)
        found[key] = folder / text if is_file else text
    found["returns"] = _returns(table, folder)
    return found


def _tools(table: DeclarationTable, registry: Registry) -> list[Any]:
    found: list[Any] = []
    for word in table.texts("tools"):
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


def _commands(table: DeclarationTable, folder: Path) -> list[CommandTool]:
    allow = table.values.get("commands")
    if allow is None:
        return []
    lists = isinstance(allow, list) and all(isinstance(each, list) for each in allow)
    if not lists or not all(isinstance(word, str) for each in allow for word in each):
        table.problem("commands", 'must be lists of arguments, as in [["git", "log"]]')
        return []
    try:
        return [CommandTool(allow, options=table.texts("options"), cwd=folder)]
    except UsageError as error:
        table.problem("commands", str(error))
        return []


def _returns(table: DeclarationTable, folder: Path) -> Any:
    """A schema as a table, or the name of a JSON file that holds one."""
    value = table.values.get("returns")
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
