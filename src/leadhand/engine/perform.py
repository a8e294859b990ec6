"""Performing effects: the only place where workers and planners are called.

Every effect that gets here is durable in the log. The outcome of every call is an input to the run:
a verified report, an answer, or the reason there is none. This file holds the engine's only broad
`except`: past it there are no exceptions, only reports.
"""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from leadhand.codec.events import unreadable
from leadhand.codec.values import plain, progress_note
from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.carried import carried_data
from leadhand.core.decide.effects import Move
from leadhand.core.decide.planner_answer import record_answer
from leadhand.core.hashing import canonical
from leadhand.core.jsonschema import problems
from leadhand.core.plan import graph, references
from leadhand.core.plan.references import Artifact, Unresolved, load_apart
from leadhand.core.report import Report, decision_doc, decision_problem
from leadhand.core.review.holds import POLICY
from leadhand.core.views.run import acceptance, deep_copy, failure_of, goal_of, planner_view
from leadhand.engine.budget import PlannerPayer
from leadhand.engine.results import data_of, result_of, step_views
from leadhand.engine.reviewers import changed_spec
from leadhand.engine.secrets import reveal_of
from leadhand.engine.verdict import StepVerdict, failure_doc, goal_findings, judge
from leadhand.errors import StoreError, StoreFull
from leadhand.models.meter import drafts, payer
from leadhand.ports import Task, is_external_cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leadhand.core.decide.effects import (
        CallPlanner,
        StartAttempt,
        StartProbe,
        StopAttempt,
        VerifyGoal,
    )
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.report import Failure
    from leadhand.core.state.model import Now, State, StepState
    from leadhand.engine.budget import RunBudget
    from leadhand.engine.secrets import Secrets
    from leadhand.models.meter import ModelCall, RefusedDraft
    from leadhand.models.telemetry import Runs as Spans
    from leadhand.ports import Planner, Reviewer, Spawned, Store, Worker, Workers


T = TypeVar("T")


# What carrying out effects needs of a host and of a run. Both stand in this process
# (`engine/host.py`, `engine/run.py`) or on a machine of Temporal (`temporal/remote.py`), which
# knows of a run what its order says.


class AttemptHost(Protocol):
    """The part of a host that carrying out attempts needs."""

    @property
    def store(self) -> Store:
        """The log, and the artifacts that large results become."""

    @property
    def reviewers(self) -> Mapping[str, Reviewer]:
        """Automatic reviewers, by the names that runs record."""

    @property
    def spans(self) -> Spans:
        """The telemetry of runs."""

    @property
    def failed(self) -> BaseException | None:
        """Why the host cannot go on, if it cannot."""

    async def blocking(self, call: Callable[..., T], *args: Any) -> T:
        """Do something slow and synchronous without holding up the loop."""

    async def wait_for_space(self, error: BaseException | None) -> None:
        """Wait for space on a full disk; `failed` is set when patience ends."""

    def fail(self, error: BaseException) -> None:
        """Stop: an attempt could not be handed in."""


class AttemptRun(Protocol):
    """The part of a run that carrying out attempts needs; what comes of them is handed in here."""

    id: str
    workers: Workers
    secrets: Secrets | None
    contexts: dict[str, Any]
    """The contexts of attempts under way, by step."""

    @property
    def host(self) -> AttemptHost:
        """Where it is carried out."""

    @property
    def state(self) -> State:
        """The state of the run, or what an order says of it."""

    @property
    def tasks(self) -> Mapping[str, asyncio.Task[None]]:
        """What is under way, by step."""

    @property
    def progress(self) -> Mapping[str, tuple[str, float | None]]:
        """By step under way, the last message of its worker and the fraction that is done."""

    @property
    def budget(self) -> RunBudget:
        """The money for calls of models."""

    def planner_now(self) -> Planner | None:
        """Return the planner to ask."""

    def submit(self, what: Callable[[State, Now], Move]) -> Any:
        """Hand in an input."""

    def reported(self, event: ev.AttemptReported) -> None:
        """Hand in the judged report of an attempt."""

    def task_over(self, key: str, context: object) -> None:
        """Drop the context of an attempt that has nothing more to submit."""

    def note_progress(self, step: str, message: str, fraction: float | None) -> None:
        """Keep a worker's word on how far it is."""


# The context of a worker beyond its parameters: the goal, this attempt, the steps its `context`
# names.


LIVE_CHARS = 16_000
"""The length of an attempt's latest output that is shown live."""
LIVE_READ = 4 * LIVE_CHARS
"""The length searched for secrets: a secret that begins before the shown part is found too."""
SUMMARY_CHARS = 400
"""The length of a result in a summary."""


def _brief(data: Any) -> str | None:
    if data is None:
        return None
    text = data if isinstance(data, str) else canonical(data).decode()
    more = len(text) - SUMMARY_CHARS
    return f"{text[:SUMMARY_CHARS]} … ({more:,} more characters)" if more > 0 else text


class AttemptContext:
    """The context of one attempt. Cheap to create: everything is looked up on demand."""

    __slots__ = ("_printed", "_run", "attempt", "begun", "cancelled", "epoch", "paid", "step")

    def __init__(self, run: AttemptRun, step: str, attempt: int, epoch: int) -> None:
        self._run = run
        self.step = step
        self.attempt = attempt
        self.epoch = epoch
        self.cancelled = False
        self._printed: Callable[[int], str] | None = None
        self.begun = False
        """Whether its task runs; a task cancelled before that never reports it."""
        self.paid = False
        """Whether it called a model: then its cost is the cost of those calls."""

    @property
    def run(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def goal(self) -> Any:
        """The goal the run pursues."""
        return goal_of(self._run.state)

    @property
    def key(self) -> str:
        """The same for every attempt of this step: use it as an idempotency key."""
        return f"{self._run.id}:{self.step}"

    @property
    def tier(self) -> str:
        """The tier of models the plan wants for this step, or ""."""
        return str(self._run.state.steps[self.step].doc.get("tier") or "")

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Why earlier attempts of this step failed."""
        docs = self._run.state.steps[self.step].failures
        return tuple(failure for doc in docs if (failure := failure_of(doc)) is not None)

    @property
    def answers(self) -> tuple[dict[str, Any], ...]:
        """Answers of people about this step."""
        answers = self._run.state.answers
        return tuple(deep_copy(answer) for answer in answers if answer["step"] == self.step)

    @property
    def quoted(self) -> frozenset[str]:
        """Parameters of the step that hold results of other steps."""
        planned = self._run.state.steps[self.step].doc.get("parameters") or {}
        return frozenset(
            name
            for name, value in planned.items()
            if any(ref.kind == "steps" for ref in references.find(value))
        )

    @property
    def results(self) -> dict[str, Any]:
        """Results of the steps named in the step's `context`."""
        return {
            name: data_of(self._run.host.store, step)
            for name, step, summary in self._named()
            if not summary and step.status == "succeeded"
        }

    @property
    def summaries(self) -> dict[str, dict[str, Any]]:
        """Summaries of the steps whose summaries the step's `context` names.

        For each: worker, action, status, `data` as a text that may be cut, recommendations, and the
        error of a failed step.
        """
        found: dict[str, dict[str, Any]] = {}
        for name, step, summary in self._named():
            if summary:
                data = data_of(self._run.host.store, step) if step.status == "succeeded" else None
                error = failure_of(step.failure) if step.status == "failed" else None
                found[name] = {
                    "worker": step.worker,
                    "action": step.action,
                    "status": step.status,
                    "data": _brief(data),
                    "recommendations": list(step.recommendations),
                    "error": None if error is None else f"{error.failure_class}: {error.message}",
                }
        return found

    def _named(self) -> list[tuple[str, StepState, bool]]:
        state = self._run.state
        named = graph.context_of(state.steps[self.step].doc).items()
        found = [(name, state.follow(name), summary) for name, summary in named]
        return [(name, step, summary) for name, step, summary in found if step is not None]

    def progress(self, message: str = "", fraction: float | None = None) -> None:
        """Report progress; shown live, never logged."""
        text, share = progress_note(message, fraction)
        if self._run.secrets is not None:
            text = self._run.secrets.text(text)
        self._run.note_progress(self.step, text, share)

    def printing(self, tail: Callable[[int], str]) -> None:
        """Register the function that returns the last characters of the worker's output."""
        self._printed = tail

    def live(self) -> dict[str, Any]:
        """Return the progress of the attempt and its latest output, without secrets."""
        message, fraction = self._run.progress.get(self.step, ("", None))
        text = self._printed(LIVE_READ) if self._printed is not None else ""
        if self._run.secrets is not None:
            text = self._run.secrets.unfinished(text)
        return {
            "attempt": self.attempt,
            "message": message,
            "fraction": fraction,
            "output": text[-LIVE_CHARS:],
        }

    def hide(self, value: Any) -> Any:
        """Return a text or JSON-like data without the secrets of the run: for use outside of it."""
        return value if self._run.secrets is None else self._run.secrets.value(value)

    def spawned(self, process: Spawned) -> None:
        """Record the process of the attempt, if the attempt is still current."""
        step, epoch = self.step, self.epoch
        event = ev.AttemptSpawned(step, epoch, *process)

        def spawned(state: State, _now: Now) -> Move:
            current = commands.is_current(state, step, epoch)
            return Move([event] if current else [], [])

        self._run.submit(spawned)

    async def reserve(self, wanted: float, least: float) -> float:
        """Reserve money for a model call, counting this attempt's own reservation."""
        state = self._run.state
        held = state.price(state.steps[self.step])
        self.paid = True
        return await self._run.budget.reserve(wanted, least, held)

    def settle(self, reserved: float, call: ModelCall) -> None:
        """Record a model call that ended."""
        self._run.budget.settle(reserved, call, self.step, self.attempt)


OUTPUT_INLINE_CHARS = 2000
PARAMETERS_SHOWN = 5


class Changed(RuntimeError):
    """A worker changed since it was allowed."""


class _BadParameters(ValueError):
    """Resolved parameters that do not fit the worker's schema."""


def context_of(run: AttemptRun, effect: StartAttempt | StartProbe) -> AttemptContext:
    """Create the context of an attempt before its task runs: a stop may come first."""
    context = AttemptContext(run, effect.step, effect.attempt, effect.epoch)
    run.contexts[effect.step] = context
    return context


async def attempt(
    run: AttemptRun,
    effect: StartAttempt,
    context: AttemptContext,
    before: asyncio.Task[None] | None,
) -> None:
    """Call a worker and submit its verified report."""
    try:
        if before is not None or context.cancelled:
            await _over(context, before)
        context.begun = True
        worker = _worker(run, effect.worker)
        parameters = effect.parameters
        if parameters:
            parameters = await _loaded(run, parameters)
        if wrong := _wrong_parameters(worker, effect.action, parameters):
            raise _BadParameters(wrong)
        task = Task(
            run.id,
            effect.step,
            effect.attempt,
            effect.epoch,
            effect.action,
            parameters,
            effect.deadline,
        )
        payer.set(context)
        run.host.spans.enter(run.id, run.secrets.text if run.secrets else None)
        _refuse_changed(run, effect.worker)
        report = await worker.perform(task, context)
    except asyncio.CancelledError:
        report = Report.failed("lost", "it was stopped before it reported", effect="unknown")
    except (Unresolved, StoreError, _BadParameters) as error:
        report = Report.failed("permanent", str(error))
    except Changed as error:
        report = Report.failed("transient", str(error))
    except BaseException as error:  # the boundary: past this point there are only reports
        if is_external_cancellation(error):
            raise
        report = Report.failed("unavailable", f"{type(error).__name__}: {error}", effect="unknown")
    try:
        try:
            if run.secrets is not None:
                report = run.secrets.report(report)
            await _hand_in(run, effect, report, paid=context.paid)
        except (TypeError, ValueError, AttributeError) as error:  # a custom worker
            reason = f"its report has a wrong form: {type(error).__name__}: {error}"
            odd = Report.failed("invalid_output", reason, effect="done")
            await _hand_in(run, effect, odd, paid=context.paid)
    except Exception as error:  # noqa: BLE001 - nobody waits for this task: the host must hear
        run.host.fail(error)
    finally:
        run.task_over(effect.step, context)


def _refuse_changed(run: AttemptRun, name: str) -> None:
    """Raise `Changed` if a worker changed between the decision to start it and now."""
    if changed_spec(run.state, run.workers, name) is not None:
        raise Changed(f"worker {name} changed while it was about to start; nothing was done")


def _wrong_parameters(worker: Worker, action: str, parameters: Doc) -> str:
    """Return the problems of resolved parameters; empty if there are none."""
    offer = worker.spec.offer(action)
    if offer is None or offer.parameters is None:
        return ""
    found = problems(parameters, offer.parameters)
    return "; ".join(
        f"parameter {each.path}: {each.message}" if each.path else f"parameters: {each.message}"
        for each in found[:PARAMETERS_SHOWN]
    )


def _worker(run: AttemptRun, name: str) -> Worker:
    worker = run.workers.get(name)
    if worker is None:
        raise LookupError(f"worker {name} is not loaded in this host")
    return worker


def fresh_parameters(run: AttemptRun, parameters: Doc) -> Doc:
    """Return the parameters for the worker: large results and secrets put in, nothing shared."""

    def load(artifact: Artifact) -> Json:
        return msgspec.json.decode(run.host.store.get_artifact(artifact.ref))

    whole = load_apart(parameters, load, reveal_of(run.secrets))
    loaded: Doc = msgspec.json.decode(msgspec.json.encode(whole))
    return loaded


async def _loaded(run: AttemptRun, parameters: Doc) -> Doc:
    """Return the parameters; a slow remote database delays only this attempt."""
    if getattr(run.host.store, "remote", False) and _apart(parameters):
        return await run.host.blocking(fresh_parameters, run, parameters)
    return fresh_parameters(run, parameters)


def _apart(value: Json) -> bool:
    """Return whether a part of the value has to be fetched."""
    if type(value) is dict:
        return any(map(_apart, value.values()))
    return any(map(_apart, value)) if type(value) is list else type(value) is Artifact


async def _hand_in(run: AttemptRun, effect: StartAttempt, report: Report, *, paid: bool) -> None:
    run.reported(await judged(run, effect, report, paid=paid))


async def judged(
    run: AttemptRun, effect: StartAttempt, report: Report, *, paid: bool
) -> ev.AttemptReported:
    """Return the judged report of an attempt; its large data is stored apart."""
    step = run.state.steps[effect.step].doc
    verdict, data, raw = verify(run, effect.worker, step, report)
    ref = output_ref = ""
    output = report.output
    if len(raw) > run.state.policy.inline_bytes:
        verdict, data, ref = await _put_apart(run, verdict, raw)
    if len(output) > OUTPUT_INLINE_CHARS:
        output, output_ref = await _put_output(run, output)
    recommendations = report.recommendations
    if recommendations:
        recommendations = tuple(str(word)[:1000] for word in recommendations[:20])
    event = ev.AttemptReported(
        effect.step,
        effect.attempt,
        effect.epoch,
        verdict.met,
        data,
        ref,
        verdict.failure,
        tuple(verdict.findings),
        recommendations,
        tuple(report.artifacts),
        _cost(run, effect, report, paid=paid),
        output,
        output_ref,
        verdict.surprise,
    )
    # A success with only data consists of our own values: its data was decoded above.
    ours = verdict.met and not (recommendations or event.artifacts or output)
    if not ours and (wrong := unreadable(event)):
        bad = _unloggable(f"its report cannot be recorded: {wrong}")
        event = ev.AttemptReported(
            effect.step,
            effect.attempt,
            effect.epoch,
            met=False,
            failure=bad.failure,
            cost=event.cost,
        )
    return event


def _cost(run: AttemptRun, effect: StartAttempt, report: Report, *, paid: bool) -> float:
    """Return the cost of an attempt: as reported, else as the worker declares.

    A cost that is no amount of money is ignored; the log would become unreadable with it.
    """
    if 0 < report.cost < math.inf:
        return report.cost
    if paid:
        return ev.NO_COST
    offer = run.state.catalog.offer(effect.worker, effect.action)
    return offer.cost if offer else ev.NO_COST


def verify(
    run: AttemptRun, name: str, step: Doc, report: Report
) -> tuple[StepVerdict, Json, bytes]:
    """Return the verdict, the data as it will be logged, and its bytes; nothing is shared."""
    data, raw = report.data, b""
    if data is not None:
        try:
            raw = msgspec.json.encode(plain(data))
        except (ValueError, TypeError) as error:
            return _unloggable(str(error)), None, b""
        data = msgspec.json.decode(raw)
    worker = run.workers.get(name)
    offer = worker.spec.offer(step.get("action", "")) if worker else None
    if worker is None or offer is None:
        if report.error is not None:
            return StepVerdict(False, failure_doc(report.error), []), data, raw
        return _unloggable(f"{name} does not offer {step.get('action')}"), None, b""
    return judge(step, offer, worker, report, data), data, raw


def _unloggable(message: str) -> StepVerdict:
    failure = {"class": "invalid_output", "message": message, "effect": "done"}
    return StepVerdict(False, failure, [message])


async def _put_apart(
    run: AttemptRun, verdict: StepVerdict, raw: bytes
) -> tuple[StepVerdict, Json, str]:
    """Store large data as an artifact before it is referred to; wait if the disk is full."""
    host = run.host
    while True:
        try:
            return verdict, None, await host.blocking(host.store.put_artifact, raw)
        except StoreError as error:
            if isinstance(error, StoreFull) and host.failed is None:
                await host.wait_for_space(error)
            if not isinstance(error, StoreFull) or host.failed is not None:
                return _unloggable(f"its result could not be stored: {error}"), None, ""


async def _put_output(run: AttemptRun, text: str) -> tuple[str, str]:
    raw = text.encode("utf-8", "backslashreplace")
    try:
        return "", await run.host.blocking(run.host.store.put_artifact, raw)
    except StoreError:
        return text[-OUTPUT_INLINE_CHARS:], ""


def stop(run: AttemptRun, effect: StopAttempt) -> None:
    """Stop an attempt in flight: mark its context, and cancel its task."""
    context = run.contexts.get(effect.step)
    task = run.tasks.get(effect.step)
    if context is not None:
        if context.epoch != effect.epoch or context.cancelled:
            return
        context.cancelled = True
        if not context.begun:
            return
    if task is not None and not task.done():
        task.cancel()


async def _over(context: AttemptContext, before: asyncio.Task[None] | None) -> None:
    """Wait until the previous task of this step is over, even if cancelled meanwhile.

    The next task waits for this one, and so for the previous one.
    """
    context.begun = True
    while before is not None and not before.done():
        try:
            await asyncio.wait([before])
        except asyncio.CancelledError:
            context.cancelled = True
    if context.cancelled:
        raise asyncio.CancelledError


async def probe(
    run: AttemptRun, effect: StartProbe, context: AttemptContext, before: asyncio.Task[None] | None
) -> None:
    """Ask a worker whether an attempt of unknown outcome took effect."""
    outcome, reason, verdict = "unknown", "", StepVerdict(False, None, [])
    data: Json = None
    ref = ""
    try:
        await _over(context, before)
        parameters = await _loaded(run, effect.parameters)
        _refuse_changed(run, effect.worker)
        if run.state.steps[effect.step].held_by == POLICY:
            raise Changed(f"worker {effect.worker} changed since it was allowed, its probe too")
        task = Task(run.id, effect.step, effect.attempt, effect.epoch, effect.action, parameters, 0)
        report = await _worker(run, effect.worker).probe(task, context)
        if report is None:
            outcome = "not_done"
        else:
            outcome = "done"
            if run.secrets is not None:
                report = run.secrets.report(report)
            step = run.state.steps[effect.step].doc
            verdict, data, raw = verify(run, effect.worker, step, report)
            if len(raw) > run.state.policy.inline_bytes:
                verdict, data, ref = await _put_apart(run, verdict, raw)
            reason = "" if verdict.met else "; ".join(verdict.findings)
    except asyncio.CancelledError:
        reason = "the probe was stopped"
    except BaseException as error:  # a probe that raises gives no answer
        if is_external_cancellation(error):
            raise
        reason = f"{type(error).__name__}: {error}"
    event = ev.ProbeReported(
        effect.step,
        effect.attempt,
        effect.epoch,
        outcome,
        data,
        ref,
        reason[:1000],
        verdict.met,
        tuple(verdict.findings),
    )

    def reported(state: State, _now: Now) -> Move:
        current = commands.is_current(state, effect.step, effect.epoch)
        return Move([event] if current else [], [])

    run.submit(reported)


async def ask(
    run: AttemptRun, effect: CallPlanner, told: Callable[[Doc | None, str], None] | None = None
) -> None:
    """Ask the planner, and submit its answer or the reason why there is none.

    With `told`, pass these to the caller instead.
    """
    answer: Doc | None = None
    reason = ""
    try:
        planner = run.planner_now()
        if planner is None:
            raise LookupError("this run's planner is not loaded")
        load = partial(data_of, run.host.store)
        view = planner_view(run.state, effect.call, effect.why, load)
        payer.set(PlannerPayer(run, effect.call))
        drafts.set(partial(_draft_refused, run, effect.call))
        run.host.spans.enter(run.id, run.secrets.text if run.secrets else None)
        decision = await planner.decide(view)
        doc = plain(decision_doc(decision), place="decision")
        if run.secrets is not None:
            doc = run.secrets.value(doc)
        if wrong := decision_problem(doc):
            raise TypeError(f"its decision has a wrong form: {wrong}")
        answer = msgspec.json.decode(msgspec.json.encode(doc))
    except asyncio.CancelledError:
        reason = "it was stopped"
    except BaseException as error:  # planners are user code too
        if is_external_cancellation(error):
            raise
        reason = f"{type(error).__name__}: {error}"[:2000]

    if told is not None:
        told(answer, reason)
        return

    def heard(state: State, now: Now) -> Move:
        if answer is not None:
            return Move(*record_answer(state, effect.call, effect.epoch, answer, now))
        failed = ev.PlannerFailed(effect.call, effect.epoch, reason)
        return Move([failed] if state.planner.epoch == effect.epoch else [], [])

    run.submit(heard)


def _draft_refused(run: AttemptRun, call: int, draft: RefusedDraft) -> None:
    """Record a proposal of its model that a planner refused."""
    event = ev.DraftRefused(
        call=call, findings=list(draft.findings), draft=draft.draft, answer=draft.answer
    )
    run.submit(lambda state, _now: Move([] if state.ended is not None else [event], []))


async def verify_goal(run: AttemptRun, effect: VerifyGoal) -> None:
    """Check the goal's acceptance criteria against the result."""
    try:
        findings = unmet(run, effect.result)
    except StoreError as error:
        findings = [f"the results could not be read: {error}"]
    event = ev.GoalChecked(not findings, findings)
    run.submit(lambda state, _now: Move([event] if state.goal_asked else [], []))


def unmet(run: AttemptRun, result: Json) -> list[str]:
    """Return the goal's acceptance criteria that do not hold; `result` is the planner's."""
    state, store = run.state, run.host.store
    taken_over = carried_data(state.started) if state.started is not None else {}
    steps: dict[str, Any] = {
        step: {"status": "succeeded", "data": data} for step, data in taken_over.items()
    }
    steps |= {
        view.id: {"status": view.status, "data": view.data} for view in step_views(store, state)
    }
    given = state.finish is not None and not goal_of(state).want
    whole = result if given else result_of(store, state)
    return goal_findings(acceptance(state), whole, steps)
