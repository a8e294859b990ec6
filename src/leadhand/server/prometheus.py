"""Metrics for Prometheus: counters of what happened since the server started, and current values.

A scrape reads only the entries committed since the last one; what was there before the server is
not read (a counter that begins anew is what Prometheus expects of a restart). Runs by status are of
all runs: ended ones from the totals, open ones from their summaries.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from leadhand.app.reader import summary_of
from leadhand.codec.events import decode_all
from leadhand.core import events as ev
from leadhand.core.views.totals import LAST_DAY, OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from leadhand.server.app_state import AppState
    from leadhand.server.cached_reader import CachedReader

PAGE = 1000


class EventCounts:
    """Counts of the events after one position, up to another."""

    def __init__(self, position: int = 0) -> None:
        self._lock = threading.Lock()
        self._position = position
        self.attempts: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.recoveries: Counter[tuple[str, str]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.tokens: Counter[tuple[str, str, str]] = Counter()
        self.money: Counter[tuple[str, str]] = Counter()
        self.questions = 0
        self.approvals = 0

    def read(self, desk: CachedReader) -> None:
        """Count the new entries; one reader at a time."""
        with self._lock:
            while rows := desk.store.page(self._position, PAGE):
                self.add(decode_all([(entry.version, entry.body) for _, entry in rows]))
                self._position = rows[-1][0]

    def add(self, events: Iterable[ev.Event]) -> None:
        """Count some events."""
        for event in events:
            match event:
                case ev.AttemptStarted():
                    self.attempts["started"] += 1
                case ev.AttemptReported():
                    self.attempts["verified" if event.met else "failed"] += 1
                    self.steps["succeeded"] += event.met
                case ev.AttemptLost():
                    self.attempts["lost"] += 1
                case ev.StepSkipped():
                    self.steps["skipped"] += 1
                case ev.StepCancelled():
                    self.steps["cancelled"] += 1
                case ev.RecoveryDecided():
                    self.recoveries[event.failure_class, event.strategy] += 1
                case ev.ModelCalled():
                    self._called(event)
                case ev.QuestionAsked():
                    self.questions += 1
                case ev.ApprovalGiven():
                    self.approvals += 1
                case _:
                    pass

    def _called(self, event: ev.ModelCalled) -> None:
        model = (event.model, event.tier)
        self.calls[model] += 1
        self.tokens[*model, "input"] += event.input
        self.tokens[*model, "output"] += event.output
        self.tokens[*model, "cached"] += event.cached
        self.tokens[*model, "written"] += event.written
        self.money[model] += event.cost  # type: ignore[assignment]


async def exposition(app_state: AppState) -> tuple[bytes, str]:
    """Return the exposition for Prometheus, and its content type."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    def look(desk: CachedReader) -> Counter[str]:
        app_state.book.read(desk)
        with desk.store.snapshot():  # a run that ends meanwhile must not count twice
            ended = desk.store.totals(0, LAST_DAY)
            said = [summary_of(header) for header in desk.open_runs()]
        runs = Counter(each.status if each else "unreadable" for each in said)
        runs.update({outcome: ended[outcome] for outcome in OUTCOMES if outcome in ended})
        return runs

    runs = await app_state.cached_readers.read(look)
    stopped = (await app_state.supervisor.shared()).stopped

    class Collected:
        def collect(self) -> Iterator[Metric]:
            yield from _metrics(app_state, runs, stopped=stopped)

    registry = CollectorRegistry()
    registry.register(Collected())
    return generate_latest(registry), CONTENT_TYPE_LATEST


def _metrics(app_state: AppState, runs: Counter[str], *, stopped: bool) -> Iterator[Metric]:
    yield from _counted(app_state.book, runs)
    yield from _now(app_state, stopped=stopped)


def _counted(book: EventCounts, runs: Counter[str]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily as Total
    from prometheus_client.core import GaugeMetricFamily as Gauge

    status = Gauge("leadhand_runs", "Runs by status.", labels=["status"])
    for word, number in sorted(runs.items()):
        status.add_metric([word], number)
    yield status
    for name, text, label, found in (
        (
            "leadhand_attempts",
            "Attempts: started, verified, failed or lost.",
            "outcome",
            book.attempts,
        ),
        ("leadhand_steps", "Settled steps by outcome.", "outcome", book.steps),
    ):
        total = Total(name, text, labels=[label])
        for word, number in sorted(found.items()):
            total.add_metric([word], number)
        yield total
    answers = Total(
        "leadhand_recoveries",
        "Recoveries by failure class and strategy.",
        labels=["failure_class", "strategy"],
    )
    for pair, number in sorted(book.recoveries.items()):
        answers.add_metric(list(pair), number)
    yield answers
    calls = Total("leadhand_model_calls", "Model calls.", labels=["model", "tier"])
    for pair, number in sorted(book.calls.items()):
        calls.add_metric(list(pair), number)
    yield calls
    tokens = Total("leadhand_model_tokens", "Model tokens.", labels=["model", "tier", "kind"])
    for key, number in sorted(book.tokens.items()):
        tokens.add_metric(list(key), number)
    yield tokens
    money = Total(
        "leadhand_model_cost_dollars", "Cost of model calls in dollars.", labels=["model", "tier"]
    )
    for pair, amount in sorted(book.money.items()):
        money.add_metric(list(pair), amount)
    yield money
    yield Total("leadhand_questions", "Questions asked to people.", value=book.questions)
    yield Total("leadhand_approvals", "Approvals given by people.", value=book.approvals)


def _now(app_state: AppState, *, stopped: bool) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily as Total
    from prometheus_client.core import GaugeMetricFamily as Gauge
    from prometheus_client.core import HistogramMetricFamily as Histogram

    host, gate = app_state.host, app_state.gate
    hosted = sum(run.driven for run in host.runs.values()) + len(host.asleep)
    yield Gauge("leadhand_runs_hosted", "Runs that this server drives now.", value=hosted)
    yield Gauge("leadhand_attempts_running", "Running attempts.", value=host.in_flight)
    yield Gauge("leadhand_stopped", "Whether the emergency stop is active.", value=stopped)
    yield Gauge("leadhand_streams", "Open event streams now.", value=app_state.hub.readers)
    yield Total("leadhand_stream_events", "Events sent to event streams.", value=app_state.hub.sent)
    if gate is not None:
        yield Gauge("leadhand_requests", "HTTP requests in progress now.", value=gate.requests)
    took = app_state.took()
    if took is not None:
        found = Histogram(
            "leadhand_commit_seconds", "Duration of commits until they are durable, in seconds."
        )
        below, buckets = 0, list[tuple[str, float]]()
        for bound, number in zip((*took.BOUNDS, "+Inf"), took.counts, strict=True):
            below += number
            buckets.append((str(bound), below))
        found.add_metric([], buckets, took.seconds)
        yield found
