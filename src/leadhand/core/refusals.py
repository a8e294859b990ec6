"""What was proposed in a run and refused, with the reasons. Pure, from a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.plan import Doc


class Refusal(NamedTuple):
    """One proposal that was refused."""

    call: int
    """The call of the planner that brought it."""
    by: str
    """planner: its own check, before the run saw it; run: the checks of every proposal."""
    findings: list[str]
    proposal: Any
    """What was proposed; None where it was withdrawn or made by another than the planner."""

    def doc(self) -> Doc:
        """The same as a document."""
        return self._asdict()


def refusals(events: Iterable[ev.Event]) -> list[Refusal]:
    """Every proposal that was refused, in the order of the log."""
    found: list[Refusal] = []
    answers: dict[int, Doc] = {}
    revisions: dict[int, Doc] = {}
    for event in events:
        match event:
            case ev.PlannerAnswered():
                answers = {event.call: event.decision}  # only the last one can be refused
            case ev.RevisionProposed():
                revisions = {event.number: {"kind": "propose", "steps": event.add}}
            case ev.DraftRefused():
                found.append(Refusal(event.call, "planner", event.findings, event.draft))
            case ev.ProposalRefused():
                answer = answers.get(event.call)
                if answer is not None and "revision" in answer:
                    answer = revisions.get(answer["revision"])
                found.append(Refusal(event.call, "run", event.findings, answer))
            case _:
                pass  # refuses nothing
    return found
