"""What users need to test their own workers and planners; and the simulator that tests ours.

    scripted, ScriptedPlanner    workers and planners that do what they are told
    ScriptedModel                a language model that says what it is told to
    simulate                     a plan with your workers, in virtual time, crashes included
    ManualClock                  time that passes when told to
    check                        the invariants of a log, as `leadhand verify` checks them
    endpoint                     a package of its own: a server that answers as models do, or badly

`python -m leadhand.testing` runs worlds drawn from seeds in which everything goes wrong.
"""

from leadhand.core.logcheck.checker import Violation, check
from leadhand.testing.clock import ManualClock
from leadhand.testing.loop import Deadlock, Escaped, SimLoop
from leadhand.testing.models import Calls, ScriptedModel
from leadhand.testing.scripted import HANG, ScriptedPlanner, ScriptedWorker, after, scripted
from leadhand.testing.simulation import Simulation, simulate
from leadhand.testing.simulator import Verdict, simulate_seed
from leadhand.testing.snapshot import difference, snapshot

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
    "Verdict",
    "Violation",
    "after",
    "check",
    "difference",
    "scripted",
    "simulate",
    "simulate_seed",
    "snapshot",
]
