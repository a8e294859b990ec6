"""A run without a shell: feed it words and reports, move its clock, look at what it decides.

    run = Drive(step("a"), step("b", "a"))      # started, planned, a is under way
    run.done("a")                               # a reports success; decide until idle
    assert run.news == ["b: done waiting"]      # what was decided since the last look

Every event goes through `decide` or `control` as the engine does it, is encoded and decoded
again on the way (no aliasing), and is kept in `log`.
"""

import msgspec

from leadhand.codec.events import decode, encode
from leadhand.core import callers, commands
from leadhand.core import events as ev
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.decide.decide import UNLIMITED, decide
from leadhand.core.decide.effects import Move, StartAttempt, StartProbe
from leadhand.core.decide.planner_answer import record_answer
from leadhand.core.host_events import HostState, evolve_host
from leadhand.core.policy import Policy
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import Now, State
from leadhand.core.views.run import summary
from leadhand.core.views.totals import run_totals
from tests.support.plans import step

SECOND = 1_000_000
MINUTE = 60 * SECOND
MOVES_MAX = 20_000
"""More than this without an input is a loop that never ends."""


def finished(ident):
    """A dependency that does not mind how the other step ended."""
    return {"step": ident, "if": "finished"}


def spec(name, **offer):
    """A worker that takes any action; `max_concurrency` and `kind` are the worker's own."""
    own = {key: offer.pop(key) for key in ("max_concurrency", "kind", "version") if key in offer}
    return WorkerSpec(name=name, offers={"": Offer(**offer)}, **own)


WORKERS = [
    spec("w"),
    spec("other"),
    spec("third"),
    spec("safe", idempotent=True),
    spec("probed", probe=True),
    spec("writes", effects=("outside",)),
    spec("risky", risk="high"),
    spec("cmd", kind="command"),
]


def propose(*steps, final=True, **more):
    """A planner's decision to go on with some steps."""
    return {"kind": "propose", "steps": list(steps), "final": final, **more}


def started(**more):
    """The event that starts a run."""
    values = {
        "run": "r1",
        "goal": "the goal",
        "policy": Policy(jitter=0.0),
        "planner": "test",
        "catalog": WORKERS,
        "decide_version": ev.DECIDE_VERSION,
    }
    return ev.RunStarted(**(values | more))


def failure(kind="transient", effect="none", message="it broke", **more):
    """A failure as a report carries it."""
    return {"class": kind, "message": message, "effect": effect, **more}


def brief(event):
    """An event in a few words, for tables of what is expected."""
    match event:
        case ev.AttemptStarted():
            return f"start {event.step} {event.attempt} {event.worker}"
        case ev.AttemptReported():
            return f"report {event.step} {'met' if event.met else event.failure['class']}"
        case ev.AttemptLost():
            return f"lost {event.step} {event.failure_class}"
        case ev.ProbeStarted():
            return f"probe {event.step}"
        case ev.ProbeReported():
            return f"probed {event.step} {event.outcome}"
        case ev.RecoveryDecided():
            return f"recover {event.step} {event.strategy}"
        case ev.StepRefused():
            return f"refuse {event.step} {event.failure_class}"
        case ev.StepSkipped():
            return f"skip {event.step}"
        case ev.PlannerAsked():
            return f"consult {event.why}"
        case ev.PlannerFailed():
            return f"planner failed {event.reason}"
        case ev.ProposalRefused():
            return "refused"
        case ev.RevisionProposed():
            return f"propose {event.number}"
        case ev.RevisionApproved():
            return f"approve {event.number} {event.actor}"
        case ev.ApprovalGiven():
            return f"allow {event.number} {event.actor}"
        case ev.RevisionRejected():
            return f"reject {event.number} {event.actor}"
        case ev.ReviewRequested():
            return f"review {event.number}"
        case ev.QuestionAsked():
            return f"ask {event.id} {event.step or event.kind}"
        case ev.StopDecided():
            return f"stop {event.status}" + (f" {event.limit}" if event.limit else "")
        case ev.RunEnded():
            return f"end {event.status}" + (f" {event.limit}" if event.limit else "")
        case _:
            return type(event).__name__


class Drive:
    """One run, driven by hand."""

    def __init__(self, *steps, at=0, wall=0, room=UNLIMITED, answer=None, bare=False, **start):
        """Start a run. With steps, they are proposed as a final plan; `bare` stops before that."""
        self.state = State()
        self.now = Now(at, wall)
        self.room = room
        self.log = []
        self.cuts = []
        """Where the log may end after a crash: events told together are stored together."""
        self.effects = []
        self._seen = 0
        self.tell(started(**start), ev.RunHosted(1))
        if bare:
            return
        self.go()
        if answer is not None or steps:
            self.answer(answer or propose(*steps))
        self.news_start()

    # What comes in.

    def tell(self, *events):
        """Fold events, as stored, without deciding anything."""
        for event in events:
            stored = decode(ev.EVENT_VERSION, encode(event))
            evolve(self.state, stored, self.now.at)
            self.log.append((self.now.at, stored))
        self.cuts.append(len(self.log))
        return self

    def take(self, move):
        """Record a move and keep its effects."""
        self.tell(*move.events)
        self.effects += move.effects
        return self

    def go(self):
        """Decide until there is nothing left to do."""
        for _ in range(MOVES_MAX):
            move = self.decide()
            if move is None:
                return self
            self.take(move)
        raise AssertionError("decide does not come to rest")

    def decide(self):
        """One move, not yet taken; attempts that the host would not grant are not asked for."""
        room = self.room - len(self.state.in_flight)
        return decide(self.state, self.now, room)

    def take_room(self):
        """The host grants starts; gives back the effects that follow."""
        self.room = UNLIMITED
        return self.go().effects

    def say(self, *events):
        """Tell, then decide."""
        return self.tell(*events).go()

    def hear(self, move):
        """What a person said, as `control` turned it into a move; then decide."""
        return self.take(move).go()

    def answer(self, decision):
        """The planner's answer to the call in flight, taken as the engine takes it."""
        planner = self.state.planner
        doc = msgspec.json.decode(msgspec.json.encode(decision))
        return self.hear(
            Move(*record_answer(self.state, planner.calls, planner.epoch, doc, self.now))
        )

    def report(self, ident, met, *, epoch=None, attempt=None, **more):
        """A judged report, fenced as the engine does it."""
        known = self.state.steps[ident]
        epoch = self.state.in_flight.get(ident, 0) if epoch is None else epoch
        attempt = known.attempts if attempt is None else attempt
        reported = ev.AttemptReported(ident, attempt, epoch, met, **more)
        return self.hear(commands.report(self.state, reported))

    def done(self, *idents, data=None, **more):
        """Steps report success, one after the other."""
        for ident in idents:
            self.report(ident, met=True, data=data, **more)
        return self

    def fail(self, ident, kind="transient", effect="none", *, cost=0.0, **more):
        """A step reports a failure."""
        return self.report(ident, met=False, failure=failure(kind, effect, **more), cost=cost)

    def claim(self, caller, lease_s=900.0):
        """A caller asks for its next step."""
        return self.hear(callers.claim(self.state, self.now, caller, lease_s))

    def extend(self, ident, caller, lease_s=900.0, attempt=None):
        """A caller extends its lease."""
        attempt = self.state.steps[ident].attempts if attempt is None else attempt
        move = callers.extend(self.state, self.now, ident, attempt, caller, lease_s)
        return self.hear(move)

    def probed(self, ident, outcome, **more):
        """The probe's answer."""
        known = self.state.steps[ident]
        return self.say(ev.ProbeReported(ident, known.attempts, known.epoch, outcome, **more))

    def reply(self, choice, ident=None, actor="ann", **more):
        """A person answers a question, the only open one unless named."""
        if ident is None:
            (ident,) = self.state.questions
        return self.hear(commands.answer(self.state, ident, choice, actor, self.now, **more))

    def cancel(self, reason=""):
        """A person cancels the run."""
        return self.hear(commands.cancel(self.state, "ann", reason, self.now))

    def later(self, seconds, wall=None):
        """Time passes on both clocks (or by `wall` seconds on the calendar); then decide."""
        passed = int(seconds * SECOND)
        jump = passed if wall is None else int(wall * SECOND)
        self.now = Now(self.now.at + passed, self.now.wall + jump)
        return self.go()

    def host_again(self):
        """The host died and another took the run up from the log."""
        return self.say(ev.RunHosted(self.state.owner + 1))

    # What comes out.

    def news_start(self):
        """Look only at what comes from here on."""
        self._seen = len(self.log)
        self.effects.clear()
        return self

    @property
    def events(self):
        """The events since the last look."""
        found = [event for _, event in self.log[self._seen :]]
        self._seen = len(self.log)
        return found

    @property
    def news(self):
        """The events since the last look, in brief."""
        return [brief(event) for event in self.events]

    def last(self, kind):
        """The last event of a kind, in the whole log."""
        return next(event for _, event in reversed(self.log) if isinstance(event, kind))

    def all(self, kind):
        """Every event of a kind."""
        return [event for _, event in self.log if isinstance(event, kind)]

    @property
    def running(self):
        """The steps in flight, in the order they were started."""
        return list(self.state.in_flight)

    @property
    def calls(self):
        """The steps whose workers were called or asked since the last look, in order."""
        return [e.step for e in self.effects if isinstance(e, (StartAttempt, StartProbe))]

    def status(self, *idents):
        """How steps stand."""
        return [self.state.steps[ident].status for ident in idents or self.state.steps]

    @property
    def ended(self):
        """How the run ended, or None."""
        return self.state.ended and self.state.ended.status


def fold(log):
    """The state a log amounts to, from nothing but the log."""
    state = State()
    for at, event in log:
        evolve(state, event, at)
    return state


AGENDA = {
    "agenda_built",
    "ready",
    "offered",
    "timers",
    "calendar",
    "catalog",
    "limits",
    "open_circuits",
}
"""What is built from the rest when somebody asks: no part of what is known."""


def snapshot(state):
    """Everything a state knows, as plain data that can be compared and hashed."""
    known = {key: value for key, value in vars(state).items() if key not in AGENDA}
    known["steps"] = {
        ident: {k: v for k, v in msgspec.structs.asdict(each).items() if k != "ticket"}
        for ident, each in state.steps.items()
    }
    # Entries that no longer count are dropped when they surface, in `decide`.
    known["lost_in_flight"] = [
        [ident, epoch]
        for ident, epoch in dict.fromkeys(state.lost_in_flight)
        if epoch == (state.in_flight.get(ident) if ident else state.planner.epoch)
    ]
    known["to_skip"] = [i for i in state.to_skip if state.steps[i].status == "waiting"]
    known["undecided"] = list(state.undecided)
    known["tally"] = run_totals(state, summary(state))
    return msgspec.json.decode(msgspec.json.encode(known))


__all__ = [
    "MINUTE",
    "SECOND",
    "WORKERS",
    "Drive",
    "Move",
    "brief",
    "failure",
    "finished",
    "fold",
    "propose",
    "snapshot",
    "spec",
    "started",
    "step",
]


def folded(*events):
    """Return the host's state after some events, each as it is stored."""
    state = HostState()
    for event in events:
        evolve_host(state, decode(ev.EVENT_VERSION, encode(event)))
    return state


def undecided(doc, report, **start):
    """Return a run whose step `a` reported a failure that nobody has decided about."""
    run = Drive(doc, **start)
    epoch = run.state.in_flight["a"]
    run.tell(ev.AttemptReported("a", 1, epoch, False, failure=report))
    return run.state, run.state.steps["a"]
