"""How workers were used: circuits, unknown workers, and the bound on what is read."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from leadhand.app import worker_use
from leadhand.app.usage import UsageDocument, UsageRow
from leadhand.app.worker_use import worker_use_page
from leadhand.core import events as ev
from leadhand.core.decide.circuit_breaker import Circuit

USED = UsageDocument(
    start="2026-11-01",
    end="2026-11-30",
    by="worker",
    total=UsageRow(name=""),
    rows=[
        UsageRow(name="old", attempts=8, failed=2, failure_rate=0.25),
        UsageRow(name="fine", attempts=4, failed=0, failure_rate=0.0),
    ],
    open_included=0,
    unreadable=[],
)


@dataclass
class Log:
    """Runs of one attempt each, by a worker that is given."""

    by: list[str]
    circuits: dict[str, Circuit]

    def __post_init__(self):
        self.read = []

    def find_runs(self, query):
        found = [SimpleNamespace(run=f"r{n}", seq=10) for n, _ in enumerate(self.by)]
        return SimpleNamespace(headers=found[::-1][: query.limit])

    def events(self, run):
        self.read.append(run)
        started = ev.AttemptStarted("a", 1, 1, self.by[int(run[1:])], 0, "")
        return [(SimpleNamespace(at=5), started)]

    def host_state(self):
        return SimpleNamespace(circuits=self.circuits)


def test_availability_is_told_by_the_circuit():
    """Open, over but not yet closed, none; and a worker that only the runs know."""
    circuits = {"down": Circuit(2_000, 3, "503 from it"), "trial": Circuit(500)}
    page = worker_use_page(Log(["gone"], circuits), ["down", "trial", "fine"], 1_000, USED, {})
    rows = {row.worker: row for row in page.items}
    assert {name: row.availability for name, row in rows.items()} == {
        "down": "unavailable",
        "fine": "available",
        "gone": "not configured",
        "old": "not configured",
        "trial": "on trial",
    }
    assert (rows["old"].attempts, rows["old"].failed, rows["old"].failure_rate) == (8, 2, 0.25)
    assert (rows["fine"].attempts, rows["fine"].failure_rate) == (4, 0)
    assert (rows["down"].attempts, rows["down"].failure_rate) == (0, None)
    assert (rows["down"].circuit.times, rows["down"].circuit.reason) == (3, "503 from it")


@pytest.mark.parametrize(("runs", "events"), [(3, 1_000), (100, 35)])
def test_only_the_newest_runs_are_read_and_each_once(monkeypatch, runs, events):
    """The bounds hold, and what is known is not read again."""
    monkeypatch.setattr(worker_use, "RUNS_MAX", runs)
    monkeypatch.setattr(worker_use, "EVENTS_MAX", events)
    log, known = Log(["w"] * 9, {}), {}
    page = worker_use_page(log, [], 0, USED, known)
    assert log.read == ["r8", "r7", "r6"]
    assert page.runs == 3
    worker_use_page(log, [], 0, USED, known)
    assert len(log.read) == 3
