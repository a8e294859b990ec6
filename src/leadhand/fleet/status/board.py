"""The fleet's board: a card for each task, in the column it has reached, with the reason. PURE.

    planned ─► working ─► gate ─► merge_queue ─► merged        blocked: a person has to act
                                                               ended: skipped or cancelled

The log says what a task waits for, the journal which attempt has an agent, a gate or a place in the
merge queue, and the fleet itself (`live`) who holds a path and why no agent starts. A board is read
again and again, so it is bounded: each column has its number of tasks, and at most so many cards.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core.calendar import iso
from leadhand.core.views.inbox import asked_first
from leadhand.core.wording import listed
from leadhand.fleet.status.figures import (
    DONE,
    LEFT,
    OVER,
    REPLACED,
    Doc,
    EpicFacts,
    Landing,
    Sources,
    TaskFacts,
    attempt_name,
    is_dead,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


COLUMNS = ("planned", "working", "gate", "merge_queue", "merged", "blocked", "ended")
UNDER_WAY = frozenset({"planned", "working", "gate", "merge_queue"})
"""The columns of tasks that a person can have taken over."""
CARDS = {"planned": 100, "working": 200, "gate": 100, "merge_queue": 100, "merged": 60}
"""The most cards of a column that are sent."""
CARDS_MAX = 200
TITLE_CHARS = 160
REASON_CHARS = 300
TEXT_CHARS = 2000
WAVES_SHOWN = 30
NAMES_SHOWN = 3
_STAGES = {"agent": "working", "agent ended": "gate", "queued": "merge_queue"}
_STAGES |= dict.fromkeys(LEFT, "gate")


class Stage(NamedTuple):
    """How far an attempt came, and since when."""

    column: str
    at: int


class Journalled(NamedTuple):
    """What the journal knows of tasks."""

    stages: dict[str, Stage]
    """By attempt; only attempts of the fleet that is at work."""
    agents: dict[str, tuple[str, str]]
    """By task: the coder and the model of its last agent."""
    costs: dict[str, float]
    """By attempt: what its agent cost, which the log knows only when the attempt has ended."""
    pulls: dict[str, str]
    """By task: the address of its pull request on the code host, of the last one."""
    issues: dict[str, str]
    """By run: the address of the issue that its epic came from."""


def journalled(notes: Iterable[Doc]) -> Journalled:
    """Return what the journal knows of tasks."""
    stages: dict[str, Stage] = {}
    agents: dict[str, tuple[str, str]] = {}
    costs: dict[str, float] = {}
    pulls: dict[str, str] = {}
    issues: dict[str, str] = {}
    for note in notes:
        what = note["what"]
        if what == "opened":
            stages.clear()
        elif what in _STAGES:
            stages[attempt_name(note)] = Stage(_STAGES[what], note["at"])
        if what == "agent ended":
            costs[attempt_name(note)] = float(note.get("cost") or 0.0)
        name = f"{note.get('run', '')}/{note.get('task', '')}"
        if what == "agent":
            agents[name] = (str(note.get("coder", "")), str(note.get("model", "")))
        elif what == "pull request" and note.get("task"):
            pulls[name] = str(note.get("said", ""))
        elif what == "issue taken":
            issues[str(note.get("run", ""))] = str(note.get("said", ""))
    return Journalled(stages, agents, costs, pulls, issues)


def board(sources: Sources, live: Mapping[str, Any] | None, only: str = "") -> Doc:
    """Return the columns with their cards; the card of one task, if `only` names it."""
    known = journalled(sources.notes)
    landings = {f"{each.run}/{each.task}": each for each in sources.landings}
    at_work = {f"{each['run']}/{each['task']}": each for each in (live or {}).get("agents", ())}
    taken = {f"{each['run']}/{each['task']}": each for each in (live or {}).get("taken", ())}
    cards: dict[str, list[Doc]] = {name: [] for name in COLUMNS}
    counts: dict[str, Counter[str]] = {}
    for epic in sources.epics:
        counts[epic.run] = Counter()
        for task in epic.tasks.values():
            column, at = _column(task, known, alive=live is not None)
            mine = taken.get(task.name) if column in UNDER_WAY else None
            if mine is not None and not mine["given"]:
                column = "working"
            if column and only in ("", task.task):
                counts[epic.run][column] += 1
                cards[column].append({"task": task, "epic": epic, "at": at, "taken": mine})
    shown: list[Doc] = []
    for column, rows in cards.items():
        if column == "merged":
            rows.sort(key=lambda row: -row["at"])
        for row in rows[: CARDS.get(column, CARDS_MAX)]:
            name = row["task"].name
            more = _card(row["epic"], row["task"], column, row["at"], live)
            agent = _agent(row["task"], known, at_work.get(name), landings.get(name))
            more |= {"pull_request": known.pulls.get(name, "")}
            if row["taken"] is not None:
                agent |= _taken(row["task"], row["taken"])
            shown.append({k: v for k, v in {**more, **agent}.items() if v not in ("", None, 0, [])})
    return {
        "columns": {name: len(cards[name]) for name in COLUMNS},
        "cards": shown,
        "lanes": [_lane(epic, counts[epic.run], known) for epic in sources.epics],
    }


def _column(task: TaskFacts, known: Journalled, *, alive: bool) -> tuple[str, int]:
    """Return the column of a task and since when it is there; empty: it was replaced."""
    if task.status == DONE:
        return "merged", task.ended
    if task.status == REPLACED:
        return "", 0
    if is_dead(task) or task.held_by:
        return "blocked", task.failures[-1][0] if task.failures else task.planned
    if task.settled or task.status in OVER:
        return "ended", task.ended
    if task.status == "running" and alive:
        stage = known.stages.get(f"{task.name}/{task.attempts}")
        return (stage.column, stage.at) if stage is not None else ("planned", task.tried)
    return "planned", task.failures[-1][0] if task.failures else task.planned


def _card(
    epic: EpicFacts, task: TaskFacts, column: str, at: int, live: Mapping[str, Any] | None
) -> Doc:
    return {
        "run": task.run,
        "task": task.task,
        "title": task.goal[:TITLE_CHARS],
        "column": column,
        "since": iso(at) if at else "",
        "reason": reason_of(epic, task, column, live)[:REASON_CHARS],
        "class": task.failures[-1][1] if task.failures and column != "merged" else "",
        "question": task.question,
        "held_by": task.held_by,
        "attempt": task.attempts,
        "failures": len(task.failures),
        "wave": task.revision,
        "cost": round(task.cost, 6),
        "commit": task.commit,
        "repository": task.repository,
    }


def _agent(
    task: TaskFacts, known: Journalled, at_work: Mapping[str, Any] | None, landing: Landing | None
) -> Doc:
    """Return the agent of a task: the one at work, else the last one."""
    coder, model = known.agents.get(task.name, ("", ""))
    if at_work is not None:
        # The cost of an agent at work counts when it has ended, here as in every other figure.
        running = {"cost": round(task.cost, 6), "running_cost": round(float(at_work["cost"]), 6)}
        heard = {name: at_work.get(name) for name in ("words", "heard", "silence_s")}
        return {
            "coder": at_work["coder"],
            "model": at_work["model"],
            "live": True,
            **heard,
            **running,
        }
    if landing is not None and not coder:
        coder, _, model = landing.by.partition(":")
    paid = known.costs.get(f"{task.name}/{task.attempts}", 0.0) if task.status == "running" else 0.0
    return {"coder": coder, "model": model, "cost": round(task.cost + paid, 6)}


def reason_of(epic: EpicFacts, task: TaskFacts, column: str, live: Mapping[str, Any] | None) -> str:
    """Return why a task is in its column, as a sentence; empty if nothing is to be told."""
    if column == "blocked":
        return _blocked(epic, task)
    if column == "planned":
        return _waiting(epic, task, live)
    if column == "ended":
        why = _first_line(task.why)
        return f"{task.status.capitalize()}{f': {why}' if why else '.'}"
    if column != "merged" and task.failures and (why := _first_line(task.why)):
        return f"The last attempt failed: {why}"
    return ""


def _blocked(epic: EpicFacts, task: TaskFacts) -> str:
    if task.held_by:
        return f"Held by {task.held_by}."
    why = _first_line(task.why).rstrip(": ")
    if task.status == "failed":
        behind = [each.task for each in epic.tasks.values() if task.task in each.waits]
        why += f". {_names(behind)} cannot start before" if behind else ""
    if task.question and task.status == "failed":
        asked = _first_line(asked_first(epic.asked.get(task.question, ("", ""))[1]))
        return f"{why}. A person is asked: {asked}" if asked else why
    if task.question:
        return why or "A person is asked."
    if epic.planning:
        return f"The planner decides how to continue: {why}"
    return why


def _waiting(epic: EpicFacts, task: TaskFacts, live: Mapping[str, Any] | None) -> str:
    """Return what a planned task waits for."""
    if task.status == "running" and live is not None:
        holders = (live.get("locked") or {}).get(task.name)
        if holders:
            return f"Waiting for paths that {_names(holders, task.run)} may change."
        held = live.get("held_back")
        return f"Waiting for a slot: {held}." if held else "Waiting for a slot."
    if task.waits:
        stuck = [name for name in task.waits if _is_stuck(epic, name)]
        more = f" ({_names(stuck)} is blocked)" if stuck else ""
        return f"Depends on {_names(task.waits)}{more}."
    if task.until and task.why:
        return f"Tries again: {_first_line(task.why)}"
    if epic.paused:
        return "The epic is paused."
    if live is None:
        return "No fleet is running."
    return "Failed, tries again." if task.failures else "Ready."


def _is_stuck(epic: EpicFacts, name: str) -> bool:
    found = epic.tasks.get(name)
    return found is not None and (is_dead(found) or bool(found.held_by))


def _names(names: Sequence[str], run: str = "") -> str:
    """Return the first of the names, without the run that they share."""
    shown = [name.removeprefix(f"{run}/") for name in names[:NAMES_SHOWN]]
    more = len(names) - len(shown)
    return listed([*shown, f"{more} more"] if more > 0 else shown)


def _taken(task: TaskFacts, taken: Mapping[str, Any]) -> Doc:
    """Return what is so of a task that a person has taken over, or given back."""
    by = taken["by"]
    if taken["given"]:
        return {"reason": f"Given back by {by}.", "taken_by": by}
    refused = _first_line(taken["refused"])
    told = f"Taken over by {by}{f'. Not merged: {refused}' if refused else ''}."
    way = f"It goes on with: leadhand fleet give {task.task}"
    more = {"taken_by": by, "since": taken["at"], "coder": "", "model": ""}
    return {"reason": f"{told} {way}"[:REASON_CHARS], **more}


def _lane(epic: EpicFacts, counts: Mapping[str, int], known: Journalled) -> Doc:
    return {
        "run": epic.run,
        "issue": known.issues.get(epic.run, ""),
        "text": epic.text[:TEXT_CHARS],
        "columns": {name: counts.get(name, 0) for name in COLUMNS},
        "planning": epic.planning,
        "paused": epic.paused,
        "waves": [_wave(each) for each in epic.waves[-WAVES_SHOWN:]],
        "waiting": list(_questions(epic)),
    }


def _wave(given: Doc) -> Doc:
    return {**given, "at": iso(given["at"])}


def _questions(epic: EpicFacts) -> Iterator[Doc]:
    """Yield what a person is asked about the epic itself, and not about one of its tasks."""
    for ident, (kind, text) in epic.asked.items():
        if not any(task.question == ident or task.held for task in epic.tasks.values()):
            shown = _first_line(asked_first(text))
            yield {"question": ident, "kind": kind, "text": shown[:REASON_CHARS]}


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


# Merges, failures, recoveries and spending over the chosen time. PURE.


BUCKETS = 48
BUCKETS_MIN = 12
STEPS_S = (60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400, 30 * 86_400)


def series(sources: Sources, spent: Sequence[tuple[int, float]]) -> Doc:
    """Return what happened in each stretch of the chosen time, which begins with the first note."""
    began = [note["at"] for note in sources.notes[:1]] + [each.at for each in sources.landings[:1]]
    first = max(sources.since, min(began, default=sources.now))
    span = max(1, (sources.now - first) // 1_000_000)
    step = next((each for each in STEPS_S if span <= each * BUCKETS), STEPS_S[-1]) * 1_000_000
    start = min(first // step, sources.now // step - BUCKETS_MIN + 1) * step
    size = min(4 * BUCKETS, (sources.now - start) // step + 1)
    rows = {name: [0.0] * size for name in ("merged", "failures", "recovered", "spend")}

    def add(name: str, at: int, amount: float = 1) -> None:
        place = (at - start) // step
        if 0 <= place < size:
            rows[name][place] = round(rows[name][place] + amount, 6)

    for landing in sources.landings:
        add("merged", landing.at)
    for at, cost in spent:
        add("spend", at, cost)
    for task in (task for epic in sources.epics for task in epic.tasks.values()):
        for at, _kind in task.failures:
            add("failures", at)
        if task.failures and task.status == DONE and not task.person:
            add("recovered", task.ended)
    times = [(start + n * step) // 1_000_000 for n in range(size)]
    return {"step_s": step // 1_000_000, "times": times, **rows}
