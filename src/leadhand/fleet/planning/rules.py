"""How far a planner of epics may go: the settings' word, which no file and no planner changes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """Limits of waves."""

    tasks: int = 20
    """Tasks in one wave."""
    writes: int = 20
    """Paths that one task may write."""
    files: int = 100
    """Files of main that these may mean."""
    kilobytes: int = 2000
    """What those files may hold in all: an agent has to read them."""
    waves: int = 50
    rounds: int = 3
    """How often an answer that cannot be used is sent back before a person is asked."""
    paths: tuple[str, ...] = ()
    """Where planned tasks may write; nothing said: everywhere but what is protected."""
    programs: tuple[str, ...] = ()
    """The programs that acceptance commands may start; nothing said: any that is there."""
    network: bool = False
    """Whether a planner that is a command may use the network."""
    changelog: str = ""
    """A file that gets an entry by a task of its own in the end; nothing said: none."""
    reds: int = 3
    """How often the epic's acceptance may fail before the epic is given up."""
