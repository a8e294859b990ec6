"""The host's circuit breakers, in virtual time: who is called when, over runs and restarts."""

import asyncio
from random import Random

import pytest

from leadhand import Lead, Permanent, RateLimited, Transient
from leadhand.codec.events import decode
from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.decide.circuit_breaker import circuit_reason
from leadhand.core.host_events import HOST_STREAM, CircuitClosed, CircuitOpened
from leadhand.core.logcheck.checker import check
from leadhand.core.policy import Policy
from leadhand.core.views.run import run_status
from leadhand.errors import StoreFull
from leadhand.stores.memory import MemoryDisk
from leadhand.testing import HANG, after, scripted
from leadhand.testing.clock import Calendar, SimClock
from leadhand.testing.loop import SimLoop
from leadhand.testing.simulation import _Host, _Store, _Threads
from leadhand.workers.registry import Registry

POLICY = Policy(jitter=0.0, backoff_s=1.0, attempts_max=99, outage_s=1e6)
BUSY = Transient("busy")


class Bench:
    """A host on a simulated machine, with workers that do what `mood` says now."""

    def __init__(self, *more, policy=POLICY, **offer):
        self.loop = SimLoop(Random(1))
        self.disk = MemoryDisk()
        self.calendar = Calendar(self.loop)
        self.mood = lambda _task: "ok"
        self.calls = []
        offer = {"idempotent": True, **offer}
        first = scripted("w", [self._play("w")], **offer)
        others = [scripted(name, [self._play(name)], **offer) for name in more]
        registry = Registry([first, *others], threads=_Threads())
        self.lead = Lead(registry, policy=policy, actor="ann")
        self.process = 0
        self.full = False
        self.boot()

    def _play(self, name):
        def outcome(task):
            self.calls.append((round(self.loop.time()), name, f"{task.run}.{task.step}"))
            return self.mood(task) if name == "w" else "ok"

        return outcome

    # The machine.

    def boot(self):
        """A host comes up on the disk."""
        self.process += 1
        self.do(self._open())
        return self

    async def _open(self):
        store = _Store(self.disk, lambda _process: None)
        latest = max((header.updated for header in store.runs()), default=0)
        self.store = store
        self.host = _Host(store, clock=SimClock(self.loop, self.calendar, latest))
        await self.host.open()

    def kill(self):
        """The host is gone, from one moment to the next; another takes up its runs."""
        runs = list(self.host.runs)
        self.loop.kill(self.process)
        self.boot()
        for run in runs:
            self.do(self.lead.resume_on(self.host, run))
        return self

    def do(self, work):
        """Something in the host's process, to its end."""
        return self.loop.run_until_complete(self.loop.run_in(self.process, work))

    def passes(self, seconds):
        """Let time pass."""
        self.do(asyncio.sleep(seconds))
        assert self.host.failed is None, self.host.failed
        assert self.loop.troubles == []
        return self

    # Runs.

    def start(self, *steps, run="r1"):
        """Begin a run of steps: names, or documents."""
        docs = [step if isinstance(step, dict) else {"id": step, "worker": "w"} for step in steps]
        self.do(self.lead.begin(self.host, {"goal": "g", "steps": docs}, run_id=run))
        return self

    def breaks(self, run="r0"):
        """A run of five steps that all fail, so that the circuit opens."""
        before, self.mood = self.mood, lambda _task: BUSY
        self.start("a", "b", "c", "d", "e", run=run).passes(0.1)
        assert [type(event) for event in self.circuits[-1:]] == [CircuitOpened]
        self.mood = before
        self.calls.clear()
        return self

    @property
    def circuits(self):
        """What the host's stream says of circuits."""
        stored = [decode(e.version, e.body) for e in self.disk.logs[HOST_STREAM]]
        return [event for event in stored if isinstance(event, (CircuitOpened, CircuitClosed))]

    def log(self, run="r1"):
        """A run's log, which must be in order."""
        events = [(e.at, decode(e.version, e.body)) for e in self.disk.logs[run]]
        assert check(events) == []
        return [event for _, event in events]

    def status(self, run="r1"):
        """One word."""
        return run_status(self.host.runs[run].state)


@pytest.fixture
def benches():
    """Makes benches, and lets go of their loops."""
    made = []

    def bench(*more, **offer):
        made.append(Bench(*more, **offer))
        return made[-1]

    yield bench
    for each in made:
        each.loop.close()


def at(bench):
    """When who was called."""
    return [(when, who) for when, who, _ in bench.calls]


# Opening.


def test_five_failures_at_three_steps_open_the_circuit(benches):
    """With how often and how long, in the stream that belongs to no run."""
    bench = benches()
    bench.mood = lambda _task: BUSY
    bench.start("a", "b", "c", "d", "e").passes(0.1)
    (opened,) = bench.circuits
    assert (opened.worker, opened.trips) == ("w", 1)
    assert opened.reason == "it failed 5 times in a row, so for 30 s"
    assert len(bench.calls) == 5
    bench.passes(29.8)
    assert len(bench.calls) == 5, "nobody is called meanwhile"
    assert bench.status() == "running"


def test_one_step_that_fails_again_and_again_opens_nothing(benches):
    """Its own backoff is enough."""
    bench = benches()
    bench.mood = lambda _task: BUSY
    bench.start("a", "b").passes(100)
    assert bench.circuits == []
    assert len(bench.calls) > 10


def test_a_success_in_between_starts_the_count_again(benches):
    """In a row means in a row."""
    bench = benches()
    for number in range(4):
        bench.mood = lambda _task: BUSY
        bench.start("a", "b", "c", "d", run=f"bad{number}").passes(0.1)
        bench.mood = lambda _task: "ok"
        bench.start("z", run=f"good{number}").passes(0.1)
        bench.do(cancel(bench, f"bad{number}"))
        bench.passes(0.1)
    assert bench.circuits == []


async def cancel(bench, run):
    """A person cancels a run."""
    await bench.host.runs[run].submit_and_wait(
        lambda state, now: commands.cancel(state, "ann", "", now)
    )


@pytest.mark.parametrize("outcome", [Permanent("no such thing"), "ok"])
def test_a_worker_that_answers_is_well(benches, outcome):
    """Also when it says no."""
    bench = benches()
    bench.mood = lambda task: outcome if task.step == "z" else BUSY
    bench.start("a", "b", "c", "d").passes(0.1).start("z", run="r2").passes(0.1)
    bench.start("e", "f", "g", "h", run="r3").passes(0.1)
    assert bench.circuits == []


def test_steps_of_several_runs_count_together(benches):
    """It is the worker that is in trouble, not a run."""
    bench = benches()
    bench.mood = lambda _task: BUSY
    for number in range(5):
        bench.start("a", run=f"r{number}").passes(0.01)
    assert len(bench.circuits) == 1


def test_timeouts_count_at_once(benches):
    """Attempts that never report; what could start in the same moment does not."""
    bench = benches(policy=Policy(jitter=0.0, attempts_max=9, backoff_s=0.0), timeout_s=5.0)
    bench.mood = lambda _task: HANG
    bench.start("a", "b", "c", "d", "e").passes(5.5)
    assert len(bench.circuits) == 1
    assert len(bench.calls) == 5


# Half open.


def test_one_attempt_tries_and_then_everybody_may(benches):
    """At the end of its time exactly one is let through; its success closes the circuit."""
    bench = benches().breaks()
    bench.mood = slow(2.0)
    bench.passes(31.5)
    assert at(bench) == [(30, "w")], "the trial, and nobody else while it runs"
    bench.passes(1)
    assert [type(event) for event in bench.circuits] == [CircuitOpened, CircuitClosed]
    assert at(bench) == [(30, "w"), *[(32, "w")] * 4]
    bench.passes(5)
    assert bench.status("r0") == "succeeded"


def slow(seconds, outcome="ok"):
    """A mood of workers that take their time."""
    return lambda _task: after(seconds, outcome)


def test_a_trial_that_fails_doubles_the_time(benches):
    """30, 60, 120 s and so on, ten minutes at most; one call each."""
    bench = benches().breaks()
    bench.mood = lambda _task: BUSY
    bench.passes(30 + 60 + 120 + 240 + 480 + 600 + 600 + 10)
    trips = [(event.trips, event.reason) for event in bench.circuits]
    assert trips[1:4] == [
        (2, "it failed again, so for 60 s"),
        (3, "it failed again, so for 120 s"),
        (4, "it failed again, so for 240 s"),
    ]
    assert [when for when, _ in at(bench)] == [30, 90, 210, 450, 930, 1530, 2130]


def test_a_trial_that_never_ends_has_a_deadline_too(benches):
    """The next one comes after the time it then takes."""
    bench = benches(timeout_s=5.0).breaks()
    bench.mood = lambda _task: HANG
    bench.passes(30 + 5 + 59)
    assert [when for when, _ in at(bench)] == [30]
    bench.passes(2)
    assert [when for when, _ in at(bench)] == [30, 95]


def test_a_trial_that_is_cancelled_lets_the_next_one_come(benches):
    """That it was stopped says nothing of the worker."""
    bench = benches().breaks().start("z", run="r1")
    bench.mood = lambda _task: HANG
    bench.passes(31)
    ((_, _, name),) = bench.calls
    bench.mood = lambda _task: "ok"
    bench.do(cancel(bench, name.partition(".")[0]))
    bench.passes(1)
    assert len(bench.calls) > 1
    assert isinstance(bench.circuits[-1], CircuitClosed)


def test_what_began_before_does_not_close_it_early(benches):
    """A success that was under way when the circuit opened ends nothing."""
    bench = benches()
    bench.mood = slow(1.0)
    bench.start("z", run="r1").passes(0.1).breaks().passes(10)
    assert bench.status("r1") == "succeeded"
    assert [type(event) for event in bench.circuits] == [CircuitOpened]
    assert bench.calls == []


# Retry-After.


def test_a_worker_that_asks_for_a_pause_gets_it_from_everybody(benches):
    """One word is enough; other runs wait as long."""
    bench = benches()
    bench.mood = lambda task: RateLimited("slow down", retry_after_s=20) if task.attempt == 1 else 1
    bench.start("a", run="r1").passes(1)
    assert bench.circuits[0].reason == "it asked for 20 s"
    bench.mood = lambda _task: "ok"
    bench.start("b", run="r2").start("c", run="r3").passes(18)
    assert len(bench.calls) == 1
    bench.passes(2)
    assert len(bench.calls) == 4
    assert isinstance(bench.circuits[-1], CircuitClosed)


def test_a_shorter_word_does_not_shorten_the_pause(benches):
    """The latest end counts."""
    bench = benches()
    waits = iter((50.0, 10.0))
    bench.mood = lambda _task: RateLimited("slow down", retry_after_s=next(waits))
    bench.start("a", "b").passes(1)
    assert [event.until for event in bench.circuits] == [bench.circuits[0].until]
    bench.mood = lambda _task: "ok"
    bench.passes(48)
    assert len(bench.calls) == 2
    bench.passes(2)
    assert len(bench.calls) == 4


@pytest.mark.parametrize("asked", [1e300, 1e12, 400 * 86_400.0])
def test_nobody_is_taken_out_for_ever(benches, asked):
    """A day at most, whatever is asked for; and nothing overflows."""
    bench = benches()
    bench.mood = lambda _task: RateLimited("never", retry_after_s=asked)
    bench.start({"id": "a", "worker": "w", "failure_action": "abort"}, run="r1").passes(1)
    assert bench.circuits[0].reason == "it asked for 86400 s"
    assert bench.status("r1") == "failed"
    bench.mood = lambda _task: "ok"
    bench.start("b", run="r2").passes(86_390)
    assert len(bench.calls) == 1
    bench.passes(10)
    assert len(bench.calls) == 2


def test_a_pause_longer_than_the_doubled_time_is_kept(benches):
    """A trial that fails and asks for more gets more."""
    bench = benches().breaks()
    bench.mood = lambda _task: RateLimited("slow down", retry_after_s=300)
    bench.passes(31)
    assert bench.circuits[-1].reason == "it failed again, so for 300 s"


# Who waits, and who goes elsewhere.


def test_one_429_is_told_as_what_it_is(benches):
    """Planners and steps heard that it "fails again and again" after a single Retry-After."""
    bench = benches("other")
    bench.mood = lambda _task: RateLimited("slow down", retry_after_s=20)
    bench.start("a", run="r0").passes(1)
    told = circuit_reason(bench.host.breakers, "w")
    assert told.startswith("is unavailable until ")
    assert told.endswith(": it asked for 20 s")
    bench.start({"id": "x", "worker": "w", "alternatives": ["other"]}).passes(1)
    refused = [event for event in bench.log() if isinstance(event, ev.StepRefused)]
    assert refused
    assert "again and again" not in refused[0].reason
    bench.mood = lambda _task: "ok"
    bench.passes(25)
    assert circuit_reason(bench.host.breakers, "w") == "is unavailable for now", "nothing is known"


def test_a_step_with_an_alternative_does_not_wait(benches):
    """It is refused with the reason and rerouted at once; the others wait."""
    bench = benches("other").breaks()
    away = {"id": "x", "worker": "w", "alternatives": ["other"]}
    bench.start(away, "y").passes(1)
    assert bench.calls == [(0, "other", "r1.x")]
    refused = next(event for event in bench.log() if isinstance(event, ev.StepRefused))
    assert refused.failure_class == "unavailable"
    assert refused.reason.startswith("worker w is unavailable until ")
    assert refused.reason.endswith(": it failed 5 times in a row, so for 30 s")
    bench.passes(31)
    assert bench.status() == "succeeded"


def test_other_workers_are_not_concerned(benches):
    """A circuit is of one worker."""
    bench = benches("other").breaks().start({"id": "x", "worker": "other"}).passes(1)
    assert bench.status() == "succeeded"


# Restarts.


def test_an_open_circuit_survives_a_restart(benches):
    """The next host finds it in the stream, waits as long, and tries once."""
    bench = benches().breaks().passes(10).kill()
    bench.mood = slow(2.0)
    bench.passes(19)
    assert bench.calls == []
    bench.passes(2)
    assert len(bench.calls) == 1
    bench.passes(5)
    assert bench.status("r0") == "succeeded"


def test_a_trial_that_died_with_its_host_closes_nothing(benches):
    """Nobody heard of it, so the worker is still in doubt: one attempt tries again."""
    bench = benches().breaks()
    bench.mood = lambda _task: HANG
    bench.passes(31)
    bench.mood = slow(2.0)
    bench.calls.clear()
    bench.kill().passes(1.5)
    assert [type(event) for event in bench.circuits] == [CircuitOpened]
    assert len(bench.calls) == 1
    bench.passes(5)
    assert bench.status("r0") == "succeeded"


def test_what_was_only_counted_is_forgotten(benches):
    """Four failures, a restart and one more are not five in a row."""
    bench = benches()
    bench.mood = lambda _task: BUSY
    bench.start("a", "b", "c", "d").passes(0.1).kill()
    bench.start("e", run="r2").passes(0.1)
    assert bench.circuits == []


def test_a_closed_circuit_stays_closed(benches):
    """It was closed in the log as well."""
    bench = benches().breaks().passes(40).kill()
    bench.calls.clear()
    bench.start("z").passes(0.1)
    assert len(bench.calls) == 1


# Trouble with the disk.


def test_a_full_disk_forgets_the_circuit_and_harms_nobody(benches):
    """It could not be written, so it does not count; the host goes on."""
    bench = benches()
    bench.mood = lambda _task: BUSY
    real = bench.store.append
    bench.store.append = lambda run, *args, **more: (
        refused() if run == HOST_STREAM else real(run, *args, **more)
    )
    bench.start("a", "b", "c", "d", "e").passes(0.5)
    assert (bench.circuits, bench.host.shared.circuits) == ([], {})
    bench.store.append = real
    bench.mood = lambda _task: "ok"
    bench.passes(10)
    assert bench.status() == "succeeded"


def refused():
    """An append that met a full disk."""
    future = asyncio.get_running_loop().create_future()
    future.set_exception(StoreFull("full"))
    return future


def test_closing_the_host_leaves_no_timer(benches):
    """Nothing rings after the end."""
    bench = benches().breaks()
    bench.do(bench.host.close())
    assert bench.host.breakers._timers == {}
