"""How workers were used: circuits, unknown workers, and the bound on what is read."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from leadhand.app import worker_use
from leadhand.app.worker_use import worker_use_page
from leadhand.core import events as ev
from leadhand.core.decide.circuit_breaker import Circuit


@dataclass
class Log:
    """Runs of one attempt each, by a worker that is given."""

    by: list[str]
    circuits: dict[str, Circuit]

    def __post_init__(self):
        self.read = []

    def runs(self):
        return [SimpleNamespace(run=f"r{n}", seq=10, created=n) for n, _ in enumerate(self.by)]

    def events(self, run):
        self.read.append(run)
        started = ev.AttemptStarted("a", 1, 1, self.by[int(run[1:])], 0, "")
        return [(SimpleNamespace(at=5), started)]

    def host_state(self):
        return SimpleNamespace(circuits=self.circuits)


def test_availability_is_told_by_the_circuit():
    """Open, over but not yet closed, none; and a worker that only the runs know."""
    circuits = {"down": Circuit(2_000, 3, "503 from it"), "trial": Circuit(500)}
    page = worker_use_page(Log(["gone"], circuits), ["down", "trial", "fine"], now=1_000)
    rows = {row.worker: row for row in page.items}
    assert {name: row.availability for name, row in rows.items()} == {
        "down": "unavailable",
        "fine": "available",
        "gone": "not configured",
        "trial": "on trial",
    }
    assert (rows["down"].circuit.times, rows["down"].circuit.reason) == (3, "503 from it")
    assert rows["fine"].failure_rate is None


@pytest.mark.parametrize(("runs", "events"), [(3, 1_000), (100, 35)])
def test_only_the_newest_runs_are_read_and_each_once(monkeypatch, runs, events):
    """The bounds hold, the page says that they did, and what is known is not read again."""
    monkeypatch.setattr(worker_use, "RUNS_MAX", runs)
    monkeypatch.setattr(worker_use, "EVENTS_MAX", events)
    log, known = Log(["w"] * 9, {}), {}
    page = worker_use_page(log, [], 0, known)
    assert log.read == ["r8", "r7", "r6"]
    assert (page.runs, page.complete, page.items[0].attempts) == (3, False, 3)
    worker_use_page(log, [], 0, known)
    assert len(log.read) == 3
