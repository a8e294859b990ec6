"""Rolling back a run, from any process that may host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.catalog import Catalog
from leadhand.core.plan.references import load_apart
from leadhand.core.review.approval import versions
from leadhand.core.rollback import rollback_id, rollback_of
from leadhand.core.wording import listed
from leadhand.engine.library_store import find
from leadhand.engine.results import load_artifact
from leadhand.errors import Conflict, UsageError

if TYPE_CHECKING:
    from leadhand.app.lead import Lead
    from leadhand.core.plan.model import Doc
    from leadhand.core.plan.references import Secret
    from leadhand.core.state.model import State
    from leadhand.ports import Host, RunHandle


async def roll_back(
    lead: Lead, host: Host, run_id: str, sources: tuple[str, ...] = (), reason: str = ""
) -> RunHandle:
    """Start the rollback of a run that has ended, or resume it.

    `sources` and `reason` are recorded when it starts.
    """
    ident = rollback_id(run_id)
    if host.store.header(ident) is not None:
        _refuse_namesake(host, lead, ident, run_id)
        return await lead.resume_on(host, ident)
    state = host.load(run_id, lead.registry).state
    host.discard(run_id)

    def plan_of(name: str) -> Doc:
        return find(host.store, name).document

    def hidden(secret: Secret) -> str:
        raise UsageError(f"an undo would need the secret {secret.name} as part of a result")

    wanted = rollback_of(state, plan_of)
    params = {
        name: load_apart(value, lambda part: load_artifact(host.store, part.ref), hidden)
        for name, value in wanted.params.items()
    }
    # An undo with values that do not fit fails in its turn: no reason to undo nothing.
    checked = lead.check(wanted.plan, params, values_too=not wanted.lenient)
    if changed := _changed_since_approval(state, wanted.plan, lead.registry.catalog()):
        verb = "has" if len(changed) == 1 else "have"
        found = f"{listed(changed)} {verb} changed since the run was approved"
        reason = f"{reason}; {found}" if reason else found
    origin = {"rollback_of": run_id, **({"rollback_reason": reason} if reason else {})}
    return await lead.begin(
        host,
        wanted.plan,
        run_id=ident,
        sources=sources,
        origin=origin,
        checked=checked,
        always_review=bool(changed),
    )


def _changed_since_approval(state: State, plan: Doc, catalog: Catalog) -> list[str]:
    """Return the workers of a rollback that differ from those of the run a person approved.

    An approval covers the workers that undo its steps: with others, a person is asked again.
    """
    if state.started is None or not any(step.approved for step in state.steps.values()):
        return []
    before = versions(plan["steps"], Catalog(state.started.catalog))
    now = versions(plan["steps"], catalog)
    return [name for name in now if now[name] != before.get(name)]


def _refuse_namesake(host: Host, lead: Lead, ident: str, run_id: str) -> None:
    """Raise `Conflict` if a run only has the name of the rollback: it undoes nothing."""
    started = host.load(ident, lead.registry).state.started
    if started is None or started.plan.get("rollback_of") != run_id:
        raise Conflict(
            f"run {ident} has the id of the rollback of run {run_id}, and is another run: "
            "nothing was rolled back"
        )
