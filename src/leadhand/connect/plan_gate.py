"""`leadhand plan-gate`: the hook that an agent's tools must pass, if a project requires a plan.

It reads the call from standard input, and allows it or denies it with a reason. Laws:

1. A tool that is not known to only read needs an approved plan.
2. An approved plan is one that a person approved for an agent: in a run of this project that an
   agent has started or carries out, that is running or waits for its caller, and whose approval has
   not expired. An approval by the policy or by an agent is none, and a run of other people opens no
   gate.
3. A gate that cannot find out denies, and says why: exit code 2 denies in every agent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.rendering.text import clean
from leadhand.connect.targets import AGENTS, Agent
from leadhand.core.review.agents import is_agent
from leadhand.core.review.decisions import NO_PERSON
from leadhand.core.review.identity import same_person_key
from leadhand.core.review.ruling import current_envelope
from leadhand.core.views.run import awaiting, run_status
from leadhand.errors import UsageError
from leadhand.settings import load_settings

if TYPE_CHECKING:
    from leadhand.core.state.model import State

DENIED = 2
INPUT_BYTES_MAX = 8 << 20
ANSWER_S = 30
"""Agents let a call pass if a hook does not answer in time: this one answers before."""
READING = frozenset(
    {
        # Claude Code
        *("AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "Glob", "Grep", "LS", "ListAgents"),
        *("ListMcpResourcesTool", "NotebookRead", "Read", "ReadMcpResourceDirTool"),
        *("ReadMcpResourceTool", "TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop"),
        *("TaskUpdate", "TodoWrite", "ToolSearch"),
        # Codex
        *("get_goal", "list_mcp_resource_templates", "list_mcp_resources", "read_mcp_resource"),
        *("request_user_input", "update_plan", "view_image"),
        # Cursor
        *("SemanticSearch", "read_lints"),
    }
)
"""Tools that change nothing outside of the conversation."""
TOWARDS_APPROVAL = frozenset(
    {
        *("diff_plans", "get_run", "lint_plan", "list_inbox", "list_library", "list_workers"),
        *("next_step", "propose_plan", "show_plan", "wait_for_run"),
    }
)
"""Leadhand's own tools that lead to an approved plan."""
OUR_TOOLS = TOWARDS_APPROVAL | {
    *("answer", "cancel_run", "extend_step", "get_step", "list_runs", "read_artifact", "read_log"),
    *("report_step", "start_run", "submit_epic"),
}
"""Leadhand's own tools, which have rules of their own."""
OURS = ("mcp__leadhand__", "mcp__plugin_leadhand_leadhand__")
"""How Codex and Claude Code begin the names of Leadhand's own tools."""
CURSORS = "MCP:"
"""How Cursor begins the names of tools of any server, which it does not name: so only those that an
agent needs for an approval pass."""
SKILL = "Skill"
OUR_SKILLS = frozenset(
    {"leadhand", *(f"leadhand:{each}" for each in ("leadhand", "plan", "run", "inbox"))}
)
"""Our skills only tell; those of others may begin with a shell command, which no hook sees."""


@command("plan-gate", "leadhand plan-gate claude < call.json")
@click.argument("agent", type=click.Choice(tuple(AGENTS)))
def plan_gate(console: Console, agent: Agent) -> int:
    """Answer an agent's hook: deny tools without an approved plan.

    The command reads the call that a PreToolUse hook describes. Tools that only read, and
    Leadhand's own, pass. Every other tool passes while a run is going on that an agent has started
    or carries out, and whose plan a person approved. Else the call is denied with exit code 2, and
    so it is if the gate cannot find out. `leadhand connect AGENT --require-plan` installs the hook.
    """
    signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(ANSWER_S)
    try:
        reason = refusal(json.loads(sys.stdin.buffer.read(INPUT_BYTES_MAX)))
    except UsageError as error:
        reason = str(error)
    except (AttributeError, TypeError, ValueError):
        reason = "the input of the hook is no tool call: it must be one JSON object"
    except Exception as error:  # noqa: BLE001 - a gate that cannot read the plans denies
        reason = f"the approved plans cannot be read: {error}"
    finally:
        signal.alarm(0)
    if not reason:
        return 0
    told = f"Leadhand denied this tool: {clean(reason, 1000)}"
    if agent == "cursor":  # it reads the reason from a document
        answer = {"permission": "deny", "user_message": told, "agent_message": told}
        console.out(json.dumps(answer))
    console.say(told)
    return DENIED


def _too_late(_signal: int, _frame: object) -> None:
    raise TimeoutError(f"no answer within {ANSWER_S} seconds")


def refusal(call: dict[str, Any]) -> str:
    """Return why a call is denied; "" if it may pass."""
    tool = call.get("tool_name")
    if not isinstance(tool, str):
        raise UsageError("the input of the hook is no tool call: tool_name must be a text")
    if tool in READING or _is_ours(tool, call.get("tool_input")):
        return ""
    folder = Path(_folder(call))
    settings = load_settings(folder=folder)
    problem = _unapproved(settings.store)
    if not problem:
        return ""
    return (
        f"{tool} can change something, and {problem}. "
        "Propose a plan with propose_plan, and let a person approve it"
    )


def _is_ours(tool: str, given: Any) -> bool:
    """Return whether a tool is Leadhand's own: by its whole name, not by how it begins."""
    if tool == SKILL:
        named = given.get("skill") if isinstance(given, dict) else None
        return isinstance(named, str) and named in OUR_SKILLS
    if tool.startswith(CURSORS):
        return tool.removeprefix(CURSORS) in TOWARDS_APPROVAL
    return any(tool.startswith(each) and tool.removeprefix(each) in OUR_TOOLS for each in OURS)


def _folder(call: dict[str, Any]) -> str:
    roots = call.get("workspace_roots")
    found = os.environ.get("CLAUDE_PROJECT_DIR") or (roots[0] if roots else call.get("cwd"))
    if not isinstance(found, str):
        raise UsageError("the input of the hook is no tool call: cwd must be the project's folder")
    if not Path(found).is_dir():
        raise UsageError(f"the folder of the call does not exist: {found}")
    return found


def _unapproved(place: Any) -> str:
    """Return why no plan of a database counts as approved; "" if one does."""
    from leadhand.app.reader import LogAccess

    with LogAccess(place) as access:
        reader = access.reader_if_there()
        if reader is None:
            return "no plan is approved: the project has no run yet"
        waiting = ""
        for header in reader.open_runs():
            state = reader.state(header.run)
            if is_approved(state, time.time_ns() // 1000):
                return ""
            if state.pending is not None and state.questions:
                waiting = f"; the plan of run {header.run} waits for approval"
        return f"no plan is approved{waiting}"


def is_approved(state: State, wall: int) -> bool:
    """Return whether a person approved the plan that a run is carrying out for an agent."""
    by = state.permits.approved_by
    if same_person_key(by) in NO_PERSON or is_agent(by):
        return False
    started = state.started.actor if state.started is not None else ""
    if not is_agent(started) and not state.has_callers:
        return False
    goes_on = run_status(state) == "running" or awaiting(state) == "caller"
    return bool(current_envelope(state.permits, wall)) and goes_on and not state.paused
