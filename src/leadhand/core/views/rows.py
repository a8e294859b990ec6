"""Plan and execution on the same rows: each step as approved, and how its time was spent. Pure.

Laws of this file
1. The segments of a row come from the log: each begins and ends with an event, or at a time that an
   event recorded (the start time of a step, the end of a retry pause).
2. They do not overlap, and while the run is open they leave no gap: from the approval of the step
   to its end, or to now.
3. An attempt's segment is exactly the time from its start to its report or its loss.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, Struct, UnsetType, field

from leadhand.core import events as ev
from leadhand.core.calendar import iso
from leadhand.core.plan.graph import dependencies
from leadhand.core.promises import only_claimed
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import SETTLED, State
from leadhand.core.views.ledger import actor_words, by
from leadhand.core.views.run import shown_status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leadhand.core.plan.model import Json
    from leadhand.core.state.model import StepState

Kind = Literal[
    "dependencies",
    "start_time",
    "queued",
    "held",
    "retry",
    "attempt",
    "probe",
    "question",
    "recovery",
    "planning",
    "approval",
    "paused",
    "check",
]
SEGMENTS_SHOWN = 200
"""The number of segments of a row that a document holds: the last ones."""
DEVIATIONS_MAX = 200
TEXT_MAX = 300
REVISION_MAX = 1000
"""The length of the text about a revision: what it changed, why, and by whose approval."""
GIVEN_UP = frozenset({"replan", "simplify", "ask", "abort", "abandon"})
"""Recoveries after which a step is not tried again by itself."""
PLANNED_AGAIN = frozenset({"replan", "simplify"})
"""Recoveries after which the planner revises the plan."""
BUILT_IN = frozenset({"document", "goal"})
"""Planners that need no name: a plan file, and the goal planner."""
STEPS_TOLD = 5
"""The number of steps that such a text names of each kind of change."""


class Segment(Struct, kw_only=True):
    """What a step did, or waited for, during an interval; in seconds since the run began."""

    kind: Kind
    """What it did: an attempt or a probe; or for what it waited."""
    start: float = field(name="from")
    """The beginning, in seconds since the run began."""
    end: float | None = field(name="to")
    """The end, in seconds since the run began; null while it goes on."""
    attempt: int | UnsetType = UNSET
    """The number of the attempt."""
    worker: str | UnsetType = UNSET
    """The worker of the attempt."""
    outcome: str | UnsetType = UNSET
    """How it ended: `verified`, a failure class, the result of a probe, or an answer."""
    reason: str | UnsetType = UNSET
    """Why it failed, or why it waited."""
    until: float | UnsetType = UNSET
    """Of a wait that goes on: when it ends at the earliest."""


class AddedStep(Struct, kw_only=True):
    """Why a step that the first approved plan did not have is in the plan."""

    revision: int
    """The revision that added it."""
    author: str
    """The planner or the person who proposed the revision."""
    because: str
    """Why it was proposed."""
    approved_by: str
    """The person who approved the revision, or `policy`."""
    expected: bool
    """Whether the first approved plan named it in its outlook."""


class PlanRow(Struct, kw_only=True):
    """A step: as approved, and what became of it."""

    id: str
    """The id of the step."""
    place: int
    """Its place in the list, from 0."""
    worker: str
    """The worker in the plan."""
    action: str
    """The action in the plan."""
    status: str
    """The status of the step."""
    depends_on: list[str]
    """The steps that it waits for, as written in the plan."""
    criteria: str | UnsetType = UNSET
    """What must hold for its result."""
    description: str | UnsetType = UNSET
    """What it does, in the words of the plan."""
    reason: str | UnsetType = UNSET
    """Why it has this status."""
    verified: bool | UnsetType = UNSET
    """False if only the agent that did the step says that it is done; else left out."""
    added: AddedStep | UnsetType = UNSET
    """Of a step that the first approved plan did not have: why it was added."""
    replaces: str | UnsetType = UNSET
    """The step that it replaced."""
    replaced_by: str | UnsetType = UNSET
    """The step that replaced it."""
    segments: list[Segment]
    """How its time was spent, in order."""


DeviationKind = Literal["failed", "revision", "worker", "retry", "left_out", "tolerated", "redo"]


class Deviation(Struct, kw_only=True):
    """Something that the first approved plan did not say."""

    kind: DeviationKind
    """What was otherwise."""
    steps: list[str]
    """The steps that it concerns."""
    text: str
    """What was done, and why."""


class RowsDocument(Struct, kw_only=True):
    """Plan and execution of a run on the same rows."""

    run: str
    """The id of the run."""
    seq: int
    """The number of the last entry of the log that was read."""
    approved: int
    """The number of the first approved revision: the plan that the run is compared with."""
    started: str
    """When the run started, in ISO 8601: the zero of all times below."""
    end: float | None
    """When the run ended, in seconds; null while it is open."""
    total: int
    """The number of rows."""
    plan: list[Segment]
    """When the plan was made, approved, paused, and its goal checked."""
    rows: list[PlanRow]
    """The steps in the order of the plan; with `after`, those that changed."""
    deviations: list[Deviation]
    """What was done otherwise than first approved, in order."""
    deviated: str
    """What was otherwise, counted: `1 failed step, 2 later revisions`."""
    expected: list[str]
    """The steps that the first approved plan named in its outlook, and that were added later."""
    critical: list[str]
    """The steps that the end was waiting for, one after the other, by the times of the log."""


OPEN = -1
"""The end of a segment that goes on."""


class _Open(Struct):
    """A segment under way, or ended; times in microseconds."""

    kind: Kind
    start: int
    end: int = OPEN
    attempt: int = 0
    worker: str = ""
    outcome: str = ""
    reason: str = ""
    until: int = 0


def rows_document(log: Iterable[tuple[int, ev.Event]], after: int = 0) -> RowsDocument:
    """Return plan and execution of a log of (at, event); only rows changed after entry `after`."""
    fold = RowFold()
    for at, event in log:
        fold.add(at, event)
    return fold.document(after)


NEAR = (
    ev.AttemptStarted,
    ev.AttemptReported,
    ev.AttemptLost,
    ev.ProbeStarted,
    ev.ProbeReported,
    ev.StepRefused,
    ev.RecoveryDecided,
    ev.StepSkipped,
)
"""Events that change one step, and perhaps the steps that wait for it."""
NOWHERE = (
    ev.ModelCalled,
    ev.AttemptSpawned,
    ev.LeaseExtended,
    ev.ReportIgnored,
    ev.PlannerAsked,
    ev.PlannerAnswered,
    ev.PlannerFailed,
    ev.DraftRefused,
    ev.ProposalRefused,
    ev.RevisionProposed,
    ev.RevisionExamined,
    ev.ReviewRequested,
    ev.ApprovalGiven,
)
"""Events that change no step."""


class RowFold:
    """The memory of the fold over a log."""

    def __init__(self) -> None:
        self.state = State()
        self.segments: dict[str, list[_Open]] = {}
        self.plan: list[_Open] = []
        self.deviations: list[Deviation] = []
        self.approved = 0
        self.expected: list[str] = []
        self._outlook: list[tuple[str, str]] = []
        self._given_back: list[tuple[str, str]] = []
        self._rules: set[str] = set()
        self.revisions: dict[int, tuple[ev.RevisionProposed, str]] = {}
        self._others: dict[tuple[str, str], tuple[int, str]] = {}
        self._proposed: ev.RevisionProposed | None = None
        self._shown: dict[str, tuple[str | int | None, ...]] = {}
        self._changed: dict[str, int] = {}
        self._going: dict[str, _Open] = {}
        self._revised_at = 0

    def add(self, at: int, event: ev.Event) -> None:
        """Take in one event."""
        state = self.state
        near = self._near(event)
        evolve(state, event, at)
        for ident in near if near is not None else list(state.steps):
            self._look(state.steps[ident], at, event)
        if isinstance(event, (ev.RevisionProposed, ev.RevisionApproved)):
            self._revised(event)
        self._of_plan(at, event)
        self._deviates(event)

    def _near(self, event: ev.Event) -> list[str] | None:
        """Return the steps that an event can change; None for all. Asked before it is applied."""
        if isinstance(event, NOWHERE):
            return []
        if not isinstance(event, NEAR):
            return None
        step = self.state.steps.get(event.step)
        return [event.step, *(name for name, _ in step.dependents)] if step is not None else None

    def _look(self, step: StepState, at: int, event: ev.Event) -> None:
        """Note what a step does now, if that is something else than before the event."""
        kind = _kind(step, at)
        now = (kind, step.attempts)
        shown = (*now, shown_status(step), step.reason, step.superseded_by)
        if self._shown.get(step.id) == shown:
            return
        before = self._shown.get(step.id, shown[:0])[:2]
        self._shown[step.id], self._changed[step.id] = shown, self.state.seq
        if before == now:
            return
        found = self.segments.setdefault(step.id, [])
        if found and found[-1].end == OPEN:
            self._close(found, step, at, event)
        if found and found[-1].kind == kind == "queued" and found[-1].end == at:
            found[-1].end = OPEN  # it waits on
        elif kind is not None:
            found.append(_begun(kind, step, at, event))

    def _close(self, found: list[_Open], step: StepState, at: int, event: ev.Event) -> None:
        last = found[-1]
        last.end = at
        if last.until and last.start < last.until < at:  # then it waited for a free worker
            last.end = last.until
            found.append(_Open("queued", last.until, at))
        last.until = 0
        last.outcome, last.reason = _outcome(step, event, last)
        if last.end == last.start and last.kind not in ("attempt", "probe"):
            found.remove(last)

    def _revised(self, event: ev.RevisionProposed | ev.RevisionApproved) -> None:
        if isinstance(event, ev.RevisionProposed):
            self._proposed = event
            return
        self._revised_at = self.state.seq
        if self._proposed is None:
            return
        self.revisions[event.number] = (self._proposed, event.actor)
        if not self.approved:
            self.approved = event.number
            steps = [each for each in self._proposed.outlook if isinstance(each, dict)]
            self._outlook = [_task(each) for each in steps]
        else:
            self._amended(self._proposed, event)

    def _amended(self, proposed: ev.RevisionProposed, event: ev.RevisionApproved) -> None:
        """Note a later revision, except for the steps that the approved outlook named."""
        added = []
        for doc in proposed.add:
            if not _replaces(doc) and _task(doc) in self._outlook:
                self._outlook.remove(_task(doc))
                self.expected.append(doc["id"])
            else:
                added.append(doc)
        out = [*proposed.cancel, *proposed.drop]
        if proposed.add and not added and not out:
            return
        causes, self._given_back = self._given_back, []
        rule = event.reason if event.reason not in self._rules else ""
        self._rules.add(rule)
        untold = [cause for cause, said in causes if said not in proposed.because]
        why = "; ".join(filter(None, [_named(untold, "; "), proposed.because]))
        told = _told(proposed, added, why, self.state.planner_name)
        allowed = f"approved by {actor_words(event.actor)}{f', {rule}' if rule else ''}"
        steps = [*(doc["id"] for doc in added), *out]
        self._deviate("revision", steps, f"{told} ({allowed})", REVISION_MAX)

    def _of_plan(self, at: int, event: ev.Event) -> None:
        """Note when the plan was made, approved, paused and checked."""
        match event:
            case ev.PlannerAsked():
                self._begin("planner", "planning", at, event.why)
            case ev.PlannerAnswered():
                self._end("planner", at)
            case ev.PlannerFailed():
                self._end("planner", at, f"failed: {event.reason}")
            case ev.ReviewRequested():
                self._begin("review", "approval", at, event.reason)
            case ev.RevisionApproved():
                self._end("review", at, f"approved by {event.actor}")
            case ev.ChangesRequested():
                self._end("review", at, f"changes requested by {event.actor}")
            case ev.RevisionRejected():
                self._end("review", at, f"rejected by {event.actor}")
            case ev.QuestionAsked() if not event.step:
                self._begin(f"?{event.id}", "question", at, event.text)
            case ev.QuestionAnswered():
                self._end(f"?{event.id}", at, f"{event.choice} ({event.actor})")
            case ev.RunPaused():
                self._begin("pause", "paused", at, event.reason)
            case ev.RunResumed():
                self._end("pause", at, f"resumed by {event.actor}")
            case ev.GoalCheckStarted():
                self._begin("goal", "check", at, "")
            case ev.GoalChecked():
                told = "met" if event.met else "; ".join(event.findings)
                self._end("goal", at, told)
            case ev.RunEnded():
                for key in list(self._going):
                    self._end(key, at)
            case _:
                pass  # takes no time of the plan

    def _begin(self, key: str, kind: Kind, at: int, reason: str) -> None:
        self._end(key, at)
        self._going[key] = _Open(kind, at, reason=reason)
        self.plan.append(self._going[key])

    def _end(self, key: str, at: int, outcome: str = "") -> None:
        if (span := self._going.pop(key, None)) is not None:
            span.end, span.outcome = at, outcome

    def _deviates(self, event: ev.Event) -> None:
        """Note what the approved plan did not say."""
        match event:
            case ev.AttemptStarted():
                step = self.state.steps[event.step]
                planned = step.doc["worker"]
                if event.worker != planned:
                    self._elsewhere(step, event)
                elif event.attempt > 1:
                    self._retried(step)
            case ev.StepSkipped():
                self._deviate("left_out", [event.step], f"skipped: {event.reason}")
            case ev.RecoveryDecided() if event.strategy == "continue":
                said = f"failed, and the run went on: {event.reason}"
                self._deviate("tolerated", [event.step], said)
            case ev.RecoveryDecided() if event.strategy in GIVEN_UP:
                why = _failure(self.state.steps[event.step]) or event.reason
                self._say("failed", event.step, f"failed: {_line(why)}")
                if event.strategy in PLANNED_AGAIN:
                    kind = event.failure_class.replace("_", " ")
                    told = f"{event.step} failed ({kind}: {_line(why)})"
                    self._given_back.append((told, _line(why)))
            case ev.RedoRequested():
                said = f"retried by {event.actor}: {event.reason}"
                self._deviate("redo", [event.step], said)
            case ev.RunEnded():
                left = [s.id for s in self.state.steps.values() if _left_out(s)]
                if left:
                    self._deviate("left_out", left, "not started: the run ended before")
            case _:
                pass  # as planned

    def _retried(self, step: StepState) -> None:
        failure = _line(_failure(step))
        told = f"{step.attempts} attempts by {step.worker}; the last failure: {failure}"
        self._say("retry", step.id, told)

    def _elsewhere(self, step: StepState, event: ev.AttemptStarted) -> None:
        """Note an attempt by another worker than planned; one line for all of that worker."""
        by = f" by {event.worker} instead of {step.doc['worker']}"
        why = f": {_line(step.reason)}" if step.reason else ""
        first, reason = self._others.setdefault((step.id, event.worker), (event.attempt, why))
        many = f"attempts {first} to {event.attempt}"
        told = f"{many if event.attempt > first else f'attempt {first}'}{by}"
        self._say("worker", step.id, f"{told}{reason}", by)

    def _say(self, kind: DeviationKind, step: str, told: str, about: str = "") -> None:
        """Note what can happen to a step again and again: in one line, found by `about`."""
        for each in self.deviations:
            if each.kind == kind and each.steps == [step] and about in each.text:
                each.text = _cut(told)
                return
        self._deviate(kind, [step], told)

    def _deviate(
        self, kind: DeviationKind, steps: list[str], text: str, most: int = TEXT_MAX
    ) -> None:
        if len(self.deviations) < DEVIATIONS_MAX:
            found = Deviation(kind=kind, steps=steps, text=_cut(text, most))
            self.deviations.append(found)

    def document(self, after: int = 0) -> RowsDocument:
        """Return what was folded; only the rows changed after entry `after`."""
        state = self.state
        if after < self._revised_at:
            after = 0  # places may have changed
        rows = [
            self._row(state.steps[ident], place)
            for place, ident in enumerate(self._order())
            if self._changed.get(ident, 0) > after
        ]
        began = state.started_at
        return RowsDocument(
            run=state.run,
            seq=state.seq,
            approved=self.approved,
            started=iso(began),
            end=_seconds(state.ended_at, began) if state.ended is not None else None,
            total=len(state.steps),
            plan=[_segment(each, began) for each in self.plan if each.end != each.start],
            rows=rows,
            deviations=self.deviations,
            deviated=_counted(self.deviations),
            expected=self.expected,
            critical=self._critical(),
        )

    def _critical(self) -> list[str]:
        """Return the critical path: from the last step back to what each step waited for last."""
        ends = {
            ident: max(span.end if span.end != OPEN else self.state.last_at for span in made)
            for ident, spans in self.segments.items()
            if (made := [span for span in spans if span.kind in ("attempt", "probe")])
        }
        path: dict[str, None] = {}
        here = max(ends, key=ends.__getitem__, default="")
        while here and here not in path:
            path[here] = None
            before = [name for name in self._before(here) if name in ends]
            here = max(before, key=ends.__getitem__, default="")
        return list(path)[::-1]

    def _before(self, ident: str) -> Iterator[str]:
        """Yield the steps that a step waited for, also those that replaced them in time."""
        step = self.state.steps[ident]
        if step.doc.get("supersedes"):
            yield step.doc["supersedes"]
        for name in dependencies(step.doc):
            found = self.state.steps.get(name)
            while found is not None and (not found.ended or found.ended <= step.started):
                yield found.id
                found = self.state.steps.get(found.superseded_by)

    def _order(self) -> Iterator[str]:
        """Yield the steps in the order of the plan; what replaced a step stands after it."""
        state = self.state
        beside: dict[str, list[str]] = {}
        for number, (proposed, _) in self.revisions.items():
            if number == self.approved:
                continue
            old = [doc["supersedes"] for doc in proposed.add if doc.get("supersedes")]
            for doc in proposed.add:
                # The parts of one replaced step stand with it.
                of = doc.get("supersedes") or (old[0] if len(old) == 1 else "")
                if of:
                    beside.setdefault(of, []).append(doc["id"])
        placed = {ident for group in beside.values() for ident in group}
        stack = [ident for ident in reversed(state.steps) if ident not in placed]
        while stack:
            ident = stack.pop()
            yield ident
            stack.extend(reversed(beside.get(ident, ())))

    def _row(self, step: StepState, place: int) -> PlanRow:
        began = self.state.started_at
        proposed, by = self.revisions.get(step.revision, (None, ""))
        doc = step.doc
        added: AddedStep | UnsetType = UNSET
        if proposed is not None and step.revision != self.approved:
            added = AddedStep(
                revision=step.revision,
                author=proposed.author,
                because=str(doc.get("because") or proposed.because)[:TEXT_MAX],
                approved_by=by,
                expected=step.id in self.expected,
            )
        return PlanRow(
            id=step.id,
            place=place,
            worker=doc["worker"],
            action=step.action,
            status=shown_status(step),
            depends_on=[*dependencies(doc)],
            criteria=_criteria(doc.get("success_criteria")) or UNSET,
            description=str(doc.get("description") or "")[:TEXT_MAX] or UNSET,
            reason=step.reason[:TEXT_MAX] or UNSET,
            verified=False if only_claimed(self.state, step) else UNSET,
            added=added,
            replaces=doc.get("supersedes") or UNSET,
            replaced_by=step.superseded_by or UNSET,
            segments=[
                _segment(each, began) for each in self.segments.get(step.id, ())[-SEGMENTS_SHOWN:]
            ],
        )


WAITS: dict[str, Kind] = {
    "waiting": "dependencies",
    "running": "attempt",
    "probing": "probe",
    "asking": "question",
    "undecided": "recovery",
}


def _kind(step: StepState, at: int) -> Kind | None:
    """Return the kind of segment that a step is in; None once the step has ended."""
    if step.status in SETTLED:
        return None
    if step.status in WAITS:
        return WAITS[step.status]
    if step.held:
        return "held"
    if step.status == "backing_off":
        return "retry"
    return "start_time" if step.not_before > at else "queued"


def _begun(kind: Kind, step: StepState, at: int, event: ev.Event) -> _Open:
    """Return the segment that begins with an event."""
    found = _Open(kind, at)
    match kind:
        case "attempt" | "probe":
            found.attempt, found.worker = step.attempts, step.worker
        case "start_time":
            found.until = step.not_before
        case "retry":
            found.until, found.reason = step.until, step.reason
        case "held":
            found.reason = event.reason if isinstance(event, ev.StepsHeld) else ""
        case "question":
            found.reason = event.text if isinstance(event, ev.QuestionAsked) else ""
        case _:
            pass  # nothing is known of it but the time
    return found


def _outcome(step: StepState, event: ev.Event, last: _Open) -> tuple[str, str]:
    """Return how a segment ended, and why."""
    match event:
        case ev.AttemptReported() if event.step == step.id and event.met:
            return "verified", ""
        case ev.AttemptReported() if event.step == step.id:
            return str((event.failure or {}).get("class", "failed")), _failure(step)
        case ev.AttemptLost() if event.step == step.id:
            return event.failure_class, event.reason
        case ev.ProbeReported() if event.step == step.id:
            return event.outcome, event.reason
        case ev.QuestionAnswered() if last.kind == "question":
            return f"{event.choice} ({event.actor})", last.reason
        case ev.StepsReleased() if last.kind == "held":
            return f"released ({event.actor})", last.reason
        case _:
            return "", last.reason


def _failure(step: StepState) -> str:
    return str((step.failure or {}).get("message", ""))[:TEXT_MAX]


def _left_out(step: StepState) -> bool:
    return step.status == "cancelled" and not step.attempts and not step.dropped


COUNTED: dict[DeviationKind, tuple[str, str]] = {
    "failed": ("failed step", "failed steps"),
    "revision": ("later revision", "later revisions"),
    "worker": ("step by another worker", "steps by other workers"),
    "retry": ("retried step", "retried steps"),
    "left_out": ("step left out", "steps left out"),
    "tolerated": ("tolerated failure", "tolerated failures"),
    "redo": ("retry by a person", "retries by people"),
}
"""What each kind of deviation is called, of one and of several."""


def _counted(deviations: list[Deviation]) -> str:
    """Count deviations as the headline of a run does: each step by another worker once."""
    counts: Counter[DeviationKind] = Counter()
    moved = {each.steps[0] for each in deviations if each.kind == "worker"}
    for each in deviations:
        if each.kind == "left_out":
            counts["left_out"] += len(each.steps)
        elif each.kind != "worker" and not (each.kind == "retry" and each.steps[0] in moved):
            counts[each.kind] += 1
    counts["worker"] = len(moved)
    named = ((counts[kind], *words) for kind, words in COUNTED.items() if counts[kind])
    return ", ".join(f"{number:,} {one if number == 1 else many}" for number, one, many in named)


def _task(doc: ev.Doc) -> tuple[str, str]:
    """Return by what a step of an outlook is recognised: its worker and action."""
    return str(doc.get("worker") or ""), str(doc.get("action") or "")


def _told(proposed: ev.RevisionProposed, steps: list[ev.Doc], why: str, planner: str) -> str:
    """Say what a revision changed of the plan that was approved first, and why.

    `steps` are those that it added and that were not expected.
    """
    replaced = [f"{d['id']} replaces {d['supersedes']}" for d in steps if _replaces(d)]
    added = [doc["id"] for doc in steps if not _replaces(doc)]
    out = [*proposed.cancel, *proposed.drop]
    parts = [_named(replaced)] if replaced else []
    parts += [f"{_named(added)} added"] if added else []
    parts += [f"{_named(out)} removed"] if out else []
    what = "; ".join(parts) or "no step changed"
    author = proposed.author
    origin = f"by planner {author}" if author == planner not in BUILT_IN else by(author)
    because = f", because: {why}" if why else ""
    return f"Revision {proposed.number} {origin}: {what}{because}"


def _replaces(doc: ev.Doc) -> bool:
    return bool(doc.get("supersedes"))


def _named(names: list[str], between: str = ", ") -> str:
    more = len(names) - STEPS_TOLD
    return between.join([*names[:STEPS_TOLD], *([f"{more} more"] if more > 0 else [])])


def _line(text: str) -> str:
    return text.strip().partition("\n")[0].rstrip(": ")


def _cut(text: str, most: int = TEXT_MAX) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _criteria(value: Json) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
    return text[:TEXT_MAX]


def _seconds(at: int, began: int) -> float:
    return round((at - began) / 1e6, 3)


def _segment(span: _Open, began: int) -> Segment:
    """Return a segment as documents show it; the run began at `began`."""
    return Segment(
        kind=span.kind,
        start=_seconds(span.start, began),
        end=_seconds(span.end, began) if span.end != OPEN else None,
        attempt=span.attempt or UNSET,
        worker=span.worker or UNSET,
        outcome=span.outcome or UNSET,
        reason=span.reason[:TEXT_MAX] or UNSET,
        until=_seconds(span.until, began) if span.until else UNSET,
    )
