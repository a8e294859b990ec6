"""What agents may say to a run, and what is reserved for people."""

import pytest
from msgspec import structs

from leadhand.core import callers
from leadhand.core.commands import Command
from leadhand.core.logcheck.checker import check
from leadhand.core.policy import Policy, Rule
from leadhand.core.promises import is_persons
from leadhand.core.review.agents import agent_name, is_agent
from leadhand.errors import NotAllowed
from tests.core.driver import Drive, propose, step

AGENT = "agent:claude-code"
MAIL = step("a", worker="writes")
RISKY = step("a", worker="risky")
CALLER = {"caller": {"protocol": "mcp", "client": "claude-code"}, "untrusted": True}


def under_review(*steps, actor=AGENT, **policy):
    return Drive(
        *steps,
        actor=actor,
        planner="document",
        plan=CALLER,
        policy=Policy(jitter=0.0, review=True, **policy),
    )


@pytest.mark.parametrize(
    "client",
    ["claude-code", "", "  a,b\n\x00c ", "agent:x", "ann\u200b", "x" * 500, "Cursor (VS Code)"],
)
def test_every_client_gets_the_name_of_an_agent(client):
    """Whatever it calls itself, it is never taken for a person."""
    name = agent_name(client)
    assert is_agent(name)
    assert name == name.strip()
    assert "," not in name
    assert "\n" not in name
    assert len(name) <= 70
    assert callers.agent_name(name) == name


@pytest.mark.parametrize("name", ["AGENT:x", " agent: x", "\uff41gent:x", "\u0430gent:x"])
def test_an_agent_is_one_in_every_spelling(name):
    assert is_agent(name)
    assert not is_agent("ann")


def test_an_agent_approves_nothing_by_default():
    run = under_review(MAIL)
    with pytest.raises(NotAllowed, match="is an agent, and approves nothing here: a person must"):
        run.reply("approve", actor=AGENT)
    with pytest.raises(NotAllowed, match="is an agent"):
        run.reply("approve", actor="Agent: other")
    run.reply("approve", actor="ann")
    assert "a" in run.state.in_flight


def test_an_agent_approves_up_to_the_risk_that_the_policy_allows():
    run = under_review(MAIL, agent_risk="medium")
    run.reply("approve", actor=AGENT)
    assert "a" in run.state.in_flight
    assert check(run.log) == []
    with pytest.raises(NotAllowed, match="up to risk medium; this one has risk high"):
        under_review(RISKY, agent_risk="medium").reply("approve", actor=AGENT)


def test_what_rules_and_two_people_ask_for_is_for_people():
    ask = Rule(effects=("outside",), then="one")
    with pytest.raises(NotAllowed, match="a rule of the policy asks for people"):
        under_review(MAIL, agent_risk="critical", rules=(ask,)).reply("approve", actor=AGENT)
    two = Rule(risk="low", then="two")
    with pytest.raises(NotAllowed, match="2 people must approve it"):
        under_review(MAIL, agent_risk="critical", rules=(two,)).reply("approve", actor=AGENT)


def test_the_log_checker_finds_an_agents_approval():
    """It shares nothing with what refused it."""
    run = under_review(MAIL)
    run.reply("approve", actor="ann")
    forged = [
        (
            at,
            structs.replace(event, actor=AGENT)
            if type(event).__name__ == "ApprovalGiven"
            else event,
        )
        for at, event in run.log
    ]
    wrong = [each.message for each in check(forged) if each.rule == "I26"]
    assert any("is an agent, and allowed revision 1" in each for each in wrong)


def test_an_agent_stops_only_what_it_has_started():
    own, other = under_review(MAIL), under_review(MAIL, actor="ann")
    with pytest.raises(NotAllowed, match="only runs that it has started"):
        other.reply("reject", actor=AGENT)
    with pytest.raises(NotAllowed, match="only runs that it has started"):
        Command("cancel", AGENT)(other.state, other.now)
    own.reply("reject", actor=AGENT)
    assert own.state.ended.status == "rejected"


@pytest.mark.parametrize("verb", ["pause", "resume", "hold", "release", "redo", "amend"])
def test_commands_of_people_are_for_people(verb):
    run = under_review(MAIL)
    with pytest.raises(NotAllowed, match="reserved for people"):
        Command(verb, AGENT, {"steps": ["a"], "step": "a", "revision": {}})(run.state, run.now)


def failed(kind="permanent"):
    run = Drive(step("a"), actor=AGENT, policy=Policy(jitter=0.0, attempts_max=1))
    return run.fail("a", kind)


def test_a_failure_is_decided_by_people():
    run = failed()
    (question,) = run.state.questions.values()
    for choice in question.choices:
        if choice == "abort":
            continue
        with pytest.raises(NotAllowed, match="reserved for people"):
            run.reply(choice, actor=AGENT, data={})
    run.reply("abort", actor=AGENT)
    assert run.state.ended.status == "failed"


def test_an_agent_gives_the_words_that_its_own_run_lacks():
    run = failed("needs_info")
    run.reply("retry", actor=AGENT, text="use staging")
    assert "a" in run.state.in_flight
    asked = Drive(
        answer={"kind": "ask", "question": "which branch?"}, actor=AGENT, replans=True, bare=False
    )
    asked.reply("", actor=AGENT, text="main")
    assert asked.state.answers[-1]["actor"] == AGENT
    other = Drive(answer={"kind": "ask", "question": "which branch?"}, actor="ann", replans=True)
    with pytest.raises(NotAllowed, match="only runs that it has started"):
        other.reply("", actor=AGENT, text="main")


def test_what_an_agent_proposed_is_untrusted_and_no_persons():
    run = under_review(MAIL)
    assert run.state.permits.tainted
    assert not is_persons(run.state.started.plan)
    assert is_persons({})
    rule = Rule(untrusted=True, then="two")
    two = Drive(answer=propose(MAIL), actor=AGENT, plan=CALLER, policy=Policy(rules=(rule,)))
    assert two.state.pending.people == 2


def test_no_program_of_one_account_has_the_name_of_a_program_of_another():
    """Whatever it calls itself, and however long: the name ends with the account."""
    ann = agent_name("claude-code", "ann")
    assert ann == "agent:claude-code of ann"
    for client in ("claude-code of ann", "claude-code of ann" + "." * 60, "of ann", "x" * 500):
        name = agent_name(client, "bob")
        assert name.endswith(" of bob")
        assert callers.agent_name(name) == name
    names = ["Zoë", "Zo", "zo.", "ann of bob", "bob", "ー", "a" * 64, "a" * 63]
    made = [agent_name("x of ann", each) for each in names] + [agent_name("x", "ann of bob")]
    assert len(set(made)) == len(made)
    assert all(callers.agent_name(each) == each for each in made)
