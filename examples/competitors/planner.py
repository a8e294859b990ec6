"""A planner that writes the whole plan at once, and is asked again only at a surprise.

Five steps: search A, search B (side by side), read A's pricing page, read B's, write. Two things
may come in between: a page is not there, or a firm is not.
"""

from leadhand import Finish, GiveUp, PlannerView, Propose, ScriptPlanner
from leadhand.core.report import Decision


def whole_plan(view: PlannerView) -> Decision:
    """The plan; or, after a surprise, what becomes of the rest of it."""
    missing = [name for name in ("site", "a", "b") if name not in view.params]
    if missing:
        ways = " ".join(f"--have {name}=…" for name in missing)
        return GiveUp(f"{', '.join(missing)} is missing. Fix: give it with {ways}")
    if view.call == 1:
        return Propose(five_steps(view), final=True, because="five steps lead to a comparison")
    gone = [found for found in view.results.values() if found.get("open") is False]
    if gone:
        return nothing_to_compare(view, gone[0])
    if view.steps["read_a"].status == "failed":
        return compare_brochures(view)
    return GiveUp(f"nothing is known about this: {view.why}")


def five_steps(view: PlannerView) -> list[dict]:
    """All of it."""
    return [
        searched("search_a", view.params["a"]),
        searched("search_b", view.params["b"]),
        reading("read_a", "search_a", "pricing"),
        # After read_a: what can be compared with B depends on what A shows.
        reading("read_b", "search_b", "pricing", depends_on=["read_a"]),
        writing("write", view, {"a": "read_a", "b": "read_b"}),
    ]


def compare_brochures(view: PlannerView) -> Decision:
    """A's pricing page is gone. Like is compared with like, so steps 4 and 5 change too."""
    steps = [
        reading("brochure_a", "search_a", "brochure", supersedes="read_a"),
        reading("brochure_b", "search_b", "brochure", supersedes="read_b"),
        writing(
            "write_brochures",
            view,
            {"a": "brochure_a", "b": "brochure_b"},
            note=f"{view.params['a']} has taken its pricing page down; both are from brochures.",
            supersedes="write",
        ),
    ]
    return Propose(steps, final=True, because="A's pricing page is gone; both have brochures")


def nothing_to_compare(view: PlannerView, gone: dict) -> Decision:
    """A search went well, and what it found makes the rest pointless: it is dropped, by name."""
    note = f"{gone['firm']} is no more: {gone['note']}. There is nothing to compare."
    because = f"{gone['firm']} is no more"
    open_ = [step.id for step in view.steps.values() if step.status in ("waiting", "ready")]
    return Finish(note, because=because, drop=dict.fromkeys(open_, because))


def searched(ident: str, firm: str) -> dict:
    """A search. That a firm is there is expected: if not, the planner wants to know."""
    parameters = {"site": "${{ params.site }}", "firm": firm}
    return {"id": ident, "worker": "search", "parameters": parameters, "expect": "data.open"}


def reading(ident: str, search: str, page: str, **more: object) -> dict:
    """A page that a search found."""
    parameters = {"site": "${{ params.site }}", "page": f"${{{{ steps.{search}.data.{page} }}}}"}
    checked = {"success_criteria": "has_price", "parameters": parameters}
    return {"id": ident, "worker": "read_page", **checked, **more}


def writing(
    ident: str, view: PlannerView, reads: dict[str, str], note: str = "", **more: object
) -> dict:
    """The comparison of what was read."""
    prices = {view.params[who]: f"${{{{ steps.{step}.data }}}}" for who, step in reads.items()}
    parameters = {"prices": prices, "note": note}
    return {"id": ident, "worker": "write", "parameters": parameters, **more}


planner = ScriptPlanner(whole_plan, consult="on_surprise")
