"""The host's breakers: which workers are not called now, whoever wishes to.

`core/decide/circuit_breaker.py` has the rules. Runs ask `worker in breakers` when they look for a
step to start, and tell what became of attempts. When a circuit's time is up, one attempt is let
through (the trial); while it runs, and unless it ends well, everybody else goes on waiting.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leadhand.core.calendar import iso
from leadhand.core.decide.circuit_breaker import (
    Record,
    asked_for_s,
    is_silent,
    is_trouble,
    open_for_s,
)
from leadhand.core.host import CircuitClosed, CircuitOpened

if TYPE_CHECKING:
    from leadhand.core.decide.effects import StartAttempt
    from leadhand.core.plan.model import Doc
    from leadhand.engine.host import Host
    from leadhand.engine.run import Run

SLACK_S = 0.001


class Breakers:
    """One for each worker that was ever in trouble."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._records: dict[str, Record] = {}
        self._trials: dict[str, tuple[Run, str, int]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __contains__(self, worker: object) -> bool:
        circuit = self._host.shared.circuits.get(str(worker))
        if circuit is None:
            return False
        return circuit.until > self._host.time().at or self._trying(str(worker))

    def why(self, worker: str) -> str:
        """Return until when a worker is left alone, and why; nothing when its circuit is closed."""
        circuit = self._host.shared.circuits.get(worker)
        if circuit is None:
            return ""
        reason = f": {circuit.reason}" if circuit.reason else ""
        if circuit.until <= self._host.time().at:
            return f"is tried by one step first{reason}"
        return f"is left alone until {iso(circuit.until)}{reason}"

    def _trying(self, worker: str) -> bool:
        if worker not in self._trials:
            return False
        run, step, epoch = self._trials[worker]
        return run.driven and run.state.in_flight.get(step) == epoch

    def _is_trial(self, run: Run, step: str, worker: str) -> bool:
        return worker in self._trials and self._trials[worker][:2] == (run, step)

    @property
    def alert(self) -> bool:
        """Whether any worker is or was in trouble, so that good news matters."""
        return bool(self._records or self._host.shared.circuits)

    def watch_all(self) -> None:
        """Look again when the time of each open circuit is up: for a host that starts."""
        for worker in self._host.shared.circuits:
            self._watch(worker)

    def started(self, run: Run, effect: StartAttempt) -> None:
        """An attempt was let through; with an open circuit it is the trial."""
        if effect.worker in self._host.shared.circuits:
            self._trials[effect.worker] = (run, effect.step, effect.epoch)

    def heard(self, run: Run, step: str, worker: str, failure: Doc | None) -> None:
        """What became of an attempt."""
        trial = self._is_trial(run, step, worker)
        if trial:
            del self._trials[worker]
        if is_silent(failure):
            if trial:
                self._look_again()  # the next one may try
            return
        now, circuit = self._host.time().at, self._host.shared.circuits.get(worker)
        if not is_trouble(failure):
            self._records.pop(worker, None)
            # What began before the circuit opened does not end it before its time.
            if circuit is not None and (trial or circuit.until <= now):
                self._tell(CircuitClosed(worker))
            return
        record = self._records.setdefault(worker, Record())
        record.add(run.id, step)
        asked_s = asked_for_s(failure)
        if circuit is not None and circuit.until <= now:
            trips = circuit.trips + 1
            wait_s = max(asked_s, open_for_s(trips))
            reason = f"it failed again, so for {wait_s:g} s"
        elif record.enough and circuit is None:
            trips, wait_s = 1, max(asked_s, open_for_s(1))
            reason = f"it failed {record.failures} times in a row, so for {wait_s:g} s"
        else:
            trips, wait_s = circuit.trips if circuit else 1, asked_s
            reason = f"it asked for {asked_s:g} s"
        until = now + int(wait_s * 1e6)
        if wait_s > 0 and (circuit is None or until > circuit.until):
            self._tell(CircuitOpened(worker, until, trips, reason))

    def close(self) -> None:
        """Let go of timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _tell(self, event: CircuitOpened | CircuitClosed) -> None:
        self._host.mention(event)
        if isinstance(event, CircuitOpened):
            self._watch(event.worker)
        else:
            self._look_again()

    def _watch(self, worker: str) -> None:
        until = self._host.shared.circuits[worker].until
        delay = max(SLACK_S, (until - self._host.time().at) / 1e6)
        if worker in self._timers:
            self._timers[worker].cancel()
        loop = asyncio.get_running_loop()
        self._timers[worker] = loop.call_later(delay, self._due, worker)

    def _due(self, worker: str) -> None:
        circuit = self._host.shared.circuits.get(worker)
        if circuit is not None and circuit.until > self._host.time().at:
            self._watch(worker)  # it rang early: whoever looks now would wait for ever
        else:
            self._look_again()

    def _look_again(self) -> None:
        for run in self._host.runs.values():
            run.state.circuit_closed()
        self._host.poke_all()
