"""The history of the library's plans: computed from the runs that used them."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import asdict

from leadhand.app.reader import summary_of
from leadhand.core.calendar import iso
from leadhand.core.plan.model import Doc
from leadhand.core.plan.parameters import ParameterRow, parameter_rows
from leadhand.core.views.run import ENDED, summary
from leadhand.core.views.totals import LAST_DAY, named, run_totals
from leadhand.errors import StoreError
from leadhand.ports import ANY_LIBRARY, RunQuery

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.core.library import SavedPlan
    from leadhand.ports import RunHeader


class LibraryUse(NamedTuple):
    """One run of a plan of the library."""

    run: str
    name: str
    version: int
    status: str
    started: int
    took_s: float
    cost: float
    money: float


RECENT = 50
"""The number of runs of a version whose recoveries are counted, the newest ones."""
NEWEST_MAX = 1000
"""How many of the newest runs are looked at for durations and costs; outcomes are of all runs."""


def uses(reader: Reader, library: str = ANY_LIBRARY) -> list[LibraryUse]:
    """Return the newest runs that were started from the library, or one plan of it, oldest first.

    No log is opened.
    """
    found = reader.find_runs(RunQuery(library=library, limit=NEWEST_MAX)).headers
    return [use for header in reversed(found) if (use := _use(header)) is not None]


def outcomes(reader: Reader) -> dict[str, Counter[str]]:
    """Return the number of all runs by status, for each version of a plan, as `deploy@3`."""
    found: dict[str, Counter[str]] = {}
    with reader.store.snapshot():  # a run that ends meanwhile must not count twice
        for label, counts in named(reader.store.totals(0, LAST_DAY), "library").items():
            found[label] = Counter(counts)
        for header in reader.open_runs():
            told = summary_of(header)
            if told is not None and told.library:
                found.setdefault(told.library, Counter())[told.status] += 1
    return found


def _use(header: RunHeader) -> LibraryUse | None:
    told = summary_of(header)
    label = told.library or "" if told else ""
    name, _, version = label.rpartition("@")
    if told is None or not name or not version.isdigit():
        return None
    took = ((told.ended or header.updated) - header.created) / 1e6
    return LibraryUse(
        header.run, name, int(version), told.status, header.created, took, told.cost, told.money
    )


def recoveries(reader: Reader, run: str) -> Counter[str]:
    """Return how often each recovery strategy was used in a run; of an ended one by its summary."""
    header = reader.store.header(run)
    told = summary_of(header) if header is not None else None
    found: Counter[str] = Counter()
    sums = told.totals if told and told.totals else None
    if sums is None:
        try:
            state = reader.state(run)
        except StoreError:  # damaged: `leadhand verify` reports it
            return found
        sums = run_totals(state, summary(state))
    for pair, counts in named(sums, "recovery").items():
        found[pair.rpartition(":")[2]] += counts["times"]
    return found


class UseTotals(Struct, kw_only=True):
    """How often a plan of the library was used, and how well that went."""

    uses: int
    outcomes: dict[str, int]
    """Runs by status."""
    median_s: float | None
    """How long the newest runs took that succeeded."""
    last_used: str | None
    success_rate: float | None
    mean_cost: float | None
    mean_money: float | None


class LibraryRow(Struct, kw_only=True):
    """A plan of the library."""

    name: str
    """The name of the plan."""
    version: int
    """The newest version."""
    hash: str
    """The hash of that version."""
    saved: str
    """When it was saved, in ISO 8601."""
    by: str
    """The person who saved it."""
    source: str = field(name="from")
    """The file or run that it was saved from."""
    goal: str
    """The goal in a sentence."""
    params: list[str]
    """The names of its parameters."""
    steps: int
    """The number of steps."""
    uses: int | UnsetType = UNSET
    """In lists, as the next ones: the runs of all its versions."""
    outcomes: dict[str, int] | UnsetType = UNSET
    """The number of runs by status."""
    median_s: float | UnsetType | None = UNSET
    """The p50 of the duration of its newest successful runs, in seconds."""
    last_used: str | UnsetType | None = UNSET
    """When it was last run, in ISO 8601."""
    success_rate: float | UnsetType | None = UNSET
    """The share of ended runs that succeeded, from 0 to 1; null without ended runs."""
    mean_cost: float | UnsetType | None = UNSET
    """The cost of its newest runs on average: US dollars and cost units together; null without
    runs."""
    mean_money: float | UnsetType | None = UNSET
    """The part of it that is money, in US dollars; null without runs."""


class VersionRow(Struct, kw_only=True):
    """A version of a plan of the library, with how it fared."""

    version: int
    """The number of the version."""
    hash: str
    """The hash of the version."""
    saved: str
    """When it was saved, in ISO 8601."""
    by: str
    """The person who saved it."""
    source: str = field(name="from")
    """The file or run that it was saved from."""
    uses: int
    """The number of runs."""
    outcomes: dict[str, int]
    """The number of runs by status."""
    median_s: float | None
    """The p50 of the duration of its newest successful runs, in seconds."""
    last_used: str | None
    """When it was last run, in ISO 8601."""
    success_rate: float | None
    """The share of ended runs that succeeded, from 0 to 1; null without ended runs."""
    mean_cost: float | None
    """The cost of its newest runs on average: US dollars and cost units together; null without
    runs."""
    mean_money: float | None
    """The part of it that is money, in US dollars; null without runs."""
    recoveries: dict[str, int]
    """Answers to failures by strategy, in the newest 50 runs."""
    runs: list[str]
    """The ids of its newest 50 runs, oldest first."""


class LibraryPlan(LibraryRow, kw_only=True):
    """A plan of the library, whole, with how its versions fared."""

    document: Doc
    """The plan document."""
    parameters: list[ParameterRow]
    """The parameters of the plan, as fields."""
    history: list[VersionRow]
    """All versions of the plan."""


def record(counts: Counter[str], found: list[LibraryUse]) -> UseTotals:
    """Return totals: of all runs their outcomes, of the newest, `found`, durations and costs."""
    ended = [use.took_s for use in found if use.status == "succeeded"]
    last = max((use.started for use in found), default=None)
    over = sum(counts[status] for status in ENDED)
    number = len(found)
    return UseTotals(
        uses=counts.total(),
        outcomes=dict(counts),
        median_s=round(median(ended), 3) if ended else None,
        last_used=iso(last) if last else None,
        success_rate=round(counts["succeeded"] / over, 4) if over else None,
        mean_cost=round(sum(use.cost for use in found) / number, 6) if number else None,
        mean_money=round(sum(use.money for use in found) / number, 6) if number else None,
    )


def saved_row(saved: SavedPlan) -> LibraryRow:
    """Return a plan of the library as a row of its lists, without its uses."""
    goal = saved.document.get("goal", "")
    return LibraryRow(
        name=saved.name,
        version=saved.version,
        hash=saved.hash,
        saved=iso(saved.at),
        by=saved.actor,
        source=saved.source,
        goal=goal.get("text", "") if isinstance(goal, dict) else goal,
        params=list(saved.document.get("params", {})),
        steps=len(saved.document.get("steps", ())),
    )


def library_rows(reader: Reader) -> list[LibraryRow]:
    """Return the plans of the library in their latest versions, with their uses."""
    used, counts, rows = uses(reader), outcomes(reader), []
    for name, versions in sorted(reader.library().plans.items()):
        found = [each for label, each in counts.items() if label.rpartition("@")[0] == name]
        total: Counter[str] = sum(found, Counter())
        newest = [use for use in used if use.name == name]
        if total and not newest:  # used long ago
            newest = uses(reader, name)
        row, told = saved_row(versions[-1]), record(total, newest)
        row.uses, row.outcomes = told.uses, told.outcomes
        row.median_s, row.last_used = told.median_s, told.last_used
        row.success_rate = told.success_rate
        row.mean_cost, row.mean_money = told.mean_cost, told.mean_money
        rows.append(row)
    return rows


def library_plan(reader: Reader, saved: SavedPlan) -> LibraryPlan:
    """Return a plan of the library, whole, with the history of all its versions."""
    versions = reader.library().plans[saved.name]
    return LibraryPlan(
        **asdict(saved_row(saved)),
        document=saved.document,
        parameters=parameter_rows(saved.document.get("params")),
        history=history_rows(reader, versions),
    )


def history_rows(reader: Reader, versions: list[SavedPlan]) -> list[VersionRow]:
    """Return the history of each version."""
    found, counts = [], outcomes(reader)
    for saved in versions:
        mine = uses(reader, saved.label)
        newest = [use.run for use in mine[-RECENT:]]
        answers: Counter[str] = sum((recoveries(reader, run) for run in newest), Counter())
        row = VersionRow(
            version=saved.version,
            hash=saved.hash,
            saved=iso(saved.at),
            by=saved.actor,
            source=saved.source,
            **asdict(record(counts.get(saved.label, Counter()), mine)),
            recoveries=dict(answers),
            runs=newest,
        )
        found.append(row)
    return found
