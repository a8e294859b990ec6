"""The planner that plan.yaml names. It is asked only when a step has failed or surprised.

It gets the partial results: what the searches found is there, and is not searched for again.
"""

from leadhand import GiveUp, PlannerView, Propose
from leadhand.core.report import Decision


def revise(view: PlannerView) -> Decision:
    """Revise steps 3, 4 and 5 when A's pricing page is not there."""
    if view.steps["read_a"].status != "failed":
        return GiveUp(f"nothing is known about this: {view.why}")
    if view.results["search_a"]["brochure"]:
        return compare_brochures()
    return ask_for_the_price()


def compare_brochures() -> Decision:
    """Read both brochures: like is compared with like. The workers are those of the plan."""
    steps = [
        reading("brochure_a", "search_a", supersedes="read_a"),
        reading("brochure_b", "search_b", supersedes="read_b"),
        writing("brochure_a", "brochure_b", "The pricing page of A is gone: from brochures."),
    ]
    return Propose(steps, final=True, because="A's pricing page is gone; both have brochures")


def ask_for_the_price() -> Decision:
    """Ask the firm itself. Nobody has allowed a letter: this is outside of what was approved."""
    letter = {
        "id": "letter_a",
        "worker": "ask_by_letter",
        "parameters": {"firm": "${{ params.a }}"},
        "supersedes": "read_a",
    }
    steps = [letter, writing("letter_a", "read_b", "The pricing page of A is gone: asked for.")]
    return Propose(steps, final=True, because="A's pricing page is gone, and there is no brochure")


def reading(ident: str, search: str, **more: str) -> dict:
    """A brochure that a search found."""
    parameters = {"page": f"${{{{ steps.{search}.data.brochure }}}}"}
    checked = {"success_criteria": "has_price", "parameters": parameters}
    return {"id": ident, "worker": "read_page", **checked, **more}


def writing(a: str, b: str, note: str) -> dict:
    """The comparison, of what was read instead."""
    prices = {"a": f"${{{{ steps.{a}.data }}}}", "b": f"${{{{ steps.{b}.data }}}}"}
    parameters = {**prices, "note": note}
    return {"id": "write_anew", "worker": "write", "parameters": parameters, "supersedes": "write"}
