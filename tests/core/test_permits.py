"""What people allowed ends: with its time, with its workers; and no other name opens a door."""

import pytest
from msgspec import structs

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.catalog import Catalog
from leadhand.core.decide.effects import Move
from leadhand.core.hashing import canonical, digest
from leadhand.core.logcheck.checker import check
from leadhand.core.plan.diff import diff
from leadhand.core.plan.revisions import plan_of
from leadhand.core.policy import Policy, Rule
from leadhand.core.review import holds
from leadhand.core.review.approval import parts_of, plan_binding
from leadhand.core.review.limits import limits_of
from leadhand.core.review.ruling import reach
from leadhand.errors import Conflict, NotAllowed, PlanInvalid
from tests.core.driver import SECOND, WORKERS, Drive, propose, spec, step

MINUTE = 60 * SECOND
NEWER = [spec("risky", risk="high", version="2")]
TWO = Policy(jitter=0.0, rules=(Rule(risk="high", then="two"),))


def allowed(*steps, expires=0, **more):
    """A run whose planner goes on, and whose first steps ann has allowed."""
    run = Drive(bare=True, replans=True, wall=1000 * SECOND, **more).go()
    run.answer(propose(*steps, final=False))
    until = run.now.wall + expires if expires else 0
    return run.reply("approve", approval={"expires": until} if until else None)


def change(run, specs=NEWER):
    """Another host has other workers."""
    return run.hear(Move(*holds.workers_changed(run.state, specs, run.now.wall)))


def amend(run, *steps):
    """Ann's own revision."""
    answer = {"steps": list(steps), "cancel": [], "final": run.state.final}
    return run.hear(commands.amend(run.state, answer, "ann", run.now))


def instead(ident, old, **more):
    """A step that takes the place of another."""
    return step(ident, worker="risky", supersedes=old, **more)


# Holds.


def test_whoever_takes_the_place_of_a_held_step_is_held():
    """By a person's amendment or a planner's; the same question lets it go."""
    run = allowed(step("a", worker="risky"), step("b", "a", worker="risky"))
    run.hear(commands.hold(run.state, ["b"], "ann", "not yet"))
    amend(run, instead("b.2", "b", timeout=5)).reply("approve", "review-2").done("a")
    assert (run.running, run.state.held, list(run.state.questions)) == ([], {"b.2"}, ["q1"])
    run.hear(commands.release(run.state, ["b"], "ann", run.now))
    assert run.running == ["b.2"]
    assert check(run.log) == []


def test_a_forged_log_in_which_an_heir_is_not_held_is_found():
    """The checker follows the hold on its own."""
    run = allowed(step("a", "z", worker="risky"), step("z", worker="risky"))
    run.hear(commands.hold(run.state, ["a"], "ann", ""))
    amend(run, instead("a.2", "a")).reply("approve", "review-2")
    started = ev.AttemptStarted("a.2", 1, run.state.epoch + 1, "risky", run.now.at + SECOND, "x")
    found = check([*run.log, (run.now.at, started)])
    assert any("a.2" in str(each) and "held" in str(each) for each in found)


def test_a_fresh_approval_lifts_what_the_policy_held_and_no_more():
    """The hold stood for an approval; a person's own hold stands for that person."""
    run = allowed(step("a", worker="risky"), step("b", worker="risky"), expires=MINUTE, room=0)
    run.later(61)
    run.take_room()
    assert run.state.held == {"a", "b"}
    amend(run, instead("a.2", "a"), instead("b.2", "b"))
    assert run.state.held == {"a", "b"}
    run.reply("approve", "review-2")
    assert (sorted(run.running), run.state.held) == (["a.2", "b.2"], set())
    assert check(run.log) == []


# The envelope.


def test_the_envelope_ends_with_the_approval_that_drew_it():
    """A replan inside it goes on until then, and its steps end with it; later it waits."""
    run = allowed(step("a", worker="risky"), expires=MINUTE).done("a")
    run.answer(propose(step("b", worker="risky"), step("c", "b", worker="risky"), final=False))
    assert run.last(ev.RevisionApproved).actor == "policy"
    assert run.last(ev.RevisionApproved).expires == run.state.steps["a"].expires
    run.later(61).done("b")
    assert run.state.held == {"c"}
    run.reply("release").done("c").answer(propose(step("d", worker="risky"), final=False))
    assert "the approval by ann has expired" in run.state.questions["review-3"].text
    run.reply("approve")
    assert "expires" not in run.state.permits.envelope
    assert check(run.log) == []


def test_data_from_outside_keeps_an_ended_envelope_closed():
    """What nobody allows any more is outside, however low its risk."""
    web = spec("web", version="1")
    catalog = [*WORKERS, type(web)(name="web", trusted=False, offers=web.offers)]
    steps = step("a", worker="risky"), step("b", worker="web")
    run = allowed(*steps, expires=MINUTE, catalog=catalog).done("a", "b")
    run.later(61).answer(propose(step("c", worker="web"), final=False))
    assert "untrusted data" in run.state.questions["review-2"].text


@pytest.mark.parametrize("rules", [(), (Rule(untrusted=True, effects=("pay",)),)])
def test_a_rule_for_untrusted_data_asks_inside_the_envelope(rules):
    """An envelope does not know arguments: a rule asks again for what data may have ordered."""
    web, pay = spec("web"), spec("pay", risk="high", effects=("pay",))
    catalog = [type(web)(name="web", trusted=False, offers=web.offers), pay]
    policy = Policy(jitter=0.0, rules=rules)
    first = step("a", worker="pay"), step("b", "a", worker="web")
    run = allowed(*first, catalog=catalog, policy=policy).done("a", "b")
    run.answer(propose(step("c", worker="web"), final=False)).done("c")
    run.answer(propose(step("d", worker="pay"), final=False))
    assert (list(run.state.questions), run.running) == (
        (["review-3"], []) if rules else ([], ["d"])
    )
    assert check(run.log) == []


def test_a_worker_that_changed_is_outside_the_envelope():
    """Its name was allowed, and it is somebody else's now."""
    run = allowed(step("a", worker="risky")).done("a")
    change(run).answer(propose(step("b", worker="risky"), final=False))
    assert "new: worker risky" in run.state.questions["review-2"].text
    assert check(run.log) == []


# Workers that change.


def test_two_people_allow_the_same_workers():
    """One looked at the first version: the second is allowed by nobody yet."""
    run = Drive(step("a", worker="risky"), policy=TWO)
    run.reply("approve", actor="ann")
    change(run)
    assert run.state.pending.approvals == []
    assert "risky changed" in run.state.questions["review-1"].text
    run.reply("approve", actor="bob")
    assert run.running == []
    run.reply("approve", actor="ann")
    assert run.running == ["a"]
    assert check(run.log) == []


def test_a_waiting_revision_needs_as_many_as_its_new_workers_ask_for():
    """And is refused where the policy refuses them."""
    rules = (
        Rule(effects=("pay",), then="refuse"),
        Rule(risk="critical", then="two"),
        Rule(then="one"),
    )
    run = Drive(step("a", worker="risky"), policy=Policy(rules=rules))
    assert run.state.pending.people == 1
    change(run, [spec("risky", risk="critical", version="2")])
    assert run.state.pending.people == 2
    change(run, [spec("risky", effects=("pay",), version="3")])
    assert run.ended == "rejected"
    assert check(run.log) == []


@pytest.mark.parametrize(
    ("newer", "held"),
    [({}, set()), ({"risk": "critical"}, {"b"}), ({"effects": ("pay",)}, {"b"})],
)
def test_what_the_policy_let_through_is_looked_at_with_the_new_worker(newer, held):
    """It goes on only where the policy would let that one through as well."""
    refusing = Policy(jitter=0.0, rules=(Rule(effects=("pay",), then="refuse"),))
    run = Drive(step("a"), step("b", "a", worker="other"), policy=refusing)
    change(run, [spec("other", version="2", **newer)]).done("a")
    assert run.state.held == held


def test_an_approval_from_before_the_run_is_of_its_workers():
    """They changed before the plan was let through: somebody must look again."""
    steps = [step("a", worker="risky")]
    doc, catalog = {"steps": steps}, Catalog(WORKERS)
    limits = limits_of(Policy(jitter=0.0))
    given = {
        "id": "1",
        "actor": "ann",
        "given": 1,
        "binding": plan_binding(doc, {}, catalog, 0, "", limits),
        "parts": parts_of(doc, {}, catalog),
        "limits": limits,
    }
    run = Drive(bare=True, approvals=[given], linted=digest(canonical(steps))).go()
    same = Drive(bare=True, approvals=[given], linted=digest(canonical(steps))).go()
    assert same.answer(propose(*steps)).running == ["a"]
    change(run).answer(propose(*steps))
    assert run.running == []
    assert list(run.state.questions) == ["review-1"]


def test_a_worker_that_is_no_longer_trusted_taints():
    """Whatever it was when the run began."""
    catalog = [*WORKERS]
    run = Drive(step("a", "z"), step("z"), catalog=catalog)
    newer = spec("w", version="2")
    change(run, [type(newer)(name="w", version="2", trusted=False, offers=newer.offers)])
    run.done("z")
    assert run.state.permits.tainted


# Other doors.


def test_a_step_cannot_talk_the_effects_of_its_worker_away():
    """Its own word adds to them; of a worker that declares none it is all there is."""
    catalog = Catalog(WORKERS)
    own = [step("a", worker="writes", effects=[]), step("b", worker="w", effects=["mail"])]
    assert reach(own, catalog).effects == {"outside", "mail"}
    refusing = Policy(rules=(Rule(effects=("outside",), then="refuse"),))
    assert Drive(*own, policy=refusing).ended == "rejected"


@pytest.mark.parametrize("actor", ["policy", "nobody", ""])
def test_only_people_approve(actor):
    """Whoever calls themselves as the log calls those who are none is refused."""
    run = Drive(step("a", worker="risky"))
    with pytest.raises(NotAllowed, match="is not a person"):
        run.reply("approve", actor=actor)


def test_one_key_under_two_names_is_one_person():
    """Where two different people are needed, whether they are listed or merely signed."""
    for approvers in ({"ann": "ed25519:k", "bob": "ed25519:k", "cem": "ed25519:c"}, {}):
        policy = structs.replace(TWO, approvers=approvers)
        run = Drive(step("a", worker="risky"), policy=policy)
        run.reply("approve", actor="ann", approval={"key": "ed25519:k"})
        with pytest.raises(Conflict, match="ann has approved it already with the key of bob"):
            run.reply("approve", actor="bob", approval={"key": "ed25519:k"})
        assert run.reply("approve", actor="cem", approval={"key": "ed25519:c"}).running == ["a"]


def test_a_step_that_was_replaced_twice_is_no_difference():
    """Whoever waits for its first name waits for the last: two equal plans do not differ."""
    run = Drive(step("a"), step("b", "a"), step("c", "b"))
    for new, old in (("b.2", "b"), ("b.3", "b.2")):
        amend(run, step(new, "a", supersedes=old))
    doc, heirs = plan_of(run.state)
    assert diff(doc, doc, heirs) == []


def test_a_plan_cannot_be_emptied_into_a_success():
    """Waiting or let through: whoever wants nothing done cancels the run."""
    nothing = {"steps": [], "cancel": [], "final": True}
    waiting = Drive(step("a", worker="risky"))
    with pytest.raises(PlanInvalid, match="no step left"):
        commands.amend(waiting.state, nothing, "ann", waiting.now)
    held = Drive(step("a"), step("b"), room=0)
    with pytest.raises(PlanInvalid, match="no step left"):
        commands.amend(held.state, {**nothing, "cancel": ["a", "b"]}, "ann", held.now)
    assert commands.amend(held.state, {**nothing, "cancel": ["a"]}, "ann", held.now).events


@pytest.mark.parametrize("approvers", [{}, {"ann": "ed25519:k"}])
def test_no_envelope_covers_an_amendment(approvers):
    """A planner's revision goes on inside of it; what a person wrote was allowed by nobody."""
    signing = Policy(jitter=0.0, approvers=approvers)
    steps = step("a", worker="risky"), step("b", "a", worker="risky", parameters={"v": 1})
    run = allowed(*steps, policy=signing)
    answer = {"steps": [instead("b.2", "b", parameters={"v": 2})], "cancel": [], "final": False}
    for name in ("test", "policy", "Policy", "N0body", ""):
        with pytest.raises(NotAllowed, match="is not a person"):
            commands.amend(run.state, answer, name, run.now)
    run.hear(commands.amend(run.state, answer, "eve", run.now)).done("a")
    assert run.running == ["b"]
    assert "the approval by ann is for something else" in run.state.questions["review-2"].text
    run = allowed(*steps, policy=signing).done("a", "b")
    assert run.answer(propose(step("c", worker="risky"), final=False)).running == ["c"]
    assert check(run.log) == []


# Who is held, by whom, and who lets it go.


def test_a_hold_by_one_person_speaks_of_no_other():
    """What the question says."""
    run = Drive(step("a"), step("b", "a"))
    run.hear(commands.hold(run.state, ["b"], "ann", ""))
    question = run.last(ev.QuestionAsked)
    assert question.text == "Held: b: held by ann. Answer release to start."
    assert question.people == 1


def test_an_approval_ends_at_its_time():
    """With it everything that it allowed and that has not started, and nothing else."""
    run = allowed(*(step(each, worker="risky") for each in "abc"), expires=MINUTE, room=0)
    run.tell(ev.StepsHeld(["c"], "lunch", "bob", "q9"))
    run.state.steps["b"].expires = 0
    run.later(60)
    run.take_room()
    held = run.last(ev.StepsHeld)
    assert (held.steps, held.reason) == (["a"], "its approval has expired")
    assert run.running == ["b"]


@pytest.mark.parametrize(
    ("then", "held"), [("allow", False), ("one", True), ("two", True), ("refuse", True)]
)
def test_what_nobody_allowed_is_looked_at_again_when_it_is_void(then, held):
    """The policy let it through, and does so again, or not."""
    run = Drive(step("a", worker="cmd"), step("b", "a", worker="cmd"))
    run.state.policy = Policy(jitter=0.0, rules=(Rule(workers=("cmd",), then=then),))
    changed = holds.workers_changed(run.state, [spec("cmd", version="2")])
    assert any(isinstance(event, ev.StepsHeld) for event in changed[0]) is held
    run.tell(ev.WorkersChanged([spec("cmd", version="2")])).done("a")
    assert run.running == ([] if held else ["b"])
    assert run.state.held == ({"b"} if held else set())


def test_what_rests_on_an_approval_that_does_not_hold():
    """Steps that have not begun, whoever else holds them; not what the policy holds already."""
    run = allowed(*(step(each, worker="risky") for each in "abcdef"), room=2)
    run.done("a")
    assert run.running == ["b", "c"]
    run.tell(
        ev.StepsHeld(["d"], "over", "policy", "q8"),
        ev.StepsHeld(["e"], "lunch", "ann", "q9"),
    )
    events, effects = holds.void_approval(run.state, ev.ApprovalVoided(1, "it is forged", [1]))
    assert [type(event) for event in events] == [ev.ApprovalVoided, ev.StepsHeld, ev.QuestionAsked]
    assert events[1].steps == ["e", "f"]
    assert (events[1].reason, events[1].actor, len(effects)) == ("it is forged", "policy", 1)
    other, _ = holds.void_approval(run.state, ev.ApprovalVoided(1, "it is forged", [7]))
    assert [type(event) for event in other] == [ev.ApprovalVoided]


@pytest.mark.parametrize(("revisions", "asked"), [([1], True), ([2], False)])
def test_a_revision_that_waits_is_asked_about_again_when_its_approval_does_not_hold(
    revisions, asked
):
    """And not when another's does not."""
    run = Drive(step("a", worker="risky"), policy=TWO).reply("approve")
    events, _ = holds.void_approval(run.state, ev.ApprovalVoided(1, "it is forged", revisions))
    assert any(isinstance(event, ev.ReviewRequested) for event in events) is asked


def test_a_worker_that_is_new_changes_nothing():
    """It is there from now on."""
    run = Drive(step("a"), step("b", "a"))
    new = spec("new")
    assert holds.workers_changed(run.state, [new]) == ([ev.WorkersChanged([new], ["new"])], [])


def test_what_the_policy_holds_is_not_held_again():
    """The change of a worker adds nothing to it."""
    run = allowed(step("a", worker="risky"), step("b", "a", worker="risky"))
    run.tell(ev.StepsHeld(["b"], "over", "policy", "q9"))
    events, effects = holds.workers_changed(run.state, NEWER)
    assert [type(event) for event in events] == [ev.WorkersChanged, ev.StepsHeld, ev.QuestionAsked]
    assert (events[1].steps, len(effects)) == (["a"], 1)


@pytest.mark.parametrize(("changed", "asked"), [("risky", True), ("other", False)])
def test_a_revision_that_waits_is_looked_at_anew(changed, asked):
    """When one of its workers has changed."""
    run = Drive(step("a", worker="risky"))
    events, _ = holds.workers_changed(run.state, [spec(changed, risk="high", version="2")])
    assert any(isinstance(event, ev.ReviewRequested) for event in events) is asked


def test_nobody_is_asked_about_a_revision_that_reviewers_still_look_at():
    """They see the new worker anyway."""
    run = Drive(step("a", worker="risky"), policy=Policy(reviewers=("r",)))
    assert (run.state.pending.examined, run.state.questions) == (False, {})
    assert [type(each) for each in holds.workers_changed(run.state, NEWER)[0]] == [
        ev.WorkersChanged
    ]


@pytest.mark.parametrize(
    ("by", "void", "people", "actor"),
    [
        ("ann", "", 1, "ann"),
        ("policy", "", 2, "policy"),
        ("ann", "it is over", 2, "policy"),
        ("policy", "it is over", 2, "policy"),
    ],
)
def test_who_lets_a_held_step_go(by, void, people, actor):
    """One person what a person held, while its approval counts; else as many as the rules ask.

    When the run is reopened it is held as before.
    """
    run = Drive(
        step("a", worker="risky", failure_action="continue"),
        step("b", worker="risky"),
        step("c", "b", worker="risky"),
        policy=TWO,
    )
    run.reply("approve").reply("approve", actor="bob").fail("a", "permanent")
    run.tell(
        ev.StepsHeld(["c"], "so", by, "q1"),
        ev.QuestionAsked(id="q1", kind="hold", text="?", choices=["release", "abort"]),
    )
    run.state.steps["c"].void = void
    found = holds.people_for(run.state, run.state.questions["q1"])
    assert found.people == people
    assert (found.reason == "held by a person") is (people == 1)
    run.reply("abort", "q1").done("b")
    assert run.ended == "failed"
    run.hear(commands.redo(run.state, "a", "ann", "so", run.now))
    again = run.last(ev.StepsHeld)
    assert (again.steps, again.reason) == (["c"], "held when the run ended")
    assert again.actor == actor
