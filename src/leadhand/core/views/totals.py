"""Totals: what a run adds to the sums over many runs, as a flat map of integers. Pure.

A host writes the totals of a run into its summary when the run has ended; the stores add them to
one table by day and key, so that sums over any number of runs need no log. Keys:

    runs succeeded failed cancelled rejected        1 each; an open run counts as `open`
    attempts tried first_pass failed_steps recovered planner_calls
    questions answered_by_default approvals         approvals by people
    answers human_wait_us                           answers of people, and how long they took
    answers_SECONDS                                 of them, by the edge of `ANSWER_EDGES_S` that
                                                    they kept; `answers_inf` beyond the last
    needed_person                                   1 if a person was asked, or approved
    cost money                                      in millionths
    duration_us                                     from start to end
    origin:NAME                                     where the cause of an end without success lies
    plan:NAME:KEY                                   the counts of `PLAN_KEYS`, by plan
    library:NAME@VERSION:STATUS                     by plan of the library
    worker:NAME:attempts|failed|busy_us|cost
    model:NAME:calls|failed|tokens_in|tokens_out|money
    recovery:CLASS:STRATEGY:times|won|open

What is zero is left out. The number of keys of a run is bounded: workers, models and recoveries
beyond a bound are counted together as `OTHER`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from leadhand.core.state.tally import ANSWER_EDGES_S
from leadhand.core.views.recovery_stats import WinRate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.core.state.model import State
    from leadhand.core.views.run import RunSummary

NameT = TypeVar("NameT", str, tuple[str, str])
Totals = Counter[str]
"""Sums by key."""

DAY_US = 86_400_000_000
"""The length of a day. A run belongs to the day, in UTC, on which it was created."""
LAST_DAY = 2_932_896
"""The last day of the year 9999, counted from 1970."""
OUTCOMES = ("succeeded", "failed", "cancelled", "rejected")
"""The ways in which a run ends."""
WORKERS_MAX = 50
MODELS_MAX = 20
RECOVERIES_MAX = 50
NAME_MAX = 100
OTHER = "(other)"
"""Stands for the names beyond a bound."""
ANSWER_KEYS = (*(f"answers_{edge}" for edge in ANSWER_EDGES_S), "answers_inf")
"""The numbers of answers by how long they took, from quick to slow."""
PLAN_KEYS = (
    "runs",
    *OUTCOMES,
    "open",
    "attempts",
    "failed_steps",
    "recovered",
    "approvals",
    "answers",
    "human_wait_us",
    *ANSWER_KEYS,
    "needed_person",
    "cost",
    "money",
    "duration_us",
)
"""The counts that are kept by plan as well."""


def run_totals(state: State, told: RunSummary) -> dict[str, int]:
    """Return what a run adds to the totals; `told` is its summary."""
    tally = state.tally
    sums: Totals = Counter(
        {
            "runs": 1,
            told.status if told.ended else "open": 1,
            "attempts": tally.attempts,
            "tried": tally.tried,
            "first_pass": tally.first_pass,
            "planner_calls": tally.planner_calls,
            "questions": tally.questions,
            "answered_by_default": tally.answered_by_default,
            "approvals": tally.approvals,
            "answers": tally.answers,
            "human_wait_us": tally.human_wait,
            **dict(zip(ANSWER_KEYS, tally.answer_times, strict=True)),
            "needed_person": int(tally.approvals > 0 or tally.asked > tally.answered_by_default),
            "cost": millionths(told.cost),
            "money": millionths(told.money),
            "duration_us": max(0, told.ended - state.started_at) if told.ended else 0,
        }
    )
    if told.origin:
        sums[f"origin:{told.origin[:NAME_MAX]}"] = 1
    _recoveries(state, sums)
    for key in PLAN_KEYS:
        sums[f"plan:{told.plan[:NAME_MAX]}:{key}"] = sums[key]
    if told.library:
        sums[f"library:{told.library[: 2 * NAME_MAX]}:{told.status if told.ended else 'open'}"] = 1
    _workers(state, sums)
    _models(state, sums)
    return {key: number for key, number in sums.items() if number}


def millionths(amount: float) -> int:
    """Return an amount in millionths, so that sums are exact."""
    return round(amount * 1_000_000)


def _recoveries(state: State, sums: Totals) -> None:
    found = state.tally.recovery.closed()
    last = {each.step: each.won for each in found if each.won is not None}
    sums["failed_steps"] = len(last)
    sums["recovered"] = sum(last.values())
    pairs = Counter((each.failure_class, each.strategy) for each in found)
    kept = _kept(pairs, RECOVERIES_MAX)
    for each in found:
        pair = (each.failure_class, each.strategy)
        kind, strategy = pair if pair in kept else (OTHER, OTHER)
        key = f"recovery:{kind[:NAME_MAX]}:{strategy}"
        sums[f"{key}:times"] += 1
        sums[f"{key}:won"] += each.won is True
        sums[f"{key}:open"] += each.won is None


def _workers(state: State, sums: Totals) -> None:
    workers = state.tally.workers
    kept = _kept(Counter({name: each.attempts for name, each in workers.items()}), WORKERS_MAX)
    for name, each in workers.items():
        key = f"worker:{name[:NAME_MAX] if name in kept else OTHER}"
        sums[f"{key}:attempts"] += each.attempts
        sums[f"{key}:failed"] += each.failed
        sums[f"{key}:busy_us"] += each.busy
        sums[f"{key}:cost"] += millionths(each.cost)


def _models(state: State, sums: Totals) -> None:
    found = [(key.partition(" ")[2], each) for key, each in state.models.by_model.items()]
    calls: Counter[str] = Counter()
    for name, each in found:
        calls[name] += each.calls
    kept = _kept(calls, MODELS_MAX)
    for name, each in found:
        key = f"model:{name[:NAME_MAX] if name in kept else OTHER}"
        sums[f"{key}:calls"] += each.calls
        sums[f"{key}:failed"] += each.failed
        sums[f"{key}:tokens_in"] += each.input
        sums[f"{key}:tokens_out"] += each.output
        sums[f"{key}:money"] += millionths(each.cost)


def _kept(counts: Counter[NameT], most: int) -> set[NameT]:
    """Return the `most` most frequent names; the first by name among equals."""
    return set(sorted(counts, key=lambda name: (-counts[name], name))[:most])


def named(sums: Mapping[str, int], kind: str) -> dict[str, Totals]:
    """Return the sums whose keys begin with a `kind`, such as `worker`, by name and short key."""
    found: dict[str, Totals] = {}
    for key, number in sums.items():
        if key.startswith(f"{kind}:"):
            name, _, short = key[len(kind) + 1 :].rpartition(":")
            found.setdefault(name, Counter())[short] += number
    return found


def recovery_rates(sums: Mapping[str, int]) -> list[WinRate]:
    """Return the table of recoveries by failure class and strategy, in that order."""
    rows = []
    for pair, counts in sorted(named(sums, "recovery").items()):
        kind, _, strategy = pair.rpartition(":")
        times, won, undecided = counts["times"], counts["won"], counts["open"]
        decided = times - undecided
        rows.append(
            WinRate(
                failure_class=kind,
                strategy=strategy,
                times=times,
                won=won,
                lost=decided - won,
                open=undecided,
                rate=round(won / decided, 4) if decided else None,
            )
        )
    return rows


def quantile(sums: Mapping[str, int], share: float) -> int | None:
    """Return within how many seconds that share of answers came, rounded up to an edge.

    None without answers, and if the last edge is too early.
    """
    needed, seen = share * sum(sums.get(key, 0) for key in ANSWER_KEYS), 0
    for key, edge in zip(ANSWER_KEYS, ANSWER_EDGES_S, strict=False):
        seen += sums.get(key, 0)
        if seen and seen >= needed:
            return edge
    return None


def rate(part: int, whole: int) -> float | None:
    """Return a share from 0 to 1, or None of nothing."""
    return part / whole if whole else None


def added(many: Iterable[Mapping[str, int]]) -> Totals:
    """Return the sum of several totals."""
    found: Totals = Counter()
    for each in many:
        found.update(each)
    return found
