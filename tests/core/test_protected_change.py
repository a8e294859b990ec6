"""Changes that people must approve: one question of its own kind, bound to one commit."""

import msgspec
import pytest

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.decide.effects import Move
from leadhand.core.logcheck.checker import check
from leadhand.core.policy import Policy, Rule
from leadhand.core.review import holds, protected_change
from leadhand.errors import Conflict, NotAllowed, UsageError
from tests.core.driver import Drive, step

COMMIT = "c" * 40
CHANGE = {
    "commit": COMMIT,
    "base": "b" * 40,
    "digest": "d" * 64,
    "paths": ["deploy/prod.yaml"],
    "diff": "-replicas: 3\n+replicas: 0\n",
}
TWO = Policy(jitter=0.0, rules=(Rule(effects=("protected_change",), then="two"),))
SEEN = {"approval": {"shown": COMMIT}}


def held(policy=None, *, replans=False, **more):
    """A run whose step has made a protected change."""
    run = Drive(step("a", **more), policy=policy or Policy(jitter=0.0), replans=replans)
    if policy is TWO and run.state.pending:
        run.reply("approve").reply("approve", actor="ben")
    return run.fail("a", "policy", change=CHANGE, message="It passes.")


def clean(run):
    assert [str(found) for found in check(run.log)] == []
    return run


@pytest.mark.parametrize("replans", [False, True])
@pytest.mark.parametrize("more", [{}, {"failure_action": "abort"}, {"failure_action": "continue"}])
def test_it_is_always_a_persons_whatever_plan_and_planner_say(replans, more):
    run = clean(held(replans=replans, **more))
    (asked,) = run.state.questions.values()
    assert (asked.kind, asked.choices) == ("protected_change", ["approve", "send_back", "drop"])
    assert "deploy/prod.yaml" in asked.text
    assert COMMIT[:12] in asked.text


def test_an_approval_starts_the_step_again_and_says_what_and_who():
    run = clean(held().reply("approve", **SEEN))
    assert run.state.steps["a"].status == "running"
    (answer,) = run.state.answers
    assert (answer["commit"], answer["by"]) == (COMMIT, ["ann"])
    given = run.last(ev.ChangeApproved)
    assert (given.commit, given.digest, given.actor) == (COMMIT, "d" * 64, "ann")
    clean(run.done("a"))
    assert run.ended == "succeeded"


@pytest.mark.parametrize(
    ("choice", "said", "error"),
    [
        ("retry", {}, UsageError),
        ("skip", {}, UsageError),
        ("approve", {}, UsageError),
        ("approve", {"approval": {"shown": COMMIT[:12]}}, UsageError),
        ("approve", {"approval": {"shown": "e" * 40}}, Conflict),
        ("approve", {**SEEN, "actor": "policy"}, NotAllowed),
        ("send_back", {}, UsageError),
        ("send_back", {"text": "  "}, UsageError),
    ],
)
def test_nothing_else_lets_it_pass(choice, said, error):
    run = held()
    with pytest.raises(error):
        run.reply(choice, **said)
    assert run.state.steps["a"].status == "asking"
    clean(run)


def test_who_is_not_listed_decides_nothing():
    run = held()
    policy = msgspec.structs.replace(run.state.policy, approvers={"ben": "ed25519:x"})
    run.state.policy = policy
    for choice in ("approve", "drop"):
        with pytest.raises(NotAllowed, match="ben"):
            commands.answer(run.state, "q1", choice, "ann", run.now, **SEEN)


@pytest.mark.parametrize("choice", ["approve", "send_back", "drop"])
@pytest.mark.parametrize("actor", ["", " ", "Policy", "N0body", "ann\u200b", " ann", "ann, ben"])
def test_a_name_that_is_no_persons_decides_nothing(choice, actor):
    """The same names as for an approval of a plan."""
    run = held()
    with pytest.raises(NotAllowed, match=r"is not a person|cannot be the name of a person"):
        run.reply(choice, actor=actor, text="no", **SEEN)
    assert run.state.steps["a"].status == "asking"


def test_it_goes_back_with_a_comment_and_is_dropped_with_a_reason():
    back = clean(held().reply("send_back", text="keep three"))
    assert back.state.steps["a"].status == "running"
    dropped = clean(held().reply("drop", text="no"))
    assert dropped.state.steps["a"].status == "skipped"


def test_two_different_people_where_the_rule_says_so():
    run = held(TWO)
    (question,) = run.state.questions
    assert run.state.questions[question].people == 2
    run.reply("approve", **SEEN)
    assert run.state.steps["a"].status == "asking"
    for same in ("ann", "ANN", "\u0430nn"):
        with pytest.raises(Conflict, match="it needs 2 different people"):
            run.reply("approve", actor=same, **SEEN)
    clean(run.reply("approve", actor="ben", **SEEN))
    assert run.state.steps["a"].status == "running"
    assert run.state.answers[-1]["by"] == ["ann", "ben"]


def test_one_key_under_two_names_is_one_person():
    run = held(TWO)
    run.reply("approve", approval={"shown": COMMIT, "key": "k"})
    with pytest.raises(Conflict, match="ann has approved it already with the key of ben"):
        run.reply("approve", actor="ben", approval={"shown": COMMIT, "key": "k"})
    assert [each.actor for each in run.state.questions["q1"].approvals] == ["ann"]


def test_a_rule_may_forbid_it():
    refuse = Policy(jitter=0.0, rules=(Rule(effects=("protected_change",), then="refuse"),))
    run = held(refuse)
    (asked,) = run.state.questions.values()
    assert asked.choices == ["send_back", "drop"]


def test_what_is_signed_names_run_question_step_commit_and_content():
    base = ("r", "q1", "a", CHANGE)
    seen = {protected_change.binding(*base)}
    for other in (
        ("s", "q1", "a", CHANGE),
        ("r", "q2", "a", CHANGE),
        ("r", "q1", "b", CHANGE),
        ("r", "q1", "a", {**CHANGE, "commit": "e" * 40}),
        ("r", "q1", "a", {**CHANGE, "digest": "e" * 64}),
    ):
        seen.add(protected_change.binding(*other))
    assert len(seen) == 6


# The independent checker.


def tampered(run, edit):
    """The log of a run with one event changed or taken out."""
    found = []
    for at, event in run.log:
        told = edit(event)
        found += [(at, told)] if told is not None else []
    return [violation.rule for violation in check(found)]


def test_the_checker_finds_what_nobody_may_do():
    one = held().reply("approve", **SEEN)
    without = tampered(one, lambda e: None if isinstance(e, ev.ChangeApproved) else e)
    other = tampered(
        one,
        lambda e: (
            msgspec.structs.replace(e, commit="e" * 40) if isinstance(e, ev.ChangeApproved) else e
        ),
    )
    two = held(TWO).reply("approve", **SEEN).reply("approve", actor="ben", **SEEN)
    same = tampered(
        two,
        lambda e: (
            msgspec.structs.replace(e, actor="Ann") if isinstance(e, ev.ChangeApproved) else e
        ),
    )
    dull = tampered(
        one,
        lambda e: (
            msgspec.structs.replace(e, kind="failure") if isinstance(e, ev.QuestionAsked) else e
        ),
    )
    wordless = tampered(
        held().reply("send_back", text="x"),
        lambda e: msgspec.structs.replace(e, text="") if isinstance(e, ev.QuestionAnswered) else e,
    )
    for found in (without, other, same, dull, wordless):
        assert "I53" in found, (without, other, same, dull, wordless)


def test_the_checker_finds_an_approval_by_a_stranger_and_one_without_a_signature():
    """Where approvers are recorded; whether a signature is good is for `verify`."""
    run = held().reply("approve", **SEEN)
    listed = msgspec.structs.replace(run.state.policy, approvers={"ann": "ed25519:x"})

    def signed(actor, signature):
        def edit(event):
            if isinstance(event, ev.RunStarted):
                return msgspec.structs.replace(event, policy=listed)
            if isinstance(event, ev.ChangeApproved):
                return msgspec.structs.replace(event, actor=actor, signature=signature)
            return event

        return tampered(run, edit)

    assert signed("ann", "s") == []
    assert signed("ann", "") == ["I26"]
    assert signed("eve", "s") == ["I26"]


def void(run):
    """Return the event that says that the newest approval of the change does not hold."""
    entry = max(seq for seq, (_, each) in enumerate(run.log, 1) if type(each) is ev.ChangeApproved)
    return ev.ApprovalVoided(entry, "ann's approval is not signed", [1])


def voided(run):
    """The run is taken up, and the newest approval of the change does not hold."""
    return run.hear(Move(*holds.void_approval(run.state, void(run))))


def test_a_void_approval_of_a_change_does_not_count_for_the_open_question():
    run = clean(voided(held(TWO).reply("approve", **SEEN)))
    (question,) = [each for each in run.state.questions.values() if each.kind != "hold"]
    assert question.approvals == []
    run.hear(commands.release(run.state, ["a"], "ann", run.now))
    run.reply("approve", actor="bob", **SEEN)
    assert run.state.steps["a"].status == "asking"  # One of two.
    clean(run.reply("approve", **SEEN))
    assert run.state.answers[-1]["by"] == ["bob", "ann"]
    assert clean(run.done("a")).ended == "succeeded"


def test_a_void_approval_of_a_change_is_told_to_no_worker():
    """The step was started on it already: what starts next asks about the change again."""
    run = clean(voided(held().reply("approve", **SEEN)))
    (answer,) = run.state.answers
    assert answer["choice"] == "approve"
    assert not {"commit", "by"} & set(answer)
    clean(run.fail("a", "policy", change=CHANGE, message="It passes."))
    (question,) = run.state.questions.values()
    assert (question.kind, question.approvals) == ("protected_change", [])


def test_the_checker_does_not_count_a_void_approval():
    """Bob's approval and a void one are one of two."""
    run = voided(held(TWO).reply("approve", **SEEN))
    given = msgspec.structs.replace(run.last(ev.ChangeApproved), actor="bob")
    answered = ev.QuestionAnswered(id="q1", choice="approve", actor="bob")
    log = [*run.log, *[(run.now.wall, each) for each in (given, answered)]]
    assert [str(found.rule) for found in check(log)] == ["I53"]


def test_the_checker_finds_a_step_that_starts_where_an_approval_of_its_change_was_void():
    """Its plan needed no review, and it was not held."""
    run = held(TWO).reply("approve", **SEEN)
    run.say(void(run)).reply("approve", **SEEN).reply("approve", actor="bob", **SEEN)
    assert run.state.steps["a"].status == "running"
    assert [str(found.rule) for found in check(run.log)] == ["I27"]
