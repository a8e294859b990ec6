"""From a planner's answer to a revision that is let through, waits, or is refused.

The answer is checked against the state at the time it arrives: what the planner saw may have
moved on. A revision is a delta on the one before, and its hash covers that base, so that a
chain of small revisions costs what it adds and still names the whole plan.

Who must allow it is `review.py`'s to say. What follows from that, and from what people then say,
stands here and in `reviewing.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from leadhand.core import events as ev
from leadhand.core.check import proposal
from leadhand.core.durations import SECONDS_MAX
from leadhand.core.effects import Effect, Examine, Notify
from leadhand.core.graph import dependencies
from leadhand.core.hashing import canonical, digest
from leadhand.core.review import reach_of
from leadhand.core.reviewing import ruled
from leadhand.core.state import MOVABLE, REPLACEABLE
from leadhand.core.views import goes_on

if TYPE_CHECKING:
    from leadhand.core.plan import Doc
    from leadhand.core.state import Now, State, StepState

Moves = tuple[list[ev.Event], list[Effect]]


def answered(state: State, call: int, epoch: int, answer: Doc, now: Now) -> Moves:
    """Record an answer as it arrives.

    A proposal that stands becomes a revision at once, and its steps are logged only there; any
    other answer is logged whole, and `decide` acts on it.
    """
    if state.planner.epoch != epoch:
        return [], []
    whole = ev.PlannerAnswered(call, epoch, answer)
    busy = state.stopping is not None or state.pending is not None
    if answer.get("kind") != "propose" or busy or state.undecided or state.doomed:
        return [whole], []  # What is more urgent comes first, in `decide`.
    events, effects = _proposed(state, answer, now)
    if not isinstance(events[0], ev.RevisionProposed):
        return [whole], []
    kept: Doc = {key: answer[key] for key in ("kind", "notes") if key in answer}
    lean = ev.PlannerAnswered(call, epoch, {**kept, "revision": events[0].number})
    return [lean, *events], effects


def answer_moves(state: State, now: Now) -> Moves:
    """What follows from the planner's last answer."""
    answer = state.planner.answer or {}
    match answer.get("kind"):
        case "propose":
            return _proposed(state, answer, now)
        case "ask":
            return _asked(state, answer, now)
        case "give_up":
            reason = f"the planner gave up: {answer.get('reason', '')}"
            return [ev.StopDecided("failed", reason, origin="planning")], []
        case kind:
            return [_refused(state, [f"{kind!r} is not a decision"])], []


def _asked(state: State, answer: Doc, now: Now) -> Moves:
    text = str(answer.get("question", ""))
    choices = [str(choice) for choice in answer.get("choices", ())]
    within_s = min(float(answer.get("within_s") or 0.0), SECONDS_MAX)
    default = str(answer.get("default", "")) if within_s else ""
    if within_s and choices and default not in choices:
        finding = f"{default!r}, its default, is none of: {', '.join(choices)}"
        return [_refused(state, [finding])], []
    asked = ev.QuestionAsked(
        id=f"q{state.asked + 1}",
        kind="planner",
        text=text,
        choices=choices,
        default=default,
        until=now.at + int(within_s * 1e6) if within_s else 0,
        facts=[str(fact) for fact in answer.get("facts", ())],
    )
    return [asked], [Notify("waiting", text)]


def _refused(state: State, findings: list[str]) -> ev.ProposalRefused:
    return ev.ProposalRefused(state.planner.calls, findings)


def _proposed(state: State, answer: Doc, now: Now) -> Moves:
    add: list[Doc] = answer.get("steps", [])
    cancel: list[str] = answer.get("cancel", [])
    found = findings(state, add, cancel, final=bool(answer.get("final")))
    if found:
        return [_refused(state, found)], []
    if (add or cancel) and state.revisions_idle > state.policy.replans_idle_max:
        reason = f"stuck: {state.revisions_idle} revisions in a row brought no new result"
        return [ev.StopDecided("failed", reason, "replans", origin="planning")], []
    author = state.started.planner if state.started else ""
    return propose(state, author, answer, now)


def propose(state: State, author: str, answer: Doc, now: Now) -> Moves:
    """A revision by somebody, and what follows from who must allow it."""
    add: list[Doc] = answer.get("steps", [])
    cancel: list[str] = answer.get("cancel", [])
    wanted = reach_of(state, add)
    revision = ev.RevisionProposed(
        number=max(state.revision, state.planner.proposed) + 1,
        author=author,
        base=state.head,
        hash=revision_hash(state.head, add, cancel, final=bool(answer.get("final"))),
        add=add,
        cancel=cancel,
        final=bool(answer.get("final")),
        outlook=answer.get("outlook", []),
        because=str(answer.get("because", "")),
        risk=wanted.risk,
    )
    if state.policy.reviewers and add:
        return [revision], [Examine(revision.number)]
    events, effects = ruled(state, revision, wanted, [], now)
    return [revision, *events], effects


def revision_hash(base: str, add: list[Doc], cancel: list[str], *, final: bool) -> str:
    """The name of a plan revision: what it stands on and what it changes."""
    return digest(base, canonical([add, cancel, final]))


def findings(state: State, add: list[Doc], cancel: list[str], *, final: bool) -> list[str]:
    """What speaks against a revision as the run stands now."""
    if len(state.steps) + len(add) > state.policy.steps_max:
        return [f"the plan would have more than {state.policy.steps_max} steps"]
    if not (add or cancel or final or state.questions or goes_on(state)):
        return ["it proposes nothing, and nothing is under way"]
    if add and not state.steps and state.started and digest(canonical(add)) == state.started.linted:
        return []
    resources = state.policy.resources
    checked = proposal(add, _Heirs(state), state.catalog, state.params, resources=resources)
    found = [str(finding) for finding in checked if finding.level == "error"]
    return found or _misfits(state, add, cancel)


class _Heirs(Mapping[str, "StepState"]):
    """The run's steps under every name: a superseded one gives the step that took its place."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> StepState:
        step = self._state.follow(name)
        if step is None:
            raise KeyError(name)
        return step

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.steps)

    def __len__(self) -> int:
        return len(self._state.steps)


def _misfits(state: State, add: list[Doc], cancel: list[str]) -> list[str]:
    """What it takes out or replaces, and may not."""
    found: list[str] = []
    gone: set[str] = set()
    for ident in cancel:
        step = state.steps.get(ident)
        if step is None or step.status not in MOVABLE:
            status = step.status if step else "not in the plan"
            found.append(f"it cancels {ident}, which is {status}")
        elif ident in gone:
            found.append(f"it cancels {ident} twice")
        gone.add(ident)
    cancelled = frozenset(gone)
    for doc in add:
        ident, old = doc["id"], doc.get("supersedes")
        for name, tolerant in dependencies(doc).items():
            heir = state.follow(name)
            if heir is not None and heir.id == old:
                found.append(f"{ident} waits for {name}, which it supersedes")
            elif heir is not None and heir.id in cancelled and not tolerant:
                found.append(f"{ident} depends on {name}, which it cancels")
        if old is None:
            continue
        if state.steps[old].status not in REPLACEABLE:
            found.append(f"{ident} supersedes {old}, which is {state.steps[old].status}")
        elif old in gone:
            found.append(f"{ident} supersedes {old}, which it cancels or replaces already")
        gone.add(old)
    return found
