"""Leadhand: one lead plans, many hands work.

The public names. They load when first used, so that `import leadhand` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadhand.app import Lead, Outcome
    from leadhand.app.callers import HandedStep, NextStep, StepLease, StepReceipt
    from leadhand.core.plan.model import Goal, Plan, Step
    from leadhand.core.policy import Policy, Rule
    from leadhand.core.report import (
        Ask,
        Failure,
        Finish,
        GiveUp,
        PlannerView,
        Propose,
        Report,
        Wait,
    )
    from leadhand.core.review.approval import Approval
    from leadhand.errors import (
        Ambiguous,
        Conflict,
        Denied,
        InvalidOutput,
        LeadhandError,
        NeedsInfo,
        NotAllowed,
        Permanent,
        PlanInvalid,
        RateLimited,
        TooComplex,
        Transient,
        Unavailable,
        UsageError,
        WorkerFailure,
    )
    from leadhand.planners.goal.planner import GoalPlanner
    from leadhand.planners.hybrid import Hybrid
    from leadhand.planners.model.planner import ModelPlanner
    from leadhand.planners.script import ScriptPlanner
    from leadhand.ports import Context
    from leadhand.workers.agent import Agent, CommandTool
    from leadhand.workers.functions.decorator import method, worker
    from leadhand.workers.human import Human
    from leadhand.workers.mcp.server import McpServer

_HOMES = {
    "Agent": "workers.agent",
    "Ambiguous": "errors",
    "Approval": "core.review.approval",
    "Ask": "core.report",
    "CommandTool": "workers.agent",
    "Conflict": "errors",
    "Context": "ports",
    "Denied": "errors",
    "Failure": "core.report",
    "Finish": "core.report",
    "GiveUp": "core.report",
    "Goal": "core.plan.model",
    "GoalPlanner": "planners.goal.planner",
    "HandedStep": "app.callers",
    "Human": "workers.human",
    "Hybrid": "planners.hybrid",
    "InvalidOutput": "errors",
    "Lead": "app",
    "LeadhandError": "errors",
    "McpServer": "workers.mcp.server",
    "ModelPlanner": "planners.model.planner",
    "NeedsInfo": "errors",
    "NextStep": "app.callers",
    "NotAllowed": "errors",
    "Outcome": "app",
    "Permanent": "errors",
    "Plan": "core.plan.model",
    "PlanInvalid": "errors",
    "PlannerView": "core.report",
    "Policy": "core.policy",
    "Propose": "core.report",
    "RateLimited": "errors",
    "Report": "core.report",
    "Rule": "core.policy",
    "ScriptPlanner": "planners.script",
    "Step": "core.plan.model",
    "StepLease": "app.callers",
    "StepReceipt": "app.callers",
    "TooComplex": "errors",
    "Transient": "errors",
    "Unavailable": "errors",
    "UsageError": "errors",
    "Wait": "core.report",
    "WorkerFailure": "errors",
    "method": "workers.functions.decorator",
    "worker": "workers.functions.decorator",
}

__all__ = [
    "Agent",
    "Ambiguous",
    "Approval",
    "Ask",
    "CommandTool",
    "Conflict",
    "Context",
    "Denied",
    "Failure",
    "Finish",
    "GiveUp",
    "Goal",
    "GoalPlanner",
    "HandedStep",
    "Human",
    "Hybrid",
    "InvalidOutput",
    "Lead",
    "LeadhandError",
    "McpServer",
    "ModelPlanner",
    "NeedsInfo",
    "NextStep",
    "NotAllowed",
    "Outcome",
    "Permanent",
    "Plan",
    "PlanInvalid",
    "PlannerView",
    "Policy",
    "Propose",
    "RateLimited",
    "Report",
    "Rule",
    "ScriptPlanner",
    "Step",
    "StepLease",
    "StepReceipt",
    "TooComplex",
    "Transient",
    "Unavailable",
    "UsageError",
    "Wait",
    "WorkerFailure",
    "method",
    "worker",
]


if not TYPE_CHECKING:  # A type checker that saw it would take any name for one of ours.

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'leadhand' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"leadhand.{home}"), name)


def __dir__() -> list[str]:
    return __all__
