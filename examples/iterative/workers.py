"""A planner in ten lines that plans one step at a time, and the workers it uses.

    leadhand run "Compare two competitors" \\
        --workers examples/iterative/workers.py --planner examples/iterative/workers.py:next_step
"""

from __future__ import annotations

from leadhand import Finish, PlannerView, Propose, Transient, worker
from leadhand.core.report import Decision

PRICES = {"Acme": 12.0, "Globex": 9.5}


@worker(idempotent=True)
def fetch_price(competitor: str) -> float:
    """Look a price up; unknown competitors are a passing fault, so the engine tries again."""
    if competitor not in PRICES:
        raise Transient(f"no answer for {competitor}")
    return PRICES[competitor]


@worker
def compare(prices: dict[str, float]) -> str:
    """Say who is cheapest."""
    cheapest = min(prices, key=lambda name: prices[name])
    return f"{cheapest} is cheapest at {prices[cheapest]:.2f}"


def next_step(view: PlannerView) -> Decision:
    """Read what is known, answer with the next step only."""
    for name in PRICES:
        step = f"price-{name.lower()}"
        if step not in view.steps:
            doc = {"id": step, "worker": "fetch_price", "parameters": {"competitor": name}}
            return Propose([doc], because=f"the price of {name} is not known yet")
    if "compare" not in view.steps:
        known = {name: f"${{{{ steps.price-{name.lower()}.data }}}}" for name in PRICES}
        doc = {"id": "compare", "worker": "compare", "parameters": {"prices": known}}
        return Propose([doc], because="all prices are there")
    return Finish(view.results["compare"])
