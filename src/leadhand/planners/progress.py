"""Progress of revisions towards the goal: a brake on work that is valid and useless.

Activity does not count, relevance does. For a goal with wanted facts these are progress:

- a fact of the backward closure of the wanted ones (over what workers need and give) that became
  true for the first time,
- the first try of a worker that gives such a fact while that is not true yet,
- an answer of a person.

A worker whose fact is true already brings nothing nearer, whatever its parameters; so as not to
stop a loop over several inputs too early, a revision on new inputs counts once, and one that only
does again what has succeeded counts three times. For a goal without wanted facts, a result that no
step of that worker has brought before is progress, and so is the first try of a worker.

    Idle.count   what the revisions since the last progress count, kept in a planner's notes

A goal whose wanted facts are all true, and which has no acceptance criteria, is met: one more
revision is carried out (to clean up, say), and then the planner is not asked again.

After `limit` a planner is told; after twice as much another planner or a person takes over.
Waiting is no revision and counts nothing. All of it is computed from the view and
two numbers in the notes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core.hashing import canonical, digest
from leadhand.core.wording import listed
from leadhand.planners.goal.operators import operator_name
from leadhand.planners.goal.world import fold, promised_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.core.plan.model import Doc
    from leadhand.core.report import PlannerView, StepView
    from leadhand.planners.goal.operators import Operators
    from leadhand.planners.goal.world import World

IDLE = 12
"""What revisions may count without progress before a planner is told."""
REPEATED = 3
"""The count of a revision that only repeats what has succeeded."""
TRIED = frozenset({"succeeded", "failed", "superseded"})
MISSING_TOLD = 8


class Idle(msgspec.Struct, omit_defaults=True):
    """Revisions since the last progress; part of a planner's notes."""

    high: int = 0
    """How much progress there was when it was last looked at."""
    count: int = 0
    """The count of the revisions since then."""


class Progress:
    """Looks at the progress of runs; keeps digests of results so as to read each only once."""

    def __init__(self, limit: int = IDLE) -> None:
        self.limit = limit
        self._digests: dict[tuple[str, str], str] = {}

    def look(self, idle: Idle, view: PlannerView, operators: Operators) -> None:
        """Forget idle revisions if there was progress since the last look."""
        made = self._made(view, operators) + len(view.answers)
        if made > idle.high:
            idle.high, idle.count = made, 0

    def revised(self, idle: Idle, steps: Sequence[Doc], view: PlannerView) -> None:
        """Count one more revision; one without steps is none."""
        if not steps:
            return
        if is_met(view, fold(view)):
            idle.count = 2 * self.limit
        else:
            idle.count += REPEATED if _done_before(steps, view) else 1

    def is_told(self, idle: Idle) -> bool:
        """Return whether the planner should be told that its revisions make no progress."""
        return idle.count >= self.limit

    def is_over(self, idle: Idle) -> bool:
        """Return whether another planner or a person must take over."""
        return idle.count >= 2 * self.limit

    def _made(self, view: PlannerView, operators: Operators) -> int:
        if not view.goal.want:
            return self._news(view)
        facts = closure(view.goal.want, operators)
        true = set(view.goal.have)
        made, tried = len(true & facts), set[str]()
        for step in view.timeline:
            if step.status not in TRIED and not step.attempts:
                continue
            gives = promised_field(step, view.catalog, "gives")
            fresh = facts.intersection(gives) - true
            name = operator_name(step.worker, step.action)
            if fresh and name not in tried:
                made += 1
            tried.add(name)
            if step.status == "succeeded":
                made += len(fresh)
                true |= fresh
        return made

    def _news(self, view: PlannerView) -> int:
        """Return how many different results there are, and how many workers were tried."""
        found: set[str] = set()
        for step in view.timeline:
            if step.status in TRIED or step.attempts:
                found.add(_call(step))
            if step.status == "succeeded":
                found.add(self._digest(step, view))
        return len(found)

    def _digest(self, step: StepView, view: PlannerView) -> str:
        key = view.run, step.id
        if key not in self._digests:
            data: Any = view.results[step.id]
            self._digests[key] = digest(canonical([step.worker, step.action, data]))
        return self._digests[key]


def is_met(view: PlannerView, world: World) -> bool:
    """Return whether all wanted facts are true, and nothing else is asked of the result.

    A goal with acceptance criteria is judged by those, when the planner says that it is done.
    """
    want, more = view.goal.want, view.goal.acceptance
    return bool(want) and not more and all(fact in world.facts for fact in want)


def closure(want: Iterable[str], operators: Operators) -> set[str]:
    """Return the facts that can take part in reaching the wanted ones."""
    found, stack = set(want), list(want)
    while stack:
        for name in operators.givers.get(stack.pop(), ()):
            new = set(operators.by_name[name].needs) - found
            found |= new
            stack += new
    return found


def warning(idle: Idle, limit: int, view: PlannerView, world: World, operators: Operators) -> str:
    """Return the warning for a planner whose revisions make no progress."""
    if not view.goal.want:
        return (
            f"your last revisions (they count {idle.count}) brought no result that was not there "
            f"before. Finish with what there is, ask, or give up: at {2 * limit} you are no longer "
            "asked."
        )
    missing = sorted(fact for fact in view.goal.want if fact not in world.facts)
    givers = sorted(
        {
            name
            for fact in closure(missing, operators) - set(world.facts)
            for name in operators.givers.get(fact, ())
        }
    )
    ways = f"; {listed(givers, MISSING_TOLD)} could help" if givers else ""
    lack = (
        f"still missing: {listed(missing, MISSING_TOLD)}{ways}" if missing else "nothing is missing"
    )
    return (
        f"your last revisions (they count {idle.count}) brought no fact nearer that is wanted "
        f"({lack}). Propose what does, finish, ask, or give up: at {2 * limit} you are no longer "
        "asked."
    )


def over(idle: Idle) -> str:
    """Return why another planner or a person must take over."""
    return f"its revisions bring nothing nearer to the goal (they count {idle.count})"


def _call(step: StepView) -> str:
    return operator_name(step.worker, step.action)


def _done_before(steps: Sequence[Doc], view: PlannerView) -> bool:
    """Return whether every step has succeeded before, with the same parameters."""
    wanted = {_mark(step) for step in steps}
    names = {str(step.get("worker", "")) for step in steps}
    for step in view.timeline:
        if step.status == "succeeded" and step.worker in names:
            wanted.discard(_mark({**step.planned, "worker": step.worker}))
            if not wanted:
                return True
    return False


def _mark(step: Doc) -> str:
    call = [step.get("worker", ""), step.get("action", ""), step.get("parameters") or {}]
    return digest(canonical(call))
