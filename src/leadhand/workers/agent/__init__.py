"""A language model with tools as a worker: one task, its own few tools, one typed result.

agent      Agent: its declaration, its description for planners, its budget, one attempt
loop       the attempt: request, tools, request, until it is done or at its bounds
tools      functions, workers and MCP tools for the model; their results marked as data;
           the three endings of a task: finish, needs_info, too_complex
commands   CommandTool: commands with an allow list
prompt     the model's instructions: its own and its step, nothing of the plan
declared   `[agents.NAME]` tables of leadhand.toml
"""

from leadhand.workers.agent.agent import Agent
from leadhand.workers.agent.commands import CommandTool

__all__ = ["Agent", "CommandTool"]
