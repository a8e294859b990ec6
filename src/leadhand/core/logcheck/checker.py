"""The pure checker of a run's log, used by `leadhand verify`, the simulator and the tests.

    check([(at, event), …]) -> [Violation(rule, seq, message), …]

It keeps its own records (`core/logcheck/book.py`) and never calls `evolve` or `decide`: a mistake
in those is not repeated here. It reads a log like a suspicious accountant: each event in order,
against what the events before it allow. An unfinished log is checked as far as it goes; rules about
the end are checked at the end.

That entries are gapless and unchanged (I2, I3) is a matter of their headers: `audit/chain.py`.

To add a rule: add a line in RULES, a check in the handler of its event, and a minimal bad log in
`tests/core/test_invariants.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.carried import carried_results, result_digest
from leadhand.core.logcheck.book import Book, Violation, as_tuple
from leadhand.core.logcheck.people import PEOPLE_CHECKS
from leadhand.core.logcheck.plan import PLAN_CHECKS, Causes
from leadhand.core.logcheck.steps import STEP_CHECKS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


__all__ = ["RULES", "Violation", "check"]

RULES: dict[str, str] = {
    "I5": (
        "a run starts once, and no event follows its end; only a person may reopen a failed "
        "run, to retry a step"
    ),
    "I6": "whatever an event names was there before it",
    "I9": "at the end every step is settled, by itself or by what stopped the run",
    "I10": "a step that succeeded never starts again",
    "I11": "one live attempt for each step, attempts 1, 2, 3…, epochs strictly increasing",
    "I12": "a report counts only for the attempt and epoch in flight, under the host that began it",
    "I14": "a step starts after its dependencies, with exactly the inputs the log gives; "
    "it is skipped only because of one of them",
    "I15": "an accepted revision is well formed: ids, workers, dependencies, no cycle",
    "I16": "concurrency limits hold: overall, per worker, per resource",
    "I17": "what may have happened already is not repeated unless that is harmless or allowed",
    "I18": "nothing starts while paused, or once the run is stopping or finished",
    "I19": "attempts stay within their maximum and wait as long as they must",
    "I20": "a failure that trying again cannot help is not tried again unchanged",
    "I21": "every failure is followed by exactly one decision",
    "I22": "revisions that bring nothing are bounded",
    "I24": "only what was approved runs: that hash, and by a person where the risk needs one",
    "I26": "an approval is by somebody who may give one, and by each person once",
    "I27": "nothing starts on a permission that has ended, or that no longer counts",
    "I28": (
        "steps that were held for approval continue with a full approval: as many different "
        "people as the rules require, for exactly these steps and workers"
    ),
    "I30": "spent and reserved cost stay within the budget at every start",
    "I31": "recorded limits hold: planner calls, steps, wall time",
    "I40": "time does not go back, and nothing is declared overdue before its time",
    "I50": "an end without success says where its cause lies, and the log holds such a cause",
    "I51": "a call of a model is known by digests of what was asked and what was answered",
    "L3": "everything in flight has a deadline",
    "L5": "success is verified, never claimed",
    "L13": "a step counts for no more than its worker promises, unless a person wrote what it "
    "claims and all who allowed it were shown that",
    "L14": "a run succeeds when every accepted step is settled: succeeded, replaced, tolerated, or "
    "given up by name with a reason; and no question is open",
    "L15": "answers of people are used: facts that were given, and questions that are open",
    "I52": "a planner that waits is asked again only when something has changed",
    "I53": "a protected change goes on only when as many people as must approved that very commit, "
    "and goes back only with a comment",
    "I54": "a result that was taken over from another run is the one that was recorded",
    "I55": "a comment on a plan has an id of its own and is about a known step, and the next "
    "revision answers open comments only, each once",
    "I56": "a step of a caller starts when a caller is handed it, under a lease that ends by the "
    "step's timeout; its report counts within the lease, whatever host took it",
    "I57": "a signed link is used once, by the person it was made for",
    "form": "an event makes sense at all",
}


def check(events: Sequence[tuple[int, ev.Event]]) -> list[Violation]:
    """Return every violation in a run's log, given as `events` with their times, in order."""
    book, causes = Book(), Causes()
    for seq, (at, event) in enumerate(events, 1):
        book.seq, book.before, book.at = seq, book.at, at
        if seq > 1 and at < book.before:
            book.wrong("I40", f"the clock went back by {book.before - at} us")
        try:
            causes.look(book, event)
            _check_one(book, event)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            book.wrong("form", f"{type(event).__name__}: {type(error).__name__}: {error}")
    return book.violations


def _check_one(book: Book, event: ev.Event) -> None:
    name = type(event).__name__
    if book.ended is not None and not isinstance(event, ev.RunReopened):
        book.wrong("I5", f"{name} after the end of the run at {book.ended}")
        return
    if book.started is None and not isinstance(event, ev.RunStarted):
        book.wrong("I5", f"{name} before the run started")
        return
    handler = _CHECKS.get(type(event))
    if handler is None:
        book.wrong("form", f"{name} is no event of a run")
        return
    expected, book.expect = book.expect, None
    if expected is not None and (name, getattr(event, "step", "")) != expected:
        what = " of ".join(part for part in expected if part)
        book.wrong("I21", f"{name} where {what} had to follow")
    if not isinstance(event, UNCHANGING):
        book.changed = True
    handler(book, event)


UNCHANGING = (
    ev.RunHosted,
    ev.LinkUsed,
    ev.RunPaused,
    ev.RunResumed,
    ev.PlannerAsked,
    ev.PlannerAnswered,
    ev.PlannerWaits,
    ev.DraftRefused,
    ev.ModelCalled,
    ev.AttemptStarted,
    ev.AttemptSpawned,
    ev.LeaseExtended,
    ev.ReportIgnored,
)
"""Events that are no reason to ask a waiting planner again."""


# The run as a whole.


def _run_started(book: Book, event: ev.RunStarted) -> None:
    if book.started is not None:
        book.wrong("I5", "the run started twice")
        return
    book.started = event
    book.started_at = book.at
    book.catalog = {spec.name: spec for spec in event.catalog}
    have = event.goal.get("have") or {} if isinstance(event.goal, dict) else {}
    known = {**event.params, **have}
    book.facts = {name: book.at for name, value in known.items() if value or ":" not in name}
    for step, each in carried_results(event.plan).items():
        if each.param and result_digest(event.params.get(each.param)) != each.digest:
            book.wrong("I54", f"parameter {each.param} is not the result of step {step}")
    if event.plan.get("carried") and not event.plan.get("rerun_of"):
        book.wrong("I54", "results were taken over, and the log does not name their run")


def _run_hosted(book: Book, event: ev.RunHosted) -> None:
    if event.owner <= book.owner:
        book.wrong("I12", f"host {event.owner} took the run from host {book.owner}")
    book.owner = event.owner
    book.goal_asked = False


def _link_used(book: Book, event: ev.LinkUsed) -> None:
    if event.id in book.links:
        book.wrong("I57", f"link {event.id} was used twice")
    if not event.actor:
        book.wrong("I57", "a link was used, and the log does not say by whom")
    book.links.add(event.id)


def _run_paused(book: Book, _event: ev.RunPaused) -> None:
    book.paused = True


def _run_resumed(book: Book, _event: ev.RunResumed) -> None:
    book.paused = False


def _cancel_requested(book: Book, event: ev.CancelRequested) -> None:
    book.stopping, book.back = "cancelled", False
    book.cancel_by = event.deadline


def _stop_decided(book: Book, event: ev.StopDecided) -> None:
    if book.stopping:
        book.wrong("I5", f"stopping as {event.status} though stopping as {book.stopping} already")
    book.stopping = event.status
    asked = [name for name, question in book.questions.items() if question.kind != "hold"]
    if book.answer == "give_up" and event.origin == "planning" and asked:
        book.wrong("L15", f"the planner gave up, and {_some(asked)} is open")
    if event.rollback != book.back_wanted:
        what = "is to be taken back" if event.rollback else "is not to be taken back"
        book.wrong("I21", f"the run {what}, and neither its plan nor a person says so")
    book.back, book.back_wanted = event.rollback, False


def _goal_check_started(book: Book, _event: ev.GoalCheckStarted) -> None:
    book.goal_asked = True


def _goal_checked(book: Book, event: ev.GoalChecked) -> None:
    if not book.goal_asked:
        book.wrong("I6", "the goal was checked without a request")
    if event.met and event.findings:
        book.wrong("L5", f"the goal counts as met with findings: {event.findings[0]}")
    book.goal_asked = False
    book.goal_met = event.met
    goal = book.start.goal if isinstance(book.start.goal, dict) else {}
    wanted = as_tuple(goal.get("want"))
    given = bool(wanted) and book.by_people.issuperset(wanted)
    if not event.met and given and not goal.get("acceptance"):
        book.wrong("L15", f"the goal counts as unmet, and {_some(list(wanted))} was given")
    if not event.met and book.start.replans:
        book.finish = False


def _run_ended(book: Book, event: ev.RunEnded) -> None:
    book.ended, book.end = book.seq, event
    if event.rollback != book.back:
        book.wrong("I21", "the end of the run and its stop disagree on what is rolled back")
    for ident, live in book.live.items():
        book.wrong("I9", f"the run ended with attempt {live.attempt} of {ident} in flight")
    for step in book.steps.values():
        if step.status == "open":
            book.wrong("I21", f"the failure of {step.id} was never decided about")
    unsettled = [step.id for step in book.steps.values() if not step.settled]
    if unsettled and not book.stopping:
        book.wrong("I9", f"the run ended though {_some(unsettled)} were not settled")
    if book.stopping:
        if event.status != book.stopping:
            book.wrong("L5", f"the run ended as {event.status} though stopping as {book.stopping}")
    elif event.status == "succeeded":
        _check_success(book)
    elif event.status == "failed":
        if not any(step.blocking for step in book.steps.values()) and book.goal_met is not False:
            book.wrong("L5", "the run ended as failed though no step failed")
    else:
        book.wrong("L5", f"the run ended as {event.status} without a request to stop")


def _run_reopened(book: Book, event: ev.RunReopened) -> None:
    end = book.end
    if book.ended is None or end is None or end.status != "failed" or end.rollback:
        book.wrong("I5", "the run was reopened, and it had not failed, or was to be rolled back")
    if not event.actor or not event.reason:
        book.wrong("I5", "the run was reopened without an actor or without a reason")
    for step in book.steps.values():
        waits = any(asked.step == step.id for asked in book.questions.values())
        if step.status == "asked" and not waits:
            step.status = "failed"  # a person ended the run instead of answering about the step
    book.ended = book.end = book.planner = book.goal_met = None
    book.stopping, book.finish, book.goal_asked, book.back = "", False, False, False
    book.expect = ("RedoRequested", event.step)


def _check_success(book: Book) -> None:
    goal = book.start.goal
    wanted = goal.get("acceptance") if isinstance(goal, dict) else None
    if wanted and not book.goal_met:
        book.wrong("L5", "success though the goal's acceptance criteria were not found to hold")
    if isinstance(goal, dict):
        absent = [fact for fact in as_tuple(goal.get("want")) if fact not in book.facts]
        if absent:
            book.wrong("L5", f"success though nothing has given {_some(absent)}")
    if not book.final and not book.finish:
        book.wrong("L5", "success though no final revision was accepted")
    bad = [f"{step.id} {step.status}" for step in book.steps.values() if step.blocking]
    if bad:
        book.wrong("L14", f"success though {_some(bad)}")
    asked = [name for name, question in book.questions.items() if question.kind != "hold"]
    if asked:
        book.wrong("L14", f"success though {_some(asked)} is not answered")


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


_CHECKS: dict[type[ev.Event], Callable[[Book, Any], None]] = {
    **PLAN_CHECKS,
    **PEOPLE_CHECKS,
    **STEP_CHECKS,
    ev.RunStarted: _run_started,
    ev.RunHosted: _run_hosted,
    ev.LinkUsed: _link_used,
    ev.RunPaused: _run_paused,
    ev.RunResumed: _run_resumed,
    ev.CancelRequested: _cancel_requested,
    ev.StopDecided: _stop_decided,
    ev.GoalCheckStarted: _goal_check_started,
    ev.GoalChecked: _goal_checked,
    ev.RunEnded: _run_ended,
    ev.RunReopened: _run_reopened,
}
