"""The inbox: open questions to people, with their subject and the effect of each answer.

Pure. A row holds everything needed to decide: the goal, the plan, the risk, effects and declared
cost of the affected steps, the asker, and the effect of each answer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from leadhand.core.calendar import iso
from leadhand.core.catalog import declared_risk, highest
from leadhand.core.plan.model import Goal
from leadhand.core.review.approval import binding
from leadhand.core.review.holds import people_for, standing_releases
from leadhand.core.review.protected_change import KIND as PROTECTED
from leadhand.core.review.protected_change import change_of
from leadhand.core.review.ruling import reach, reach_of
from leadhand.core.review.subject import name_of_run, reason_in, subject_of
from leadhand.core.visible import escape_deceptive, visible, visible_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State, StepState
    from leadhand.core.state.records import Question


GOAL_CHARS = 500
NAMED_MAX = 5
"""The number of steps that are named; the others are counted."""


class AnswerChoice(Struct, kw_only=True):
    """An answer, and what follows from it."""

    answer: str
    """The answer."""
    leads_to: str
    """What follows from it."""
    command: str
    """The command that gives this answer; TEXT and JSON stand for what the person adds."""


class InboxRow(Struct, kw_only=True):
    """Something that waits for a person."""

    id: str
    """RUN/QUESTION."""
    kind: str
    """The kind of question."""
    title: str
    """One line: what is to be decided or done, as in `Approve plan "release" (3 steps, …)`."""
    reason: str
    """Why a person is asked."""
    run: str
    """The id of the run."""
    started_by: str
    """The person who started the run."""
    step: str | None
    """The id of the step that it is about."""
    steps: int
    """How many steps it concerns."""
    goal: str
    """The goal of the run in a sentence."""
    plan: str
    """The plan's own id; empty where it has none."""
    risk: str | None
    """Of the steps concerned: a level, or `not declared`; null where there are none."""
    effects: list[str]
    """What the plan changes in the world."""
    cost: float | None
    """What workers declare, in cost units."""
    asked_by: str
    """The author of the plan, the planner, the worker of the step, or the person who held it."""
    since: str
    """When it was asked, in ISO 8601."""
    text: str
    """The question."""
    choices: list[AnswerChoice]
    """The answers that it takes; none means that it is answered in words."""
    default: str | None
    """The answer that counts when none came by `until`."""
    until: str | None
    """When the default applies, in ISO 8601."""
    commit: str | UnsetType = UNSET
    """Of a protected change, as the next ones: the commit to be approved."""
    base: str | UnsetType = UNSET
    """The commit that the change is based on."""
    digest: str | UnsetType = UNSET
    """The digest of the changed content."""
    diff: str | UnsetType = UNSET
    """The change as a diff."""
    paths: list[str] | UnsetType = UNSET
    """The changed files."""
    people: int | UnsetType = UNSET
    """How many different people must approve it."""
    approved_by: list[str] | UnsetType = UNSET
    """The people who have approved it so far."""
    words: bool | UnsetType = UNSET
    """In the inbox: whether a step lacks something that only words can tell it."""

    @property
    def answers(self) -> list[str]:
        """The answers that it takes."""
        return [choice.answer for choice in self.choices]


def inbox_row(state: State, ident: str) -> InboxRow:
    """Return what waits for a person under the name `ident`."""
    question = state.questions[ident]
    plan = state.started.plan if state.started else {}
    goal = Goal.from_doc(state.started.goal if state.started else None)
    steps = _concerned(state, question)
    risk, effects, cost = _reach(state, steps)
    title, reason = _subject(state, question, steps)
    row = InboxRow(
        id=f"{state.run}/{ident}",
        kind=question.kind,
        title=escape_deceptive(title),
        reason=escape_deceptive(reason),
        run=state.run,
        started_by=state.started.actor if state.started else "",
        step=question.step or None,
        steps=len(steps),
        goal=escape_deceptive(goal.text[:GOAL_CHARS]),
        plan=str(plan.get("plan_id", "")),
        risk=risk,
        effects=effects,
        cost=cost,
        asked_by=_asker(state, question),
        since=iso(question.at),
        text=escape_deceptive(asked_first(question.text)),
        choices=[
            AnswerChoice(
                answer=choice,
                leads_to=leads_to(state, question, choice),
                command=_command(state, question, choice),
            )
            for choice in question.choices
        ],
        default=question.default or None,
        until=iso(question.until) if question.until else None,
    )
    if question.kind == PROTECTED:
        _add_change(row, state, question)
    return row


def asked_first(text: str) -> str:
    """Return a text of several lines that ends with a question with the question in its first line.

    What a program printed may stand between the first line and the question, and hide it.
    """
    first, _, rest = text.strip().partition("\n")
    if not rest.endswith("?") or first.endswith("?"):
        return text
    last = rest.rpartition("\n")[2]
    question = re.split(r"(?<=[.:!?])\s+", last)[-1]
    said = rest.removesuffix(question).rstrip()
    return f"{first.rstrip(' :.')}. {question}\n{said}".rstrip()


def _add_change(row: InboxRow, state: State, question: Question) -> None:
    """Add what a person reads of a change that waits for approval."""
    change = change_of(state, question)
    row.commit, row.base = change.get("commit", ""), change.get("base", "")
    row.digest, row.diff = change.get("digest", ""), change.get("diff", "")
    row.paths = list(change.get("paths", ()))
    row.people = question.people
    row.approved_by = [each.actor for each in question.approvals]


def _subject(state: State, question: Question, steps: list[Doc]) -> tuple[str, str]:
    """Return what is to be decided or done in one line, and why a person is asked."""
    step, text = visible_name(question.step), question.text
    match question.kind:
        case "review" if state.pending is not None:
            name, wanted = name_of_run(state.started), reach_of(state, steps)
            about = (name, state.pending.number, len(steps), wanted)
            return f"Approve {subject_of(*about)}", reason_in(text, *about)
        case "hold":
            size = f"{len(steps)} step{'s' if len(steps) != 1 else ''}"
            return f"Release {size} of plan {visible(name_of_run(state.started))}", text
        case "task":
            return f"Task: {step}", text
        case _ if question.kind == PROTECTED:
            return f"Approve the protected change of step {step}", text
        case "planner" | "planning":
            return f"Question of the planner {visible_name(state.planner_name)}", text
        case _ if wants_words(state, question):
            return f"Answer the question of step {step}", text
        case _:
            return f"Choose how to continue after step {step}", text


def _command(state: State, question: Question, choice: str) -> str:
    """Return the command that gives an answer; what was shown is named where it is approved."""
    ident = f"{state.run}/{question.id}"
    if question.kind == "review" and state.pending is not None:
        way = f"leadhand review {state.run} {choice}"
        if choice == "approve":
            return f"{way} --digest {binding(state, state.pending, 0)}"
        return f"{way} {'--text' if choice == 'request_changes' else '--reason'} TEXT"
    plain = re.fullmatch(r"[A-Za-z0-9_-]+", choice)
    word = choice if plain else "'" + choice.replace("'", "'\\''") + "'"
    way = f"leadhand answer {ident} {word}"
    if question.kind == PROTECTED and choice == "approve":
        commit = change_of(state, question).get("commit", "")
        return f"{way} --commit {commit}"
    if choice == "send_back" or (choice == "retry" and wants_words(state, question)):
        return f"{way} --text TEXT"
    return f"{way} --data JSON" if choice == "give" else way


def wants_words(state: State, question: Question) -> bool:
    """Return whether a step lacks information that only text can give."""
    step = state.steps.get(question.step)
    return bool(step and step.failure and step.failure.get("class") == "needs_info")


def _concerned(state: State, question: Question) -> list[Doc]:
    """Return the steps that an answer starts or drops."""
    if question.kind == "review" and state.pending is not None:
        return state.pending.add
    if question.kind == "hold":
        return [state.steps[name].doc for name in state.held if _holds(state, name, question)]
    step = state.steps.get(question.step)
    return [step.doc] if step is not None else []


def _holds(state: State, name: str, question: Question) -> bool:
    return state.steps[name].held == question.id


def _reach(state: State, steps: list[Doc]) -> tuple[str | None, list[str], float | None]:
    """Return the risk, the effects and the cost of steps; of no step, nothing."""
    if not steps:
        return None, [], None
    least = state.started.plan.get("risk_level") if state.started else None
    wanted = reach(steps, state.catalog, least)
    risks = [declared_risk(least, step, state.catalog) for step in steps]
    return highest(risks), sorted(wanted.effects), round(wanted.cost, 6)


def _asker(state: State, question: Question) -> str:
    """Return the asker: author of a plan, planner, worker of a step, or holder of a step."""
    if question.kind == "review":
        return state.pending.author if state.pending is not None else ""
    if question.kind in ("planner", "planning"):
        return state.planner_name
    if question.kind == "hold":
        found = [state.steps[name] for name in state.held if _holds(state, name, question)]
        return found[0].held_by if found else ""
    step = state.steps.get(question.step)
    return step.worker if step is not None else ""


# Effects of answers.


def leads_to(state: State, question: Question, choice: str) -> str:
    """Return the effect of an answer to a question, in one sentence."""
    told = LEADS.get((question.kind, choice)) or LEADS.get(("", choice))
    if question.kind == "planner":
        told = LEADS.get(("planner", choice))
    if told is None:
        return "the planner is called again with this answer"
    return told if isinstance(told, str) else told(state, question)


def _names(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _step(state: State, question: Question) -> StepState:
    return state.steps[question.step]


def _approve(state: State, _question: Question) -> str:
    revision = state.pending
    if revision is None:
        return "the plan is approved"
    left = revision.people - len(revision.approvals) - 1
    steps = f"{len(revision.add)} step{'s' if len(revision.add) != 1 else ''}"
    if left > 0:
        return f"counts as one approval; {left} more must follow before {steps} may start"
    return f"{steps} may start, exactly as shown"


def _retry(state: State, question: Question) -> str:
    step = _step(state, question)
    return f"attempt {step.attempts + 1} of step {step.id} starts, by worker {step.worker}"


def _replan(state: State, question: Question) -> str:
    return f"step {question.step} is abandoned, and {state.planner_name} proposes another way"


def _skip(state: State, question: Question) -> str:
    step = _step(state, question)
    minds = [name for name, tolerant in step.dependents if not tolerant]
    lost = f"; skipped with it: {_names(minds)}" if minds else ""
    return f"step {step.id} is skipped, and the run continues{lost}"


def _abort(state: State, _question: Question) -> str:
    return f"the run ends as failed{_cancelled(state)}"


def _rollback(state: State, _question: Question) -> str:
    back = "a rollback run undoes the finished steps"
    return f"the run ends as failed{_cancelled(state)}; {back}"


def _cancelled(state: State) -> str:
    count = state.unsettled
    return f", with {count} step{'s' if count != 1 else ''} unfinished" if count else ""


def _done(_state: State, question: Question) -> str:
    if question.kind == "task":
        return f"the data is checked and becomes the result of step {question.step}"
    return f"step {question.step} is marked done, with the data as its result"


def _cannot(_state: State, question: Question) -> str:
    return f"step {question.step} fails, and its recovery decides what follows"


def _give(_state: State, question: Question) -> str:
    what = _names(list(question.facts)) if question.facts else "the data"
    return f"{what} becomes true, and the planner continues"


def _go_on(state: State, _question: Question) -> str:
    return f"{state.planner_name} is called again"


def _release(state: State, question: Question) -> str:
    names = sorted(name for name in state.held if _holds(state, name, question))
    people = people_for(state, question).people
    left = people - len(standing_releases(state, question)) - 1
    if left > 0:
        return f"counts as one of {people}; {left} more must release {_names(names)}"
    return f"may start: {_names(names)}" if names else "no step is held any more"


def _land(_state: State, question: Question) -> str:
    left = question.people - len(question.approvals) - 1
    if left > 0:
        return f"counts as one approval; {left} more must follow before the change is merged"
    return f"exactly this commit is merged, and step {question.step} continues with it"


def _send_back(_state: State, question: Question) -> str:
    return f"step {question.step} starts again with the comment; nothing of this change is merged"


_PROPOSED_AGAIN = (
    "the planner gets the comment and proposes a new revision; no step starts until then"
)
_GIVEN_UP = "the planner gives up, and the run ends as failed"

LEADS: dict[tuple[str, str], str | Callable[[State, Question], str]] = {
    ("review", "approve"): _approve,
    ("review", "reject"): "no step starts, and the run ends as rejected",
    ("review", "request_changes"): _PROPOSED_AGAIN,
    (PROTECTED, "approve"): _land,
    (PROTECTED, "send_back"): _send_back,
    (PROTECTED, "drop"): _skip,
    ("task", "done"): _done,
    ("task", "cannot"): _cannot,
    ("hold", "release"): _release,
    ("planning", "go_on"): _go_on,
    ("planning", "hand_over"): "the goal planner plans from here on",
    ("planner", "give"): _give,
    ("planner", "retry"): "failed steps may be retried, and the planner continues",
    ("planner", "stop"): _GIVEN_UP,
    ("planner", "give up"): _GIVEN_UP,
    ("planner", "drop"): "the task is dropped, and the planner continues without it",
    ("", "done"): _done,
    ("", "retry"): _retry,
    ("", "replan"): _replan,
    ("", "skip"): _skip,
    ("", "abort"): _abort,
    ("", "rollback"): _rollback,
}
"""By kind and answer; an empty kind stands for all kinds but a planner's own questions."""
