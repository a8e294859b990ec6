"""A database as documents: what `--json` prints and what the server answers, in one shape.

A document is made from a reader, never from a host's memory: it shows what is durable.
"""

from __future__ import annotations

from heapq import nsmallest
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import to_builtins

from leadhand.app.reader import Reader, summary_of
from leadhand.audit.anchors import file_of
from leadhand.core.calendar import iso
from leadhand.core.catalog import NOT_DECLARED
from leadhand.core.review.approval import allowed
from leadhand.core.review.view import review_doc
from leadhand.core.rollback import can_roll_back, rollback_id, to_roll_back
from leadhand.core.views.failure_origin import fault, fault_doc, refusals
from leadhand.core.views.inbox import inbox_row
from leadhand.core.views.recovery_stats import RecoveryOutcome, rate_row, recoveries, win_rates
from leadhand.core.views.run import (
    ENDED,
    fresh,
    outcome_doc,
    run_status,
    step_money,
    summary,
    worked_s,
)
from leadhand.core.views.timeline import span_row, timeline
from leadhand.engine.results import result_of
from leadhand.errors import StoreError
from leadhand.settings import DATABASE
from leadhand.settings.folders import FOLDER
from leadhand.settings.keys import KEYS
from leadhand.settings.sections import sections
from leadhand.stores.location import home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leadhand.core.events import GuestProcess
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import Now, State
    from leadhand.core.state.records import Question
    from leadhand.ports import RunHeader
    from leadhand.settings import Settings
    from leadhand.stores.location import Place
    from leadhand.workers.registry import Registry

UNREADABLE = "unreadable"
QUEUED = "queued"
"""Of a run that a service elsewhere has, and no engine has begun."""
NOT_BEGUN = "not begun"
"""Of a rollback that a run asked for when it failed."""


class Driver(NamedTuple):
    """The process that hosts a database, and which of its owners it is; 0 for nobody."""

    pid: int | str = 0
    """Or the service elsewhere that hosts runs: `temporal ADDRESS`."""
    owner: int = 0
    every: bool = False
    """Whether all runs that are open are driven, by whomever: those that are hosted elsewhere."""
    runs: frozenset[str] | None = None
    """Those that are driven, where that is known of each: by a service elsewhere."""

    @classmethod
    def of(cls, place: Place, reader: Reader) -> Driver:
        """Who hosts it now."""
        from leadhand.app.store_factory import host_info

        holder = host_info(place)
        return cls() if holder is None else cls(int(holder["pid"]), reader.host_state().owner)

    def drives(self, state: State) -> int | str:
        """The process that drives a run now, or 0: a database may have a host that does not.

        A run with a process of its own is driven as long as that lives, whichever host it writes
        through: it outlives hosts.
        """
        if self.runs is not None:
            return self.pid if state.run in self.runs else 0
        if state.process is not None and not self.every:
            return process_of(state)
        return self.pid if self.every or self.owner == state.owner else 0


def process_of(state: State) -> int:
    """The pid of the run's own process, if it has one that lives; else 0."""
    from leadhand.workers.processes.machine import is_alive

    own = state.process
    return own.pid if own is not None and is_alive(own) else 0


def resume_command(run: str, process: GuestProcess, store: Place, verb: str = "resume") -> str:
    """What takes a run up where its own process was started, typed as it stands."""
    usual = Path(process.folder) / FOLDER / DATABASE
    where = "" if home(store).resolve() == usual.resolve() else f" --store {quote(str(store))}"
    python = f"{quote(process.python)} -m leadhand.cli"
    return f"cd {quote(process.folder)} && {python} {verb} {run}{where}"


# Lists.


def run_rows(reader: Reader, driver: Driver) -> list[Doc]:
    """All runs with what is known of them, oldest first; open ones are folded to be exact."""
    return [run_row(reader, header, driver) for header in reader.runs()]


def run_row(reader: Reader, header: RunHeader, driver: Driver) -> Doc:
    """One run; where something of it is damaged, what can be known, and what is wrong."""
    row: Doc = {"run": header.run}
    said = summary_of(header)
    pid: int | str = 0
    if said is not None and said["status"] in ENDED:
        row |= said
    else:
        try:
            state = reader.state(header.run)
            row |= summary(state)
            pid = driver.drives(state)
        except StoreError as error:
            row |= said or dict.fromkeys(("steps", "settled", "succeeded", "failed", "replaced"))
            row |= {"status": UNREADABLE, "trouble": str(error).partition(" Fix: ")[0]}
        else:
            if said is None and header.summary:
                row["trouble"] = "its summary is damaged; this is what its log says"
    row.setdefault("waiting", None)
    row |= {"created": header.created, "updated": header.updated, "host": pid or None}
    row["started"] = iso(header.created)
    return {"goal": "", "plan": "", "cost": None, "money": None, **row}


def queued_rows(driver: Driver, rows: list[Doc]) -> list[Doc]:
    """Runs that a service elsewhere has and the log, of which `rows` are all, does not know yet."""
    waiting = (driver.runs or frozenset()) - {row["run"] for row in rows}
    unknown = ("steps", "settled", "succeeded", "failed", "replaced", "waiting", "cost", "money")
    when = dict.fromkeys(("created", "updated", "started"))
    row = {**dict.fromkeys(unknown), **when, "goal": "", "plan": "", "host": driver.pid}
    return [{"run": run, "status": QUEUED, **row} for run in sorted(waiting)]


def timed_row(row: Doc) -> Doc:
    """A row of `run_rows` with times for machines."""
    return row | {key: iso(row[key]) for key in ("created", "updated") if row[key] is not None}


def inbox_rows(reader: Reader, left_out: Callable[[StoreError], None]) -> list[Doc]:
    """What waits, oldest first. Summaries say which runs need to be looked at."""
    rows: list[Doc] = []
    for state in _waiting(reader, left_out):
        rows += [_asked(state, question) for question in state.questions.values()]
    return sorted(rows, key=lambda row: row["since"])


class InboxPage(NamedTuple):
    """Some of what waits."""

    items: list[Doc]
    next: str | None
    """The cursor of the next page."""
    total: int
    """How much waits in all."""


def inbox_page(reader: Reader, cursor: str | None, limit: int) -> InboxPage:
    """Return what waits, oldest first, after a cursor: as many rows as are wanted.

    Only the rows of the page are made. Runs that cannot be read are left out.

    Raises:
        ValueError: the cursor is none that was given out.
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
    rows: list[Doc] = []
    for _, run, ident in wanted[:limit]:
        state = reader.state(run)
        if (question := state.questions.get(ident)) is not None:
            rows.append(_asked(state, question))
    further = " ".join(map(str, wanted[limit - 1])) if len(wanted) > limit else None
    return InboxPage(rows, further, len(known))


def _waiting(reader: Reader, left_out: Callable[[StoreError], None]) -> Iterator[State]:
    """The runs that are open, folded one by one."""
    for header in reader.runs():
        said = summary_of(header)
        if said is not None and said["status"] in ENDED:
            continue
        try:
            yield reader.state(header.run)
        except StoreError as error:  # the others may still be answered
            left_out(error)


def _asked(state: State, question: Question) -> Doc:
    return {**inbox_row(state, question.id), "words": wants_words(state, question)}


def wants_words(state: State, question: Question) -> bool:
    """Whether a step lacks something that only words can tell it."""
    step = state.steps.get(question.step)
    return bool(step and step.failure and step.failure.get("class") == "needs_info")


def worker_rows(registry: Registry) -> list[Doc]:
    """What every worker offers, a row each, and what its version covers."""
    catalog, covers = registry.catalog(), registry.coverage()
    return [
        {
            "worker": spec.name,
            "action": action,
            "kind": spec.kind,
            "version": spec.version,
            "risk": offer.risk or NOT_DECLARED,
            "policy_risk": catalog.risk(spec.name, action),
            "effects": list(offer.effects or ()),
            "idempotent": offer.idempotent,
            "probe": offer.probe,
            "timeout": offer.timeout_s,
            "checks": list(offer.checks),
            "parameters": offer.parameters,
            "description": spec.description,
            "covers": covers[spec.name].to_doc() if spec.name in covers else None,
        }
        for spec in catalog.workers.values()
        for action, offer in spec.offers.items()
    ]


# One run.


def rollback_status(reader: Reader, state: State) -> str:
    """How the taking back of a run stands; empty when nobody wants it."""
    header = reader.store.header(rollback_id(state.run))
    if header is not None:
        return run_status(reader.state(header.run))
    return NOT_BEGUN if to_roll_back(state) else ""


def timed_outcome(state: State) -> Doc:
    """What is known of a run, and how much of its time its workers were at work."""
    doc = outcome_doc(state)
    doc["worked"] = worked_s(state)
    doc["waited"] = round(max(0.0, doc["duration"] - doc["worked"]), 3)
    return doc


def shown_document(reader: Reader, state: State, driver: Driver) -> Doc:
    """A run as `show RUN --json` prints it."""
    doc = run_document(reader, state, driver.drives(state))
    back = rollback_status(reader, state)
    doc["rollback"] = {"run": rollback_id(state.run), "status": back} if back else None
    timed = [(entry.at, event) for entry, event in reader.events(state.run)]
    log = [event for _, event in timed]
    doc["approvals"] = [each.document() for each in allowed(timed)]
    doc["fault"] = fault_doc(fault(log))
    doc["refused"] = [each.doc() for each in refusals(log)]
    doc["recovery"] = recovery_document(answers_of(reader, state))
    return doc


def run_document(reader: Reader, state: State, driver: int | str) -> Doc:
    """A run as `show RUN --json` prints it; `driver` is what drives it, or 0."""
    doc = timed_outcome(state)
    doc["host"] = driver or None
    doc["result"] = result_of(reader.store, state)
    doc["started"] = iso(state.started_at)
    doc["plan"] = state.started.plan if state.started else {}
    doc["params"] = fresh(state.params)
    doc["revision"] = state.revision
    doc["proposed_revision"] = state.pending.number if state.pending else None
    doc["planner"] = state.started.planner if state.started else ""
    doc["worked"] = worked_s(state)
    doc["begun"] = bool(state.epoch and any(s.attempts for s in state.steps.values()))
    doc["can_roll_back"] = can_roll_back(state) and any(s.attempts for s in state.steps.values())
    doc["seq"] = state.seq
    for row, step in zip(doc["steps"], state.steps.values(), strict=False):
        row |= {"action": step.action, "reason": step.reason, "findings": list(step.findings)}
        row["started"] = iso(step.started) if step.started else None
        row["ended"] = iso(step.ended) if step.ended else None
        row["cost"] = step.cost
        row["money"] = step_money(state, step)
        row["recommendations"] = list(step.recommendations)
    return doc


def answers_of(reader: Reader, state: State) -> list[RecoveryOutcome]:
    """The answers to a run's failures; a run without any is not read again."""
    if not state.failed_attempts:
        return []
    return recoveries(event for _entry, event in reader.events(state.run))


def recovery_document(answers: Sequence[RecoveryOutcome]) -> Doc:
    """The same for machines."""
    rows = [
        {
            "step": each.step,
            "attempt": each.attempt,
            "class": each.failure_class,
            "strategy": each.strategy,
            "worker": each.worker or None,
            "reason": each.reason,
            "won": each.won,
        }
        for each in answers
    ]
    return {"answers": rows, "rates": [rate_row(row) for row in win_rates(answers)]}


def timeline_document(reader: Reader, state: State) -> list[Doc]:
    """The same for machines."""
    log = ((entry.at, event) for entry, event in reader.events(state.run))
    return [span_row(each, state.started_at) for each in timeline(log)]


def review_document(state: State, now: Now) -> Doc:
    """All that waits in a run, as `review RUN --json` prints it."""
    doc = review_doc(state, now)
    doc["instants"] = {step: iso(at) for step, at in doc["instants"].items()}
    return doc


# Settings.


def setting_rows(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    """Every setting: its key, its value, and where that came from."""
    values: dict[str, Any] = {
        "project.store": str(settings.store),
        "project.workers": [
            *settings.workers,
            *(each.name for each in settings.not_loaded if each.kind == "workers"),
        ],
        "project.planner": settings.planner,
        "project.actor": settings.actor,
        "notify.command": list(settings.notify_command),
        "notify.webhook": "(set)" if settings.notify_webhook else "",
        "audit.anchor": str(file_of(home(settings.store), settings.anchoring)),
        "audit.every": settings.anchoring.every_s,
        "audit.key": str(settings.anchoring.key or ""),
        "review.key": str(settings.approver_key or ""),
        **{f"planner.{key}": str(settings.planning.get(key, "")) for key in KEYS["planner"]},
        **{f"telemetry.{key}": settings.telemetry.get(key, False) for key in KEYS["telemetry"]},
        **{f"tiers.{name}": list(settings.tiers.get(name, ())) for name in KEYS["tiers"]},
    }
    for table, keys in KEYS.items():
        for key, kind in keys.items():
            dotted = f"{table}.{key}"
            value = getattr(settings.policy, kind.field) if kind.field else values[dotted]
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
