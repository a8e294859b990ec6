"""A review for people: everything that will run, with deceptive characters shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.cli.rendering.text import clean, count
from leadhand.core.catalog import NOT_DECLARED
from leadhand.core.review.limits import changed_limits
from leadhand.core.review.view import ReviewDocument, lines_of
from leadhand.core.visible import visible, visible_value

if TYPE_CHECKING:
    from leadhand.cli.console import Console
    from leadhand.core.review.approval import ApprovalRow
    from leadhand.core.review.view import PlanReview


COLOURS = {"+": "green", "-": "red", "~": "yellow", ">": "cyan", "!": "magenta"}


def print_review(console: Console, doc: ReviewDocument) -> None:
    """Print the pending revision of a run, or its remaining steps."""
    steps = doc.steps
    number = f"revision {doc.revision}"
    by = f" by {visible(doc.author)}" if doc.author else ""
    console.out(f"run {doc.run}, {number}{by}: {count(len(steps), 'step')}")
    if doc.waiting:
        console.out(f"waits      {clean(doc.reason)}")
        for each in doc.approvals:
            console.out(f"allowed by {allowed_line(each)}")
        missing = doc.people - len(doc.approvals)
        console.out(f"needs      {missing} more {'person' if missing == 1 else 'people'}")
    else:
        rest = "this is what is still to come" if steps else "nothing is to come"
        console.out(f"waits      nothing waits for a review; {rest}")
    print_parts(console, doc)
    for ident in doc.cancel:
        console.out(f"takes out  {visible(ident)}")
    _print_changes(console, doc)
    if doc.binding:
        console.out(f"digest     {doc.binding}")


def allowed_line(row: ApprovalRow) -> str:
    """Return who allowed something, when, why, until when, and whether it is signed."""
    why = f": {visible(row.why)}" if row.why else ""
    until = f", until {for_people(row.until)}" if row.until else ""
    signed = f", signed by {visible(row.key)}" if row.signed else ", not signed"
    return f"{visible(row.by)}, {for_people(row.at)}{until}{signed}{why}"


def print_parts(console: Console, doc: ReviewDocument | PlanReview) -> None:
    """Print the reach, the parameters, and every field of every step."""
    unknown = "?" if doc.policy_risk else "not loaded"
    workers = [f"{visible(name)} {version or unknown}" for name, version in doc.workers.items()]
    counts = " (workers are not loaded, so what they declare is not known)"
    if doc.policy_risk:
        counts = f" (the policy counts it as {doc.policy_risk})"
    console.out(f"risk       {doc.risk}{counts if doc.risk == NOT_DECLARED else ''}")
    console.out(f"effects    {visible_value(doc.effects)}")
    console.out(f"writes     {visible_value(doc.writes)}")
    console.out(f"cost       {doc.cost:g}")
    limits = (
        f"{name} {'none' if value is None else visible_value(value)}"
        for name, value in changed_limits(doc.limits)
    )
    console.out(f"limits     {', '.join(limits)}")
    for each in workers:
        console.out(f"worker     {each}")
    if doc.revisable:
        planner = visible(doc.revisable.planner)
        console.out(f"revision   may be revised by {planner} within this envelope:")
        for line in lines_of(doc.revisable.envelope):
            console.out(f"envelope   {line}")
    of_run = doc if isinstance(doc, ReviewDocument) else None
    for what in of_run.outside if of_run else ():
        console.out(f"new        {clean(what)}")
    for what in doc.widens:
        console.out(f"widens     {clean(what)}")
    for what in doc.overclaims:
        console.out(f"no matter  {clean(what)}; a planner wrote it, so it does not count")
    if of_run and of_run.untrusted:
        console.out("careful    data from outside was read before this was proposed")
    origin = of_run.origin if of_run else {}
    for name, value in (("origin", origin), ("plan", doc.plan), ("params", doc.params)):
        for line in lines_of(value) if value else ():
            console.out(f"{name:<10} {line}")
    for step in doc.steps:
        console.out("")
        console.out(f"step {visible(step['id'])}, risk {doc.risks[step['id']]}")
        if walls := doc.sandboxes[step["id"]]:
            console.out(f"  sandbox: {visible(walls)}")
        for line in lines_of({key: each for key, each in step.items() if key != "id"}):
            console.out(f"  {line}")
        for place, value in doc.resolved.get(step["id"], {}).items():
            console.out(f"  = {visible(place)[1:-1]}: {visible_value(value)}")
        for place in doc.unresolved.get(step["id"], ()):
            console.out(f"  ? {visible(place)[1:-1]}: known only when the step starts")
        if step["id"] in doc.instants:
            at = for_people(doc.instants[step["id"]])
            console.out(f"  (allowed now, it starts at {at} or later)")
    console.out("")


def for_people(moment: str) -> str:
    """Return an instant of a document, which is in UTC: `2026-11-20 02:00:00 UTC`."""
    return f"{moment[:10]} {moment[11:19]} UTC"


def _print_changes(console: Console, doc: ReviewDocument) -> None:
    if not doc.approved_before:
        console.out("difference nothing was approved before: all of it is new")
        return
    if not doc.changes:
        return
    console.out("difference to what was approved last:")
    for line in doc.difference:
        console.out(console.paint_data(f"  {line}", COLOURS[line[0]]))
