"""A database as documents, in one form for `--json` and the server.

A document is made from a reader, never from a host's memory: it shows durable state.
"""

from __future__ import annotations

from heapq import nsmallest
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, Struct, UnsetType, field, to_builtins

from leadhand.app.reader import Reader, summary_of
from leadhand.audit.anchors import file_of
from leadhand.core.calendar import iso
from leadhand.core.catalog import NOT_DECLARED
from leadhand.core.plan.model import Doc
from leadhand.core.review.approval import ApprovalRow, approvals_in_log
from leadhand.core.rollback import can_roll_back, rollback_id, to_roll_back
from leadhand.core.state.recovery_log import RecoveryOutcome
from leadhand.core.views.failure_origin import (
    FailureOrigin,
    RefusedProposal,
    origin_of_run,
    refusals,
)
from leadhand.core.views.inbox import InboxRow, inbox_row, wants_words
from leadhand.core.views.recovery_stats import WinRate, recoveries, win_rates
from leadhand.core.views.run import (
    ENDED,
    RunOutcome,
    deep_copy,
    detailed_step_row,
    run_outcome,
    run_status,
    summary,
)
from leadhand.core.views.timeline import SpanRow, span_row, timeline
from leadhand.engine.results import result_of
from leadhand.errors import StoreError
from leadhand.settings import DATABASE
from leadhand.settings.descriptions import description_of, value_text
from leadhand.settings.folders import FOLDER
from leadhand.settings.schema import SCHEMAS
from leadhand.settings.sections import sections
from leadhand.stores.archive import archive_folder
from leadhand.stores.location import home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leadhand.core.events import GuestProcess
    from leadhand.core.state.model import State
    from leadhand.core.state.records import Question
    from leadhand.ports import RunHeader, RunQuery
    from leadhand.settings import Settings
    from leadhand.stores.location import StoreLocation
    from leadhand.workers.registry import Registry

UNREADABLE = "unreadable"
QUEUED = "queued"
"""The status of a run on a hosting service that no engine has started."""
NOT_BEGUN = "not begun"
"""The status of a rollback that is due and not started."""


class Driver(NamedTuple):
    """The process that hosts a database, and the number of its ownership; 0 for none."""

    pid: int | str = 0
    """Or the service elsewhere that hosts runs: `temporal ADDRESS`."""
    owner: int = 0
    every: bool = False
    """Whether all open runs are driven: those that are hosted elsewhere."""
    runs: frozenset[str] | None = None
    """The driven runs, if known for each: by a service elsewhere."""

    @classmethod
    def of(cls, place: StoreLocation, reader: Reader) -> Driver:
        """Return the current host of a database."""
        from leadhand.app.store_factory import host_info

        holder = host_info(place)
        return cls() if holder is None else cls(int(holder["pid"]), reader.host_state().owner)

    def drives(self, state: State) -> int | str:
        """Return the process that drives a run now, or 0: a host need not drive every run.

        A run with a process of its own is driven as long as that process lives, through any host:
        it outlives hosts.
        """
        if self.runs is not None:
            return self.pid if state.run in self.runs else 0
        if state.process is not None and not self.every:
            return process_of(state)
        return self.pid if self.every or self.owner == state.owner else 0


def process_of(state: State) -> int:
    """Return the pid of the run's own process, if it has one that is alive; else 0."""
    from leadhand.workers.processes.machine import is_alive

    own = state.process
    return own.pid if own is not None and is_alive(own) else 0


def resume_command(
    run: str, process: GuestProcess, store: StoreLocation, verb: str = "resume"
) -> str:
    """Return the shell command that resumes a run where its own process was started."""
    usual = Path(process.folder) / FOLDER / DATABASE
    where = "" if home(store).resolve() == usual.resolve() else f" --store {quote(str(store))}"
    python = f"{quote(process.python)} -m leadhand.cli"
    return f"cd {quote(process.folder)} && {python} {verb} {run}{where}"


# Lists.


class RunRow(Struct, kw_only=True):
    """A run in a list; what is not known of it is null."""

    goal: str
    """The goal in a sentence."""
    plan: str
    """The `plan_id` of the plan."""
    cost: float | None
    """What counts against the budget: money, and the cost units of workers."""
    money: float | None
    """What models and coding agents cost, in dollars."""
    run: str
    """The id of the run."""
    status: str
    """The status of the run."""
    steps: int | None
    """The number of steps."""
    settled: int | None
    """The number of steps that have ended, in any way."""
    succeeded: int | None
    """The number of steps that succeeded."""
    failed: int | None
    """The number of steps that failed."""
    replaced: int | None
    """Steps that others took the place of."""
    waiting: int | None
    """The number of open questions to people."""
    awaiting: str | UnsetType = UNSET
    """For what it waits: `approval` or `input`."""
    library: str | UnsetType = UNSET
    """The plan of the library it was started from, as `deploy@3`."""
    archive: int | UnsetType = UNSET
    """The number of the archive that holds its log; missing if the database does."""
    trouble: str | UnsetType = UNSET
    """What is wrong with its log or its summary."""
    created: str | None
    """When the run was created, in ISO 8601."""
    updated: str | None
    """When the log of the run last changed, in ISO 8601."""
    host: int | str | None
    """What drives it: a process, or a Temporal server."""
    started: str | None
    """When the run was created, in ISO 8601."""
    ended: str | None = None
    """When it ended, in ISO 8601; null while it is open."""
    duration: float | None = None
    """From its creation to its end, or to its last change, in seconds."""
    actor: str = ""
    """The person who started it."""
    labels: tuple[str, ...] = ()
    """Its labels, as `name` or `name=value`."""
    environment: str = ""
    """The environment that it was started in; empty if the settings name none."""
    reason: str = ""
    """Why it ended without success, shortened."""
    origin: str = ""
    """Where the cause of an end without success lies: planning, execution, limits or person."""


def run_rows(reader: Reader, driver: Driver, query: RunQuery) -> tuple[list[RunRow], str | None]:
    """Return a page of runs, and the cursor of the next; open ones are folded to be exact.

    Raise `ValueError` for a cursor that was not given out.
    """
    if query.status == (UNREADABLE,):  # which runs these are shows only when they are read
        found = reader.open_runs()
        rows = [run_row(reader, header, driver) for header in found]
        return [row for row in rows if row.status == UNREADABLE][: query.limit], None
    headers, further = reader.find_runs(query)
    return [run_row(reader, header, driver) for header in headers], further


def run_row(reader: Reader, header: RunHeader, driver: Driver) -> RunRow:
    """Return the row of one run; for a damaged run, the known parts and the problem."""
    said = summary_of(header)
    pid: int | str = 0
    status = trouble = ""
    if said is None or said.status not in ENDED:
        try:
            state = reader.state(header.run)
        except StoreError as error:
            status, trouble = UNREADABLE, str(error).partition(" Fix: ")[0]
        else:
            if said is None and header.summary:
                trouble = "the summary of this run is damaged; its log was read instead"
            said, pid = summary(state), driver.drives(state)
    ended = said.ended if said else 0
    return RunRow(
        goal=said.goal if said else "",
        plan=said.plan if said else "",
        cost=said.cost if said else None,
        money=said.money if said else None,
        run=header.run,
        status=status or (said.status if said else ""),
        steps=said.steps if said else None,
        settled=said.settled if said else None,
        succeeded=said.succeeded if said else None,
        failed=said.failed if said else None,
        replaced=said.replaced if said else None,
        waiting=said.waiting if said else None,
        awaiting=(said.awaiting if said else "") or UNSET,
        library=said.library if said else UNSET,
        archive=(reader.store.archive_number(header.run) if ended else 0) or UNSET,
        trouble=trouble or UNSET,
        created=iso(header.created),
        updated=iso(header.updated),
        host=pid or None,
        started=iso(header.created),
        ended=iso(ended) if ended else None,
        duration=round(((ended or header.updated) - header.created) / 1e6, 3),
        actor=said.actor if said else "",
        labels=said.labels if said else (),
        environment=said.environment if said else "",
        reason=said.reason if said else "",
        origin=said.origin if said else "",
    )


def queued_rows(driver: Driver, reader: Reader) -> list[RunRow]:
    """Return the runs that a service elsewhere has and that the log does not show yet."""
    waiting = [run for run in driver.runs or () if reader.store.header(run) is None]
    return [_queued_row(run, driver) for run in sorted(waiting)]


def _queued_row(run: str, driver: Driver) -> RunRow:
    return RunRow(
        goal="",
        plan="",
        cost=None,
        money=None,
        run=run,
        status=QUEUED,
        steps=None,
        settled=None,
        succeeded=None,
        failed=None,
        replaced=None,
        waiting=None,
        created=None,
        updated=None,
        host=driver.pid,
        started=None,
    )


def inbox_rows(reader: Reader, left_out: Callable[[StoreError], None]) -> list[InboxRow]:
    """Return what waits, oldest first. Summaries say which runs need to be looked at."""
    rows: list[InboxRow] = []
    for state in _waiting(reader, left_out):
        rows += [_asked(state, question) for question in state.questions.values()]
    return sorted(rows, key=lambda row: row.since)


class InboxPage(Struct):
    """What waits for people, oldest first."""

    items: list[InboxRow]
    """The open questions of this page."""
    next: str | None
    """The cursor of the next page."""
    total: int
    """How much waits, on this page and on all others."""


def inbox_page(reader: Reader, cursor: str | None, limit: int) -> InboxPage:
    """Return open questions after a cursor, oldest first: at most `limit` rows.

    Only the rows of the page are made. Runs that cannot be read are left out. Raise `ValueError`
    for a malformed cursor.
    """
    after = (0, "", "")
    if cursor:
        at, run, ident = cursor.split(" ", 2)
        after = (int(at), run, ident)
    known = [
        (question.at, state.run, question.id)
        for state in _waiting(reader, lambda _error: None)
        for question in state.questions.values()
    ]
    wanted = nsmallest(limit + 1, (key for key in known if key > after))
    rows: list[InboxRow] = []
    for _, run, ident in wanted[:limit]:
        state = reader.state(run)
        if (question := state.questions.get(ident)) is not None:
            rows.append(_asked(state, question))
    further = " ".join(map(str, wanted[limit - 1])) if len(wanted) > limit else None
    return InboxPage(rows, further, len(known))


def _waiting(reader: Reader, left_out: Callable[[StoreError], None]) -> Iterator[State]:
    """Yield the runs with open questions, folded one by one."""
    for header in reader.waiting_runs():
        try:
            yield reader.state(header.run)
        except StoreError as error:  # the others may still be answered
            left_out(error)


def _asked(state: State, question: Question) -> InboxRow:
    row = inbox_row(state, question.id)
    row.words = wants_words(state, question)
    return row


class WorkerRow(Struct, kw_only=True):
    """An action that a worker offers."""

    worker: str
    """The name of the worker."""
    action: str
    """Empty: any."""
    kind: str
    """The kind of worker, such as function, command or http."""
    version: str
    """The version to which approvals are bound."""
    risk: str
    """A level, or `not declared`."""
    policy_risk: str
    """The level that policies count it as."""
    effects: list[str]
    """What it changes in the world."""
    idempotent: bool
    """Whether running it twice has the same effect as running it once."""
    probe: bool
    """Whether it can find out if a lost attempt took effect."""
    timeout: float | None
    """The longest that one attempt may take, in seconds; null: the policy's timeout."""
    checks: list[str]
    """The names of its checks, for success criteria."""
    parameters: Doc | None
    """A JSON Schema; null: any."""
    description: str
    """What it does."""
    covers: Doc | None
    """The files and the names of values that its version covers; null of a person."""


def worker_rows(registry: Registry) -> list[WorkerRow]:
    """Return what every worker offers, a row each, and what its version covers."""
    catalog, covers = registry.catalog(), registry.coverage()
    return [
        WorkerRow(
            worker=spec.name,
            action=action,
            kind=spec.kind,
            version=spec.version,
            risk=offer.risk or NOT_DECLARED,
            policy_risk=catalog.risk(spec.name, action),
            effects=list(offer.effects or ()),
            idempotent=offer.idempotent,
            probe=offer.probe,
            timeout=offer.timeout_s,
            checks=list(offer.checks),
            parameters=offer.parameters,
            description=spec.description,
            covers=covers[spec.name].to_doc() if spec.name in covers else None,
        )
        for spec in catalog.workers.values()
        for action, offer in spec.offers.items()
    ]


# One run.


def rollback_status(reader: Reader, state: State) -> str:
    """Return the status of a run's rollback; empty if none is due."""
    header = reader.store.header(rollback_id(state.run))
    if header is not None:
        return run_status(reader.state(header.run))
    return NOT_BEGUN if to_roll_back(state) else ""


class RollbackState(Struct, kw_only=True):
    """The run that takes a run back."""

    run: str
    """The id of the rollback run."""
    status: str
    """The status of the rollback run."""


class RecoveryDocument(Struct, kw_only=True):
    """How the failures of a run were answered, and what came of it."""

    answers: list[RecoveryOutcome]
    """The recovery decisions, in order."""
    rates: list[WinRate]
    """How often each strategy succeeded, by failure class."""


class RunDocument(RunOutcome, kw_only=True):
    """A run, as `leadhand show RUN --json`."""

    host: int | str | None
    """What drives it: a process, or a Temporal server."""
    started: str
    """When the run started, in ISO 8601."""
    started_by: str
    """The person who started the run; empty if not recorded."""
    plan: Doc
    """The plan document without its steps."""
    params: Doc
    """The values of the plan's parameters."""
    revision: int
    """The number of the current revision."""
    proposed_revision: int | None
    """The revision that waits for a person, if any."""
    planner: str
    """The name of the planner."""
    actor: str
    """The person who started the run."""
    labels: tuple[str, ...]
    """The labels of the run, as `name` or `name=value`."""
    environment: str
    """The environment that it was started in; empty if the settings name none."""
    begun: bool
    """Whether anything of it has started."""
    can_roll_back: bool
    """Whether the run can be rolled back."""
    seq: int
    """The number of the last entry of its log."""
    rollback: RollbackState | None
    """The rollback run, if there is one."""
    approvals: list[ApprovalRow]
    """The approvals of the run."""
    fault: FailureOrigin | None
    """Where a run that did not succeed went wrong."""
    refused: list[RefusedProposal]
    """Proposals that were refused, with the reasons."""
    recovery: RecoveryDocument
    """How its failures were recovered."""
    timeline: list[SpanRow] | UnsetType = UNSET
    """With `--timeline`: when each step was worked on."""


def shown_document(reader: Reader, state: State, driver: Driver) -> RunDocument:
    """Return a run as `show RUN --json` prints it."""
    back = rollback_status(reader, state)
    timed = [(entry.at, event) for entry, event in reader.events(state.run)]
    log = [event for _, event in timed]
    found = origin_of_run(log)
    tried = any(step.attempts for step in state.steps.values())
    return run_outcome(
        state,
        RunDocument,
        result=result_of(reader.store, state),
        steps=[detailed_step_row(state, step) for step in state.steps.values()],
        host=driver.drives(state) or None,
        started=iso(state.started_at),
        started_by=state.started.actor if state.started else "",
        plan=state.started.plan if state.started else {},
        params=deep_copy(state.params),
        revision=state.revision,
        proposed_revision=state.pending.number if state.pending else None,
        planner=state.started.planner if state.started else "",
        actor=state.started.actor if state.started else "",
        labels=state.started.labels if state.started else (),
        environment=state.started.environment if state.started else "",
        begun=bool(state.epoch and tried),
        can_roll_back=can_roll_back(state) and tried,
        seq=state.seq,
        rollback=RollbackState(run=rollback_id(state.run), status=back) if back else None,
        approvals=approvals_in_log(timed),
        fault=found if found.where else None,
        refused=refusals(log),
        recovery=recovery_document(answers_of(reader, state)),
    )


def answers_of(reader: Reader, state: State) -> list[RecoveryOutcome]:
    """Return the recovery decisions of a run; without failures its log is not read."""
    if not state.failed_attempts:
        return []
    return recoveries(event for _entry, event in reader.events(state.run))


def recovery_document(answers: list[RecoveryOutcome]) -> RecoveryDocument:
    """Return the answers to failures with how often each strategy won."""
    return RecoveryDocument(answers=answers, rates=win_rates(answers))


def timeline_document(reader: Reader, state: State) -> list[SpanRow]:
    """Return everything that took time in a run, in the order it began."""
    log = ((entry.at, event) for entry, event in reader.events(state.run))
    return [span_row(each, state.started_at) for each in timeline(log)]


# Settings.


def _keys(table: str) -> tuple[str, ...]:
    return SCHEMAS[table].__struct_encode_fields__


class SettingRow(Struct, kw_only=True):
    """A value that is configured, and where it came from."""

    value: Any
    """The value."""
    source: str = field(name="from")
    """The flag, variable or file that it comes from, or "default"."""
    text: str
    """The value as people read it: a duration has its units."""
    meaning: str
    """What the setting is for."""
    type: str
    """The values it takes, in words; empty where it is a name of your own."""


def settings_table(settings: Settings) -> dict[str, SettingRow]:
    """Return every setting by its key."""
    return {key: setting_row(key, value, origin) for key, value, origin in setting_rows(settings)}


def setting_row(key: str, value: Any, origin: str) -> SettingRow:
    """Return a setting with its meaning."""
    told = description_of(key)
    return SettingRow(
        value=value,
        source=origin,
        text=value_text(key, value),
        meaning=told.meaning,
        type=told.type,
    )


def setting_rows(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    """Yield every setting: its key, its value, and its origin."""
    values: dict[str, Any] = {
        "project.name": settings.name,
        "project.environment": settings.environment,
        "project.store": str(settings.store),
        "project.workers": [
            *settings.workers,
            *(each.name for each in settings.not_loaded if each.kind == "workers"),
        ],
        "project.planner": settings.planner,
        "project.actor": settings.actor,
        "notify.command": list(settings.notify.command),
        "notify.webhook": "(set)" if settings.notify.webhook else "",
        "notify.webhook_secret": settings.notify.webhook_secret,
        "notify.email": settings.notify.email.server if settings.notify.email else "",
        "notify.slack": settings.notify.slack.api if settings.notify.slack else "",
        "notify.ntfy": settings.notify.ntfy.server if settings.notify.ntfy else "",
        "audit.anchor": str(file_of(home(settings.store), settings.anchoring)),
        "audit.every": settings.anchoring.every_s,
        "audit.key": str(settings.anchoring.key or ""),
        "archive.older_than": settings.retention.older_than_s,
        "archive.folder": str(settings.retention.folder or archive_folder(home(settings.store))),
        "archive.delete_after": settings.retention.delete_after_s,
        "review.key": str(settings.approver_key or ""),
        **{f"planner.{key}": str(settings.planning.get(key, "")) for key in _keys("planner")},
        **{f"telemetry.{key}": settings.telemetry.get(key, False) for key in _keys("telemetry")},
        **{f"tiers.{name}": list(settings.tiers.get(name, ())) for name in _keys("tiers")},
    }
    for table, schema in SCHEMAS.items():
        for name, key in zip(schema.__struct_fields__, _keys(table), strict=True):
            dotted = f"{table}.{key}"
            value = values[dotted] if dotted in values else getattr(settings.policy, name)
            yield dotted, to_builtins(value), settings.origin(dotted)
    for section in sections():
        for dotted, value in section.rows(section.of(settings)).items():
            yield dotted, to_builtins(value), settings.origin(dotted)
    for name, key in settings.policy.approvers.items():
        yield f"approvers.{name}", key, settings.origin(f"approvers.{name}")
    for name in settings.declared:
        yield f"workers.{name}", "(declared)", settings.origin(f"workers.{name}")
    for name, model in settings.models.items():
        yield f"models.{name}", str(model), settings.origin(f"models.{name}")
    for name in settings.agents:
        yield f"agents.{name}", "(declared)", settings.origin(f"agents.{name}")
    for name in settings.mcp:
        yield f"mcp.{name}", "(declared)", settings.origin(f"mcp.{name}")
