"""A language model with tools as a worker: one task, its own few tools, one typed result.

agent       Agent: what was declared, what planners see of it, one attempt
loop        the attempt: question, tools, question, until it is done or at its bounds
endings     the three ways a model ends its task: finish, needs_info, too_complex
toolbox     what it may call, by the names that providers allow
functions   Python functions and other workers as tools
commands    CommandTool: commands with an allow list
brief       what it is told: its instructions and its step, nothing of the plan
untrusted   what tools give back, marked as data
allowance   what one attempt may spend
transcript  what was said and done, for `leadhand logs RUN STEP`
"""

from leadhand.workers.agent.agent import Agent
from leadhand.workers.agent.commands import CommandTool

__all__ = ["Agent", "CommandTool"]
