"""Tools for users to test their own plans, workers and planners.

scripted, ScriptedPlanner    workers and planners that follow a script
ScriptedModel                a language model that answers from a script
simulate                     a plan with your workers, in virtual time, crashes included
ManualClock                  a clock moved by hand
check                        the rules of a log, as `leadhand verify` checks them
endpoint                     a package of its own: a server that answers as models do, or badly
"""

from leadhand.core.logcheck.checker import Violation, check
from leadhand.testing.clock import ManualClock
from leadhand.testing.loop import Deadlock, Escaped, SimLoop
from leadhand.testing.models import Calls, ScriptedModel
from leadhand.testing.scripted import HANG, ScriptedPlanner, ScriptedWorker, after, scripted
from leadhand.testing.simulation import Simulation, simulate

__all__ = [
    "HANG",
    "Calls",
    "Deadlock",
    "Escaped",
    "ManualClock",
    "ScriptedModel",
    "ScriptedPlanner",
    "ScriptedWorker",
    "SimLoop",
    "Simulation",
    "Violation",
    "after",
    "check",
    "scripted",
    "simulate",
]
