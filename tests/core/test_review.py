"""Who must allow what: rules, envelopes, approvals, and what voids them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.decide.effects import Notify
from leadhand.core.hashing import canonical, digest
from leadhand.core.logcheck.checker import check
from leadhand.core.policy import Policy, Rule
from leadhand.core.review import decisions, holds
from leadhand.core.review.approval import binding, plan_binding
from leadhand.core.review.ruling import PlanReach, outside_envelope, reach, widened_envelope
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
    PlanReach,
    SETS,
    SETS,
    st.sampled_from(["low", "medium", "high", "critical"]),
    st.frozensets(st.sampled_from(["x", "x/y", "z"])),
    st.floats(0, 9),
)


@given(REACHES, REACHES)
def test_what_was_allowed_is_inside_and_stays_inside(first, second):
    """The envelope only grows, and holds everything it grew by."""
    once = widened_envelope(None, first, None)
    twice = widened_envelope(once, second, None)
    assert outside_envelope(once, first, 0.0) == []
    assert outside_envelope(twice, first, 0.0) == outside_envelope(twice, second, 0.0) == []


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
    wanted = PlanReach(**(nothing | more))
    assert outside_envelope(envelope, wanted, 1.0) == said


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
    with pytest.raises(NotAllowed, match=r"ann is not an approver\. Approvers: bob"):
        run.reply("approve")
    assert run.reply("approve", actor="bob").running == ["a"]


def test_an_approval_covers_the_limits_of_the_run():
    """The same plan under another budget has another hash."""
    bound = {
        drive(step("a", worker="risky"), policy=Policy(budget=budget))
        .reply("approve")
        .last(ev.ApprovalGiven)
        .binding
        for budget in (5.0, 500.0)
    }
    assert len(bound) == 2


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
    assert run.last(ev.RevisionApproved).reason == "within the approval by ann"
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
    assert run.last(ev.RevisionApproved).reason == "risk medium runs without approval"


def test_once_outside_data_was_read_what_is_outside_waits_for_a_person():
    """Even where the policy would let it through."""
    run = drive(bare=True, consult="every_report", policy=Policy(review=False)).go()
    run.answer(propose(step("a", worker="risky"), step("r", worker="web"), final=False))
    run.reply("approve").done("a")
    run.answer(propose(step("b", worker="mailer"), final=False))
    assert run.running == ["r", "b"], "nothing was read yet"
    run.done("b", "r").answer(propose(step("c", worker="writer"), final=False))
    assert run.state.permits.tainted
    assert "untrusted data was read" in run.last(ev.ReviewRequested).reason


def test_changes_go_back_to_the_planner():
    """With the words of the person, who sees a new revision then."""
    run = drive(bare=True).go().answer(propose(step("a", worker="risky")))
    run.reply("request_changes", text="use less")
    assert run.last(ev.PlannerAsked).why == "changes: ann asks for them: use less"
    assert run.state.planner.findings == ["use less"]
    run.answer(propose(step("a", worker="mailer")))
    assert run.running == ["a"]
    written = drive(step("a", worker="risky"), replans=False)
    with pytest.raises(UsageError, match="is not one of"):
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
    assert "its approval has expired" in question.text
    run.reply("release")
    assert run.running == ["b"]


def test_an_approval_that_has_ended_allows_nothing():
    """It is refused when it is given."""
    run = drive(step("a", worker="risky"), wall=100 * SECOND)
    with pytest.raises(UsageError, match="in the past"):
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
    with pytest.raises(Conflict, match="only a step that has not started"):
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
    with pytest.raises(UsageError, match="a reason is required"):
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
    found.hear(commands.record_examination(found.state, 1, ["too large"], "", found.now))
    assert "too large" in found.last(ev.ReviewRequested).reason
    clean = drive(step("a"), policy=Policy(reviewers=("style",)))
    clean.hear(commands.record_examination(clean.state, 1, [], "", clean.now))
    assert clean.running == ["a"]
    broken = drive(step("a"), policy=Policy(reviewers=("style",)))
    broken.hear(commands.record_examination(broken.state, 1, [], "it raised", broken.now))
    assert "a reviewer failed: it raised" in broken.last(ev.ReviewRequested).reason
    assert commands.record_examination(clean.state, 1, ["late"], "", clean.now).events == []


def test_reviewers_who_come_too_late_change_nothing():
    """The run has ended, or what they looked at no longer fits the plan."""
    over = drive(step("a"), policy=Policy(reviewers=("style",))).cancel()
    assert over.ended == "cancelled"
    assert commands.record_examination(over.state, 1, [], "", over.now).events == []
    policy = Policy(jitter=0.0, reviewers=("style",))
    run = Drive(policy=policy, replans=True, consult="every_report", bare=True).go()
    run.answer(propose(step("x"), step("a"), step("b", "a"), final=False))
    run.hear(commands.record_examination(run.state, 1, [], "", run.now)).done("x")
    run.answer(propose(step("c"), cancel=["b"])).done("a", "b")
    run.hear(commands.record_examination(run.state, 2, [], "", run.now))
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
    assert declared.last(ev.RevisionApproved).reason == "risk low runs without approval"
    assert "risk low" in describe(declared.last(ev.RevisionProposed))


# What follows from a person's word.


@pytest.mark.parametrize("choice", ["abort", "rollback"])
def test_a_planner_without_ideas_may_end_the_run(choice):
    """The reason is what was asked; with rollback, the run will be rolled back."""
    policy = Policy(jitter=0.0, planner_rounds_max=1)
    run = Drive(bare=True, policy=policy, plan={"rollback_plan": "undo.yaml"}).go()
    run.say(ev.PlannerFailed(1, 1, "no")).reply(choice)
    why = "aborted by ann: the planner found no way to continue: the planner failed: no"
    assert run.last(ev.StopDecided) == ev.StopDecided(
        "failed", why, rollback=choice == "rollback", origin="planning"
    )


def test_a_revision_that_adds_nothing_needs_nobody():
    """Whatever the rules ask for new steps."""
    run = drive(step("a", worker="reader"), step("b", "a", worker="reader"))
    run.state.policy = Policy(rules=(Rule(then="one"),))
    answer = {"cancel": ["b"], "final": True}
    run.hear(commands.amend(run.state, answer, "ann", run.now))
    assert run.last(ev.RevisionApproved).actor == "policy"
    assert run.status("b") == ["cancelled"]


def test_what_the_policy_lets_through_outside_the_envelope_does_not_end_with_it():
    """It rests on no approval."""
    run = Drive(bare=True, replans=True, catalog=CATALOG, wall=1000 * SECOND).go()
    run.answer(propose(step("a", worker="risky"), final=False))
    run.reply("approve", approval={"expires": 2000 * SECOND}).done("a")
    run.answer(propose(step("b", worker="reader"), final=False))
    assert (run.state.steps["a"].expires, run.state.steps["b"].expires) == (2000 * SECOND, 0)


def test_a_person_amends_where_nobody_drew_an_envelope():
    """Then the policy says who must allow it, and data from outside changes nothing."""
    run = drive(step("a", worker="web"), step("z")).done("a")
    assert (run.state.permits.tainted, run.state.permits.envelope) == (True, None)
    answer = {"steps": [step("b", worker="reader")], "final": True}
    run.hear(commands.amend(run.state, answer, "ann", run.now))
    assert "b" in run.running


# Claims beyond a worker.


CLAIMS = step("b", worker="risky", idempotent=True)


def claiming(**more):
    """A run that waits for the approval of ann's amendment, which claims more than its worker."""
    run = drive(step("a", worker="reader"), **more)
    answer = {"steps": [CLAIMS], "final": True}
    run.hear(commands.amend(run.state, answer, "ann", run.now))
    return run, binding(run.state, run.state.pending, 0)


def test_a_claim_counts_for_whoever_was_shown_it():
    """The hash of what was seen says so; it stands in the approval."""
    run, shown = claiming()
    run.reply("approve", approval={"shown": shown})
    given = run.last(ev.ApprovalGiven)
    assert (given.widens, given.digest, given.binding) == (["b"], shown, shown)
    assert run.state.steps["b"].widened
    assert run.last(ev.RevisionApproved).reason == ""


def test_a_claim_that_nobody_was_shown_does_not_count():
    """That is told, with the reason that was given."""
    for reason in ("", "go"):
        run, shown = claiming()
        run.reply("approve", text=reason)
        given = run.last(ev.ApprovalGiven)
        assert given.widens == []
        assert given.digest == given.binding != shown
        assert not run.state.steps["b"].widened
        told = "not counted, since no approver has seen it: "
        start = f"{reason}; {told}" if reason else told
        assert run.last(ev.RevisionApproved).reason.startswith(start)


def test_a_claim_counts_when_all_were_shown_it():
    """One of two is not enough."""
    for both in (False, True):
        run, shown = claiming(policy=Policy(rules=(Rule(risk="high", then="two"),)))
        run.reply("approve", approval={"shown": shown})
        run.reply("approve", actor="bob", approval={"shown": shown} if both else None)
        assert run.state.steps["b"].widened is both


def test_a_planners_claim_is_nobodys_word():
    """It is told, and does not count."""
    run = drive(step("a", worker="reader", idempotent=True))
    told = "not counted, since test is a planner: "
    assert told in run.last(ev.RevisionApproved).reason
    assert not run.state.steps["a"].widened


def test_what_was_seen_is_what_waits():
    """With or without what it claims; another digest, or a part of it, is refused."""
    run, shown = claiming()
    plain = binding(run.state, run.state.pending, 0, widens=False)
    assert plain != shown
    with pytest.raises(UsageError, match="64 digits, not 63"):
        run.reply("approve", approval={"shown": shown[:63]})
    with pytest.raises(Conflict, match="the revision that waits is not the one that was shown"):
        run.reply("approve", approval={"shown": "0" * 64})
    run.reply("approve", approval={"shown": plain})
    assert (run.last(ev.ApprovalGiven).widens, run.running) == ([], ["a", "b"])


# Approvals from before the run.


def before_the_run(actor="ann", **more):
    """An approval of a plan, as a run is started with."""
    given = {"id": actor, "actor": actor, "given": 1, "binding": "x", "key": f"key of {actor}"}
    return {**given, **more}


def approved_before(*given, policy=None, at=1000, **more):
    """A run of a document that people approved before."""
    steps = [step("a", worker="risky")]
    start = {"approvals": list(given), "linted": digest(canonical(steps)), "catalog": CATALOG}
    now = at * SECOND
    run = Drive(bare=True, wall=now, at=now, policy=policy or Policy(jitter=0.0), **start, **more)
    return run.go().news_start().answer(propose(*steps))


TWO = Policy(jitter=0.0, rules=(Rule(name="pairs", risk="high", then="two"),))


def test_a_plan_that_was_approved_before_the_run_starts():
    """Nobody is told to look."""
    run = approved_before(before_the_run(reason="go", expires=2000 * SECOND))
    request = run.last(ev.ReviewRequested)
    assert request.reason == "revision 1 was approved before the run by ann"
    given = run.last(ev.ApprovalGiven)
    assert (given.approval, given.reason, given.key) == ("ann", "go", "key of ann")
    assert given.expires == 2000 * SECOND
    assert given.digest not in ("", given.binding)
    assert run.running == ["a"]
    assert not any(isinstance(effect, Notify) for effect in run.effects)


def test_as_many_as_must_have_approved_before_the_run():
    """Two approvals are two; after one another person is asked."""
    run = approved_before(before_the_run("ann"), before_the_run("bob"), policy=TWO)
    assert run.last(ev.ReviewRequested).reason == (
        "revision 1 was approved before the run by ann, bob"
    )
    assert (run.running, run.last(ev.RevisionApproved).actor) == (["a"], "ann, bob")
    given = run.last(ev.ApprovalGiven)
    assert given.digest != given.binding, "they saw a plan, and no revision of a run"
    run = approved_before(before_the_run("ann"), policy=TWO)
    text = (
        "revision 1 was approved before the run by ann; 2 people must approve it; "
        "required by the policy (pairs)"
    )
    assert (run.last(ev.ReviewRequested).reason, run.running) == (text, [])
    assert run.effects == [Notify("waiting", text)]
    assert run.reply("approve", actor="bob").running == ["a"]


@pytest.mark.parametrize(
    ("expires", "counts"), [(0, True), (999, False), (1000, False), (1001, True)]
)
def test_an_approval_from_before_the_run_may_have_ended(expires, counts):
    """Then it counts for nothing, and a person is asked."""
    run = approved_before(before_the_run(expires=expires * SECOND))
    assert run.running == (["a"] if counts else [])
    assert len(run.state.questions) == (not counts)


def test_an_approval_from_before_the_run_is_of_that_plan():
    """Not of another one, and not of a later revision."""
    steps = [step("a", worker="risky")]
    start = {"approvals": [before_the_run()], "linted": digest(canonical(steps))}
    run = Drive(step("b", worker="risky"), catalog=CATALOG, replans=True, **start)
    assert list(run.state.questions) == ["review-1"]
    run = Drive(step("b", worker="reader"), catalog=CATALOG, replans=True, **start)
    run.hear(commands.amend(run.state, {"steps": steps, "final": True}, "bob", run.now))
    assert list(run.state.questions) == ["review-2"]
    assert run.all(ev.ApprovalGiven) == []


def test_what_was_shown_before_the_run_counts_with_its_claims():
    """Where the approver was shown them."""
    steps = [step("a", worker="risky", idempotent=True)]
    for widens in (False, True):
        given = before_the_run(widens=widens)
        start = {"approvals": [given], "linted": digest(canonical(steps)), "catalog": CATALOG}
        run = Drive(*steps, planner="document", **start)
        assert run.running == ["a"]
        assert run.state.steps["a"].widened is widens


# Reviewers, once more.


def test_reviewers_speak_once_of_what_waits():
    """Of another revision, or again, or when nothing waits, it is nothing."""
    run = drive(step("a", worker="reader"), policy=Policy(reviewers=("r",)))
    for number in (0, 2):
        assert decisions.record_examination(run.state, number, [], "", run.now) == ([], [])
    events, _ = decisions.record_examination(run.state, 1, [], "it hangs", run.now)
    assert [type(event) for event in events] == [ev.RevisionExamined, ev.ReviewRequested]
    assert "a reviewer found: a reviewer failed: it hangs" in events[1].reason
    run.tell(*events)
    assert decisions.record_examination(run.state, 1, [], "", run.now) == ([], [])
    run.reply("approve")
    assert decisions.record_examination(run.state, 1, [], "", run.now) == ([], [])


def test_nobody_hears_of_a_refusal_in_a_run_that_stops():
    """The reviewers were slower than a person who had enough."""
    policy = Policy(reviewers=("r",), rules=(Rule(then="refuse"),))
    run = drive(step("a", worker="reader"), policy=policy)
    run.tell(ev.StopDecided("failed", "enough"))
    events, _ = decisions.record_examination(run.state, 1, [], "", run.now)
    assert [type(event) for event in events] == [ev.RevisionExamined, ev.RevisionRejected]
    assert events[1].actor == "policy"


# Who, and until when.


def test_who_is_no_approver_is_told_what_they_cannot_do():
    """Approve, or release."""
    run = drive(step("a", worker="risky"), step("b", "a", worker="risky"))
    for actor in ("policy", "nobody"):
        with pytest.raises(NotAllowed, match="is not a person, and cannot approve anything"):
            run.reply("approve", actor=actor)
    run.reply("approve").hear(commands.hold(run.state, ["b"], "ann", ""))
    with pytest.raises(NotAllowed, match="is not a person, and cannot release anything"):
        run.reply("release", actor="policy")


def test_a_stranger_is_told_who_may():
    """And whom they only look like."""
    run = drive(step("a", worker="risky"), policy=Policy(approvers={"ann": "k"}))
    with pytest.raises(NotAllowed) as told:
        run.reply("approve", actor="eve")
    assert str(told.value) == "eve is not an approver. Approvers: ann"
    with pytest.raises(NotAllowed, match='It is not "ann", which looks the same'):
        run.reply("approve", actor="Ann")


def test_a_persons_own_time_comes_before_the_settings():
    """And it must not be over, by the calendar or by the log."""
    policy = Policy(jitter=0.0, approval_s=60.0)
    start = {"catalog": CATALOG, "policy": policy, "at": 1000 * SECOND, "wall": 900 * SECOND}
    run = Drive(step("a", worker="risky"), **start)
    over = "the expiry of the approval is in the past"
    late = r": the newest time in the log is 1970-01-01T00:16:40"
    for expires, more in ((900, "$"), (901, late), (1000, late)):
        with pytest.raises(UsageError, match=over + more):
            run.reply("approve", approval={"expires": expires * SECOND})
    run.reply("approve", approval={"expires": 1001 * SECOND})
    assert run.state.steps["a"].expires == 1001 * SECOND


def test_the_envelope_that_a_plan_asks_for():
    """It is drawn with the approval, and ends with it."""
    plan = {"envelope": {"workers": ["mailer"]}}
    run = Drive(step("a", worker="risky"), catalog=CATALOG, plan=plan)
    run.reply("approve", approval={"expires": 2000 * SECOND})
    drawn = run.state.permits.envelope
    assert drawn["workers"] == ["mailer", "risky"]
    assert drawn["expires"] == 2000 * SECOND


def test_changes_without_a_word_are_requested_all_the_same():
    """The planner is told that nothing was said."""
    run = drive(step("a", worker="risky")).reply("request_changes")
    assert run.last(ev.ChangesRequested).text == "no changes were named"


def test_what_is_no_approval_is_refused():
    """A word that nobody knows may have meant a limit; what is left out is nothing."""
    run = drive(step("a", worker="risky"))
    with pytest.raises(UsageError, match="this is not an approval"):
        run.reply("approve", approval={"until": 5})
    given = run.reply("approve").last(ev.ApprovalGiven)
    assert (given.expires, given.key, given.signature, given.approval) == (0, "", "", "")


def test_the_policy_refuses_what_waits_when_a_worker_becomes_what_it_forbids():
    """In its own name."""
    run = drive(
        step("a", worker="risky"), policy=Policy(rules=(Rule(effects=("pay",), then="refuse"),))
    )
    newer = WorkerSpec(name="risky", version="2", offers={"": Offer(risk="high", effects=("pay",))})
    events, _ = holds.workers_changed(run.state, [newer])
    assert [type(event) for event in events[1:]] == [ev.RevisionRejected, ev.ProposalRefused]
    assert events[1].actor == "policy"


def test_not_more_than_twenty_claims_are_told():
    """A reason is read by people."""
    run = drive(*(step(f"s{number}", worker="reader", idempotent=True) for number in range(25)))
    reason = run.last(ev.RevisionApproved).reason
    assert reason.count("step s") == 20
