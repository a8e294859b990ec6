"""Checks of connected agents for `leadhand doctor`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from leadhand.cli.commands.doctor import DoctorCheck
from leadhand.connect.commands import record_file
from leadhand.connect.edits import Record, take_back
from leadhand.connect.targets import AGENTS, SCOPES, Place, has_gate, home, program
from leadhand.engine.agent_session import agent_session
from leadhand.errors import Conflict

if TYPE_CHECKING:
    from leadhand.settings import Settings

SAME_ACCOUNT = "an agent with your account can leave its session, write to the log and use any name"
SEPARATE = (
    "Run the server and its log under another account than the agent; keys in [approvers] prove "
    "who approved: docs/how-to/connect-your-agent.md."
)


def checks(settings: Settings, *, fix: bool) -> Iterator[DoctorCheck]:  # noqa: ARG001 - as all
    """Report the agents that are connected, and what one account cannot prevent."""
    env = dict(os.environ)
    connected = False
    for agent, name in AGENTS.items():
        for scope in SCOPES:
            root = home(env) if scope == "user" else settings.root
            place = Place(agent, scope, root, env)
            record = Record.read(record_file(place))
            if record is None:
                continue
            connected = True
            gate = ", a plan is required" if has_gate(place, record) else ""
            yield _check(place, record, f"{name} connected ({scope}{gate})")
    if found := agent_session(env):
        note = f"this process belongs to a session of {found}, which approves nothing"
        yield DoctorCheck("agent session", note)
    if connected:
        yield DoctorCheck("agents", "run under your account", SAME_ACCOUNT, SEPARATE, warning=True)


def _check(place: Place, record: Record, text: str) -> DoctorCheck:
    again = f"leadhand connect {place.agent}" + (" --scope user" if place.scope == "user" else "")
    try:
        _changes, gone = take_back(record)
    except Conflict as error:
        problem = str(error).partition(". Fix: ")[0].removeprefix("nothing was removed: ")
        return DoctorCheck("agent", text, problem, f"Connect again: {again}", warning=True)
    if gone:
        problem = f"no longer there: {', '.join(gone)}"
        return DoctorCheck("agent", text, problem, f"Connect again: {again}", warning=True)
    if program(place) == "leadhand" and shutil.which("leadhand") is None:
        problem = "the agent starts `leadhand`, which is not on PATH"
        return DoctorCheck("agent", text, problem, f"Connect again: {again}", warning=True)
    return DoctorCheck("agent", text)
