"""Who must allow what: rules, envelopes, approvals, and what voids them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.decide.effects import Notify
from leadhand.core.logcheck.checker import check
from leadhand.core.policy import Policy, Rule
from leadhand.core.review import holds
from leadhand.core.review.approval import plan_binding
from leadhand.core.review.ruling import Reach, outside, reach, widened
from leadhand.core.views.ledger import describe
from leadhand.errors import Conflict, NotAllowed, PlanInvalid, UsageError
from tests.core.driver import SECOND, Drive, propose, step


def offers(name, **offer):
    return WorkerSpec(name=name, version="1", offers={"": Offer(**offer)})


CATALOG = [
    offers("w"),
    offers("reader", effects=(), risk="low"),
    offers("mailer", effects=("mail",), risk="medium", cost=2.0),
    offers("writer", effects=("files",), writes=("out/a",), risk="low"),
    offers("risky", effects=("deploy",), risk="high"),
    WorkerSpec(name="web", kind="http", version="1", trusted=False, offers={"": Offer()}),
]


def drive(*steps, **more):
    """A run with these workers; the planner can replan unless told otherwise."""
    start = {"catalog": CATALOG, "replans": True} | more
    return Drive(*steps, **start)


# What steps reach for.


def test_reach_is_the_most_that_anybody_could_do():
    """Alternatives count, cost is that of the dearest, undeclared effects have their own name."""
    found = reach(
        [step("a", worker="reader", alternatives=["mailer"]), step("b"), step("c")],
        Catalog(CATALOG),
    )
    assert found.workers == {"reader", "mailer", "w"}
    assert found.effects == {"mail", "undeclared:w"}
    assert (found.risk, found.cost) == ("medium", 2.0)


def test_a_steps_own_word_on_effects_and_risk_counts():
    """It may declare more than its worker."""
    found = reach([step("a", worker="reader", effects=["db"], risk_level="high")], Catalog(CATALOG))
    assert (found.effects, found.risk) == ({"db"}, "high")
    assert reach([step("a", worker="reader")], Catalog(CATALOG), "critical").risk == "critical"


SETS = st.frozensets(st.sampled_from("abcd"), max_size=3)
REACHES = st.builds(
    Reach,
    SETS,
    SETS,
    st.sampled_from(["low", "medium", "high", "critical"]),
    st.frozensets(st.sampled_from(["x", "x/y", "z"])),
    st.floats(0, 9),
)


@given(REACHES, REACHES)
def test_what_was_allowed_is_inside_and_stays_inside(first, second):
    """The envelope only grows, and holds everything it grew by."""
    once = widened(None, first, None)
    twice = widened(once, second, None)
    assert outside(once, first, 0.0) == []
    assert outside(twice, first, 0.0) == outside(twice, second, 0.0) == []


@pytest.mark.parametrize(
    ("envelope", "more", "said"),
    [
        ({"workers": ["w"]}, {"workers": {"v"}}, ["worker v"]),
        ({"effects": ["mail"]}, {"effects": {"db", "pay"}}, ["effects db, pay"]),
        ({"risk": "low"}, {"risk": "high"}, ["risk high"]),
        ({"scope": ["out"]}, {"scope": {"out/a", "etc"}}, ["writes etc"]),
        ({"scope": ["out"]}, {"scope": {"out/../etc"}}, ["writes out/../etc"]),
        ({"scope": ["out"]}, {"scope": {"outside"}}, ["writes outside"]),
        ({"cost": 3}, {"cost": 2.5}, ["cost 3.5 of 3"]),
        ({"cost": 4}, {"cost": 2.5}, []),
    ],
)
def test_in_which_way_it_is_outside(envelope, more, said):
    """Each dimension by its own order; a path that climbs is nowhere inside."""
    nothing = {"workers": set(), "effects": set(), "risk": "low", "scope": set(), "cost": 0.0}
    wanted = Reach(**(nothing | more))
    assert outside(envelope, wanted, 1.0) == said


# Rules.


def rules(*given, **more):
    return Policy(rules=given, jitter=0.0, **more)


@pytest.mark.parametrize(
    ("rule", "worker", "people"),
    [
        (Rule(risk="high", then="two"), "risky", 2),
        (Rule(risk="high", then="two"), "mailer", 0),
        (Rule(workers=("mailer",)), "mailer", 1),
        (Rule(workers=("mailer",)), "w", 0),
        (Rule(effects=("mail",)), "mailer", 1),
        (Rule(effects=("undeclared:w",)), "w", 1),
        (Rule(cost_over=1.0), "mailer", 1),
        (Rule(cost_over=2.0), "mailer", 0),
        (Rule(risk="high", then="allow"), "risky", 0),
        (Rule(untrusted=True), "w", 0),
    ],
)
def test_the_first_rule_that_fits_decides(rule, worker, people):
    """All that it names must be so."""
    run = drive(step("a", worker=worker), policy=rules(rule))
    asked = run.all(ev.ReviewRequested)
    assert [each.people for each in asked] == ([people] if people else [])
    assert run.running == ([] if people else ["a"])


def test_a_rule_that_refuses_comes_first_and_the_planner_hears_why():
    """Whatever else would allow it."""
    run = drive(
        policy=rules(Rule(then="allow"), Rule(workers=("risky",), then="refuse")), bare=True
    )
    run.go().answer(propose(step("a", worker="risky")))
    assert run.last(ev.RevisionRejected).actor == "policy"
    assert "refuses" in run.last(ev.ProposalRefused).findings[0]
    assert run.state.planner.epoch, "it is asked again"
    given = drive(step("a", worker="risky"), policy=rules(Rule(then="refuse")), replans=False)
    assert given.ended == "rejected"


# Approvals.


def test_two_people_are_two_different_ones():
    """One person's second word does not count."""
    run = drive(step("a", worker="risky"), policy=rules(Rule(risk="high", then="two")))
    run.reply("approve")
    assert run.running == []
    with pytest.raises(Conflict, match="different people"):
        run.reply("approve")
    run.reply("approve", actor="bob")
    assert run.running == ["a"]
    assert run.last(ev.RevisionApproved).actor == "ann, bob"


def test_only_named_approvers_may():
    """Where there are any."""
    run = drive(step("a", worker="risky"), policy=Policy(approvers={"bob": "key"}))
    with pytest.raises(NotAllowed, match="ann is not among those who may approve: bob"):
        run.reply("approve")
    assert run.reply("approve", actor="bob").running == ["a"]


def test_an_approval_covers_the_limits_of_the_run():
    """The same plan under another budget has another hash; in older logs it had not."""
    for version, same in ((ev.DECIDE_VERSION, False), (3, True)):
        bound = [
            drive(step("a", worker="risky"), policy=Policy(budget=budget), decide_version=version)
            .reply("approve")
            .last(ev.ApprovalGiven)
            .binding
            for budget in (5.0, 500.0)
        ]
        assert (bound[0] == bound[1]) is same


@pytest.mark.parametrize(
    "change",
    [
        {"actor": "ann, bob"},
        {"expires": 0},
        {"envelope": {"workers": ["risky", "mailer"], "effects": ["deploy"], "risk": "high"}},
    ],
)
def test_the_checker_knows_what_follows_from_an_approval(change):
    """By whom, how long, how far: each is what people said, and nothing else."""
    run = drive(step("a", worker="risky"), policy=Policy(approval_s=60.0)).reply("approve")
    log = [(at, event) for at, event in run.log]
    assert check(log) == []
    forged = [
        (at, structs.replace(event, **change) if isinstance(event, ev.RevisionApproved) else event)
        for at, event in log
    ]
    assert {each.rule for each in check(forged)} == {"I24"}


def test_the_policy_draws_no_envelope():
    """Only people do."""
    run = drive(step("a", worker="reader"))
    forged = [
        (at, structs.replace(event, envelope={"workers": ["risky"], "risk": "critical"}))
        if isinstance(event, ev.RevisionApproved)
        else (at, event)
        for at, event in run.log
    ]
    assert [each.rule for each in check(forged)] == ["I24"]


def test_a_replan_inside_the_envelope_does_not_ask_again():
    """And one outside does, naming what is new."""
    run = drive(bare=True, consult="every_report").go()
    run.answer(propose(step("a", worker="risky"), final=False)).reply("approve").done("a")
    run.answer(propose(step("b", worker="risky"), final=False))
    assert run.running == ["b"]
    assert run.last(ev.RevisionApproved).reason == "inside what ann allowed"
    run.done("b").answer(propose(step("c", worker="risky", effects=["pay"]), final=False))
    assert run.running == []
    assert "new: effect pay" in run.last(ev.ReviewRequested).reason


def test_what_the_plan_asks_for_is_part_of_what_is_approved():
    """Its envelope may be wider than its first steps."""
    wider = {"envelope": {"workers": ["mailer"], "effects": ["mail"], "cost": 5}}
    run = drive(bare=True, consult="every_report", plan=wider).go()
    run.answer(propose(step("a", worker="risky"), final=False)).reply("approve").done("a")
    run.answer(propose(step("b", worker="mailer"), final=False))
    assert run.running == ["b"]
    run.done("b", cost=4.0).answer(propose(step("c", worker="mailer"), final=False))
    assert run.last(ev.RevisionApproved).reason == "risk medium runs without a person"


def test_once_outside_data_was_read_what_is_outside_waits_for_a_person():
    """Even where the policy would let it through."""
    run = drive(bare=True, consult="every_report", policy=Policy(review=False)).go()
    run.answer(propose(step("a", worker="risky"), step("r", worker="web"), final=False))
    run.reply("approve").done("a")
    run.answer(propose(step("b", worker="mailer"), final=False))
    assert run.running == ["r", "b"], "nothing was read yet"
    run.done("b", "r").answer(propose(step("c", worker="writer"), final=False))
    assert run.state.permits.tainted
    assert "data from outside was read" in run.last(ev.ReviewRequested).reason


def test_changes_go_back_to_the_planner():
    """With the words of the person, who sees a new revision then."""
    run = drive(bare=True).go().answer(propose(step("a", worker="risky")))
    run.reply("request_changes", text="use less")
    assert run.last(ev.PlannerAsked).why == "changes: ann asks for them: use less"
    assert run.state.planner.findings == ["use less"]
    run.answer(propose(step("a", worker="mailer")))
    assert run.running == ["a"]
    written = drive(step("a", worker="risky"), replans=False)
    with pytest.raises(UsageError, match="no answer"):
        commands.answer(written.state, "review-1", "request_changes", "ann", written.now)


def test_a_person_amends_what_waits():
    """A revision of their own, checked and reviewed as any other."""
    run = drive(step("a", worker="risky"), replans=False)
    changed = {
        "steps": [step("a", worker="risky", not_before="1970-01-01T02:00:00Z")],
        "final": True,
    }
    run.hear(commands.amend(run.state, changed, "ann", run.now))
    assert [e.author for e in run.all(ev.RevisionProposed)] == ["test", "ann"]
    assert list(run.state.questions) == ["review-2"]
    run.reply("approve")
    assert run.state.steps["a"].not_before == 7200 * SECOND
    with pytest.raises(PlanInvalid, match="does not fit"):
        commands.amend(run.state, {"steps": [step("b", worker="nobody")]}, "ann", run.now)


def test_an_approval_ends():
    """What has not started by then waits for another."""
    run = drive(
        step("a", worker="risky"), step("b", "a", worker="risky"), policy=Policy(approval_s=60)
    )
    run.reply("approve")
    assert run.running == ["a"]
    run.later(61).done("a")
    assert run.running == []
    (question,) = run.state.questions.values()
    assert (question.kind, question.choices) == ("hold", ["release", "abort"])
    assert "time of its approval is up" in question.text
    run.reply("release")
    assert run.running == ["b"]


def test_an_approval_that_has_ended_allows_nothing():
    """It is refused when it is given."""
    run = drive(step("a", worker="risky"), wall=100 * SECOND)
    with pytest.raises(UsageError, match="already ended"):
        run.reply("approve", approval={"expires": 50 * SECOND})


def test_a_changed_worker_voids_what_people_allowed():
    """Steps that the policy let through go on, if it still would."""
    run = drive(step("a", worker="risky"), step("b", "a"), step("c", "a", worker="risky"))
    run.reply("approve").host_again()
    newer = WorkerSpec(name="risky", version="2", offers={"": Offer(risk="high")})
    run.take(commands.Move(*holds.workers_changed(run.state, [newer]))).go()
    assert run.state.catalog.workers["risky"].version == "2"
    assert run.state.held == {"a", "c"}
    quiet = drive(step("a"), step("b", "a"))
    other = WorkerSpec(name="w", version="2", offers={"": Offer()})
    assert [type(e) for e in holds.workers_changed(quiet.state, [other])[0]] == [ev.WorkersChanged]


PLAN = {
    "goal": "g",
    "steps": [step("a", parameters={"x": 1, "y": ["p", "q"]}), step("b", "a", worker="mailer")],
}


@pytest.mark.parametrize(
    "changed",
    [
        {**PLAN, "goal": "g "},
        {**PLAN, "steps": PLAN["steps"][::-1]},
        {**PLAN, "steps": [step("a", parameters={"x": 1.5, "y": ["p", "q"]}), PLAN["steps"][1]]},
        {**PLAN, "steps": [step("a", parameters={"x": 1, "y": ["q", "p"]}), PLAN["steps"][1]]},
        {**PLAN, "steps": [step("а", parameters={"x": 1, "y": ["p", "q"]}), PLAN["steps"][1]]},  # noqa: RUF001
    ],
)
def test_a_binding_speaks_of_exactly_one_plan(changed):
    """Spaces, order, look-alike letters: anything but the order of keys."""
    catalog = Catalog(CATALOG)
    bound = plan_binding(PLAN, {}, catalog, 0)
    assert plan_binding(changed, {}, catalog, 0) != bound
    turned = {"steps": [dict(reversed(each.items())) for each in PLAN["steps"]], "goal": "g"}
    assert plan_binding({"$schema": "s", **turned}, {}, catalog, 0) == bound
    newer = Catalog([*CATALOG, WorkerSpec(name="mailer", version="2", offers={})])
    assert plan_binding(PLAN, {}, newer, 0) != bound
    assert plan_binding(PLAN, {"v": 1}, catalog, 0) != bound
    assert plan_binding(PLAN, {}, catalog, 7) != bound
    assert plan_binding(PLAN, {}, catalog, 0, "staging") != bound


# Holds, and doing it again.


def test_a_person_holds_a_step_and_lets_it_go():
    """Nothing else is in its way, and it does not start."""
    run = drive(step("a"), step("b", "a"), step("c"))
    run.hear(commands.hold(run.state, ["b"], "ann", "not before lunch"))
    run.done("a", "c")
    assert run.running == []
    assert "not before lunch" in next(iter(run.state.questions.values())).text
    run.reply("release")
    assert run.running == ["b"]
    with pytest.raises(Conflict, match="only what has not started"):
        commands.hold(run.state, ["b"], "ann")


def test_a_hold_survives_a_new_host_and_a_retry():
    """A step that waits for its next try is held as well."""
    run = drive(step("a"), policy=Policy(backoff_s=5.0, jitter=0.0)).fail("a")
    run.hear(commands.hold(run.state, ["a"], "ann")).host_again().later(60)
    assert run.running == []
    assert run.reply("release").running == ["a"]


def test_a_hold_ends_with_the_step():
    """Nobody is asked to release what will not run."""
    run = drive(step("a", failure_action="continue"), step("b", "a"), step("c"), replans=False)
    run.hear(commands.hold(run.state, ["b"], "ann"))
    run.fail("a", "permanent")
    assert run.status("b") == ["skipped"]
    assert not run.state.questions
    assert run.done("c").ended == "failed"


def test_a_hold_may_end_the_run():
    """Abort means what it says."""
    run = drive(step("a"), step("b", "a"))
    run.hear(commands.hold(run.state, ["b"], "ann")).reply("abort").done("a")
    assert run.ended == "failed"


def test_a_failed_step_is_done_again_by_a_persons_word():
    """Those that were skipped because of it wait for it once more."""
    run = drive(
        step("a", failure_action="continue"),
        step("b", "a"),
        step("c", "b"),
        step("d"),
        replans=False,
    )
    run.fail("a", "permanent")
    assert run.status() == ["failed", "skipped", "skipped", "running"]
    with pytest.raises(UsageError, match="say why"):
        commands.redo(run.state, "a", "ann", "", run.now)
    with pytest.raises(Conflict, match="it is running"):
        commands.redo(run.state, "d", "ann", "so", run.now)
    run.hear(commands.redo(run.state, "a", "ann", "the disk is there now", run.now))
    assert run.status() == ["running", "waiting", "waiting", "running"]
    run.done("a", "b", "c", "d")
    assert run.ended == "succeeded"


def test_reviewers_look_before_anybody_decides():
    """What they find, or that they could not look, is up to a person."""
    found = drive(step("a"), policy=Policy(reviewers=("style",)))
    assert (found.running, found.state.pending.examined) == ([], False)
    found.hear(commands.examined(found.state, 1, ["too large"], "", found.now))
    assert "too large" in found.last(ev.ReviewRequested).reason
    clean = drive(step("a"), policy=Policy(reviewers=("style",)))
    clean.hear(commands.examined(clean.state, 1, [], "", clean.now))
    assert clean.running == ["a"]
    broken = drive(step("a"), policy=Policy(reviewers=("style",)))
    broken.hear(commands.examined(broken.state, 1, [], "it raised", broken.now))
    assert "a reviewer failed: it raised" in broken.last(ev.ReviewRequested).reason
    assert commands.examined(clean.state, 1, ["late"], "", clean.now).events == []


def test_reviewers_who_come_too_late_change_nothing():
    """The run has ended, or what they looked at no longer fits the plan."""
    over = drive(step("a"), policy=Policy(reviewers=("style",))).cancel()
    assert over.ended == "cancelled"
    assert commands.examined(over.state, 1, [], "", over.now).events == []
    policy = Policy(jitter=0.0, reviewers=("style",))
    run = Drive(policy=policy, replans=True, consult="every_report", bare=True).go()
    run.answer(propose(step("x"), step("a"), step("b", "a"), final=False))
    run.hear(commands.examined(run.state, 1, [], "", run.now)).done("x")
    run.answer(propose(step("c"), cancel=["b"])).done("a", "b")
    run.hear(commands.examined(run.state, 2, [], "", run.now))
    assert "no longer fits" in run.last(ev.RevisionRejected).reason
    assert run.last(ev.RevisionRejected).actor == "policy"
    assert run.last(ev.ProposalRefused).findings == ["it cancels b, which is succeeded"]


def test_people_hear_that_a_changed_worker_needs_their_approval_anew():
    """Both where steps are held and where a revision waits for its first approval."""
    newer = WorkerSpec(name="risky", version="2", offers={"": Offer(risk="high")})
    waiting = drive(step("a", worker="risky"))
    allowed = drive(step("a"), step("c", "a", worker="risky")).reply("approve")
    for run in (waiting, allowed):
        _, effects = holds.workers_changed(run.state, [newer])
        assert [each.kind for each in effects if isinstance(each, Notify)] == ["waiting"]


def test_a_risk_that_is_not_declared_is_not_told_as_one():
    """Not in the reasons of the policy, and not in the line of the revision."""
    quiet = drive(step("a"))
    assert "its risk is not declared" in quiet.last(ev.RevisionApproved).reason
    assert "risk not declared" in describe(quiet.last(ev.RevisionProposed))
    asked = drive(step("a", worker="web"), policy=Policy(auto_risk="low"))
    told = "its risk is not declared, which the policy counts as medium"
    assert told in asked.last(ev.ReviewRequested).reason
    declared = drive(step("a", risk_level="low"))
    assert declared.last(ev.RevisionApproved).reason == "risk low runs without a person"
    assert "risk low" in describe(declared.last(ev.RevisionProposed))
