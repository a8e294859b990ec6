"""Lists of runs: what the stores know of each run without its log, and the choice of a page.

The durable stores keep these facts in a table (`listed`) that is derived from the summaries, and
choose in SQL. What is here is the same in Python: for the store in memory, and as the definition
that the others are tested against.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core.views.run import ENDED
from leadhand.core.views.totals import DAY_US
from leadhand.ports import ANY_LIBRARY, RunQuery, RunSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from leadhand.ports import RunHeader

PREFIXED_MAX = 20
"""More runs than this are not told apart by a few characters."""
SORTS = ("created", "ended", "duration", "cost")
"""By what a list can be sorted."""
_CURSOR = re.compile(r"-?[0-9]{1,18}\.[0-9]{1,18}", re.ASCII)


class RunFacts(NamedTuple):
    """What a list needs of a run."""

    status: str
    waiting: int
    ended: int
    duration: int
    cost: int
    plan: str
    actor: str
    environment: str
    library: str
    labels: tuple[str, ...]
    goal: str


def facts_of(header: RunHeader) -> RunFacts:
    """Return the facts in a run's summary; a run whose summary cannot be read counts as open."""
    try:
        told = msgspec.json.decode(header.summary)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        told = {}
    told = told if isinstance(told, dict) else {}
    ended = _number(told.get("ended"))
    return RunFacts(
        _text(told.get("status")),
        _number(told.get("waiting")),
        ended,
        ended - header.created if ended else 0,
        round(cost * 1_000_000) if isinstance(cost := told.get("cost"), (int, float)) else 0,
        _text(told.get("plan")),
        _text(told.get("actor")),
        _text(told.get("environment")),
        _text(told.get("library")),
        tuple(map(_text, told["labels"])) if isinstance(told.get("labels"), list) else (),
        _text(told.get("goal")),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if type(value) is int else 0


def order_of(query: RunQuery) -> tuple[str, bool]:
    """Return by what a list is sorted, and whether the largest comes first."""
    name = query.sort.removeprefix("-")
    if name not in SORTS:
        raise ValueError(f"a list is sorted by {', '.join(SORTS)}, with - in front to reverse it")
    return name, query.sort.startswith("-")


def place_in(query: RunQuery) -> tuple[int, int] | None:
    """Return the place that a cursor names: the value that is sorted by, and the run's number."""
    if not query.cursor:
        return None
    if not _CURSOR.fullmatch(query.cursor):
        raise ValueError("this cursor is of no page that was given out")
    value, _, number = query.cursor.partition(".")
    return int(value), int(number)


def cursor_at(value: int, number: int) -> str:
    """Return the cursor that continues after a run."""
    return f"{value}.{number}"


FOREVER = 1 << 62


class Wording(NamedTuple):
    """How a database spells what the conditions of a list need."""

    value: Callable[[str], str]
    """A value that is given by its name."""
    text: str
    """Whether a text of ASCII letters, in lower case, is in one of the fields."""
    any_text: str
    """The same for any text."""


def listing(statement: str, query: RunQuery, words: Wording) -> tuple[str, dict[str, Any]]:
    """Return the statement `find_runs` for a query, and its values; one run more than a page.

    Only words of this module and of `words` become part of the statement.
    """
    name, falling = order_of(query)
    after, number = place_in(query) or (None, None)
    only_open = query.open or query.waiting or (query.status and not {*query.status} & {*ENDED})
    names = [f"status{place}" for place in range(len(query.status))]
    made = statement.format(
        status=f"status IN ({', '.join(map(words.value, names))})" if names else "true",
        text=(words.text if query.text.isascii() else words.any_text) if query.text else "true",
        sort=name,
        falls="DESC" if falling else "ASC",
        beyond="<" if falling else ">",
        open="ended = 0 AND" if only_open else "",
    )
    return made, {
        "since": query.since,
        "until": query.until or FOREVER,
        "after": after,
        "id": number,
        **dict(zip(names, query.status, strict=True)),
        "plan": query.plan,
        "plan_start": start_of(query.plan),
        "actor": query.actor,
        "environment": query.environment,
        "waiting": query.waiting,
        "label": query.label,
        "library": query.library,
        "text": query.text.lower(),
        "like": "%" + re.sub("([%_^])", r"^\1", query.text) + "%",
        "limit": min(query.limit, FOREVER) + 1,
    }


def start_of(name: str) -> str:
    """Return what a wanted name begins with, if it ends with `*`; else an empty text."""
    return name[:-1] if name.endswith("*") else ""


def choose(headers: Iterable[RunHeader], query: RunQuery) -> RunSlice:
    """Return a page of the wanted runs; `headers` are all runs, in the order of their numbers."""
    name, falling = order_of(query)
    found = []
    for number, header in enumerate(headers, 1):
        if header.run.startswith("$"):
            continue
        facts = facts_of(header)
        if wanted(header, facts, query):
            value = header.created if name == "created" else getattr(facts, name)
            found.append((value, number, header))
    found.sort(key=lambda each: each[:2], reverse=falling)
    after = place_in(query)
    if after is not None:
        found = [each for each in found if (each[:2] < after if falling else each[:2] > after)]
    page = found[: query.limit]
    more = cursor_at(*page[-1][:2]) if len(found) > query.limit else None
    return RunSlice([header for _, _, header in page], more)


def wanted(header: RunHeader, facts: RunFacts, query: RunQuery) -> bool:
    """Return whether a run is one of those that a query is for."""
    start = start_of(query.plan)
    plan = facts.plan if start and facts.plan.startswith(start) else query.plan
    exact = (
        (plan, facts.plan),
        (query.actor, facts.actor),
        (query.environment, facts.environment),
    )
    if any(asked and asked != there for asked, there in exact):
        return False
    if query.status and facts.status not in query.status:
        return False
    if (query.open and facts.ended) or (query.waiting and (facts.ended or not facts.waiting)):
        return False
    if header.created < query.since or (query.until and header.created >= query.until):
        return False
    if query.label and not _has(facts.labels, query.label, "="):
        return False
    if query.library == ANY_LIBRARY:
        if not facts.library:
            return False
    elif query.library and not _has((facts.library,), query.library, "@"):
        return False
    text = query.text.lower()
    return not text or any(text in each.lower() for each in (header.run, facts.goal, facts.plan))


def _has(names: Iterable[str], asked: str, mark: str) -> bool:
    """Return whether a name is there, whatever follows it after a `mark`, unless that is given."""
    return any(name == asked or name.startswith(asked + mark) for name in names)


def prefixed(headers: Iterable[RunHeader], prefix: str, limit: int) -> list[str]:
    """Return the ids that begin with `prefix`, sorted: at most `limit`."""
    found = (header.run for header in headers if not header.run.startswith("$"))
    return sorted(run for run in found if run.startswith(prefix))[:limit]


def summed_by_day(
    headers: Iterable[RunHeader], first_day: int, last_day: int
) -> list[tuple[int, str, int]]:
    """Return the sums by day and key, without the keys of single plans, workers and so on."""
    found: Counter[tuple[int, str]] = Counter()
    for day, key, number in all_totals(headers):
        if first_day <= day <= last_day and ":" not in key:
            found[day, key] += number
    return sorted((day, key, number) for (day, key), number in found.items() if number)


def summed(
    headers: Iterable[RunHeader], first_day: int, last_day: int, *, plans: bool
) -> dict[str, int]:
    """Return the sums over ended runs created on these days, by key; see `Log.totals`."""
    found: Counter[str] = Counter()
    for day, key, number in all_totals(headers):
        if first_day <= day <= last_day and (plans or not key.startswith("plan:")):
            found[key] += number
    return {key: number for key, number in sorted(found.items()) if number}


def all_totals(headers: Iterable[RunHeader]) -> Iterator[tuple[int, str, int]]:
    """Yield what each run adds to the totals: day, key and number."""
    for header in headers:
        for key, number in totals_of(header).items():
            yield header.created // DAY_US, key, number


def totals_so_far(header: RunHeader) -> dict[str, int] | None:
    """Return what an open run adds to the totals by its summary; None unless that is up to date."""
    try:
        told = msgspec.json.decode(header.summary)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    found = told.get("so_far") if isinstance(told, dict) else None
    if not isinstance(found, dict) or told.get("seq") != header.seq:
        return None
    return {key: number for key, number in found.items() if type(number) is int}


def totals_of(header: RunHeader) -> dict[str, int]:
    """Return the totals in a run's summary; none while it is open, or if it cannot be read."""
    try:
        told = msgspec.json.decode(header.summary)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    found = told.get("totals") if isinstance(told, dict) else None
    if not isinstance(found, dict):
        return {}
    return {key: number for key, number in found.items() if type(number) is int}
