"""Every way past a rule needs what the rule needs: each word of a person, for each kind of hold.

A step that people allowed can start no more: the time is up, its worker has changed, or the
approval in the log does not hold. Whatever one person alone then says, in any order, it does not
start; when as many approvers as the rule names have released it, it does.
"""

import inspect
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.decide.effects import Move
from leadhand.core.logcheck.checker import check
from leadhand.core.policy import Policy, Rule
from leadhand.core.review import holds
from leadhand.core.views.inbox import inbox_row
from leadhand.engine.approvals import refuse_unsigned
from leadhand.errors import Conflict, LeadhandError, NotAllowed
from tests.core.driver import MINUTE, SECOND, Drive, propose, spec, step

KEYS = {"ann": "ed25519:a", "bob": "ed25519:b"}
RULES = {
    "one": Policy(),
    "two": Policy(rules=(Rule(risk="high", then="two"),)),
    "approvers": Policy(rules=(Rule(risk="high", then="two"),), approvers=KEYS),
}
PEOPLE = {"one": 1, "two": 2, "approvers": 2}
WALL = 10**15
SPELLINGS = ["eve", "Eve", "EVE", "\uff45\uff56\uff45", "\u0435ve", "eve\u200b"]
"""One person: also fullwidth, with a Cyrillic letter, and with one that has no shape."""


def allowed(rule, *, replans=True):
    """A run of a, then b by a risky worker, allowed by as many people as must; a is under way."""
    run = Drive(bare=True, policy=RULES[rule], replans=replans, at=WALL, wall=WALL).go()
    run.answer(propose(step("a"), step("b", "a", worker="risky"), final=not replans))
    until = {"expires": WALL + MINUTE}
    for actor in ("ann", "bob")[: PEOPLE[rule]]:
        run.reply("approve", "review-1", actor=actor, approval=until)
    return run


def changed(run, version="2"):
    run.hear(Move(*holds.workers_changed(run.state, [spec("risky", risk="high", version=version)])))
    return run


def expired(rule):
    return allowed(rule).later(61).done("a")


def set_back(rule):
    """The calendar goes back by an hour while the log has later times."""
    run = allowed(rule).later(61)
    return run.later(0, wall=-3600).done("a")


def other_worker(rule):
    return changed(allowed(rule)).done("a")


def no_approval(rule):
    run = allowed(rule)
    voided = ev.ApprovalVoided(6, "ann's approval of revision 1 is not signed", [1])
    return run.hear(Move(*holds.void_approval(run.state, voided))).done("a")


def held_by_hand_then_expired(rule):
    run = allowed(rule)
    run.hear(commands.hold(run.state, ["b"], "eve", "mine"))
    return run.later(61).done("a")


def held_by_hand_then_changed(rule):
    run = allowed(rule)
    run.hear(commands.hold(run.state, ["b"], "eve", "mine"))
    return changed(run).done("a")


def failed_then_changed(rule):
    """It failed, then its worker changed: `redo` must not start the new one."""
    run = changed(allowed(rule).done("a").fail("b", "permanent"))
    assert run.state.steps["b"].status == "failed"
    return run


def asked_then_changed(rule):
    """It waits for an answer to its failure while its worker changes."""
    run = changed(allowed(rule, replans=False).done("a").fail("b", "permanent"))
    assert run.state.steps["b"].status == "asking"
    return run


def reopened(rule):
    """The run was ended where the step was held, and a person takes that end back."""
    run = asked_then_changed(rule)
    failure = next(q.id for q in run.state.questions.values() if q.kind == "failure")
    run.reply("abort", failure)
    assert run.ended == "failed"
    return run


HELD = (
    expired,
    set_back,
    other_worker,
    no_approval,
    held_by_hand_then_expired,
    held_by_hand_then_changed,
    failed_then_changed,
    asked_then_changed,
    reopened,
)


def _answers(state, _actor):
    for question in list(state.questions.values()):
        for choice in question.choices or ["go on"]:
            if choice not in ("abort", "reject", "stop", "rollback"):
                yield {"id": question.id, "choice": choice, "data": {"v": 1}, "text": "because"}


def _amendments(state, _actor):
    for old in ("b", *[name for name in state.steps if name.startswith("b.")][-1:]):
        new = step(f"{old}.{len(state.steps)}", worker="risky", timeout=5)
        yield {"revision": {"steps": [{**new, "supersedes": old}], "cancel": [], "final": False}}
        yield {"revision": {"steps": [new], "cancel": [old], "final": False}}
        yield {"revision": {"steps": [new], "cancel": [], "final": False}}


SURFACES = {
    "pause": lambda _state, _actor: [{}],
    "resume": lambda _state, _actor: [{}],
    "cancel": lambda _state, _actor: [],  # Ends the run, and starts nothing.
    "answer": _answers,
    "hold": lambda _state, _actor: [{"steps": ["b"]}],
    "release": lambda state, _actor: [{"steps": [name]} for name in state.steps],
    "redo": lambda state, _actor: [{"step": name, "reason": "so"} for name in state.steps],
    "amend": _amendments,
    "claim": lambda _state, _actor: [{}],
    "extend": lambda state, _actor: [{"step": name, "attempt": 1} for name in state.steps],
}
"""Every word that a person can say to a run, with what may go with it."""


def test_the_table_has_every_word_that_a_run_understands():
    """A new one is denied by this table until it stands there."""
    known = set(re.findall(r'case "(\w+)"', inspect.getsource(commands._move_of)))
    assert known == set(SURFACES)


def speak(run, actor, verb, details):
    """Say something as the engine hears it; whether it was taken."""
    try:
        move = commands.move_of(verb, actor, details)(run.state, run.now)
        refuse_unsigned(run.state, move.events)
    except LeadhandError:
        return False
    run.hear(move)
    return True


def starts(run):
    """The attempts of what people must allow."""
    return [event.step for event in run.all(ev.AttemptStarted) if event.worker == "risky"]


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("verb", SURFACES)
def test_no_word_of_one_person_starts_what_the_rule_bars(held, rule, verb):
    """Said by one who has allowed nothing, twice; unsigned where approvers have keys."""
    run = held(rule)
    before = starts(run)
    enough = PEOPLE[rule] == 1 and verb in ("answer", "release")  # One person is all it needs.
    for actor in ("eve", "eve", "Eve"):
        for details in [*SURFACES[verb](run.state, actor)]:
            speak(run, actor, verb, details)
            run.later(1)
    assert enough or starts(run) == before
    assert [str(each) for each in check(run.log)] == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_sequence_of_words_of_one_person_starts_it(data):
    """Whatever they say, in whatever order, under whatever spelling of their name."""
    rule = data.draw(st.sampled_from(["two", "approvers"]))
    run = data.draw(st.sampled_from(HELD))(rule)
    before = starts(run)
    for _ in range(8):
        verb = data.draw(st.sampled_from(sorted(SURFACES)))
        actor = data.draw(st.sampled_from(SPELLINGS))
        said = [*SURFACES[verb](run.state, actor)]
        if said:
            speak(run, actor, verb, data.draw(st.sampled_from(said)))
        run.later(data.draw(st.sampled_from([0, 1, 120])), wall=data.draw(st.sampled_from([0, 9])))
    assert starts(run) == before
    assert [str(each) for each in check(run.log)] == []


@pytest.mark.parametrize("held", [expired, other_worker, no_approval, set_back])
def test_two_people_let_it_go(held):
    """The first is told that another must; the second may not be the first again."""
    run = held("two")
    before = starts(run)
    run.hear(commands.release(run.state, ["b"], "ann", run.now, "seen"))
    assert starts(run) == before
    assert run.last(ev.QuestionAsked).people == 2
    assert "2 different people must release it" in run.last(ev.QuestionAsked).text
    for again in ("ann", "Ann", "\uff41\uff4e\uff4e", "\u0430nn"):
        with pytest.raises(
            Conflict, match=r"ann has released it already.*it needs 2 different people"
        ):
            commands.release(run.state, ["b"], again, run.now)
    run.hear(commands.release(run.state, ["b"], "bob", run.now))
    assert starts(run) == [*before, "b"]
    assert run.last(ev.StepsReleased).actor == "ann, bob"
    assert [str(each) for each in check(run.log)] == []


def leads_to(run):
    """What the inbox says of a release."""
    (ident,) = run.state.questions
    choices = inbox_row(run.state, ident).choices
    return next(each.leads_to for each in choices if each.answer == "release")


def test_what_the_first_released_is_what_the_second_releases():
    """A worker that changes in between makes the first word count for nothing."""
    run = other_worker("two")
    before = starts(run)
    run.hear(commands.release(run.state, ["b"], "ann", run.now))
    assert leads_to(run) == "may start: b"
    changed(run, "3")
    assert leads_to(run) == "counts as one of 2; 1 more must release b"
    run.hear(commands.release(run.state, ["b"], "bob", run.now))
    assert starts(run) == before
    run.hear(commands.release(run.state, ["b"], "ann", run.now))
    assert starts(run) == [*before, "b"]


def test_a_release_ends_as_an_approval_does():
    """With the time that settings give, or that its giver says; then it is held again."""
    policy = Policy(rules=(Rule(risk="high", then="two"),), approval_s=60.0)
    run = Drive(step("b", worker="risky"), policy=policy, at=WALL, wall=WALL, room=0)
    run.reply("approve").reply("approve", actor="bob").later(61)
    run.take_room()
    run.room = 0
    for actor in ("ann", "bob"):
        run.hear(commands.release(run.state, ["b"], actor, run.now))
    assert run.state.steps["b"].expires == run.now.at + 60 * SECOND
    run.later(61)
    run.take_room()
    assert (starts(run), run.state.held) == ([], {"b"})


def test_a_hold_by_hand_is_lifted_by_one_while_the_approval_counts():
    """It stands for no rule; the approval keeps the time that it had."""
    run = allowed("two")
    run.hear(commands.hold(run.state, ["b"], "eve", "lunch")).done("a")
    run.hear(commands.release(run.state, ["b"], "eve", run.now))
    assert (starts(run), run.state.steps["b"].expires) == (["b"], WALL + MINUTE)


def test_what_the_policy_refuses_is_released_by_nobody():
    """A changed worker may do what no number of people may allow."""
    rules = (Rule(effects=("pay",), then="refuse"), Rule(risk="high", then="one"))
    run = Drive(step("b", worker="risky"), policy=Policy(rules=rules), room=0).reply("approve")
    pays = spec("risky", risk="high", version="2", effects=("pay",))
    run.hear(Move(*holds.workers_changed(run.state, [pays])))
    with pytest.raises(NotAllowed, match="the policy refuses it"):
        commands.release(run.state, ["b"], "ann", run.now)


# The checker, on logs that an engine without the rule would have written.


def forged(run, *events):
    return {each.rule for each in check([*run.log, *((run.now.at, event) for event in events)])}


def given_by(run, actor, **more):
    bound = holds.bound_release(run.state, "q1", 0)
    return ev.ReleaseGiven(question="q1", actor=actor, binding=bound, **more)


def test_a_log_in_which_too_few_released_is_found():
    """One person, or one under two spellings."""
    run = other_worker("two")
    end = ev.QuestionAnswered(id="q1", choice="release", actor="ann")
    for names in (["ann"], ["ann", "Ann"], []):
        gave = [given_by(run, actor) for actor in names]
        assert "I28" in forged(run, *gave, end, ev.StepsReleased(["b"], "ann"))
    both = [given_by(run, "ann"), given_by(run, "bob")]
    assert forged(run, *both, end, ev.StepsReleased(["b"], "ann, bob")) == set()
    later = ev.StepsReleased(["b"], "ann, bob", "", run.now.at + SECOND)
    assert "I28" in forged(run, *both, end, later)


def test_a_log_in_which_a_release_is_not_signed_is_found():
    """Where approvers are recorded; whether a signature is good is for `verify`."""
    run = other_worker("approvers")
    assert forged(run, given_by(run, "ann")) == {"I26"}
    assert forged(run, given_by(run, "eve", signature="x")) == {"I26"}
    assert forged(run, given_by(run, "ann", signature="x")) == set()


def started(run):
    epoch = run.state.epoch + 1
    return ev.AttemptStarted("b", 1, epoch, "risky", run.now.at + SECOND, "x")


def test_a_log_in_which_an_ended_approval_was_used_is_found():
    """Also one in which the clock was set back."""
    for held in (expired, set_back):
        run = held("two")
        cut = next(i for i, (_, each) in enumerate(run.log) if isinstance(each, ev.StepsHeld))
        log = [*run.log[:cut], (run.now.at, started(run))]
        assert "I27" in {each.rule for each in check(log)}


def test_a_log_in_which_a_void_approval_was_used_is_found():
    """The worker has changed, and nothing holds the step."""
    run = allowed("two")
    log = [*run.log, (run.now.at, ev.WorkersChanged([spec("risky", risk="high", version="2")]))]
    assert "I27" in {each.rule for each in check([*log, (run.now.at, started(run))])}
