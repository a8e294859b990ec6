"""From a planner's answer to a revision: approved, pending or refused.

The answer is checked against the state at its arrival: the run may have moved on since the planner
saw it. A revision is a delta on the one before, and its hash covers that base, so that a chain of
small revisions costs only its additions and still names the whole plan.

`review/ruling.py` determines the approvals it needs. The consequences of that, and of people's
decisions, are here and in `review/decisions.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from leadhand.core import events as ev
from leadhand.core.catalog import NOT_DECLARED
from leadhand.core.decide.effects import Effect, Examine, Notify
from leadhand.core.decide.recovery import may_have_happened
from leadhand.core.durations import SECONDS_MAX
from leadhand.core.facts import unmet_flags
from leadhand.core.hashing import canonical, digest
from leadhand.core.lint.proposal import proposal
from leadhand.core.plan.graph import dependencies
from leadhand.core.plan.references import Unresolved, resolve
from leadhand.core.promises import DOCUMENT, facts_given, is_idempotent
from leadhand.core.review.decisions import apply_ruling
from leadhand.core.review.ruling import reach_of
from leadhand.core.rollback import can_roll_back
from leadhand.core.state.model import DROPPABLE, MOVABLE, REPLACEABLE
from leadhand.core.views.run import goal_of, goes_on

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import Now, State, StepState

REASON_CHARS = 2000
"""The length of a planner's answer to a comment that is kept."""


Moves = tuple[list[ev.Event], list[Effect]]

GIVE = "give"
"""The answer that gives the facts a planner asks for."""
GO_ON, HAND_OVER, ABORT, ROLLBACK = "go_on", "hand_over", "abort", "rollback"
"""The answers a person may give to a planner without ideas."""
GOAL = "goal"
"""The planner a run can be handed over to: it needs neither a model nor user code."""
ANSWERED = "answer"
"""Why a planner is asked after a person has answered it."""
NAMED_MAX = 5
NO_INPUT = "no person is to be asked in this run (no_input)"


def record_answer(state: State, call: int, epoch: int, answer: Doc, now: Now) -> Moves:
    """Record an answer on arrival.

    A valid proposal becomes a revision at once, and its steps are logged only there; any other
    answer is logged whole, and `decide` acts on it.
    """
    if state.planner.epoch != epoch:
        return [], []
    whole = ev.PlannerAnswered(call, epoch, answer)
    busy = state.stopping is not None or state.pending is not None
    proposes = answer.get("kind") == "propose" and not is_empty_proposal(answer)
    if not proposes or busy or state.undecided or state.to_skip:
        return [whole], []  # More urgent moves come first, in `decide`.
    events, effects = _proposed(state, answer, now)
    if not isinstance(events[0], ev.RevisionProposed):
        return [whole], []
    kept: Doc = {key: answer[key] for key in ("kind", "notes") if key in answer}
    lean = ev.PlannerAnswered(call, epoch, {**kept, "revision": events[0].number})
    return [lean, *events], effects


def answer_moves(state: State, now: Now) -> Moves:
    """Return the events and effects that follow from the planner's last answer."""
    answer = state.planner.answer or {}
    match answer.get("kind"):
        case "propose" if is_empty_proposal(answer):
            return _waits(state, "it proposes nothing", str(answer.get("because", "")))
        case "propose":
            return _proposed(state, answer, now)
        case "wait":
            return _waits(state, "it waits", str(answer.get("because", "")))
        case "finish":
            return _finished(state, answer)
        case "ask":
            return _asked(state, answer, now)
        case "give_up" if state.questions or state.planner.due == ANSWERED:
            # Open questions stay open, and answers of people are handled first.
            return [ev.PlannerWaits(state.planner.calls, list(state.questions)[:NAMED_MAX])], []
        case "give_up":
            reason = f"the planner gave up: {answer.get('reason', '')}"
            return [ev.StopDecided("failed", reason, origin="planning")], []
        case kind:
            return [_refused(state, [f"{kind!r} is not a decision"])], []


def is_empty_proposal(answer: Doc) -> bool:
    """Return whether a proposal changes nothing: that counts as a wait."""
    return not any(answer.get(key) for key in ("steps", "cancel", "drop", "final"))


def _waits(state: State, what: str, because: str) -> Moves:
    """Accept a wait while something is open, or if the state changed since the question."""
    if not (state.questions or state.planner.due or goes_on(state) or _wait_releases(state)):
        why = f" ({because})" if because else ""
        return [_refused(state, [f"{what}, and nothing is under way{why}"])], []
    on = [*state.in_flight, *state.backing_off, *state.questions][:NAMED_MAX]
    return [ev.PlannerWaits(state.planner.calls, on)], []


def _wait_releases(state: State) -> bool:
    """Return whether a wait lets steps start: those that only surprising successes hold back."""
    held = Counter(
        name for ident in state.planner.surprising for name, _ in state.steps[ident].dependents
    )
    return any(
        state.steps[name].status == "waiting" and state.steps[name].blockers == count
        for name, count in held.items()
    )


def _finished(state: State, answer: Doc) -> Moves:
    """Accept a finish only if every accepted step is settled or dropped."""
    drop: dict[str, str] = answer.get("drop") or {}
    if asked := _waits_for_person(state, drop):
        return [_refused(state, asked, early=True)], []
    if state.planner.due == ANSWERED:
        heard = "a person has answered meanwhile"
        return [_refused(state, [heard], early=True)], []
    found = _undroppable(state, drop, frozenset())
    bad = unsettled_failures(state, drop)
    if bad:
        found.append(f"it is not done: {_needs_word(bad)}")
    if found:
        return [_refused(state, found, early=_too_soon(state, drop, found))], []
    gone = _with_dependents(state, drop)
    open_ = [step.id for step in state.steps.values() if not step.settled and step.id not in gone]
    open_ += state.questions
    if not open_:
        return [ev.FinishAccepted(state.planner.calls, drop)], []
    names = ", ".join(open_[:NAMED_MAX])
    verb = "is" if len(open_) == 1 else "are"
    finding = f"it is not done: {names} {verb} still open. Fix: wait, or drop steps by name"
    if goes_on(state) or state.questions or state.planner.due:
        return [ev.ProposalRefused(state.planner.calls, [finding], early=True)], []
    return [_refused(state, [finding])], []


def _with_dependents(state: State, drop: dict[str, str]) -> set[str]:
    """Return the dropped steps, and the steps that wait for them and mind."""
    gone, stack = set(drop), list(drop)
    while stack:
        for name, tolerant in state.steps[stack.pop()].dependents:
            if not tolerant and name not in gone and state.steps[name].status == "waiting":
                gone.add(name)
                stack.append(name)
    return gone


def unsettled_failures(state: State, *gone: Container[str]) -> list[StepState]:
    """Return failed and skipped steps that are not replaced, tolerated or dropped.

    `gone` are the steps that the current answer replaces or drops.
    """
    if not state.blocking:
        return []
    return [
        step
        for step in state.steps.values()
        if state.is_blocking(step) and not any(step.id in each for each in gone)
    ]


def _needs_word(steps: list[StepState]) -> str:
    some = ", ".join(f"{step.id} {step.status}" for step in steps[:NAMED_MAX])
    more = f" and {len(steps) - NAMED_MAX} more" if len(steps) > NAMED_MAX else ""
    return (
        f"{some}{more}, neither replaced nor dropped. Fix: supersede it with another step, "
        "or drop it by name with a reason"
    )


def handle_stuck_planner(state: State, reason: str) -> Moves:
    """Ask a person about a planner that is stuck, answers nothing or is refused repeatedly."""
    reason = reason.rstrip(".")
    if state.policy.no_input:
        reason += f"; {NO_INPUT}"
        return [ev.StopDecided("failed", reason, origin="planning")], []
    choices = [GO_ON, HAND_OVER, ABORT] if _can_hand_over(state) else [GO_ON, ABORT]
    hand = "; hand_over continues with the goal planner" if HAND_OVER in choices else ""
    back = ""
    if can_roll_back(state):
        choices.append(ROLLBACK)
        back = ", and rollback also rolls it back"
    text = (
        f"The planner found no way to continue: {reason}. Answer go_on to call it again, with a "
        f"comment if it helps{hand}; abort ends the run{back}. Or amend the plan."
    )
    asked = ev.QuestionAsked(id=f"q{state.asked + 1}", kind="planning", text=text, choices=choices)
    return [asked], [Notify("waiting", text)]


def _can_hand_over(state: State) -> bool:
    """Return whether the goal planner can take over; plain documents are never revised."""
    planner = state.started.planner if state.started is not None else ""
    taken = planner == DOCUMENT or GOAL in (planner, state.planner.handed)
    return bool(goal_of(state).want) and not taken


def _asked(state: State, answer: Doc, now: Now) -> Moves:
    if state.policy.no_input:
        return [_refused(state, [NO_INPUT])], []
    text = str(answer.get("question", ""))
    choices = [str(choice) for choice in answer.get("choices", ())]
    if answer.get("facts") and GIVE not in choices:
        choices = [GIVE, *choices]  # Facts given by another answer would not count.
    within_s = min(float(answer.get("within_s") or 0.0), SECONDS_MAX)
    default = str(answer.get("default", "")) if within_s else ""
    if default == GIVE:
        return [_refused(state, ["its default cannot give facts: a person must"])], []
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


def _too_soon(state: State, drop: Container[str], found: list[str]) -> bool:
    """Return whether the only problem is that steps to be dropped have started meanwhile."""
    begun = [ident for ident in state.in_flight if ident in drop]
    running = {f"it drops {ident}, which is {state.steps[ident].status}" for ident in begun}
    return running.issuperset(found)


def _refused(state: State, findings: list[str], *, early: bool = False) -> ev.ProposalRefused:
    return ev.ProposalRefused(state.planner.calls, findings, early=early)


def _proposed(state: State, answer: Doc, now: Now) -> Moves:
    add: list[Doc] = answer.get("steps", [])
    cancel: list[str] = answer.get("cancel", [])
    found = findings(state, add, cancel, answer.get("drop"), final=bool(answer.get("final")))
    found = found or _gates(state, add)
    if not found and (asked := _waits_for_person(state, _touched(answer))):
        return [_refused(state, asked, early=True)], []
    found = found or unseen_repeats(state, add) or _unfit_heirs(state, answer)
    if found:
        early = _too_soon(state, answer.get("drop") or {}, found)
        return [_refused(state, found, early=early)], []
    idle = state.revisions_idle
    if (add or cancel) and idle > state.policy.replans_idle_max and not state.tries_new(add):
        return handle_stuck_planner(state, f"stuck: {idle} revisions in a row tried nothing new")
    return propose(state, state.planner_name, answer, now)


def _touched(answer: Doc) -> list[str]:
    """Return the steps that a proposal cancels, drops or replaces."""
    return [
        *answer.get("cancel", ()),
        *(answer.get("drop") or ()),
        *map(_replaced, answer.get("steps", ())),
    ]


def _waits_for_person(state: State, names: Iterable[str]) -> list[str]:
    """Report steps that a person is being asked about: a planner must not answer instead."""
    asked = {q.step: q.id for q in state.questions.values() if q.kind in ("failure", "unseen")}
    return [f"{name} waits for a person ({asked[name]})" for name in names if name in asked]


def unseen_repeats(state: State, add: list[Doc]) -> list[str]:
    """Report new steps that would repeat a possible effect, unless a person has looked."""
    names = (
        step
        for step, _, _, failure in state.failed_attempts
        if failure.get("effect", "none") != "none"
    )
    unseen = [
        step for step in map(state.steps.__getitem__, dict.fromkeys(names)) if _is_unseen(step)
    ]
    found = []
    for doc in add if unseen else ():
        offer = state.catalog.offer(doc["worker"], doc.get("action", ""))
        if is_idempotent(doc, offer):
            continue
        does, gives = _does(state, doc), {*facts_given(doc, offer)}
        for old in unseen:
            theirs = state.catalog.offer(old.worker, old.action)
            open_ = not old.settled and not gives.isdisjoint(facts_given(old.doc, theirs))
            # A step left to the planner may be replaced by the planner.
            taken = _replaced(doc) == old.id and old.id not in state.awaiting_planner
            if open_ or taken or does == _does(state, old.doc):
                what = f"{doc['id']} would do again what {old.id} may have done"
                found.append(f"{what}, and no person has looked")
                break
    return found


def _is_unseen(step: StepState) -> bool:
    by_person = step.status == "skipped" and step.tolerated
    return step.status != "succeeded" and not by_person and may_have_happened(step)


def _does(state: State, doc: Doc) -> tuple[str, str, bytes]:
    template = doc.get("parameters") or {}
    try:
        parameters = resolve(template, state.lookup)
    except Unresolved:  # Its value is not known yet: the text stands for it.
        parameters = template
    return doc["worker"], doc.get("action", ""), canonical(parameters)


def _unfit_heirs(state: State, answer: Doc) -> list[str]:
    """Report successors that do not give the promised facts, and removals without a reason."""
    found = []
    for doc in answer.get("steps", ()):
        old = state.steps.get(_replaced(doc))
        if old is None or not old.dependents:
            continue
        theirs = facts_given(
            old.doc, state.catalog.offer(old.worker, old.action), widened=old.widened
        )
        own = facts_given(doc, state.catalog.offer(doc["worker"], doc.get("action", "")))
        if lacks := [fact for fact in theirs if fact not in own]:
            waits = old.dependents[0][0]
            what = f"{doc['id']} takes the place of {old.id} and does not give {lacks[0]}"
            found.append(f"{what}, and {waits} waits for it")
    for ident in answer.get("cancel", ()):
        failed = state.steps.get(str(state.steps[ident].doc.get("supersedes") or ""))
        if failed is not None and failed.failure and not answer.get("because"):
            what = f"it cancels {ident}, which took the place of {failed.id}"
            found.append(f"{what}: drop it by name with a reason")
    return found


def _gates(state: State, add: list[Doc]) -> list[str]:
    """Report steps of a planner that bypass a gate; a document by a person may."""
    started = state.started
    if started is None or (not state.steps and digest(canonical(add)) == started.linted):
        return []
    return unmet_flags(state, add, goal_of(state))


def propose(state: State, author: str, answer: Doc, now: Now) -> Moves:
    """Propose a revision by `author`, with the consequences of the approvals it needs."""
    add: list[Doc] = answer.get("steps", [])
    cancel: list[str] = answer.get("cancel", [])
    drop: dict[str, str] = answer.get("drop") or {}
    wanted = reach_of(state, add)
    revision = ev.RevisionProposed(
        number=max(state.revision, state.planner.proposed) + 1,
        author=author,
        base=state.head,
        hash=revision_hash(state.head, add, cancel, drop, final=bool(answer.get("final"))),
        add=add,
        cancel=cancel,
        final=bool(answer.get("final")),
        outlook=answer.get("outlook", []),
        because=str(answer.get("because", "")),
        risk=wanted.risk,
        undeclared=wanted.declared == NOT_DECLARED,
        drop=drop,
        answers=_comment_answers(state, answer),
    )
    if state.policy.reviewers and add:
        return [revision], [Examine(revision.number)]
    events, effects = apply_ruling(state, revision, wanted, [], now)
    return [revision, *events], effects


def _comment_answers(state: State, answer: Doc) -> list[ev.CommentAnswer]:
    """Return an answer for each open comment; what the author does not say is not answered."""
    said = {str(each.get("comment")): each for each in answer.get("answers") or ()}
    found: list[ev.CommentAnswer] = []
    for comment in state.comments:
        if comment.answered_in:
            continue
        each = said.get(comment.id)
        if each is None:
            found.append(ev.CommentAnswer(comment.id))
            continue
        status = "addressed" if each.get("addressed") else "not addressed"
        reason = str(each.get("reason") or "")[:REASON_CHARS]
        found.append(ev.CommentAnswer(comment.id, status, reason))
    return found


def revision_hash(
    base: str,
    add: list[Doc],
    cancel: list[str],
    drop: dict[str, str] | None = None,
    *,
    final: bool,
) -> str:
    """Return the hash of a plan revision: of its base and its changes."""
    return digest(base, canonical([add, cancel, final, *([drop] if drop else [])]))


def findings(
    state: State,
    add: list[Doc],
    cancel: list[str],
    drop: dict[str, str] | None = None,
    *,
    final: bool,
) -> list[str]:
    """Return the findings against a revision in the current state of the run."""
    drop = drop or {}
    if len(state.steps) + len(add) > state.policy.steps_max:
        return [f"the plan would have more than {state.policy.steps_max} steps"]
    if not (add or cancel or drop or final or state.questions or goes_on(state)):
        return ["it proposes nothing, and nothing is under way"]
    if add and not state.steps and state.started and digest(canonical(add)) == state.started.linted:
        return []
    resources = state.policy.resources
    checked = proposal(add, _Heirs(state), state.catalog, state.params, resources=resources)
    found = [str(finding) for finding in checked if finding.level == "error"]
    found = found or _misfits(state, add, cancel, drop)
    if found or not final:
        return found
    replaced = {*map(_replaced, add)}
    bad = unsettled_failures(state, drop, replaced)
    return [f"it is final, and {_needs_word(bad)}"] if bad else []


class _Heirs(Mapping[str, "StepState"]):
    """The run's steps under every name: a superseded name maps to its successor."""

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


def _undroppable(state: State, drop: dict[str, str], gone: Container[str]) -> list[str]:
    """Report steps that cannot be dropped; `gone` are removed otherwise."""
    found = []
    for ident, reason in drop.items():
        step = state.steps.get(ident)
        if step is None or step.status not in DROPPABLE:
            status = step.status if step else "not in the plan"
            found.append(f"it drops {ident}, which is {status}")
        elif ident in gone:
            found.append(f"it drops {ident}, which it cancels or replaces already")
        elif not reason.strip():
            found.append(f"it drops {ident} without a reason")
    return found


def _replaced(doc: Doc) -> str:
    return str(doc.get("supersedes") or "")


def _misfits(state: State, add: list[Doc], cancel: list[str], drop: dict[str, str]) -> list[str]:
    """Report steps that may not be removed or replaced."""
    found = _undroppable(state, drop, {*cancel, *map(_replaced, add)})
    gone: set[str] = set()
    for ident in cancel:
        step = state.steps.get(ident)
        if step is None or step.status not in MOVABLE:
            status = step.status if step else "not in the plan"
            found.append(f"it cancels {ident}, which is {status}")
        elif ident in gone:
            found.append(f"it cancels {ident} twice")
        gone.add(ident)
    cancelled = frozenset((*gone, *drop))
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
