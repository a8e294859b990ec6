"""What an approval is of: exactly what runs, as one hash.

The *binding* covers the revision (its hash covers the steps and every revision before), the plan's
own words besides its steps, the values of its parameters, the workers that may do the steps with
their versions (a version is a digest of source or argv, working directory and environment names,
unless its author says otherwise), and when the approval ends. Anything that differs gives another
binding, and an approval of another binding is no approval.

`plan_binding` is the same for a plan that is not running yet, so that it can be approved on its own
and run later: key order, white space and the spelling as YAML or JSON make no difference, the order
of steps does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.hashing import canonical, digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.core.catalog import Catalog
    from leadhand.core.events import RunStarted
    from leadhand.core.plan import Doc, Json
    from leadhand.core.state import State

FORM = "leadhand approval 1"


def versions(steps: Iterable[Doc], catalog: Catalog) -> dict[str, str]:
    """The workers that may do some steps, each with its version; an unknown one has none."""
    names = {name for step in steps for name in (step["worker"], *step.get("alternatives", ()))}
    known = catalog.workers
    return {name: known[name].version if name in known else "" for name in sorted(names)}


def binding(state: State, revision_hash: str, add: Iterable[Doc], expires: int) -> str:
    """What allowing a revision of a run allows."""
    if state.started is None:
        return ""
    return bind(state.started, revision_hash, versions(add, state.catalog), expires)


def bind(started: RunStarted, revision_hash: str, workers: Mapping[str, str], expires: int) -> str:
    """The same, from what the log holds."""
    parts = [canonical(started.plan), canonical(started.params), canonical(dict(workers))]
    return digest(FORM, started.run, revision_hash, *parts, str(expires))


def plan_binding(
    plan: Doc, params: Mapping[str, Json], catalog: Catalog, expires: int, context: str = ""
) -> str:
    """What allowing a plan document allows."""
    doc = {key: value for key, value in plan.items() if key != "$schema"}
    found = versions(plan.get("steps", ()), catalog)
    parts: list[str | bytes] = [
        canonical(doc),
        canonical(dict(params)),
        canonical(found),
        str(expires),
        context,
    ]
    return digest(FORM, "plan", *parts)


def signed_text(bound: str, actor: str, expires: int) -> bytes:
    """What an approver signs."""
    return f"{FORM}\n{bound}\n{actor}\n{expires}\n".encode()
