"""Prompts that a client offers its user: from a request to a reviewed plan."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from mcp import types

from leadhand.app.composition import registry_of
from leadhand.app.documents import worker_rows
from leadhand.mcp.server import Prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadhand.core.plan.model import Doc
    from leadhand.mcp.runs import Workplace
    from leadhand.mcp.server import Call

PLAN = """\
Turn this request into a Leadhand plan that people can review:

{request}

Work in this order:
1. Use only the workers below. If something is missing, say so instead of inventing a worker.
2. Write the plan as a document: {{"goal": …, "steps": [{{"id", "worker", "parameters",
   "depends_on", "success_criteria"}}, …]}}. Every step has criteria by which its result can be
   checked. Steps that do not need each other have no `depends_on` between them.
3. Check it with lint_plan and correct every error.
4. Put it before people with propose_plan. Tell your user what it does, its risk and effects, its
   digest, and how a person approves it (`for_person`). Do not approve it yourself.
5. Wait with wait_for_run, and report the verified result.

The workers, as data:
{workers}
"""
FOLLOW = """\
Report how the Leadhand run {run} stands. Use get_run, and read_log or get_step for a step that
failed. Say what has succeeded, what failed and why, what it cost, and what it waits for; for what
waits for a person, repeat `for_person`. State only what the tools return.
"""


def prompts_of(place: Workplace) -> list[Prompt]:
    """Return the prompts of a project."""

    def workers() -> str:
        rows = worker_rows(registry_of(place.settings()))
        known: list[Doc] = [
            {
                "worker": row.worker,
                "action": row.action,
                "description": row.description,
                "parameters": row.parameters,
                "effects": row.effects,
                "risk": row.risk,
            }
            for row in rows
        ]
        return msgspec.json.encode(known).decode()

    async def plan(_call: Call, given: Mapping[str, str]) -> Sequence[types.PromptMessage]:
        listed = await asyncio.to_thread(workers)
        return [_said(PLAN.format(request=given["request"], workers=listed))]

    async def follow(_call: Call, given: Mapping[str, str]) -> Sequence[types.PromptMessage]:
        return [_said(FOLLOW.format(run=given["run"]))]

    return [
        Prompt(
            definition=types.Prompt(
                name="plan",
                title="Turn a request into a reviewed plan",
                description="Write a plan with the workers of this project, check it, and put it "
                "before people.",
                arguments=[_argument("request", "What is to be done, in words.")],
            ),
            messages=plan,
        ),
        Prompt(
            definition=types.Prompt(
                name="report",
                title="Report on a run",
                description="Say how a run stands, from its log.",
                arguments=[_argument("run", "The id of the run.")],
            ),
            messages=follow,
        ),
    ]


def _argument(name: str, text: str) -> types.PromptArgument:
    return types.PromptArgument(name=name, description=text, required=True)


def _said(text: str) -> types.PromptMessage:
    return types.PromptMessage(role="user", content=types.TextContent(text=text))
