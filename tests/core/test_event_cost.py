"""The cost of an event does not grow with the plan: counted in operations, not in seconds.

Every bytecode instruction that `decide`, `evolve` and `control` execute is counted while a
part of a run goes by, once in a small plan and once in a large one. What one instruction can
hide (a walk over all steps inside a built-in) is caught by steps that refuse to be walked.
"""

import sys

import pytest

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.decide.decide import decide, next_wake
from leadhand.core.decide.planner_answer import record_answer
from leadhand.core.policy import Policy
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import Now
from leadhand.core.views.run import planner_view, run_status
from tests.core.driver import Drive, failure, finished, propose, spec, step

SMALL, LARGE = 100, 5_000
GROWTH_MAX = 1.2
SAMPLE = 40


class Unwalkable(dict):
    """The steps of a run, one at a time only."""

    def __iter__(self):
        raise AssertionError("all steps were walked over")

    keys = values = items = copy = __iter__


class Meter:
    """Counts instructions and events."""

    def __init__(self):
        self.instructions = 0
        self.events = 0

    def _trace(self, frame, event, _argument):
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            self.instructions += 1
        return self._trace

    def __enter__(self):
        # Python 3.12 reports instructions only if a frame asked for them before tracing begins.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._trace)

    def __exit__(self, *_):
        sys.settrace(None)


def turn(run, move, meter=None):
    """An input and what follows from it, as the engine does it; counted when there is a meter."""
    state, now = run.state, run.now
    for event in move.events:
        evolve(state, event, now.at)
    while (move := decide(state, now)) is not None:
        for event in move.events:
            evolve(state, event, now.at)
            if meter is not None:
                meter.events += 1
    next_wake(state)
    run_status(state)


def cost_of(run, inputs, skip):
    """Instructions for each event, over some inputs in the middle of a run."""
    meter = Meter()
    for number, make in enumerate(inputs):
        if number < skip:
            turn(run, make(run.state))
            continue
        if number == skip + SAMPLE:
            break
        steps = run.state.steps
        run.state.steps = Unwalkable(steps)
        with meter:
            turn(run, make(run.state), meter)
        meter.events += 1
        steps.update((key, run.state.steps[key]) for key in dict.keys(run.state.steps))
        run.state.steps = steps
    return meter.instructions / meter.events


def report(ident, met=True, kind="transient"):
    """A report of the attempt in flight."""

    def make(state):
        known = state.steps[ident]
        told = None if met else failure(kind)
        return commands.report(
            state, ev.AttemptReported(ident, known.attempts, known.epoch, met, failure=told)
        )

    return make


def chain(size):
    """One step after the other."""
    steps = [step("s0"), *(step(f"s{i}", f"s{i - 1}") for i in range(1, size))]
    return cost_of(Drive(*steps), [report(f"s{i}") for i in range(size)], size // 2)


def fan_out(size):
    """All at once, ten at a time."""
    steps = [step(f"s{i}", est=i % 7 + 1) for i in range(size)]
    run = Drive(*steps, policy=Policy(max_concurrency=10))
    order = sorted(range(size), key=lambda i: (-(i % 7 + 1), i))
    return cost_of(run, [report(f"s{i}") for i in order], size // 2)


def crowd(size):
    """Everything is in flight."""
    run = Drive(*(step(f"s{i}") for i in range(size)), policy=Policy(max_concurrency=size))
    return cost_of(run, [report(f"s{i}") for i in range(size)], size // 2)


def limits(size):
    """Most steps wait behind the limit of a worker or a resource."""
    kinds = [{"worker": "x"}, {"uses": "db"}, {"worker": "x", "uses": {"db": 1}}, {}]
    steps = [step(f"s{i}", **kinds[i % 4]) for i in range(size)]
    policy = Policy(resources={"db": 2}, max_concurrency=6)
    run = Drive(*steps, catalog=[spec("w"), spec("x", max_concurrency=2)], policy=policy)
    inputs = [lambda state: report(next(iter(state.in_flight)))(state)] * size
    return cost_of(run, inputs, size // 2)


def retries(size):
    """Every step fails once and is tried again."""
    run = Drive(
        *(step(f"s{i}", retry={"backoff": 0}) for i in range(size)),
        policy=Policy(max_concurrency=4),
    )

    def make(state):
        ident = next(iter(state.in_flight))
        return report(ident, met=state.steps[ident].attempts > 1)(state)

    return cost_of(run, [make] * (2 * size), size)


def skips(size):
    """Each failure skips one dependent and frees another."""
    steps = []
    for i in range(size):
        steps += [
            step(f"a{i}", failure_action="continue"),
            step(f"b{i}", f"a{i}"),
            step(f"c{i}", finished(f"b{i}")),
        ]
    run = Drive(*steps, policy=Policy(max_concurrency=4))

    def make(state):
        ident = next(iter(state.in_flight))
        return report(ident, ident[0] == "c", "permanent")(state)

    return cost_of(run, [make] * size, size // 2)


def deadlines(size):
    """Attempts that nobody reports, each with a deadline of its own."""
    steps = [
        step(f"s{i}", worker="safe", timeout=i + 1, failure_action="continue") for i in range(size)
    ]
    run = Drive(*steps, policy=Policy(max_concurrency=size, attempts_max=1))

    def make(state):
        at, _ = next_wake(state)
        run.now = Now(at, at)
        return commands.resume(state, "ann")

    return cost_of(run, [make] * size, size // 2)


def step_by_step(size):
    """A planner that proposes one step after each report, and sees the whole run."""
    run = Drive(bare=True, consult="every_report", policy=Policy(planner_calls_max=10**6)).go()
    made = iter(range(size + 1))

    def make(state):
        if state.in_flight:
            return report(next(iter(state.in_flight)))(state)
        planner, number = state.planner, next(made)
        view = planner_view(state, planner.calls, "report")
        assert len(view.results) == number
        after = [f"s{number - 1}"] if number else []
        doc = propose(step(f"s{number}", *after), final=False)
        return commands.Move(*record_answer(state, planner.calls, planner.epoch, doc, run.now))

    return cost_of(run, [make] * (2 * size), size)


SHAPES = [chain, fan_out, crowd, limits, retries, skips, deadlines, step_by_step]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_an_event_costs_the_same_in_a_large_plan(shape):
    """Fifty times the steps, at most 1.2 times the instructions for an event."""
    small, large = shape(SMALL), shape(LARGE)
    assert large <= GROWTH_MAX * small, f"{small:.0f} instructions grew to {large:.0f}"


def test_the_meter_notices_growth():
    """A test that cannot fail protects nothing: a walk over the plan is seen in both ways."""
    run = Drive(*(step(f"s{i}") for i in range(200)))
    meter = Meter()
    with meter:
        sum(1 for ident in run.state.steps if run.state.steps[ident].status == "ready")
    assert meter.instructions > 1000
    with pytest.raises(AssertionError, match="walked over"):
        list(Unwalkable(run.state.steps).values())
