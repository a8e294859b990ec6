"""Steps of a caller: handed out on request, under a lease, fenced by the number of the attempt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core import callers, commands
from leadhand.core import events as ev
from leadhand.core.callers import agent_name, heard_before, with_caller
from leadhand.core.decide.effects import Move
from leadhand.core.hashing import canonical, digest
from leadhand.core.logcheck.checker import check
from leadhand.core.policy import Policy
from leadhand.core.review.approval import binding
from leadhand.core.views.headline import headline
from leadhand.core.views.run import awaiting, run_status
from leadhand.errors import Conflict, LeadhandError, UsageError
from leadhand.workers.caller import Caller
from tests.core.driver import WORKERS, Drive, failure, step

BOT, OTHER = "agent:bot", "agent:other"
CATALOG = [*WORKERS, Caller().spec]


def mine(ident, *after, **more):
    """A step of the caller."""
    return step(ident, *after, worker="caller", **more)


def drive(*steps, **more):
    """A run that knows callers."""
    return Drive(*steps, catalog=CATALOG, **more)


def handed(run):
    """The starts, as step, attempt and caller."""
    return [(e.step, e.attempt, e.caller) for e in run.all(ev.AttemptStarted)]


def report(run, ident, attempt, caller, said, met=True):
    """The report of a caller, as the engine takes it; whether it counted now."""
    if heard_before(run.state, ident, attempt, said):
        return False
    known = with_caller(run.state, run.now, ident, attempt, caller)
    bad = None if met else failure("criteria_unmet", "done")
    run.say(ev.AttemptReported(ident, attempt, known.epoch, met, failure=bad, said=said))
    return True


def test_a_step_waits_until_a_caller_asks():
    """Nothing starts by itself; the run says for what it waits."""
    run = drive(mine("a"), mine("b"), step("c"))
    assert handed(run) == [("c", 1, "")]
    run.done("c")
    assert (run_status(run.state), awaiting(run.state)) == ("waiting", "caller")
    assert headline(run.state).startswith("Waiting for caller: step a")
    run.claim(BOT, 60)
    assert handed(run)[1:] == [("a", 1, BOT)]
    assert (run_status(run.state), awaiting(run.state)) == ("waiting", "caller")
    assert "agent:bot has step a" in headline(run.state)
    assert run.state.steps["a"].deadline == run.now.at + 60_000_000


def test_one_step_at_a_time():
    """The same caller keeps its step; another gets none before that is over."""
    run = drive(mine("a"), mine("b")).claim(BOT).claim(BOT).claim(OTHER)
    assert handed(run) == [("a", 1, BOT)]
    assert report(run, "a", 1, BOT, "x")
    run.claim(OTHER)
    assert handed(run)[1:] == [("b", 1, OTHER)]
    assert report(run, "b", 1, OTHER, "y")
    assert run.state.ended.status == "succeeded"
    assert not check(run.log)


def test_the_end_of_a_host_loses_nothing():
    """The caller is another process: its report counts under the next host."""
    run = drive(mine("a"), step("b")).claim(BOT, 600).say(ev.RunHosted(2))
    assert [e.step for e in run.all(ev.AttemptLost)] == ["b"]
    assert report(run, "a", 1, BOT, "x")
    assert run.state.steps["a"].status == "succeeded"
    assert not check(run.log)


def test_a_lease_that_ends_is_a_lost_attempt():
    """Its outcome is unknown, so a person is asked; the late report is refused."""
    run = drive(mine("a")).claim(BOT, 60).later(60)
    assert run.all(ev.AttemptLost)[0].failure_class == "timeout"
    assert run.all(ev.QuestionAsked)[0].kind == "unseen"
    with pytest.raises(Conflict, match="neither reported nor extended its lease in time"):
        report(run, "a", 1, BOT, "x")
    run.reply("retry").claim(OTHER)
    assert handed(run)[1:] == [("a", 2, OTHER)]
    with pytest.raises(Conflict, match="attempt 2 came after it"):
        report(run, "a", 1, BOT, "x")
    assert not check(run.log)


def test_a_step_that_is_idempotent_is_handed_out_again():
    """A person allowed that claim; the retry policy counts the attempts."""
    doc = mine("a", idempotent=True, retry=2)
    plan = {"planner": "document", "linted": digest(canonical([doc]))}
    run = drive(doc, policy=Policy(review=True, jitter=0.0), **plan)
    run.hear(approved(run)).claim(BOT, 60).later(60).later(5).claim(BOT, 60)
    assert handed(run) == [("a", 1, BOT), ("a", 2, BOT)]
    run.later(60)
    assert [e.strategy for e in run.all(ev.RecoveryDecided)] == ["retry", "ask"]
    assert not check(run.log)


def approved(run):
    """A person approves what waits, as it was shown."""
    shown = binding(run.state, run.state.pending, 0)
    said = {"id": "review-1", "choice": "approve", "approval": {"shown": shown}}
    return commands.move_of("answer", "ann", said)(run.state, run.now)


def test_a_lease_is_extended_up_to_the_timeout():
    """Never beyond; and not for every word of a caller, since each is an event."""
    run = drive(mine("a", timeout=100)).claim(BOT, 40)
    run.later(1).extend("a", BOT, 40)
    assert not run.all(ev.LeaseExtended)
    run.later(29).extend("a", BOT, 40).later(35).extend("a", BOT, 40)
    assert [e.deadline for e in run.all(ev.LeaseExtended)] == [70_000_000, 100_000_000]
    run.later(30).extend("a", BOT, 40).later(5)
    assert run.all(ev.AttemptLost)[0].reason == "no report within 1m 40s, its timeout"
    assert not check(run.log)


def test_what_may_not_start_is_not_handed_out():
    """Paused, held, stopping, too early, or against the run's limit of concurrency."""
    run = drive(mine("a"), mine("b", not_before="01:00 UTC"), step("c"))
    run.say(ev.RunPaused("ann")).claim(BOT)
    run.say(ev.RunResumed("ann"), ev.StepsHeld(["a"], "not yet", "ann", "hold-1")).claim(BOT)
    assert handed(run) == [("c", 1, "")]
    one = drive(mine("a"), step("b"), policy=Policy(max_concurrency=1)).claim(BOT)
    assert handed(one) == [("b", 1, "")]
    assert handed(one.done("b").claim(BOT))[1:] == [("a", 1, BOT)]
    stopped = drive(mine("a"), step("b")).say(ev.CancelRequested("ann", 10_000_000)).claim(BOT)
    assert handed(stopped) == [("b", 1, "")]


def test_a_cancelled_caller_may_still_report():
    """Within the grace; then its attempt is lost, and the run ends."""
    run = drive(mine("a"), mine("b")).claim(BOT).say(ev.CancelRequested("ann", 10_000_000))
    assert run.extend("a", BOT).all(ev.LeaseExtended) == []
    assert report(run, "a", 1, BOT, "x")
    assert run.state.ended.status == "cancelled"
    late = drive(mine("a")).claim(BOT).say(ev.CancelRequested("ann", 10_000_000)).later(10)
    assert late.state.ended.status == "cancelled"
    with pytest.raises(Conflict, match="has ended"):
        report(late, "a", 1, BOT, "x")
    assert not check(late.log)


def test_only_the_caller_that_has_the_step_reports_it():
    """By its name and by the number of its attempt."""
    run = drive(mine("a"), step("b")).claim(BOT)
    for ident, attempt, caller, why in (
        ("a", 1, OTHER, "was handed out to agent:bot, not to agent:other"),
        ("a", 2, BOT, "has no attempt 2"),
        ("a", 0, BOT, "has no attempt 0"),
        ("b", 1, BOT, "it was not handed out to a caller"),
    ):
        with pytest.raises(Conflict, match=why):
            report(run, ident, attempt, caller, "x")
    with pytest.raises(UsageError, match=r"there is no step .zz. in run r1"):
        report(run, "zz", 1, BOT, "x")
    assert not run.all(ev.AttemptReported)


def test_the_same_report_counts_once():
    """Another report of the same attempt is refused, also when the next attempt is under way."""
    run = drive(mine("a", failure_action="continue"), mine("b")).claim(BOT)
    assert report(run, "a", 1, BOT, "x", met=False)
    assert not report(run, "a", 1, BOT, "x", met=False)
    with pytest.raises(Conflict, match="reported already, otherwise than now"):
        report(run, "a", 1, BOT, "y")
    assert len(run.all(ev.AttemptReported)) == 1


def test_another_worker_takes_over_from_a_caller_and_the_other_way_round():
    """Alternatives of a step, in both directions."""
    run = drive(mine("a", alternatives=["safe"])).claim(BOT)
    known = run.state.steps["a"]
    bad = failure("unavailable")
    run.say(ev.AttemptReported("a", 1, known.epoch, False, failure=bad, said="x"))
    assert handed(run) == [("a", 1, BOT), ("a", 2, "")]
    back = drive(step("a", alternatives=["caller"])).fail("a", "unavailable")
    assert (handed(back), run_status(back.state)) == ([("a", 1, "")], "waiting")
    assert handed(back.claim(BOT))[1:] == [("a", 2, BOT)]
    assert not check(back.log)
    assert not check(run.log)


def test_a_caller_is_never_a_person():
    """Its name has a prefix of its own, and no character that deceives."""
    assert agent_name("claude-code") == agent_name("agent:claude-code") == "agent:claude-code"
    for bad in ("", "agent:", "ann\n", "a,b", "x" * 90, "\u0430nn", " bot", "a\u200bb"):
        with pytest.raises(UsageError, match="cannot be the name of a caller"):
            agent_name(bad)


def test_a_lease_takes_time():
    """None of no time, and none that is not a time."""
    run = drive(mine("a"))
    for lease in (0.0, -1.0, 0.5):
        with pytest.raises(UsageError, match="a lease takes at least"):
            callers.claim(run.state, run.now, BOT, lease)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["claim", "claim", "report", "report", "again", "stale", "extend", "later", "host",
             "pause", "resume", "answer", "done"]
        ),
        st.sampled_from([BOT, OTHER]),
        st.integers(0, 3),
    ),
    max_size=60,
)  # fmt: skip


@given(ACTIONS)
def test_whatever_callers_say_the_log_stands(actions):
    """Hosts come and go, leases end, reports come twice or late: each attempt counts once."""
    steps = [mine("a"), mine("b", "a"), mine("c", retry=2, timeout=120), step("d", "a")]
    run, hosts, said = drive(*steps), 1, []
    for verb, caller, number in actions:
        if run.state.ended is not None:
            break
        try:
            hosts = _act(run, verb, caller, number, hosts, said)
        except LeadhandError:
            continue
        assert run.state.handed_out == sum(s.with_caller for s in run.state.steps.values()) <= 1
    assert not check(run.log)
    counted = [(e.step, e.attempt) for e in run.all(ev.AttemptReported) if e.said]
    assert len(counted) == len(set(counted))
    assert {(e.step, e.attempt) for e in run.all(ev.AttemptStarted) if e.worker == "caller"} == {
        (e.step, e.attempt) for e in run.all(ev.AttemptStarted) if e.caller
    }


def _act(run, verb, caller, number, hosts, said):
    """Do one of `ACTIONS`; return the number of hosts so far."""
    held = callers.step_with(run.state, caller)
    match verb:
        case "claim":
            run.claim(caller, 30)
        case "report" if held is not None:
            what = (held.id, held.attempts, caller, f"{len(said)}")
            met = number > 0
            if report(run, *what, met=met):
                said.append((what, met))
        case "again" if said:
            what, met = said[number % len(said)]
            assert not report(run, *what, met=met)
        case "stale" if said:
            (ident, attempt, who, _), met = said[number % len(said)]
            with pytest.raises(Conflict):
                report(run, ident, attempt, who, "something else", met=met)
        case "extend" if held is not None:
            run.extend(held.id, caller, 30)
        case "later":
            run.later((1, 10, 29, 31)[number])
        case "host":
            hosts += 1
            run.say(ev.RunHosted(hosts))
        case "pause" if not run.state.paused:
            run.say(ev.RunPaused("ann"))
        case "resume" if run.state.paused:
            run.say(ev.RunResumed("ann"))
        case "answer" if run.state.questions:
            choice = ("retry", "skip", "retry", "abort")[number]
            run.reply(choice, ident=next(iter(run.state.questions)))
        case "done" if "d" in run.running:
            run.done("d")
    return hosts


def test_a_move_that_hands_nothing_out_is_empty():
    """Asking writes nothing into the log."""
    run = drive(step("a"))
    assert callers.claim(run.state, run.now, BOT, 60) == Move([], [])


def test_a_report_after_the_lease_is_refused_before_anything_noticed_its_end():
    """The timer of the host may be late."""
    run = drive(mine("a")).claim(BOT, 60)
    run.now = run.now._replace(at=run.now.at + 60_000_000)
    with pytest.raises(Conflict, match="the lease of attempt 1 of step a ended at"):
        with_caller(run.state, run.now, "a", 1, BOT)
