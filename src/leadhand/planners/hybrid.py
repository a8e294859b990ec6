"""Hybrid: a first planner leads, and the goal planner takes over where it goes wrong.

    Lead(workers=[...], planner=Hybrid(next_step))

The first planner (a function, or any planner) is asked as long as what it says can be done. It has
had its chance when it

- proposes a step whose needs are not met by what is true (or will be, when what the step waits for
  has succeeded),
- proposes what lint refuses, or twice in a row what the engine refuses,
- fails: raises, takes too long, gives up,
- calls it done while wanted facts are missing,
- revises and revises, and nothing comes nearer to the goal (`leadhand.planners.progress`).

Then the other planner continues from the current state, for good: nothing is repeated. The handover
and its reason are in the notes, so that a resumed run knows, and in `because`, so that people do.
Questions of the first planner reach people unchanged.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import msgspec

from leadhand.codec.values import plain
from leadhand.core.hashing import canonical, digest
from leadhand.core.report import TOO_LATE, Ask, Finish, GiveUp, Propose, Wait, decision_doc
from leadhand.planners.goal.operators import OperatorCache
from leadhand.planners.goal.planner import GoalPlanner
from leadhand.planners.goal.world import World, fold
from leadhand.planners.progress import IDLE, Idle, Progress, over
from leadhand.planners.proposal_check import lint_refusal, not_true, unmet
from leadhand.planners.script import ScriptPlanner
from leadhand.ports import is_external_cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leadhand.core.catalog import Method
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.report import Decision, PlannerView
    from leadhand.ports import Planner

REFUSED_MAX = 2
"""How often in a row the engine may refuse proposals of the first planner."""
REASON_CHARS_MAX = 1000
LOOK_MAX = 500
"""Steps of one proposal whose needs are looked at."""


class HybridNotes(msgspec.Struct, omit_defaults=True):
    """The notes kept from one call to the next, around the notes of the planner that was asked."""

    handed: str = ""
    """Why the first planner is no longer asked."""
    refused: int = 0
    """How many proposals in a row the engine has refused."""
    last: str = ""
    """A digest of the last proposal."""
    idle: Idle = msgspec.field(default_factory=Idle)
    """Revisions of the first planner that brought the goal no nearer."""
    notes: Any = None
    """Those of the planner that was asked."""


class Hybrid:
    """Asks the first planner until it goes wrong, then another one for good."""

    name = "hybrid"
    replans = True
    consult = "every_report"

    def __init__(
        self,
        first: Planner | Callable[..., object],
        then: Planner | None = None,
        *,
        idle: int | None = None,
    ) -> None:
        """`first` is a planner or a function; `then` is the goal planner unless said otherwise.

        `idle`: half of what revisions of the first planner may count that bring the goal no nearer
        (`leadhand.planners.progress`); the first planner's own `idle` when nothing is said.
        """
        self.source = ""
        """Where it can be loaded from again, if that is known."""
        self.first: Planner = first if hasattr(first, "decide") else ScriptPlanner(first)  # type: ignore[assignment]
        self.then: Planner = then or GoalPlanner()
        self.splits = self.first.splits or self.then.splits
        self.deaf = getattr(self.first, "deaf", False)
        """Whether it reads no words of people: its first planner decides."""
        self._operators = OperatorCache()
        self._progress = Progress(idle or getattr(self.first, "idle", None) or IDLE)

    @property
    def budget(self) -> float | None:
        """Return the default budget of a run: the least that a part which asks a model names.

        None if the price of one of those models is unknown, since it could not be asked.
        """
        said = [getattr(each, "budget", None) for each in self._asking]
        known = [each for each in said if each is not None]
        return min(known) if known and len(known) == len(said) else None

    @property
    def calls(self) -> int | None:
        """Return the default limit of planner calls: the least of its parts; None: no model."""
        return min((each.calls for each in self._asking), default=None)

    @property
    def _asking(self) -> list[Any]:
        """Return the parts that ask models: any of them may be asked in a run."""
        return [p for p in (self.first, self.then) if getattr(p, "calls", None) is not None]

    def with_methods(self, methods: Iterable[Method]) -> Self:
        """Return the same planner; its goal planner, if it has one, gets `methods` too."""
        made = copy(self)
        if isinstance(self.first, GoalPlanner):
            made.first = self.first.with_methods(methods)
        if isinstance(self.then, GoalPlanner):
            made.then = self.then.with_methods(methods)
        return made

    async def decide(self, view: PlannerView) -> Decision:
        """Return the decision on `view` of the planner that currently leads."""
        kept = _read(view.notes)
        if kept.handed:
            return _noted(await self.then.decide(replace(view, notes=kept.notes)), kept)
        kept.refused = kept.refused + 1 if view.findings and kept.last else 0
        why, decision = await self._ask_first(view, kept)
        if not why and decision is not None:
            return _noted(decision, kept)
        kept = HybridNotes(handed=why)
        return _told(await self.then.decide(replace(view, notes=None)), kept, self.then.name)

    async def _ask_first(self, view: PlannerView, kept: HybridNotes) -> tuple[str, Decision | None]:
        """Ask the first planner: return its decision, or why it is not asked any more."""
        first, world = self.first, fold(view)
        missing = [fact for fact in view.goal.want if fact not in world.facts]
        if TOO_LATE in view.findings:
            return f"{first.name} took too long", None
        if missing and view.why.startswith("surprise: the goal is not met"):
            return f"all steps of {first.name} are done, and {not_true(missing)}", None
        if view.why == "report" and first.consult != self.consult and world.under_way:
            return "", Wait(f"{first.name} is asked when its steps are done")
        self._progress.look(kept.idle, view, self._operators.of(view.catalog))
        if self._progress.is_over(kept.idle):
            return f"{first.name} leads nowhere: {over(kept.idle)}", None
        try:
            decision = await first.decide(replace(view, notes=kept.notes))
            if not isinstance(decision, (Propose, Ask, Finish, GiveUp, Wait)):
                raise TypeError(f"{type(decision).__name__} is no decision")
            doc: Doc = plain(decision_doc(decision), place="decision")
        except BaseException as error:  # user code: anything it raises is its failure
            if is_external_cancellation(error):
                raise
            return f"{first.name} failed ({type(error).__name__}: {error})", None
        match decision:
            case GiveUp():
                return f"{first.name} gave up ({decision.reason})", None
            case Finish() if missing:
                return f"{first.name} says that it is done, and {not_true(missing)}", None
            case Ask():
                return "", decision
            case _:
                pass
        again = self._again(doc, view, kept)
        if again or not isinstance(decision, Propose):
            return again, decision
        if decision.steps or decision.cancel or decision.drop or decision.final:
            self._progress.revised(kept.idle, doc["steps"], view)
            return self._wrong(doc, view, world), decision
        return "", decision

    def _again(self, doc: Doc, view: PlannerView, kept: HybridNotes) -> str:
        """Return why the engine would refuse the decision again: a proposal, a wait or an end."""
        last, kept.last = kept.last, digest(canonical(doc))
        if kept.refused and kept.last == last:
            return f"{self.first.name} proposes again what was refused ({'; '.join(view.findings)})"
        if kept.refused >= REFUSED_MAX:
            found = "; ".join(view.findings)
            return f"{self.first.name} was refused {kept.refused} times ({found})"
        return ""

    def _wrong(self, doc: Doc, view: PlannerView, world: World) -> str:
        """Return the first mistake of a proposal; empty if there is none."""
        name, steps = self.first.name, doc["steps"]
        errors = lint_refusal(steps, view)
        if errors:
            return f"{name} proposes what cannot be run ({'; '.join(errors[:3])})"
        return unmet(steps[:LOOK_MAX], view, world)


def _read(notes: Json) -> HybridNotes:
    try:
        return msgspec.convert(notes or {}, HybridNotes)
    except msgspec.ValidationError:
        return HybridNotes()


def _noted(decision: Decision, kept: HybridNotes) -> Decision:
    """Return the decision with our notes around its own."""
    kept.notes = decision.notes if decision.notes is not None else kept.notes
    return replace(decision, notes=msgspec.to_builtins(kept))


def _told(decision: Decision, kept: HybridNotes, name: str) -> Decision:
    """Make the first decision of the second planner say why it takes over."""
    kept.handed = kept.handed[:REASON_CHARS_MAX]
    why = f"{kept.handed}; the {name} planner goes on from here"
    match decision:
        case GiveUp():
            decision = replace(decision, reason=f"{why}: {decision.reason}")
        case Propose() | Finish() | Wait():
            decision = replace(decision, because="; ".join(filter(None, (why, decision.because))))
        case Ask():
            pass  # A person is asked what there is to ask; the notes say the rest.
    return _noted(decision, kept)
