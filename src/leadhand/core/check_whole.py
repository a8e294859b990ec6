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

if TYPE_CHECKING:
    from leadhand.core.findings import Findings
    from leadhand.core.whole import Whole


def check_whole(whole: Whole, out: Findings, *, advice: bool) -> None:
    """Everything about a plan that is more than its steps."""
    check_facts(whole, out, advice=advice)
    check_coupling(whole, out, advice=advice)
    check_estimates(whole, out, advice=advice)
    if advice:
        check_contract(whole, out)
        check_words(whole, out)
