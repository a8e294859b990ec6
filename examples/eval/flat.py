"""The flat loop: one agent with all tools, which gets the goal in words and nothing else."""

from __future__ import annotations

import tools
import workers

from leadhand import Agent

check = {"check": workers.whole} if workers.CHECKED else {}
reporter = Agent(
    "reporter",
    "hand",
    tools=[tools.read_record, tools.read_annex],
    returns=workers.ENTRIES,
    gives="report",
    needs=(),
    instructions="Hand in the entry of each record.",
    risk="low",
    idempotent=True,
    max_turns=40,
    **check,
)
biller = Agent(
    "biller",
    "hand",
    tools=[tools.read_record, tools.read_annex, tools.send],
    returns=workers.ENTRIES,
    gives="receipt",
    needs=(),
    instructions="Send the bill, then hand in the entry of each record.",
    max_turns=40,
    **check,
)
