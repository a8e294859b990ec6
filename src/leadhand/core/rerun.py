"""The plan of a re-run: a new run of the same plan, linked to the first by `rerun_of`.

Laws:

1. A re-run is a run of its own. It has the plan that was last accepted and the same parameters, or
   the same goal. No approval of the first run counts for it: the review policy applies anew.
2. A re-run from a step holds that step and every step that waits for it, directly or not. Results
   of other steps become parameters of the new plan, so an approver is shown them and the binding of
   an approval covers them. Steps whose results are taken over are not steps of the new run: it
   neither claims to have run them nor undoes them.
3. Each result that is taken over is recorded in `carried`, with the attempt and the log entry that
   it comes from and the digest of the data, so that `leadhand verify` can compare both logs.
4. Once a run has read untrusted data, every result that is taken over from it is untrusted,
   by whichever worker it was made, and so is a plan that was revised afterwards: the new run counts
   as having read such data.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from leadhand.core import events as ev
from leadhand.core.carried import LEFT_OUT_MAX, CarriedResult, result_digest
from leadhand.core.facts import true_facts, value_of_fact
from leadhand.core.hashing import canonical
from leadhand.core.plan.canonical import follow
from leadhand.core.plan.graph import context_of, dependencies, dependents
from leadhand.core.plan.model import Goal, dependency_id
from leadhand.core.plan.revisions import origin_of, replace_references, revisions, standalone
from leadhand.core.promises import combined_field
from leadhand.core.rollback import SUFFIX, given_params
from leadhand.core.views.run import goal_of, run_status
from leadhand.core.wording import closest, listed, shown
from leadhand.errors import Conflict, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.plan.references import Ref
    from leadhand.core.plan.revisions import RevisedPlan
    from leadhand.core.state.model import State, StepState

CARRIED_MAX = 8 << 20
"""The most bytes of results that a re-run takes over, as JSON."""
RERUN_LABEL = "rerun_of"
LABEL_MAX = 100
_MARK = re.compile(r'\[secret:[^\]"\\]{1,100}\]')
"""What stands in a result in place of a secret: see `audit/redaction.py`."""
DOCUMENT = "document"
"""The planner of a run that was started from a plan file."""


class Rerun(NamedTuple):
    """What a re-run starts: a goal, or a plan with the values of its parameters."""

    what: Goal | Doc
    params: Doc
    origin: Doc
    """Recorded with the plan: `rerun_of`, `rerun_from`, `carried`, `left_out`, `untrusted`, and the
    context."""
    review: bool
    """Whether the first run was started with a review of every plan."""
    budget: float | None
    """The budget of the first run."""
    labels: tuple[str, ...]
    """The labels of the first run, with `rerun_of=RUN`: by it, all re-runs of a run are found."""


def refuse_rerun(state: State) -> None:
    """Raise `Conflict` if a run has not ended, `UsageError` if it cannot be run again."""
    run = state.run
    if state.started is None or state.ended is None:
        raise Conflict(f"run {run} is {run_status(state)}. Fix: end it before it is run again")
    if run.endswith(SUFFIX):
        first = run.removesuffix(SUFFIX)
        raise UsageError(
            f"run {run} is a rollback, which undoes run {first} once. "
            f"Fix: run {first} again, not its rollback"
        )


def rerun_of(
    state: State,
    log: Sequence[tuple[int, ev.Event]],
    data_of: Callable[[StepState], Json],
    from_step: str = "",
) -> Rerun:
    """Return the re-run of a run that has ended, from its beginning or from a step.

    `log` holds its events with their numbers; `data_of` returns the complete data of a step. Raise
    `UsageError` if the run, or the step, cannot be run again.
    """
    refuse_rerun(state)
    started = state.started
    assert started is not None
    if not from_document(started):
        return _of_goal(state, from_step)
    found = revisions(event for _seq, event in log)
    accepted = [each for each in found if each.status == "approved"]
    if not found or (from_step and not accepted):
        raise UsageError(f"run {state.run} has no accepted plan, so there is nothing to run again")
    revision = accepted[-1] if accepted else found[0]
    if from_step:
        return _from_step(state, log, revision, from_step, data_of)
    doc = standalone(revision.doc, revision.heirs, {})
    kept = ("context", "bound", *(("library",) if revision.number == 1 else ()))
    origin = _origin(state, kept)
    if state.permits.tainted and revision.number > 1:  # written after such data was read
        origin["untrusted"] = True
    return _rerun(state, doc, given_params(state, doc.get("params", {})), origin)


def from_document(started: ev.RunStarted) -> bool:
    """Return whether a run was started from a plan, rather than from a goal."""
    return started.planner == DOCUMENT or "planner" in started.plan


def _origin(state: State, kept: Sequence[str]) -> Doc:
    """Return the fields `kept` of a run's origin, and the run as the one that is repeated.

    If that run is a re-run itself, what it took over is taken over again, with its first origin.
    """
    known = origin_of(state.started)
    kept = (*kept, "carried", "left_out", "untrusted", "caller")
    return {**{key: known[key] for key in kept if key in known}, "rerun_of": state.run}


def _rerun(state: State, what: Goal | Doc, params: Doc, origin: Doc) -> Rerun:
    policy, run = state.policy, state.run
    before = state.started.labels if state.started else ()
    kept = tuple(each for each in before if not each.startswith(f"{RERUN_LABEL}="))
    return Rerun(what, params, origin, policy.review, policy.budget, (*kept, rerun_label(run)))


def rerun_label(run: str) -> str:
    """Return the label that every re-run of a run has."""
    return f"{RERUN_LABEL}={run}"[:LABEL_MAX]


def _of_goal(state: State, from_step: str) -> Rerun:
    if from_step:
        raise UsageError(
            f"run {state.run} was started from a goal, and its planner decides the steps anew. "
            f"Fix: run it again from the beginning; or save its plan with `leadhand library save "
            f"NAME {state.run}` and run that"
        )
    return _rerun(state, goal_of(state), {}, _origin(state, ("context", "bound")))


class _Cut(NamedTuple):
    """A plan, divided into the steps that run again and the others."""

    steps: dict[str, Doc]
    heirs: Mapping[str, str]
    again: set[str]

    def standing(self, name: str) -> str:
        """Return the step that stands for a name: itself, or the last one that replaced it."""
        return follow(name, self.heirs)


def _cut(state: State, revision: RevisedPlan, from_step: str) -> _Cut:
    steps = {step["id"]: step for step in revision.doc["steps"]}
    heirs = revision.heirs
    first = follow(from_step, heirs)
    if first not in steps:
        near = closest(from_step, list(steps))
        fix = f" Fix: did you mean {shown(near)}?" if near else ""
        raise UsageError(f"the plan of run {state.run} has no step {shown(from_step)}.{fix}")
    graph = {
        name: tuple(follow(each, heirs) for each in dependencies(step))
        for name, step in steps.items()
    }
    after = dependents(graph)
    again, stack = {first}, [first]
    while stack:
        new = [name for name in after[stack.pop()] if name not in again]
        again.update(new)
        stack += new
    return _Cut(steps, heirs, again)


def _from_step(
    state: State,
    log: Sequence[tuple[int, ev.Event]],
    revision: RevisedPlan,
    from_step: str,
    data_of: Callable[[StepState], Json],
) -> Rerun:
    cut = _cut(state, revision, from_step)
    declared = dict(revision.doc.get("params") or {})
    carrying = _Carrying(state, log, cut, declared, data_of)
    steps = [carrying.step(step) for name, step in cut.steps.items() if name in cut.again]
    doc = {**revision.doc, "steps": steps}
    facts = carrying.facts()
    if facts:
        goal = goal_of(state)
        doc["goal"] = replace(goal, have={**goal.have, **facts}).to_doc()
    carrying.for_acceptance(goal_of(state).acceptance)
    values = {**given_params(state, revision.doc.get("params") or {}), **carrying.values}
    if declared:
        doc["params"] = declared
    if len(canonical([values, facts])) > CARRIED_MAX:
        raise UsageError(
            f"the results that step {shown(from_step)} needs are larger than "
            f"{CARRIED_MAX >> 20} MiB. Fix: run all of run {state.run} again"
        )
    left = [name for name in cut.steps if name not in cut.again and name not in carrying.carried]
    origin = _origin(state, ("context", "bound"))
    origin["rerun_from"] = from_step
    if state.permits.tainted:
        origin["untrusted"] = True
    if carrying.carried:
        now = msgspec.to_builtins(carrying.carried)
        origin["carried"] = {**origin.get("carried", {}), **now}
    if left:
        now = {name: _status(state, name) for name in left[:LEFT_OUT_MAX]}
        origin["left_out"] = {**origin.get("left_out", {}), **now}
    return _rerun(state, standalone(doc, revision.heirs, {}), values, origin)


def _status(state: State, name: str) -> str:
    step = state.steps.get(name)
    return step.status if step is not None else "waiting"


class _Carrying:
    """Takes results over: references to them become references to parameters."""

    def __init__(
        self,
        state: State,
        log: Sequence[tuple[int, ev.Event]],
        cut: _Cut,
        declared: Doc,
        data_of: Callable[[StepState], Json],
    ) -> None:
        self._state, self._cut, self._declared, self._data_of = state, cut, declared, data_of
        self._reports = _reports(log)
        self.values: Doc = {}
        self.carried: dict[str, CarriedResult] = {}

    def step(self, doc: Doc) -> Doc:
        """Return a step of the new plan: it waits for no step that is not run again."""
        cut, name = self._cut, doc["id"]
        outside = [each for each in context_of(doc) if cut.standing(each) not in cut.again]
        if outside:
            raise UsageError(
                f"step {shown(name)} gets the result of {shown(outside[0])} as context, which "
                f"cannot be taken over. Fix: re-run from {shown(outside[0])}, or the whole run"
            )
        for each, tolerant in dependencies(doc).items():
            if cut.standing(each) not in cut.again and not tolerant:
                self._carry(cut.standing(each), name)
        found = dict(doc)
        if "depends_on" in found:
            entries = found["depends_on"]
            kept = [e for e in entries if cut.standing(dependency_id(e)) in cut.again]
            found["depends_on"] = kept
            if not kept:
                del found["depends_on"]
        for key in ("parameters", "undo"):
            if key in found:
                found[key] = replace_references(found[key], self._written)
        return found

    def facts(self) -> Doc:
        """Return the facts that steps which are not run again gave, each with its value."""
        state, cut = self._state, self._cut
        found: Doc = {}
        wanted = self._facts_used()
        for fact, giver in true_facts(state, goal_of(state)).items():
            unused = wanted is not None and fact not in wanted
            if unused or giver not in state.steps or giver in cut.again:
                continue
            step = state.steps[giver]
            if giver in cut.steps and step.status == "succeeded":
                self._carry(giver, giver)
                found[fact] = value_of_fact(state, step, fact, self._data_of(step))
        return found

    def _facts_used(self) -> set[str] | None:
        """Return the facts that the goal wants and the steps need; None: a planner may use any."""
        state = self._state
        if state.started is not None and "planner" in state.started.plan:
            return None
        found = set(goal_of(state).want)
        for name in self._cut.again:
            doc = self._cut.steps[name]
            offer = state.catalog.offer(doc["worker"], doc.get("action", ""))
            found.update(combined_field(doc, offer, "needs"))
        return found

    def for_acceptance(self, criteria: Sequence[str]) -> None:
        """Take over the results that the goal's acceptance criteria name."""
        for name in self._cut.steps:
            word = re.compile(rf"steps\.{re.escape(name)}(?![\w-])")
            outside = name not in self._cut.again and any(word.search(each) for each in criteria)
            if outside and _status(self._state, name) == "succeeded":
                self._param(name)

    def _written(self, ref: Ref) -> str:
        name = self._cut.standing(ref.name)
        if name in self._cut.again:
            return ref.text
        return ref.text.replace(ref.root, f"params.{self._param(name)}", 1)

    def _carry(self, name: str, user: str) -> CarriedResult:
        """Record the result of a step that step `user` of the new run stands on."""
        known = self.carried.get(name)
        if known is not None:
            return known
        step = self._state.steps.get(name)
        if step is None or step.status != "succeeded" or name not in self._reports:
            raise UsageError(
                f"step {shown(user)} needs step {shown(name)}, which is "
                f"{_status(self._state, name)} in run {self._state.run}. "
                f"Fix: re-run from {shown(name)}"
            )
        entry, attempt = self._reports[name]
        worker = self._state.catalog.workers.get(step.worker)
        tainted = self._state.permits.tainted  # what a trusted worker made of such data, too
        self.carried[name] = CarriedResult(
            run=self._state.run,
            attempt=attempt,
            entry=entry,
            digest=result_digest(self._data_of(step)),
            untrusted=tainted or (worker is not None and not worker.trusted),
        )
        return self.carried[name]

    def _param(self, name: str) -> str:
        """Return the parameter that holds the result of a step, declared on first use."""
        known = self._carry(name, name)
        if known.param:
            return known.param
        stem = f"result_{re.sub(r'[^A-Za-z0-9_-]', '_', name)}"[:80]
        param, number = stem, 1
        while param in self._declared:
            number += 1
            param = f"{stem}_{number}"
        what = f"The result of step {name} of run {self._state.run}, attempt {known.attempt}"
        data = self._data_of(self._state.steps[name])
        marks = sorted({*_MARK.findall(canonical(data).decode())})
        if marks:  # steps of the first run got the same: no result holds a secret
            what += f". It holds {listed(marks)} in place of a secret, as in that run"
        self._declared[param] = {"description": what, "required": False}
        self.values[param] = data
        self.carried[name] = msgspec.structs.replace(known, param=param)
        return param


def _reports(log: Sequence[tuple[int, ev.Event]]) -> dict[str, tuple[int, int]]:
    """Return the entry and the attempt of each step's report that was verified as a success."""
    found: dict[str, tuple[int, int]] = {}
    for seq, event in log:
        if isinstance(event, ev.AttemptReported | ev.ProbeReported) and event.met:
            found[event.step] = (seq, event.attempt)
    return found
