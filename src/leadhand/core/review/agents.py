"""Agents that drive runs: their names, and what they may say to a run.

An agent is a program of somebody else that proposes plans and follows runs, over MCP for example.
It is recorded as `agent:NAME`, which no person is called. Whatever it says is untrusted, also if it
says that a person has said it: an answer that travels through an agent is the agent's. So an agent
may say only this, and everything else is reserved for people:

1. It may stop what it has started: cancel its run, abort it, reject its own plan, or ask for
   changes of it.
2. It may give information that its own run lacks: words for the planner or for a step. They are
   untrusted data.
3. It may approve a plan that needs one person, up to the risk that the policy allows agents
   (`agent_risk`); by default none. Rules of the policy that ask for people ask for people.

To the host it may say nothing: stopping all runs, lifting such a stop, and the library are for
people.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leadhand.core.hashing import digest
from leadhand.core.plan.model import RISKS, worst
from leadhand.core.review.identity import same_person_key
from leadhand.core.review.ruling import rule_asks
from leadhand.core.visible import visible_name
from leadhand.errors import NotAllowed

if TYPE_CHECKING:
    from leadhand.core.review.ruling import PlanReach
    from leadhand.core.state.model import State
    from leadhand.core.state.records import Question

PREFIX = "agent:"
NAME_CHARS = 60
CLIENT_CHARS, ACCOUNT_CHARS = 36, 30
"""Parts of the name of an agent that uses an account; together at most 80, as for every caller."""
UNNAMED = "unnamed"
OTHER = re.compile(r"[^A-Za-z0-9._ /@+-]+")
OWN = ("abort", "reject", "request_changes")
"""Answers by which an agent stops or sends back what it has started."""
VERBS = ("answer", "cancel", "claim", "extend")
"""The commands that an agent may send, within the limits of this module."""


def is_agent(actor: str) -> bool:
    """Return whether a name is an agent's, in any spelling."""
    return same_person_key(actor).startswith(PREFIX)


def agent_name(client: str, account: str = "") -> str:
    """Return the name under which a program that calls itself `client` is recorded.

    Other characters than letters, digits and a few signs are left out: see `core/callers.py`. With
    an account the name ends with it, whatever the program calls itself: no program of one account
    has the name of a program of another.
    """
    if not account:
        return f"{PREFIX}{_kept(client, NAME_CHARS) or UNNAMED}"
    whose = _kept(account, ACCOUNT_CHARS)
    if whose != account or " of " in account:
        whose = f"{whose} {digest('agent account', account)[:8]}".strip()
    return f"{PREFIX}{_kept(client, CLIENT_CHARS) or UNNAMED} of {whose}"


def _kept(name: str, chars: int) -> str:
    return " ".join(OTHER.sub(" ", name).split())[:chars].strip(" ._/@+-")


def refuse_agent_command(state: State, verb: str, actor: str) -> None:
    """Raise `NotAllowed` if an agent may not send this command to a run."""
    if not is_agent(actor):
        return
    if verb not in VERBS:
        raise NotAllowed(f"{verb} is reserved for people, and {visible_name(actor)} is an agent")
    if verb == "cancel" and not _own(state, actor):
        raise _not_its_own(state, actor, "cancel")


def refuse_agent_host_command(verb: str, actor: str) -> None:
    """Raise `NotAllowed` if a command to the host or to the library comes from an agent."""
    if is_agent(actor):
        what = verb.replace("_", " ")
        raise NotAllowed(f"{what} is reserved for people, and {visible_name(actor)} is an agent")


def refuse_agent_answer(state: State, question: Question, choice: str, actor: str) -> None:
    """Raise `NotAllowed` if an agent may not give this answer.

    An approval is checked where it is given: see `refuse_agent_approval`.
    """
    if not is_agent(actor) or (question.kind, choice) == ("review", "approve"):
        return
    gives = question.kind == "planner" or (choice == "retry" and _lacks_words(state, question))
    if not gives and choice not in OWN:
        raise NotAllowed(
            f"this answer is reserved for people, and {visible_name(actor)} is an agent"
        )
    if not _own(state, actor):
        raise _not_its_own(state, actor, "answer")


def refuse_agent_approval(state: State, people: int, wanted: PlanReach, actor: str) -> None:
    """Raise `NotAllowed` unless the policy lets an agent approve a plan of this reach."""
    if not is_agent(actor):
        return
    limit, name = state.policy.agent_risk, visible_name(actor)
    if not limit:
        raise NotAllowed(f"{name} is an agent, and approves nothing here: a person must")
    if people > 1:
        raise NotAllowed(f"{name} is an agent, and {people} people must approve it")
    if rule_asks(state, wanted):
        raise NotAllowed(f"{name} is an agent, and a rule of the policy asks for people")
    if RISKS.index(wanted.risk) > RISKS.index(worst(limit)):
        raise NotAllowed(
            f"{name} is an agent, which may approve plans up to risk {limit}; this one has risk "
            f"{wanted.risk}: a person must"
        )


def _lacks_words(state: State, question: Question) -> bool:
    step = state.steps.get(question.step)
    return bool(step and step.failure and step.failure.get("class") == "needs_info")


def _own(state: State, actor: str) -> bool:
    return state.started is not None and state.started.actor == actor


def _not_its_own(state: State, actor: str, verb: str) -> NotAllowed:
    started = visible_name(state.started.actor) if state.started is not None else "another"
    return NotAllowed(
        f"{visible_name(actor)} is an agent, and may {verb} only runs that it has started; run "
        f"{state.run} was started by {started}"
    )
