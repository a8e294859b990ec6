"""The tools: what an agent can do with plans and runs."""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from mcp import types
from msgspec import Meta, Struct

from leadhand.app.comparison import Compared, compare_revisions
from leadhand.app.documents import Driver, inbox_rows, run_rows, shown_document, worker_rows
from leadhand.app.library_history import library_rows
from leadhand.app.reader import Reader
from leadhand.app.step_graph import output_of, proposed_step, step_document
from leadhand.core.plan.diff import differences
from leadhand.core.plan.revisions import plan_of, revisions
from leadhand.core.review.ruling import reach, ruling
from leadhand.core.review.view import review_document
from leadhand.core.state.model import State
from leadhand.core.views.ledger import describe, ledger_of
from leadhand.core.views.run import ENDED, is_for_caller, run_status, settled_steps, state_words
from leadhand.errors import NotAllowed, StoreCorrupt, UsageError
from leadhand.mcp import pauses
from leadhand.mcp.runs import Wanted, Workplace, marks_of
from leadhand.mcp.server import OPERATOR, Call, Tool, result_of
from leadhand.mcp.tasks import Task, TaskSource
from leadhand.ports import RunQuery

if TYPE_CHECKING:
    from leadhand.app.lead import Lead
    from leadhand.core.plan.model import Doc, Json

WAIT_S = 45.0
"""How long a call waits by default: most clients give up after a minute."""
WAIT_MAX_S = 600.0
STEP_LOOK_S = 0.3
STEPS_SHOWN = 200
APPROVERS = {0: "none", 1: "one person", 2: "two people"}
YOUR_STEP = "You are the worker of its steps: call next_step."
AFTER_APPROVAL = "When this is answered, you are the worker of its steps: call next_step."
READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
STARTS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True}

RunId = Annotated[str, Meta(min_length=1, max_length=110)]
Key = Annotated[str, Meta(max_length=200)]
Limit = Annotated[int, Meta(ge=1, le=500)]
Seconds = Annotated[float, Meta(ge=0, le=WAIT_MAX_S)]
Labels = Annotated[list[str], Meta(max_length=20)]


class GoalArguments(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A goal in words and facts."""

    text: Annotated[str, Meta(max_length=20_000)] = ""
    want: list[str] = []
    have: dict[str, Any] = {}
    acceptance: list[str] = []
    budget: float | None = None
    mode: str | None = None


class StartArguments(Struct, forbid_unknown_fields=True):
    """What is to run."""

    plan: dict[str, Any] | None = None
    """A plan document: {"goal": …, "steps": [{"id", "worker", "action", …}]}."""
    library: str | None = None
    """Instead of a plan: the name of a plan in the library, NAME or NAME@VERSION."""
    goal: GoalArguments | None = None
    """Instead of a plan: a goal, which the configured planner plans. `text` says it in words,
    `want` names facts that should be true at the end, `have` facts that are true already."""
    params: dict[str, Any] = {}
    """The values of the plan's parameters."""
    context: str = ""
    """The environment that it runs in: a [context.NAME] of the project's settings."""
    labels: Labels = []
    """Labels of the run, as `name` or `name=value`."""
    request_key: Key = ""
    """Your own name for this request. The same key is the same run, however often you ask; without
    a key, the same plan with the same values is the same run."""

    def wanted(self, *, review: bool) -> Wanted:
        """Return what is to run. Raise `UsageError` unless exactly one thing is."""
        if sum(each is not None for each in (self.plan, self.library, self.goal)) != 1:
            raise UsageError("give exactly one of `plan`, `library` and `goal`")
        goal = msgspec.to_builtins(self.goal) if self.goal is not None else None
        return Wanted(
            plan=self.plan,
            library=self.library or "",
            goal=goal,
            params=self.params,
            context=self.context,
            labels=tuple(self.labels),
            review=review,
            key=self.request_key,
        )


class LintArguments(Struct, forbid_unknown_fields=True):
    """A plan to look at."""

    plan: dict[str, Any] | None = None
    """A plan document."""
    library: str | None = None
    """Instead of a plan: the name of a plan in the library."""
    params: dict[str, Any] = {}
    """The values of the plan's parameters."""
    context: str = ""
    """The environment that it would run in."""


class RunArguments(Struct, forbid_unknown_fields=True):
    """A run."""

    run: RunId
    """The id of the run; it may be shortened if it stays unique."""


class ShowPlanArguments(Struct, forbid_unknown_fields=True):
    """A plan of a run, or of the library."""

    run: str = ""
    """The id of a run."""
    revision: int | None = None
    """The number of a revision of the run's plan; by default what is pending, else what runs."""
    library: str = ""
    """Instead of a run: the name of a plan in the library."""


class DiffArguments(Struct, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}):
    """Two revisions of a run, or two plans."""

    run: str = ""
    """The id of a run, of which two revisions are compared."""
    start: int | None = None
    """The older revision; the one before `to` by default. 0 is the empty plan."""
    end: int | None = None
    """The newer revision; the last one by default."""
    old: dict[str, Any] | None = None
    """Instead of a run: a plan document."""
    new: dict[str, Any] | None = None
    """The plan document to compare it with."""


class WaitArguments(Struct, forbid_unknown_fields=True):
    """How long to wait for what."""

    run: RunId
    """The id of the run."""
    seconds: Seconds = WAIT_S
    """How long to wait at most; the run goes on when the time is over."""
    return_if_waiting: bool = False
    """Return at once if the run waits for a person already, in place of waiting for the answer."""


class StepArguments(Struct, forbid_unknown_fields=True):
    """A step of a run."""

    run: RunId
    """The id of the run."""
    step: Annotated[str, Meta(min_length=1, max_length=200)]
    """The id of the step."""
    output: bool = False
    """Whether to add what the last attempt printed."""


class LogArguments(Struct, forbid_unknown_fields=True):
    """A part of a run's event log."""

    run: RunId
    """The id of the run."""
    after: Annotated[int, Meta(ge=0)] = 0
    """Only entries with a higher number."""
    limit: Limit = 100
    """How many entries at most."""


class ArtifactArguments(Struct, forbid_unknown_fields=True):
    """Data of a run that is kept as a file."""

    ref: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
    """Its name, `sha256:…`, as steps and results refer to it."""
    offset: Annotated[int, Meta(ge=0)] = 0
    """Where to begin, in bytes."""
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 100_000
    """How many bytes at most."""


class AnswerArguments(Struct, forbid_unknown_fields=True):
    """An answer to something that waits."""

    question: Annotated[str, Meta(min_length=3, max_length=300)]
    """RUN/QUESTION, as `list_inbox` and `wait_for_run` show it."""
    choice: str = ""
    """One of its answers; empty if it is answered in words."""
    text: Annotated[str, Meta(max_length=20_000)] = ""
    """The answer in words, or a comment on the choice."""
    data: Any = None
    """The answer as JSON, where facts are asked for."""
    digest: str = ""
    """For an approval: the digest of the plan that was shown, whole."""


class InboxArguments(Struct, forbid_unknown_fields=True):
    """What waits."""

    run: str = ""
    """Only what this run waits for."""
    limit: Limit = 50
    """How many at most."""


class ListArguments(Struct, forbid_unknown_fields=True):
    """A list."""

    limit: Limit = 100
    """How many at most."""


class NextStepArguments(Struct, forbid_unknown_fields=True):
    """A run whose steps the agent itself carries out."""

    run: RunId
    """The id of the run."""
    seconds: Annotated[float, Meta(ge=0, le=60)] = 10.0
    """How long to wait for a step while other workers are at work."""
    lease: Annotated[float, Meta(ge=1, le=86_400)] | None = None
    """For how many seconds you need the step before you report; 15 minutes by default."""


class ReportArguments(Struct, forbid_unknown_fields=True):
    """What became of a step that the agent was given."""

    run: RunId
    """The id of the run."""
    step: Annotated[str, Meta(min_length=1, max_length=200)]
    """The id of the step, as next_step has given it."""
    attempt: Annotated[int, Meta(ge=1)]
    """The number of the attempt, as next_step has given it."""
    status: Literal["succeeded", "failed"] = "succeeded"
    """What you claim; the criteria of the step decide."""
    data: Any = None
    """The result, by which the criteria are checked."""
    error: Annotated[str, Meta(max_length=20_000)] = ""
    """Why it failed."""
    effect: Literal["none", "done", "unknown"] = "unknown"
    """Of a failure: whether it changed anything all the same."""
    cost: Annotated[float, Meta(ge=0)] = 0.0
    """What it cost, counted against the budget of the run."""
    output: Annotated[str, Meta(max_length=200_000)] = ""
    """Printed output, for readers of the log."""


class ExtendArguments(Struct, forbid_unknown_fields=True):
    """More time for a step that the agent was given."""

    run: RunId
    """The id of the run."""
    step: Annotated[str, Meta(min_length=1, max_length=200)]
    """The id of the step."""
    attempt: Annotated[int, Meta(ge=1)]
    """The number of the attempt."""
    lease: Annotated[float, Meta(ge=1, le=86_400)] | None = None
    """For how many more seconds you need it; 15 minutes by default."""


class CancelArguments(Struct, forbid_unknown_fields=True):
    """A run that is to end."""

    run: RunId
    """The id of the run."""
    reason: Annotated[str, Meta(max_length=2000)] = ""
    """Why, for the log."""


# What is told of a run.


async def report(place: Workplace, call: Call, state: State, **more: Any) -> Doc:
    """Return how a run stands, with what it waits for."""

    def look(reader: Reader) -> Doc:
        driver = Driver.of(settings.store, reader)
        doc = msgspec.to_builtins(shown_document(reader, reader.state(state.run), driver))
        names = ("run", "status", "headline", "goal", "reason", "result", "cost", "duration")
        found = {name: doc[name] for name in names} | {"steps": _steps(doc["steps"])}
        return found | ({"awaiting": doc["awaiting"]} if "awaiting" in doc else {})

    settings = await asyncio.to_thread(place.settings)
    found: Doc = await place.look(look)
    waits = pauses.pauses_of(state, settings, call.caller.actor)
    if waits and run_status(state) not in ENDED:
        found["input_required"] = msgspec.to_builtins(waits)
    if run_status(state) == "waiting" and is_for_caller(state):
        found["next"] = AFTER_APPROVAL if waits else YOUR_STEP
    return {**more, **found}


def _steps(rows: list[Doc]) -> list[Doc]:
    short = [
        {key: row[key] for key in ("id", "status", "worker", "attempts", "error") if row.get(key)}
        for row in rows[:STEPS_SHOWN]
    ]
    more = len(rows) - STEPS_SHOWN
    return [*short, *([{"id": f"and {more} more"}] if more > 0 else [])]


def summary_line(state: State) -> str:
    """Return how far a run is, in one line."""
    return f"{state_words(state)}: {settled_steps(state)} of {len(state.steps)} steps ended"


class Tools:
    """The tools of one project."""

    def __init__(self, place: Workplace, tasks: TaskSource) -> None:
        self._place = place
        self._tasks = tasks

    async def _task(self, call: Call, run: str, state: State) -> Task | None:
        """Return a run as a task, if the client takes tasks and the run has not ended."""
        if not call.tasks or run_status(state) in ENDED:
            return None
        return await self._tasks.get(call, run)

    # Plans.

    async def propose_plan(self, call: Call, given: StartArguments) -> Any:
        """Put a plan or a goal before people: a run that waits for their approval."""
        return await self._started(call, given.wanted(review=True))

    async def start_run(self, call: Call, given: StartArguments) -> Any:
        """Start a plan or a goal; the policy says whether a person must approve it."""
        return await self._started(call, given.wanted(review=False))

    async def _started(self, call: Call, wanted: Wanted) -> Any:
        run, new = await self._place.start(wanted, call.caller)
        state = await self._place.settle(run, WAIT_S / 3 if wanted.review else 1.0)
        if task := await self._task(call, run, state):
            return task
        if run_status(state) == "waiting" and await pauses.ask_about(self._place, call, state):
            state = await self._place.settle(run, 1.0)
        return await report(self._place, call, state, new=new)

    async def lint_plan(self, _call: Call, given: LintArguments) -> Doc:
        """Check a plan; nothing is started."""
        if (given.plan is None) == (given.library is None):
            raise UsageError("give either `plan` or `library`")
        wanted = Wanted(
            plan=given.plan,
            library=given.library or "",
            params=given.params,
            context=given.context,
        )
        return await asyncio.to_thread(self._linted, wanted)

    def _linted(self, wanted: Wanted) -> Doc:
        found, settings = self._place.check(wanted), self._place.settings(wanted.context)
        doc: Doc = {
            "valid": found.valid,
            "findings": msgspec.to_builtins([each.document() for each in found.findings]),
        }
        if not found.valid:
            return doc
        state = State()
        state.policy, state.catalog = settings.policy, found.registry.catalog()
        state.permits.tainted = True
        reached = reach(found.doc["steps"], state.catalog, found.doc.get("risk_level"))
        ruled = ruling(state, reached, None)
        needs = "refused" if ruled.refused else APPROVERS.get(ruled.people, "two people")
        return doc | {
            "risk": reached.declared,
            "policy_risk": reached.risk,
            "effects": sorted(reached.effects),
            "approvals": needs,
            "approvals_reason": ruled.reason,
        }

    async def show_plan(self, _call: Call, given: ShowPlanArguments) -> Doc:
        """Return the plan of a run as it will run, or a plan of the library."""
        if bool(given.run) == bool(given.library):
            raise UsageError("give either `run` or `library`")

        def look(reader: Reader) -> Doc:
            if given.library:
                from leadhand.engine.library_store import find

                saved = find(reader.store, given.library)
                return {"library": saved.label, "plan": saved.document}
            run = reader.resolve(given.run)
            if given.revision is not None:
                return _revision(reader, run, given.revision)
            state = reader.state(run)
            if state.pending is None:
                return {"run": run, "status": run_status(state), "plan": plan_of(state)[0]}
            doc: Doc = msgspec.to_builtins(review_document(state, pauses.now_of(state)))
            return {"status": run_status(state), **doc}

        found: Doc = await self._place.look(look)
        return found

    async def diff_plans(self, _call: Call, given: DiffArguments) -> Doc:
        """Compare two revisions of a run, or two plans, by meaning."""
        if given.run and given.old is None and given.new is None:
            look = partial(_compared, run=given.run, start=given.start, end=given.end)
            found: Doc = await self._place.look(look)
            return found
        if given.run or given.old is None or given.new is None:
            raise UsageError("give either `run`, or both `old` and `new`")
        compared = Compared("old", "new", differences(given.old, given.new))
        return msgspec.to_builtins(compared.document())  # type: ignore[no-any-return]

    # Runs.

    async def wait_for_run(self, call: Call, given: WaitArguments) -> Any:
        """Wait until a run has ended, or waits for something that it did not wait for before."""
        state = await self._place.state(given.run)
        before = frozenset[str]()
        if not given.return_if_waiting and pauses.only_people(state, call.caller.actor):
            before = marks_of(state)
        await self._place.take_up(state.run)
        if task := await self._task(call, state.run, state):
            return task

        async def told(seen: State) -> None:
            await call.progress(settled_steps(seen), len(seen.steps) or None, summary_line(seen))

        if not before:
            state = await self._place.settle(state.run, given.seconds, told)
        asked = run_status(state) == "waiting" and await pauses.ask_about(self._place, call, state)
        if before or asked:
            state = await self._place.settle(state.run, given.seconds, told, before)
        return await report(self._place, call, state)

    async def get_run(self, call: Call, given: RunArguments) -> Doc:
        """Return how a run stands."""
        return await report(self._place, call, await self._place.state(given.run))

    async def list_runs(self, _call: Call, given: ListArguments) -> Doc:
        """Return the latest runs."""
        settings = await asyncio.to_thread(self._place.settings)

        def look(reader: Reader) -> Doc:
            driver = Driver.of(settings.store, reader)
            rows, _ = run_rows(reader, driver, RunQuery(limit=given.limit))
            return {"runs": msgspec.to_builtins(rows)}

        found: Doc = await self._place.look(look)
        return found

    async def cancel_run(self, call: Call, given: CancelArguments) -> Doc:
        """Cancel a run that this agent started."""
        from leadhand.app.commands import send_command

        state, settings = await self._place.state(given.run), self._place.settings()
        await send_command(
            settings.store,
            state.run,
            "cancel",
            actor=call.caller.actor,
            anchoring=settings.anchoring,
            reason=given.reason,
        )
        await self._place.take_up(state.run)
        return await report(self._place, call, await self._place.settle(state.run, 5.0))

    async def get_step(self, _call: Call, given: StepArguments) -> Doc:
        """Return a step: inputs, attempts, result and criteria."""

        def look(reader: Reader) -> Doc:
            state = reader.state(reader.resolve(given.run))
            step = state.steps.get(given.step) or proposed_step(state, given.step)
            if step is None:
                raise UsageError(f"run {state.run} has no step {given.step[:100]}")
            doc: Doc = msgspec.to_builtins(step_document(reader, state, step))
            if given.output:
                log = [
                    pair
                    for pair in reader.events(state.run)
                    if getattr(pair[1], "step", None) == given.step
                ]
                doc["output"] = output_of(reader, log, None)
            return doc

        found: Doc = await self._place.look(look)
        return found

    async def read_log(self, _call: Call, given: LogArguments) -> Doc:
        """Return entries of a run's event log, oldest first."""

        def look(reader: Reader) -> Doc:
            run = reader.resolve(given.run)
            pairs = reader.events(run, 0)
            later = [pair for pair in pairs if pair[0].seq > given.after]
            rows = [
                {
                    "seq": entry.seq,
                    "at": entry.at,
                    "type": type(event).__name__,
                    "ledger": ledger_of(event),
                    "text": describe(event),
                }
                for entry, event in later[: given.limit]
            ]
            more = len(later) > given.limit
            return {"run": run, "entries": rows, "next": rows[-1]["seq"] if more else None}

        found: Doc = await self._place.look(look)
        return found

    async def read_artifact(self, _call: Call, given: ArtifactArguments) -> Any:
        """Return data that is kept as a file."""

        def look(reader: Reader) -> bytes:
            try:
                return reader.store.get_artifact(given.ref)
            except StoreCorrupt:
                raise UsageError(f"there is no artifact {given.ref}") from None

        data: bytes = await self._place.look(look)
        part = data[given.offset : given.offset + given.limit]
        doc: Doc = {"ref": given.ref, "bytes": len(data), "offset": given.offset}
        try:
            return doc | {"text": part.decode("utf-8")}
        except UnicodeDecodeError:
            return doc | {"base64": base64.b64encode(part).decode()}

    # Steps that the agent itself carries out.

    async def _lead(self, run: str) -> tuple[Lead, str]:
        """Return a Lead for requests to the process that drives a run, and the run's whole id."""
        from leadhand.app.composition import registry_of
        from leadhand.app.lead import Lead

        def make() -> Lead:
            settings = self._place.settings()
            return Lead(registry_of(settings), store=settings.store, policy=settings.policy)

        state = await self._place.state(run)
        await self._place.take_up(state.run)
        return await asyncio.to_thread(make), state.run

    async def next_step(self, call: Call, given: NextStepArguments) -> Doc:
        """Hand the next step with `worker: caller` out to the agent."""
        lead, run = await self._lead(given.run)
        loop = asyncio.get_running_loop()
        until, waits = loop.time() + given.seconds, list[pauses.Pause]()
        while True:
            found = await lead.next_step(run, caller=call.caller.actor, lease=given.lease)
            if found.step is not None or found.ended:
                break
            state, settings = await self._place.state(run), self._place.settings()
            waits = pauses.pauses_of(state, settings, call.caller.actor)
            if waits or loop.time() >= until:
                break
            await asyncio.sleep(STEP_LOOK_S)
        doc: Doc = msgspec.to_builtins(found)
        doc |= {"input_required": msgspec.to_builtins(waits)} if waits else {}
        doc.pop("waiting_for", None)
        return doc

    async def report_step(self, call: Call, given: ReportArguments) -> Doc:
        """Take the agent's report; the criteria of the step decide whether it succeeded."""
        lead, run = await self._lead(given.run)
        found = await lead.report_step(
            run,
            given.step,
            attempt=given.attempt,
            caller=call.caller.actor,
            status=given.status,
            data=given.data,
            error=given.error,
            effect=given.effect,
            cost=given.cost,
            output=given.output,
        )
        doc: Doc = msgspec.to_builtins(found)
        doc.pop("waiting_for", None)
        return doc

    async def extend_step(self, call: Call, given: ExtendArguments) -> Doc:
        """Give the agent more time for its step."""
        lead, run = await self._lead(given.run)
        found = await lead.extend_step(
            run, given.step, attempt=given.attempt, caller=call.caller.actor, lease=given.lease
        )
        doc: Doc = msgspec.to_builtins(found)
        return doc

    # What waits.

    async def answer(self, call: Call, given: AnswerArguments) -> Any:
        """Answer what an agent may answer; otherwise say how a person does."""
        fields = {"choice": given.choice, "text": given.text, "data": given.data}
        try:
            done = await pauses.give_answer(
                self._place, call, given.question, shown=given.digest, **fields
            )
        except NotAllowed as error:
            return await self._refused(call, given.question, error)
        await self._place.take_up(str(done["run"]))
        state = await self._place.settle(str(done["run"]), 1.0)
        return await report(self._place, call, state, answered=given.question)

    async def _refused(self, call: Call, question: str, error: NotAllowed) -> types.CallToolResult:
        run, _, name = question.partition("/")
        state, settings = await self._place.state(run), self._place.settings()
        waits = pauses.pauses_of(state, settings, call.caller.actor)
        way = next((each.for_person for each in waits if each.question.endswith(f"/{name}")), "")
        doc = {
            "error": str(error),
            "code": error.exit_code,
            "kind": "NotAllowed",
            "for_person": way,
        }
        return result_of(doc, error=True)

    async def list_inbox(self, call: Call, given: InboxArguments) -> Doc:
        """Return what waits for an answer, oldest first, with the answers this agent may give."""

        def look(reader: Reader) -> Doc:
            run = reader.resolve(given.run) if given.run else ""
            rows = [r for r in inbox_rows(reader, lambda _error: None) if not run or r.run == run]
            found: list[Json] = []
            for row in rows[: given.limit]:
                state = reader.state(row.run)
                told = pauses.pauses_of(state, settings, call.caller.actor)
                found += [msgspec.to_builtins(each) for each in told if each.question == row.id]
            return {"items": found, "total": len(rows)}

        settings = await asyncio.to_thread(self._place.settings)
        items: Doc = await self._place.look(look)
        return items

    # What there is.

    async def list_workers(self, _call: Call, _given: ListArguments) -> Doc:
        """Return the workers that plans may use."""
        from leadhand.app.composition import registry_of

        def look() -> Doc:
            registry = registry_of(self._place.settings())
            rows = msgspec.to_builtins(worker_rows(registry))
            for row in rows:
                row.pop("covers")
            return {"workers": rows}

        return await asyncio.to_thread(look)

    async def list_library(self, _call: Call, _given: ListArguments) -> Doc:
        """Return the plans of the library."""
        found: Doc = await self._place.look(
            lambda reader: {"plans": msgspec.to_builtins(library_rows(reader))}
        )
        return found

    def all(self) -> list[Tool]:
        """Return all tools."""
        return [
            *_plan_tools(self),
            *_run_tools(self),
            *_detail_tools(self),
            *_step_tools(self),
            *_other_tools(self),
        ]


def _revision(reader: Reader, run: str, number: int) -> Doc:
    found = [each for each in revisions(e for _, e in reader.events(run)) if each.number == number]
    if not found:
        raise UsageError(f"run {run} has no revision {number}")
    last = found[-1]
    return {"run": run, "revision": number, "status": last.status, "plan": last.doc}


def _compared(reader: Reader, run: str, start: int | None, end: int | None) -> Doc:
    found = compare_revisions(reader, reader.resolve(run), start, end)
    return msgspec.to_builtins(found.document())  # type: ignore[no-any-return]


APPROVAL = (
    "You cannot approve what the policy reserves for people: then the result has `input_required`, "
    "with the plan's digest and how a person decides; tell your user, and wait with wait_for_run."
)


def _plan_tools(tools: Tools) -> list[Tool]:
    return [
        Tool(
            name="propose_plan",
            title="Propose a plan",
            description="Put a plan, a plan of the library or a goal before people: it is checked, "
            "and becomes a run that executes nothing until a person has approved exactly this "
            f"plan. {APPROVAL} Check a plan with lint_plan first; list_workers has the workers.",
            arguments=StartArguments,
            run=tools.propose_plan,
            role=OPERATOR,
            hints={**STARTS, "destructiveHint": False},
        ),
        Tool(
            name="lint_plan",
            title="Check a plan",
            description="Check a plan document without running anything: every error and warning "
            "with its place and fix, the risk, the effects, and the approvals it would need.",
            arguments=LintArguments,
            run=tools.lint_plan,
            hints=READ_ONLY,
        ),
        Tool(
            name="show_plan",
            title="Show a plan",
            description="Show the plan of a run exactly as it will run, with its digest, risk and "
            "effects if it waits for approval; or a plan of the library.",
            arguments=ShowPlanArguments,
            run=tools.show_plan,
            hints=READ_ONLY,
        ),
        Tool(
            name="diff_plans",
            title="Compare plans",
            description="Compare two revisions of a run's plan, or two plan documents, by meaning.",
            arguments=DiffArguments,
            run=tools.diff_plans,
            hints=READ_ONLY,
        ),
    ]


def _run_tools(tools: Tools) -> list[Tool]:
    return [
        Tool(
            name="start_run",
            title="Start a run",
            description="Run a plan, a plan of the library or a goal. The policy decides whether a "
            f"person must approve it first. {APPROVAL} The run goes on without you; the same "
            "request again returns the same run.",
            arguments=StartArguments,
            run=tools.start_run,
            role=OPERATOR,
            hints=STARTS,
        ),
        Tool(
            name="wait_for_run",
            title="Wait for a run",
            description="Wait until a run has ended or waits for something new, with progress. If "
            "it waits for a person already, wait for the answer (`return_if_waiting`: do not). "
            "After the time the run goes on: call again. A run whose process has died is resumed.",
            arguments=WaitArguments,
            run=tools.wait_for_run,
            role=OPERATOR,
            hints={"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
        ),
        Tool(
            name="get_run",
            title="Show a run",
            description="Show how a run stands: status, steps, result, cost, what it waits for.",
            arguments=RunArguments,
            run=tools.get_run,
            hints=READ_ONLY,
        ),
        Tool(
            name="list_runs",
            title="List runs",
            description="List the latest runs, newest first.",
            arguments=ListArguments,
            run=tools.list_runs,
            hints=READ_ONLY,
        ),
        Tool(
            name="cancel_run",
            title="Cancel a run",
            description="Cancel a run that you have started: no step starts any more.",
            arguments=CancelArguments,
            run=tools.cancel_run,
            role=OPERATOR,
            hints={"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True},
        ),
    ]


def _detail_tools(tools: Tools) -> list[Tool]:
    return [
        Tool(
            name="get_step",
            title="Show a step",
            description="Show a step of a run: inputs, attempts, checks, result, failure.",
            arguments=StepArguments,
            run=tools.get_step,
            hints=READ_ONLY,
        ),
        Tool(
            name="read_log",
            title="Read the log of a run",
            description="Read the event log of a run, oldest first: every decision and its reason.",
            arguments=LogArguments,
            run=tools.read_log,
            hints=READ_ONLY,
        ),
        Tool(
            name="read_artifact",
            title="Read an artifact",
            description="Read data that a run keeps as a file, by its name sha256:….",
            arguments=ArtifactArguments,
            run=tools.read_artifact,
            hints=READ_ONLY,
        ),
    ]


def _step_tools(tools: Tools) -> list[Tool]:
    own = {"readOnlyHint": False, "destructiveHint": False}
    return [
        Tool(
            name="next_step",
            title="Get your next step",
            description="In a run whose steps have `worker: caller`, you are the worker: get the "
            "next step that may start, with its inputs and criteria. One step at a time; the same "
            "step comes again until you report it. Without a step, `status` and `input_required` "
            "say what the run waits for.",
            arguments=NextStepArguments,
            run=tools.next_step,
            role=OPERATOR,
            hints=own,
        ),
        Tool(
            name="report_step",
            title="Report your step",
            description="Report the step that next_step gave you, with its data. The criteria of "
            "the step are checked: `met` says whether it counts as succeeded, `findings` why not. "
            "Report failures as failures.",
            arguments=ReportArguments,
            run=tools.report_step,
            role=OPERATOR,
            hints={**own, "idempotentHint": True},
        ),
        Tool(
            name="extend_step",
            title="Keep your step longer",
            description="Ask for more time for the step that next_step gave you, before its "
            "deadline.",
            arguments=ExtendArguments,
            run=tools.extend_step,
            role=OPERATOR,
            hints=own,
        ),
    ]


def _other_tools(tools: Tools) -> list[Tool]:
    return [
        Tool(
            name="answer",
            title="Answer a question",
            description="Answer something that a run waits for, if you may: `yours` of "
            "input_required lists your answers. Everything else is reserved for people, and comes "
            "back with the way in which a person answers it.",
            arguments=AnswerArguments,
            run=tools.answer,
            role=OPERATOR,
            hints={"readOnlyHint": False, "destructiveHint": True},
        ),
        Tool(
            name="list_inbox",
            title="List what waits",
            description="List the approvals, questions and tasks that wait for an answer.",
            arguments=InboxArguments,
            run=tools.list_inbox,
            hints=READ_ONLY,
        ),
        Tool(
            name="list_workers",
            title="List workers",
            description="List the workers that the steps of a plan may use: actions, parameters, "
            "effects, risk.",
            arguments=ListArguments,
            run=tools.list_workers,
            hints=READ_ONLY,
        ),
        Tool(
            name="list_library",
            title="List the library",
            description="List the saved plans, with how their runs ended.",
            arguments=ListArguments,
            run=tools.list_library,
            hints=READ_ONLY,
        ),
    ]
