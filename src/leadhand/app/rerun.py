"""Running a run again: a new run of its plan or its goal, from the beginning or from a step."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import msgspec

from leadhand.audit.verify import check_header, check_log
from leadhand.codec.events import decode_all
from leadhand.core.carried import carried_results
from leadhand.core.plan.model import Goal
from leadhand.core.rerun import RERUN_LABEL, refuse_rerun, rerun_of
from leadhand.engine.fold import fold, gc_paused
from leadhand.engine.results import data_of
from leadhand.errors import StoreCorrupt, UsageError
from leadhand.settings.product_logs import log_of_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.app.lead import Checked, Lead
    from leadhand.audit.chain import ChainProblem
    from leadhand.core.events import Event
    from leadhand.core.plan.model import Doc
    from leadhand.core.rerun import Rerun
    from leadhand.core.state.model import State
    from leadhand.ports import Entry, Host, RunHandle, Store
    from leadhand.stores.log import Log


def prepare_rerun(store: Store | Log, run_id: str, from_step: str = "") -> tuple[State, Rerun]:
    """Return the state of a run that has ended, and its re-run.

    The log of the run is verified first, by its hash chain and every rule over its events: results
    are taken over from a verified log only. Raise `StoreCorrupt` if it does not verify,
    `UsageError` if there is no such run or it cannot be run again. Not for an event loop: it reads
    the whole log.
    """
    header = store.header(run_id)
    if header is None:
        raise UsageError(f"there is no run {run_id}; `leadhand ls` lists them")
    product = log_of_run(run_id)
    if product is not None:
        raise UsageError(
            f"run {run_id} is a run of kind {product.kind}, whose steps depend on the state of a "
            f"repository. Fix: submit the {product.kind} again"
        )
    with gc_paused():
        entries = store.read(run_id)
        state = fold(entries)
        refuse_rerun(state)
        _refuse_altered(run_id, [*check_log(run_id, entries), *check_header(header, entries)])
        found = rerun_of(state, _numbered(entries), lambda step: data_of(store, step), from_step)
    return state, found


def _numbered(entries: Sequence[Entry]) -> list[tuple[int, Event]]:
    events = decode_all([(entry.version, entry.body) for entry in entries])
    return [(entry.seq, event) for entry, event in zip(entries, events, strict=True)]


def _refuse_altered(run_id: str, problems: Sequence[ChainProblem]) -> None:
    if problems:
        raise StoreCorrupt(
            f"the log of run {run_id} does not verify, so nothing is taken over from it: "
            f"{problems[0].message}. Fix: `leadhand verify {run_id}` lists everything"
        )


async def start_rerun(
    lead: Lead,
    host: Host,
    found: Rerun,
    *,
    run_id: str = "",
    sources: tuple[str, ...] = (),
    origin: Doc | None = None,
    labels: Iterable[str] = (),
    checked: Checked | None = None,
) -> RunHandle:
    """Start a re-run on `host`; return once its start is durable.

    `labels` are added to those of the first run, and replace labels of the same name. `checked` is
    the result of `check_rerun`, if already known.

    The policy of `lead` applies, with the review and the budget of the first run where those are
    stricter. No approval of the first run counts.
    """
    look = getattr(host, "refuse_altered", None)
    if look is not None:  # also against the anchors, outside the database
        for source in {each.run for each in carried_results(found.origin).values()}:
            look(source)
    return await _with_policy(lead, found).begin(
        host,
        found.what,
        params=found.params,
        run_id=run_id,
        sources=sources,
        origin={**found.origin, **(origin or {})},
        labels=_merged(found.labels, labels),
        checked=checked or check_rerun(lead, found),
    )


def _merged(before: Sequence[str], given: Iterable[str]) -> list[str]:
    """Return labels, with those given in place of earlier ones of the same name."""
    known = {each.partition("=")[0]: each for each in (*before, *given)}
    return [*{**known, RERUN_LABEL: before[-1]}.values()]


def check_rerun(lead: Lead, found: Rerun) -> Checked | None:
    """Return the plan of a re-run, checked; None for a goal. Raise `PlanInvalid` for errors."""
    if isinstance(found.what, Goal):
        return None
    # A result that does not fit fails in the step that gets it.
    return lead.check(found.what, found.params, values_too="carried" not in found.origin)


def _with_policy(lead: Lead, found: Rerun) -> Lead:
    policy, made = lead.policy, copy.copy(lead)
    least = [each for each in (policy.budget, found.budget) if each is not None]
    made.policy = msgspec.structs.replace(
        policy, review=policy.review or found.review, budget=min(least) if least else None
    )
    return made
