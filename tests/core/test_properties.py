"""What holds for every run: random plans, planners, workers, people, hosts and clocks.

A tape of numbers steers a run: each question "what happens next?" takes the next number, and
the end of the tape stands for the first choice, which leads to an end. So a failing tape
shrinks to a short story, which `python -m pytest` prints.
"""

import copy
import random

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from leadhand.codec.events import decode, encode
from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.decide.decide import decide, next_wake
from leadhand.core.decide.effects import CallPlanner, Move, StartAttempt, StartProbe
from leadhand.core.decide.planner_answer import record_answer
from leadhand.core.logcheck.checker import check
from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.core.policy import Policy
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import STARTABLE, Now, State
from leadhand.core.views import run
from tests.core.driver import (
    SECOND,
    Drive,
    failure,
    finished,
    fold,
    propose,
    snapshot,
    spec,
    step,
)

CATALOG = [
    spec("w"),
    spec("safe", idempotent=True),
    spec("probed", probe=True, cost=1.0),
    spec("writes", effects=("outside",)),
    spec("risky", risk="high", max_concurrency=1),
    spec("third", cost=0.5),
]
NAMES = [each.name for each in CATALOG]
WINDOWS = ["00:00-00:01 UTC", "00:01-00:30 UTC"]
TURNS_MAX = 150


def wild(seed):
    """A long tape; Hypothesis prefers short ones."""
    return random.Random(seed).randbytes(500)


tapes = st.integers(0, 1 << 32).map(wild) | st.binary(max_size=100)


class Story(Drive):
    """A run that a tape steers."""

    def __init__(self, tape):
        self.tape = iter(tape)
        self.made = 0
        super().__init__(
            bare=True,
            catalog=CATALOG,
            replans=self.pick([True, False]),
            splits=self.pick([False, True]),
            consult=self.pick(["on_surprise", "every_report"]),
            goal=self.pick(["goal", {"text": "goal", "acceptance": ["result"]}]),
            policy=Policy(
                max_concurrency=self.pick([100, 1, 2]),
                worker_concurrency=self.pick([{}, {"w": 1}]),
                resources={"db": 2, "gpu": 1},
                attempts_max=self.pick([3, 1, 2]),
                budget=self.pick([None, 5.0, 20.0]),
                wall_s=self.pick([None, 50.0, 5000.0]),
                replans_idle_max=self.pick([3, 1]),
                planner_calls_max=self.pick([40, 5]),
                review=self.pick([False, False, True]),
                timeout_s=self.pick([10.0, 100.0]),
                steps_max=self.pick([100, 6]),
            ),
            room=self.pick([1 << 30, 1, 2]),
        )
        self.go()

    def pick(self, choices):
        """The tape's choice among some; the first when the tape has ended."""
        return choices[next(self.tape, 0) % len(choices)]

    def chance(self, one_in):
        return next(self.tape, 0) % one_in == 1

    # What can happen.

    def turn(self):
        """One thing happens, and the run decides."""
        state, choices = self.state, []
        choices += [self.report] * (2 * bool(state.in_flight))
        choices += [self.plan] * (2 * bool(state.planner.epoch))
        choices += [self.person] * (2 * bool(state.questions))
        choices += [self.judge] * (2 * (state.goal_asked and state.goal_met is None))
        choices += [self.resume] * (2 * state.paused)
        choices += [self.wait, self.stale, self.new_host, self.stop]
        self.take(self.pick(choices)() or Move([], []))
        if not self.chance(4):  # otherwise the next thing arrives in the same batch
            self.go()

    def report(self):
        ident = self.pick(list(self.state.in_flight))
        known = self.state.steps[ident]
        if known.status == "probing":
            outcome = self.pick(["done", "not_done", "unknown"])
            met = outcome == "done" and self.pick([True, False])
            reason = self.pick(["", "why"])
            told = ev.ProbeReported(
                ident, known.attempts, known.epoch, outcome, data=1, reason=reason, met=met
            )
            return Move([told], [])
        met = self.pick([True, True, False])
        told = ev.AttemptReported(
            ident,
            known.attempts,
            known.epoch,
            met,
            data=self.pick([{"y": 1}, None]) if met else None,
            failure=None if met else self.failure(),
            cost=self.pick([0.0, 0.25]),
            surprise=self.pick(["", "", "odd"]),
        )
        return commands.report(self.state, told)

    def failure(self):
        effect = self.pick(["none", "done", "unknown"])
        return failure(self.pick(FAILURE_CLASSES), effect, retry_after=self.pick([None, 3]))

    def plan(self):
        planner = self.state.planner
        if self.chance(10):
            return Move([ev.PlannerFailed(planner.calls, planner.epoch, "it raised")], [])
        return Move(
            *record_answer(self.state, planner.calls, planner.epoch, self.decision(), self.now)
        )

    def decision(self):
        known = list(self.state.steps)
        kind = self.pick(["propose"] * 8 + ["finish", "ask", "give_up", "nonsense"])
        if kind == "propose":
            steps = self.steps(known)
            cancel = [self.pick(known)] if known and self.chance(6) else []
            return propose(*steps, final=self.pick([True, False]), cancel=cancel)
        return {"kind": kind, "question": "?", "result": self.pick([None, 1]), "reason": "no"}

    def steps(self, known):
        docs = []
        for _ in range(self.pick([1, 2, 3, 5, 0])):
            self.made += 1
            pool = known + [doc["id"] for doc in docs]
            after = {self.pick(pool) for _ in range(self.pick([0, 1, 2]))} if pool else ()
            waits = [finished(i) if self.chance(4) else i for i in sorted(after)]
            doc = step(f"s{self.made}", *waits, worker=self.pick(NAMES))
            doc |= self.pick([{}, {"failure_action": self.pick(ACTIONS)}])
            doc |= self.pick([{}, {}, {"alternatives": self.pick(OTHERS)}])
            doc |= self.pick([{}, {}, self.pick(EXTRAS)])
            if pool and self.chance(6):
                doc["parameters"] = {"x": "${{ steps." + self.pick(pool) + ".data.y }}"}
            if known and self.chance(6):
                doc["supersedes"] = self.pick(known)
            docs.append(doc)
        return docs

    def person(self):
        question = self.pick(list(self.state.questions.values()))
        choice = self.pick(question.choices[::-1] or ["words"])
        return commands.answer(self.state, question.id, choice, "ann", self.now, data=5)

    def judge(self):
        met = self.pick([True, False])
        return Move([ev.GoalChecked(met, [] if met else ["no"])], [])

    def resume(self):
        return commands.resume(self.state, "ann")

    def stop(self):
        if self.chance(6):
            return commands.cancel(self.state, "ann", "", self.now)
        return commands.pause(self.state, "ann") if self.chance(4) else None

    def new_host(self):
        if self.chance(3):
            self.host_again()

    def stale(self):
        """A late or repeated report of an attempt that is not the current one."""
        tried = [i for i, known in self.state.steps.items() if known.attempts]
        if not tried:
            return None
        ident = self.pick(tried)
        epoch = self.pick(range(self.state.epoch + 1))
        if self.state.in_flight.get(ident) == epoch:
            return None
        told = ev.AttemptReported(ident, 1, epoch, True, cost=0.25)
        return commands.report(self.state, told)

    def wait(self):
        """Time passes until something is due, or a little."""
        at, wall = next_wake(self.state)
        waits = [at - self.now.at] if at is not None else []
        waits += [wall - self.now.wall] if wall is not None else []
        passed = max(0, min(waits, default=SECOND))
        if self.chance(4):
            passed = self.pick([1, SECOND, 20 * SECOND])
        self.now = Now(self.now.at + passed, self.now.wall + passed)

    def play(self, turns=TURNS_MAX):
        for _ in range(turns):
            if self.state.ended is not None:
                break
            self.turn()
        return self.go()


ACTIONS = ["abort", "abort_all", "continue", "replan", "escalate", "rollback"]
OTHERS = [["third", "safe"], ["w", "writes"], ["probed"]]
EXTRAS = [
    {"uses": "db"},
    {"uses": {"db": 2}},
    {"uses": ["db", "gpu"]},
    {"est": 5},
    {"est": "10m"},
    {"not_before": "1970-01-01T00:01:00Z"},
    {"window": WINDOWS[0]},
    {"window": WINDOWS[1]},
    {"idempotent": True},
    {"idempotent": False},
    {"retry": 1},
    {"retry": {"attempts": 2, "backoff": "5s"}},
]


def due(state):
    """When to look again; calendar entries of steps that are gone are only looked at in vain."""
    at, _ = next_wake(state)
    entries = [when for when, ident in state.calendar if state.steps[ident].status in STARTABLE]
    return at, min(entries, default=None)


@given(tapes)
@example(bytes(range(256)))
def test_replay_is_live(tape):
    """Folding the log gives what the run that wrote it knows, and the same next wish."""
    story = Story(tape).play()
    folded = fold(story.log)
    assert snapshot(folded) == snapshot(story.state)
    room = story.room - len(story.state.in_flight)
    assert decide(folded, story.now, room) is None
    assert run.run_status(folded) == run.run_status(story.state)
    if story.state.ended is not None:
        return
    assert due(folded) == due(story.state)
    best, live = folded.next_ready(), story.state.next_ready()
    assert (best and best.id) == (live and live.id)


@given(tapes, st.integers(0, 2000))
def test_a_new_process_takes_up_any_prefix(tape, where):
    """Whatever was durable when a host died, the next one comes to rest and to an end."""
    story = Story(tape).play()
    log, cut = story.log, story.cuts[where % len(story.cuts)]
    heir = Story([])
    heir.log, heir.state, heir.now = log[:cut], fold(log[:cut]), Now(log[cut - 1][0], 0)
    if heir.state.ended is None:
        heir.say(ev.RunHosted(heir.state.owner + 1))
        heir.play(1000)
    assert heir.state.ended is not None
    assert snapshot(fold(heir.log)) == snapshot(heir.state)


@given(tapes)
def test_every_invariant_holds(tape):
    """By the checker that keeps its own books and knows nothing of evolve and decide."""
    assert [str(v) for v in check(Story(tape).play().log)] == []


@given(tapes)
def test_a_run_ends_or_waits_for_somebody(tape):
    """Whenever decide is at rest, something is under way, due at a known time, or asked."""
    story = Story(tape)
    for _ in range(60):
        state = story.go().state
        if state.ended is not None:
            return
        at, wall = next_wake(state)
        judging = state.goal_asked and state.goal_met is None
        known = state.in_flight or state.planner.epoch or state.questions or judging
        assert known or state.paused or at is not None or wall is not None
        story.turn()


@given(tapes)
def test_a_run_that_is_answered_always_ends(tape):
    """When the surprises are over, the first choice everywhere leads to an end."""
    story = Story(tape)
    for _ in range(40):
        if story.state.ended is None:
            story.turn()
    story.tape = iter(())
    assert story.play(1000).state.ended is not None


@given(tapes)
def test_decide_is_deterministic_and_then_idle(tape):
    """Two states folded from one log wish the same, step by step, and come to rest."""
    log = Story(tape).play(30).log
    one, two = fold(log), fold(log)
    now = Now(log[-1][0] + SECOND, SECOND)
    for _ in range(1000):
        move = decide(one, now)
        assert move == decide(one, now) == decide(two, now)
        if move is None:
            break
        for event in move.events:
            evolve(one, event, now.at)
            evolve(two, event, now.at)
    assert decide(one, now) is None
    assert snapshot(one) == snapshot(two)


@given(tapes)
def test_stale_reports_change_nothing_but_the_cost(tape):
    """For every attempt there ever was and is not the current one."""
    story = Story(tape).play(40)
    if story.state.ended is not None:
        return
    for _, event in list(story.log):
        if not isinstance(event, ev.AttemptStarted):
            continue
        if story.state.in_flight.get(event.step) == event.epoch:
            continue
        before = snapshot(story.state)
        late = ev.AttemptReported(event.step, event.attempt, event.epoch, True, {"y": 9}, cost=1.0)
        story.take(commands.report(story.state, late))
        after = snapshot(story.state)
        assert after.pop("spent") == before.pop("spent") + 1.0
        assert after.pop("seq") == before.pop("seq") + 1
        after.pop("last_at")
        before.pop("last_at")
        was, now = before.pop("tally"), after.pop("tally")
        changed = {key for key in was | now if was.get(key) != now.get(key)}
        assert all(key.endswith("cost") for key in changed), changed
        assert after == before


@given(tapes)
def test_nothing_starts_that_nobody_let_through(tape):
    """Every step that starts stands in a revision approved before, as it was approved."""
    story = Story(tape).play()
    proposed, allowed = {}, {}
    for _, event in story.log:
        match event:
            case ev.RevisionProposed():
                proposed = {"hash": event.hash, "add": event.add, "risk": event.risk}
            case ev.RevisionApproved():
                assert event.hash == proposed["hash"]
                risky = proposed["risk"] in ("high", "critical")
                inside = event.reason.startswith("within the approval by ann")
                assert event.actor == "ann" or not risky or inside
                allowed |= {doc["id"]: doc for doc in proposed["add"]}
            case ev.AttemptStarted():
                assert event.step in allowed
    assert set(story.state.steps) == set(allowed)


@given(tapes)
def test_effects_belong_to_durable_events(tape):
    """No worker, probe or planner is called without the event that says so."""
    story = Story(tape).play()
    said = {
        (type(event).__name__, event.epoch)
        for _, event in story.log
        if isinstance(event, (ev.AttemptStarted, ev.ProbeStarted, ev.PlannerAsked))
    }
    names = {
        StartAttempt: "AttemptStarted",
        StartProbe: "ProbeStarted",
        CallPlanner: "PlannerAsked",
    }
    called = [(names[type(e)], e.epoch) for e in story.effects if type(e) in names]
    assert set(called) == said
    assert len(called) == len(said), "each once"


@given(tapes)
def test_limits_hold_at_every_moment(tape):
    """Overall, per worker, per resource, and what the host grants."""
    story = Story(tape)
    for _ in range(60):
        state = story.state
        policy = state.policy
        attempts = [i for i in state.in_flight if state.steps[i].status == "running"]
        assert len(attempts) <= policy.max_concurrency
        assert len(attempts) <= story.room
        assert all(n >= 0 for n in state.busy_workers.values())
        assert state.busy_workers.get("risky", 0) <= 1
        assert all(0 <= n <= policy.resources[name] for name, n in state.busy_resources.items())
        assert sum(state.busy_workers.values()) == len(state.in_flight)
        if state.ended is not None:
            break
        story.turn()


@given(tapes)
def test_counters_are_what_counting_gives(tape):
    """The kept numbers equal those that a search would find."""
    story = Story(tape)
    for _ in range(60):
        state = story.state
        steps = state.steps.values()
        if state.ended is not None:
            break
        settled = {"succeeded", "failed", "skipped", "cancelled", "superseded"}
        assert state.unsettled == sum(s.status not in settled for s in steps)
        assert state.succeeded == sum(s.status == "succeeded" for s in steps)
        assert state.blocking == sum(state.is_blocking(s) for s in steps)
        flying = {s.id: s.epoch for s in steps if s.status in ("running", "probing")}
        assert state.in_flight == flying
        asking = {s.question for s in steps if s.question}
        assert asking == {q.id for q in state.questions.values() if q.step}
        assert state.stopping or all(s.question for s in steps if s.status == "asking")
        story.turn()


@given(tapes)
def test_folding_changes_no_event_and_views_change_no_state(tape):
    """Events are facts; views copy."""
    story = Story(tape).play(40)
    events = [event for _, event in story.log]
    before = copy.deepcopy(events)
    state = fold(story.log)
    known = snapshot(state)
    run.run_outcome(state)
    run.summary(state)
    view = run.planner_view(state, 1, "x")
    for ident in view.steps:
        assert view.steps[ident].id == ident
    assert list(view.results.items()) is not None
    assert snapshot(state) == known
    assert events == before


@given(tapes)
def test_a_log_survives_its_codec(tape):
    """Decoding gives the event back, and encoding it again the same bytes."""
    for _, event in Story(tape).play(40).log:
        body = encode(event)
        assert decode(ev.EVENT_VERSION, body) == event
        assert encode(decode(ev.EVENT_VERSION, body)) == body
        assert msgspec.json.decode(body)["type"] == type(event).__name__


def test_a_state_that_knows_nothing_decides_nothing():
    """Not even an end."""
    assert decide(State(), Now(0, 0)) is None
