"""The checker of logs: clean logs pass, and for each rule there is a bad log that it catches."""

import msgspec
import pytest

from leadhand.core import events as ev
from leadhand.core.carried import result_digest
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.hashing import canonical, digest
from leadhand.core.logcheck.checker import RULES, check
from leadhand.core.policy import Policy
from leadhand.core.review.approval import bind

SECOND = 1_000_000


START = ("splits", "params", "plan")
"""What else a run may be started with."""


ORIGINS = {"failed": "execution", "cancelled": "person", "rejected": "planning"}
"""Where the causes of ends mostly lie."""


class Log:
    """Builds a log event by event, a second apart, with the hashes that belong there."""

    def __init__(self, *steps, policy=None, goal="g", replans=False, planner="document", **worker):
        started = {key: worker.pop(key) for key in START if key in worker}
        offer = Offer(idempotent=worker.pop("idempotent", True), **worker)
        described = {"w": ("function", offer), "other": ("function", Offer())}
        described["hand"] = ("human", Offer(idempotent=True, risk="low"))
        described["caller"] = ("caller", Offer(risk="low"))
        self.specs = {
            name: WorkerSpec(name=name, version="1", kind=kind, offers={"": each})
            for name, (kind, each) in described.items()
        }
        self.at = 0
        self.entries = []
        self.epoch = self.calls = self.revision = 0
        self.head = ""
        self.docs = {}
        self.add(
            ev.RunStarted(
                run="r",
                goal=goal,
                policy=policy or Policy(),
                planner=planner,
                catalog=list(self.specs.values()),
                replans=replans,
                **started,
            ),
            ev.RunHosted(1),
        )
        if steps:
            self.revise(*steps)

    def add(self, *events, later=1.0):
        for event in events:
            self.at += int(later * SECOND)
            self.entries.append((self.at, event))
        return self

    def ask(self):
        self.calls += 1
        self.epoch += 1
        deadline = self.at + 100 * SECOND
        return self.add(ev.PlannerAsked(self.calls, self.epoch, deadline, "start"))

    def answer(self, kind="propose", **more):
        return self.add(ev.PlannerAnswered(self.calls, self.epoch, {"kind": kind, **more}))

    def propose(self, *steps, final=True, cancel=(), risk="low", drop=None):
        add, cancel = [{"worker": "w", **step} for step in steps], list(cancel)
        self.docs.update({doc["id"]: doc for doc in add})
        number = self.revision + 1
        name = digest(self.head, canonical([add, cancel, final, *([drop] if drop else [])]))
        self.proposed = ev.RevisionProposed(
            number=number,
            author="p",
            base=self.head,
            hash=name,
            add=add,
            cancel=cancel,
            final=final,
            risk=risk,
            drop=drop or {},
        )
        return self.add(self.proposed)

    def approve(self, actor="policy"):
        self.revision, self.head = self.proposed.number, self.proposed.hash
        return self.add(ev.RevisionApproved(self.revision, self.head, actor))

    def revise(self, *steps, **more):
        return self.ask().answer().propose(*steps, **more).approve()

    def start(self, step, attempt=1, *, worker="w", later=1.0, **changed):
        self.epoch += 1
        doc = self.docs[step]
        spec = digest(canonical(doc), worker, "1")
        event = ev.AttemptStarted(
            step, attempt, self.epoch, worker, self.at + 3600 * SECOND, spec, ""
        )
        return self.add(msgspec.structs.replace(event, **changed), later=later)

    def hand_out(self, step, attempt=1, lease=100, **changed):
        until = self.at + lease * SECOND
        more = {"caller": "agent:bot", "deadline": until, "limit": self.at + 3600 * SECOND}
        return self.start(step, attempt, worker="caller", **(more | changed))

    def extend(self, step, lease=100, attempt=1, **more):
        until = self.at + lease * SECOND
        return self.add(ev.LeaseExtended(step, attempt, self.epoch, until), **more)

    def report(self, step, attempt=1, *, epoch=None, data=None, **more):
        event = ev.AttemptReported(step, attempt, epoch or self.epoch, True, data)
        return self.add(msgspec.structs.replace(event, **more))

    def fail(self, step, attempt=1, kind="transient", effect="none", **more):
        failure = {"class": kind, "message": "m", "effect": effect, **more}
        return self.add(ev.AttemptReported(step, attempt, self.epoch, False, failure=failure))

    def lose(self, step, attempt=1, kind="lost", **more):
        return self.add(ev.AttemptLost(step, attempt, self.epoch, kind, "gone"), **more)

    def decide(self, step, strategy, attempt=1, kind="transient", **more):
        worker = more.pop("worker", "w" if strategy in ("retry", "park") else "")
        return self.add(
            ev.RecoveryDecided(
                step=step,
                attempt=attempt,
                failure_class=kind,
                strategy=strategy,
                reason="r",
                worker=worker,
                **more,
            )
        )

    def question(self, step, ident="q1", choices=("done", "retry", "skip", "abort")):
        return self.add(
            ev.QuestionAsked(id=ident, kind="failure", text="?", choices=list(choices), step=step)
        )

    def say(self, choice, ident="q1", **more):
        return self.add(ev.QuestionAnswered(id=ident, choice=choice, actor="me", **more))

    def done(self, status="succeeded", **more):
        more.setdefault("origin", ORIGINS.get(status, ""))
        return self.add(ev.RunEnded(status, **more))

    def stop(self, reason="x", status="failed", **more):
        more.setdefault("origin", ORIGINS.get(status, ""))
        return self.add(ev.StopDecided(status, reason, **more))

    def run(self, step, attempt=1, **more):
        return self.start(step, attempt).report(step, attempt, **more)


A, B = {"id": "a"}, {"id": "b", "depends_on": ["a"]}
TOLERANT = {"id": "b", "depends_on": [{"step": "a", "if": "finished"}]}
USING = {"id": "b", "parameters": {"x": "${{ steps.a.data.v }}"}}
NOT_TWICE = {"id": "a", "idempotent": False}


def rules(log):
    return [violation.rule for violation in check(log.entries)]


def using(log, value, **more):
    """Start the step that uses another's result, with the hash of some inputs."""
    spec = digest(canonical(log.docs["b"]), "w", "1")
    return log.start("b", exec=digest(spec, canonical({"x": value})), **more)


def widened(log, actor, *, shown=True):
    """A revision whose step claims to be idempotent, let through so that the claim counts."""
    found = log.ask().answer().propose({**A, "idempotent": True}).proposed
    claims = (
        {"a": {"idempotent": []}} if shown and found.author != log.entries[0][1].planner else {}
    )
    bound = bind(log.entries[0][1], found.hash, {"w": "1"}, 0, claims)
    if actor != "policy":
        log.add(
            ev.ApprovalGiven(
                number=1,
                hash=found.hash,
                actor=actor,
                binding=bound,
                widens=["a"] if shown else [],
            )
        )
    return log.add(ev.RevisionApproved(1, found.hash, actor, widens=["a"]))


def reviewed(log, actor):
    """A revision of high risk that somebody was asked about and allowed."""
    found = log.proposed
    envelope = {"workers": ["w"], "effects": ["undeclared:w"], "scope": [], "risk": "high"}
    log.add(ev.ReviewRequested(found.number, found.hash, "high"))
    log.revision, log.head = found.number, found.hash
    approved = ev.RevisionApproved(found.number, found.hash, actor, "", {}, envelope)
    return allowed(log, actor).add(approved)


MINE = {"id": "a", "worker": "caller"}
"""A step of the agent that drives the run."""

CLEAN = {
    "handed out": lambda: (
        Log(MINE, B).hand_out("a").extend("a").add(ev.RunHosted(2)).report("a", said="d")
    ),
    "lease ended": lambda: (
        Log(MINE).hand_out("a").extend("a", later=50).lose("a", kind="timeout", later=101)
    ),
    "empty": lambda: Log().ask(),
    "chain": lambda: Log(A, B).run("a").run("b").done(),
    "reference": lambda: using(Log(A, USING).run("a", data={"v": 7}), 7).report("b").done(),
    "artifact": lambda: (
        using(Log(A, USING).run("a", data_ref="sha256:x"), {"$artifact": "sha256:x", "path": ["v"]})
        .report("b")
        .done()
    ),
    "retry": lambda: (
        Log(A).start("a").fail("a").decide("a", "retry", until=8 * SECOND).run("a", 2).done()
    ),
    "lost and repeatable": lambda: (
        Log(A)
        .start("a")
        .add(ev.RunHosted(2))
        .lose("a")
        .decide("a", "retry", kind="lost")
        .run("a", 2)
        .done()
    ),
    "probe": lambda: (
        probed(Log(NOT_TWICE, probe=True), "not_done")
        .decide("a", "retry", kind="timeout")
        .run("a", 2)
        .done()
    ),
    "probe finds it done": lambda: probed(Log(NOT_TWICE, probe=True), "done", met=True).done(),
    "a person allows it": lambda: asked(Log(NOT_TWICE)).say("retry").run("a", 2).done(),
    "a person saw it": lambda: asked(Log(NOT_TWICE)).say("done").done(),
    "a person skips it": lambda: (
        asked(Log(NOT_TWICE, TOLERANT))
        .say("skip")
        .add(ev.StepSkipped("a", "said so", True))
        .run("b")
        .done()
    ),
    "a person aborts": lambda: asked(Log(A)).say("abort").stop("said so").done("failed"),
    "tolerant": lambda: (
        Log({**A, "failure_action": "continue"}, TOLERANT)
        .start("a")
        .fail("a", kind="permanent")
        .decide("a", "continue", kind="permanent")
        .run("b")
        .done()
    ),
    "skip": lambda: (
        asked(Log(A, B, {"id": "c"}))
        .say("skip")
        .add(ev.StepSkipped("a", "said so", True), ev.StepSkipped("b", "a was skipped"))
        .run("c")
        .done("failed")
    ),
    "reroute": lambda: (
        Log({**A, "alternatives": ["other"]})
        .start("a")
        .fail("a", kind="unavailable")
        .decide("a", "reroute", kind="unavailable", worker="other")
        .start("a", 2, worker="other")
        .report("a", 2)
        .done()
    ),
    "replan": lambda: (
        Log(A, B, replans=True)
        .start("a")
        .fail("a", kind="permanent")
        .decide("a", "replan", kind="permanent")
        .revise({"id": "c"}, drop={"a": "c does it"})
        .run("c")
        .done()
    ),
    "supersede": lambda: (
        Log(A, B, replans=True)
        .start("a")
        .fail("a", kind="permanent")
        .decide("a", "replan", kind="permanent")
        .revise({"id": "c", "supersedes": "a"})
        .run("c")
        .run("b")
        .done()
    ),
    "replaced after it let another go": lambda: (
        Log({**A, "failure_action": "continue"}, TOLERANT, replans=True)
        .start("a")
        .fail("a", kind="permanent")
        .decide("a", "continue", kind="permanent")
        .start("b")
        .fail("b")
        .decide("b", "retry")
        .revise({"id": "c", "supersedes": "a"})
        .run("b", 2)
        .run("c")
        .done()
    ),
    "late report": lambda: (
        Log(A)
        .start("a")
        .lose("a", kind="timeout", later=4000)
        .add(ev.ReportIgnored("a", 1, 2, 3.0))
        .decide("a", "retry", kind="timeout")
        .run("a", 2)
        .done()
    ),
    "pause": lambda: Log(A).add(ev.RunPaused("me"), ev.RunResumed("me")).run("a").done(),
    "cancel": lambda: (
        Log(A, B)
        .start("a")
        .add(ev.CancelRequested("me", 100 * SECOND))
        .fail("a", kind="lost", effect="unknown")
        .decide("a", "abandon", kind="lost")
        .done("cancelled")
    ),
    "abort": lambda: (
        Log(A)
        .start("a")
        .fail("a", kind="permanent")
        .decide("a", "abort", kind="permanent")
        .stop("abort")
        .done("failed")
    ),
    "finish": lambda: (
        Log(A, B)
        .run("a")
        .ask()
        .answer("finish", drop={"b": "enough"})
        .add(ev.FinishAccepted(1, {"b": "enough"}))
        .done()
    ),
    "a fact from a person": lambda: (
        Log(A, goal={"text": "g", "want": ["x"]})
        .run("a")
        .add(
            ev.QuestionAsked(id="q1", kind="planner", text="?", choices=["give"], facts=["x"]),
            ev.QuestionAnswered(id="q1", choice="give", actor="me", data=7),
        )
        .done()
    ),
    "goal": lambda: (
        Log(A, goal={"text": "g", "acceptance": ["result == 1"]})
        .run("a")
        .add(ev.GoalCheckStarted(), ev.GoalChecked(True))
        .done()
    ),
    "goal unmet": lambda: (
        Log(A, goal={"text": "g", "acceptance": ["result == 1"]})
        .run("a")
        .add(ev.GoalCheckStarted(), ev.GoalChecked(False, ["result is 2"]))
        .done("failed", origin="planning")
    ),
    "refusal": lambda: (
        asked(Log(A).add(ev.StepRefused("a", "unavailable", "gone")), attempt=0, kind="unavailable")
        .say("retry")
        .run("a")
        .done()
    ),
    "review": lambda: (
        reviewed(Log().ask().answer().propose({**A, "risk_level": "high"}, risk="high"), "me")
        .run("a")
        .done()
    ),
}


def asked(log, attempt=1, kind="permanent"):
    """A step failed, or was refused, and a person was asked."""
    if attempt:
        log.start("a").fail("a", kind=kind)
    return log.decide("a", "ask", attempt, kind=kind).question("a")


def sent_back(*comments):
    """A revision was proposed, and a person asked for changes of it."""
    log = Log(replans=True).ask().answer().propose(A)
    revision = log.proposed
    log.add(ev.ChangesRequested(revision.number, revision.hash, "ann", "x", list(comments)))
    log.revision = revision.number
    return log


def answering(*answers):
    """A comment c1 on a plan, and the next revision with its answers."""
    log = sent_back(ev.StepComment("c1", "x", "a")).ask().answer().propose(A)
    return changed(log, answers=list(answers))


def probed(log, outcome, **more):
    """An attempt timed out, and its worker was asked whether it took effect."""
    log.start("a").lose("a", kind="timeout", later=4000).decide("a", "probe", kind="timeout")
    log.epoch += 1
    log.add(ev.ProbeStarted("a", 1, log.epoch, log.at + 60 * SECOND))
    report = ev.ProbeReported("a", 1, log.epoch, outcome)
    return log.add(msgspec.structs.replace(report, **more))


@pytest.mark.parametrize("name", CLEAN)
def test_clean_logs_pass(name):
    """A log of what may happen has no violation, and neither has any part of it."""
    entries = CLEAN[name]().entries
    assert not check(entries)
    for length in range(1, len(entries)):
        assert not check(entries[:length])


def allowed(log, actor):
    """Somebody allows what was proposed."""
    start, found = log.entries[0][1], log.proposed
    bound = bind(start, found.hash, {"w": "1"}, 0)
    return log.add(
        ev.ApprovalGiven(number=found.number, hash=found.hash, actor=actor, binding=bound)
    )


def ended_approval(log):
    """Somebody allows it until the moment that it is: nothing may start any more."""
    start, found, until = log.entries[0][1], log.proposed, max(log.entries[-1][0], 1)
    bound = bind(start, found.hash, {"w": "1"}, until)
    given = ev.ApprovalGiven(
        number=found.number, hash=found.hash, actor="ann", binding=bound, expires=until
    )
    envelope = {"workers": ["w"], "effects": ["undeclared:w"], "scope": [], "risk": "low"}
    envelope["expires"] = until
    approved = ev.RevisionApproved(found.number, found.hash, "ann", "", {}, envelope, until)
    return log.add(ev.ReviewRequested(found.number, found.hash, "so"), given, approved)


REOPENED = ev.RunReopened("a", "me", "the disk was full")
REDONE = ev.RedoRequested("a", "me", "the disk was full")


def failed(log, *, rollback=False):
    """A run whose step failed, and that ended for it."""
    stop = ev.StopDecided("failed", "x", rollback=rollback)
    log.start("a").fail("a", kind="permanent").decide("a", "abort", kind="permanent").add(stop)
    return log.done("failed", rollback=rollback)


CARRIED = {"run": "q", "attempt": 1, "entry": 4, "digest": result_digest(1), "param": "p"}
TAKEN_OVER = {"rerun_of": "q", "carried": {"b": CARRIED}}
BAD = {
    # The run.
    "no start": ("I5", lambda: without(Log(A).run("a").done(), 0)),
    "two starts": ("I5", lambda: Log(A).add(Log().entries[0][1]).run("a").done()),
    "after the end": ("I5", lambda: Log(A).run("a").done().add(ev.RunPaused("me"))),
    "one link for two answers": (
        "I57",
        lambda: Log(A).add(*2 * [ev.LinkUsed("l", "q1", "me", "email")]).run("a").done(),
    ),
    "a link without a person": (
        "I57",
        lambda: Log(A).add(ev.LinkUsed("l", "q1", "", "email")).run("a").done(),
    ),
    "two ends": ("I5", lambda: Log(A).run("a").done().done()),
    "reopened, though it goes on": (
        "I5",
        lambda: failed(Log(A)).add(REOPENED, REDONE, REOPENED, REDONE),
    ),
    "reopened, though it succeeded": ("I5", lambda: Log(A).run("a").done().add(REOPENED)),
    "reopened, though it was taken back": (
        "I5",
        lambda: failed(Log(A), rollback=True).add(REOPENED, REDONE),
    ),
    "reopened by nobody": (
        "I5",
        lambda: failed(Log(A)).add(ev.RunReopened("a", "", "x"), REDONE),
    ),
    "reopened for no reason": (
        "I5",
        lambda: failed(Log(A)).add(ev.RunReopened("a", "me", ""), REDONE),
    ),
    "reopened for nothing": ("I21", lambda: failed(Log(A)).add(REOPENED, ev.RunPaused("me"))),
    "stopped twice": (
        "I5",
        lambda: (
            Log(A).add(ev.StopDecided("failed", "x"), ev.StopDecided("failed", "y")).done("failed")
        ),
    ),
    "not an event": ("form", lambda: Log(A).add(ev.Event()).run("a").done()),
    "unknown step": ("I6", lambda: Log(A).add(ev.StepSkipped("z", "x")).run("a").done()),
    "answer to nothing": ("I6", lambda: Log(A).say("retry").run("a").done()),
    "no such choice": ("I6", lambda: asked(Log(A)).say("maybe")),
    "nobody answered": (
        "I6",
        lambda: asked(Log(A)).add(ev.QuestionAnswered(id="q1", choice="retry", actor="")),
    ),
    "goal checked unasked": (
        "I6",
        lambda: Log(A).run("a").add(ev.GoalChecked(True)).done(),
    ),
    "late report of the future": ("I6", lambda: Log(A).add(ev.ReportIgnored("a", 3, 9))),
    "a step is lost": ("I9", lambda: Log(A, B).run("a").done()),
    "ended in flight": ("I9", lambda: Log(A).start("a").done("failed")),
    # Starts.
    "done twice": ("I10", lambda: Log(A).run("a").start("a", 2)),
    "two at once": ("I11", lambda: Log(A).start("a").start("a", 2)),
    "attempt left out": ("I11", lambda: Log(A).start("a", 2)),
    "attempt repeated": (
        "I11",
        lambda: Log(A).start("a").fail("a").decide("a", "retry").start("a", 1),
    ),
    "old epoch": ("I11", lambda: Log(A, {"id": "c"}).start("a").start("c", epoch=1)),
    "two planner calls": ("I11", lambda: Log().ask().ask()),
    "fence": ("I12", lambda: Log(A).start("a").report("a", epoch=1)),
    "report of nothing": ("I12", lambda: Log(A).report("a")),
    "report from the dead": ("I12", lambda: Log(A).start("a").add(ev.RunHosted(2)).report("a")),
    "current one ignored": ("I12", lambda: Log(A).start("a").add(ev.ReportIgnored("a", 1, 2))),
    "lost for no reason": ("I12", lambda: Log(A).start("a").lose("a")),
    "older host": ("I12", lambda: Log(A).add(ev.RunHosted(1))),
    "planner fence": ("I12", lambda: Log().ask().add(ev.PlannerAnswered(1, 7, {}))),
    "planner lost for no reason": (
        "I12",
        lambda: Log().ask().add(ev.PlannerFailed(1, 1, "x", lost=True)),
    ),
    "caller lost for no reason": ("I12", lambda: Log(MINE).hand_out("a").lose("a")),
    "caller lost with a host": (
        "I12",
        lambda: Log(MINE).hand_out("a").add(ev.RunHosted(2)).lose("a"),
    ),
    "another attempt of a caller": (
        "I12",
        lambda: Log(MINE).hand_out("a").report("a", epoch=1, said="d"),
    ),
    "lease of nothing": ("I12", lambda: Log(MINE).extend("a")),
    "started without a caller": ("I56", lambda: Log(MINE).start("a", worker="caller")),
    "handed out to a function": (
        "I56",
        lambda: Log(A).start("a", caller="agent:bot", limit=9999 * SECOND),
    ),
    "handed out to a person": ("I56", lambda: Log(MINE).hand_out("a", caller="ann")),
    "lease beyond the timeout": ("I56", lambda: Log(MINE).hand_out("a", lease=9999)),
    "lease of a function": ("I56", lambda: Log(A).start("a").extend("a")),
    "lease extended too late": ("I56", lambda: Log(MINE).hand_out("a").extend("a", later=101)),
    "lease extended for ever": ("I56", lambda: Log(MINE).hand_out("a").extend("a", lease=9999)),
    "lease made shorter": ("I56", lambda: Log(MINE).hand_out("a").extend("a", lease=10)),
    "reported after the lease": (
        "I56",
        lambda: Log(MINE).hand_out("a", lease=2).add(ev.RunPaused("ann")).report("a", said="d"),
    ),
    "reported by nobody": ("I56", lambda: Log(MINE).hand_out("a").report("a")),
    "spawned for nothing": ("I12", lambda: Log(A).add(ev.AttemptSpawned("a", 5, 1, 1, "b"))),
    "too early": ("I14", lambda: Log(A, B).start("b")),
    "before its dependency is done": ("I14", lambda: Log(A, B).start("a").start("b")),
    "after a failure": (
        "I14",
        lambda: (
            Log({**A, "failure_action": "continue"}, B)
            .start("a")
            .fail("a", kind="permanent")
            .decide("a", "continue", kind="permanent")
            .start("b")
        ),
    ),
    "other inputs": ("I14", lambda: using(Log(A, USING).run("a", data={"v": 7}), 8)),
    "no inputs": ("I14", lambda: using(Log(A, USING).run("a", data={}), 8)),
    "inputs not said": ("I14", lambda: Log(A, USING).run("a", data={"v": 7}).start("b")),
    "skipped for nothing": ("I14", lambda: Log(A, B).run("a").add(ev.StepSkipped("b", "x"))),
    "skipped while it runs": ("I14", lambda: Log(A).start("a").add(ev.StepSkipped("a", "x"))),
    # The plan.
    "id taken": ("I15", lambda: Log(A).revise(A)),
    "unknown worker": ("I15", lambda: Log({"id": "a", "worker": "nobody"})),
    "unknown dependency": ("I15", lambda: Log({"id": "a", "depends_on": ["z"]})),
    "cycle": ("I15", lambda: Log({"id": "a", "depends_on": ["b"]}, B)),
    "cycle through a replacement": (
        "I15",
        lambda: Log(A, B, replans=True).revise({"id": "c", "supersedes": "a", "depends_on": ["b"]}),
    ),
    "cancelled in flight": ("I15", lambda: Log(A).start("a").revise(cancel=["a"])),
    "replaced after success": (
        "I15",
        lambda: Log(A).run("a").revise({"id": "c", "supersedes": "a"}),
    ),
    "not approved": ("I24", lambda: Log().ask().answer().propose(A).start("a")),
    "another hash": (
        "I24",
        lambda: Log().ask().answer().propose(A).add(ev.RevisionApproved(1, "x", "policy")),
    ),
    "allowed by the policy in a person's place": (
        "I26",
        lambda: allowed(Log().ask().answer().propose(A), "policy"),
    ),
    "allowed by one who may not": (
        "I26",
        lambda: allowed(
            Log(policy=Policy(approvers={"ann": "k"})).ask().answer().propose(A), "eve"
        ),
    ),
    "allowed by one person under two names": (
        "I26",
        lambda: allowed(allowed(Log().ask().answer().propose(A), "ann"), "Ann"),
    ),
    "started after its approval had ended": (
        "I27",
        lambda: ended_approval(Log().ask().answer().propose(A)).start("a"),
    ),
    "released by nobody": (
        "I28",
        lambda: Log(A).add(
            ev.StepsHeld(["a"], "so", "ann", "q1"),
            ev.QuestionAsked(id="q1", kind="hold", text="?"),
            ev.QuestionAnswered(id="q1", choice="release", actor="ann"),
            ev.StepsReleased(["a"], "ann"),
        ),
    ),
    "widened by the policy": ("L13", lambda: widened(Log(idempotent=False), "policy")),
    "widened by a planner": ("L13", lambda: widened(Log(idempotent=False, planner="p"), "ann")),
    "widened unseen": ("L13", lambda: widened(Log(idempotent=False), "ann", shown=False)),
    "changed after approval": ("I24", lambda: Log(A).start("a", spec="x")),
    "not what its hash says": (
        "I24",
        lambda: changed(Log().ask().answer().propose(A), add=[{**A, "worker": "other"}]),
    ),
    "another base": ("I24", lambda: changed(Log().ask().answer().propose(A), base="x")),
    "no person": (
        "I24",
        lambda: Log().ask().answer().propose({**A, "risk_level": "high"}, risk="high").approve(),
    ),
    "risk talked down": (
        "I24",
        lambda: Log().ask().answer().propose({**A, "risk_level": "high"}).approve("me"),
    ),
    "review asked for": ("I24", lambda: Log(A, policy=Policy(review=True))),
    # Limits.
    "overall limit": (
        "I16",
        lambda: Log(A, {"id": "c"}, policy=Policy(max_concurrency=1)).start("a").start("c"),
    ),
    "worker limit": (
        "I16",
        lambda: (
            Log(A, {"id": "c"}, policy=Policy(worker_concurrency={"w": 1})).start("a").start("c")
        ),
    ),
    "resource limit": (
        "I16",
        lambda: (
            Log(
                {**A, "uses": {"gpu": 2}},
                {"id": "c", "uses": "gpu"},
                policy=Policy(resources={"gpu": 2}),
            )
            .start("a")
            .start("c")
        ),
    ),
    "budget": ("I30", lambda: Log(A, policy=Policy(budget=1.0), cost=2.0).start("a")),
    "budget, reserved": (
        "I30",
        lambda: Log(A, {"id": "c"}, policy=Policy(budget=3.0), cost=2.0).start("a").start("c"),
    ),
    "budget, spent": (
        "I30",
        lambda: (
            Log(A, {"id": "c"}, policy=Policy(budget=3.0), cost=1.0).run("a", cost=2.5).start("c")
        ),
    ),
    "planner calls": ("I31", lambda: Log(policy=Policy(planner_calls_max=1)).ask().answer().ask()),
    "steps": ("I31", lambda: Log(A, {"id": "c"}, policy=Policy(steps_max=1))),
    "wall time": ("I31", lambda: Log(A, policy=Policy(wall_s=5.0)).start("a", later=60)),
    "nothing new": (
        "I22",
        lambda: (
            Log(A, policy=Policy(replans_idle_max=0))
            .run("a")
            .revise({"id": "c"})
            .revise({"id": "d"})
        ),
    ),
    "no deadline": ("L3", lambda: Log(A).start("a", deadline=0)),
    "planner without a deadline": ("L3", lambda: Log().add(ev.PlannerAsked(1, 1, 0, "start"))),
    # People.
    "paused": ("I18", lambda: Log(A).add(ev.RunPaused("me")).start("a")),
    "cancelled": ("I18", lambda: Log(A).add(ev.CancelRequested("me", 100 * SECOND)).start("a")),
    "stopping": ("I18", lambda: Log(A).add(ev.StopDecided("failed", "x")).start("a")),
    "finished": (
        "I18",
        lambda: (
            Log(A, B)
            .run("a")
            .ask()
            .answer("finish", drop={"b": "enough"})
            .add(ev.FinishAccepted(1, {"b": "enough"}))
            .start("b")
        ),
    ),
    "finished early": (
        "L14",
        lambda: Log(A, B).run("a").ask().answer("finish").add(ev.FinishAccepted(1)),
    ),
    "dropped without a reason": (
        "L14",
        lambda: Log(A, B).run("a").ask().answer("finish").add(ev.FinishAccepted(1, {"b": ""})),
    ),
    "dropped while it runs": (
        "L14",
        lambda: Log(A).start("a").ask().answer("finish").add(ev.FinishAccepted(1, {"a": "so"})),
    ),
    "a fact from a person that is forgotten": (
        "L15",
        lambda: (
            Log(A, goal={"text": "g", "want": ["x"]})
            .run("a")
            .add(
                ev.QuestionAsked(id="q1", kind="planner", text="?", choices=["give"], facts=["x"]),
                ev.QuestionAnswered(id="q1", choice="give", actor="me", data=7),
                ev.GoalCheckStarted(),
                ev.GoalChecked(False, ["x is wanted"]),
            )
        ),
    ),
    "gave up while a person is asked": (
        "L15",
        lambda: (
            Log(A)
            .add(ev.QuestionAsked(id="q1", kind="planner", text="?"))
            .ask()
            .answer("give_up")
            .add(ev.StopDecided("failed", "no way", origin="planning"))
        ),
    ),
    "asked again though it waits": (
        "I52",
        lambda: Log(A).start("a").ask().answer("wait").add(ev.PlannerWaits(2)).ask(),
    ),
    "waits for nothing": (
        "I52",
        lambda: Log(A).run("a").ask().answer("wait").add(ev.PlannerWaits(2)),
    ),
    "asked while a person is asked about it": (
        "L15",
        lambda: Log(A).add(ev.QuestionAsked(id="q1", kind="planning", text="?")).ask(),
    ),
    "gives up what was not said": (
        "L14",
        lambda: (
            Log(A, B)
            .run("a")
            .run("b")
            .ask()
            .answer("finish")
            .add(ev.FinishAccepted(2, {"b": "so"}))
        ),
    ),
    "finished by nobody": ("I6", lambda: Log(A).run("a").add(ev.FinishAccepted(1))),
    "waits by nobody": ("I6", lambda: Log(A).run("a").add(ev.PlannerWaits(1))),
    "planner while paused": ("I18", lambda: Log().add(ev.RunPaused("me")).ask()),
    # Failures.
    "blind repeat": (
        "I17",
        lambda: (
            Log(NOT_TWICE)
            .start("a")
            .lose("a", kind="timeout", later=4000)
            .decide("a", "retry", kind="timeout")
        ),
    ),
    "blind repeat by another": (
        "I17",
        lambda: (
            Log({**A, "alternatives": ["other"]})
            .start("a")
            .lose("a", kind="timeout", later=4000)
            .decide("a", "retry", kind="timeout")
            .start("a", 2)
            .fail("a", 2, kind="unavailable")
            .decide("a", "reroute", 2, kind="unavailable", worker="other")
        ),
    ),
    "again though it happened": (
        "I17",
        lambda: (
            Log(NOT_TWICE)
            .start("a")
            .fail("a", kind="criteria_unmet", effect="done")
            .decide("a", "retry", kind="criteria_unmet")
        ),
    ),
    "again though the probe could not tell": (
        "I17",
        lambda: probed(Log(NOT_TWICE, probe=True), "unknown").decide("a", "retry", kind="timeout"),
    ),
    "one attempt too many": (
        "I19",
        lambda: Log({**A, "retry": 1}).start("a").fail("a").decide("a", "retry").start("a", 2),
    ),
    "too soon": (
        "I19",
        lambda: Log(A).start("a").fail("a").decide("a", "retry", until=60 * SECOND).start("a", 2),
    ),
    "Retry-After": (
        "I19",
        lambda: (
            Log(A)
            .start("a")
            .fail("a", kind="rate_limited", retry_after=30)
            .decide("a", "retry", kind="rate_limited", until=9 * SECOND)
        ),
    ),
    "hopeless": (
        "I20",
        lambda: (
            Log(A).start("a").fail("a", kind="permanent").decide("a", "retry", kind="permanent")
        ),
    ),
    "hopeless for others too": (
        "I20",
        lambda: (
            Log({**A, "alternatives": ["other"]})
            .start("a")
            .fail("a", kind="permanent")
            .decide("a", "reroute", kind="permanent", worker="other")
        ),
    ),
    "no decision": ("I21", lambda: Log(A).start("a").fail("a").start("a", 2)),
    "never decided": (
        "I21",
        lambda: Log(A).start("a").add(ev.StopDecided("failed", "x")).fail("a").done("failed"),
    ),
    "decided twice": (
        "I21",
        lambda: Log(A).start("a").fail("a").decide("a", "retry").decide("a", "retry"),
    ),
    "decided about another": (
        "I21",
        lambda: Log(A).start("a").fail("a").decide("a", "retry", kind="lost"),
    ),
    "failed without a class": ("I21", lambda: Log(A).start("a").report("a", met=False)),
    "asked without deciding": ("I21", lambda: Log(A).start("a").fail("a").question("a")),
    "decided to ask and did not": (
        "I21",
        lambda: Log(A).start("a").fail("a").decide("a", "ask").add(ev.RunPaused("me")),
    ),
    "aborted and did not stop": (
        "I21",
        lambda: (
            Log(A, {"id": "c"})
            .start("a")
            .fail("a", kind="permanent")
            .decide("a", "abort", kind="permanent")
            .start("c")
        ),
    ),
    "another worker": ("I21", lambda: Log(A).start("a", worker="other")),
    "left to a planner that cannot": (
        "I21",
        lambda: (
            Log(A).start("a").fail("a", kind="permanent").decide("a", "replan", kind="permanent")
        ),
    ),
    "probe nobody decided on": (
        "I21",
        lambda: Log(A, probe=True).add(ev.ProbeStarted("a", 0, 9, 99 * SECOND)),
    ),
    "taken over from a run, and another value": (
        "I54",
        lambda: Log(A, plan=TAKEN_OVER, params={"p": 2}).run("a").done(),
    ),
    "taken over, and not said from where": (
        "form",
        lambda: Log(A, plan={"rerun_of": "q", "carried": {"b": {"run": 1}}}).run("a").done(),
    ),
    "taken over from no run": (
        "I54",
        lambda: Log(A, plan={"carried": TAKEN_OVER["carried"]}, params={"p": 1}).run("a").done(),
    ),
    "a comment with the id of another": (
        "I55",
        lambda: sent_back(ev.StepComment("c1", "x"), ev.StepComment("c1", "y")),
    ),
    "a comment on a step that is not there": (
        "I55",
        lambda: sent_back(ev.StepComment("c1", "x", "nowhere")),
    ),
    "a comment answered twice": (
        "I55",
        lambda: answering(*[ev.CommentAnswer("c1")] * 2),
    ),
    "an answer to no comment": ("I55", lambda: answering(ev.CommentAnswer("c2"))),
    "a protected change, asked about as any failure": (
        "I53",
        lambda: (
            Log(A)
            .start("a")
            .fail("a", kind="policy", change={"commit": "c", "digest": "d"})
            .decide("a", "ask", kind="policy")
            .question("a")
        ),
    ),
    # Time.
    "clock": ("I40", lambda: Log(A).start("a").add(ev.RunPaused("me"), later=-5)),
    "early timeout": ("I40", lambda: Log(A).start("a").lose("a", kind="timeout")),
    # Success.
    "success with a failure": ("L5", lambda: Log(A).start("a").report("a", failure={"class": "x"})),
    "success with findings": ("L5", lambda: Log(A).start("a").report("a", findings=("no",))),
    "success though it failed": (
        "L14",
        lambda: (
            Log(A)
            .start("a")
            .fail("a", kind="permanent")
            .decide("a", "ask", kind="permanent")
            .question("a")
            .say("skip")
            .add(ev.StepSkipped("a", "said so"))
            .done()
        ),
    ),
    "success before the last word": ("L5", lambda: Log().revise(A, final=False).run("a").done()),
    "goal not checked": (
        "L5",
        lambda: Log(A, goal={"text": "g", "acceptance": ["result == 1"]}).run("a").done(),
    ),
    "goal not met": (
        "L5",
        lambda: (
            Log(A, goal={"text": "g", "acceptance": ["result == 1"]})
            .run("a")
            .add(ev.GoalCheckStarted(), ev.GoalChecked(False, ["no"]))
            .done()
        ),
    ),
    "failed for nothing": ("L5", lambda: Log(A).run("a").done("failed")),
    "succeeded though stopped": (
        "L5",
        lambda: Log(A).run("a").add(ev.StopDecided("failed", "x")).done(),
    ),
    "cancelled by nobody": ("L5", lambda: Log(A).run("a").done("cancelled")),
    "continued on its own": (
        "L5",
        lambda: (
            Log(A).start("a").fail("a", kind="permanent").decide("a", "continue", kind="permanent")
        ),
    ),
    "tolerated by nobody": (
        "L5",
        lambda: Log(A).add(ev.StepSkipped("a", "x", True)),
    ),
    "no origin of a failure": ("I50", lambda: aborted().stop().done("failed", origin="")),
    "a step is the planner's fault": ("I50", lambda: aborted().stop(origin="planning")),
    "a planner's end is a step's fault": (
        "I50",
        lambda: aborted(Log(A, replans=True), "replan").ask().answer("give_up").stop(),
    ),
    "planning without a planner": (
        "I50",
        lambda: Log(A).run("a").stop(origin="planning").done("failed", origin="planning"),
    ),
    "execution without a failed step": ("I50", lambda: Log(A).run("a").stop().done("failed")),
    "a limit that was not reached": (
        "I50",
        lambda: aborted().stop(origin="limits").done("failed", origin="limits"),
    ),
    "stopped for one, ended for another": (
        "I50",
        lambda: aborted().stop().done("failed", origin="person"),
    ),
    "success has an origin": ("I50", lambda: Log(A).run("a").done(origin="planning")),
    "a question without a digest": (
        "I51",
        lambda: Log(A).add(ev.ModelCalled(model="m", answer="b" * 64)),
    ),
    "an answer without a digest": (
        "I51",
        lambda: Log(A).add(ev.ModelCalled(model="m", asked="a" * 64)),
    ),
    "a draft of no call": (
        "I6",
        lambda: Log(A).add(ev.DraftRefused(call=9, findings=["x"], draft={})),
    ),
    "a draft for no reason": (
        "form",
        lambda: Log().ask().add(ev.DraftRefused(call=1, findings=[], draft={})),
    ),
}


def aborted(log=None, strategy="abort"):
    """A step failed for good, and that is answered in one way."""
    log = (log or Log(A)).start("a").fail("a", kind="permanent")
    return log.decide("a", strategy, kind="permanent")


def without(log, index):
    del log.entries[index]
    return log


def changed(log, **fields):
    """The last event, changed after its hash was taken."""
    at, event = log.entries[-1]
    log.entries[-1] = (at, msgspec.structs.replace(event, **fields))
    return log


@pytest.mark.parametrize("name", BAD)
def test_each_rule_catches_its_bad_log(name):
    """The rule that is meant speaks, and says what and where."""
    rule, log = BAD[name]
    found = check(log().entries)
    assert rule in [violation.rule for violation in found], found
    first = next(violation for violation in found if violation.rule == rule)
    assert first.message
    assert f"{rule} at {first.seq}" in str(first)


def test_every_rule_has_a_bad_log():
    """A rule that nothing breaks is a rule that nothing tests."""
    assert {rule for rule, _ in BAD.values()} == set(RULES)


def test_nonsense_is_a_violation_and_never_an_exception():
    """`verify` reads logs that anybody may have written."""
    broken = ev.RevisionProposed(number=1, author="p", base="", hash="x", add=[{}])
    log = Log().ask().answer().add(broken, ev.RevisionApproved(1, "x", "policy"))
    assert "form" in rules(log)
