"""What only the whole plan shows: facts, files, estimates; and, on request, advice.

Before each run only errors matter, so only they are looked for there; a plan that declares no
facts, files, budget or deadline then costs next to nothing. Advice reads every step once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.check_contract import check_contract
from leadhand.core.check_coupling import check_coupling
from leadhand.core.check_estimates import check_estimates
from leadhand.core.check_facts import check_facts
from leadhand.core.check_words import check_words
from leadhand.core.promises import CLAIMED, widenings
from leadhand.core.wording import shown

if TYPE_CHECKING:
    from leadhand.core.findings import Findings
    from leadhand.core.whole import Whole


def check_whole(whole: Whole, out: Findings, *, advice: bool) -> None:
    """Everything about a plan that is more than its steps."""
    _check_promises(whole, out)
    check_facts(whole, out, advice=advice)
    check_coupling(whole, out, advice=advice)
    check_estimates(whole, out, advice=advice)
    if advice:
        check_contract(whole, out)
        check_words(whole, out)


def _check_promises(whole: Whole, out: Findings) -> None:
    """What steps claim beyond their workers: it counts once a person was shown and approved it."""
    if whole.catalog is None:
        return
    fix = "Declare it with the worker; else it counts only once a person has approved it as shown."
    if not whole.persons:
        fix = (
            'Declare it with the worker: "planner" says who wrote this plan, and no approval helps.'
        )
    for ident, claims in widenings(whole.steps.values(), whole.catalog).items():
        for field, several in claims.items():
            message = f"step {shown(ident)}: {CLAIMED[field].format(', '.join(several))}"
            out.add("promise-widened", whole.place(ident, field), message, fix)
