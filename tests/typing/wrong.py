"""User code that must not type-check: each line that ends in `# wrong` is an error to mypy.

It is never run; `test_typing.py` checks that exactly these lines are found.
"""

from __future__ import annotations

import leadhand
from leadhand import (
    Ask,
    Failure,
    Finish,
    Goal,
    Lead,
    Outcome,
    Plan,
    PlannerView,
    Policy,
    Propose,
    Report,
    Step,
    Transient,
    worker,
)

nobody = leadhand.Nobody  # wrong


@worker(risky=True)  # wrong
def unknown_option() -> None: ...


@worker(idempotent="yes")  # wrong
def option_of_the_wrong_type() -> None: ...


@worker(isolate="container")  # wrong
def option_with_an_unknown_word() -> None: ...


@worker
def typed(count: int) -> str:
    return str(count)


typed("three")  # wrong
number: int = typed(3)  # wrong

Report(status="maybe")  # wrong
Report.failed("transient", "x", effect="perhaps")  # wrong
Failure("transient")  # wrong
Transient("x", retry_after=3)  # wrong

Step("a", "w")  # wrong
Step(id="a")  # wrong
Step(id="a", worker="w").worker = "other"  # wrong
Plan(steps=[Step(id="a", worker="w")])  # wrong
Goal("text")  # wrong
Policy(max_concurrency="many")  # wrong

Propose(Step(id="a", worker="w"))  # wrong
Ask()  # wrong
Finish(1, "because", "notes", "more")  # wrong


def look(view: PlannerView) -> None:
    view.cost = 0.0  # wrong
    assert view.nothing  # wrong


async def forgets_to_await(lead: Lead) -> Outcome:
    return lead.run("plan.json")  # wrong


async def runs_what_cannot_run(lead: Lead) -> None:
    await lead.run(5)  # wrong
    outcome = await lead.run("plan.json", aprove=True)  # wrong
    assert outcome.statuss  # wrong
