"""From a planner's answer to a revision: let through, put before a person, or refused."""

import pytest

from leadhand.core import events as ev
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.decide.effects import Notify
from leadhand.core.decide.planner_answer import (
    _Heirs,
    findings,
    record_answer,
    revision_hash,
    unseen_repeats,
)
from leadhand.core.hashing import canonical, digest
from leadhand.core.policy import Policy
from leadhand.core.review.decisions import calendar_instants
from leadhand.core.state.model import Now
from tests.core.driver import (
    MINUTE,
    SECOND,
    WORKERS,
    Drive,
    finished,
    propose,
    step,
)


def asked(**start):
    """A run whose planner has been asked for the first time."""
    return Drive(bare=True, **start).go().news_start()


def going(*steps, **start):
    """A run of a planner that is asked after every report, with some steps under way."""
    run = asked(replans=True, consult="every_report", **start)
    return run.answer(propose(*steps, step("z"), final=False)).done("z").news_start()


# A proposal that stands.


UNDECLARED = "its risk is not declared, which the policy counts as low, and runs without approval"


def test_a_proposal_becomes_a_revision():
    """Everything that was proposed stands in the event, and its steps are logged only there."""
    run = asked(planner="me")
    doc = propose(
        step("a"),
        final=False,
        because="it must be",
        outlook=[step("later")],
        notes={"n": 1},
    )
    expected = revision_hash("", [step("a")], [], final=False)
    assert record_answer(run.state, 1, 1, doc, run.now) == (
        [
            ev.PlannerAnswered(1, 1, {"kind": "propose", "notes": {"n": 1}, "revision": 1}),
            ev.RevisionProposed(
                number=1,
                author="me",
                base="",
                hash=expected,
                add=[step("a")],
                cancel=[],
                final=False,
                outlook=[step("later")],
                because="it must be",
                risk="low",
                undeclared=True,
            ),
            ev.RevisionApproved(1, expected, "policy", UNDECLARED, {}),
        ],
        [],
    )


def test_a_bare_proposal():
    """What is left out has a plain meaning: not final, nothing cancelled, no reason."""
    run = asked()
    events, _ = record_answer(run.state, 1, 1, {"kind": "propose", "steps": [step("a")]}, run.now)
    assert (events[0].decision, events[1].final) == ({"kind": "propose", "revision": 1}, False)
    assert (events[1].cancel, events[1].outlook, events[1].because) == ([], [], "")
    run.answer(propose(step("a"), final=False)).done("a")
    events, _ = record_answer(run.state, 2, 3, {"kind": "propose", "final": True}, run.now)
    assert (events[1].number, events[1].add, events[1].final) == (2, [], True)


def test_revisions_are_chained():
    """Each names the one it stands on; its hash covers that base and the change."""
    run = asked()
    run.answer(propose(step("a"), final=False)).done("a").answer(propose(step("b"), final=True))
    first, second = run.all(ev.RevisionProposed)
    assert (second.number, second.base) == (2, first.hash)
    assert second.hash == digest(first.hash, canonical([[step("b")], [], True]))
    assert run.state.head == second.hash


@pytest.mark.parametrize(
    "other",
    [
        ("x", [step("a")], [], {"final": True}),
        ("", [step("b")], [], {"final": True}),
        ("", [step("a")], ["z"], {"final": True}),
        ("", [step("a")], [], {"final": False}),
    ],
)
def test_the_hash_covers_base_steps_cancels_and_final(other):
    """Any change gives another name."""
    base, add, cancel, final = other
    assert revision_hash(base, add, cancel, **final) != revision_hash(
        "", [step("a")], [], final=True
    )


def test_an_answer_with_another_epoch_is_dropped():
    """The fence: the planner that was asked before a restart no longer counts."""
    run = asked()
    assert record_answer(run.state, 1, 2, propose(step("a")), run.now) == ([], [])
    assert record_answer(run.state, 1, 0, propose(step("a")), run.now) == ([], [])


@pytest.mark.parametrize(
    "decision",
    [
        {"kind": "ask", "question": "?"},
        {"kind": "finish", "result": 1},
        {"kind": "give_up", "reason": "no"},
        {"kind": "nonsense"},
        propose(step("a", worker="nobody")),
    ],
)
def test_any_other_answer_is_logged_whole(decision):
    """`decide` acts on it afterwards."""
    run = asked()
    whole = ev.PlannerAnswered(1, 1, decision)
    assert record_answer(run.state, 1, 1, decision, run.now) == ([whole], [])


def test_a_proposal_for_a_run_that_stops_is_logged_and_not_acted_on():
    """Nothing will come of it."""
    run = asked()
    run.tell(ev.StopDecided("failed", "x"))
    decision = propose(step("a"))
    assert record_answer(run.state, 1, 1, decision, run.now) == (
        [ev.PlannerAnswered(1, 1, decision)],
        [],
    )


def test_a_proposal_while_another_waits_is_logged_and_not_acted_on():
    """One revision at a time."""
    run = asked()
    run.tell(ev.RevisionProposed(number=1, author="", base="", hash="h", add=[step("x")]))
    whole = ev.PlannerAnswered(1, 1, propose(step("a")))
    assert record_answer(run.state, 1, 1, propose(step("a")), run.now) == ([whole], [])


def test_failures_and_skips_come_before_a_proposal():
    """They arrived in the same batch; the proposal is checked against what follows from them."""
    for kind, expected in (("transient", "recover a retry"), ("permanent", "recover a continue")):
        run = going(step("a", failure_action="continue"), step("b", "a"))
        failed = ev.AttemptReported(
            "a", 1, run.state.in_flight["a"], False, failure={"class": kind}
        )
        run.tell(failed).answer(propose(step("n", supersedes="b"), final=False))
        assert run.news[1:3] == ["PlannerAnswered", expected]
    run = going(step("a", failure_action="continue"), step("b", "a"))
    run.tell(ev.AttemptReported("a", 1, run.state.in_flight["a"], False, failure={"class": "x"}))
    run.take(run.decide()).news_start()
    run.answer(propose(step("n"), final=False))
    assert run.news[:3] == ["PlannerAnswered", "skip b", "propose 2"]


def test_a_proposal_in_an_old_log_is_acted_on_by_decide():
    """There the whole answer was logged first."""
    run = asked()
    run.say(ev.PlannerAnswered(1, 1, propose(step("a"))))
    assert run.news == ["PlannerAnswered", "propose 1", "approve 1 policy", "start a 1 w"]


# The other answers.


def test_a_question_of_the_planner():
    """It goes to the inbox; the answer brings the planner back."""
    run = asked()
    run.answer({"kind": "ask", "question": "Which?", "choices": ["x", 2]})
    assert run.events[1:] == [
        ev.QuestionAsked(id="q1", kind="planner", text="Which?", choices=["x", "2"])
    ]
    assert run.effects == [Notify("waiting", "Which?")]
    run.reply("2", text="since")
    assert run.news == ["QuestionAnswered", "consult answer"]
    run.answer({"kind": "ask"})
    assert run.events[-1] == ev.QuestionAsked(id="q2", kind="planner", text="", choices=[])


def test_giving_up():
    """The run fails with the planner's reason."""
    run = asked().answer({"kind": "give_up", "reason": "no way"})
    assert run.state.ended == ev.RunEnded(
        "failed", "the planner gave up: no way", origin="planning"
    )
    run = asked().answer({"kind": "give_up"})
    assert run.state.ended.reason == "the planner gave up: "


@pytest.mark.parametrize("kind", ["nonsense", None])
def test_no_decision(kind):
    """The planner is told."""
    run = asked().answer({"kind": kind})
    assert run.all(ev.ProposalRefused) == [ev.ProposalRefused(1, [f"{kind!r} is not a decision"])]


# Review.


@pytest.mark.parametrize(
    ("plan", "doc", "risk"),
    [
        ({}, step("a"), "low"),
        ({}, step("a", worker="cmd"), "medium"),
        ({}, step("a", worker="risky"), "high"),
        ({}, step("a", worker="risky", risk_level="low"), "high"),
        ({}, step("a", risk_level="critical"), "critical"),
        ({}, step("a", alternatives=["risky"]), "high"),
        ({"risk_level": "high"}, step("a"), "high"),
        ({"risk_level": "low"}, step("a", risk_level="high"), "high"),
        ({"risk_level": "medium"}, step("a"), "medium"),
    ],
)
def test_risk_is_the_worst_of_plan_step_and_worker(plan, doc, risk):
    """Nobody can talk it down; up to medium goes through, the rest waits for a person."""
    run = asked(plan=plan).answer(propose(step("x"), doc))
    assert run.last(ev.RevisionProposed).risk == risk
    waits = risk in ("high", "critical")
    assert ("review-1" in run.state.questions) is waits
    assert run.running == ([] if waits else ["x", "a"])


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (step("a", risk_level="high"), step("b")),
        (step("a", worker="x", action="drop"), step("b", worker="x", action="look")),
        (step("a", alternatives=["risky"]), step("b")),
        (step("a", alternatives=["other", "risky"]), step("b", alternatives=["other"])),
        (step("a", worker="risky"), step("b")),
    ],
)
def test_a_harmless_step_does_not_hide_a_risky_one(worse, better):
    """Whichever of two steps that are nearly alike comes last."""
    offers = {"drop": Offer(risk="high"), "look": Offer(risk="low")}
    catalog = [*WORKERS, WorkerSpec(name="x", offers=offers)]
    for steps in ((worse, better), (better, worse)):
        run = asked(catalog=catalog).answer(propose(*steps))
        assert run.last(ev.RevisionProposed).risk == "high"


@pytest.mark.parametrize(
    ("auto", "worker", "waits"),
    [
        ("low", "w", False),
        ("low", "cmd", True),
        ("medium", "cmd", False),
        ("high", "risky", False),
        ("critical", "risky", False),
    ],
)
def test_the_risk_that_runs_by_itself_is_recorded_policy(auto, worker, waits):
    """`auto_risk` is the highest that needs nobody."""
    run = asked(policy=Policy(auto_risk=auto)).answer(propose(step("a", worker=worker)))
    assert bool(run.state.questions) is waits


def test_a_review():
    """The revision waits, a person is told, and no step of it can start."""
    run = asked().answer(propose(step("a", worker="risky"), step("b")))
    text = (
        'Approve plan "the goal" (2 steps, high risk; risky, w declare no effects); '
        "its risk is high"
    )
    proposed = run.last(ev.RevisionProposed)
    assert run.events[-1] == ev.ReviewRequested(1, proposed.hash, text)
    assert run.effects == [Notify("waiting", text)]
    assert (run.running, run.state.steps) == ([], {})
    assert run.decide() is None


def test_a_review_that_was_asked_for():
    """Whatever the risk; but there is nothing to review in a revision without steps."""
    run = asked(policy=Policy(review=True)).answer(propose(step("a"), final=False))
    asked_for = "; requested with --review or policy.review"
    assert run.last(ev.ReviewRequested).reason.endswith(asked_for)
    run.reply("approve").done("a").answer(propose(steps=[]))
    assert run.ended == "succeeded"


def test_approval_turns_calendar_times_into_instants():
    """At the moment it is given, not when the steps were proposed."""
    docs = [
        step("a", not_before="02:00 UTC"),
        step("b"),
        step("c", not_before="1970-01-01T00:00:05Z"),
    ]
    now = Now(0, 3 * 60 * MINUTE)
    assert calendar_instants(docs, now) == {"a": 26 * 60 * MINUTE, "c": 5 * SECOND}


# Findings.


def test_all_findings_are_told_at_once():
    """A refusal names everything that is wrong, so that one more round may do."""
    run = asked()
    run.answer(propose(step("a", worker="nobody"), step("b", "ghost")))
    refused = run.last(ev.ProposalRefused)
    assert refused.call == 1
    assert [f.partition(" at ")[0] for f in refused.findings] == [
        "error[LH106 worker-unknown]",
        "error[LH102 dependency-missing]",
    ]


def test_warnings_do_not_refuse():
    """Only errors do."""
    run = asked().answer(propose(step("a", not_before="02:00 EST")))
    assert run.status("a") == ["ready"]


def test_too_many_steps():
    """The limit is on the whole plan, what was there before included."""
    policy = Policy(steps_max=2)
    run = asked(policy=policy).answer(propose(step("a"), step("b"), step("c")))
    assert run.state.planner.findings == ["the plan would have more than 2 steps"]
    run.answer(propose(step("a"), final=False)).done("a")
    run.answer(propose(step("b"), step("c")))
    assert run.state.planner.findings == ["the plan would have more than 2 steps"]
    run.answer(propose(step("b")))
    assert run.running == ["b"]


NOTHING = ["it proposes nothing, and nothing is under way"]


def test_an_empty_proposal():
    """It says "carry on" while something goes on, and nothing when nothing does."""
    run = asked(replans=True, consult="every_report").answer(propose(steps=[], final=False))
    assert run.state.planner.findings == NOTHING
    run.answer(propose(step("a"), step("b"), final=False)).done("a")
    run.answer(propose(steps=[], final=False))
    assert run.state.planner.findings == []
    assert run.last(ev.RevisionApproved).number == 1, "no revision that changes nothing"
    run.done("b").answer(propose(steps=[], final=False))
    assert run.state.planner.findings == NOTHING


@pytest.mark.parametrize(
    ("setup", "expected"),
    [
        (lambda run: run.fail("a"), []),  # a retry will come
        (lambda run: run.fail("a", "lost", "unknown"), []),  # a person will answer
        (lambda run: run.fail("a", "permanent"), NOTHING),  # its dependent waits for nobody
    ],
)
def test_what_goes_on(setup, expected):
    """Retries and questions go on by themselves; who waits for a failed step does not."""
    run = going(step("a"), step("b", "a"))
    setup(run)
    assert findings(run.state, [], [], final=False) == expected
    drop = {step.id: "so" for step in run.state.steps.values() if step.status == "failed"}
    assert findings(run.state, [], [], drop, final=True) == []


def test_steps_in_the_calendar_go_on():
    """A step that waits for its time is under way."""
    run = going(step("a", not_before="02:00 UTC"))
    assert findings(run.state, [], [], final=False) == []


def test_what_was_checked_before_the_start_is_not_checked_again():
    """The digest of the steps says so; any other steps are."""
    docs = [step("a", worker="nobody")]
    run = asked(linted=digest(canonical(docs)))
    assert findings(run.state, docs, [], final=True) == []
    assert findings(run.state, [step("b", worker="nobody")], [], final=True)
    run.answer(propose(step("x"), final=False)).done("x")
    assert findings(run.state, docs, [], final=True), "only as the first revision"
    run = asked(linted=digest(canonical([])))
    assert findings(run.state, [], ["nobody"], final=True), "and only steps"


@pytest.mark.parametrize(
    ("add", "cancel", "expected"),
    [
        ([], ["b"], []),
        ([], ["b", "b"], ["it cancels b twice"]),
        ([], ["nobody"], ["it cancels nobody, which is not in the plan"]),
        ([], ["a"], ["it cancels a, which is running"]),
        ([], ["z"], ["it cancels z, which is succeeded"]),
        ([], ["a", "z"], ["it cancels a, which is running", "it cancels z, which is succeeded"]),
        ([step("n", supersedes="b")], [], []),
        ([step("n", supersedes="a")], [], ["n supersedes a, which is running"]),
        ([step("n", supersedes="z")], [], ["n supersedes z, which is succeeded"]),
        (
            [step("n", supersedes="b"), step("m", supersedes="b")],
            [],
            ["m supersedes b, which it cancels or replaces already"],
        ),
        (
            [step("n", supersedes="b")],
            ["b"],
            ["n supersedes b, which it cancels or replaces already"],
        ),
        ([step("n", "b", supersedes="b")], [], ["n waits for b, which it supersedes"]),
        ([step("n", finished("b"), supersedes="b")], [], ["n waits for b, which it supersedes"]),
        ([step("n", "b")], ["b"], ["n depends on b, which it cancels"]),
        ([step("n", finished("b"))], ["b"], []),
        ([step("n", "a")], ["b"], []),
        ([step("n", "b"), step("m", supersedes="b")], [], []),
        ([step("n", "z")], [], []),
    ],
)
def test_what_a_proposal_may_take_out_or_replace(add, cancel, expected):
    """Checked against the state at the time it arrives: a is running, b waits, z is done."""
    run = going(step("a"), step("b", "a"))
    assert findings(run.state, add, cancel, final=False) == expected


def test_an_heir_stands_for_the_step_it_replaced():
    """Old names lead to it, in dependencies, cycles and cancels alike."""
    run = asked(replans=True)
    run.answer(propose(step("a"), step("b", "a"), final=False)).fail("a", "permanent")
    run.answer(propose(step("a2", supersedes="a"), final=False))
    assert findings(run.state, [step("n", "a")], [], final=False) == []
    assert findings(run.state, [step("n", supersedes="a")], [], final=False) == [
        "n supersedes a, which is superseded"
    ]
    run.fail("a2", "permanent")
    (found,) = findings(run.state, [step("n", "a")], [], final=False)
    assert 'step "n" depends on "a", which is failed' in found
    assert findings(run.state, [step("n", "a"), step("a3", supersedes="a2")], [], final=False) == []
    assert findings(run.state, [step("a3", "a", supersedes="a2")], [], final=False) == [
        "a3 waits for a, which it supersedes"
    ]
    (found,) = findings(run.state, [step("a3", "b", supersedes="a2")], [], final=False)
    assert found.startswith("error[LH101 cycle]")


def test_a_misspelt_dependency_is_guessed_from_the_run():
    """The steps of the run are known by name."""
    run = going(step("deploy"))
    (found,) = findings(run.state, [step("n", "deploi")], [], final=False)
    assert "deploy" in found
    heirs = _Heirs(run.state)
    assert (list(heirs), len(heirs), heirs.get("nobody")) == (["deploy", "z"], 2, None)


def test_resources_and_params_of_the_run_are_known():
    """What a step uses and refers to is checked against the recorded ones."""
    run = asked(policy=Policy(resources={"db": 1}), params={"p": 1})
    good = step("a", uses="db", parameters={"x": "${{ params.p }}"})
    assert findings(run.state, [good], [], final=True) == []
    bad = step("a", uses="gpu", parameters={"x": "${{ params.q }}"})
    assert len(findings(run.state, [bad], [], final=True)) == 2


# Going round in circles.


def test_revisions_that_try_nothing_new_are_stuck_and_a_person_is_asked():
    """Three are allowed after the first; the next that repeats is one too many."""
    run = asked(replans=True, policy=Policy(replans_idle_max=3))
    for number in range(5):
        run.answer(propose(step(f"s{number}"), final=False)).fail(f"s{number}", "permanent")
    assert run.state.revisions_idle == 4
    run.answer(propose(step("s5"), final=False))
    (question,) = run.state.questions.values()
    assert question.kind == "planning"
    assert "stuck: 4 revisions in a row tried nothing new" in question.text
    run.reply("go_on", question.id).answer(propose(step("s6"), final=False))
    assert run.running == ["s6"]


def test_something_untried_is_progress():
    """Ten sources that fail are tried one after the other, and the last is reached."""
    run = asked(replans=True, policy=Policy(replans_idle_max=1))
    for number in range(10):
        source = step(f"s{number}", parameters={"from": number})
        run.answer(propose(source, final=False)).fail(f"s{number}", "permanent")
    assert (run.state.revisions_idle, run.state.questions) == (0, {})


def test_a_stuck_planner_may_still_say_that_nothing_follows():
    """A revision that changes nothing is not going round in circles."""
    run = asked(replans=True, policy=Policy(replans_idle_max=0))
    run.answer(propose(step("a"), step("b"), final=False)).fail("a", "permanent")
    run.done("b").answer(propose(step("c"), final=False)).fail("c", "permanent")
    assert run.state.revisions_idle == 1
    drop = {"a": "not needed", "c": "not needed"}
    run.answer(propose(steps=[], final=True, drop=drop))
    assert run.ended == "succeeded"


def test_the_heir_of_a_failed_step_is_cancelled_only_with_a_reason():
    """The failure would be forgotten with it; a step that took no place may simply go."""
    run = Drive(bare=True, replans=True, consult="every_report").go()
    first = step("a", failure_action="replan")
    run.answer(propose(first, step("y"), step("z"), final=False))
    run.fail("a", "permanent").answer(propose(step("b", "z", supersedes="a"), final=False))
    run.done("y").answer(propose(step("c", "z"), cancel=["b"], final=False))
    said = "it cancels b, which took the place of a: drop it by name with a reason"
    assert said in run.last(ev.ProposalRefused).findings


# Waiting and finishing.


def test_a_proposal_that_only_takes_out_is_a_proposal():
    """Steps that it cancels, or gives up by name."""
    for more in ({"cancel": ["b"]}, {"drop": {"b": "enough"}}):
        run = going(step("a"), step("b", "a")).answer(propose(final=False, **more))
        assert run.state.revision == 2, more
        assert run.status("b") == ["cancelled"]


def test_a_proposal_of_nothing_says_why():
    """As a wait does."""
    run = asked().answer(propose(final=False, because="all is well"))
    said = "it proposes nothing, and nothing is under way (all is well)"
    assert run.state.planner.findings == [said]


def test_a_finish_waits_for_the_answer_to_a_question():
    """It is told which one, and not blamed."""
    run = going(step("a")).answer({"kind": "ask", "question": "which?"}).done("a")
    run.answer({"kind": "finish"})
    finding = "it is not done: q1 is still open. Fix: wait, or drop steps by name"
    assert run.last(ev.ProposalRefused) == ev.ProposalRefused(3, [finding], early=True)
    assert run.state.planner.epoch == 0


def test_a_finish_does_not_drop_what_a_person_is_asked_about():
    """No planner answers in their place."""
    run = going(step("a", failure_action="escalate"), step("b")).fail("a", "permanent")
    run.answer({"kind": "finish", "drop": {"a": "enough"}})
    finding = "a waits for a person (q1)"
    assert run.last(ev.ProposalRefused) == ev.ProposalRefused(2, [finding], early=True)


def test_a_finish_hears_first_what_a_person_has_answered():
    """The answer came while it was thought of; that is said, and nobody is blamed."""
    run = going(step("a")).answer({"kind": "ask", "question": "which?"}).done("a")
    run.reply("left").answer({"kind": "finish"})
    heard = ["a person has answered meanwhile"]
    assert run.last(ev.ProposalRefused) == ev.ProposalRefused(3, heard, early=True)


def test_a_finish_that_overlooked_a_surprise_is_not_blamed():
    """The surprise came while it was thought of; the planner is asked about that."""
    run = going(step("a"), step("b", "a")).done("a", surprise="odd")
    run.answer({"kind": "finish"})
    assert run.last(ev.ProposalRefused).early
    assert run.news[-1] == "consult surprise: step a: odd"
    run.answer({"kind": "finish"})
    assert not run.last(ev.ProposalRefused).early


def test_who_waits_for_a_dropped_step_goes_with_it():
    """All the way, unless it does not mind how that step ended: then it is still to be done."""
    run = asked(replans=True)
    docs = [step("a"), step("b", "a"), step("c", "b")]
    run.answer(propose(*docs, final=False)).fail("a", "permanent")
    run.answer({"kind": "finish", "drop": {"a": "no use"}})
    assert (run.ended, run.status("b", "c")) == ("succeeded", ["cancelled", "cancelled"])
    run = asked(replans=True)
    run.answer(propose(step("a"), step("b", finished("a")), final=False)).fail("a", "permanent")
    run.answer({"kind": "finish", "drop": {"a": "no use"}})
    assert run.state.planner.findings[0].startswith("it is not done: b is still open")


@pytest.mark.parametrize(
    ("failed", "named"),
    [
        (2, "s0 failed, s1 failed, neither"),
        (5, "s3 failed, s4 failed, neither"),
        (6, "s3 failed, s4 failed and 1 more, neither"),
    ],
)
def test_a_finish_is_told_of_some_of_the_failures(failed, named):
    """At most five are named."""
    run = asked(replans=True)
    names = [f"s{number}" for number in range(failed)]
    run.answer(propose(*map(step, names), final=False))
    for name in names:
        run.fail(name, "permanent")
    run.answer({"kind": "finish"})
    assert named in run.state.planner.findings[0]


def test_a_drop_that_is_wrong_otherwise_too_is_counted():
    """That one of the steps has begun meanwhile excuses only that."""
    run = going(step("b")).answer(propose(final=False, drop={"b": "so", "nobody": "so"}))
    assert run.state.planner.findings == [
        "it drops b, which is running",
        "it drops nobody, which is not in the plan",
    ]
    assert run.state.planner.rounds == 1
    run = going(step("b")).answer(propose(final=False, drop={"nobody": "so"}))
    assert run.state.planner.rounds == 1


# Out of ideas.


ONCE = Policy(jitter=0.0, planner_rounds_max=1)
WANT = {"text": "g", "want": ["x"]}


@pytest.mark.parametrize(
    ("start", "choices", "words"),
    [
        ({}, ["go_on", "abort"], "helps; abort ends the run. Or"),
        ({"goal": WANT, "planner": "goal"}, ["go_on", "abort"], "helps; abort ends the run. Or"),
        (
            {"goal": WANT, "planner": "document"},
            ["go_on", "abort"],
            "helps; abort ends the run. Or",
        ),
        (
            {"goal": WANT},
            ["go_on", "hand_over", "abort"],
            "helps; hand_over continues with the goal planner; abort ends the run. Or",
        ),
        (
            {"plan": {"rollback_plan": "undo.yaml"}},
            ["go_on", "abort", "rollback"],
            "helps; abort ends the run, and rollback also rolls it back. Or",
        ),
    ],
)
def test_what_a_person_can_say_to_a_planner_without_ideas(start, choices, words):
    """Hand the run over where something is wanted, and roll back where that can be done."""
    run = asked(policy=ONCE, **start)
    run.say(ev.PlannerFailed(1, 1, "it passed MAX."))
    text = (
        "The planner found no way to continue: the planner failed: it passed MAX. Answer "
        f"go_on to call it again, with a comment if it {words} amend the plan."
    )
    question = run.last(ev.QuestionAsked)
    assert (question.kind, question.text, question.choices) == ("planning", text, choices)
    assert run.effects[-1] == Notify("waiting", text)


def test_a_run_is_handed_over_once():
    """The goal planner that took over cannot hand over to itself."""
    run = asked(policy=ONCE, goal=WANT)
    run.say(ev.PlannerFailed(1, 1, "no")).reply("hand_over")
    run.say(ev.PlannerFailed(2, run.state.planner.epoch, "no"))
    assert run.last(ev.QuestionAsked).choices == ["go_on", "abort"]


# What waits for a person, and what may have happened.


@pytest.mark.parametrize("kind", ["permanent", "lost"])
@pytest.mark.parametrize(
    "change",
    [
        {"cancel": ["a"]},
        {"drop": {"a": "so"}},
        {"steps": [step("c", worker="other", supersedes="a")]},
    ],
)
def test_no_proposal_answers_in_the_place_of_a_person(kind, change):
    """What they are asked about is left to them; the planner is told, and not blamed."""
    run = going(step("a", failure_action="escalate"), step("b"))
    run.fail("a", kind, "unknown" if kind == "lost" else "none")
    run.answer(propose(final=False, because="so") | change)
    finding = "a waits for a person (q1)"
    assert run.last(ev.ProposalRefused) == ev.ProposalRefused(2, [finding], early=True)


def test_what_is_wrong_anyway_is_told_first():
    """Then it is counted, whomever it also would pass over."""
    run = going(step("a", failure_action="escalate"), step("b")).fail("a", "permanent")
    run.answer(propose(final=False, cancel=["a", "nobody"]))
    assert run.last(ev.ProposalRefused).findings == ["it cancels nobody, which is not in the plan"]
    assert not run.last(ev.ProposalRefused).early


PAYING = [
    WorkerSpec(
        name="pay",
        offers={"": Offer(gives=("paid",)), "again": Offer(idempotent=True), "more": Offer()},
    ),
    WorkerSpec(name="pay2", offers={"": Offer(gives=("paid",)), "look": Offer()}),
    *WORKERS,
]


def paying(**more):
    """A run in which nobody saw whether something was paid, and a person is asked."""
    doc = step("a", worker="pay", parameters={"sum": 1}, **more)
    return going(doc, step("b"), catalog=PAYING).fail("a", "lost", "unknown")


@pytest.mark.parametrize(
    ("doc", "again"),
    [
        (step("c", worker="pay", parameters={"sum": 1}), True),
        (step("c", worker="pay", action="", parameters={"sum": 1}), True),
        (step("c", worker="pay", action="more", parameters={"sum": 1}), False),
        (step("c", worker="pay", action="again", parameters={"sum": 1}), False),
        (step("c", worker="pay2"), True),  # it gives the same
        (step("c", worker="pay2", action="look"), False),
        (step("c", worker="other", supersedes="a"), True),
        (step("c", worker="other"), False),
    ],
)
def test_what_would_do_it_again(doc, again):
    """The same work, what gives the same while that is open, or whatever takes its place."""
    found = unseen_repeats(paying().state, [doc])
    said = "c would do again what a may have done, and no person has looked"
    assert found == ([said] if again else [])


def test_with_other_parameters_it_is_other_work():
    """Once the step has ended, giving the same is not doing it again."""
    run = paying(failure_action="continue")
    assert run.status("a") == ["failed"]
    for parameters, again in (({"sum": 1}, True), ({"sum": 2}, False), ({}, False)):
        doc = step("c", worker="pay", parameters=parameters)
        assert bool(unseen_repeats(run.state, [doc])) is again
    assert unseen_repeats(run.state, [step("c", worker="pay2")]) == []


def test_what_is_left_out_of_a_step_is_nothing():
    """No action and no parameters are the same as empty ones."""
    run = going(step("a", worker="pay", failure_action="continue"), step("b"), catalog=PAYING)
    run.fail("a", "lost", "unknown")
    for more in ({}, {"action": ""}, {"parameters": {}}):
        assert unseen_repeats(run.state, [step("c", worker="pay", **more)]) != [], more


def test_what_may_be_done_twice_may_be_done_again():
    """The step had said that it may not; the new one does not."""
    run = going(step("a", worker="safe", idempotent=False), step("b")).fail("a", "lost", "unknown")
    assert unseen_repeats(run.state, [step("c", worker="safe")]) == []
    assert unseen_repeats(run.state, [step("c", worker="safe", idempotent=False)]) != []


@pytest.mark.parametrize("how", ["done", "skip", "retry", "replan"])
def test_once_a_person_has_looked_it_may_be_done_again(how):
    """Whatever they said."""
    run = paying().reply(how, "q1", **({"data": 1} if how == "done" else {}))
    assert unseen_repeats(run.state, [step("c", worker="pay", parameters={"sum": 1})]) == []


def test_a_step_that_was_skipped_with_another_was_not_looked_at():
    """Only a person's own word counts as a look."""
    run = paying().tell(ev.StepSkipped("a", "so"))
    assert unseen_repeats(run.state, [step("c", worker="pay", parameters={"sum": 1})]) != []


def test_a_step_that_was_left_to_the_planner_is_its_to_replace():
    """With other work; what may have happened is not to happen again."""
    run = going(step("a", worker="pay", failure_action="replan"), step("b"), catalog=PAYING)
    run.state.steps["a"].doc["idempotent"] = True
    run.state.steps["a"].widened = True
    run.fail("a", "permanent", "unknown")
    assert run.state.awaiting_planner == ["a"]
    heirs = [step("c", worker="other", supersedes="a"), step("c", worker="pay", supersedes="a")]
    assert [bool(unseen_repeats(run.state, [heir])) for heir in heirs] == [False, True]


def test_an_heir_gives_what_others_wait_for():
    """Where nobody waits it may give less."""
    made = WorkerSpec(name="maker", offers={"go": Offer(gives=("table",)), "": Offer()})
    catalog = [made, *WORKERS]
    doc = step("a", "z", worker="maker", action="go")
    for waits in (True, False):
        others = [step("b", "a")] if waits else []
        run = asked(replans=True, consult="every_report", catalog=catalog)
        run.answer(propose(step("y"), step("z"), doc, *others, final=False)).done("y")
        heir = step("c", "z", worker="maker", supersedes="a")
        run.answer(propose(heir, final=False))
        refused = ["c takes the place of a and does not give table, and b waits for it"]
        assert run.state.planner.findings == (refused if waits else [])
        if waits:
            run.answer(propose(heir | {"action": "go"}, final=False))
            assert run.state.revision == 2


@pytest.mark.parametrize(
    ("failed", "because", "refused"),
    [(True, "", True), (True, "no use", False), (False, "", False)],
)
def test_who_took_the_place_of_a_failure_goes_with_a_reason(failed, because, refused):
    """Who took another's place, or goes with a reason, may go."""
    run = going(step("a", "q") if not failed else step("a", failure_action="replan"), step("q"))
    if failed:
        run.fail("a", "permanent")
    run.answer(propose(step("b", "q", supersedes="a"), step("y"), final=False)).done("y")
    run.answer(propose(final=False, cancel=["b"], because=because))
    assert (run.status("b") == ["waiting"]) is refused


@pytest.mark.parametrize(
    ("change", "stuck"),
    [
        ({"cancel": ["b"]}, True),
        ({"steps": [step("c")]}, True),
        ({"steps": [step("c", worker="other")]}, False),
        ({"drop": {"b": "so"}}, False),
    ],
)
def test_a_stuck_planner_must_try_something_new(change, stuck):
    """Taking a step out is nothing new; giving one up with a reason is no try at all."""
    run = going(step("a"), step("b", "a"))
    run.state.revisions_idle = run.state.policy.replans_idle_max + 1
    run.answer(propose(final=False, because="so") | change)
    assert [q.kind for q in run.state.questions.values()] == (["planning"] if stuck else [])


def test_taking_out_is_something_when_nothing_goes_on():
    """What is left waits for a failure; but one step is taken out in one way."""
    run = asked(replans=True).answer(propose(step("a"), step("b", "a"), final=False))
    run.fail("a", "permanent")
    assert findings(run.state, [], [], final=False) == NOTHING
    assert findings(run.state, [], ["b"], final=False) == []
    assert findings(run.state, [], [], {"b": "so"}, final=False) == []
    twice = ["it drops b, which it cancels or replaces already"]
    assert findings(run.state, [], ["b"], {"b": "so"}, final=False) == twice


def test_reviewers_have_nothing_to_look_at_without_new_steps():
    """A revision that adds none is let through at once."""
    run = going(step("a"), step("b", "a"))
    run.state.policy = Policy(reviewers=("r",))
    run.answer(propose(final=False, cancel=["b"]))
    assert (run.state.pending, run.status("b")) == (None, ["cancelled"])
