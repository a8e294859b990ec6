"""Results that a re-run took over from the run it repeats: recorded in the plan of `RunStarted`.

`core/rerun.py` makes these records, `leadhand verify` compares them with both logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.core.hashing import canonical, digest
from leadhand.core.wording import listed

if TYPE_CHECKING:
    from leadhand.core import events as ev
    from leadhand.core.plan.model import Doc, Json

LEFT_OUT_MAX = 100
"""How many steps that are not run again are recorded, and named in a line of the log."""


class CarriedResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A result that a run took over from the run it repeats."""

    run: str
    """The run that produced it: the run that is repeated, or one that this run had repeated."""
    attempt: int
    """The attempt that reported it."""
    entry: int
    """The number of that report in the log of the first run."""
    digest: str
    """The digest of the data: see `result_digest`."""
    param: str = ""
    """The parameter that holds the data; empty if no step of the new run uses it."""
    untrusted: bool = False
    """Whether its worker's results are untrusted, or its run had read such data."""


def result_digest(data: Json) -> str:
    """Return the digest by which a result that was taken over is recognised."""
    return digest("result", canonical(data))


def carried_results(plan: Doc) -> dict[str, CarriedResult]:
    """Return the results that a run took over, by step, from the plan in its `RunStarted`.

    Raise `ValueError` if the record is malformed.
    """
    carried = plan.get("carried")
    if not carried:
        return {}
    try:
        return msgspec.convert(carried, dict[str, CarriedResult])
    except msgspec.ValidationError as error:
        raise ValueError(
            f"the record of results that were taken over is malformed: {error}"
        ) from None


def carried_data(started: ev.RunStarted) -> dict[str, Json]:
    """Return the data of the results that a run took over and uses, by step."""
    found = carried_results(started.plan)
    return {step: started.params.get(each.param) for step, each in found.items() if each.param}


def rerun_text(plan: Doc) -> str:
    """Return the sentence of the log about a re-run; empty for another run."""
    first = plan.get("rerun_of")
    if not first:
        return ""
    start = plan.get("rerun_from")
    text = f"it repeats run {first}" + (f" from step {start}" if start else "")
    told = [
        f"{step} (run {each.run}, attempt {each.attempt}, entry {each.entry}, digest "
        f"{each.digest[:12]})"
        for step, each in list(carried_results(plan).items())[:LEFT_OUT_MAX]
    ]
    if told:
        text += f"; results taken over, not produced here: {', '.join(told)}"
    left = plan.get("left_out") or {}
    if left:
        text += f"; not run again and not used: {listed(list(left))}"
    return text
