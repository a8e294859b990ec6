"""The fleet's figures: from the log, the journal and git, and whether these agree. PURE.

    log       tasks, attempts, failures and answers             (`facts_of`)
    journal   agents' processes and cost, the train, waits      (`journal.py`)
    git       what is on main, by the trailers of its commits

Each figure has one source, and none is kept in memory: after a restart they are the same. Where
two sources tell the same thing they are held against each other, and a difference is a line of
`disagreements`, never smoothed over.

Agents at work are the intervals between "agent" and "agent ended" in the journal. One that has no
end was ended by the death of its fleet, at the latest when the next one opened.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core import events as ev
from leadhand.core.calendar import iso
from leadhand.core.plan.graph import dependencies
from leadhand.core.review.agents import is_agent
from leadhand.core.review.decisions import NOBODY
from leadhand.core.state.recovery_log import RecoveryOutcome
from leadhand.core.state.tally import POLICY
from leadhand.core.views.recovery_stats import recoveries, win_rates
from leadhand.core.views.run import run_status
from leadhand.fleet.forge.origin import issue_written_at
from leadhand.fleet.status.ladder import CODER, MAIN_REPOSITORY, ladder, roots, totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadhand.core.state.model import State, StepState


# Sources of the figures. PURE.


Doc = dict[str, Any]
SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
WEEK = 7 * DAY
DONE = "succeeded"
REPLACED = "superseded"
"""Others took its place: they are counted, not it."""
OVER = ("succeeded", "failed", "skipped", "cancelled")
PAID = frozenset({"agent ended", "reviewed", "planned", "lost"})
"""Notes of the journal that hold a cost."""


class Landing(NamedTuple):
    """A commit on main that a task made."""

    sha: str
    run: str
    task: str
    attempt: int
    at: int
    by: str
    subject: str
    repository: str = ""
    """The repository; empty: the main one."""


class Sources(NamedTuple):
    """Everything that figures are computed from."""

    epics: Sequence[EpicFacts]
    notes: Sequence[Doc]
    landings: Sequence[Landing]
    now: int
    since: int = 0
    """Flows are counted from here on; states are those of now."""
    alive: bool = False
    """Whether a fleet is at work: only then can an agent be at work now."""
    others: int = 0
    """Commits on main that no task made: people's own."""
    older: Sequence[Landing] = ()
    """Those that were there before the hub was made: an earlier fleet's, in the user's history."""


def attempt_name(note: Doc) -> str:
    """Return the attempt that a note of the journal is about."""
    return f"{note.get('run', '')}/{note.get('task', '')}/{note.get('attempt', 0)}"


# Facts about the tasks of one epic, from its log. PURE.
#
# An epic is a run, a task a step, so this is read out of the run's events and of the state they
# fold to. Times are microseconds since the epoch.


WHY_CHARS = 500
ATTEMPTS = (ev.AttemptStarted, ev.AttemptReported, ev.AttemptLost)


class TaskFacts(msgspec.Struct, kw_only=True):
    """One task."""

    run: str
    task: str
    goal: str = ""
    status: str = "waiting"
    """The step's."""
    worker: str = ""
    attempts: int = 0
    started: int = 0
    ended: int = 0
    commit: str = ""
    cost: float = 0.0
    failures: list[tuple[int, str]] = []
    """When, and of which class."""
    lost: dict[int, int] = {}
    """Attempts that ended with their fleet, and when."""
    person: bool = False
    """A person answered for it, or is asked."""
    question: str = ""
    settled: bool = False
    """No attempt is expected any more: it was dropped, or its epic has ended."""
    why: str = ""
    root: str = ""
    """The first task of its line, where it took another's place; else its own name."""
    waits: list[str] = []
    """The tasks that it depends on and that are not done."""
    revision: int = 0
    """The revision of the plan that added it."""
    planned: int = 0
    """When that was proposed."""
    tried: int = 0
    """When its last attempt began."""
    until: int = 0
    """When it is tried again, if it waits for that."""
    held: str = ""
    """The question whose answer lets it start."""
    held_by: str = ""
    """The person who holds it."""
    repository: str = ""
    """The repository that it belongs to; empty: the main one."""

    @property
    def name(self) -> str:
        """Its name among all epics."""
        return f"{self.run}/{self.task}"

    @property
    def line(self) -> str:
        """Return the line's name among all epics: a task and its replacements."""
        return f"{self.run}/{self.root or self.task}"


class EpicFacts(msgspec.Struct, kw_only=True):
    """One epic."""

    run: str
    title: str = ""
    status: str = "running"
    started: int = 0
    asked_at: int = 0
    """When its issue was written on the code host; 0: it has none, or the host did not say."""
    ended: int = 0
    tasks: dict[str, TaskFacts] = {}
    attempts: dict[tuple[str, int], tuple[int, int]] = {}
    """By task and number: when it began and ended (0: it goes on)."""
    spent: list[tuple[int, float]] = []
    paid: set[tuple[str, int]] = set()
    """Attempts whose cost the log knows; not those that were lost, cancelled or broke off."""
    answers: list[tuple[int, RecoveryOutcome]] = []
    """Every answer to a failure, with when it was given."""
    ladder: list[dict[str, Any]] = []
    """What each line of tasks took (`ladder.py`)."""
    questions: list[str] = []
    """The ids of everything that waits for a person: of tasks, of the planner, reviews."""
    asked: dict[str, tuple[str, str]] = {}
    """The same with the kind and the text of each question."""
    text: str = ""
    """What was submitted, where the log holds it."""
    waves: list[dict[str, Any]] = []
    """The proposals of the planner that added tasks, with its reasons."""
    planning: bool = False
    """Whether the planner is being asked."""
    paused: bool = False
    acts: list[tuple[int, str, int]] = []
    """What people decided: when, who, and since when they were asked (0: nobody asked them)."""


def facts_of(state: State, log: Sequence[tuple[int, ev.Event]]) -> EpicFacts:
    """Return everything that figures need of a run."""
    goal: Any = state.started.goal if state.started is not None else ""
    title = str(goal.get("text", "")) if isinstance(goal, dict) else str(goal)
    found = EpicFacts(run=state.run, title=title, status=run_status(state))
    found.started = log[0][0] if log else 0
    found.asked_at = issue_written_at(state)
    found.questions = list(state.questions)
    found.asked = {each.id: (each.kind, each.text) for each in state.questions.values()}
    found.text = _text_of(state)
    found.planning = bool(state.planner.epoch or state.planner.due) and state.ended is None
    found.paused = state.paused
    found.tasks = {
        step.id: _task(state, step)
        for step in state.steps.values()
        if step.worker.partition("@")[0] == CODER  # not looks at the epic's acceptance
    }
    asked: dict[str, str] = {}
    for at, event in log:
        if not isinstance(event, ATTEMPTS) or event.step in found.tasks:
            _take(found, asked, at, event)
    _plan(found, state, log)
    found.acts = list(_acts(log))
    for name in found.tasks if found.ended else _dropped(event for _at, event in log):
        if name in found.tasks:
            found.tasks[name].settled = True
    found.ladder = ladder(event for _at, event in log)
    for task, root in roots(event for _at, event in log).items():
        if task in found.tasks:
            found.tasks[task].root = root
    times = [at for at, event in log if isinstance(event, ev.RecoveryDecided)]
    found.answers = list(zip(times, recoveries(event for _at, event in log), strict=True))
    return found


def _text_of(state: State) -> str:
    epic = state.params.get("epic")
    return str(epic.get("text", "")) if isinstance(epic, dict) else ""


def ask_about(found: EpicFacts) -> None:
    """Give a failed task the question of the planner that names it, unless it has one."""
    taken = {task.question for task in found.tasks.values()}
    for ident, (kind, text) in found.asked.items():
        if kind != "planner" or ident in taken:
            continue
        named = set(re.findall(r"[\w.-]+", text.strip().partition("\n")[0]))
        for name, task in found.tasks.items():
            if name in named and is_dead(task) and not task.question:
                task.question = ident


def _plan(found: EpicFacts, state: State, log: Sequence[tuple[int, ev.Event]]) -> None:
    """Take the planner's waves, and the question of each task that the planner has left to people.

    Its notes say which tasks a question is about; the question itself is the epic's.
    """
    planned: dict[int, int] = {}
    for at, event in log:
        if isinstance(event, ev.RevisionProposed):
            planned[event.number] = at
            names = [str(step["id"]) for step in event.add if step["id"] in found.tasks]
            wave = {"revision": event.number, "by": event.author, "because": event.because}
            if names or event.because:
                found.waves.append({**wave, "at": at, "tasks": len(names), "names": names[:20]})
        elif isinstance(event, ev.AttemptStarted) and event.step in found.tasks:
            found.tasks[event.step].tried = at
    notes = state.planner.notes if isinstance(state.planner.notes, dict) else {}
    by_text = {question.text: question.id for question in state.questions.values()}
    for asked in notes.get("asked") or ():
        for name in asked.get("tasks") or ():
            if name in found.tasks and asked.get("text") in by_text:
                found.tasks[name].question = by_text[asked["text"]]
    ask_about(found)
    for name in _answered_for(event for _at, event in log):
        if name in found.tasks:
            found.tasks[name].person = True
    for task in found.tasks.values():
        task.planned = planned.get(task.revision, found.started)


def _answered_for(log: Iterable[ev.Event]) -> list[str]:
    """Tasks about which the planner asked a person, who answered."""
    about: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    found: list[str] = []
    for event in log:
        match event:
            case ev.PlannerAnswered() if isinstance(event.decision.get("notes"), dict):
                for asked in event.decision["notes"].get("asked") or ():
                    about[str(asked.get("text"))] = list(asked.get("tasks") or ())
            case ev.QuestionAsked() if not event.step:
                texts[event.id] = event.text
            case ev.QuestionAnswered() if event.id in texts and is_person(event.actor):
                found += about.get(texts[event.id], [])
            case _:
                pass
    return found


def is_person(actor: str) -> bool:
    """Return whether an actor is a person: no rule, no default and no agent."""
    return actor not in (NOBODY, POLICY) and not is_agent(actor)


DECISIONS = (
    ev.ApprovalGiven,
    ev.ChangesRequested,
    ev.ReleaseGiven,
    ev.StepsHeld,
    ev.StepsReleased,
    ev.RedoRequested,
    ev.RevisionRejected,
    ev.ChangeApproved,
    ev.QuestionAnswered,
    ev.RunReopened,
    ev.RunPaused,
    ev.RunResumed,
    ev.CancelRequested,
)
"""Events that a person caused, where a person is their actor."""


def _acts(log: Sequence[tuple[int, ev.Event]]) -> Iterable[tuple[int, str, int]]:
    """Yield the decisions of people; events of one decision are one."""
    asked: dict[str, int] = {}
    seen: set[tuple[int, str]] = set()
    for at, event in log:
        if isinstance(event, ev.QuestionAsked):
            asked[event.id] = at
        elif isinstance(event, ev.ReviewRequested):
            asked[f"revision {event.number}"] = at
        elif isinstance(event, DECISIONS) and is_person(event.actor):
            match event:
                case ev.QuestionAnswered():
                    since = asked.get(event.id, 0)
                case ev.ChangeApproved():
                    since = asked.get(event.question, 0)
                case ev.ApprovalGiven() | ev.ChangesRequested() | ev.RevisionRejected():
                    since = asked.get(f"revision {event.number}", 0)
                case _:
                    since = 0
            if (at, event.actor) not in seen:
                yield at, event.actor, since
            seen.add((at, event.actor))


def _dropped(log: Iterable[ev.Event]) -> list[str]:
    """Tasks that the planner or a person let go, by the notes that stand in the log."""
    found: Any = ()
    for event in log:
        if isinstance(event, ev.PlannerAnswered) and isinstance(event.decision.get("notes"), dict):
            found = event.decision["notes"].get("dropped")
    return [str(name) for name in found] if isinstance(found, list) else []


def _task(state: State, step: StepState) -> TaskFacts:
    parameters = step.doc.get("parameters") or {}
    data = step.data if isinstance(step.data, dict) else {}
    failure = step.failure or {}
    return TaskFacts(
        run=state.run,
        task=step.id,
        goal=str(parameters.get("goal", ""))[:WHY_CHARS],
        status=step.status,
        worker=step.worker,
        attempts=step.attempts,
        commit=str(data.get("commit", "")),
        cost=step.cost,
        question=step.question,
        person=bool(step.question),
        why=_short(str(failure.get("message", "") or step.reason)),
        waits=_unmet(state, step) if step.status == "waiting" else [],
        revision=step.revision,
        until=step.until if step.status == "backing_off" else 0,
        held=step.held,
        held_by=step.held_by,
        repository=str(parameters.get("repository", "")),
        failures=[],
        lost={},
    )


def _unmet(state: State, step: StepState) -> list[str]:
    """Return the steps that keep a step from being ready."""
    found = []
    for name in dependencies(step.doc):
        other = state.follow(name)
        if other is None or not other.settled or other.status == "failed":
            found.append(other.id if other is not None else name)
    return list(dict.fromkeys(found))


def _short(why: str) -> str:
    """Shorten a text: keep a third of it from the beginning, the rest from the end."""
    if len(why) <= WHY_CHARS:
        return why
    return f"{why[: WHY_CHARS // 3]}\n…\n{why[-2 * WHY_CHARS // 3 :]}"


def _take(found: EpicFacts, asked: dict[str, str], at: int, event: ev.Event) -> None:
    match event:
        case ev.AttemptStarted():
            found.attempts[event.step, event.attempt] = (at, 0)
            task = found.tasks.get(event.step)
            if task is not None and not task.started:
                task.started = at
        case ev.AttemptReported():
            _ended(found, event.step, event.attempt, at)
            _paid(found, event, at)
            task = found.tasks.get(event.step)
            if task is not None and event.met:
                task.ended = at
            elif task is not None and not was_stopped(event.failure):
                kind = (event.failure or {}).get("class") or "criteria_unmet"
                task.failures.append((at, str(kind)))
        case ev.AttemptLost():
            _ended(found, event.step, event.attempt, at)
            if event.step in found.tasks:
                found.tasks[event.step].failures.append((at, event.failure_class))
                found.tasks[event.step].lost[event.attempt] = at
        case ev.ProbeReported() if event.met and event.step in found.tasks:
            found.tasks[event.step].ended = at
        case ev.ReportIgnored():
            _paid(found, event, at)
        case ev.PlannerAnswered() | ev.ModelCalled() if event.cost:
            found.spent.append((at, event.cost))
        case ev.QuestionAsked() if event.step:
            asked[event.id] = event.step
        case ev.QuestionAnswered() if event.id in asked and is_person(event.actor):
            if asked[event.id] in found.tasks:
                found.tasks[asked[event.id]].person = True
        case ev.RunEnded():
            found.ended = at
        case ev.RunReopened():
            found.ended = 0
        case _:
            pass


def was_stopped(failure: Mapping[str, Any] | None) -> bool:
    """Return whether a person stopped the agent: that is no failure of it."""
    details = (failure or {}).get("details")
    return isinstance(details, dict) and bool(details.get("stopped"))


def _paid(found: EpicFacts, event: ev.AttemptReported | ev.ReportIgnored, at: int) -> None:
    if event.cost:
        found.spent.append((at, event.cost))
        found.paid.add((event.step, event.attempt))


def _ended(found: EpicFacts, step: str, attempt: int, at: int) -> None:
    began = found.attempts.get((step, attempt), (at, 0))[0]
    found.attempts[step, attempt] = (began, at)


# Queued attempts, which were lost before an agent began, do not count as tries. PURE.
#
# The log says that an attempt has begun when its task is handed to the fleet, which may let it wait
# for paths or a place. Only the journal knows whether an agent ever worked on it.


def begun_in(notes: Iterable[Doc]) -> set[str]:
    """Attempts for which an agent's process was started."""
    return {attempt_name(note) for note in notes if note["what"] == "agent"}


def waited_of(task: TaskFacts, begun: set[str], notes: Sequence[Doc]) -> dict[int, int]:
    """Attempts that were lost while the task stood in line, and when: no agent had begun."""
    known = notes[0]["at"] if notes else None
    return {
        attempt: at
        for attempt, at in task.lost.items()
        if known is not None and at >= known and f"{task.name}/{attempt}" not in begun
    }


def failures_of(task: TaskFacts, begun: set[str], notes: Sequence[Doc]) -> list[tuple[int, str]]:
    """Return the failures of agents; attempts that only stood in line do not count."""
    waited = set(waited_of(task, begun, notes).values())
    return [each for each in task.failures if each[0] not in waited]


# Consistency of the log, the journal and git. PURE.
#
# The log is the authority for what was meant, git for what has landed. They cannot be written in
# one act, so git may be ahead for a moment; whatever else differs is a fault of ours or somebody's
# hand in the hub, and is shown.


GRACE = 30 * SECOND
"""Git is ahead of the log for a moment: a commit that is newer is not held against it."""


def disagreements(sources: Sources) -> list[str]:
    """Return the differences between the log, the journal and git."""
    known = {task.name: task for epic in sources.epics for task in epic.tasks.values()}
    landings: dict[str, list[Landing]] = {}
    for each in sources.landings:
        landings.setdefault(f"{each.run}/{each.task}", []).append(each)
    found = [
        f"{name} is on main {len(each)} times" for name, each in landings.items() if len(each) > 1
    ]
    older: dict[str, list[Landing]] = {}
    for each in sources.older:
        older.setdefault(f"{each.run}/{each.task}", []).append(each)
    # People who merge a pull request may drop the trailers.
    hosted = {
        f"{note.get('run')}/{note.get('task')}"
        for note in sources.notes
        if note["what"] == "pull landed"
    }
    logged = [task for task in known.values() if task.name not in hosted]
    found += [line for task in logged for line in _checked(task, landings, older)]
    for name, (first, *_more) in landings.items():
        task = known.get(name)
        old = first.at < sources.now - GRACE
        if task is None:
            found.append(f"{name} is on main ({first.sha[:12]}), and the log knows no such task")
        elif old and task.status not in (DONE, "running"):
            found.append(f"{name} is on main ({first.sha[:12]}), and the log says {task.status}")
    return found + _unlogged(sources)


def _checked(
    task: TaskFacts,
    landings: Mapping[str, Sequence[Landing]],
    older: Mapping[str, Sequence[Landing]],
) -> list[str]:
    if task.status != DONE or (task.person and not task.commit):
        return []  # a person may have done it elsewhere, and said so
    found = [*landings.get(task.name, ()), *older.get(task.name, ())]
    if not found:
        return [f"{task.name} has succeeded by the log, and is not on main"]
    if task.commit and task.commit not in [each.sha for each in found]:
        return [f"{task.name} is {task.commit[:12]} by the log, and {found[0].sha[:12]} on main"]
    return []


def _unlogged(sources: Sources) -> list[str]:
    """Agents of which the log knows no attempt."""
    known = {
        f"{epic.run}/{task}/{number}" for epic in sources.epics for task, number in epic.attempts
    }
    runs = {epic.run for epic in sources.epics}
    names = {attempt_name(note) for note in sources.notes if note["what"] == "agent"}
    return [
        f"an agent worked on {name}, and the log knows no such attempt"
        for name in sorted(names - known)
        if name.split("/")[0] in runs
    ]


LEFT = ("landed", "ejected", "withdrawn")
"""Notes of changes that are at the train no more."""
GATED = ("checked", "tested", "looked")
"""Notes of gate runs."""
HOURS_SHOWN = 48
SHOWN_MAX = 200


def figures(sources: Sources) -> Doc:
    """Return all figures as one document."""
    tasks = [task for epic in sources.epics for task in epic.tasks.values()]
    agents = _agents(sources)
    of_run: dict[str, list[Doc]] = {}
    for note in sources.notes:
        of_run.setdefault(str(note.get("run", "")), []).append(note)
    return {
        "at": iso(sources.now),
        "since": iso(sources.since) if sources.since else None,
        "alive": sources.alive,
        "agents": agents,
        "epics": [_epic(epic, of_run.get(epic.run, ())) for epic in sources.epics],
        "tasks": dict(sorted(Counter(map(_state, tasks)).items())),
        "flow": _flow(tasks, sources),
        "landed": _landed(sources),
        "queue": _queue(sources),
        "train": _train(sources),
        "gate": _gate(sources),
        "recovery": _recovery(sources, tasks),
        "ladder": _ladder(sources, tasks),
        "spend": _spend(sources),
        "questions": sum(len(epic.questions) for epic in sources.epics),
        "dead_letters": [_letter(task) for task in tasks if is_dead(task)][:SHOWN_MAX],
        "commits": [_commit(each) for each in sources.landings[-50:][::-1]],
        "others": sources.others,
        "disagreements": disagreements(sources)[:SHOWN_MAX],
    }


# --- agents --------------------------------------------------------------------------------


def intervals(notes: Iterable[Doc], now: int) -> list[tuple[int, int, str]]:
    """Return for each agent's process its start, its end (`now` if it lives) and its attempt."""
    going: dict[str, int] = {}
    found = []
    last = 0
    for note in notes:
        name = attempt_name(note)
        if note["what"] == "agent":
            going[name] = note["at"]
        elif note["what"] == "agent ended" and name in going:
            found.append((going.pop(name), note["at"], name))
        elif note["what"] in ("opened", "closed"):
            found += [(began, max(began, last), each) for each, began in going.items()]
            going.clear()
        last = note["at"]
    return found + [(began, now, each) for each, began in going.items()]


def peak(spans: Iterable[tuple[int, int, str]], since: int = 0) -> tuple[int, int]:
    """Return the highest number alive at once, and when; ends count before beginnings."""
    edges = sorted(
        edge
        for began, ended, _name in spans
        if ended >= since
        for edge in ((max(began, since), 1), (ended, -1))
    )
    best = when = count = 0
    for at, step in sorted(edges, key=lambda edge: (edge[0], edge[1])):
        count += step
        if count > best:
            best, when = count, at
    return best, when


def _agents(sources: Sources) -> Doc:
    spans = intervals(sources.notes, sources.now)
    most, when = peak(spans, sources.since)
    now = sum(ended == sources.now for _began, ended, _name in spans) if sources.alive else 0
    inside = [span for span in spans if span[1] >= sources.since]
    begun = Counter(note.get("coder", "") for note in _flows(sources, "agent"))
    return {
        "now": now,
        "peak": most,
        "peak_at": iso(when) if most else None,
        "runs": len(inside),
        "hours": round(sum(ended - began for began, ended, _n in inside) / HOUR, 3),
        "by_coder": dict(sorted(begun.items())),
    }


# --- tasks ---------------------------------------------------------------------------------


def _state(task: TaskFacts) -> str:
    if task.status == DONE:
        return "landed"
    return "blocked" if is_dead(task) else task.status


def is_dead(task: TaskFacts) -> bool:
    """Return whether a task cannot go on before a person acts."""
    if task.settled:
        return False
    return task.status == "failed" or (bool(task.question) and task.status not in OVER)


def _flow(tasks: Sequence[TaskFacts], sources: Sources) -> Doc:
    """Return how many tasks are at each stage, in their order."""
    places = _places(sources.notes) if sources.alive else {}
    counts = Counter[str]()
    for task in tasks:
        if task.status == DONE:
            counts["landed"] += 1
        elif task.status == REPLACED:
            continue  # its replacements are counted
        elif is_dead(task):
            counts["dead"] += 1
        elif task.settled or task.status in OVER:
            counts["dropped"] += 1
        elif task.status == "running":
            counts[places.get(f"{task.name}/{task.attempts}", "waiting")] += 1
        else:
            counts["again" if task.failures else "planned"] += 1
    names = ("planned", "waiting", "working", "gate", "train", "landed", "again", "dead", "dropped")
    return {name: counts[name] for name in names}


def _places(notes: Iterable[Doc]) -> dict[str, str]:
    """Return the stage of each attempt that has begun: at work, at the gate, on the train."""
    steps = {"agent": "working", "agent ended": "gate", "queued": "train"}
    steps |= dict.fromkeys(LEFT, "gate")
    found: dict[str, str] = {}
    for note in notes:
        if note["what"] == "opened":
            found.clear()
        elif note["what"] in steps:
            found[attempt_name(note)] = steps[note["what"]]
    return found


def _epic(epic: EpicFacts, notes: Iterable[Doc]) -> Doc:
    pulls = [n for n in notes if n["what"] == "pull request" and not n.get("task")]
    unlogged = sum(_cost(n) for n in notes if (n.get("task"), n.get("attempt")) not in epic.paid)
    done = sum(task.status == DONE for task in epic.tasks.values())
    return {
        "run": epic.run,
        "title": epic.title,
        "status": epic.status,
        "tasks": sum(task.status != REPLACED for task in epic.tasks.values()),
        "landed": done,
        "started": iso(epic.started),
        "ended": iso(epic.ended) if epic.ended else None,
        "cost": round(sum(cost for _at, cost in epic.spent) + unlogged, 6),
        "pull_request": str(pulls[-1].get("said", "")) if pulls and not pulls[-1]["code"] else None,
        **_by_repository(epic),
    }


def _by_repository(epic: EpicFacts) -> Doc:
    """Return how many tasks of an epic landed where; nothing if it has but the main repository."""
    found: dict[str, list[TaskFacts]] = {}
    for task in epic.tasks.values():
        if task.status != REPLACED:
            found.setdefault(task.repository, []).append(task)
    if not any(found):
        return {}
    rows = [
        {
            "name": name or MAIN_REPOSITORY,
            "tasks": len(tasks),
            "landed": sum(task.status == DONE for task in tasks),
            "commits": [task.commit for task in tasks if task.status == DONE and task.commit],
        }
        for name, tasks in found.items()
    ]
    return {"repositories": rows}


def _letter(task: TaskFacts) -> Doc:
    return {
        "run": task.run,
        "task": task.task,
        "goal": task.goal,
        "class": task.failures[-1][1] if task.failures else "",
        "why": task.why,
        "attempts": task.attempts,
        "question": task.question,
        "since": iso(task.failures[-1][0]) if task.failures else None,
        "cost": round(task.cost, 6),
        **({"repository": task.repository} if task.repository else {}),
    }


# --- the train -----------------------------------------------------------------------------


def _landed(sources: Sources) -> Doc:
    times = [each.at for each in sources.landings]
    began = sources.notes[0]["at"] if sources.notes else 0
    now = sources.now
    since = max(sources.since, began) or (times[0] if times else now)
    inside = [at for at in times if at >= sources.since]
    hours = (now - since) / HOUR
    first = (now // HOUR - HOURS_SHOWN + 1) * HOUR
    counted = Counter(at // HOUR * HOUR for at in times if at >= first)
    best = Counter(at // HOUR for at in inside)
    return {
        "total": len(times),
        "in_window": len(inside),
        "last_hour": sum(at > now - HOUR for at in times),
        "last_day": sum(at > now - DAY for at in times),
        "last_week": sum(at > now - WEEK for at in times),
        "per_hour": round(len(inside) / hours, 2) if hours >= 1 else None,
        "best_hour": max(best.values(), default=0),
        "by_hour": [
            [(first + n * HOUR) // SECOND, counted[first + n * HOUR]] for n in range(HOURS_SHOWN)
        ],
    }


def _queue(sources: Sources) -> Doc:
    """Return the changes at the train: those that wait now, and the waiting times of others."""
    waiting: dict[str, int] = {}
    waits = []
    for note in sources.notes:
        if note["what"] == "opened":
            waiting.clear()
        elif note["what"] == "queued":
            waiting[attempt_name(note)] = note["at"]
        elif note["what"] in LEFT:
            waiting.pop(attempt_name(note), None)
            if note["what"] == "landed" and note["at"] >= sources.since:
                waits.append(float(note.get("waited_s", 0.0)))
    open_ = waiting if sources.alive else {}
    oldest = min(open_.values(), default=sources.now)
    return {
        "waiting": len(open_),
        "oldest_s": round((sources.now - oldest) / SECOND, 1),
        "names": sorted(open_, key=lambda name: open_[name])[:SHOWN_MAX],
        "wait_s": {"p50": share(waits, 0.5), "p95": share(waits, 0.95)},
    }


def _train(sources: Sources) -> Doc:
    tested = _flows(sources, "tested")
    tests = [note for note in tested if not note.get("reused")]
    sizes = [int(note["size"]) for note in _flows(sources, "moved")]
    kinds = Counter(str(note.get("kind", "")) for note in _flows(sources, "ejected"))
    red = [note for note in tests if not note.get("ok")]
    return {
        "tests": len(tests),
        "reused": len(tested) - len(tests),
        "red": len(red),
        "bisections": sum(note["size"] > 1 and not note.get("search") for note in red),
        "landings": len(sizes),
        "batch_mean": round(sum(sizes) / len(sizes), 2) if sizes else None,
        "batch_max": max(sizes, default=0),
        "gate_s": {
            "p50": share([float(note.get("seconds", 0.0)) for note in tests], 0.5),
            "p95": share([float(note.get("seconds", 0.0)) for note in tests], 0.95),
        },
        "ejected": dict(sorted(kinds.items())),
        "conflicts": kinds["conflict"],
        "counted": _counted(sources.notes),
    }


def _gate(sources: Sources) -> Doc:
    """Count every run of the gate: of changes by themselves, of batches, and of main."""
    notes = [note for what in GATED for note in _flows(sources, what)]
    runs = [note for note in notes if not note.get("reused")]
    took = [float(note["seconds"]) for note in runs if "seconds" in note]
    failed = sum(not note.get("ok") for note in runs)
    pair = {"p50": share(took, 0.5), "p95": share(took, 0.95)}
    return {"runs": len(runs), "failed": failed, "seconds": pair}


def _counted(notes: Iterable[Doc]) -> str:
    """Return the number of tests of the gate's last run as text; empty before the first."""
    found = ""
    for note in notes:
        if note["what"] in ("tested", "looked") and note.get("tests"):
            found = str(note["tests"])
    return found


# --- recovery and money --------------------------------------------------------------------


def _recovery(sources: Sources, tasks: Sequence[TaskFacts]) -> Doc:
    """Count recoveries: a failed task is recovered if it landed without a person.

    A replaced task is recovered when all its replacements have landed.
    """
    begun = begun_in(sources.notes)
    failures = {task.name: failures_of(task, begun, sources.notes) for task in tasks}
    failed = failed_lines(sources)
    well = sum(each.well for each in failed)
    badly = sum(each.badly for each in failed)
    rows: dict[str, list[int]] = {}
    for each in failed:
        row = rows.setdefault(each.kind, [0, 0, 0])
        row[0] += 1
        row[1] += each.well
        row[2] += each.badly
    answers = [
        answer for epic in sources.epics for at, answer in epic.answers if at >= sources.since
    ]
    tried = [task for task in tasks if task.ended or failures[task.name]]
    passed = sum(not failures[task.name] for task in tried)
    return {
        "failed": len(failed),
        "recovered": well,
        "people": badly,
        "open": len(failed) - well - badly,
        "rate": _rate(well, well + badly),
        "first_pass": _rate(passed, len(tried)),
        "by_class": [
            {"class": kind, "tasks": row[0], "recovered": row[1], "people": row[2]}
            | {"open": row[0] - row[1] - row[2], "rate": _rate(row[1], row[1] + row[2])}
            for kind, row in sorted(rows.items())
        ],
        "by_strategy": msgspec.to_builtins(win_rates(answers)),
    }


class FailedLine(NamedTuple):
    """A task, with its replacements, that failed in the period, and how it went on."""

    at: int
    """Its first failure in the period."""
    kind: str
    """The class of its first failure ever."""
    well: bool
    badly: bool


def failed_lines(sources: Sources) -> list[FailedLine]:
    """Return every line of tasks that failed since the beginning of the period."""
    begun = begun_in(sources.notes)
    lines: dict[str, list[TaskFacts]] = {}
    for task in (task for epic in sources.epics for task in epic.tasks.values()):
        lines.setdefault(task.line, []).append(task)
    found = []
    for line in lines.values():
        failures = sorted(
            (each for task in line for each in failures_of(task, begun, sources.notes)),
            key=lambda each: each[0],
        )
        inside = [at for at, _kind in failures if at >= sources.since]
        if inside:
            well, badly = _ended_well(line), _ended_badly(line)
            found.append(FailedLine(inside[0], failures[0][1], well, badly))
    return found


def _ladder(sources: Sources, tasks: Sequence[TaskFacts]) -> Doc:
    """Return the ladder without attempts that only stood in line; the next attempt counts."""
    found = totals(row for epic in sources.epics for row in epic.ladder)
    begun = begun_in(sources.notes)
    waited = sum(len(waited_of(task, begun, sources.notes)) for task in tasks)
    return found | {"fresh": max(0, found["fresh"] - waited)}


def _ended_well(line: Sequence[TaskFacts]) -> bool:
    return all(task.status in (DONE, REPLACED) and not task.person for task in line)


def _ended_badly(line: Sequence[TaskFacts]) -> bool:
    return any(task.person or (task.status in OVER and task.status != DONE) for task in line)


def spent_in(sources: Sources) -> list[tuple[int, float]]:
    """Return what was spent, and when."""
    known = sources.notes[0]["at"] if sources.notes else sources.now + 1
    spent = [each for epic in sources.epics for each in epic.spent if each[0] < known]
    return spent + [(note["at"], _cost(note)) for note in sources.notes if note["what"] in PAID]


def _spend(sources: Sources) -> Doc:
    """Return the spending by the notes that the daily limit counts.

    Before the first note that is kept, the log counts; it does not know the cost of an attempt that
    was lost, cancelled or broke off.
    """
    spent = spent_in(sources)
    inside = sum(cost for at, cost in spent if at >= sources.since)
    landed = sum(each.at >= sources.since for each in sources.landings)
    today = sources.now // DAY * DAY
    return {
        "total": round(sum(cost for _at, cost in spent), 6),
        "in_window": round(inside, 6),
        "today": round(sum(cost for at, cost in spent if at >= today), 6),
        "per_landed": round(inside / landed, 6) if landed else None,
    }


def _cost(note: Doc) -> float:
    return float(note.get("cost") or 0.0) if note["what"] in PAID else 0.0


# --- small things --------------------------------------------------------------------------


def share(values: Sequence[float], part: float) -> float | None:
    """Return the value that `part` of the values do not exceed; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 3)


def _rate(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _flows(sources: Sources, what: str) -> list[Doc]:
    return [n for n in sources.notes if n["what"] == what and n["at"] >= sources.since]


def _commit(each: Landing) -> Doc:
    found = {**each._asdict(), "at": iso(each.at)}
    if not each.repository:
        del found["repository"]
    return found
