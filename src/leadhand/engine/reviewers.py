"""Automatic reviewers: called here, on a copy of the revision, before it is decided.

If a reviewer raises, takes too long or is not loaded, a person decides.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from leadhand.core import commands
from leadhand.core.plan.references import Secret
from leadhand.core.review.view import resolved_steps
from leadhand.core.views.run import deep_copy, goal_of

if TYPE_CHECKING:
    from leadhand.core.catalog import WorkerSpec
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.state.model import State
    from leadhand.engine.perform import AttemptRun
    from leadhand.ports import Reviewer, Workers


FINDINGS_MAX = 100
FINDING_CHARS_MAX = 500


def changed_specs(state: State, workers: Workers) -> list[WorkerSpec]:
    """Return the workers whose version differs from the run's, or that the run does not know."""
    known = state.catalog.workers
    here = workers.catalog().workers
    found = [changed_spec(state, workers, name) for name in here if name in known]
    changed = [spec for spec in found if spec is not None]
    return changed + [spec for name, spec in here.items() if name not in known]


def changed_spec(state: State, workers: Workers, name: str) -> WorkerSpec | None:
    """Return the current spec of a worker if it differs from the run's, else None.

    Called before every attempt: the worker that starts is compared with the one allowed.
    """
    worker, known = workers.get(name), state.catalog.workers.get(name)
    if worker is None or known is None:
        return None
    renewed = getattr(worker, "renewed", None)
    spec: WorkerSpec = worker.spec if renewed is None else renewed()
    return None if spec.version == known.version else spec


async def examine(run: AttemptRun, number: int) -> None:
    """Let every reviewer of the run examine its pending revision."""
    revision = run.state.pending
    if revision is None or revision.number != number:
        return
    found, failed = await findings_of(run)
    run.submit(lambda state, now: commands.record_examination(state, number, found, failed, now))


async def findings_of(run: AttemptRun) -> tuple[list[str], str]:
    """Return the findings of a run's reviewers, and why one of them failed."""
    doc = _shown(run.state)
    found: list[str] = []
    failed = ""
    for name in run.state.policy.reviewers:
        reviewer = run.host.reviewers.get(name)
        if reviewer is None:
            failed = f"{name} is not loaded here"
            continue
        try:
            async with asyncio.timeout(run.state.policy.planner_timeout_s):
                found += [f"{name}: {each}" for each in await _findings(reviewer, deep_copy(doc))]
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code; it must not pass unseen
            failed = f"{name}: {type(error).__name__}: {error}"[:FINDING_CHARS_MAX]
    return [each[:FINDING_CHARS_MAX] for each in found[:FINDINGS_MAX]], failed


def _shown(state: State) -> Doc:
    """Return the document for reviewers: see docs/reference/review.md and `ports.Reviewer`."""
    revision = state.pending
    assert revision is not None
    steps, _resolved, later = resolved_steps(revision.add, state.lookup)
    return {
        "run": state.run,
        "goal": goal_of(state).to_doc(),
        "number": revision.number,
        "author": revision.author,
        "because": revision.because,
        "params": {name: _public(value) for name, value in state.params.items()},
        "steps": steps,
        "templates": revision.add,
        "unresolved": later,
        "cancel": revision.cancel,
        "drop": revision.drop,
        "risk": revision.risk,
        "envelope": state.permits.envelope,
        "untrusted": state.permits.tainted,
    }


def _public(value: Json) -> Json:
    return f"[secret:{value.name}]" if type(value) is Secret else value


async def _findings(reviewer: Reviewer, doc: Doc) -> list[str]:
    if inspect.iscoroutinefunction(reviewer) or inspect.iscoroutinefunction(
        getattr(reviewer, "__call__", None)  # noqa: B004 - an object with async __call__
    ):
        answer: Any = await reviewer(doc)
    else:
        answer = await asyncio.to_thread(reviewer, doc)
    if answer is None:
        return []
    return [answer] if isinstance(answer, str) else [str(each) for each in answer]
